# SPDX-License-Identifier: MIT
"""haul discover and haul id, as a user types them."""
import json
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import HAUL, NQN, die_with_parent, environment, haul

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def test_discover_lists_what_is_offered(target):
    done = haul("discover", target.hauld.uri, f"--engine={target.engine}", transport=target.transport)
    assert done.returncode == 0, done.stderr
    assert f"subsystem  {target.uri}\n" in done.stdout
    assert done.stderr == ""


def test_discover_prints_json(target):
    done = haul("discover", "--json", target.hauld.uri, transport=target.transport)
    assert done.returncode == 0, done.stderr
    log = json.loads(done.stdout)
    entry = next(entry for entry in log["entries"] if entry["subtype"] == "subsystem")
    assert entry["nqn"] == NQN and entry["transport"] == target.transport
    assert entry["uri"] == target.uri and entry["address_family"] == "ipv4"
    assert isinstance(log["generation"], int)


def test_id_shows_controller_and_namespaces(target):
    done = haul("id", target.uri, f"--engine={target.engine}", transport=target.transport)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^subsystem +{re.escape(NQN)}$", done.stdout, re.M)
    assert len(re.findall(r"^namespace \d+ +16 MiB, 32768 blocks of 512 bytes$", done.stdout, re.M)) == 3
    assert re.search(rf"uuid {UUID}", done.stdout)


def test_the_log_gives_no_fault_for_an_end_in_order(target):
    assert haul("id", target.uri, transport=target.transport).returncode == 0
    deadline = time.monotonic() + 10
    while f"disconnected from {NQN}" not in target.hauld.log():
        assert time.monotonic() < deadline, target.hauld.log()
        time.sleep(0.01)
    assert f"disconnected from {NQN}:" not in target.hauld.log()


def test_id_prints_json(target):
    done = haul("id", target.uri, "--json", transport=target.transport)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["nqn"] == NQN and found["transport"] == target.transport
    assert [ns["nsid"] for ns in found["namespaces"]] == [1, 2, 3]
    assert all(ns["size_bytes"] == 16 << 20 and re.fullmatch(UUID, ns["uuid"]) for ns in found["namespaces"])


def test_the_only_subsystem_needs_no_name(target):
    done = haul("id", target.hauld.uri, transport=target.transport)
    assert done.returncode == 0, done.stderr
    assert NQN in done.stdout


def test_digests_that_the_target_does_not_do_are_an_error(hauld):
    running = hauld("--export", f"ram:1M,nqn={NQN}", listen="tcp://127.0.0.1:0?hdgst=off&ddgst=off")
    uri = running.uri.split("?")[0] + f"/{NQN}"
    for option in ("hdgst", "ddgst"):
        done = haul("id", f"{uri}?{option}=1")
        assert done.returncode == 1 and f"leave {option} out, or allow them at the target" in done.stderr, done
    assert haul("id", uri).returncode == 0


def test_id_says_that_there_is_no_namespace(hauld, transport, tmp_path):
    conf = tmp_path / "hauld.conf"
    conf.write_text(f"listen: ['{transport}://127.0.0.1:0']\n"
                    f"subsystems: [{{nqn: {NQN}, namespaces: [{{ram: 1M, allow: []}}]}}]\n")
    running = hauld("--config", str(conf), transport=transport)
    done = haul("id", f"{running.uri}/{NQN}", transport=transport)
    assert done.returncode == 0 and "namespaces   none for this host\n" in done.stdout, done
    done = haul("id", f"{running.uri}/nqn.2014-08.org.nvmexpress.discovery", transport=transport)
    assert done.returncode == 0 and "namespaces" not in done.stdout, done


def test_several_subsystems_are_listed(hauld, transport):
    running = hauld("--export", f"ram:1M,nqn={NQN}a", "--export", f"ram:1M,nqn={NQN}b", transport=transport)
    done = haul("id", running.uri, transport=transport)
    assert done.returncode == 1
    assert f"{NQN}a, {NQN}b" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", ["?hdgst=1", "?ddgst=1", "?hdgst=1&ddgst=1&kato=5&timeout=3s&tos=16&queues=3"])
def test_options_of_the_address(target, options):
    done = haul("id", target.uri + options, "--json", transport=target.transport)
    if target.transport != "tcp":
        assert done.returncode == 2 and "is for tcp:// only" in done.stderr, done
        assert done.stderr.count("\n") == 1 and done.stdout == ""
        return
    assert done.returncode == 0, done.stderr
    if "kato" in options:
        found = json.loads(done.stdout)
        assert found["keep_alive_ms"] == 5000 and found["max_queues"] == 3


def test_host_nqn_is_what_was_asked(target):
    done = haul("id", target.uri + "?hostnqn=nqn.2026-11.io.haul:me", "--json", transport=target.transport)
    assert json.loads(done.stdout)["host_nqn"] == "nqn.2026-11.io.haul:me"
    assert "nqn.2026-11.io.haul:me" in target.hauld.log()


@pytest.mark.parametrize("listen", ["tcp://[::1]:0", "tcp://[::]:0", "tcp://0.0.0.0:0"])
def test_wildcards_and_ipv6(hauld, listen):
    running = hauld("--export", f"ram:1M,nqn={NQN}", listen=listen)
    uri = running.uri.replace("[::]", "[::1]").replace("0.0.0.0", "127.0.0.1")
    done = haul("id", uri)
    assert done.returncode == 0, done.stderr
    done = haul("discover", uri)
    assert uri + "/" + NQN in done.stdout


def test_names_are_looked_up(hauld):
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    done = haul("id", running.uri.replace("127.0.0.1", "localhost"))
    assert done.returncode == 0, done.stderr


def test_unknown_subsystem_and_namespace_are_said(target):
    done = haul("id", target.hauld.uri + "/nqn.2026-11.io.haul:other", transport=target.transport)
    assert done.returncode == 1 and "haul discover" in done.stderr
    done = haul("id", target.uri + "/9", transport=target.transport)
    assert done.returncode == 1 and "active ones: 1, 2, 3" in done.stderr


@pytest.mark.parametrize("args, words", [
    ([], "a command is missing"),
    (["attach"], "no command attach"),
    (["id"], "URI of a target is missing"),
    (["id", "tcp://127.0.0.1", "more"], "more"),
    (["id", "--wrong", "tcp://127.0.0.1"], "--wrong"),
    (["id", "http://127.0.0.1"], "tcp://"),
    (["id", "tcp://127.0.0.1:0"], "port"),
    (["id", "tcp://127.0.0.1:65536"], "port"),
    (["id", "tcp://127.0.0.1:-0"], "port"),
    (["id", "tcp://127.0.0.1:"], "port"),
    (["id", "tcp://127.0.0.1/a%0Ab"], "control character"),
    (["id", "tcp://127.0.0.1?hostnqn=testhost"], "nqn."),
    (["id", "tcp://127.0.0.1/" + NQN + "?wrong=1"], "known ones"),
    (["id", "rdma://127.0.0.1/" + NQN + "?keys=all"], "region or io"),
    (["id", "tcp://127.0.0.1/" + NQN + "?keys=io"], "rdma:// only"),
    (["id", "--engine=kqueue", "tcp://127.0.0.1"], "kqueue"),
    (["discover", "rdma//127.0.0.1"], "rdma"),
])
def test_wrong_usage_is_one_line_and_status_2(args, words):
    done = haul(*args)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_help_and_version():
    assert haul("--help").stdout.startswith("haul looks at")
    assert re.fullmatch(r"haul \d+\.\d+\.\d+\n", haul("--version").stdout)


def test_nobody_there_is_said():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    done = haul("id", f"tcp://127.0.0.1:{port}/{NQN}")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "refused; does an NVMe/TCP target listen" in done.stderr


class Silent:
    """Somebody who accepts connections and says SAYS, which may be nothing."""

    def __init__(self, says=b""):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}/{NQN}"
        self.says = says

    def accept(self):
        connection = self.socket.accept()[0]
        connection.sendall(self.says)
        return connection


# B018: an ICResp that never comes, or half of it.
@pytest.mark.parametrize("says", [b"", b"\x01\x00\x80\x00\x80" + bytes(59)])
def test_silence_ends_within_the_deadline(says):
    silent = Silent(says)
    start = time.monotonic()
    with subprocess.Popen([str(HAUL), "id", silent.uri + "?connect_timeout=1s"], stderr=subprocess.PIPE, text=True,
                          preexec_fn=die_with_parent) as process, silent.accept():
        error = process.communicate(timeout=30)[1]
    assert process.returncode == 1 and "connecting" in error
    assert 0.9 < time.monotonic() - start < 10


def test_a_connection_closed_at_once_is_no_nvme_tcp():
    silent = Silent()
    with subprocess.Popen([str(HAUL), "id", silent.uri], stderr=subprocess.PIPE, text=True,
                          preexec_fn=die_with_parent) as process:
        connection = silent.accept()
        connection.recv(128, socket.MSG_WAITALL)
        connection.close()
        error = process.communicate(timeout=30)[1]
    assert process.returncode == 1 and "is it an NVMe/TCP port?" in error, error


@pytest.mark.parametrize("what", [["id"], ["id", "--json"], ["discover"]])
def test_output_that_cannot_be_written_is_a_failure(hauld, what):
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(HAUL), *what, running.uri], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment("tcp"), timeout=30, check=False)
    assert done.returncode == 1, done
    assert done.stderr == "haul: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_at_once(number):
    silent = Silent()
    with subprocess.Popen([str(HAUL), "id", silent.uri], stderr=subprocess.PIPE, text=True,
                          env=environment("tcp"), preexec_fn=die_with_parent) as process, silent.accept():
        start = time.monotonic()
        process.send_signal(number)
        error = process.communicate(timeout=30)[1]
    assert process.returncode == -number, error
    assert time.monotonic() - start < 5 and error == ""


def test_target_that_dies_is_noticed(hauld):
    """Between two commands: nothing hangs."""
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    assert haul("id", running.uri).returncode == 0
    running.kill()
    assert haul("id", running.uri).returncode == 1

# SPDX-License-Identifier: MIT
"""hauld's command line and configuration: what is wrong is said in one line, with status 2."""
import os
import signal
import subprocess

import conftest
import pytest

HAULD = str(conftest.BUILD / "target" / "hauld")


def run(*args, timeout=20):
    return subprocess.run([HAULD, *args], capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, check=False)


@pytest.mark.parametrize("args, word", [
    ([], "--listen"),
    (["--listen", "tcp://127.0.0.1:0"], "--export"),
    (["--export", "null:1M"], "--listen"),
    (["--nonsense"], "--nonsense"),
    (["--listen", "http://127.0.0.1:0", "--export", "null:1M"], "http"),
    (["--listen", "tcp://127.0.0.1:65536", "--export", "null:1M"], "65536"),
    (["--listen", "tcp://127.0.0.1:4420x", "--export", "null:1M"], "4420x"),
    (["--listen", "tcp://127.0.0.1:-1", "--export", "null:1M"], "-1"),
    (["--listen", "tcp://[::1", "--export", "null:1M"], "]"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M,colour=red"], "colour"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M,nqn=bad name"], "nqn"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M,nsid=0"], "nsid"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M,nsid=4294967295"], "nsid"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:"], "null"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "0"], "threads"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "many"], "many"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--engine", "steam"], "steam"),
])
def test_a_wrong_command_line_gets_one_line_and_status_2(args, word):
    done = run(*args)
    assert done.returncode == 2, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and word in lines[0], done.stderr
    assert done.stdout == ""


def test_a_missing_disk_is_named(tmp_path):
    done = run("--listen", "tcp://127.0.0.1:0", "--export", str(tmp_path / "gone"))
    assert done.returncode == 1 and "gone" in done.stderr


def test_a_busy_port_is_named(start_hauld):
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", "null:1M")
    done = run("--listen", hauld.uris[0], "--export", "null:1M")
    assert done.returncode == 1 and str(hauld.address[1]) in done.stderr


def test_help_and_version():
    for option in ("--help", "--version"):
        done = run(option)
        assert done.returncode == 0 and "hauld" in done.stdout and done.stderr == ""


CONFIGS = [
    ("listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: bad name\n", 3, "nqn"),
    ("listen: [tcp://127.0.0.1:99999]\nsubsystems: []\n", 1, "listen"),
    ("listen: [tcp://127.0.0.1:0]\ncolour: red\n", 2, "colour"),
    ("listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: nqn.2026-11.io.haul:a\n"
     "    namespaces:\n      - ram: 1M\n        nsid: 0\n", 6, "nsid"),
    ("listen: [tcp://127.0.0.1:0]\nthreads: -4\n", 2, "threads"),
    ("listen: [tcp://127.0.0.1:0\n", None, ""),
    ("listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: nqn.2026-11.io.haul:a\n"
     "    serial: this-serial-number-is-too-long\n", 4, "serial"),
    ("listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: nqn.2026-11.io.haul:a\n"
     "    namespaces:\n      - ram: 1M\n        uuid: 1234\n", 6, "uuid"),
    ("listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: nqn.2026-11.io.haul:a\n"
     "    namespaces:\n      - ram: 1M\n        nsid: 1\n      - ram: 1M\n        nsid: 1\n",
     8, "nsid"),
]


@pytest.mark.parametrize("text, line, word", CONFIGS, ids=range(len(CONFIGS)))
def test_check_names_file_line_and_key(tmp_path, text, line, word):
    path = tmp_path / "wrong.conf"
    path.write_text(text)
    done = run("--check", str(path))
    assert done.returncode == 2, done
    first = done.stderr.strip().splitlines()[0]
    assert str(path) in first and word in first
    if line is not None:
        assert f"{path}:{line}:" in first, first


def test_check_accepts_a_good_file(tmp_path):
    done = run("--check", str(conftest.config(tmp_path)))
    assert done.returncode == 0, done.stderr


def test_one_disk_is_not_given_out_twice(tmp_path, start_hauld):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    link = tmp_path / "link"
    link.symlink_to(disk)
    hard = tmp_path / "hard"
    os.link(disk, hard)
    for second in (disk, link, hard):
        done = run("--listen", "tcp://127.0.0.1:0", "--export", str(disk), "--export", str(second))
        assert done.returncode == 1 and "in use" in done.stderr, done.stderr
    start_hauld("--listen", "tcp://127.0.0.1:0", "--export", str(disk))
    done = run("--listen", "tcp://127.0.0.1:0", "--export", str(hard))
    assert done.returncode == 1 and "in use" in done.stderr, done.stderr


def test_default_names_are_stable_and_different(tmp_path, start_hauld):
    import nvme
    import nvmetcp
    import test_discovery

    def names(*disks):
        hauld = start_hauld("--listen", "tcp://127.0.0.1:0",
                            *sum((["--export", str(d)] for d in disks), []))
        with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
            out = [e["subnqn"] for e in test_discovery.parse(test_discovery.whole_log(admin))[1]
                   if e["subtype"] == 2]
        assert hauld.stop() == 0
        return out
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(bytes(1 << 20))
    two.write_bytes(bytes(1 << 20))
    first = names(one, two)
    assert first == names(one, two)
    assert len(set(first)) == 2
    assert all(name.startswith("nqn.2014-08.org.nvmexpress:uuid:") for name in first)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_stop_signals_drain_and_exit_0_with_hosts_connected(start_hauld, sig):
    import nvme
    import nvmetcp
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export",
                        "null:1G,nqn=nqn.2026-11.io.haul:stop")
    with nvmetcp.Admin(hauld.address, "nqn.2026-11.io.haul:stop") as admin, \
            admin.io_queue() as queue:
        dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096)
        queue.send(b"".join(queue.capsule(nvme.command(
            nvme.WRITE, cid=cid, nsid=1, dptr=dptr, cdw=nvme.rw_cdw(0, 8))) for cid in range(20)))
        hauld.process.send_signal(sig)
        assert hauld.process.wait(timeout=15) == 0
    again = start_hauld("--listen", hauld.uris[0], "--export", "null:1M")
    assert again.address == hauld.address, "the port is free at once"

# SPDX-License-Identifier: MIT
"""hauld's command line and configuration: what is wrong is said in one line, with status 2."""
import grp
import os
import pathlib
import pwd
import resource
import signal
import subprocess
import tempfile
import time

import conftest
import nvme
import nvmetcp
import pytest

UUID = "11111111-2222-3333-4444-555555555555"
HAULD = str(conftest.BUILD / "target" / "hauld")


def run(*args, timeout=20, stdin=subprocess.DEVNULL):
    return subprocess.run([HAULD, *args], capture_output=True, text=True, timeout=timeout,
                          stdin=stdin, check=False)


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
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "0"], "--threads 0: not a number from 1 to 64"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "99"], "99: not a number from 1 to 64"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--patience-s", "0"], "0: not a number from 1 to 3600"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--patience-s", "30s"],
     "30s: not a number from 1 to 3600"),
    (["--listen", "tcp://127.0.0.1:0,tcp://127.0.0.2:0", "--export", "null:1M"], "separated by blanks"),
    (["--listen", "tcp://127.0.0.1,tcp://127.0.0.2", "--export", "null:1M"], "separated by blanks"),
    (["--listen", "tcp://[::1]:0,tcp://[::1]:0", "--export", "null:1M"], "separated by blanks"),
    (["--listen", "tcp://::1", "--export", "null:1M"], "stands in brackets"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "many"], "many"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--engine", "steam"], "steam"),
    (["--listen", "tcp://127.0.0.1:0", "--export", f"null:1M,nqn={nvme.DISCOVERY_NQN}"],
     "give a name such as"),
    (["--listen", *["tcp://127.0.0.1:0"] * 65, "--export", "null:1M"], "64 are possible"),
    (["--listen", "tcp://127.0.0.1:0", "--export", f"null:1M,uuid={UUID}", "--export",
      f"null:2M,uuid={UUID}"], "give each its own"),
    (["--listen", "tcp://127.0.0.1:0", "--export", f"null:1M,uuid={UUID},nqn=nqn.2026-11.io.haul:a",
      "--export", f"null:2M,uuid={UUID},nqn=nqn.2026-11.io.haul:b"], "give each its own"),
    (["tcp://127.0.0.1:0", "--export", "null:1M"], "with --listen"),
    (["--listen", "tcp://127.0.0.1:0", "--threads", "1", "tcp://127.0.0.1:0"], "with --listen"),
    (["--check", "/dev/null", "--listen", "tcp://127.0.0.1:0"], "--check goes without"),
    (["--check", "/dev/null", "--config", "/dev/null"], "--check goes without"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "ram"], "ram:SIZE"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "/tmp/disk,1.img"], "use --config"),
    (["--listen", "tcp://127.0.0.1:0", "--export", "ram:lots"], "lots"),
])
def test_a_wrong_command_line_gets_one_line_and_status_2(args, word):
    done = run(*args)
    assert done.returncode == 2, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and word in lines[0], done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--config", "--check"])
def test_a_configuration_that_cannot_be_read_is_wrong_usage(tmp_path, option):
    done = run(option, str(tmp_path / "gone"))
    assert done.returncode == 2 and "gone: cannot be read" in done.stderr, done
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a hauld that is refused")
@pytest.mark.parametrize("mode, option, hint", [
    (0o444, "", True), (0o000, "", False), (0o000, ",readonly", False)])
def test_readonly_is_proposed_only_where_it_would_do(mode, option, hint):
    with tempfile.TemporaryDirectory(prefix="haul-cli-") as directory:
        os.chmod(directory, 0o755)
        disk = pathlib.Path(directory) / "disk"
        disk.write_bytes(bytes(1 << 20))
        disk.chmod(mode)
        done = subprocess.run(
            [HAULD, "--listen", "tcp://127.0.0.1:0", "--export", f"{disk}{option}"],
            capture_output=True, text=True, timeout=20, check=False, user=65534, group=65534,
            extra_groups=[])
    assert done.returncode == 1 and "cannot be opened" in done.stderr, done
    assert ("readonly would do" in done.stderr) == hint, done.stderr
    # Whom to let in.
    name, group = pwd.getpwuid(65534).pw_name, grp.getgrgid(65534).gr_name
    assert f"Permission denied, as user {name} with groups {group}" in done.stderr, done.stderr


def test_a_missing_disk_is_named(tmp_path):
    done = run("--listen", "tcp://127.0.0.1:0", "--export", str(tmp_path / "gone"))
    assert done.returncode == 1 and "gone" in done.stderr


def test_a_busy_port_is_named(start_hauld):
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", "null:1M")
    done = run("--listen", hauld.uris[0], "--export", "null:1M")
    assert done.returncode == 1 and str(hauld.address[1]) in done.stderr


def test_one_listen_takes_several_addresses(start_hauld):
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "tcp://[::1]:0", "--export", "null:1M",
                        "null:2M")
    assert len(hauld.uris) == 2 and "[::1]" in hauld.uris[1]


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
    path = conftest.config(tmp_path)
    done = run("--check", str(path))
    assert done.returncode == 0 and done.stdout == f"{path} is right\n", done.stderr
    with open(path, encoding="utf-8") as file:
        done = run("--check", "-", stdin=file)
    assert done.returncode == 0 and done.stdout == "standard input is right\n", done.stderr


@pytest.mark.parametrize("threads, memory, spin, word", [
    ("1", "1", "0", "raised to 8 MiB, the least for 1 thread\n"),
    ("64", "1M", "0", "raised to 512 MiB, the least for 64 threads\n"),
    ("1", "8M", "1000000", None), ("2", "4G", "1", None)])
def test_extreme_settings_work_or_are_refused(start_hauld, threads, memory, spin, word):
    """PITFALLS B176: the largest command is carried out, and what is raised is told."""
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", f"ram:4M,nqn={EXTREME_NQN}", "--threads",
                        threads, "--memory", memory, "--spin-us", spin)
    with nvmetcp.Admin(hauld.address, EXTREME_NQN) as admin, admin.io_queue(sqsize=127) as queue:
        data = os.urandom(1 << 20)
        assert queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(0, 2048), write=data)[0].status == 0
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 2048), read=len(data))[1] == data
    if word:
        assert word in hauld.log_path.read_text()


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


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_signals_drain_and_exit_0_with_hosts_connected(start_hauld, sig):
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


EXTREME_NQN = "nqn.2026-11.io.haul:extreme"
DRAIN_NQN = "nqn.2026-11.io.haul:drain"


def drain_hauld(start_hauld, disk, engine):
    disk.write_bytes(bytes(8 << 20))
    return start_hauld("--listen", "tcp://127.0.0.1:0", "--export", f"{disk},nqn={DRAIN_NQN}",
                       "--threads", "2", "--log-level", "debug", engine=engine)


def transfers(queue, opcode, cids):
    """Capsules of 128 KiB transfers, block range by CID."""
    dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, 1 << 17)
    return b"".join(queue.capsule(nvme.command(
        opcode, cid=cid, nsid=1, dptr=dptr, cdw=nvme.rw_cdw(256 * cid, 256))) for cid in cids)


def responses(queue, count):
    """Identifiers of COUNT commands that have succeeded."""
    cids = []
    while len(cids) < count:
        pdu = queue.recv_pdu()
        if pdu.kind == nvmetcp.RSP:
            cqe = nvme.Cqe(pdu.header[8:24])
            assert cqe.status == 0, cqe
            cids.append(cqe.cid)
    return sorted(cids)


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_commands_sent_before_the_stop_signal_are_answered(start_hauld, tmp_path, engine):
    hauld = drain_hauld(start_hauld, tmp_path / "disk", engine)
    with nvmetcp.Admin(hauld.address, DRAIN_NQN) as admin, admin.io_queue() as queue:
        queue.send(transfers(queue, nvme.READ, range(30)))
        hauld.process.send_signal(signal.SIGTERM)
        assert responses(queue, 30) == list(range(30))
        with pytest.raises(nvmetcp.Closed):
            queue.recv_pdu()
    assert hauld.process.wait(timeout=10) == 0


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_commands_that_come_while_the_target_drains_are_not_begun(start_hauld, tmp_path, engine):
    disk = tmp_path / "disk"
    hauld = drain_hauld(start_hauld, disk, engine)
    with nvmetcp.Admin(hauld.address, DRAIN_NQN) as admin, admin.io_queue() as queue:
        queue.send(transfers(queue, nvme.WRITE, range(8)))
        asked = [queue.recv_pdu() for _ in range(8)]
        assert all(pdu.kind == nvmetcp.R2T for pdu in asked)
        hauld.process.send_signal(signal.SIGTERM)
        for reactor in range(2):
            hauld.wait_for_log(f"reactor {reactor}: no further command is begun")
        late = nvme.command(nvme.WRITE, cid=20, nsid=1, cdw=nvme.rw_cdw(256 * 20, 8),
                            dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 4096))
        queue.send(queue.capsule(late, b"L" * 4096))
        for pdu in asked:
            queue.answer_r2t(pdu, b"W" * (1 << 17))
        assert responses(queue, 8) == list(range(8))
        with pytest.raises(nvmetcp.Closed):
            queue.recv_pdu()
    assert hauld.process.wait(timeout=10) == 0
    with open(disk, "rb") as file:
        assert file.read(8 << 17) == b"W" * (8 << 17)
        file.seek(20 << 17)
        assert file.read(4096) == bytes(4096), "a command that came too late was run"


def test_a_second_signal_cuts_the_drain_short(start_hauld, tmp_path):
    hauld = drain_hauld(start_hauld, tmp_path / "disk", None)
    with nvmetcp.Admin(hauld.address, DRAIN_NQN) as admin, admin.io_queue() as queue:
        queue.send(transfers(queue, nvme.WRITE, range(1)))
        assert queue.recv_pdu().kind == nvmetcp.R2T
        hauld.process.send_signal(signal.SIGTERM)
        hauld.wait_for_log("no further command is begun")
        hauld.process.send_signal(signal.SIGTERM)
        assert hauld.process.wait(timeout=1.5) == 1
    hauld.stop = lambda: 0


def test_a_log_that_nobody_reads_stops_nothing():
    """A host that comes and goes writes lines; stderr may be a pipe whose reader has stopped."""
    import fcntl
    import nvmetcp
    import re
    name = "nqn.2026-11.io.haul:unread"
    command = [HAULD, "--listen", "tcp://127.0.0.1:0", "--export", f"null:1M,nqn={name}",
               "--log-level", "debug"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=conftest._die_with_parent) as hauld:
        size = fcntl.fcntl(hauld.stderr, fcntl.F_SETPIPE_SZ, 16384)
        try:
            for line in hauld.stdout:
                if line.startswith("listening on "):
                    address = conftest.split_uri(re.match(r"listening on (\S+)", line).group(1))
                if line.strip() == "ready":
                    break
            for _ in range(600):
                nvmetcp.Admin(address, name, enable=False).close()
        finally:
            hauld.kill()
        told = len(hauld.stderr.read())
        assert size - 8192 < told <= size, f"the pipe was never full: {told} of {size}"


def test_a_mistake_of_a_host_leaves_a_warning_that_names_it_but_not_a_flood(start_hauld):
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "1")
    for count in range(40):
        with nvmetcp.Tcp(hauld.address) as host:
            name = "%s:%d" % host.sock.getsockname()
            host.send(host.h2c_data(1, 1, 0, b"x" * 512))
            host.expect_end()
            if count == 0:
                hauld.wait_for_log(name)
                line = [line for line in hauld.log_path.read_text().splitlines() if name in line]
                assert len(line) == 1 and "mistake of the host" in line[0], line
    assert 1 <= hauld.log_path.read_text().count("mistake of the host") < 40


def test_what_cannot_be_had_is_told_before_ready():
    """With ever more descriptors allowed: either one line and status 1, or ready and a clean stop."""
    outcomes = set()
    for limit in range(4, 64):
        process = subprocess.Popen(
            [HAULD, "--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--threads", "1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        ready = "ready\n" in iter(process.stdout.readline, "")
        if ready:
            process.terminate()
        _, said = process.communicate(timeout=20)
        outcomes.add(ready)
        assert process.returncode == (0 if ready else 1), (limit, said)
        assert ready or "hauld" in said, (limit, "ended without a word")
        if ready:
            break
    assert outcomes == {False, True}

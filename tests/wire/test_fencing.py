# SPDX-License-Identifier: MIT
"""What a host has lost lands before what it writes next: a new controller, a reset and the target's end wait for
writes that are at the disk (target/fence.h), over TCP and RDMA."""
import signal
import socket
from concurrent import futures

import conftest
import nvme
import nvmetcp
import pytest
from association import HOSTS, NQN, TcpHost, cc, csts, until
from control import wait_for

OLD, LATE, NEW = b"old!" * 128, b"late" * 128, b"new!" * 128


class SlowDisk:
    """A hauld whose disk writes nothing while it is stopped (slow_disk.c)."""

    def __init__(self, directory):
        self.path, self.stop_file = directory / "disk", directory / "stop"
        self.path.write_bytes(bytes(16 << 20))
        library = conftest.BUILD / "tests" / "wire" / "libslow_disk.so"
        self.hauld = conftest.Hauld(
            directory, "--listen", "tcp://127.0.0.1:0", "rdma://127.0.0.1:0", "--threads", "3",
            "--export", f"{self.path},nqn={NQN}", engine="epoll",
            env={**conftest.rdma_environment(), "LD_PRELOAD": str(library),
                 "SLOW_DISK_STOP": str(self.stop_file)})

    def stop(self):
        self.stop_file.touch()

    def go(self):
        self.stop_file.unlink(missing_ok=True)

    def holds(self):
        return self.path.read_bytes()[:512]

    def lose(self, kind, before=None):
        """A host that has written BEFORE goes with a write at the stopped disk."""
        host = kind(self.hauld)
        queue = host.queue()
        assert before is None or host.write(queue, before) == 0
        self.begin_late_write(host, queue)
        host.close()
        host.leave(queue)

    def begin_late_write(self, host, queue):
        self.stop()
        host.begin_write(queue, LATE)
        assert host.read(queue) == 0    # the write has been taken before that

    def others_go_on(self, kind):
        """Another host connects and reads, which takes longer than what must not happen meanwhile would."""
        stranger = kind(self.hauld, hostnqn="nqn.2026-11.io.haul:stranger")
        assert stranger.read(stranger.queue()) == 0
        stranger.close()

    def end(self):
        self.go()
        self.hauld.end()


@pytest.fixture(scope="module")
def make_slow(tmp_path_factory):
    if b"__asan_init" in (conftest.BUILD / "target" / "hauld").read_bytes():
        pytest.skip("a sanitized hauld takes no other library before its own")
    return lambda: SlowDisk(tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def shared(make_slow):
    disk = make_slow()
    yield disk
    disk.end()


@pytest.fixture
def slow(shared):
    yield shared
    shared.go()


@pytest.fixture(params=HOSTS, ids=lambda kind: kind.kind)
def kind(request):
    return request.param


def stays_stopped(disk):
    """CSTS while the disk stands still, at last, and what the log says then; the host goes on when the disk does."""
    disk.lose(TcpHost)
    host = TcpHost(disk.hauld, enable=False)
    host.begin_enabling()
    first = csts(host)
    until(host, 2, 2)    # CSTS.CFS
    last, log = csts(host), disk.hauld.log_path.read_text()
    disk.go()
    cc(host, 0)
    host.admin.enable()
    assert host.read(host.queue()) == 0
    host.close()
    disk.end()
    return first, last, log


@pytest.fixture(scope="module", autouse=True)
def stopped(make_slow):
    """It takes seconds: all other tests run meanwhile."""
    with futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(stays_stopped, make_slow())


def waits_for_the_disk(slow, kind, host):
    """HOST's controller is ready when the late write is over, and not before; others' are no later for it."""
    slow.others_go_on(kind)
    assert not csts(host) & 1
    assert slow.holds() == OLD
    slow.go()
    until(host, 1, 1)
    assert slow.holds() == LATE


def test_a_late_write_never_lands_after_newer_data(slow, kind):
    """The host loses its connections with a write at the disk and is back at once: its new controller is not ready
    before that write is over."""
    slow.lose(kind, OLD)
    host = kind(slow.hauld, enable=False)
    host.begin_enabling()
    waits_for_the_disk(slow, kind, host)
    queue = host.queue()
    assert host.write(queue, NEW) == 0
    assert host.read(queue) == 0
    host.close()
    assert slow.holds() == NEW


@pytest.mark.parametrize("queue_closes", [False, True])
def test_a_write_is_waited_for_also_when_its_association_is_not_over(slow, kind, queue_closes):
    """The host has lost power, and nobody has noticed yet; or it has lost one connection."""
    lost = kind(slow.hauld)
    queue = lost.queue()
    assert lost.write(queue, OLD) == 0
    slow.begin_late_write(lost, queue)
    if queue_closes:
        lost.leave(queue)
    host = kind(slow.hauld, enable=False)
    host.begin_enabling()
    waits_for_the_disk(slow, kind, host)
    assert host.write(host.queue(), NEW) == 0
    host.close()
    lost.close()
    lost.leave(queue)
    assert slow.holds() == NEW


def test_a_write_whose_data_has_not_come_is_waited_for(slow):
    """The association lives, and the target waits for the host (TCP: R2T; over RDMA it fetches the data itself)."""
    lost = TcpHost(slow.hauld)
    queue = lost.queue()
    assert lost.write(queue, OLD) == 0
    cid = queue.cid()
    queue.send(queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=1, cdw=nvme.rw_cdw(0, 1),
                                          dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 512))))
    r2t = queue.recv_pdu()
    assert r2t.kind == nvmetcp.R2T
    host = TcpHost(slow.hauld, enable=False)
    host.begin_enabling()
    slow.others_go_on(TcpHost)
    assert not csts(host) & 1 and slow.holds() == OLD
    queue.answer_r2t(r2t, LATE)
    until(host, 1, 1)
    assert slow.holds() == LATE
    assert host.write(host.queue(), NEW) == 0
    host.close()
    lost.close()
    lost.leave(queue)
    assert slow.holds() == NEW


def test_a_reset_is_over_when_the_disk_has_nothing_of_it(slow, kind):
    host = kind(slow.hauld)
    queue = host.queue()
    slow.begin_late_write(host, queue)
    cc(host, 0)
    queue.expect_end()
    host.leave(queue)
    slow.others_go_on(kind)
    assert csts(host) & 1
    slow.go()
    until(host, 1, 0)
    assert slow.holds() == LATE
    host.admin.enable()
    queue = host.queue()
    assert host.write(queue, NEW) == 0
    host.close()
    assert slow.holds() == NEW


def refuses(address):
    with socket.socket() as sock:
        return sock.connect_ex(address) != 0


def test_hauld_stops_while_a_host_waits_for_its_fence(make_slow):
    slow = make_slow()
    slow.lose(TcpHost)
    host = TcpHost(slow.hauld, enable=False)
    host.begin_enabling()
    assert csts(host) & 3 == 0
    slow.hauld.process.send_signal(signal.SIGTERM)
    wait_for(lambda: refuses(slow.hauld.address))    # it has begun
    slow.go()
    assert slow.hauld.process.wait(timeout=5) == 0, slow.hauld.log_path.read_text()
    assert slow.holds() == LATE


def test_a_disk_that_stays_stopped_is_told(stopped):
    first, last, log = stopped.result()
    assert first & 3 == 0 and last & 3 == 2
    assert "earlier controller of this host" in log

# SPDX-License-Identifier: MIT
"""One host takes what it can get of a target and gives nothing back; others go on all the same.

Hosts are told from each other by their address, and any address of 127.0.0.0/8 is one.
"""
import contextlib
import signal
import socket
import time

import conftest
import nvme
import nvmerdma
import nvmetcp
import pytest
from at_once import AtOnce
from control import Control
from fabric import identity
from nvmerdma import Pair, Rdma, keyed

NQN = "nqn.2026-11.io.haul:share"
GREEDY, OTHER = "127.0.0.2", "127.0.0.3"
MIB = 1 << 20
PROMPT = 3.0    # seconds; the deadlines of what the greedy one holds are far beyond


def starting(directory, engine=None):
    return conftest.starting_alone(directory, NQN, engine)


at_once = AtOnce()
told = at_once.fixture(starting)


@pytest.fixture
def start(tmp_path):
    with starting(tmp_path) as run:
        yield run


@pytest.fixture(params=conftest.ENGINES)
def start_each(request, tmp_path):
    """On each engine: what a socket takes depends on it."""
    with starting(tmp_path, request.param) as run:
        yield run


def settle(hauld):
    """Until all that can be had is taken: nothing changes any more."""
    before = None
    with Control(hauld.control) as control:
        while (now := [(reactor["requests"], reactor["pool"]) for reactor in control.status()["reactors"]]) != before:
            before = now
            time.sleep(0.05)


# --- TCP -----------------------------------------------------------------------------------------

def tcp_capsule(queue, opcode, size):
    return queue.capsule(nvme.command(opcode, cid=queue.cid(), nsid=1,
                                      dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, size),
                                      cdw=nvme.rw_cdw(0, size // 512)))


@contextlib.contextmanager
def tcp_greedy(hauld, opcode, *, queues=8, commands=100, size=MIB):
    """Queues with COMMANDS out each, whose data is neither taken nor sent."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(nvmetcp.Admin(hauld.address, NQN, source=GREEDY))
        admin.set_feature(7, 0x007F007F)
        for qid in range(1, queues + 1):
            queue = stack.enter_context(admin.io_queue(qid, sqsize=127, rcvbuf=4096))
            for _ in range(commands):
                queue.send(tcp_capsule(queue, opcode, size))
        settle(hauld)
        yield


def tcp_works(hauld, source=OTHER):
    """A host connects, asks, writes and reads, promptly; returns how long it took."""
    begin = time.monotonic()
    with nvmetcp.Admin(hauld.address, NQN, source=source, **identity(1)) as admin, admin.io_queue() as queue:
        assert admin.identify(1)[0].status == 0
        for size in (4096, 32768, 131072, MIB):
            data = bytes([size >> 12 & 0xFF]) * size
            cdw = nvme.rw_cdw(0, size // 512)
            assert queue.command(nvme.WRITE, nsid=1, cdw=cdw, write=data)[0].status == 0
            cqe, back = queue.command(nvme.READ, nsid=1, cdw=cdw, read=size)
            assert cqe.status == 0 and back == data
    assert time.monotonic() - begin < PROMPT


@pytest.mark.parametrize("memory", ["8M", "64M"])
@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE], ids=["read", "write"])
def test_a_tcp_host_that_leaves_its_data_holds_up_no_other(start_each, opcode, memory):
    hauld = start_each("tcp", "--memory", memory)
    with tcp_greedy(hauld, opcode):
        for _ in range(3):
            tcp_works(hauld)
    tcp_works(hauld, source=GREEDY)


@pytest.mark.parametrize("size", [4096, 32768, 131072])
def test_nor_does_one_that_leaves_much_of_one_size(start_each, size):
    hauld = start_each("tcp", "--memory", "8M")
    with tcp_greedy(hauld, nvme.WRITE, queues=16, commands=127, size=size):
        tcp_works(hauld)


@at_once
def test_a_host_that_reads_a_byte_a_second_is_ended_in_time(start):
    """One second, and one for the 64 KiB of each."""
    hauld = start("tcp", "--patience-s", "1")
    with nvmetcp.Admin(hauld.address, NQN, source=GREEDY) as admin, \
            admin.io_queue(sqsize=127, rcvbuf=4096) as queue:
        for _ in range(127):
            queue.send(tcp_capsule(queue, nvme.READ, 65536))
        begin = time.monotonic()
        while "too slow" not in hauld.log_path.read_text():
            assert time.monotonic() - begin < 6, "it is still served"
            queue.sock.recv(1)
            time.sleep(0.2)
        assert time.monotonic() - begin > 1.5
        assert f"tcp {GREEDY}" in hauld.log_path.read_text()
        # Its admin queue has done nothing wrong.
        assert admin.identify(1)[0].status == 0


@at_once
def test_a_host_that_sends_its_data_in_crumbs_is_ended_in_time(start):
    """Each crumb comes in time, all together do not."""
    hauld = start("tcp", "--patience-s", "1")
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        queue.send(tcp_capsule(queue, nvme.WRITE, 4096))
        r2t = queue.recv_pdu()
        assert r2t.kind == nvmetcp.R2T
        cccid, ttag = r2t.header[8] | r2t.header[9] << 8, r2t.header[10] | r2t.header[11] << 8
        begin = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for at in range(0, 4096, 4):
                assert time.monotonic() - begin < 4, "it may go on for ever"
                queue.send(queue.h2c_data(cccid, ttag, at, bytes(4), last=False))
                time.sleep(0.1)
        assert time.monotonic() - begin > 0.9
        assert "too slow" in hauld.log_path.read_text()


@at_once
def test_a_host_that_takes_its_time_within_the_deadline_is_served(start):
    hauld = start("tcp", "--patience-s", "3")
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        queue.send(tcp_capsule(queue, nvme.WRITE, 4096))
        r2t = queue.recv_pdu()
        cccid, ttag = r2t.header[8] | r2t.header[9] << 8, r2t.header[10] | r2t.header[11] << 8
        for at in range(0, 4096, 1024):
            time.sleep(0.4)
            queue.send(queue.h2c_data(cccid, ttag, at, bytes(1024), last=at == 3072))
        assert queue.finish(cccid)[0].status == 0


def test_a_host_has_at_most_half_of_the_controllers(start):
    """None of them has a keep-alive timer."""
    hauld = start("tcp")
    with contextlib.ExitStack() as stack:
        cqes = []
        for _ in range(520):
            admin = stack.enter_context(nvmetcp.Tcp(hauld.address, source=GREEDY))
            cqes.append(admin.connect(subnqn=NQN, kato=0))
        assert [cqe.status for cqe in cqes[:500]] == [0] * 500
        assert cqes[-1].status == nvme.CONTROLLER_BUSY and not cqes[-1].dnr
        for source in (OTHER, "127.0.0.4"):
            tcp_works(hauld, source)
        log = hauld.log_path.read_text()
        assert f"host {GREEDY} is refused more controllers: it has 512" in log, log[-2000:]
        assert log.count("is refused more controllers") <= 10
    # They are gone soon, and then it may come again.
    for _ in range(100):
        with nvmetcp.Tcp(hauld.address, source=GREEDY) as admin:
            if admin.connect(subnqn=NQN).status == 0:
                return
        time.sleep(0.05)
    raise AssertionError("its share did not come back")


def test_a_host_has_at_most_half_of_the_connections(start):
    """The rest of the descriptors is for others, and some for disks and the like."""
    hauld = start("tcp", nofile=1124)
    with contextlib.ExitStack() as stack:
        for _ in range(700):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(PROMPT)
            sock.bind((GREEDY, 0))
            sock.connect(hauld.address)
        hauld.wait_for_log(f"host {GREEDY} is refused more connections: it has 306", PROMPT)
        assert sock.recv(1) == b"", "the last one is not closed"
        tcp_works(hauld)
    for _ in range(100):
        with contextlib.suppress(nvmetcp.Closed, ConnectionError):
            tcp_works(hauld, source=GREEDY)
            return
        time.sleep(0.05)
    raise AssertionError("its share did not come back")


# --- RDMA ----------------------------------------------------------------------------------------

def rdma_works(hauld, source=OTHER):
    begin = time.monotonic()
    with Pair(hauld.address, NQN, source=source, **identity(1)) as both:
        address, key = both.io.region(0, MIB)
        for opcode in (nvme.WRITE, nvme.READ):
            for size in (4096, 65536, MIB):
                assert both.io.command(opcode, nsid=1, dptr=keyed(address, size, key),
                                       cdw=nvme.rw_cdw(0, size // 512)).status == 0
    assert time.monotonic() - begin < PROMPT


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE], ids=["read", "write"])
def test_an_rdma_host_that_stands_still_holds_up_no_other(start, opcode):
    hauld = start("rdma", "--memory", "16M", fault="retry_ms=60000")
    with contextlib.ExitStack() as stack:
        for number in range(2, 10):
            both = stack.enter_context(Pair(hauld.address, NQN, depth=128, source=GREEDY, **identity(number)))
            address, key = both.io.region(0, MIB)
            capsule = nvme.command(opcode, nsid=1, dptr=keyed(address, MIB, key),
                                   cdw=nvme.rw_cdw(0, 2048))
            assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
            both.io.raw.send_signal(signal.SIGSTOP)
        settle(hauld)
        for _ in range(3):
            rdma_works(hauld)


def test_receives_admitted_before_connect_are_shared(start):
    """Queues of the greatest depth, of which none is ever connected."""
    hauld = start("rdma")
    with contextlib.ExitStack() as stack:
        for count in range(64):
            queue = Rdma(hauld.address, qid=1, hsqsize=1023, hrqsize=1024, source=GREEDY)
            stack.enter_context(queue)
            if queue.outcome != "established":
                break
        assert queue.reject == (0, nvmerdma.REJECT_RESOURCES) and count == 8
        log = hauld.log_path.read_text()
        assert f"host {GREEDY} is refused more RDMA receives: it has 8192" in log, log
        with Rdma(hauld.address, qid=1, hsqsize=1023, hrqsize=1024, source=OTHER) as queue:
            assert queue.outcome == "established"
            rdma_works(hauld)


def withheld(hauld, size=4096):
    """A queue with two receives and eight responses on their way to it."""
    both = Pair(hauld.address, NQN, receives=2, source=GREEDY)
    address, key = both.io.region(0, size)
    capsule = nvme.command(nvme.READ, nsid=1, dptr=keyed(address, size, key),
                           cdw=nvme.rw_cdw(0, size // 512))
    assert both.io.say(f"burst 8 {capsule.hex()}") == "ok"
    return both


@at_once
def test_a_host_that_posts_no_receives_is_ended_in_time(start):
    hauld = start("rdma", "--patience-s", "1")
    begin = time.monotonic()
    with withheld(hauld) as both:
        both.io.expect_end(within=4.0)
        assert time.monotonic() - begin > 0.9
        hauld.wait_for_log("too slow", 1.0)
        assert both.admin.property(nvme.PROPERTY_GET, nvme.CSTS).status == 0
    rdma_works(hauld, GREEDY)


@at_once
def test_a_host_that_posts_its_receives_late_is_served(start):
    """Receiver not ready is no error: the target tries again until the deadline."""
    hauld = start("rdma", "--patience-s", "5")
    with withheld(hauld) as both:
        time.sleep(1.5)
        for _ in range(8):
            assert both.io.receive().status == 0


@at_once
def test_reads_that_a_host_never_answers_are_ended_in_time(start):
    """It is stopped in the middle of them: they are more than go on the way at once."""
    hauld = start("rdma", "--patience-s", "1", "--memory", "8M", fault="retry_ms=60000")
    with Pair(hauld.address, NQN, depth=128, source=GREEDY) as both:
        address, key = both.io.region(0, 131072)
        capsule = nvme.command(nvme.WRITE, nsid=1, dptr=keyed(address, 131072, key),
                               cdw=nvme.rw_cdw(0, 256))
        assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
        both.io.raw.send_signal(signal.SIGSTOP)
        hauld.wait_for_log("too slow", 8.0)
    rdma_works(hauld, GREEDY)

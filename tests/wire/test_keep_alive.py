# SPDX-License-Identifier: MIT
"""How long an association lives (NVMe base 2.0 3.9), over TCP and RDMA."""
import time
from concurrent import futures

import conftest
import nvme
import nvmetcp
import pytest
from association import HOSTS, NQN, TcpHost

# With a KATO of a second a silent host is dropped after that, a quarter of it, and half a second of grace.
LONGER_THAN_ALLOWED_S = 2.5


@pytest.fixture(scope="module")
def haulds(tmp_path_factory):
    """By transport, each on an engine of its own."""
    started = {kind: conftest.Hauld(tmp_path_factory.mktemp("keep-alive"), "--listen", "tcp://127.0.0.1:0",
                                    "rdma://127.0.0.1:0", "--threads", "3", "--export", f"ram:16M,nqn={NQN}",
                                    engine=engine, env=conftest.rdma_environment())
               for engine, kind in conftest.CROSSED}
    yield started
    for daemon in started.values():
        daemon.end()


def until_end(queue, within):
    start = time.monotonic()
    queue.expect_end(within=within)
    return time.monotonic() - start


def at_it(step):
    """Again and again, with pauses in which a host is not yet silent."""
    limit = time.monotonic() + LONGER_THAN_ALLOWED_S
    while time.monotonic() < limit:
        assert step() == 0
        time.sleep(0.3)


def io_alone(host):
    queue = host.queue()
    at_it(lambda: host.read(queue))
    silence = until_end(host.admin, 4)
    queue.expect_end(within=2)
    return silence


def keep_alive_alone(host):
    queue = host.queue()
    at_it(host.keep_alive)
    return host.read(queue)


def silent(host):
    queue = host.queue()
    silence = until_end(host.admin, 6)
    queue.expect_end(within=2)
    return silence


@pytest.fixture(scope="module")
def lives(haulds):
    """(transport, life): what becomes of it. They mostly wait, hence all at once."""
    def live(kind, life, kato):
        host = kind(haulds[kind.kind], kato=kato)
        try:
            return life(host)
        finally:
            host.close()

    with futures.ThreadPoolExecutor(8) as pool:
        yield {(kind.kind, life): pool.submit(live, kind, life, kato) for kind in HOSTS
               for life, kato in ((io_alone, 1000), (keep_alive_alone, 1000), (silent, 2000))}


@pytest.fixture(params=["tcp", "rdma"])
def kind(request):
    return request.param


def test_traffic_based_keep_alive_is_announced(haulds):
    host = TcpHost(haulds["tcp"])
    assert int.from_bytes(host.admin.identify(1)[1][96:100], "little") >> 6 & 1, "CTRATT.TBKAS"
    host.close()


def test_a_host_at_full_load_is_not_dropped(haulds, lives):    # which begin with it
    """B159: 1 MiB reads, a queue full of them on four queues, no Keep Alive."""
    host = TcpHost(haulds["tcp"], kato=1000)
    queues = [host.queue(qid) for qid in range(1, 5)]
    limit = time.monotonic() + LONGER_THAN_ALLOWED_S
    while time.monotonic() < limit:
        for queue in queues:
            cids = [queue.cid() for _ in range(8)]
            queue.send(b"".join(queue.capsule(nvme.command(
                nvme.READ, cid=cid, nsid=1, cdw=nvme.rw_cdw(0, 2048),
                dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 1 << 20))) for cid in cids))
            for _ in cids:
                while queue.recv_pdu().kind != nvmetcp.RSP:
                    pass
    assert host.keep_alive() == 0
    host.close()


def test_io_alone_keeps_the_association(lives, kind):
    """Base 2.0 3.9 (TBKAS), B159; then silence ends it between KATO and KATO + a quarter + grace."""
    assert 0.5 < lives[kind, io_alone].result() < 2.5


def test_keep_alive_alone_keeps_the_association(lives, kind):
    assert lives[kind, keep_alive_alone].result() == 0


def test_a_silent_host_is_dropped_in_time(lives, kind):
    assert 1.9 < lives[kind, silent].result() < 4.0

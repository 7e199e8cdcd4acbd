# SPDX-License-Identifier: MIT
"""Two Connects of one RDMA queue on their way at once: the second one is out of order."""
import time

import conftest
import nvme
import nvmerdma
import pytest
from nvmerdma import Rdma, keyed

NQN = "nqn.2026-11.io.haul:twice"
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


@pytest.fixture(params=["io_uring", "epoll"])
def hauld(request, tmp_path):
    daemon = conftest.Hauld(tmp_path, "--listen", "rdma://127.0.0.1:0", "--threads", "1",
                            "--export", f"ram:16M,nqn={NQN}", engine=request.param,
                            env=conftest.rdma_environment())
    yield daemon
    assert daemon.alive(), daemon.log_path.read_text()
    assert daemon.stop() == 0, daemon.log_path.read_text()


def two_connects(rdma, *, sqsize, cntlid=0xFFFF, kato=0):
    """Both data are to be READ by the target, so that neither is done when the other arrives."""
    address, key = rdma.region(14, 1024, "read")
    rdma.fill(14, nvme.connect_data(cntlid=cntlid, subnqn=NQN, hostnqn=HOST))
    capsule = nvme.connect_command(qid=rdma.qid, sqsize=sqsize, kato=kato,
                                   dptr=keyed(address, 1024, key))
    assert rdma.say(f"burst 2 {capsule.hex()}") == "ok"
    return sorted(rdma.receive().status for _ in range(2))


def still_serves(hauld):
    nvmerdma.still_serves(hauld, NQN)


def test_a_second_connect_of_an_admin_queue_is_refused(hauld):
    with Rdma(hauld.address) as rdma:
        statuses = two_connects(rdma, sqsize=31, kato=1000)
    time.sleep(2)    # the keep-alive timer of a controller that nobody remembers
    still_serves(hauld)
    assert statuses == [0, nvme.SEQUENCE_ERROR]


def test_a_second_connect_of_an_io_queue_is_refused(hauld):
    with Rdma(hauld.address) as admin, Rdma(hauld.address, qid=1, hsqsize=31) as io:
        cqe = admin.connect(subnqn=NQN, sqsize=31)
        assert cqe.status == 0
        admin.enable()
        statuses = two_connects(io, sqsize=31, cntlid=cqe.dw0 & 0xFFFF)
        io.kill()
        time.sleep(0.5)
        admin.kill()
        time.sleep(0.5)
    still_serves(hauld)
    assert statuses == [0, nvme.SEQUENCE_ERROR]

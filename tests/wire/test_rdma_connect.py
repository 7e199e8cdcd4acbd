# SPDX-License-Identifier: MIT
"""Two Connects of one RDMA queue on their way at once: the second one is out of order."""
import conftest
import nvme
import nvmerdma
import pytest
from control import Control, wait_for
from nvmerdma import Rdma, keyed

NQN = "nqn.2026-11.io.haul:twice"
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


@pytest.fixture
def hauld(start_hauld):
    return start_hauld("--listen", "rdma://127.0.0.1:0", "--threads", "1", "--export", f"ram:16M,nqn={NQN}",
                       env=conftest.rdma_environment())


def two_connects(rdma, *, sqsize, cntlid=0xFFFF):
    """Both data are to be READ by the target, so that neither is done when the other arrives."""
    address, key = rdma.region(14, 1024, "read")
    rdma.fill(14, nvme.connect_data(cntlid=cntlid, subnqn=NQN, hostnqn=HOST))
    capsule = nvme.connect_command(qid=rdma.qid, sqsize=sqsize,
                                   dptr=keyed(address, 1024, key))
    assert rdma.say(f"burst 2 {capsule.hex()}") == "ok"
    return sorted(rdma.receive().status for _ in range(2))


def nobody_is_left(hauld):
    """No connection and no controller that nobody remembers; the next host is served."""
    with Control(hauld.control) as control:
        wait_for(lambda: [(reactor["connections"], reactor["controllers"])
                          for reactor in control.status()["reactors"]] == [(0, 0)])
    nvmerdma.still_serves(hauld, NQN)


def test_a_second_connect_of_an_admin_queue_is_refused(hauld):
    with Rdma(hauld.address) as rdma:
        statuses = two_connects(rdma, sqsize=31)
    nobody_is_left(hauld)
    assert statuses == [0, nvme.SEQUENCE_ERROR]


def test_a_second_connect_of_an_io_queue_is_refused(hauld):
    with Rdma(hauld.address) as admin, Rdma(hauld.address, qid=1, hsqsize=31) as io:
        cqe = admin.connect(subnqn=NQN, sqsize=31)
        assert cqe.status == 0
        admin.enable()
        statuses = two_connects(io, sqsize=31, cntlid=cqe.dw0 & 0xFFFF)
    nobody_is_left(hauld)
    assert statuses == [0, nvme.SEQUENCE_ERROR]

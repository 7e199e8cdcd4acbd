# SPDX-License-Identifier: MIT
"""Associations over TCP and RDMA: who joins, what ends with them (NVMe base 2.0 3.1.2)."""
import threading

import conftest
import control
import nvme
import nvmetcp
import pytest
from association import HOSTS, NQN, RdmaHost, TcpHost, cc, until
from nvmerdma import Rdma


@pytest.fixture(scope="module", params=conftest.CROSSED, ids="-".join)
def both(request, tmp_path_factory):
    """(hauld, the class of the host that start() starts)"""
    engine, kind = request.param
    daemon = conftest.Hauld(tmp_path_factory.mktemp("association"), "--listen", "tcp://127.0.0.1:0",
                            "rdma://127.0.0.1:0", "--threads", "3", "--export", f"ram:16M,nqn={NQN}",
                            engine=engine, env=conftest.rdma_environment())
    yield daemon, next(host for host in HOSTS if host.kind == kind)
    daemon.end()


@pytest.fixture
def hauld(both):
    return both[0]


@pytest.fixture
def start(both):
    """Starts hosts of one transport: start(kato=...)."""
    hosts = []

    def start_one(**kw):
        hosts.append(both[1](both[0], **kw))
        return hosts[-1]
    yield start_one
    for host in hosts:
        host.close()


def refused(cqe, offset):
    """Connect Invalid Parameters that points at OFFSET of the data."""
    assert cqe.status == nvme.CONNECT_INVALID and cqe.dnr, cqe
    assert cqe.dw0 & 0xFFFF == offset and cqe.dw0 >> 16 & 1, hex(cqe.dw0)


# --- who joins -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("here, there", [(TcpHost, RdmaHost), (RdmaHost, TcpHost)],
                         ids=["tcp", "rdma"])
def test_a_queue_joins_over_the_transport_of_its_admin_queue_only(hauld, here, there):
    """Base 2.0 3.1.2: all queues of an association use the same port and transport."""
    one, other = here(hauld), there(hauld)
    queue, cqe = other.connect(cntlid=one.cntlid)
    refused(cqe, 16)
    other.leave(queue)
    assert one.read(one.queue()) == 0
    other.close()
    one.close()


def test_a_queue_joins_its_own_controller_only(start):
    """Base 2.0 6.3: an unknown controller id, one of another host."""
    host = start()
    stranger = start(hostnqn="nqn.2026-11.io.haul:stranger")
    for cntlid, offset in ((0xFFE0, 16), (0, 16), (stranger.cntlid, 512)):
        queue, cqe = host.connect(cntlid=cntlid)
        refused(cqe, offset)
        host.leave(queue)
    assert host.read(host.queue()) == 0


@pytest.mark.parametrize("cntlid", [0xFFFE, 0, 1, 0xFFEF])
def test_no_controller_is_static(hauld, cntlid):
    """Base 2.0 6.3: with the dynamic model, CNTLID FFFFh is all that an admin queue may ask for."""
    with nvmetcp.Tcp(conftest.split_uri(hauld.uris[0])) as tcp:
        refused(tcp.connect(subnqn=NQN, cntlid=cntlid), 16)
        assert tcp.connect(subnqn=NQN).status == 0
    with Rdma(conftest.split_uri(hauld.uris[1])) as rdma:
        refused(rdma.connect(subnqn=NQN, cntlid=cntlid, sqsize=31), 16)
        assert rdma.connect(subnqn=NQN, sqsize=31).status == 0


def test_an_id_is_not_soon_used_again(start):
    seen = []
    for _ in range(12):
        host = start()
        seen.append(host.cntlid)
        host.close()
    assert len(set(seen)) == len(seen)


def test_a_queue_id_is_free_as_soon_as_its_connection_is_closed(start):
    """B002: the host counts the id as free at once."""
    host = start()
    for _ in range(60):
        host.leave(host.queue())
    assert host.read(host.queue()) == 0


def test_a_live_queue_keeps_its_id(start):
    host = start()
    first = host.queue()
    second, cqe = host.connect()
    assert cqe.status == nvme.SEQUENCE_ERROR, cqe
    host.leave(second)
    assert host.read(first) == 0


def test_hosts_may_connect_while_namespaces_come_and_go(start_hauld, tmp_path):
    """B001: four hosts connect, identify and leave while a namespace is added and removed 60 times."""
    text = [f"listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: {NQN}\n    namespaces:\n"
            + "".join(f"      - {{ram: 1M, nsid: {nsid}}}\n" for nsid in range(1, count + 1))
            for count in (1, 2)]
    path = tmp_path / "hauld.conf"
    path.write_text(text[0])
    hauld = start_hauld("--config", str(path), "--threads", "2")
    over, seen = threading.Event(), []

    def come_and_go(number):
        while not over.is_set():
            host = TcpHost(hauld, hostnqn=f"nqn.2026-11.io.haul:host{number}")
            seen.append(host.admin.identify(2)[0].status or host.read(host.queue()))
            host.close()

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    with control.Control(hauld.control) as ctl:
        for turn in range(60):
            ctl.change(text[(turn + 1) % 2])
    over.set()
    for thread in threads:
        thread.join()
    assert len(seen) > 20 and not any(seen)


# --- Abort ---------------------------------------------------------------------------------------------

ABORT_REQUESTED = 0x007


def aborts(admin, sqid, cid, count=1):
    """Sends Aborts at once; their CIDs."""
    cids = [admin.cid() for _ in range(count)]
    admin.send(b"".join(admin.capsule(nvme.command(nvme.ABORT, cid=own, cdw=(cid << 16 | sqid,)))
                        for own in cids))
    return cids


def test_a_write_whose_data_is_awaited_is_aborted_when_it_comes(hauld):
    """Base 2.0 5.1: found in the queue of SQID. Each Abort is answered at once, whatever the host does."""
    host = TcpHost(hauld)
    queue = host.queue()
    assert queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(8, 1), write=b"a" * 512)[0].status == 0
    cid = queue.cid()
    queue.send(queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=1, cdw=nvme.rw_cdw(8, 1),
                                          dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 512))))
    r2t = queue.recv_pdu()
    assert r2t.kind == nvmetcp.R2T
    acl = host.admin.identify(1)[1][258] + 1
    for _ in range(2):
        for own in aborts(host.admin, 1, cid, acl):
            cqe, _ = host.admin.finish(own)
            assert cqe.status == 0 and cqe.dw0 & 1, cqe
    queue.answer_r2t(r2t, b"b" * 512)
    cqe, _ = queue.finish(cid)
    assert cqe.status == ABORT_REQUESTED, cqe
    assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(8, 1), read=512)[1] == b"a" * 512
    host.close()


def test_an_async_event_request_is_aborted(start):
    host = start()
    if host.kind == "tcp":
        cid = host.admin.cid()
        host.admin.send(host.admin.capsule(nvme.command(nvme.ASYNC_EVENT, cid=cid)))
        cqe, _ = host.admin.command(nvme.ABORT, cdw=(cid << 16,))
        event, _ = host.admin.finish(cid)
    else:
        cid, own = host.admin.cid(), host.admin.cid()
        host.admin.send(nvme.command(nvme.ASYNC_EVENT, cid=cid))
        host.admin.send(nvme.command(nvme.ABORT, cid=own, cdw=(cid << 16,)))
        event, cqe = host.admin.response(cid), host.admin.response(own)
    assert event.status == ABORT_REQUESTED, event
    assert cqe.status == 0 and cqe.dw0 & 1 == 0, cqe


@pytest.mark.parametrize("sqid", [0, 1, 2, 0xFFFF])
def test_an_abort_that_finds_nothing_says_so(start, sqid):
    host = start()
    host.queue()
    cqe = host.admin.command(nvme.ABORT, cdw=(0x7FFF << 16 | sqid,))
    cqe = cqe[0] if host.kind == "tcp" else cqe
    assert cqe.status == 0 and cqe.dw0 & 1, cqe


def test_as_many_aborts_at_once_as_acl_says_are_all_carried_out(hauld, start):
    """Base 2.0 5.1, 5.17: ACL is 0's based, and what it allows is never Abort Command Limit Exceeded (103h). The next
    burst comes as soon as the one before is answered."""
    host, other = start(), TcpHost(hauld)
    acl = other.admin.identify(1)[1][258] + 1
    other.close()
    for _ in range(50):
        cids = [host.admin.cid() for _ in range(acl)]
        for own in cids:
            abort = nvme.command(nvme.ABORT, cid=own, cdw=(0x7FFF << 16,))
            host.admin.send(host.admin.capsule(abort) if host.kind == "tcp" else abort)
        for own in cids:
            cqe = host.admin.finish(own)[0] if host.kind == "tcp" else host.admin.response(own)
            assert cqe.status == 0 and cqe.dw0 & 1, cqe


# --- reset and shutdown --------------------------------------------------------------------------------

def test_a_reset_ends_the_queues_and_lets_new_ones_in(start):
    """Base 2.0 3.7.2: CSTS.RDY is 0 when it is over; the association stays."""
    host = start()
    for _ in range(5):
        queues = [host.queue(qid) for qid in (1, 2, 3)]
        for queue in queues:
            assert host.read(queue) == 0
        cc(host, 0)
        until(host, 1, 0)
        for queue in queues:
            queue.expect_end()
            host.leave(queue)
        queue, cqe = host.connect(1)
        assert cqe.status == nvme.SEQUENCE_ERROR, cqe
        host.leave(queue)
        host.admin.enable()


def test_a_shutdown_ends_the_queues_and_is_reported(start):
    """Base 2.0 3.6.2: CSTS.SHST."""
    host = start()
    queue = host.queue()
    assert host.read(queue) == 0
    cc(host, 0x00464001)
    until(host, 0xC, 0x8)
    queue.expect_end()
    other, cqe = host.connect(2)
    assert cqe.status == nvme.SEQUENCE_ERROR, cqe
    host.leave(other)


# --- access --------------------------------------------------------------------------------------------

STRANGER, FRIEND = "nqn.2026-11.io.haul:stranger", "nqn.2026-11.io.haul:friend"
# Whom the list of each subsystem lets in.
ACCESS = {
    "absent": ("", {STRANGER, FRIEND}),
    "any": ("allow: any", {STRANGER, FRIEND}),
    "none": ("allow: []", set()),
    "one": (f"allow: [{FRIEND}, {FRIEND}]", {FRIEND}),
}


def access_nqn(name):
    return f"nqn.2026-11.io.haul:access-{name}"


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("access")
    text = "listen: [tcp://127.0.0.1:0, rdma://127.0.0.1:0]\nsubsystems:\n"
    for name, (allow, _) in ACCESS.items():
        text += f"  - nqn: {access_nqn(name)}\n    namespaces: [{{ram: 1M}}]\n"
        text += f"    {allow}\n" if allow else ""
    (directory / "hauld.conf").write_text(text)
    daemon = conftest.Hauld(directory, "--config", str(directory / "hauld.conf"), "--threads", "1",
                            env=conftest.rdma_environment())
    yield daemon
    assert daemon.stop() == 0, daemon.log_path.read_text()


def admin_connect(listed, transport, subnqn, hostnqn, qid=0):
    if transport == "tcp":
        with nvmetcp.Tcp(conftest.split_uri(listed.uris[0]), qid=qid) as tcp:
            return tcp.connect(subnqn=subnqn, hostnqn=hostnqn, sqsize=31)
    with Rdma(conftest.split_uri(listed.uris[1]), qid=qid) as rdma:
        return rdma.connect(subnqn=subnqn, hostnqn=hostnqn, sqsize=31)


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
@pytest.mark.parametrize("hostnqn", [STRANGER, FRIEND])
def test_only_hosts_on_the_list_are_let_in(listed, transport, hostnqn):
    """Base 2.0 6.3: Connect Invalid Host, at the admin queue and at any other."""
    for name, (_, allowed) in ACCESS.items():
        cqe = admin_connect(listed, transport, access_nqn(name), hostnqn)
        assert cqe.status == (0 if hostnqn in allowed else nvme.CONNECT_INVALID_HOST), (name, cqe)
        if hostnqn not in allowed:
            assert cqe.dnr
            cqe = admin_connect(listed, transport, access_nqn(name), hostnqn, qid=1)
            assert cqe.status == nvme.CONNECT_INVALID_HOST and cqe.dnr
    assert admin_connect(listed, transport, nvme.DISCOVERY_NQN, hostnqn).status == 0


@pytest.mark.parametrize("hostnqn", [STRANGER, FRIEND])
def test_discovery_tells_a_host_only_of_what_it_may_use(listed, hostnqn):
    with nvmetcp.Admin(conftest.split_uri(listed.uris[0]), nvme.DISCOVERY_NQN, hostnqn=hostnqn) as admin:
        cqe, log = admin.get_log(0x70, 16384)
    assert cqe.status == 0
    for name, (_, allowed) in ACCESS.items():
        assert (access_nqn(name).encode() + b"\0" in log) == (hostnqn in allowed), name


def test_refusals_are_logged_but_do_not_flood(start_hauld, tmp_path):
    """Unknown hosts and unknown subsystems, 200 of each."""
    path = tmp_path / "hauld.conf"
    path.write_text(f"listen: [tcp://127.0.0.1:0]\nsubsystems:\n  - nqn: {NQN}\n"
                    f"    allow: [{FRIEND}]\n    namespaces: [{{ram: 1M}}]\n")
    hauld = start_hauld("--config", str(path), "--threads", "1")
    for _ in range(200):
        assert admin_connect(hauld, "tcp", NQN, STRANGER).status == nvme.CONNECT_INVALID_HOST
        assert admin_connect(hauld, "tcp", NQN + "-not", STRANGER).status == nvme.CONNECT_INVALID
    text = hauld.log_path.read_text()
    assert f"host {STRANGER} is not allowed to use {NQN}" in text
    assert f"host {STRANGER} asks for {NQN}-not, which is not here" in text
    assert len(text.splitlines()) < 100, text
    assert admin_connect(hauld, "tcp", NQN, FRIEND).status == 0


# --- one controller for each host and address ---------------------------------------------------------------------------

def test_a_copy_of_a_host_is_refused_while_the_host_is_there(start_hauld, tmp_path):
    """Base 2.0 6.3: Connect Controller Busy. Another path of the host is none, and a host that comes back is let in."""
    path = tmp_path / "hauld.conf"
    path.write_text("listen: ['tcp://127.0.0.1:0', 'rdma://127.0.0.1:0', 'tcp://0.0.0.0:0']\nthreads: 3\n"
                    f"subsystems: [{{nqn: {NQN}, duplicate_hosts: refuse, namespaces: [{{ram: 16M}}]}}]\n")
    hauld = start_hauld("--config", str(path), env=conftest.rdma_environment())
    for host in (TcpHost, RdmaHost):
        for _ in range(10):    # comes back as soon as it is gone
            one = host(hauld)
            assert one.read(one.queue()) == 0
            one.close()
    one, other_path = TcpHost(hauld), RdmaHost(hauld)
    with nvmetcp.Tcp(conftest.split_uri(hauld.uris[0])) as copy:
        cqe = copy.connect(subnqn=NQN)
        assert cqe.status == nvme.CONTROLLER_BUSY and not cqe.dnr, cqe
        assert copy.connect(subnqn=NQN, hostid=bytes(16)).status == 0
    any_address = conftest.split_uri(hauld.uris[2])[1]
    for address in ("127.0.0.2", "127.0.0.3"):
        with nvmetcp.Tcp((address, any_address)) as queue:
            assert queue.connect(subnqn=NQN).status == 0
    assert one.read(one.queue()) == other_path.read(other_path.queue()) == 0
    assert "has a controller of " in hauld.log_path.read_text()
    assert ", duplicate hosts refused\n" in control.haulctl(hauld.control, "status")[1]
    one.close()
    other_path.close()

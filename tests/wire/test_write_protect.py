# SPDX-License-Identifier: MIT
"""Namespace Write Protection Config (NVMe base 2.0 5.27.1.28, 8.12)."""
import time

import conftest
import control
import nvme
import nvmetcp
import pytest
from events import NS_CHANGED, Host

FID, NONE, SET, UNTIL_POWER_CYCLE, PERMANENT = 0x84, 0, 1, 2, 3
NOT_CHANGEABLE, WRITE_PROTECTED = 0x10E, 0x020
ALL = 0xFFFFFFFF
NQN = "nqn.2026-11.io.haul:protect"


@pytest.fixture(params=["io_uring", "epoll"])
def hauld(request, tmp_path, start_hauld):
    with open(tmp_path / "disk", "wb") as disk:
        disk.truncate(16 << 20)
    path = tmp_path / "protect.conf"
    path.write_text(f"""\
listen:
  - tcp://127.0.0.1:0
threads: 2
subsystems:
  - nqn: {NQN}
    namespaces:
      - path: {tmp_path}/disk
      - ram: 1M
      - ram: 1M
        nsid: 4
        readonly: true
""")
    state = tmp_path / "state"
    state.mkdir()
    daemon = start_hauld("--config", str(path), "--state", str(state), engine=request.param)
    daemon.path, daemon.state = path, state
    return daemon


def put(admin, state, nsid=1):
    return admin.command(nvme.SET_FEATURES, nsid=nsid, cdw=(FID, state))[0].status


def get(admin, nsid=1, sel=0):
    cqe, _ = admin.command(nvme.GET_FEATURES, nsid=nsid, cdw=(FID | sel << 8,))
    assert cqe.status == 0
    return cqe.dw0


def write(queue, nsid=1, slba=0):
    return queue.command(nvme.WRITE, nsid=nsid, cdw=nvme.rw_cdw(slba, 8), write=b"x" * 4096)[0].status


def test_a_protected_namespace_is_read_only_to_all_hosts(hauld):
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue, \
            nvmetcp.Admin(hauld.address, NQN, hostnqn="nqn.2026-11.io.haul:b") as other, other.io_queue() as theirs:
        assert admin.identify(1)[1][531] == 1, "NWPC: none and set"
        assert get(admin) == NONE and get(admin, sel=3) == 6 and get(admin, sel=1) == NONE
        assert write(queue) == 0
        assert put(other, SET) == 0
        assert get(admin) == get(other) == SET
        for one in (queue, theirs):
            assert write(one) == WRITE_PROTECTED
            assert one.command(nvme.WRITE_ZEROES, nsid=1, cdw=nvme.rw_cdw(0, 8))[0].status == WRITE_PROTECTED
            assert one.command(nvme.DSM, nsid=1, cdw=(0, 4), inline=bytes(16))[0].status == WRITE_PROTECTED
            assert one.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 8), read=4096)[1] == b"x" * 4096
            assert one.command(nvme.FLUSH, nsid=1)[0].status == 0
            assert write(one, nsid=2) == 0, "another namespace"
        assert admin.identify(0, nsid=1)[1][99] == 1 and admin.identify(8, nsid=1)[1][8] == 1
        assert put(admin, NONE) == 0
        assert write(theirs) == 0
        assert admin.identify(0, nsid=1)[1][99] == 0


@pytest.mark.parametrize("state", [UNTIL_POWER_CYCLE, PERMANENT, 4, 7])
def test_states_that_nwpc_does_not_offer_are_refused(hauld, state):
    """8.12.1: the second and third only with a Replay Protected Memory Block, whose RPMBS is 0 here."""
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        assert admin.identify(1)[1][312:316] == bytes(4), "RPMBS"
        for before in (NONE, SET):
            assert put(admin, before) == 0
            assert put(admin, state) == nvme.INVALID_FIELD
            assert get(admin) == before
            assert write(queue) == (WRITE_PROTECTED if before else 0)


def test_a_reset_leaves_it(hauld):
    with nvmetcp.Admin(hauld.address, NQN) as admin:
        assert put(admin, SET) == 0
        assert admin.property_set(nvme.CC, 0).status == 0
        admin.enable()
        assert get(admin) == SET


@pytest.mark.parametrize("nsid, expect", [(3, nvme.INVALID_FIELD), (0, nvme.INVALID_NAMESPACE),
                                          (1025, nvme.INVALID_NAMESPACE), (0xFFFFFFFE, nvme.INVALID_NAMESPACE)])
def test_it_is_a_namespaces(hauld, nsid, expect):
    with nvmetcp.Admin(hauld.address, NQN) as admin:
        assert put(admin, SET, nsid=nsid) == expect
        assert admin.command(nvme.GET_FEATURES, nsid=nsid, cdw=(FID,))[0].status == expect


def test_what_the_configuration_protects_no_host_changes(hauld):
    with nvmetcp.Admin(hauld.address, NQN) as admin:
        assert get(admin, nsid=4) == SET
        assert put(admin, SET, nsid=4) == 0
        assert put(admin, NONE, nsid=4) == NOT_CHANGEABLE
        assert put(admin, NONE, nsid=ALL) == NOT_CHANGEABLE, "all or nothing"


def test_all_namespaces_at_once(hauld):
    """Base 2.0 5.27: FFFFFFFFh is all that are attached."""
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        assert put(admin, SET, nsid=ALL) == 0
        assert [get(admin, nsid) for nsid in (1, 2, 4)] == [SET] * 3
        assert write(queue, 1) == write(queue, 2) == WRITE_PROTECTED


def test_other_hosts_are_told(hauld):
    with Host("tcp", hauld.address, NQN) as host, nvmetcp.Admin(hauld.address, NQN) as admin:
        assert put(admin, SET) == 0
        assert host.event() == NS_CHANGED
        assert host.changed_namespaces() == [1]
        assert put(admin, SET) == 0
        host.nothing()
        assert put(admin, NONE) == 0
        assert host.event() == NS_CHANGED


def test_an_applied_configuration_leaves_it(hauld):
    """What the administrator changes elsewhere takes the protection from nothing."""
    with nvmetcp.Admin(hauld.address, NQN) as admin, control.Control(hauld.control) as socket:
        assert put(admin, SET) == 0
        text = hauld.path.read_text()
        assert socket.change(text) == []
        assert socket.change(text.replace("threads: 2\n", "threads: 2\nreferrals: [tcp://10.0.0.1]\n"))
        assert get(admin) == SET and admin.identify(0, nsid=1)[1][99] == 1
        namespaces = socket.status()["subsystems"][0]["namespaces"]
        assert [(ns["read_only"], ns["write_protected"]) for ns in namespaces] == [
            (True, True), (False, False), (True, False)]
        assert put(admin, NONE) == 0
        assert admin.identify(0, nsid=1)[1][99] == 0


BY_HOST, BY_BOTH = "write-protected by a host", "read-only and write-protected by a host"


def test_apply_says_what_is_protected_and_by_whom(hauld):
    """What is stored counts for a namespace that comes back, and apply knows before it does."""
    text = hauld.path.read_text()
    disk = f"      - path: {hauld.path.parent}/disk\n"
    with nvmetcp.Admin(hauld.address, NQN) as admin, control.Control(hauld.control) as socket:
        assert put(admin, SET) == 0
        fixed = text.replace(disk, disk + "        readonly: true\n")
        for dry_run in (True, False):
            assert socket.change(fixed, dry_run=dry_run) == [f"~ namespace 1 of {NQN}: {BY_HOST} -> {BY_BOTH}"]
        assert socket.change(fixed) == []
        assert put(admin, NONE) == NOT_CHANGEABLE
        assert socket.change(text) == [f"~ namespace 1 of {NQN}: {BY_BOTH} -> {BY_HOST}"]
        away = text.replace(disk, "").replace("ram: 1M\n", "ram: 1M\n        nsid: 2\n", 1)
        assert socket.change(away) == [f"- namespace 1 of {NQN}: {hauld.path.parent}/disk"]
        for dry_run in (True, False):
            change, = socket.change(text, dry_run=dry_run)
            assert change.startswith(f"+ namespace 1 of {NQN}") and f", {BY_HOST}," in change
        assert get(admin) == SET and socket.change(text) == []
        # Another namespace in its place is protected by nothing, and the disk is when it is there again.
        given = text.replace(disk, disk + "        uuid: 7c0e4f3a-1d2b-4c5d-8e9f-a0b1c2d3e4f5\n")
        change, = socket.change(given)
        assert f"{BY_HOST} -> writable" in change and get(admin) == NONE
        change, = socket.change(text)
        assert f"writable -> {BY_HOST}" in change and get(admin) == SET
        assert put(admin, NONE) == 0 and socket.change(text) == []


def test_a_write_whose_data_comes_later_is_refused(hauld):
    """It was accepted before; when protection is answered nothing is written any more."""
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        data = b"late" * 1024
        cid = queue.cid()
        queue.send(queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=1, cdw=nvme.rw_cdw(64, 8),
                                              dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096))))
        pdu = queue.recv_pdu()
        assert pdu.kind == nvmetcp.R2T
        assert put(admin, SET) == 0
        queue.answer_r2t(pdu, data)
        assert queue.finish(cid)[0].status == WRITE_PROTECTED
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(64, 8), read=4096)[1] == bytes(4096)
        assert put(admin, NONE) == 0
        assert write(queue, slba=64) == 0


def test_a_host_that_writes_all_the_time_sees_one_edge(hauld):
    """Whatever is with the disk is waited for before the answer."""
    with control.Busy(hauld.address, NQN) as busy, nvmetcp.Admin(hauld.address, NQN) as admin, \
            admin.io_queue() as queue:
        limit = time.monotonic() + 10
        while busy.rounds < 20:
            assert time.monotonic() < limit
        assert put(admin, SET) == 0
        first = queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 256), read=131072)[1]
        for _ in range(50):
            assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 256), read=131072)[1] == first
        assert put(admin, NONE) == 0
        busy.error = None


def test_protection_is_there_after_a_restart(hauld, start_hauld):
    """8.12, figure 596"""
    with nvmetcp.Admin(hauld.address, NQN) as admin:
        assert put(admin, SET) == put(admin, SET, nsid=2) == put(admin, NONE, nsid=2) == 0
        assert len(list(hauld.state.iterdir())) == 1
    assert hauld.stop() == 0
    hauld = start_hauld("--config", str(hauld.path), "--state", str(hauld.state))
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        assert [get(admin, nsid) for nsid in (1, 2)] == [SET, NONE]
        assert write(queue, 1) == WRITE_PROTECTED and write(queue, 2) == 0
        assert admin.identify(0, nsid=1)[1][99] == 1
        assert put(admin, NONE) == 0 and write(queue, 1) == 0


def test_a_host_that_changes_it_all_the_time_holds_up_nobody(hauld):
    """Each host has one in turn (tests/sim has the order); the administrator's changes come between."""
    with nvmetcp.Admin(hauld.address, NQN, source="127.0.0.2", hostnqn="nqn.2026-11.io.haul:greedy") as greedy, \
            nvmetcp.Admin(hauld.address, NQN, source="127.0.0.3", hostnqn="nqn.2026-11.io.haul:b") as other, \
            control.Control(hauld.control) as socket:
        for _ in range(4):
            cids = [greedy.start(nvme.SET_FEATURES, nsid=1, cdw=(FID, SET if n % 2 == 0 else NONE)) for n in range(28)]
            assert put(other, SET, nsid=2) == 0 and get(other, 2) == SET
            for state in ("non-optimized", "optimized"):
                assert socket.ask("ana", subsystem=NQN, group=1, state=state)["changes"]
            assert [greedy.finish(cid)[0].status for cid in cids] == [0] * len(cids)
            assert get(other) == NONE and put(other, NONE, nsid=2) == 0


def test_what_cannot_be_stored_is_not_so(hauld):
    with nvmetcp.Admin(hauld.address, NQN) as admin, admin.io_queue() as queue:
        hauld.state.rmdir()
        assert put(admin, SET) == 0x006, "Internal Error"
        assert get(admin) == NONE and write(queue) == 0
        for _ in range(50):
            put(admin, SET)
    assert 1 <= hauld.log_path.read_text().count("cannot be stored") <= 20, "a host must not fill the log"


def test_without_a_state_directory_it_is_not_offered(own):
    with own.admin() as admin:
        assert admin.identify(1)[1][531] == 0
        assert put(admin, SET) == nvme.INVALID_FIELD
        assert admin.command(nvme.GET_FEATURES, nsid=1, cdw=(FID,))[0].status == nvme.INVALID_FIELD

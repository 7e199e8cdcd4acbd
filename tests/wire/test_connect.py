# SPDX-License-Identifier: MIT
"""Connect, association rules and properties (NVMe base 2.0 chapter 3.3, 6.3 to 6.6)."""
import struct

import conftest
import nvme
import nvmetcp
import pytest

HOST = "nqn.2014-08.org.nvmexpress:uuid:aaaaaaaa-0000-0000-0000-000000000001"
OTHER_HOST = HOST[:-1] + "2"
NAME_223 = "nqn.2026-11.io.haul:" + "x" * 203


def invalid(cqe, offset, *, in_data):
    """Connect Invalid Parameters with the culprit's offset (base 2.0 figure 383)."""
    assert cqe.status == nvme.CONNECT_INVALID and cqe.dnr, cqe
    assert cqe.dw0 & 0xFFFF == offset and bool(cqe.dw0 >> 16 & 1) == in_data, hex(cqe.dw0)


def test_connect_gives_a_controller_id_that_identify_repeats(target):
    """Base 2.0 5.17.2.1: CNTLID is that of the Connect response. Two hosts, three associations each."""
    seen = set()
    admins = [target.admin(hostnqn=host) for host in (HOST, OTHER_HOST) * 3]
    for admin in admins:
        cqe, data = admin.identify(1)
        assert cqe.status == 0
        cntlid = struct.unpack_from("<H", data, 78)[0]
        assert cntlid == admin.cntlid
        seen.add(cntlid)
    for admin in admins:
        admin.close()
    assert len(seen) == len(admins)


@pytest.mark.parametrize("by_r2t", [False, True])
def test_connect_data_comes_in_the_capsule_or_by_r2t(target, by_r2t):
    with target.tcp() as tcp:
        assert tcp.connect(subnqn=target.subsystem, by_r2t=by_r2t).status == 0


@pytest.mark.parametrize("data, offset", [
    (dict(subnqn=b"n" * 256, hostnqn=HOST), 256),
    (dict(subnqn=conftest.MAIN, hostnqn=b"n" * 256), 512),
    (dict(subnqn=NAME_223 + "y", hostnqn=HOST), 256),
    (dict(subnqn=conftest.MAIN, hostnqn=NAME_223 + "y"), 512),
    (dict(subnqn=conftest.MAIN, hostnqn=""), 512),
    (dict(subnqn="nqn.2026-11.io.haul:no-such-thing", hostnqn=HOST), 256),
    (dict(subnqn="", hostnqn=HOST), 256),
])
def test_connect_refuses_bad_names_and_points_at_them(target, data, offset):
    """Base 2.0 6.3: names are NUL-terminated UTF-8 of at most 223 bytes."""
    with target.tcp() as tcp:
        invalid(tcp.connect(subnqn="", data=nvme.connect_data(**data)), offset, in_data=True)


def test_connect_takes_a_host_name_of_223_bytes(target):
    with target.tcp() as tcp:
        assert tcp.connect(subnqn=target.subsystem, hostnqn=NAME_223).status == 0


@pytest.mark.parametrize("name", ["h", "hostnqn", "nqn.of-no-form", "h" * 223, "ein/g\u00e4st name"])
def test_a_host_may_go_by_any_name(target, name):
    """The kernel's host sends whatever --hostnqn says."""
    with target.tcp() as tcp:
        assert tcp.connect(subnqn=target.subsystem, hostnqn=name).status == 0


@pytest.mark.parametrize("name", [b"a\nb", b"\x1b[2J", b"a\xff", b"\xc2\x9b0m"])
def test_a_name_that_would_spoil_the_log_is_refused(target, name):
    with target.tcp() as tcp:
        invalid(tcp.connect(subnqn=target.subsystem, hostnqn=name), 512, in_data=True)


def test_connect_record_format_other_than_0_is_incompatible(target):
    with target.tcp() as tcp:
        cqe = tcp.connect(subnqn=target.subsystem, recfmt=1)
        assert cqe.status == nvme.CONNECT_FORMAT and cqe.dnr


def test_admin_connect_asks_for_a_dynamic_controller(target):
    with target.tcp() as tcp:
        invalid(tcp.connect(subnqn=target.subsystem, cntlid=7), 16, in_data=True)


def test_connect_sqsize_0_is_invalid(target):
    with target.tcp() as tcp:
        invalid(tcp.connect(subnqn=target.subsystem, sqsize=0), 44, in_data=False)


@pytest.mark.parametrize("wrong, offset, in_data", [
    (dict(cntlid=0xFFE0), 16, True),
    (dict(cntlid=0xFFFF), 16, True),
    (dict(subnqn="nqn.2026-11.io.haul:no-such-thing"), 256, True),
    (dict(subnqn=nvme.DISCOVERY_NQN), 256, True),
    (dict(hostnqn=OTHER_HOST), 512, True),
    (dict(hostnqn=""), 512, True),
    (dict(hostid=bytes(16)), 0, True),
    (dict(qid=3), 42, False),
    (dict(qid=0xFFFF), 42, False),
    (dict(sqsize=0), 44, False),
    (dict(sqsize=0xFFFF), 44, False),
])
def test_refused_io_connects_point_at_what_is_wrong(target, wrong, offset, in_data):
    """Base 2.0 6.3: host, host id, subsystem and controller are those of the admin queue, the queue id is within what
    Number of Queues granted (here 2), the size within MQES. The queue may be connected afterwards as it should be."""
    with target.admin(hostnqn=HOST) as admin:
        assert admin.set_feature(7, 0x00010001).dw0 == 0x00010001
        with nvmetcp.Tcp(admin.address, qid=1) as queue:
            right = dict(subnqn=admin.subnqn, hostnqn=HOST, cntlid=admin.cntlid)
            invalid(queue.connect(**{**right, **wrong}), offset, in_data=in_data)
            assert queue.connect(**right).status == 0


def test_a_refused_connect_leaves_the_queue_free_for_a_shorter_one(target):
    with target.admin() as admin, target.tcp(qid=1) as queue:
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=0xFFE0, sqsize=63)
        assert cqe.status == nvme.CONNECT_INVALID
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=admin.cntlid, sqsize=15)
        assert cqe.status == nvme.SUCCESS, cqe


def test_io_connect_beyond_the_granted_queues_is_invalid(target):
    """Base 2.0 6.3: the queue id must be within what Number of Queues granted."""
    with target.admin() as admin:
        assert admin.set_feature(7, 0).dw0 == 0
        with admin.io_queue(1):
            admin.io_queue(2, expect=nvme.CONNECT_INVALID).close()


def test_io_connect_of_another_host_is_refused(target):
    """Base 2.0 6.3: host NQN and host id must be those of the admin queue."""
    with target.admin(hostnqn=HOST) as admin:
        other = HOST[:-1] + "2"
        admin.io_queue(1, hostnqn=other, expect=nvme.CONNECT_INVALID).close()
        admin.io_queue(1, hostid=bytes(16), expect=nvme.CONNECT_INVALID).close()
        admin.io_queue(1).close()


def test_io_connect_before_enable_is_refused(target):
    with target.admin(enable=False) as admin:
        queue = nvmetcp.Tcp(admin.address, qid=1)
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=admin.cntlid)
        assert cqe.status != 0
        queue.close()


def test_host_not_on_the_list_is_refused(own):
    with own.tcp() as tcp:
        for qid in (0, 1):
            cqe = tcp.connect(subnqn=conftest.PRIVATE, hostnqn=HOST, qid=qid)
            assert cqe.status == nvme.CONNECT_INVALID_HOST and cqe.dnr
    with own.tcp() as tcp:
        assert tcp.connect(subnqn=conftest.PRIVATE, hostnqn=conftest.FRIEND).status == 0


def test_a_live_queue_id_is_not_given_twice_and_the_first_queue_lives_on(target):
    with target.admin() as admin, admin.io_queue(1) as first:
        second = nvmetcp.Tcp(admin.address, qid=1)
        cqe = second.connect(subnqn=admin.subnqn, cntlid=admin.cntlid)
        assert cqe.status == nvme.SEQUENCE_ERROR, cqe
        second.close()
        assert first.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0


def test_a_queue_id_is_free_as_soon_as_its_connection_is_closed(target):
    with target.admin() as admin:
        for _ in range(300):
            admin.io_queue(1).close()


def test_connect_twice_on_one_queue_is_a_sequence_error(target):
    with target.admin() as admin:
        assert admin.connect(subnqn=target.subsystem).status == nvme.SEQUENCE_ERROR


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.IDENTIFY, nvme.KEEP_ALIVE])
def test_command_before_connect_is_a_sequence_error(target, opcode):
    with target.tcp() as tcp:
        assert tcp.command(opcode, nsid=1, read=512)[0].status == nvme.SEQUENCE_ERROR
    target.still_serves()


def test_property_before_connect_is_a_sequence_error(target):
    with target.tcp() as tcp:
        assert tcp.property_get(nvme.CAP)[0].status == nvme.SEQUENCE_ERROR


def test_property_on_an_io_queue_is_refused(target):
    with target.admin() as admin, admin.io_queue() as queue:
        assert queue.property_get(nvme.CAP)[0].status != 0


def test_capabilities_say_what_is_true(target):
    with target.admin() as admin:
        _, cap = admin.property_get(nvme.CAP)
        assert cap >> 37 & 1, "NVM command set"
        assert cap >> 16 & 1, "CQR is 1 on fabrics"
        assert cap >> 24 & 0xFF, "TO"
        assert cap & 0xFFFF >= 127, "MQES is 0's based"
        assert cap >> 43 & 1, "Identify CNS 1Ch"
        assert cap >> 59 & 3 == 1, "CRMS: ready with the media, which each controller of 2.0 is"
        cqe, crto = admin.property_get(0x68, 4)
        assert cqe.status == 0 and crto == cap >> 24 & 0xFF, "CRWMT as TO"
        _, vs = admin.property_get(nvme.VS, 4)
        assert struct.unpack_from("<I", admin.identify(1)[1], 80)[0] == vs


@pytest.mark.parametrize("offset, size", [
    (nvme.CAP, 4), (nvme.VS, 8), (nvme.CC, 8), (nvme.CSTS, 8), (0x24, 4), (0x28, 8), (0x30, 8),
    (0xFFF, 4), (0x1000, 4), (0x1000, 8), (0xFFFFFFFF, 8)])
def test_property_get_of_reserved_or_wrong_size_is_an_invalid_field(target, offset, size):
    with target.admin() as admin:
        assert admin.property_get(offset, size)[0].status == nvme.INVALID_FIELD


@pytest.mark.parametrize("offset, size", [(nvme.CAP, 8), (nvme.VS, 4), (nvme.CSTS, 4), (0x1000, 4)])
def test_property_set_of_a_read_only_one_is_refused(target, offset, size):
    with target.admin() as admin:
        assert admin.property_set(offset, 1, size).status == nvme.INVALID_FIELD


@pytest.mark.parametrize("css, ready", [(0, True), (6, True), (1, False), (7, False)])
def test_command_sets_that_are_offered_can_be_enabled(target, css, ready):
    """Base 2.0 3.1.3.5: all supported sets when CAP.CSS has bit 6; others end in CSTS.CFS."""
    with target.admin(enable=False) as admin:
        assert admin.property_set(nvme.CC, 0x00460001 | css << 4).status == 0
        assert admin.property_get(nvme.CSTS, 4)[1] & 3 == (1 if ready else 2)


def test_reset_by_cc_en_brings_the_controller_back(target):
    with target.admin() as admin:
        for _ in range(3):
            assert admin.property_set(nvme.CC, 0).status == 0
            assert not admin.property_get(nvme.CSTS, 4)[1] & 1
            admin.enable()


def test_shutdown_is_reported_complete(target):
    with target.admin() as admin:
        assert admin.property_set(nvme.CC, 0x00464001).status == 0
        assert admin.property_get(nvme.CSTS, 4)[1] >> 2 & 3 == 2


def test_disconnect_ends_an_io_queue_and_leaves_the_controller(target):
    """Base 2.0 6.4: Disconnect is for I/O queues; the association lives on."""
    with target.admin() as admin:
        with admin.io_queue(1) as queue:
            assert queue.disconnect().status == 0
            queue.expect_end()
        assert admin.identify(1)[0].status == 0
        with admin.io_queue(1) as queue:
            assert queue.command(nvme.FLUSH, nsid=1)[0].status == 0


def test_association_ends_with_its_admin_queue(target):
    admin = target.admin()
    with admin.io_queue(1) as queue:
        admin.close()
        queue.expect_end()


def test_silent_host_is_dropped_when_keep_alive_expires(target):
    """Base 2.0 3.9: no Keep Alive within KATO ends the association."""
    with target.admin(kato=1000) as admin, admin.io_queue(1) as queue:
        assert admin.command(nvme.KEEP_ALIVE)[0].status == 0
        admin.expect_end(within=4)
        queue.expect_end()


def test_more_commands_than_the_queue_holds_ends_only_that_association(target):
    with target.admin() as admin, admin.io_queue(1, sqsize=3) as queue:
        burst = b""
        for cid in range(64):
            dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096)
            burst += queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=1, dptr=dptr,
                                                cdw=nvme.rw_cdw(0, 8)))
        queue.send(burst)   # each waits for its data, so that all of them are out at once
        queue.expect_end()
    target.still_serves()

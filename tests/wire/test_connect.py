# SPDX-License-Identifier: MIT
"""Connect, association rules and properties (NVMe base 2.0 chapter 3.3, 6.3 to 6.6)."""
import struct
import time

import conftest
import fabric
import nvme
import nvmetcp
import pytest

HOST = "nqn.2014-08.org.nvmexpress:uuid:aaaaaaaa-0000-0000-0000-000000000001"
OTHER_HOST = HOST[:-1] + "2"
BEYOND = -1     # stands for the first queue id that is not granted
NAME_223 = "nqn.2026-11.io.haul:" + "x" * 203


def invalid(cqe, offset, *, in_data, or_at=None):
    """Connect Invalid Parameters with the culprit's offset (base 2.0 figure 383)."""
    assert cqe.status == nvme.CONNECT_INVALID and cqe.dnr, cqe
    assert cqe.dw0 & 0xFFFF in (offset, or_at) and bool(cqe.dw0 >> 16 & 1) == in_data, hex(cqe.dw0)


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


@pytest.mark.parametrize("data, offset", [
    (dict(subnqn=b"n" * 256, hostnqn=HOST), 256),
    (dict(hostnqn=b"n" * 256), 512),
    (dict(subnqn=NAME_223 + "y", hostnqn=HOST), 256),
    (dict(hostnqn=NAME_223 + "y"), 512),
    (dict(hostnqn=""), 512),
    (dict(subnqn="nqn.2026-11.io.haul:no-such-thing", hostnqn=HOST), 256),
    (dict(subnqn="", hostnqn=HOST), 256),
], ids=["subsystem without an end", "host without an end", "subsystem of 224", "host of 224", "no host", "unknown subsystem",
        "no subsystem"])
def test_connect_refuses_bad_names_and_points_at_them(target, data, offset):
    """Base 2.0 4.5: names are NUL-terminated UTF-8 of at most 223 bytes; Connect says where the wrong one is (6.3)."""
    with target.queue() as queue:
        data = nvme.connect_data(**{"subnqn": target.subsystem, **data})
        invalid(queue.connect(subnqn="", data=data), offset, in_data=True)


def test_connect_takes_a_host_name_of_223_bytes(target):
    """Base 2.0 4.5: up to 223 bytes."""
    with target.queue() as queue:
        assert queue.connect(subnqn=target.subsystem, hostnqn=NAME_223).status == 0


@pytest.mark.parametrize("name", ["h", "hostnqn", "nqn.of-no-form", "h" * 223, "ein/g\u00e4st name"],
                         ids=["h", "hostnqn", "of no form", "223 bytes", "UTF-8"])
def test_a_host_may_go_by_any_name(target, name):
    """Base 2.0 4.5 gives forms of names, but hosts in the field have others: the kernel's sends whatever --hostnqn says."""
    with target.queue() as queue:
        assert queue.connect(subnqn=target.subsystem, hostnqn=name).status == 0


@pytest.mark.parametrize("name", [b"a\nb", b"\x1b[2J", b"a\xff", b"\xc2\x9b0m"],
                         ids=["line feed", "escape", "not UTF-8", "C1"])
def test_a_name_that_would_spoil_the_log_is_refused(target, name):
    """Base 2.0 4.5: names are UTF-8, and no form of them has control characters."""
    with target.queue() as queue:
        invalid(queue.connect(subnqn=target.subsystem, hostnqn=name), 512, in_data=True)


def test_connect_record_format_other_than_0_is_incompatible(target):
    """Base 2.0 6.3: Connect Incompatible Format."""
    with target.queue() as queue:
        cqe = queue.connect(subnqn=target.subsystem, recfmt=1)
        assert cqe.status == nvme.CONNECT_FORMAT and cqe.dnr


def test_admin_connect_asks_for_a_dynamic_controller(target):
    """Base 2.0 6.3: of a target with dynamic controllers no other id than FFFFh is asked for."""
    with target.queue() as queue:
        invalid(queue.connect(subnqn=target.subsystem, cntlid=7), 16, in_data=True)


def test_connect_sqsize_0_is_invalid(target):
    """Base 2.0 6.3: a queue has two entries at least."""
    with target.queue() as queue:
        invalid(queue.connect(subnqn=target.subsystem, sqsize=0), 44, in_data=False)


def granted(admin):
    """The number of I/O queues: a controller may grant more than were asked for (base 2.0 5.27.1.5)."""
    cqe = admin.set_feature(7, 0x00010001)
    assert cqe.status == 0
    return min(cqe.dw0 & 0xFFFF, cqe.dw0 >> 16) + 1


@pytest.mark.parametrize("wrong, offset, in_data", [
    (dict(cntlid=0xFFE0), 16, True),
    (dict(cntlid=0xFFFF), 16, True),
    (dict(subnqn="nqn.2026-11.io.haul:no-such-thing"), 256, True),
    (dict(subnqn=nvme.DISCOVERY_NQN), 256, True),
    (dict(hostnqn=OTHER_HOST), 512, True),
    (dict(hostnqn=""), 512, True),
    (dict(hostid=bytes(16)), 0, True),
    (dict(qid=BEYOND), 42, False),
    (dict(qid=0xFFFF), 42, False),
    (dict(sqsize=0), 44, False),
    (dict(sqsize=0xFFFF), 44, False),
], ids=["other cntlid", "cntlid FFFFh", "unknown subsystem", "discovery subsystem", "other host", "no host", "other host id",
        "qid beyond the granted", "qid FFFFh", "sqsize 0", "sqsize FFFFh"])
def test_refused_io_connects_point_at_what_is_wrong(target, wrong, offset, in_data):
    """Base 2.0 6.3: host, host id, subsystem and controller are those of the admin queue, the queue id is within what
    Number of Queues granted, the size within MQES. The queue may be connected afterwards as it should be."""
    with target.admin(hostnqn=HOST) as admin:
        if wrong.get("qid") == BEYOND:
            wrong = dict(qid=granted(admin) + 1)
        right = dict(subnqn=admin.subnqn, hostnqn=HOST, cntlid=admin.cntlid)
        with target.queue(qid=1) as queue:
            # To another host or subsystem the controller's id means nothing: that may be what is wrong, too.
            or_at = 16 if offset in (256, 512) and not target.hauld else None
            invalid(queue.connect(**{**right, **wrong}), offset, in_data=in_data, or_at=or_at)
        with target.queue(qid=1) as queue:
            assert queue.connect(**right).status == 0


def test_a_refused_connect_leaves_the_queue_free_for_a_shorter_one(own):
    """And so the connection: nobody demands that, but a host may try again."""
    with own.admin() as admin, own.queue(qid=1, sqsize=15) as queue:
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=0xFFE0, sqsize=63)
        assert cqe.status == nvme.CONNECT_INVALID
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=admin.cntlid, sqsize=15)
        assert cqe.status == nvme.SUCCESS, cqe


def test_io_connect_beyond_the_granted_queues_is_invalid(target):
    """Base 2.0 6.3: the queue id must be within what Number of Queues granted."""
    with target.admin() as admin:
        most = granted(admin)
        with admin.io_queue(1):
            admin.io_queue(most + 1, expect=nvme.CONNECT_INVALID).close()


def test_no_more_queues_are_granted_than_asked_for(own):
    with own.admin() as admin:
        assert granted(admin) == 2
        assert admin.set_feature(7, 0).dw0 == 0
        with admin.io_queue(1):
            admin.io_queue(2, expect=nvme.CONNECT_INVALID).close()


@pytest.mark.parametrize("other", [dict(hostnqn=OTHER_HOST), dict(hostid=bytes(16))], ids=["name", "id"])
def test_io_connect_of_another_host_is_refused(target, other):
    """Base 2.0 6.3: host NQN and host id must be those of the admin queue."""
    with target.admin(hostnqn=HOST) as admin:
        admin.io_queue(1, **other, expect=nvme.CONNECT_INVALID).close()
        admin.io_queue(1).close()


def test_io_connect_before_enable_is_refused(target):
    """Base 2.0 6.3: I/O queues are for a controller that is enabled."""
    with target.admin(enable=False) as admin:
        queue = target.queue(qid=1)
        cqe = queue.connect(subnqn=admin.subnqn, cntlid=admin.cntlid)
        assert cqe.status != 0
        queue.close()


def test_host_not_on_the_list_is_refused(own):
    with own.queue() as queue:
        for qid in (0, 1):
            cqe = queue.connect(subnqn=conftest.PRIVATE, hostnqn=HOST, qid=qid)
            assert cqe.status == nvme.CONNECT_INVALID_HOST and cqe.dnr
    with own.queue() as queue:
        assert queue.connect(subnqn=conftest.PRIVATE, hostnqn=conftest.FRIEND).status == 0


def test_a_host_that_is_refused_again_and_again_keeps_no_other_out_of_the_log(start_hauld, tmp_path):
    path = tmp_path / "hauld.conf"
    path.write_text("listen: [\"tcp://127.0.0.1:0\"]\nsubsystems:\n  - nqn: nqn.2026-11.io.haul:list\n    allow: []\n")
    hauld = start_hauld("--config", str(path), "--threads", "1")
    for source, name, times in (("127.0.0.2", "noisy", 100), ("127.0.0.3", "quiet", 1)):
        for _ in range(times):
            with nvmetcp.Tcp(hauld.address, source=source) as queue:
                cqe = queue.connect(subnqn="nqn.2026-11.io.haul:list", hostnqn=f"nqn.2026-11.io.haul:{name}")
                assert cqe.status == nvme.CONNECT_INVALID_HOST
    log = hauld.log_path.read_text()
    assert 1 <= log.count("io.haul:noisy") < 50, log
    assert "io.haul:quiet" in log, log



def test_a_live_queue_id_is_not_given_twice_and_the_first_queue_lives_on(target):
    """Base 2.0 6.3: Command Sequence Error for a queue id that is in use."""
    with target.admin() as admin, admin.io_queue(1) as first:
        second = target.queue(qid=1)
        cqe = second.connect(subnqn=admin.subnqn, cntlid=admin.cntlid)
        assert cqe.status == nvme.SEQUENCE_ERROR, cqe
        second.close()
        assert first.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0


def test_a_queue_id_is_free_as_soon_as_its_connection_is_closed(own):
    with own.admin() as admin:
        for _ in range(300):
            admin.io_queue(1).close()


def test_a_queue_id_is_free_when_its_connection_has_ended(target):
    """Base 2.0 3.3.2.4: a queue ends with its connection, as soon as the target sees that."""
    with target.admin() as admin:
        for _ in range(5):
            limit = time.monotonic() + fabric.PATIENCE
            status = nvme.SEQUENCE_ERROR
            while status == nvme.SEQUENCE_ERROR and time.monotonic() < limit:
                with target.queue(qid=1) as queue:
                    status = queue.connect(subnqn=admin.subnqn, cntlid=admin.cntlid).status
            assert status == 0
        assert admin.identify(1)[0].status == 0


def test_connect_twice_on_one_queue_is_a_sequence_error(target):
    """Base 2.0 6.3: once a queue."""
    with target.admin() as admin:
        assert admin.connect(subnqn=target.subsystem).status == nvme.SEQUENCE_ERROR


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.IDENTIFY, nvme.KEEP_ALIVE], ids=["read", "identify", "keep alive"])
def test_command_before_connect_is_a_sequence_error(target, opcode):
    """Base 2.0 3.3.2.2: Connect is the first command on a queue, and others are Command Sequence Errors."""
    with target.queue() as queue:
        read = 0 if opcode == nvme.KEEP_ALIVE else 512
        assert queue.command(opcode, nsid=1, read=read)[0].status == nvme.SEQUENCE_ERROR
    target.still_serves()


def test_property_before_connect_is_a_sequence_error(target):
    """Base 2.0 3.3.2.2: Connect is the first command on a queue."""
    with target.queue() as queue:
        assert queue.property_get(nvme.CAP)[0].status == nvme.SEQUENCE_ERROR


def test_property_on_an_io_queue_is_refused(target):
    """Base 2.0 6.5: Property Get is for admin queues."""
    with target.admin() as admin, admin.io_queue() as queue:
        assert queue.property_get(nvme.CAP)[0].status != 0


def test_capabilities_say_what_is_true(target):
    """Base 2.0 3.1.3.1: the NVM command set, a time-out, queues of at least two entries; VS is repeated in Identify."""
    with target.admin() as admin:
        _, cap = admin.property_get(nvme.CAP)
        assert cap >> 37 & 1, "NVM command set"
        assert cap >> 24 & 0xFF, "TO"
        assert cap & 0xFFFF >= 1, "MQES is 0's based, and at least two entries"
        _, vs = admin.property_get(nvme.VS, 4)
        assert struct.unpack_from("<I", admin.identify(1)[1], 80)[0] == vs


def test_queues_are_contiguous(target):
    """Base 2.0 3.1.3.1: CQR is 1 with message-based transports."""
    with target.admin() as admin:
        assert admin.property_get(nvme.CAP)[1] >> 16 & 1


def test_ready_with_the_media_is_offered_by_controllers_of_2_0(target):
    """Base 2.0 3.1.3.1: CRMS, and CRTO where CAP.TO is not all of it (3.1.3.14)."""
    with target.admin() as admin:
        _, cap = admin.property_get(nvme.CAP)
        if admin.property_get(nvme.VS, 4)[1] < 0x20000:
            target.lacks("the controller is older than 2.0")
        assert cap >> 59 & 3 == 1, "CRMS"
        cqe, crto = admin.property_get(0x68, 4)
        assert cqe.status == 0 and crto & 0xFFFF >= cap >> 24 & 0xFF, "CRWMT is not below TO"


def test_queues_of_128_and_all_command_sets_are_offered(own):
    with own.admin() as admin:
        _, cap = admin.property_get(nvme.CAP)
        assert cap & 0xFFFF >= 127
        assert cap >> 43 & 1, "Identify CNS 1Ch"
        assert admin.property_get(0x68, 4)[1] == cap >> 24 & 0xFF, "CRWMT as TO"


@pytest.mark.parametrize("offset, size", [
    (nvme.CAP, 4), (nvme.VS, 8), (nvme.CC, 8), (nvme.CSTS, 8), (0x24, 4), (0x28, 8), (0x30, 8),
    (0xFFF, 4), (0x1000, 4), (0x1000, 8), (0xFFFFFFFF, 8)], ids=lambda v: f"{v:x}")
def test_property_get_of_reserved_or_wrong_size_is_an_invalid_field(target, offset, size):
    """Base 2.0 6.5: Invalid Field in Command for an offset or size that is not a property's."""
    with target.admin() as admin:
        assert admin.property_get(offset, size)[0].status == nvme.INVALID_FIELD


@pytest.mark.parametrize("offset, size", [(nvme.CAP, 8), (nvme.VS, 4), (nvme.CSTS, 4), (0x1000, 4)], ids=lambda v: f"{v:x}")
def test_property_set_of_a_read_only_one_is_refused(target, offset, size):
    """Base 2.0 6.6: CC is what hosts write."""
    with target.admin() as admin:
        assert admin.property_set(offset, 1, size).status == nvme.INVALID_FIELD


def select(admin, css):
    """CSTS of a controller enabled with a command set."""
    assert admin.property_set(nvme.CC, 0x00460001 | css << 4).status == 0
    return admin.property_get(nvme.CSTS, 4)[1] & 3


@pytest.mark.parametrize("css, bit", [(0, 37), (6, 43)], ids=["NVM", "all"])
def test_command_sets_that_are_offered_can_be_enabled(target, css, bit):
    """Base 2.0 3.1.3.5: CC.CSS 0 for the NVM command set, 6 for all supported ones."""
    with target.admin(enable=False) as admin:
        if not admin.property_get(nvme.CAP)[1] >> bit & 1:
            target.lacks(f"CAP.CSS has no bit {bit - 37}")
        assert select(admin, css) == 1


@pytest.mark.parametrize("css", [1, 7], ids=["reserved", "admin only"])
def test_command_sets_that_are_not_offered_cannot_be_enabled(target, css):
    """Base 2.0 3.1.3.5: it does not become ready, and ours says so in CSTS.CFS."""
    with target.admin(enable=False) as admin:
        if css == 7 and admin.property_get(nvme.CAP)[1] >> 44 & 1:
            target.lacks("the controller may be enabled without I/O command sets")
        assert select(admin, css) in ((2,) if target.hauld else (0, 2))


def test_reset_by_cc_en_brings_the_controller_back(target):
    """Base 2.0 3.7.2: CC.EN to 0 resets, CSTS.RDY follows."""
    with target.admin() as admin:
        for _ in range(3):
            assert admin.property_set(nvme.CC, 0).status == 0
            assert not admin.property_get(nvme.CSTS, 4)[1] & 1
            admin.enable()


def test_shutdown_is_reported_complete(target):
    """Base 2.0 3.6.2: CC.SHN, then CSTS.SHST 10b."""
    with target.admin() as admin:
        assert admin.property_set(nvme.CC, 0x00464001).status == 0
        assert admin.property_get(nvme.CSTS, 4)[1] >> 2 & 3 == 2


def test_disconnect_ends_an_io_queue_and_leaves_the_controller(target):
    """Base 2.0 6.4: Disconnect is for I/O queues; the association lives on."""
    with target.admin() as admin:
        if not admin.identify(1)[1][1804] & 1:
            target.lacks("OFCS has no Disconnect")
        with admin.io_queue(1) as queue:
            assert queue.disconnect().status == 0
            queue.expect_end()
        assert admin.identify(1)[0].status == 0
        with admin.io_queue(1) as queue:
            assert queue.command(nvme.FLUSH, nsid=1)[0].status == 0


def test_association_ends_with_its_admin_queue(target):
    """Base 2.0 3.3.2.4: all queues of an association end with the admin queue's connection."""
    admin = target.admin()
    with admin.io_queue(1) as queue:
        admin.close()
        queue.expect_end(within=fabric.PATIENCE)


@pytest.mark.long
def test_silent_host_is_dropped_when_keep_alive_expires(target):
    """Base 2.0 3.9: no Keep Alive within KATO ends the association."""
    with target.admin(kato=1000) as admin, admin.io_queue(1) as queue:
        assert admin.command(nvme.KEEP_ALIVE)[0].status == 0
        admin.expect_end(within=4)
        queue.expect_end()


@pytest.mark.transport("tcp")
def test_more_commands_than_the_queue_holds_ends_only_that_association(target):
    """Base 2.0 3.3.2.7: hosts keep to the size of their queue; who does not loses the connection, and others keep theirs."""
    with target.admin() as admin, admin.io_queue(1, sqsize=3) as queue:
        burst = b""
        for cid in range(64):
            dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096)
            burst += queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=1, dptr=dptr,
                                                cdw=nvme.rw_cdw(0, 8)))
        queue.send(burst)   # each waits for its data, so that all of them are out at once
        queue.expect_end()
    target.still_serves()


def test_controller_ids_are_of_the_range_that_is_configured(start_hauld, tmp_path):
    """Base 2.0 3.1.2: unique in the subsystem, of which another target may be a part with other ids."""
    path = conftest.config(tmp_path)
    path.write_text(path.read_text() + "cntlid_min: 1000\ncntlid_max: 1063\nthreads: 3\n")
    hauld = start_hauld("--config", str(path))
    admins, ids = [], set()
    for _ in range(20):
        admins.append(nvmetcp.Admin(hauld.address, conftest.MAIN))
        ids.add(struct.unpack_from("<H", admins[-1].identify(1)[1], 78)[0])
        with admins[-1].io_queue() as queue:
            assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0
    assert len(ids) == 20 and min(ids) >= 1000 and max(ids) <= 1063
    for admin in admins:
        admin.close()

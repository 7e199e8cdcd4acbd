# SPDX-License-Identifier: MIT
"""Admin commands (NVMe base 2.0 chapter 5)."""
import struct
import time

import conftest
import nvme
import pytest


def u8(data, at):
    return data[at]


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


# --- Identify -------------------------------------------------------------------------------------

def test_identify_controller_holds_what_hosts_insist_on(target):
    """Base 2.0 figure 275: without these the kernel's host goes away again."""
    with target.admin() as admin:
        cqe, data = admin.identify(1)
        assert cqe.status == 0 and len(data) == 4096
        assert u16(data, 320) > 0, "KAS"
        assert data[512] == 0x66 and data[513] == 0x44, "SQES, CQES"
        assert u16(data, 514) > 0, "MAXCMD"
        assert u32(data, 516) >= 1, "NN"
        assert u32(data, 536) & 3, "SGLS"
        assert target.kind != "rdma" or u32(data, 536) & 4, "keyed SGLs"
        assert u32(data, 1792) >= 4 and u32(data, 1796) >= 1, "IOCCSZ, IORCSZ"
        assert u16(data, 1800) == 0, "ICDOFF"
        assert data[1803] >= 1, "MSDBD"
        assert data[768:768 + 224].rstrip(b"\0").decode() == target.subsystem
        for at, size in ((4, 20), (24, 40), (64, 8)):
            text = data[at:at + size]
            assert text.strip(b" ") and all(32 <= c < 127 for c in text), "ASCII, space padded"


@pytest.mark.parametrize("discovery, kind", [(False, 1), (True, 2)], ids=["io", "discovery"])
def test_identify_says_what_kind_of_controller_it_is(target, discovery, kind):
    """Base 2.0 figure 275, CNTRLTYPE; 0 is for those before 1.4."""
    with target.admin(nvme.DISCOVERY_NQN if discovery else None) as admin:
        data = admin.identify(1)[1]
        if u32(data, 80) < 0x10400 and data[111] == 0:
            target.lacks("the controller is older than 1.4")
        assert data[111] == kind


def test_identify_discovery_controller(target):
    """Base 2.0 3.1.2.3: its name, and keep-alive."""
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        cqe, data = admin.identify(1)
        assert cqe.status == 0
        assert u16(data, 320) > 0, "KAS"
        assert data[768:].startswith(nvme.DISCOVERY_NQN.encode() + b"\0")


@pytest.mark.parametrize("nsid, expect", [
    (1, "active"), (2, "inactive"), (3, "active"), (0, nvme.INVALID_NAMESPACE),
    (0xFFFFFFFF, nvme.INVALID_NAMESPACE), (0xFFFFFFFE, nvme.INVALID_NAMESPACE)])
def test_identify_namespace(own, nsid, expect):
    """Base 2.0 5.17.2.2: inactive ids give zeros, ids out of range an error."""
    with own.admin() as admin:
        cqe, data = admin.identify(0, nsid=nsid)
        if expect == "active":
            assert cqe.status == 0 and u64(data, 0) > 0
            size = 64 << 20 if nsid == 1 else 16 << 20
            lbads = u32(data, 128 + 4 * (data[26] & 15)) >> 16 & 0xFF
            assert u64(data, 0) << lbads == size
        elif expect == "inactive":
            assert cqe.status == 0 and data == bytes(4096)
        else:
            assert cqe.status == expect and cqe.dnr


def test_a_namespace_above_nn_is_invalid(own):
    with own.admin() as admin:
        nn = u32(admin.identify(1)[1], 516)
        assert admin.identify(0, nsid=nn + 1)[0].status == nvme.INVALID_NAMESPACE


@pytest.mark.parametrize("start, expect", [(0, [1, 3, 4]), (1, [3, 4]), (3, [4]), (4, []),
                                           (0xFFFFFFFD, [])])
def test_active_namespace_list(own, start, expect):
    with own.admin() as admin:
        cqe, data = admin.identify(2, nsid=start)
        assert cqe.status == 0
        assert list(struct.unpack("<1024I", data)) == expect + [0] * (1024 - len(expect))


@pytest.mark.parametrize("start", [0xFFFFFFFE, 0xFFFFFFFF])
def test_active_namespace_list_from_the_reserved_ids_is_refused(target, start):
    """Base 2.0 5.17.2.3: FFFFFFFEh and FFFFFFFFh are Invalid Namespace or Format."""
    with target.admin() as admin:
        assert admin.identify(2, nsid=start)[0].status == nvme.INVALID_NAMESPACE


def descriptors(data):
    out, at = {}, 0
    while data[at]:
        kind, length = data[at], data[at + 1]
        out[kind] = data[at + 4:at + 4 + length]
        at += 4 + length
    assert data[at:] == bytes(len(data) - at), "bytes after the end of the list"
    return out


def test_namespace_descriptors_are_unique_and_agree_with_identify(own):
    """Base 2.0 figure 277; the same ids must be in the namespace structure."""
    seen = set()
    for nqn, nsids in ((conftest.MAIN, (1, 3, 4)), (conftest.BLOCKS_4K, (1,))):
        with own.admin(nqn) as admin:
            for nsid in nsids:
                cqe, data = admin.identify(3, nsid=nsid)
                assert cqe.status == 0
                found = descriptors(data)
                assert len(found[3]) == 16 and found[3] != bytes(16), "UUID"
                assert found.get(4, b"\0") == b"\0", "CSI NVM"
                ns = admin.identify(0, nsid=nsid)[1]
                if 2 in found:
                    assert found[2] == ns[104:120] != bytes(16), "NGUID"
                if 1 in found:
                    assert found[1] == ns[120:128] != bytes(8), "EUI64"
                seen.add(found[3])
    assert len(seen) == 4


@pytest.mark.parametrize("nsid, expect", [(2, nvme.INVALID_FIELD), (0, nvme.INVALID_NAMESPACE),
                                          (0xFFFFFFFF, nvme.INVALID_NAMESPACE)])
def test_namespace_descriptors_of_other_ids(own, nsid, expect):
    with own.admin() as admin:
        assert admin.identify(3, nsid=nsid)[0].status == expect


@pytest.mark.parametrize("cns", [0x04, 0x1F, 0x7F, 0xFF])
def test_unknown_cns_is_an_invalid_field(target, cns):
    """Base 2.0 5.17.1: reserved values of CNS."""
    with target.admin() as admin:
        cqe, _ = admin.identify(cns, nsid=1)
        assert cqe.status == nvme.INVALID_FIELD and cqe.dnr


# --- opcodes ----------------------------------------------------------------------------------------

SUPPORTED_ADMIN = {nvme.GET_LOG, nvme.IDENTIFY, nvme.ABORT, nvme.SET_FEATURES, nvme.GET_FEATURES,
                   nvme.ASYNC_EVENT, nvme.KEEP_ALIVE, nvme.FABRICS}
OPTIONAL_IO = {nvme.FLUSH, nvme.WRITE, nvme.READ, nvme.WRITE_ZEROES, nvme.DSM, nvme.FABRICS,
               0x05, 0x0C, 0x0D, 0x0E, 0x11, 0x15, 0x19}


def data_of(opcode, size=512):
    """The data as an opcode's two last bits say (base 2.0 figure 87)."""
    return {1: dict(write=bytes(size)), 2: dict(read=size)}.get(opcode & 3, {})


def test_unsupported_admin_opcodes_are_invalid(target):
    """Base 2.0 figure 94: Invalid Command Opcode, and retries are of no use."""
    with target.admin() as admin:
        for opcode in set(range(256)) - SUPPORTED_ADMIN - known_by_effects(admin, 0):
            cqe, _ = admin.command(opcode, **data_of(opcode))
            assert cqe.status == nvme.INVALID_OPCODE and cqe.dnr, (hex(opcode), cqe)


def known_by_effects(admin, at):
    """The opcodes that the log of commands supported and effects has, if there is one."""
    cqe, page = admin.get_log(5, 4096)
    return {n for n in range(256) if page[at + 4 * n] & 1} if cqe.status == 0 else set()


@pytest.mark.parametrize("how", ["none", "fetched", "read", "inline"])
def test_unsupported_opcodes_are_answered_whatever_their_data(target, how):
    """Base 2.0 figure 94: the opcode is wrong before its data are, even if they go the way it does not say."""
    if how == "inline" and target.kind == "rdma":
        pytest.skip("an admin capsule has no room for data")
    with target.admin() as admin:
        for opcode in set(range(256)) - SUPPORTED_ADMIN - known_by_effects(admin, 0):
            cqe, _ = admin.command(opcode, **{"none": {}, "read": dict(read=4096)}.get(how, {how: bytes(512)}))
            assert cqe.status == nvme.INVALID_OPCODE and cqe.dnr, (hex(opcode), cqe)


def test_unsupported_io_opcodes_are_invalid(target):
    """Base 2.0 figure 94: Invalid Command Opcode, and retries are of no use."""
    with target.admin() as admin, admin.io_queue() as queue:
        for opcode in set(range(256)) - OPTIONAL_IO - known_by_effects(admin, 1024):
            cqe, _ = queue.command(opcode, nsid=1, **data_of(opcode))
            assert cqe.status == nvme.INVALID_OPCODE and cqe.dnr, (hex(opcode), cqe)


def test_unknown_fabrics_types_are_answered(target):
    """Base 2.0 6: a type that is not there is an invalid opcode or field."""
    with target.admin() as admin:
        for fctype in (2, 3, 7, 9, 0x7F, 0xFF):
            cqe, _ = admin.finish(admin.start_fabrics(fctype, b""))
            target.expects(cqe.status, nvme.INVALID_OPCODE, nvme.INVALID_FIELD)


def test_admin_command_on_an_io_queue_and_the_reverse(target):
    """Base 2.0 5: admin commands are for the admin queue, opcodes of I/O commands mean nothing there."""
    with target.admin() as admin, admin.io_queue() as queue:
        assert admin.command(0x01, nsid=1, write=bytes(512))[0].status == nvme.INVALID_OPCODE
        assert queue.command(nvme.IDENTIFY, nsid=1, read=4096)[0].status == nvme.INVALID_OPCODE


# --- features ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("asked", [0x00000000, 0x00030003, 0x003F003F, 0xFFFEFFFE], ids=lambda v: f"{v:08X}h")
def test_number_of_queues_is_granted_in_0s_based_halves(target, asked):
    """Base 2.0 5.27.1.5: what is granted, be it more or less than asked for, is what Get Features tells."""
    with target.admin() as admin:
        cqe = admin.set_feature(7, asked)
        assert cqe.status == 0
        assert not target.hauld or cqe.dw0 & 0xFFFF <= asked & 0xFFFF and cqe.dw0 >> 16 <= asked >> 16
        assert admin.get_feature(7)[0].dw0 == cqe.dw0


@pytest.mark.parametrize("asked", [0xFFFFFFFF, 0x0000FFFF, 0xFFFF0000], ids=lambda v: f"{v:08X}h")
def test_65536_queues_are_an_invalid_field(target, asked):
    """Base 2.0 5.27.1.5: 65,535 is the most that can be asked for, of each kind."""
    with target.admin() as admin:
        assert admin.set_feature(7, asked).status == nvme.INVALID_FIELD


def test_unknown_features_are_invalid_fields(target):
    """Base 2.0 5.27: identifiers of nothing."""
    with target.admin() as admin:
        for fid in (0x00, 0x7F, 0x85, 0xC0, 0xFF):
            assert admin.get_feature(fid)[0].status == nvme.INVALID_FIELD
            assert admin.set_feature(fid).status == nvme.INVALID_FIELD


def test_features_can_not_be_saved(target):
    """Base 2.0 5.27: Feature Identifier Not Saveable."""
    with target.admin() as admin:
        assert admin.set_feature(0x0B, 0, save=1).status == nvme.NOT_SAVEABLE


def test_async_event_configuration_keeps_only_supported_bits(target):
    """Base 2.0 5.27.1.8: those of events that there are."""
    with target.admin() as admin:
        admin.set_feature(0x0B, 0x00000100)
        assert admin.get_feature(0x0B)[0].dw0 == 0x00000100
        admin.set_feature(0x0B, 0xFFFFBFFF)
        assert admin.get_feature(0x0B)[0].dw0 != 0xFFFFBFFF


def test_keep_alive_timer_can_be_set_and_read(target):
    """Base 2.0 5.27.1.12: rounded up to the granularity (KAS)."""
    with target.admin() as admin:
        assert admin.set_feature(0x0F, 7000).status == 0
        got = admin.get_feature(0x0F)[0].dw0
        assert 7000 <= got < 9000, "rounded up to the granularity at most"


@pytest.mark.long
def test_keep_alive_set_by_feature_is_enforced(target):
    """Base 2.0 3.9: the association ends when the timer does."""
    with target.admin() as admin:
        assert admin.set_feature(0x0F, 1000).status == 0
        start = time.monotonic()
        admin.expect_end(within=5)
        assert time.monotonic() - start > 0.9


# --- events and abort --------------------------------------------------------------------------------

def send_aers(admin, count):
    return [admin.start(nvme.ASYNC_EVENT) for _ in range(count)]


def test_async_event_requests_beyond_the_limit_are_refused_also_after_a_reset(target):
    """Base 2.0 5.2: AERL is 0's based."""
    with target.admin() as admin:
        for _ in range(2):
            aerl = u8(admin.identify(1)[1], 259)
            cids = send_aers(admin, aerl + 2)
            assert admin.finish(cids[-1])[0].status == nvme.AER_LIMIT
            assert admin.identify(1)[0].status == 0
            assert not set(cids) & set(admin.waiting)
            assert admin.property_set(nvme.CC, 0).status == 0
            admin.waiting.clear()
            admin.enable()


def test_abort_finds_an_async_event_request(target):
    """Base 2.0 5.1: bit 0 of the response says whether it was aborted, and then it is answered so."""
    with target.admin() as admin:
        cid, = send_aers(admin, 1)
        cqe, _ = admin.command(nvme.ABORT, cdw=(cid << 16,))
        assert cqe.status == 0
        if cqe.dw0 & 1 == 0:
            assert admin.finish(cid)[0].status == 0x007, "Command Abort Requested"


def test_abort_of_nothing_says_not_aborted(target):
    """Base 2.0 5.1: bit 0 of the response."""
    with target.admin() as admin:
        cqe, _ = admin.command(nvme.ABORT, cdw=(0x4242 << 16,))
        assert cqe.status == 0 and cqe.dw0 & 1


# --- log pages --------------------------------------------------------------------------------------

def test_unknown_log_page_is_invalid(target):
    """Base 2.0 5.16: Invalid Log Page (Invalid Field before 2.0c)."""
    with target.admin() as admin:
        for lid in (0x7F, 0xC0, 0xFF):
            cqe, _ = admin.get_log(lid, 512)
            target.expects(cqe.status, nvme.INVALID_LOG_PAGE, nvme.INVALID_FIELD)
            assert cqe.dnr


@pytest.mark.parametrize("offset", [2, 516, 1 << 32, (1 << 64) - 4], ids=["2", "516", "4 GiB", "16 EiB - 4"])
def test_log_page_offset_outside_of_the_page_is_refused(target, offset):
    """Base 2.0 5.16: dwords, and not beyond the page."""
    with target.admin() as admin:
        if not admin.identify(1)[1][261] & 4:
            target.lacks("LPA has no extended data")
        assert admin.get_log(2, 512, offset=offset)[0].status == nvme.INVALID_FIELD


def test_answers_carry_nothing_of_earlier_buffers(target):
    """Base 2.0 1.4.3: what is reserved is 0, whatever the buffer held before."""
    pattern = b"\xd1\x5c\xa5\x3e" * 1024
    with target.admin() as admin, admin.io_queue() as queue:
        for _ in range(4):
            queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(0, 8), write=pattern)
            queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 8), read=4096)
            for cns in (0, 1, 2, 3):
                assert b"\xd1\x5c\xa5\x3e" not in admin.identify(cns, nsid=1)[1]
        for lid, size in ((1, 64), (2, 512), (3, 512), (4, 4096), (5, 4096)):
            assert b"\xd1\x5c\xa5\x3e" not in admin.get_log(lid, size)[1]


@pytest.mark.parametrize("length", [0, 512, 4095, 8192])
def test_identify_with_another_data_length(target, length):
    """Base 2.0 4.1.2: too short an SGL is an error; a longer one moves 4096 bytes at most."""
    with target.admin() as admin:
        cqe, data = admin.command(nvme.IDENTIFY, cdw=(1,), read=length)
        if length < 4096:
            assert cqe.status == nvme.SGL_LENGTH_INVALID
        else:
            target.expects(cqe.status, nvme.SGL_LENGTH_INVALID, 0)
            assert len(data) == (0 if cqe.status else 4096)
        assert admin.identify(1)[0].status == 0


def test_command_dwords_of_reserved_psdt_are_refused(target):
    """Base 2.0 figure 87: fabrics commands use SGLs; PRPs are not allowed."""
    with target.admin() as admin:
        cqe, _ = admin.command(nvme.IDENTIFY, cdw=(1,), read=4096, flags=0)
        target.expects(cqe.status, nvme.INVALID_FIELD, 0)

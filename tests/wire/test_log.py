# SPDX-License-Identifier: MIT
"""Log pages (NVMe base 2.0 5.16): each says what is true, at any offset and length."""
import struct

import conftest
import nvme
import pytest
from events import Host

SUPPORTED, ERROR, SMART, FW_SLOT, CHANGED_NS, EFFECTS, FEATURES, MI = 0, 1, 2, 3, 4, 5, 0x12, 0x13
DISCOVERY = 0x70
ALL = 0xFFFFFFFF
MANDATORY = {ERROR, SMART, FW_SLOT}      # of every I/O controller, whatever its version (base 2.0 3.1.2.1.2)
SIZES = {SUPPORTED: 1024, ERROR: 4096, SMART: 512, FW_SLOT: 512, CHANGED_NS: 4096, EFFECTS: 4096,
         FEATURES: 1024, MI: 4096}
OF_DISCOVERY = {SUPPORTED, ERROR, EFFECTS, FEATURES, MI, DISCOVERY}


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def whole(target, admin, lid, length, **kw):
    """A page; a target need not have each of them."""
    cqe, data = admin.get_log(lid, length, **kw)
    if cqe.status in (nvme.INVALID_LOG_PAGE, nvme.INVALID_FIELD) and lid not in MANDATORY:
        target.lacks(f"there is no log page {lid:02X}h")
    assert cqe.status == 0, cqe
    return data


def size_of(target, admin, lid):
    """The error information log has as many entries as ELPE says."""
    return 64 * (admin.identify(1)[1][262] + 1) if lid == ERROR else SIZES[lid]


@pytest.fixture(scope="module")
def hauld(tmp_path_factory):
    """Two threads, both transports: queues are not where their controller is."""
    directory = tmp_path_factory.mktemp("log")
    path = conftest.config(directory)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    daemon = conftest.Hauld(directory, "--config", str(path), "--threads", "2", env=conftest.rdma_environment())
    yield daemon
    assert daemon.stop() == 0, daemon.log_path.read_text()


def address(hauld, kind):
    return hauld.address_of(kind)


@pytest.fixture(params=["tcp", "rdma"])
def host(request, hauld):
    with Host(request.param, address(hauld, request.param), conftest.MAIN) as one:
        yield one


# --- which pages there are (5.16.1.1, figure 202) ---

@pytest.mark.parametrize("subnqn", [None, nvme.DISCOVERY_NQN], ids=["io", "discovery"])
def test_page_0_lists_just_what_is_answered(target, subnqn):
    """Base 2.0 5.16.1.1: what is listed is answered, and nothing else."""
    with target.admin(subnqn) as admin:
        page = whole(target, admin, SUPPORTED, 1024)
        for lid in range(256):
            cqe, _ = admin.get_log(lid, 512)
            assert cqe.status in (0, nvme.INVALID_LOG_PAGE)
            assert (cqe.status == 0) == bool(u32(page, 4 * lid) & 1), hex(lid)
            assert cqe.dnr == (cqe.status != 0)


@pytest.mark.parametrize("subnqn", [None, nvme.DISCOVERY_NQN], ids=["io", "discovery"])
def test_page_0_lists_what_ours_has(own, subnqn):
    with own.admin(subnqn) as admin:
        page = admin.get_log(SUPPORTED, 1024)[1]
        listed = {lid for lid in range(256) if u32(page, 4 * lid)}
        assert OF_DISCOVERY <= listed if subnqn else set(SIZES) <= listed and DISCOVERY not in listed
        assert u32(page, 4 * DISCOVERY) == ((3 << 16 | 1) if subnqn else 0), "EXTDLPES and PLEOS"


@pytest.mark.parametrize("bit, lids", [(1, (EFFECTS,)), (3, (7, 8)), (4, (0x0D,)), (5, (SUPPORTED, FEATURES, MI))],
                         ids=["effects", "telemetry", "persistent events", "supported pages"])
def test_lpa_promises_just_what_is_there(target, bit, lids):
    """Base 2.0 figure 275: each bit of LPA for its log pages."""
    with target.admin() as admin:
        lpa = admin.identify(1)[1][261]
        for lid in lids:
            status = admin.get_log(lid, 512)[0].status
            assert (status == 0) if lpa >> bit & 1 else status in (nvme.INVALID_LOG_PAGE, nvme.INVALID_FIELD)


def test_smart_by_namespace_is_there_when_lpa_promises_it(target):
    """Base 2.0 figure 275: bit 0 of LPA."""
    with target.admin() as admin:
        if not admin.identify(1)[1][261] & 1:
            target.lacks("SMART is the controller's only")
        assert admin.get_log(SMART, 512, nsid=1)[0].status == 0


def test_lpa_promises_what_ours_has(own):
    with own.admin() as admin:
        lpa = admin.identify(1)[1][261]
        assert lpa & 1, "SMART by namespace"
        assert admin.get_log(SMART, 512, nsid=1)[0].status == 0
        assert lpa & 2 and lpa & 4 and lpa & 0x20
        assert not lpa & 0x58, "telemetry, persistent events, telemetry data area 4"
        for lid in (7, 8, 0x0D, 6, 9, 0x0E, 0x81):
            assert admin.get_log(lid, 512)[0].status == nvme.INVALID_LOG_PAGE
        assert admin.identify(1)[1][262] == 63, "ELPE"


# --- offset and length (5.16.1) ---

@pytest.mark.parametrize("lid", sorted(SIZES))
def test_a_page_is_the_same_however_it_is_cut(target, lid):
    """Base 2.0 5.16: offset and number of dwords, when LPA says that there are offsets (bit 2)."""
    with target.admin() as admin:
        size = size_of(target, admin, lid)
        complete = whole(target, admin, lid, size, rae=1)
        if not admin.identify(1)[1][261] & 4:
            target.lacks("LPA has no extended data")
        for piece in (4, 12, 500) if size < 4096 else (508, 1024):
            data = b"".join(admin.get_log(lid, min(piece, size - at), offset=at, rae=1)[1]
                            for at in range(0, size, piece))
            if lid != SMART:
                assert data == complete


@pytest.mark.parametrize("lid", sorted(SIZES))
def test_what_is_read_beyond_a_page_is_zero(target, lid):
    """Base 2.0 5.16: undefined, but nothing of earlier buffers: zeros."""
    with target.admin() as admin:
        size = size_of(target, admin, lid)
        whole(target, admin, lid, size, rae=1)
        cqe, longer = admin.get_log(lid, size + 4096, rae=1)
        assert cqe.status == 0 and longer[size:] == bytes(4096)


@pytest.mark.parametrize("lid", sorted(SIZES))
def test_offsets_are_checked_against_the_page(target, lid):
    """Base 2.0 5.16: dwords, and not beyond the page (B047)."""
    with target.admin() as admin:
        size = size_of(target, admin, lid)
        whole(target, admin, lid, size, rae=1)
        if not admin.identify(1)[1][261] & 4:
            target.lacks("LPA has no extended data")
        cqe, data = admin.get_log(lid, 8, offset=size)
        assert cqe.status == 0 and data == bytes(8)
        cqe, data = admin.get_log(lid, 64, offset=size - 4)
        assert cqe.status == 0 and data[4:] == bytes(60)
        for offset in (2, size - 1, size + 4, 1 << 32, (1 << 64) - 4):
            cqe, _ = admin.get_log(lid, 64, offset=offset)
            assert cqe.status == nvme.INVALID_FIELD and cqe.dnr, hex(offset)


def test_more_than_mdts_and_an_index_offset_are_refused(own):
    with own.admin() as admin:
        assert admin.command(nvme.GET_LOG, nsid=ALL, read=4096, cdw=(SMART | 0xFFFF << 16, 0xFFFF))[0].status \
            == nvme.INVALID_FIELD
        assert admin.command(nvme.GET_LOG, nsid=ALL, read=512, cdw=(SMART | 127 << 16, 0, 0, 0, 1 << 23))[0].status \
            == nvme.INVALID_FIELD


@pytest.mark.parametrize("lid", sorted(set(SIZES) - {SMART}))
def test_pages_of_a_controller_are_not_asked_for_by_namespace(target, lid):
    """Base 2.0 5.16: the namespace is 0 or FFFFFFFFh where the page is the controller's."""
    with target.admin() as admin:
        size = size_of(target, admin, lid)
        whole(target, admin, lid, size, nsid=0)
        assert admin.get_log(lid, size, nsid=1)[0].status == nvme.INVALID_FIELD


# --- error information (5.16.1.2) ---

class Entry:
    def __init__(self, raw):
        self.count, self.sqid, self.cid, status, self.parameter, self.lba, self.nsid, self.vs, self.trtype = \
            struct.unpack_from("<QHHHHQIBB", raw)
        self.status, self.more, self.dnr = status >> 1 & 0x7FF, bool(status & 0x4000), bool(status & 0x8000)
        assert raw[30:] == bytes(34)


def entries(host):
    page = host.get_log(ERROR, 4096)
    return [Entry(page[at:at + 64]) for at in range(0, 4096, 64)]


@pytest.mark.parametrize("nsid, parameter", [(1, 0xFFFF), (9, 4), (ALL, 4), (1025, 4)])
def test_an_error_points_at_a_namespace_that_is_not_there(hauld, nsid, parameter):
    """Invalid Field may be of any other field, too: here FUSE, which Read does not know."""
    import nvmetcp
    with nvmetcp.Admin(address(hauld, "tcp"), conftest.MAIN) as admin, admin.io_queue() as queue:
        flags = 0x41 if nsid == 1 else 0x40
        cqe, _ = queue.command(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(0, 1), read=512, flags=flags)
        assert cqe.status == (nvme.INVALID_FIELD if nsid == 1 else nvme.no_namespace(nsid))
        entry = Entry(admin.get_log(ERROR, 64)[1])
        assert (entry.nsid, entry.parameter) == (nsid, parameter)


def test_errors_of_admin_and_io_commands_are_entries(hauld):
    import nvmetcp
    with nvmetcp.Admin(address(hauld, "tcp"), conftest.MAIN) as admin:
        queues = [admin.io_queue(qid) for qid in (1, 2)]
        beyond = nvme.rw_cdw(1 << 40, 1)
        failed = []
        for queue in queues:
            cqe, _ = queue.command(nvme.READ, nsid=1, cdw=beyond, read=512)
            assert cqe.status == nvme.LBA_OUT_OF_RANGE and cqe.more
            failed.append((queue.qid, cqe))
        cqe, _ = admin.command(0xC3, nsid=9)
        assert cqe.more
        failed.append((0, cqe))
        page = admin.get_log(ERROR, 4096)[1]
        kept = [Entry(page[at:at + 64]) for at in range(0, 4096, 64)]
        assert [e.count for e in kept[:4]] == [3, 2, 1, 0]
        for entry, (qid, cqe) in zip(kept, reversed(failed)):
            assert (entry.sqid, entry.cid, entry.status, entry.dnr) == (qid, cqe.cid, cqe.status, cqe.dnr)
            assert entry.more and entry.trtype == 3
        assert (kept[0].parameter, kept[0].nsid) == (0, 9), "the opcode's place"
        assert all((e.parameter, e.nsid, e.lba) == (40, 1, 1 << 40) for e in kept[1:3]), "SLBA's place"
        for queue in queues:
            queue.close()


def test_good_commands_leave_no_entry(host):
    before = entries(host)[0].count
    host.get_log(SMART, 512)
    assert entries(host)[0].count == before


def test_the_last_entries_are_kept(host):
    for n in range(70):
        assert host.run(0xC3)[0].status == nvme.INVALID_OPCODE
    assert [e.count for e in entries(host)] == list(range(70, 6, -1))


def test_one_host_does_not_see_the_errors_of_another(hauld, host):
    with Host("tcp", address(hauld, "tcp"), conftest.MAIN) as other:
        other.run(0xC3)
        assert entries(other)[0].count == 1
        assert entries(host)[0].count == 0


# --- SMART (5.16.1.3) ---

def smart(host, nsid=ALL):
    page = host.get_log(SMART, 512, nsid=nsid)
    names = ("read", "written", "reads", "writes", "busy", "cycles", "hours", "unsafe", "media", "errors")
    values = {name: u64(page, 32 + 16 * n) for n, name in enumerate(names)}
    return {"warning": page[0], "kelvin": u16(page, 1), "spare": page[3], "threshold": page[4], "used": page[5],
            **values}


def test_smart_is_plausible(host):
    """B056"""
    page = smart(host)
    assert page["warning"] == 0
    assert 273 < page["kelvin"] < 340 and page["spare"] == 100 and page["threshold"] < 100 and page["used"] < 100
    identify = host.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1]
    assert page["kelvin"] < u16(identify, 266) < u16(identify, 268), "WCTEMP, CCTEMP"


def test_smart_counts_what_hosts_have_done(hauld, host):
    import hosts
    whole, one, three = smart(host), smart(host, 1), smart(host, 3)
    with hosts.Queue("tcp", address(hauld, "tcp"), conftest.MAIN) as queue:
        for n in range(10):
            queue.write(n * 256, bytes(256 * 512), nsid=3)
        for n in range(20):
            queue.read(n * 128, 128, nsid=3)
        queue.read(0, 1, nsid=1)
        assert queue.status(nvme.READ, nsid=3, cdw=nvme.rw_cdw(1 << 30, 1), read=512) == nvme.LBA_OUT_OF_RANGE
    now = smart(host, 3)
    assert now["writes"] - three["writes"] == 10 and now["reads"] - three["reads"] == 20
    assert now["written"] - three["written"] in (2, 3), "2560 units, in thousands"
    assert now["read"] - three["read"] in (2, 3)
    assert smart(host, 1)["reads"] - one["reads"] == 1
    now = smart(host, 0)
    assert now["reads"] - whole["reads"] == 21 and now["writes"] - whole["writes"] == 10
    assert now["media"] == whole["media"]


def test_smart_counts_a_copy_as_a_command_that_reads_and_one_that_writes(hauld, host):
    """NVM command set 1.0 1.4.2.7, 1.4.2.8, 1.4.2.10: its units are those written."""
    import hosts
    before = smart(host, 3)
    with hosts.Queue("tcp", address(hauld, "tcp"), conftest.MAIN) as queue:
        ranges = b"".join(struct.pack("<8xQH14x", slba, 119) for slba in range(0, 2400, 120))
        assert queue.status(nvme.COPY, nsid=3, cdw=(4096, 0, 19), write=ranges) == 0
        assert queue.status(nvme.COPY, nsid=3, cdw=(4096, 0, 0), write=struct.pack("<8xQH14x", 1 << 30, 0)) \
            == nvme.LBA_OUT_OF_RANGE
    now = smart(host, 3)
    assert now["reads"] - before["reads"] == now["writes"] - before["writes"] == 1
    assert now["written"] - before["written"] in (2, 3), "2400 units, in thousands"
    assert now["read"] == before["read"]


def test_smart_counts_entries_of_the_error_log(host):
    before = smart(host)["errors"]
    host.run(0xC3)
    assert smart(host)["errors"] == before + 1


@pytest.mark.parametrize("nsid, expect", [(2, nvme.INVALID_FIELD), (1024, nvme.INVALID_FIELD),
                                          (1025, nvme.INVALID_NAMESPACE), (0xFFFFFFFE, nvme.INVALID_NAMESPACE)])
def test_smart_of_other_namespaces(host, nsid, expect):
    cqe, _ = host.run(nvme.GET_LOG, nsid=nsid, read=512, cdw=(SMART | 127 << 16,))
    assert cqe.status == expect


# --- what is supported (5.16.1.6, 5.16.1.16) ---

NO_DATA_FIRST = {nvme.ASYNC_EVENT, nvme.FABRICS}


@pytest.mark.parametrize("subnqn", [None, nvme.DISCOVERY_NQN], ids=["io", "discovery"])
def test_effects_list_just_the_admin_commands_that_are_accepted(target, subnqn):
    """Base 2.0 5.16.1.6: CSUPP is 1 for what is supported, and 0 for all else."""
    with target.admin(subnqn) as admin:
        page = whole(target, admin, EFFECTS, 4096)
        for opcode in set(range(256)) - NO_DATA_FIRST:
            known = admin.command(opcode, **({} if opcode & 3 in (0, 3) else dict(read=4096) if opcode & 2
                                             else dict(write=bytes(512))))[0].status != nvme.INVALID_OPCODE
            assert known == bool(u32(page, 4 * opcode) & 1), hex(opcode)
        assert page[2048:] == bytes(2048)
        if subnqn:
            assert page[1024:2048] == bytes(1024)


def test_effects_list_just_the_io_commands_that_are_accepted(target):
    """Base 2.0 5.16.1.6: CSUPP is 1 for what is supported, and 0 for all else."""
    with target.admin() as admin, admin.io_queue() as queue:
        page = whole(target, admin, EFFECTS, 4096)
        for opcode in set(range(256)) - {nvme.FABRICS}:
            # What is listed is sent to no such namespace, and refused for that, so that nothing is changed.
            data, listed = {1: dict(write=bytes(512)), 2: dict(read=512)}.get(opcode & 3, {}), u32(page, 1024 + 4 * opcode) & 1
            status = queue.command(opcode, nsid=999 if listed or target.hauld else 1, **data)[0].status
            assert (status != nvme.INVALID_OPCODE) == bool(listed), hex(opcode)


@pytest.mark.parametrize("opcode, changes", [(nvme.WRITE, 1), (nvme.WRITE_ZEROES, 1), (nvme.DSM, 1), (nvme.READ, 0), (nvme.FLUSH, 0)],
                         ids=["write", "write zeroes", "dsm", "read", "flush"])
def test_effects_say_what_changes_blocks(target, opcode, changes):
    """Base 2.0 5.16.1.6: LBCC of what writes, and of nothing else."""
    with target.admin() as admin:
        effects = u32(whole(target, admin, EFFECTS, 4096), 1024 + 4 * opcode)
        if not effects & 1:
            target.lacks("there is no such command")
        assert effects >> 1 & 1 == changes


def test_effects_of_io_commands_are_none_that_linux_warns_of(own):
    """Linux 6.12: "IO command:02 has unusual effects"."""
    with own.admin() as admin:
        page = admin.get_log(EFFECTS, 4096)[1]
        assert not any(u32(page, 1024 + 4 * opcode) & ~3 for opcode in range(256))


@pytest.mark.parametrize("subnqn", [None, nvme.DISCOVERY_NQN], ids=["io", "discovery"])
def test_feature_effects_list_just_the_features_that_are_there(target, subnqn):
    """Base 2.0 5.16.1.17: FSUPP of the features that Get Features knows."""
    with target.admin(subnqn) as admin:
        page = whole(target, admin, FEATURES, 1024)
        for fid in range(256):
            # SEL 3, supported capabilities: no data and no effect; EXHID for the host identifier.
            effects = u32(page, 4 * fid)
            cqe, _ = admin.command(nvme.GET_FEATURES, cdw=(fid | 3 << 8, 1 if fid == 0x81 else 0),
                                   nsid=int(effects >> 20 == 1))
            known = cqe.status != nvme.INVALID_FIELD
            assert known == bool(effects & 1), hex(fid)
            assert not known or effects >> 20 in (1, 2), "one scope"


def test_firmware_slot_holds_the_running_firmware(host):
    page = host.get_log(FW_SLOT, 512)
    identify = host.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1]
    slot = page[0] & 7
    assert slot >= 1 and page[0] >> 4 == 0
    assert page[8 * slot:8 * slot + 8] == identify[64:72]
    assert identify[260] & 1 and identify[260] >> 1 & 7 == 1, "FRMW: one slot, read-only"

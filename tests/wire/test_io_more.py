# SPDX-License-Identifier: MIT
"""The I/O commands beyond Read and Write (NVM command set 1.0 chapter 3), over TCP and RDMA."""
import os
import struct

import conftest
import hosts
import nvme
import pytest

FILE, RAM, READ_ONLY = 1, 3, 4      # namespaces of conftest.config
BLOCKS = {FILE: (64 << 20) // 512, RAM: (16 << 20) // 512}
FUA = 1 << 30
MDTS = 1 << 20


@pytest.fixture(scope="module", params=conftest.CROSSED, ids="-".join)
def both(request, tmp_path_factory):
    """(hauld, transport)"""
    engine, kind = request.param
    daemon = conftest.start_both(tmp_path_factory.mktemp("more"), "--threads", "2", engine=engine)
    yield daemon, kind
    daemon.end()


@pytest.fixture
def hauld(both):
    return both[0]


@pytest.fixture
def kind(both):
    return both[1]


@pytest.fixture
def queue(hauld, kind):
    with hosts.Queue(kind, hauld.address_of(kind), conftest.MAIN) as io_queue:
        yield io_queue


@pytest.fixture
def queue4k(hauld, kind):
    with hosts.Queue(kind, hauld.address_of(kind), conftest.BLOCKS_4K) as io_queue:
        yield io_queue


def compare(queue, slba, data, *, nsid, block=512, **kw):
    return queue.run(nvme.COMPARE, nsid=nsid, write=data,
                     cdw=nvme.rw_cdw(slba, len(data) // block, control=kw.pop("control", 0)), **kw)[0]


def verify(queue, slba, count, *, nsid, control=0):
    return queue.run(nvme.VERIFY, nsid=nsid, cdw=nvme.rw_cdw(slba, count, control=control))[0]


# --- Compare (3.2.1) --------------------------------------------------------------------------

@pytest.mark.parametrize("nsid", [FILE, RAM])
@pytest.mark.parametrize("size", [512, 4096, 65536, 200 * 512, MDTS // 2, MDTS - 512, MDTS])
def test_compare_finds_each_wrong_block(queue, nsid, size):
    data = os.urandom(size)
    queue.write(40, data, nsid=nsid)
    assert compare(queue, 40, data, nsid=nsid).status == 0
    assert compare(queue, 40, data, nsid=nsid, control=FUA).status == 0
    for at in sorted({0, 511, size // 2, size - 1}):
        wrong = bytearray(data)
        wrong[at] ^= 1
        cqe = compare(queue, 40, bytes(wrong), nsid=nsid)
        assert cqe.status == nvme.COMPARE_FAILURE and cqe.dnr, at
    assert queue.read(40, size // 512, nsid=nsid) == data


def test_compare_takes_its_data_from_the_capsule(queue):
    for size in (512, queue.in_capsule):
        data = os.urandom(size)
        queue.write(0, data, nsid=FILE)
        assert compare(queue, 0, data, nsid=FILE, inline=True).status == 0
        assert compare(queue, 0, data[:-1] + bytes([data[-1] ^ 0x80]), nsid=FILE,
                       inline=True).status == nvme.COMPARE_FAILURE


def test_compare_with_4096_byte_blocks(queue4k):
    for count in (1, 3, 256):
        data = os.urandom(count * 4096)
        queue4k.write(5, data, nsid=1, block=4096)
        assert compare(queue4k, 5, data, nsid=1, block=4096).status == 0
        assert compare(queue4k, 6, data, nsid=1, block=4096).status == nvme.COMPARE_FAILURE


def test_compare_is_for_read_only_namespaces_too(queue):
    assert compare(queue, 0, bytes(512), nsid=READ_ONLY).status == 0


@pytest.mark.parametrize("length", [0, 511, 512, 4095, 4608])
def test_compare_data_of_another_length_is_refused(queue, length):
    """PITFALLS B062."""
    cqe, _ = queue.run(nvme.COMPARE, nsid=RAM, write=bytes(length), length=length, cdw=nvme.rw_cdw(0, 8))
    assert cqe.status == nvme.SGL_LENGTH_INVALID


def test_compare_over_mdts_is_an_invalid_field(queue):
    """PITFALLS B061."""
    cqe, _ = queue.run(nvme.COMPARE, nsid=RAM, write=bytes(MDTS + 512), cdw=nvme.rw_cdw(0, MDTS // 512 + 1))
    assert cqe.status == nvme.INVALID_FIELD and cqe.dnr
    assert queue.read(0, 1, nsid=RAM)


def test_sixteen_compares_at_once(queue):
    data = os.urandom(16 * 4096)
    queue.write(0, data, nsid=FILE)
    sent = [queue.start(nvme.COMPARE, nsid=FILE, write=data[n * 4096:(n + 1) * 4096], cdw=nvme.rw_cdw(n * 8, 8))
            for n in range(8)]
    assert all(queue.end(one)[0].status == 0 for one in sent)


# --- Verify (3.2.5) ---------------------------------------------------------------------------

@pytest.mark.parametrize("nsid", [FILE, RAM])
def test_verify_reads_any_length(queue, nsid):
    for slba, count in ((0, 1), (3, 257), (0, min(65536, BLOCKS[nsid])), (BLOCKS[nsid] - 1, 1)):
        assert verify(queue, slba, count, nsid=nsid).status == 0
        assert verify(queue, slba, count, nsid=nsid, control=FUA).status == 0


def test_verify_acts_on_no_protection_information(queue):
    """3.2.5, figure 55: PRACT is 0."""
    cqe = verify(queue, 0, 1, nsid=RAM, control=1 << 29)
    assert cqe.status == nvme.INVALID_FIELD and cqe.dnr
    assert verify(queue, 0, 1, nsid=RAM, control=7 << 26).status == 0, "PRCHK says nothing without any"


@pytest.mark.parametrize("opcode", [nvme.COMPARE, nvme.VERIFY])
@pytest.mark.parametrize("slba, count", [(BLOCKS[RAM], 1), (BLOCKS[RAM] - 1, 2), (1 << 63, 1), ((1 << 64) - 1, 1),
                                         ((1 << 64) - 8, 16), (1 << 55, 1)])
def test_ranges_beyond_the_end_are_refused(queue, opcode, slba, count):
    """PITFALLS B063."""
    kw = dict(write=bytes(count * 512)) if opcode == nvme.COMPARE else {}
    cqe, _ = queue.run(opcode, nsid=RAM, cdw=nvme.rw_cdw(slba, count), **kw)
    assert cqe.status == nvme.LBA_OUT_OF_RANGE and cqe.dnr


@pytest.mark.parametrize("opcode", [nvme.COMPARE, nvme.VERIFY])
@pytest.mark.parametrize("nsid", [0, 2, 0xFFFFFFFE, 0xFFFFFFFF])
def test_invalid_namespaces_are_refused(queue, opcode, nsid):
    kw = dict(write=bytes(512)) if opcode == nvme.COMPARE else {}
    cqe, _ = queue.run(opcode, nsid=nsid, cdw=(0, 0, 0), **kw)
    assert cqe.status == nvme.no_namespace(nsid) and cqe.dnr


def test_verify_of_a_file_that_was_cut_fails(hauld, kind, tmp_path):
    disk = tmp_path / "cut"
    disk.write_bytes(bytes(1 << 20))
    daemon = conftest.Hauld(tmp_path, "--listen", f"{kind}://127.0.0.1:0", "--export",
                            f"{disk},nqn=nqn.2026-11.io.haul:cut", env=conftest.rdma_environment())
    with hosts.Queue(kind, daemon.address, "nqn.2026-11.io.haul:cut") as queue:
        assert verify(queue, 0, 2048, nsid=1).status == 0
        os.truncate(disk, 4096)
        assert verify(queue, 0, 2048, nsid=1).status == nvme.UNRECOVERED_READ_ERROR
    assert daemon.stop() == 0


# --- what is said about them ------------------------------------------------------------------

def test_write_uncorrectable_is_neither_offered_nor_done(queue):
    """NVMe base 2.0 figure 275 ONCS: a command that is not there is an invalid opcode."""
    oncs, = struct.unpack_from("<H", queue.identify(1), 520)
    assert not oncs & 2
    cqe, _ = queue.run(nvme.WRITE_UNCORRECTABLE, nsid=RAM, cdw=nvme.rw_cdw(0, 1))
    assert cqe.status == nvme.INVALID_OPCODE and cqe.dnr
    assert queue.read(0, 1, nsid=RAM)


ONCS_BITS = {nvme.COMPARE: 0, nvme.WRITE_UNCORRECTABLE: 1, nvme.DSM: 2, nvme.WRITE_ZEROES: 3, nvme.VERIFY: 7,
             nvme.COPY: 8}


def test_what_oncs_offers_is_what_the_effects_log_has(hauld):
    """NVMe base 2.0 5.16.1.6: bit 0 supported, bit 1 changes logical blocks."""
    with conftest.nvmetcp.Admin(hauld.address_of("tcp"), conftest.MAIN) as admin:
        oncs, = struct.unpack_from("<H", admin.identify(1)[1], 520)
        log = struct.unpack_from("<256I", admin.get_log(5, 4096)[1], 1024)
    for opcode, bit in ONCS_BITS.items():
        assert log[opcode] & 1 == oncs >> bit & 1, hex(opcode)
    changing = {opcode for opcode in range(256) if log[opcode] & 2}
    assert changing == {nvme.WRITE, nvme.WRITE_ZEROES, nvme.DSM} | ({nvme.COPY} if oncs >> 8 & 1 else set())
    assert {nvme.FLUSH, nvme.WRITE, nvme.READ} <= {opcode for opcode in range(256) if log[opcode] & 1}


# --- Copy (3.2.2) -----------------------------------------------------------------------------

def copy(queue, to, ranges, *, nsid, control=0, form=0, nr=None, length=None):
    body = b"".join(struct.pack("<8xQH14x", slba, (count - 1) & 0xFFFF) for slba, count in ranges)
    nr = len(ranges) if nr is None else nr
    return queue.run(nvme.COPY, nsid=nsid, write=body, length=length,
                     cdw=(to & 0xFFFFFFFF, to >> 32, nr - 1 | form << 8 | control))[0]


def copy_limits(queue, nsid):
    """MSSRL, MCL in blocks, and the number of ranges."""
    mssrl, mcl, msrc = struct.unpack_from("<HIB", queue.identify(0, nsid=nsid), 74)
    assert struct.unpack_from("<H", queue.identify(1), 534)[0] == 1    # OCFS: format 0
    return mssrl, mcl, msrc + 1


@pytest.mark.parametrize("nsid", [FILE, RAM])
@pytest.mark.parametrize("control", [0, FUA])
def test_copy_of_several_ranges_is_in_their_order(queue, nsid, control):
    data = os.urandom(2048 * 512)
    queue.write(0, data, nsid=nsid)
    queue.write(8000, b"\x11" * 512 * 1100, nsid=nsid)
    ranges = [(3, 1), (100, 1000), (0, 2), (2047, 1), (3, 1)]
    assert copy(queue, 8001, ranges, nsid=nsid, control=control).status == 0
    want = b"".join(data[slba * 512:(slba + count) * 512] for slba, count in ranges)
    after = queue.read(8000, 1100, nsid=nsid)
    assert after == b"\x11" * 512 + want + b"\x11" * (len(after) - len(want) - 512)
    assert queue.read(0, 2048, nsid=nsid) == data


def test_copy_of_as_many_and_as_long_ranges_as_it_says(queue):
    mssrl, mcl, msrc = copy_limits(queue, FILE)
    assert mssrl and mcl >= mssrl and msrc > 1
    data = os.urandom(MDTS)
    for at in range(0, mssrl, 2048):
        queue.write(at, data, nsid=FILE)
    assert copy(queue, 60000, [(0, mssrl)], nsid=FILE).status == 0
    assert queue.read(60000 + mssrl - 2048, 2048, nsid=FILE) == data
    assert copy(queue, 60000, [(n * 8, 3) for n in range(msrc)], nsid=FILE).status == 0
    assert queue.read(60000, 3 * msrc, nsid=FILE) == b"".join(
        queue.read(n * 8, 3, nsid=FILE) for n in range(msrc))


def test_copy_beyond_its_limits_is_refused_and_writes_nothing(queue):
    mssrl, mcl, msrc = copy_limits(queue, FILE)
    before = queue.read(60000, 8, nsid=FILE)
    longest = [(0, mssrl)] * (mcl // mssrl)
    for ranges in ([(0, 8), (0, mssrl + 1)], longest + [(0, mcl % mssrl + 1)]):
        cqe = copy(queue, 60000, ranges, nsid=FILE)
        assert cqe.status == nvme.COMMAND_SIZE_LIMIT and cqe.dnr and cqe.dw0 == 0
    if msrc < 256:
        assert copy(queue, 60000, [(0, 1)] * (msrc + 1), nsid=FILE).status == nvme.COMMAND_SIZE_LIMIT
    assert queue.read(60000, 8, nsid=FILE) == before


@pytest.mark.parametrize("to, source", [(0, 1), (1, 0), (300, 0), (0, 300), (0, 0), (999, 0)])
def test_copy_of_a_range_onto_itself_moves_it(queue, to, source):
    data = os.urandom(2000 * 512)
    queue.write(0, data, nsid=RAM)
    assert copy(queue, to, [(source, 1000)], nsid=RAM).status == 0
    want = bytearray(data)
    want[to * 512:(to + 1000) * 512] = data[source * 512:(source + 1000) * 512]
    assert queue.read(0, 2000, nsid=RAM) == bytes(want)


def test_copy_of_4096_byte_blocks(queue4k):
    data = os.urandom(64 * 4096)
    queue4k.write(0, data, nsid=1, block=4096)
    assert copy(queue4k, 1000, [(60, 4), (0, 33)], nsid=1).status == 0
    assert queue4k.read(1000, 37, nsid=1, block=4096) == data[60 * 4096:] + data[:33 * 4096]


BAD_COPIES = {
    "source": ((0, [(0, 1), (BLOCKS[RAM], 1)]), nvme.LBA_OUT_OF_RANGE),
    "source end": ((0, [(BLOCKS[RAM] - 1, 2)]), nvme.LBA_OUT_OF_RANGE),
    "source wraps": ((0, [((1 << 64) - 1, 2)]), nvme.LBA_OUT_OF_RANGE),
    "destination": ((BLOCKS[RAM], [(0, 1)]), nvme.LBA_OUT_OF_RANGE),
    "destination end": ((BLOCKS[RAM] - 1, [(0, 1), (1, 1)]), nvme.LBA_OUT_OF_RANGE),
    "destination wraps": (((1 << 64) - 1, [(0, 2)]), nvme.LBA_OUT_OF_RANGE),
}


@pytest.mark.parametrize("case", BAD_COPIES)
def test_copy_from_or_to_beyond_the_end_writes_nothing(queue, case):
    """PITFALLS B063."""
    args, status = BAD_COPIES[case]
    before = queue.read(0, 8, nsid=RAM), queue.read(BLOCKS[RAM] - 8, 8, nsid=RAM)
    cqe = copy(queue, *args, nsid=RAM)
    assert cqe.status == status and cqe.dnr and cqe.dw0 == 0
    assert (queue.read(0, 8, nsid=RAM), queue.read(BLOCKS[RAM] - 8, 8, nsid=RAM)) == before


def test_copy_of_unknown_formats_and_wrong_lists_is_refused(queue):
    for form in (1, 2, 3, 4, 15):
        assert copy(queue, 0, [(8, 1)], nsid=RAM, form=form).status == nvme.INVALID_FIELD
    for kw in ({"nr": 2}, {"nr": 256}, {"length": 0}, {"length": 31}):
        assert copy(queue, 0, [(8, 1)], nsid=RAM, **kw).status == nvme.SGL_LENGTH_INVALID
    assert copy(queue, 0, [(8, 1)], nsid=READ_ONLY).status == 0x020
    for nsid in (0, 2, 1024, 1025, 0xFFFFFFFF):
        assert copy(queue, 0, [(8, 1)], nsid=nsid).status == nvme.no_namespace(nsid)


# --- Write Zeroes, Dataset Management: limits (CNS 06h) -----------------------------------------

WZSL = 13   # 65536 blocks of 512 bytes


def test_the_limits_of_the_nvm_command_set_are_those_of_write_zeroes(queue):
    """NVM command set 1.0 4.1.5.4: VSL, WZSL, WUSL, DMRL, DMRSL, DMSL; 0 is no limit. PITFALLS B068."""
    assert queue.identify(6) == bytes([0, WZSL]) + bytes(4094)


def test_write_zeroes_beyond_the_limit_is_refused(start_hauld, tmp_path):
    path = tmp_path / "hauld.conf"
    path.write_text(f"listen: ['tcp://127.0.0.1:0']\nsubsystems:\n  - nqn: {conftest.MAIN}\n    namespaces:\n"
                    "      - null: 1G\n        block: 4096\n")
    hauld = start_hauld("--config", str(path))
    with hosts.Queue("tcp", hauld.address, conftest.MAIN) as queue:
        most = (4096 << WZSL) // 4096
        assert queue.status(nvme.WRITE_ZEROES, nsid=1, cdw=nvme.rw_cdw(1, most)) == 0
        assert queue.status(nvme.WRITE_ZEROES, nsid=1, cdw=nvme.rw_cdw(1, most + 1)) == nvme.INVALID_FIELD


@pytest.mark.parametrize("nsid", [FILE, RAM])
@pytest.mark.parametrize("deac", [0, 1 << 25])
def test_write_zeroes_of_the_most_blocks_there_can_be(queue, nsid, deac):
    """PITFALLS B070."""
    count = min(65536, BLOCKS[nsid] - 2)
    for at in (0, 1, count // 2, count, count + 1):
        queue.write(at, b"\x77" * 512, nsid=nsid)
    assert queue.status(nvme.WRITE_ZEROES, nsid=nsid, cdw=nvme.rw_cdw(1, count, control=deac | FUA)) == 0
    assert queue.read(0, 1, nsid=nsid) == queue.read(count + 1, 1, nsid=nsid) == b"\x77" * 512
    for at in (1, count // 2, count - 8):
        assert not any(queue.read(at, 8, nsid=nsid))


def dsm(queue, ranges, *, nsid, attributes=4):
    body = b"".join(struct.pack("<IIQ", 0, blocks, slba) for slba, blocks in ranges)
    return queue.run(nvme.DSM, nsid=nsid, cdw=(len(ranges) - 1, attributes), write=body)[0]


@pytest.mark.parametrize("nsid", [FILE, RAM])
def test_deallocate_of_all_in_one_range_and_in_256(queue, nsid):
    queue.write(BLOCKS[nsid] - 1, b"\x77" * 512, nsid=nsid)
    queue.write(7, b"\x77" * 512, nsid=nsid)
    assert dsm(queue, [(n * 16, 7) for n in range(256)], nsid=nsid).status == 0
    assert queue.read(7, 1, nsid=nsid) == b"\x77" * 512
    assert dsm(queue, [(0, BLOCKS[nsid])], nsid=nsid).status == 0
    assert queue.read(7, 1, nsid=nsid) == queue.read(BLOCKS[nsid] - 1, 1, nsid=nsid) == bytes(512)
    assert dsm(queue, [(0, BLOCKS[nsid] + 1)], nsid=nsid).status == nvme.LBA_OUT_OF_RANGE
    assert dsm(queue, [(1, 0xFFFFFFFF)], nsid=nsid).status == nvme.LBA_OUT_OF_RANGE


# --- Compare and Write, fused (NVMe base 2.0 3.4.2) -------------------------------------------

FIRST, SECOND = 0x41, 0x42


def start_pair(queue, slba, old, new, *, nsid, block=512, control=0, inline=(False, False), blocks=None):
    cdw = nvme.rw_cdw(slba, blocks or len(old) // block, control=control)
    return (queue.start(nvme.COMPARE, nsid=nsid, write=old, cdw=cdw, flags=FIRST, inline=inline[0]),
            queue.start(nvme.WRITE, nsid=nsid, write=new, cdw=cdw, flags=SECOND, inline=inline[1]))


def pair(queue, *args, **kw):
    """The status of both."""
    return tuple(queue.end(sent)[0].status for sent in start_pair(queue, *args, **kw))


@pytest.mark.parametrize("nsid", [FILE, RAM])
@pytest.mark.parametrize("inline", [(False, False), (True, False), (False, True), (True, True)])
def test_compare_and_write_writes_what_was_expected(queue, nsid, inline):
    for count in (1, 2, 8):
        old, new = os.urandom(count * 512), os.urandom(count * 512)
        queue.write(64, old, nsid=nsid)
        for control in (0, FUA):
            assert pair(queue, 64, old, new, nsid=nsid, inline=inline, control=control) == (0, 0)
            assert queue.read(64, count, nsid=nsid) == new
            assert pair(queue, 64, old, new, nsid=nsid, inline=inline, control=control) == \
                (nvme.COMPARE_FAILURE, nvme.FUSED_FAILED)
            queue.write(64, old, nsid=nsid)


def acwu(queue, nsid):
    page = queue.identify(0, nsid=nsid)
    assert page[24] & 2
    return struct.unpack_from("<H", page, 38)[0] + 1


@pytest.mark.parametrize("nsid", [FILE, RAM])
def test_a_pair_may_be_as_long_as_acwu_and_no_longer(queue, nsid):
    count = acwu(queue, nsid)
    old, new = os.urandom(count * 512), os.urandom(count * 512)
    queue.write(0, old, nsid=nsid)
    assert pair(queue, 0, old, new, nsid=nsid) == (0, 0)
    assert pair(queue, 0, old + bytes(512), new + bytes(512), nsid=nsid) == \
        (nvme.ATOMIC_UNIT_EXCEEDED, nvme.FUSED_FAILED)
    assert queue.read(0, count, nsid=nsid) == new


def test_a_pair_of_4096_byte_blocks(queue4k):
    count = acwu(queue4k, 1)
    assert count >= struct.unpack_from("<H", queue4k.identify(1), 532)[0] + 1
    old, new = os.urandom(count * 4096), os.urandom(count * 4096)
    queue4k.write(3, old, nsid=1, block=4096)
    assert pair(queue4k, 3, old, new, nsid=1, block=4096) == (0, 0)
    assert queue4k.read(3, count, nsid=1, block=4096) == new


def test_fused_commands_are_offered(queue):
    assert struct.unpack_from("<H", queue.identify(1), 522)[0] == 1


def test_a_second_without_a_first_is_aborted(queue):
    cdw = nvme.rw_cdw(0, 1)
    before = queue.read(0, 1, nsid=RAM)
    for inline in (False, True):
        assert queue.status(nvme.WRITE, nsid=RAM, write=os.urandom(512), cdw=cdw, flags=SECOND,
                            inline=inline) == nvme.FUSED_MISSING
    assert queue.read(0, 1, nsid=RAM) == before


@pytest.mark.parametrize("inline", [False, True])
def test_a_first_followed_by_another_command_is_aborted(queue, inline):
    """The one behind it is done for itself."""
    data = os.urandom(512)
    queue.write(0, data, nsid=RAM)
    cdw = nvme.rw_cdw(0, 1)
    first = queue.start(nvme.COMPARE, nsid=RAM, write=data, cdw=cdw, flags=FIRST, inline=inline)
    assert queue.read(0, 1, nsid=RAM) == data
    assert queue.end(first)[0].status == nvme.FUSED_MISSING
    first = queue.start(nvme.COMPARE, nsid=RAM, write=data, cdw=cdw, flags=FIRST, inline=inline)
    assert pair(queue, 0, data, bytes(512), nsid=RAM) == (0, 0)
    assert queue.end(first)[0].status == nvme.FUSED_MISSING
    assert queue.read(0, 1, nsid=RAM) == bytes(512)
    assert queue.status(nvme.WRITE, nsid=RAM, write=data, cdw=cdw, flags=SECOND) == nvme.FUSED_MISSING


def test_a_first_that_nothing_follows_is_aborted_in_time(kind, tmp_path):
    daemon = conftest.Hauld(tmp_path, "--listen", f"{kind}://127.0.0.1:0", "--patience-s", "1", "--export",
                            "ram:1M,nqn=nqn.2026-11.io.haul:patience", env=conftest.rdma_environment())
    with hosts.Queue(kind, daemon.address, "nqn.2026-11.io.haul:patience") as queue:
        first = queue.start(nvme.COMPARE, nsid=1, write=bytes(512), cdw=nvme.rw_cdw(0, 1), flags=FIRST)
        assert queue.end(first)[0].status == nvme.FUSED_MISSING
        assert queue.read(0, 1, nsid=1)
    assert daemon.stop() == 0


@pytest.mark.parametrize("wrong", ["nsid", "slba", "blocks", "range", "opcode"])
def test_a_pair_that_does_not_match_is_refused(queue, wrong):
    """The same blocks of the same namespace: else Invalid Field."""
    data = os.urandom(512)
    queue.write(8, data, nsid=RAM)
    queue.write(9, data, nsid=RAM)
    first = queue.start(nvme.COMPARE, nsid=RAM, write=data, cdw=nvme.rw_cdw(8, 1), flags=FIRST)
    cdw = {"slba": nvme.rw_cdw(9, 1), "blocks": nvme.rw_cdw(8, 2), "range": nvme.rw_cdw(BLOCKS[RAM], 1)}
    second = queue.start(nvme.READ if wrong == "opcode" else nvme.WRITE, nsid=FILE if wrong == "nsid" else RAM,
                         write=bytes(1024 if wrong == "blocks" else 512), cdw=cdw.get(wrong, nvme.rw_cdw(8, 1)),
                         flags=SECOND)
    status = queue.end(first)[0].status, queue.end(second)[0].status
    assert status == {"range": (nvme.FUSED_FAILED, nvme.LBA_OUT_OF_RANGE),
                      "opcode": (nvme.FUSED_FAILED, nvme.INVALID_FIELD)}.get(wrong, (nvme.INVALID_FIELD,) * 2)
    assert queue.read(8, 2, nsid=RAM) == data * 2


@pytest.mark.parametrize("how, status", [
    ({"opcode": nvme.READ}, nvme.INVALID_FIELD), ({"opcode": nvme.WRITE}, nvme.INVALID_FIELD),
    ({"opcode": nvme.FLUSH}, nvme.INVALID_FIELD), ({"flags": 0x43}, nvme.INVALID_FIELD),
    ({"nsid": 2}, nvme.INVALID_FIELD), ({"cdw": nvme.rw_cdw(BLOCKS[RAM], 1)}, nvme.LBA_OUT_OF_RANGE),
    ({"write": bytes(100)}, nvme.SGL_LENGTH_INVALID)], ids=str)
def test_a_first_that_is_refused_takes_the_second_with_it(queue, how, status):
    if how.get("flags"):
        assert queue.status(nvme.COMPARE, nsid=RAM, write=bytes(512), cdw=nvme.rw_cdw(0, 1), flags=0x43) == status
        return
    kw = {"nsid": RAM, "write": bytes(512), "cdw": nvme.rw_cdw(0, 1), **how}
    first = queue.start(kw.pop("opcode", nvme.COMPARE), flags=FIRST, **kw)
    second = queue.start(nvme.WRITE, nsid=RAM, write=bytes(512), cdw=nvme.rw_cdw(0, 1), flags=SECOND)
    assert queue.end(first)[0].status == status
    assert queue.end(second)[0].status == nvme.FUSED_FAILED
    assert queue.read(0, 1, nsid=RAM)


def test_a_read_only_namespace_is_compared_and_not_written(queue):
    assert pair(queue, 0, bytes(512), bytes(512), nsid=READ_ONLY) == (nvme.FUSED_FAILED, 0x020)


def test_many_pairs_at_once_on_one_block(queue):
    """Each expects what the one before has written: in the order that they take effect, one after the other wins."""
    queue.write(0, bytes(512), nsid=FILE)
    sent = [start_pair(queue, 0, bytes(512), bytes([n + 1]) * 512, nsid=FILE) for n in range(4)]
    status = [tuple(queue.end(one)[0].status for one in both) for both in sent]
    assert sorted(status) == [(0, 0)] + [(nvme.COMPARE_FAILURE, nvme.FUSED_FAILED)] * 3
    assert queue.read(0, 1, nsid=FILE) == bytes([status.index((0, 0)) + 1]) * 512

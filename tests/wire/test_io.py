# SPDX-License-Identifier: MIT
"""NVM commands (NVM command set 1.0c chapter 3)."""
import os
import struct

import conftest
import nvme
import pytest
from fabric import Gone

NSID = 1           # what every target under test has; ours has more of them, see conftest.config


@pytest.fixture(scope="module")
def association(target):
    """Of another's target: one for all tests, connected again when it is broken; to connect may be slow."""
    shared = []

    def give():
        if not shared:
            shared[:] = [target.admin()]
            shared.append(shared[0].io_queue())
        return shared
    yield give, shared
    for queue in shared:
        queue.close()


@pytest.fixture
def queue(target, request, association):
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if target.hauld is None and params.get("nsid") == 3:
        pytest.skip("another's target has a namespace 1 only")
    give, shared = association
    admin, io_queue = give()
    io_queue.limits = admin.limits
    yield io_queue
    if target.hauld or not in_step(io_queue):
        for one in shared:
            one.close()
        shared.clear()


def in_step(queue):
    try:
        return queue.command(nvme.FLUSH, nsid=NSID)[0].status == 0
    except (Gone, OSError, AssertionError):
        return False


def need(target, queue, bit, what):
    """A command that is there if ONCS says so."""
    if not queue.limits.oncs & bit:
        target.lacks(f"ONCS has no {what}")


DSM, ZEROES = (4, "Dataset Management"), (8, "Write Zeroes")


@pytest.fixture
def blocks(queue, association):
    """The size of the namespace."""
    page = association[0]()[0].identify(0, nsid=NSID)[1]
    assert page[128 + 4 * (page[26] & 15) + 2] == 9, "the tests need blocks of 512 bytes"
    return struct.unpack_from("<Q", page)[0]


def write(queue, slba, data, *, nsid=NSID, control=0):
    cqe, _ = queue.command(nvme.WRITE, nsid=nsid, write=data,
                           cdw=nvme.rw_cdw(slba, len(data) // 512, control=control))
    return cqe


def read(queue, slba, count, *, nsid=NSID):
    cqe, data = queue.command(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(slba, count), read=count * 512)
    assert cqe.status == 0, cqe
    return data


@pytest.mark.parametrize("nsid", [1, 3])
def test_what_is_written_is_read(queue, nsid):
    """NVM 1.0 3.2.6: one block, several, and as many as a command may have here."""
    most = min(queue.limits.most_bytes or 1 << 20, 1 << 20) // 512
    for slba, count in ((0, 1), (7, 9), (100, min(256, most)), (0, most)):
        data = os.urandom(count * 512)
        assert write(queue, slba, data, nsid=nsid).status == 0
        assert read(queue, slba, count, nsid=nsid) == data


FUA = 1 << 30


def test_fua_and_flush_succeed(queue):
    """NVM 1.0 3.2.6: FUA is no more than a wish where there is no cache; and Base 2.0 7.1."""
    data = os.urandom(4096)
    assert write(queue, 0, data, nsid=1, control=FUA).status == 0
    assert queue.command(nvme.FLUSH, nsid=1)[0].status == 0
    assert read(queue, 0, 8, nsid=1) == data


def test_flush_of_all_namespaces_is_done_or_refused_as_vwc_says(target, queue):
    """Base 2.0 7.1: FFFFFFFFh where VWC says that it is supported, else Invalid Namespace or Format."""
    status = queue.command(nvme.FLUSH, nsid=0xFFFFFFFF)[0].status
    vwc = queue.limits.vwc >> 1 & 3
    if vwc == 0:
        target.lacks("VWC does not say what a flush of all namespaces does")
    assert status == (0 if vwc == 3 else nvme.INVALID_NAMESPACE)


END = 1 << 40      # stands for the number of blocks
RANGES = [(END, 1), (END - 1, 2), (1 << 63, 1), ((1 << 64) - 1, 1), ((1 << 64) - 8, 16), (1 << 55, 1)]


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE, nvme.WRITE_ZEROES], ids=["read", "write", "write zeroes"])
@pytest.mark.parametrize("slba, count", RANGES, ids=["at the end", "over the end", "63 bits", "last", "wraps", "55 bits"])
def test_ranges_beyond_the_end_are_refused(target, queue, blocks, opcode, slba, count):
    """NVM 1.0 2.1.1: LBA Out of Range, and a retry is of no use; nothing may wrap."""
    if opcode == nvme.WRITE_ZEROES:
        need(target, queue, *ZEROES)
    slba += blocks - END if END - 1 <= slba <= END else 0
    kw = {nvme.READ: dict(read=count * 512), nvme.WRITE: dict(write=bytes(count * 512))}
    cqe, _ = queue.command(opcode, nsid=NSID, cdw=nvme.rw_cdw(slba, count), **kw.get(opcode, {}))
    assert cqe.status == nvme.LBA_OUT_OF_RANGE and cqe.dnr


def test_the_last_block_can_be_written(queue, blocks):
    """NVM 1.0 2.1.1: the range ends with NSZE - 1."""
    data = os.urandom(512)
    assert write(queue, blocks - 1, data).status == 0
    assert read(queue, blocks - 1, 1) == data


def test_a_file_does_not_grow(own, queue):
    size = (64 << 20) // 512
    cqe, _ = queue.command(nvme.WRITE, nsid=1, write=bytes(1024), cdw=nvme.rw_cdw(size - 1, 2))
    assert cqe.status == nvme.LBA_OUT_OF_RANGE
    disk = own.hauld.log_path.parent / "disk"
    assert disk.stat().st_size == 64 << 20


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE, nvme.FLUSH, nvme.WRITE_ZEROES, nvme.DSM],
                         ids=["read", "write", "flush", "write zeroes", "dsm"])
@pytest.mark.parametrize("nsid", [0, 2, 0xFFFFFFFE], ids=["0", "2", "FFFFFFFEh"])
def test_invalid_namespaces_are_refused(queue, opcode, nsid):
    """Base 2.0 4.1, figure 87: Invalid Field in Command for one that is inactive, up to NN; Invalid Namespace or Format
    for an id that is not valid."""
    kw = {nvme.READ: dict(read=512), nvme.WRITE: dict(write=bytes(512)), nvme.DSM: dict(write=bytes(16))}
    cqe, _ = queue.command(opcode, nsid=nsid, cdw=(0, 0, 0), **kw.get(opcode, {}))
    assert cqe.status == nvme.no_namespace(nsid, queue.limits.nn) and cqe.dnr


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE], ids=["read", "write"])
@pytest.mark.parametrize("length", [0, 512, 4095])
def test_data_shorter_than_the_blocks_is_refused(queue, opcode, length):
    """Base 2.0 4.1.2: Data SGL Length Invalid."""
    before = read(queue, 0, 8)
    kw = dict(read=length) if opcode == nvme.READ else dict(write=b"\x77" * length)
    cqe, _ = queue.command(opcode, nsid=NSID, cdw=nvme.rw_cdw(0, 8), **kw)
    assert cqe.status == nvme.SGL_LENGTH_INVALID, cqe
    assert read(queue, 0, 8) == before


def test_data_longer_than_the_blocks_moves_no_more_than_the_blocks(target, queue):
    """Base 2.0 4.1.2: the rest of a longer SGL is ignored, or refused (SGLS bit 18)."""
    before = read(queue, 8, 1)
    cqe, data = queue.command(nvme.READ, nsid=NSID, cdw=nvme.rw_cdw(0, 8), read=4608)
    target.expects(cqe.status, nvme.SGL_LENGTH_INVALID, 0)
    assert len(data) == (0 if cqe.status else 4096)
    cqe, _ = queue.command(nvme.WRITE, nsid=NSID, cdw=nvme.rw_cdw(0, 8), write=b"\x31" * 4608)
    target.expects(cqe.status, nvme.SGL_LENGTH_INVALID, 0)
    assert read(queue, 8, 1) == before


def test_transfer_over_mdts_is_an_invalid_field_and_the_stream_stays_in_step(target, queue):
    """Base 2.0 figure 275 MDTS."""
    mdts = queue.limits.mdts
    if mdts == 0:
        target.lacks("MDTS has no limit")
    most = 4096 << mdts
    over = most // 512 + 1
    assert queue.command(nvme.READ, nsid=NSID, cdw=nvme.rw_cdw(0, over),
                         read=over * 512)[0].status == nvme.INVALID_FIELD
    assert queue.command(nvme.WRITE, nsid=NSID, cdw=nvme.rw_cdw(0, over),
                         write=bytes(over * 512))[0].status == nvme.INVALID_FIELD
    assert len(read(queue, 0, over - 1)) == most
    assert most == 1 << 20 or target.hauld is None


@pytest.mark.parametrize("nsid", [1, 3])
@pytest.mark.parametrize("deac", [0, 1 << 25], ids=["", "deac"])
def test_write_zeroes_zeroes_its_range_and_no_more(target, queue, association, nsid, deac):
    """NVM 1.0 3.2.8: zeros, whether deallocated (DEAC) or not."""
    need(target, queue, *ZEROES)
    if deac and not target.hauld and not association[0]()[0].identify(0, nsid=NSID)[1][33] & 8:
        target.lacks("DLFEAT has no deallocation by Write Zeroes")
    for slba, count in ((17, 1), (33, 100), (256, 2046)):
        data = os.urandom((count + 2) * 512)
        assert write(queue, slba - 1, data, nsid=nsid).status == 0
        cqe, _ = queue.command(nvme.WRITE_ZEROES, nsid=nsid,
                               cdw=nvme.rw_cdw(slba, count, control=deac))
        assert cqe.status == 0
        assert read(queue, slba - 1, count + 2, nsid=nsid) == \
            data[:512] + bytes(count * 512) + data[-512:]


def dsm(queue, ranges, *, nsid=NSID, attributes=4, count=None, length=None):
    body = b"".join(struct.pack("<IIQ", 0, blocks, slba) for slba, blocks in ranges)
    nr = len(ranges) if count is None else count
    return queue.command(nvme.DSM, nsid=nsid, cdw=(nr - 1, attributes), write=body,
                         length=length)[0]


@pytest.mark.parametrize("nsid", [1, 3])
def test_deallocate_leaves_the_neighbours_alone(target, queue, nsid):
    """NVM 1.0 3.2.3: the blocks of the ranges and no others."""
    need(target, queue, *DSM)
    data = os.urandom(64 * 512)
    assert write(queue, 0, data, nsid=nsid).status == 0
    assert dsm(queue, [(8, 8), (24, 8), (40, 0)], nsid=nsid).status == 0
    after = read(queue, 0, 64, nsid=nsid)
    for at in range(64):
        if not (8 <= at < 16 or 24 <= at < 32):
            assert after[at * 512:at * 512 + 512] == data[at * 512:at * 512 + 512]


def test_deallocate_takes_256_ranges(target, queue):
    """NVM 1.0 3.2.3: NR is 0's based, of 8 bits."""
    need(target, queue, *DSM)
    assert dsm(queue, [(n * 16, 8) for n in range(256)]).status == 0


def test_dsm_that_is_only_advice_succeeds(target, queue):
    """NVM 1.0 3.2.3: without Deallocate there is nothing that it has to do."""
    need(target, queue, *DSM)
    data = os.urandom(512)
    write(queue, 0, data)
    assert dsm(queue, [(0, 1)], attributes=1).status == 0
    assert read(queue, 0, 1) == data


def test_dsm_list_shorter_than_it_says_is_refused(target, queue):
    """Base 2.0 4.1.2: Data SGL Length Invalid."""
    need(target, queue, *DSM)
    assert dsm(queue, [(0, 1)], count=256).status == nvme.SGL_LENGTH_INVALID


def test_dsm_range_beyond_the_end_is_refused_and_nothing_happens(target, queue, blocks):
    """NVM 1.0 3.2.3: LBA Out of Range."""
    need(target, queue, *DSM)
    data = os.urandom(512)
    write(queue, 0, data)
    assert dsm(queue, [(0, 1), (blocks, 1)]).status == nvme.LBA_OUT_OF_RANGE
    assert read(queue, 0, 1) == data


def test_read_only_namespace_refuses_what_would_change_it(own, queue):
    for opcode, kw in ((nvme.WRITE, dict(write=bytes(512))), (nvme.WRITE_ZEROES, {}),
                       (nvme.DSM, dict(write=struct.pack("<IIQ", 0, 1, 0)))):
        cdw = (0, 4) if opcode == nvme.DSM else nvme.rw_cdw(0, 1)
        assert queue.command(opcode, nsid=4, cdw=cdw, **kw)[0].status == 0x020, hex(opcode)
    assert queue.command(nvme.READ, nsid=4, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0


def test_4096_byte_blocks(own):
    with own.admin(conftest.BLOCKS_4K) as admin, admin.io_queue() as queue:
        data = os.urandom(8192)
        assert queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(3, 2), write=data)[0].status == 0
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(3, 2), read=8192)[1] == data
        last = (64 << 20) // 4096
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(last, 1),
                             read=4096)[0].status == nvme.LBA_OUT_OF_RANGE


@pytest.mark.transport("tcp")
@pytest.mark.parametrize("kind", [0x00, 0x10, 0x0F, 0x40, 0x30, 0xF0, 0x02], ids=lambda v: f"{v:02X}h")
def test_sgl_types_of_other_transports_are_refused(target, queue, kind):
    """TCP 1.0c 3.3.2: in-capsule and transport data blocks only."""
    cid = queue.cid()
    queue.send(queue.capsule(nvme.command(
        nvme.READ, cid=cid, nsid=NSID, dptr=nvme.sgl(kind, 0, 512), cdw=nvme.rw_cdw(0, 1))))
    cqe, _ = queue.finish(cid)
    target.expects(cqe.status, nvme.SGL_TYPE_INVALID, nvme.SGL_SEGMENT_INVALID, nvme.SGL_NUMBER_INVALID, 0x012,
                   nvme.INVALID_FIELD)
    assert read(queue, 0, 1)


def test_fused_commands_that_cannot_be_are_refused(queue):
    """Base 2.0 3.4.2: Invalid Field for a fused operation that is not there."""
    cqe, _ = queue.command(nvme.READ, nsid=NSID, cdw=nvme.rw_cdw(0, 1), read=512, flags=0x41)
    assert cqe.status == nvme.INVALID_FIELD


def test_submission_queue_head_moves(queue):
    """Base 2.0 figure 91: SQHD lets the host reuse entries."""
    seen = []
    for _ in range(40):
        cqe, _ = queue.command(nvme.FLUSH, nsid=NSID)
        seen.append(cqe.sqhd)
    assert len(set(seen)) == 32 and all((b - a) % 32 == 1 for a, b in zip(seen, seen[1:]))

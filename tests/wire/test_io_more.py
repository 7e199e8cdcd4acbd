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


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def hauld(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("more")
    path = conftest.config(directory)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    daemon = conftest.Hauld(directory, "--config", str(path), "--threads", "2", engine=request.param,
                            env=conftest.rdma_environment())
    yield daemon
    assert daemon.alive(), daemon.log_path.read_text()
    assert daemon.stop() == 0, daemon.log_path.read_text()


def address(hauld, kind):
    return conftest.split_uri(next(uri for uri in hauld.uris if uri.startswith(kind)))


@pytest.fixture(params=["tcp", "rdma"])
def kind(request):
    return request.param


@pytest.fixture
def queue(hauld, kind):
    with hosts.Queue(kind, address(hauld, kind), conftest.MAIN) as io_queue:
        yield io_queue


@pytest.fixture
def queue4k(hauld, kind):
    with hosts.Queue(kind, address(hauld, kind), conftest.BLOCKS_4K) as io_queue:
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
    assert cqe.status == nvme.INVALID_NAMESPACE and cqe.dnr


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
    with conftest.nvmetcp.Admin(address(hauld, "tcp"), conftest.MAIN) as admin:
        oncs, = struct.unpack_from("<H", admin.identify(1)[1], 520)
        log = struct.unpack_from("<256I", admin.get_log(5, 4096)[1], 1024)
    for opcode, bit in ONCS_BITS.items():
        assert log[opcode] & 1 == oncs >> bit & 1, hex(opcode)
    changing = {opcode for opcode in range(256) if log[opcode] & 2}
    assert changing == {nvme.WRITE, nvme.WRITE_ZEROES, nvme.DSM} | ({nvme.COPY} if oncs >> 8 & 1 else set())
    assert {nvme.FLUSH, nvme.WRITE, nvme.READ} <= {opcode for opcode in range(256) if log[opcode] & 1}

# SPDX-License-Identifier: MIT
"""The TCP transport's own rules (NVMe TCP 1.0c)."""
import os
import pathlib
import struct
import time

import nvme
import nvmetcp
import pytest
from fabric import Gone
from nvmetcp import FES_DATA_RANGE, FES_HEADER_DIGEST, FES_INVALID_HEADER, FES_SEQUENCE

pytestmark = pytest.mark.transport("tcp")


def write_command(queue, length, *, cid=1, slba=0):
    return queue.capsule(nvme.command(
        nvme.WRITE, cid=cid, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, length),
        cdw=nvme.rw_cdw(slba, length // 512)))


def read_back(queue, slba, count):
    cqe, data = queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(slba, count), read=count * 512)
    assert cqe.status == 0
    return data


# --- setting up -------------------------------------------------------------------------------

def test_icresp_offers_legal_limits(target):
    """TCP 1.0c 3.6.2.3: MAXH2CDATA is at least 4096 and a multiple of 4."""
    with target.tcp() as tcp:
        assert tcp.maxh2cdata >= 4096 and tcp.maxh2cdata % 4 == 0 and tcp.cpda <= 31


@pytest.mark.parametrize("hdgst", [False, True])
@pytest.mark.parametrize("ddgst", [False, True])
def test_digests_are_used_just_as_asked(target, hdgst, ddgst):
    """TCP 1.0c 3.3.1: each of the two digests for itself."""
    with target.admin(hdgst=hdgst, ddgst=ddgst) as admin:
        assert admin.hdgst == hdgst and admin.ddgst == ddgst
        with admin.io_queue(hdgst=hdgst, ddgst=ddgst) as queue:
            for size in (4096, 32768):
                data = os.urandom(size)
                cqe, _ = queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(8, size // 512), write=data)
                assert cqe.status == 0
                assert read_back(queue, 8, size // 512) == data


@pytest.mark.parametrize("hpda", [0, 1, 15, 31])
def test_host_pdu_data_alignment_is_honoured(target, hpda):
    """TCP 1.0c 3.6.2.2: the data of C2HData starts at a multiple of (HPDA + 1) * 4."""
    with target.tcp(start=False) as tcp:
        tcp.icreq(hpda=hpda)
        assert tcp.connect(subnqn=target.subsystem).status == 0
        cid = tcp.cid()
        tcp.property_set(nvme.CC, 0x00460001)
        tcp.send(tcp.capsule(nvme.command(nvme.IDENTIFY, cid=cid, cdw=(1,),
                                          dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096))))
        pdu = tcp.recv_pdu()
        assert pdu.kind == nvmetcp.C2H_DATA and pdu.header[3] % ((hpda + 1) * 4) == 0


@pytest.mark.parametrize("kw", [dict(pfv=1), dict(hpda=32), dict(hpda=255)], ids=["PFV 1", "HPDA 32", "HPDA 255"])
def test_icreq_with_illegal_values_is_refused(target, kw):
    """TCP 1.0c 3.6.2.2: another PFV, or HPDA above 31, ends the connection."""
    with target.tcp(start=False) as tcp:
        tcp.icreq(raw_only=True, **kw)
        tcp.expect_end()
    target.still_serves()


@pytest.mark.parametrize("first", ["command", "h2cdata", "icreq twice"])
def test_pdu_out_of_sequence_is_a_sequence_error(target, first):
    """TCP 1.0c 3.6.1: ICReq comes first and once."""
    with target.tcp(start=first == "icreq twice") as tcp:
        if first == "command":
            tcp.send(tcp.capsule(nvme.command(nvme.READ, cid=1, nsid=1)))
        elif first == "h2cdata":
            tcp.send(tcp.h2c_data(0, 0, 0, bytes(512)))
        else:
            tcp.icreq(raw_only=True)
        tcp.expect_end(FES_SEQUENCE)
    target.still_serves()


# --- headers ------------------------------------------------------------------------------------

CASES = [
    ("command, hlen 0", dict(kind=4, hlen=0)),
    ("command, hlen 1", dict(kind=4, hlen=1)),
    ("command, hlen 71", dict(kind=4, hlen=71)),
    ("command, hlen 73", dict(kind=4, hlen=73)),
    ("command, hlen 255", dict(kind=4, hlen=255)),
    ("command, plen 0", dict(kind=4, plen=0)),
    ("command, plen 7", dict(kind=4, plen=7)),
    ("command, plen below hlen", dict(kind=4, plen=71)),
    ("command, plen of 4 GiB", dict(kind=4, plen=0xFFFFFFFF)),
    ("command, pdo below hlen", dict(kind=4, pdo=8, plen=72 + 512)),
    ("command, pdo beyond plen", dict(kind=4, pdo=200, plen=76)),
    ("command, pdo not aligned", dict(kind=4, pdo=73, plen=73 + 512)),
    ("command, header digest not negotiated", dict(kind=4, flags=1)),
    ("command, data digest not negotiated", dict(kind=4, flags=2)),
    ("data, hlen 8", dict(kind=6, hlen=8)),
    ("data, hlen 72", dict(kind=6, hlen=72)),
    ("data, plen below hlen", dict(kind=6, plen=23)),
    ("data, pdo beyond plen", dict(kind=6, pdo=64, plen=32)),
    ("type 8", dict(kind=8)),
    ("type 0Ah", dict(kind=0x0A)),
    ("type ACh", dict(kind=0xAC)),
    ("type FFh", dict(kind=0xFF)),
    ("response from a host", dict(kind=5)),
    ("R2T from a host", dict(kind=9)),
    ("C2HData from a host", dict(kind=7)),
    ("ICResp from a host", dict(kind=1)),
    ("C2HTermReq from a host", dict(kind=3)),
]


@pytest.mark.parametrize("case", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_impossible_header_ends_only_this_connection(target, case):
    """TCP 1.0c 3.5.2: header fields are checked before they are used. The association goes on, if OFCS says that it can."""
    body = {4: 64, 6: 16, 5: 16, 9: 16, 7: 16, 1: 120, 3: 16}.get(case["kind"], 16)
    with target.admin() as admin, admin.io_queue() as queue:
        alone = admin.limits.queues_end_alone
        queue.send(queue.pdu(body=bytes(body), **case))
        queue.expect_end()
        assert not alone or admin.identify(1)[0].status == 0
    target.still_serves()


def test_the_termination_request_names_the_byte(target):
    """TCP 1.0c 3.5.3: FEI is the offset of the field in error."""
    with target.admin() as admin, admin.io_queue() as queue:
        queue.send(queue.pdu(nvmetcp.CMD, bytes(64), hlen=70))
        end = queue.expect_end(FES_INVALID_HEADER)
        assert end.fei == 2


def test_termination_request_of_the_host_ends_the_connection(target):
    """TCP 1.0c 3.6.2.4: who gets a termination request closes."""
    with target.admin() as admin:
        queue = admin.io_queue()
        queue.send(queue.pdu(nvmetcp.H2C_TERM, struct.pack("<HI10x", 1, 0), bytes(24), pdo=0))
        queue.expect_end()
    target.still_serves()


# --- pieces ---------------------------------------------------------------------------------------

def test_pdus_may_arrive_byte_by_byte(target):
    """TCP 1.0c 3.1: PDUs are not aligned to segments."""
    with target.admin() as admin, admin.io_queue() as queue:
        data = os.urandom(512)
        raw = queue.capsule(nvme.command(
            nvme.WRITE, cid=9, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512),
            cdw=nvme.rw_cdw(5, 1)), data)
        for at in range(len(raw)):
            queue.send(raw[at:at + 1])
        assert queue.finish(9)[0].status == 0
        assert read_back(queue, 5, 1) == data


@pytest.mark.parametrize("hdgst, ddgst", [(False, False), (True, True)])
def test_pdus_may_be_cut_anywhere(target, hdgst, ddgst):
    """TCP 1.0c 3.1: PDUs are not aligned to segments."""
    with target.admin(hdgst=hdgst, ddgst=ddgst) as admin:
        with admin.io_queue(hdgst=hdgst, ddgst=ddgst) as queue:
            for cut in list(range(1, 100, 7)) + [590, 591, 592]:
                data = os.urandom(512)
                raw = queue.capsule(nvme.command(
                    nvme.WRITE, cid=cut, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512),
                    cdw=nvme.rw_cdw(6, 1)), data)
                queue.send(raw[:cut])
                time.sleep(0.002)
                queue.send(raw[cut:])
                assert queue.finish(cut)[0].status == 0
                assert read_back(queue, 6, 1) == data


def test_connect_data_comes_in_the_capsule(target):
    """TCP 1.0c 3.3.2: with fabrics commands each target takes 8 KiB in the capsule."""
    with target.tcp() as tcp:
        assert tcp.connect(subnqn=target.subsystem).status == 0


def test_connect_data_comes_by_r2t(target):
    """TCP 1.0c 3.3.2: in the capsule or not is the host's choice."""
    with target.tcp() as tcp:
        assert tcp.connect(subnqn=target.subsystem, by_r2t=True).status == 0


def test_fifty_commands_in_one_segment_are_all_answered(target):
    """TCP 1.0c 3.1: a segment may hold many PDUs."""
    with target.admin() as admin, admin.io_queue(sqsize=63) as queue:
        dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, 512)
        queue.send(b"".join(queue.capsule(nvme.command(
            nvme.READ, cid=cid, nsid=1, dptr=dptr, cdw=nvme.rw_cdw(cid, 1))) for cid in range(50)))
        left = set(range(50))
        while left:
            pdu = queue.recv_pdu()
            if pdu.kind == nvmetcp.RSP:
                cqe = nvme.Cqe(pdu.header[8:24])
                assert cqe.status == 0
                left.remove(cqe.cid)


# --- data of writes ----------------------------------------------------------------------------

@pytest.mark.parametrize("size", [512, 4096, 4608])
def test_what_fits_into_the_capsule_may_be_fetched(target, size):
    """TCP 1.0c 3.3.2: in the capsule or not is the host's choice."""
    with target.admin() as admin, admin.io_queue() as queue:
        for piece in (512, 4096):
            data = os.urandom(size)
            queue.maxh2cdata = min(queue.maxh2cdata, piece)
            cqe, _ = queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(16, size // 512), fetched=data)
            assert cqe.status == 0
            assert read_back(queue, 16, size // 512) == data


@pytest.mark.parametrize("size", [65536 + 512, 1 << 20], ids=["64.5 KiB", "1 MiB"])
@pytest.mark.parametrize("piece", [512, 4096, 131072], ids=["by 512", "by 4096", "by 128 KiB"])
def test_write_data_may_come_in_many_pdus(target, size, piece):
    """TCP 1.0c 3.6.2.8: H2CData up to MAXH2CDATA, as small as the host likes."""
    with target.admin() as admin, admin.io_queue() as queue:
        data = os.urandom(size)
        queue.maxh2cdata = min(queue.maxh2cdata, piece)
        cqe, _ = queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(16, size // 512), fetched=data)
        assert cqe.status == 0
        assert read_back(queue, 16, size // 512) == data


def r2t_of(queue, length, cid=1):
    queue.send(write_command(queue, length, cid=cid))
    pdu = queue.recv_pdu()
    assert pdu.kind == nvmetcp.R2T
    return struct.unpack_from("<HHII", pdu.header, 8)


@pytest.mark.parametrize("wrong", [
    "cccid", "ttag", "offset", "beyond", "over maxh2cdata", "not dword", "too early last",
    "no last"])
def test_h2cdata_outside_of_its_r2t_ends_the_connection(target, wrong):
    """TCP 1.0c 3.6.2.8: each field of H2CData is that of its R2T; otherwise the connection ends."""
    with target.admin() as admin, admin.io_queue() as queue:
        before = read_back(queue, 0, 8)
        size = 4096 if target.hauld else 65536      # some take what would fit into a capsule from there only
        alone = admin.limits.queues_end_alone
        cccid, ttag, offset, length = r2t_of(queue, size)
        assert (cccid, offset, length) == (1, 0, size)
        data = b"\xee" * size
        send = {
            "cccid": lambda: queue.h2c_data(cccid + 1, ttag, 0, data),
            "ttag": lambda: queue.h2c_data(cccid, ttag ^ 0x5555, 0, data),
            "offset": lambda: queue.h2c_data(cccid, ttag, 512, data[:512]),
            "beyond": lambda: queue.h2c_data(cccid, ttag, 0, data + bytes(512)),
            "over maxh2cdata": lambda: queue.h2c_data(
                cccid, ttag, 0, data, length=0xFFFFFFF0, plen=24 + 0xFFFFFFF0 & 0xFFFFFFFF),
            "not dword": lambda: queue.h2c_data(cccid, ttag, 0, data[:511]),
            "too early last": lambda: queue.h2c_data(cccid, ttag, 0, data[:512], last=True),
            "no last": lambda: queue.h2c_data(cccid, ttag, 0, data, last=False),
        }[wrong]
        queue.send(send())
        queue.expect_end()
        if alone:
            admin.io_queue(2).close()
    with target.admin() as admin, admin.io_queue(2) as other:
        assert read_back(other, 0, 8) == before, "data of a refused PDU was written"


def test_h2cdata_without_r2t_ends_the_connection(target):
    """TCP 1.0c 3.6.2.8: H2CData answers an R2T."""
    with target.admin() as admin, admin.io_queue() as queue:
        queue.send(queue.h2c_data(1, 1, 0, bytes(512)))
        queue.expect_end()


# --- digests ---------------------------------------------------------------------------------------

def test_wrong_data_digest_fails_the_command_and_keeps_the_block(target):
    """TCP 1.0c 3.5.4: a data digest error is the command's, not the connection's."""
    with target.admin(ddgst=True) as admin, admin.io_queue(ddgst=True) as queue:
        good = os.urandom(512)
        assert queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(30, 1), write=good)[0].status == 0
        queue.send(queue.capsule(nvme.command(
            nvme.WRITE, cid=77, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512),
            cdw=nvme.rw_cdw(30, 1)), os.urandom(512), bad_ddgst=True))
        assert queue.finish(77)[0].status == nvme.TRANSIENT_TRANSPORT
        assert read_back(queue, 30, 1) == good


def test_wrong_data_digest_in_the_middle_of_a_write_fails_it(target):
    """TCP 1.0c 3.5.4: a data digest error is the command's, not the connection's."""
    with target.admin(ddgst=True) as admin, admin.io_queue(ddgst=True) as queue:
        piece = 512 if target.hauld else 16384      # some take what would fit into a capsule from there only
        good = os.urandom(3 * piece)
        count = len(good) // 512
        assert queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(40, count), write=good)[0].status == 0
        queue.send(queue.capsule(nvme.command(
            nvme.WRITE, cid=5, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, len(good)),
            cdw=nvme.rw_cdw(40, count))))
        pdu = queue.recv_pdu()
        cccid, ttag, _, _ = struct.unpack_from("<HHII", pdu.header, 8)
        for part in range(3):
            queue.send(queue.h2c_data(cccid, ttag, part * piece, b"\x11" * piece, last=part == 2,
                                      bad_ddgst=part == 1))
        assert queue.finish(5)[0].status == nvme.TRANSIENT_TRANSPORT
        assert read_back(queue, 40, count) == good


def test_wrong_header_digest_is_fatal(target):
    """TCP 1.0c 3.5.4: a header digest error is the connection's."""
    with target.admin(hdgst=True) as admin, admin.io_queue(hdgst=True) as queue:
        queue.send(queue.capsule(nvme.command(nvme.FLUSH, cid=1, nsid=1), bad_hdgst=True))
        queue.expect_end(FES_HEADER_DIGEST)
    target.still_serves()


# --- waiting ---------------------------------------------------------------------------------------

def test_the_target_does_not_spin_while_the_rest_is_missing(own):
    """B078: hosts that stop in the middle of a header, its digest, data and their digest, of ICReq and of nothing."""
    tasks = pathlib.Path(f"/proc/{own.hauld.process.pid}/task")

    def cpu_ns():
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    with own.admin() as admin, own.tcp(start=False) as silent, own.tcp(start=False) as greeting:
        greeting.send(greeting.pdu(nvmetcp.ICREQ, bytes(120))[:77])
        queues = []
        for qid, cut in enumerate((1, 8, 40, 72, 74, 76, 77, 2000, 76 + 4096, 76 + 4096 + 2), 1):
            queues.append(admin.io_queue(qid, hdgst=True, ddgst=True))
            queues[-1].send(queues[-1].capsule(nvme.command(
                nvme.WRITE, cid=1, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 4096),
                cdw=nvme.rw_cdw(0, 8)), bytes(4096))[:cut])
        time.sleep(0.2)
        before = cpu_ns()
        time.sleep(1)
        used = cpu_ns() - before
        for queue in queues:
            queue.close()
        assert silent and used < 50e6, f"hauld has used {used} ns in a second of waiting"


# --- in-capsule data ---------------------------------------------------------------------------

def test_in_capsule_write_up_to_ioccsz(target):
    """Base 2.0 figure 275: IOCCSZ counts the command's 64 bytes and the data, in 16 byte units."""
    with target.admin() as admin, admin.io_queue() as queue:
        ioccsz = struct.unpack_from("<I", admin.identify(1)[1], 1792)[0]
        limit = ioccsz * 16 - 64
        if not limit:
            pytest.skip("this target takes no data in capsules")
        data = os.urandom(limit)
        cqe, _ = queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(64, limit // 512), inline=data)
        assert cqe.status == 0
        assert read_back(queue, 64, limit // 512) == data


def test_in_capsule_write_beyond_ioccsz_is_refused(target):
    """Base 2.0 figure 275: IOCCSZ is the most; nothing of it is written, and other hosts are served."""
    with target.admin() as admin, admin.io_queue() as queue:
        before = read_back(queue, 128, 8)
        limit = struct.unpack_from("<I", admin.identify(1)[1], 1792)[0] * 16 - 64
        size = limit + 512
        queue.send(queue.capsule(nvme.command(
            nvme.WRITE, cid=3, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, size),
            cdw=nvme.rw_cdw(128, size // 512)), b"\x99" * size))
        try:
            assert queue.finish(3)[0].status != 0
        except (Gone, BrokenPipeError, ConnectionResetError):
            pass
        with admin.io_queue(2) as other:
            assert read_back(other, 128, 8) == before
    target.still_serves()


def test_admin_commands_may_bring_8_kib_in_their_capsule(target):
    """TCP 1.0c 3.3.2, for admin and fabrics commands, whatever IOCCSZ says of the others."""
    with target.admin() as admin:
        for events in (0x100, 0):
            assert admin.command(nvme.SET_FEATURES, cdw=(0x0B, events), inline=bytes(8192))[0].status == 0
            assert admin.get_feature(0x0B)[0].dw0 == events
        assert admin.command(0x81, inline=os.urandom(8192))[0].status == nvme.INVALID_OPCODE
        assert admin.identify(1)[0].status == 0


def test_connect_may_bring_8_kib_in_its_capsule(target):
    """TCP 1.0c 3.3.2: the data are the first 1024 bytes; whether the rest is tolerated is the target's choice."""
    with target.tcp() as tcp:
        data = nvme.connect_data(subnqn=target.subsystem, hostnqn="nqn.2026-11.io.haul:host").ljust(8192, b"\0")
        status = tcp.connect(subnqn="", data=data).status
        target.expects(status, nvme.SGL_LENGTH_INVALID, 0, nvme.INVALID_FIELD)
        if status and not target.hauld:
            return
        tcp.connect(subnqn=target.subsystem)
        assert tcp.property_get(nvme.VS, 4)[0].status == 0


@pytest.mark.parametrize("size", [8192 + 4, 16384, 1 << 20], ids=["8196", "16 KiB", "1 MiB"])
def test_admin_commands_bring_no_more_than_8_kib_in_their_capsule(target, size):
    """TCP 1.0c 3.3.2: 8 KiB is the most that a host may send. Ours refuses more; others are at least not hurt."""
    with target.admin() as admin:
        try:
            status = admin.command(nvme.SET_FEATURES, cdw=(0x0B, 0x100), inline=bytes(size))[0].status
            assert status or not target.hauld
        except (Gone, BrokenPipeError, ConnectionResetError):
            pass
    target.still_serves()


def test_in_capsule_offset_beyond_the_data_is_refused(target):
    """TCP 1.0c 3.3.2: the offset is in the capsule's data."""
    with target.admin() as admin, admin.io_queue() as queue:
        queue.send(queue.capsule(nvme.command(
            nvme.WRITE, cid=3, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 1 << 40, 512),
            cdw=nvme.rw_cdw(0, 1)), bytes(512)))
        assert queue.finish(3)[0].status != 0
        assert queue.command(nvme.FLUSH, nsid=1)[0].status == 0, "the stream is out of step"


@pytest.mark.parametrize("opcode", [0x7E, 0x0D, 0xC1, nvme.FLUSH], ids=lambda v: f"{v:02X}h")
def test_refused_command_with_in_capsule_data_keeps_the_stream_in_step(target, opcode):
    """TCP 1.0c 3.6.2.6: the data belong to the PDU, whatever becomes of the command."""
    with target.admin() as admin, admin.io_queue() as queue:
        cqe, _ = queue.command(opcode, nsid=1, inline=b"\x55" * 2048)
        assert opcode == nvme.FLUSH or cqe.status != 0
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0


# --- ends ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["fin", "rst", "half close"])
@pytest.mark.parametrize("when", range(4))
def test_connection_may_end_anywhere_in_a_mix(target, how, when):
    """TCP 1.0c 3.1: hosts may go at any moment, and others are served."""
    import socket
    with target.admin() as admin:
        for qid in range(1, 6 if target.hauld else 3):
            queue = admin.io_queue(1 if target.hauld else qid, sqsize=63)
            burst = b""
            for cid in range(48):
                if cid % 3 == 0:
                    burst += write_command(queue, 8192, cid=cid, slba=cid * 16)
                elif cid % 3 == 1:
                    burst += queue.capsule(nvme.command(
                        nvme.WRITE, cid=cid, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 1024),
                        cdw=nvme.rw_cdw(cid * 16, 2)), bytes(1024))
                else:
                    burst += queue.capsule(nvme.command(
                        nvme.READ, cid=cid, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 65536),
                        cdw=nvme.rw_cdw(0, 128)))
            queue.send(burst[:len(burst) * (when + 1) // 4 - 13])
            if how == "rst":
                queue.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                      struct.pack("ii", 1, 0))
            if how == "half close":
                queue.sock.shutdown(socket.SHUT_WR)
                queue.expect_end(within=5)
            queue.close()
    target.still_serves()

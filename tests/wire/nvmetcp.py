# SPDX-License-Identifier: MIT
"""A raw NVMe/TCP host: it says exactly what a test tells it to say, legal or not."""
import socket
import struct
import time

import nvme

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CMD, RSP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9

# Fatal error status of termination requests (NVMe TCP 1.0c, figure 25).
FES_INVALID_HEADER, FES_SEQUENCE, FES_HEADER_DIGEST, FES_DATA_RANGE, FES_R2T_LIMIT, \
    FES_UNSUPPORTED = 1, 2, 3, 4, 5, 6

F_HDGST, F_DDGST, F_LAST, F_SUCCESS = 1, 2, 4, 8


def _crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


class Closed(Exception):
    """The target has closed the connection."""


class Terminated(Exception):
    """The target has sent a termination request."""

    def __init__(self, fes, fei):
        super().__init__(f"C2HTermReq FES {fes} FEI {fei}")
        self.fes, self.fei = fes, fei


class Pdu:
    def __init__(self, kind, flags, header, data):
        self.kind, self.flags, self.header, self.data = kind, flags, header, data


class Tcp:
    """One TCP connection to a target. With hdgst/ddgst it asks for digests in ICReq.

    SOURCE is the address it comes from, RCVBUF what it lets lie unread.
    """

    def __init__(self, address, *, timeout=5.0, hdgst=False, ddgst=False, start=True, qid=0,
                 source=None, rcvbuf=None):
        self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.sock.settimeout(timeout)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hdgst = self.ddgst = False
        self.next_cid = 0
        self.qid = qid
        self.waiting = {}   # responses read while waiting for another one
        if start:
            self.icreq(hdgst=hdgst, ddgst=ddgst)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    # --- bytes ---
    def send(self, raw):
        self.sock.sendall(raw)

    def read(self, count):
        out = b""
        while len(out) < count:
            try:
                piece = self.sock.recv(count - len(out))
            except ConnectionResetError as error:
                raise Closed() from error
            if not piece:
                raise Closed()
            out += piece
        return out

    # --- PDUs ---
    def pdu(self, kind, body, data=b"", *, flags=0, hlen=None, pdo=None, plen=None,
            bad_hdgst=False, bad_ddgst=False):
        """Bytes of a PDU; any header field can be forced. BODY starts at byte 8."""
        plain = kind in (ICREQ, ICRESP, H2C_TERM, C2H_TERM)
        real_hlen = 8 + len(body)
        hdgst = self.hdgst and not plain
        ddgst = self.ddgst and not plain and bool(data)
        flags |= (F_HDGST if hdgst else 0) | (F_DDGST if ddgst else 0)
        offset = real_hlen + (4 if hdgst else 0)
        total = offset + len(data) + (4 if ddgst else 0)
        header = struct.pack("<BBBBI", kind, flags, real_hlen if hlen is None else hlen,
                             (offset if data else 0) if pdo is None else pdo,
                             total if plen is None else plen) + body
        out = header
        if hdgst:
            digest = crc32c(header)
            out += bytes([digest[0] ^ bad_hdgst]) + digest[1:]
        out += data
        if ddgst:
            digest = crc32c(data)
            out += bytes([digest[0] ^ bad_ddgst]) + digest[1:]
        return out

    def recv_pdu(self):
        head = self.read(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", head)
        header = head + self.read(hlen - 8)
        if flags & F_HDGST and kind not in (ICREQ, ICRESP):
            assert self.read(4) == crc32c(header), "header digest of the target is wrong"
            at = hlen + 4
        else:
            at = hlen
        data = b""
        if plen > at:
            tail = 4 if flags & F_DDGST else 0
            if pdo > at:
                self.read(pdo - at)
                at = pdo
            data = self.read(plen - at - tail)
            if tail:
                assert self.read(4) == crc32c(data), "data digest of the target is wrong"
        if kind == C2H_TERM:
            fes, fei = struct.unpack_from("<HI", header, 8)
            raise Terminated(fes, fei)
        return Pdu(kind, flags, header, data)

    def icreq(self, *, pfv=0, hpda=0, hdgst=False, ddgst=False, maxr2t=0, raw_only=False):
        body = struct.pack("<HBBI", pfv, hpda, (1 if hdgst else 0) | (2 if ddgst else 0), maxr2t)
        self.send(self.pdu(ICREQ, body.ljust(120, b"\0")))
        if raw_only:
            return None
        answer = self.recv_pdu()
        assert answer.kind == ICRESP and len(answer.header) == 128
        pfv, self.cpda, digests, self.maxh2cdata = struct.unpack_from("<HBBI", answer.header, 8)
        self.hdgst, self.ddgst = bool(digests & 1), bool(digests & 2)
        return answer

    # --- commands ---
    def cid(self):
        self.next_cid = (self.next_cid + 1) & 0x7FFF
        return self.next_cid

    def capsule(self, sqe, data=b"", **kw):
        return self.pdu(CMD, sqe, data, **kw)

    def finish(self, cid, *, write=b"", collect=None):
        """Reads PDUs until the response for CID; answers R2Ts with WRITE; returns (Cqe, data)."""
        got = bytearray() if collect is None else collect
        if cid in self.waiting:
            return self.waiting.pop(cid), bytes(got)
        while True:
            pdu = self.recv_pdu()
            if pdu.kind == RSP:
                cqe = nvme.Cqe(pdu.header[8:24])
                if cqe.cid == cid:
                    return cqe, bytes(got)
                self.waiting[cqe.cid] = cqe
            elif pdu.kind == C2H_DATA:
                cccid, _, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
                assert length == len(pdu.data)
                if cccid == cid:
                    assert offset == len(got), "C2HData out of order"
                    got += pdu.data
                    if pdu.flags & F_SUCCESS:
                        assert pdu.flags & F_LAST, "SUCCESS without LAST"
                        return nvme.Cqe(struct.pack("<IIHHHH", 0, 0, 0, 0, cid, 0)), bytes(got)
            elif pdu.kind == R2T:
                self.answer_r2t(pdu, write)
            else:
                raise AssertionError(f"unexpected PDU type {pdu.kind}")

    def answer_r2t(self, pdu, write):
        cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
        assert offset + length <= len(write), "R2T beyond the command"
        at = offset
        while at < offset + length:
            piece = write[at:min(at + self.maxh2cdata, offset + length)]
            last = at + len(piece) == offset + length
            self.send(self.h2c_data(cccid, ttag, at, piece, last=last))
            at += len(piece)

    def h2c_data(self, cccid, ttag, offset, data, *, last=True, length=None, **kw):
        body = struct.pack("<HHII4x", cccid, ttag, offset, len(data) if length is None else length)
        return self.pdu(H2C_DATA, body, data, flags=F_LAST if last else 0, **kw)

    def command(self, opcode, *, nsid=0, cdw=(), write=None, read=0, inline=None, length=None,
                flags=0x40):
        """Runs a command to its end. WRITE goes by R2T, INLINE in the capsule, READ bytes come back."""
        cid = self.cid()
        if inline is not None:
            dptr = nvme.sgl(nvme.SGL_IN_CAPSULE, 0, len(inline) if length is None else length)
        else:
            count = len(write) if write is not None else read
            count = count if length is None else length
            dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, count)
        sqe = nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw, flags=flags)
        self.send(self.capsule(sqe, inline or b""))
        return self.finish(cid, write=write or b"")

    # --- fabrics ---
    def connect(self, *, subnqn, hostnqn="nqn.2014-08.org.nvmexpress:uuid:"
                "11111111-2222-3333-4444-555555555555", by_r2t=False, data=None, qid=None,
                hostid=bytes(range(1, 17)), cntlid=0xFFFF, **kw):
        cid = self.cid()
        qid = self.qid if qid is None else qid
        if data is None:
            data = nvme.connect_data(hostid=hostid, cntlid=cntlid, subnqn=subnqn, hostnqn=hostnqn)
        kind = nvme.SGL_TRANSPORT if by_r2t else nvme.SGL_IN_CAPSULE
        sqe = nvme.connect_command(cid=cid, qid=qid, dptr=nvme.sgl(kind, 0, len(data)), **kw)
        self.send(self.capsule(sqe, b"" if by_r2t else data))
        cqe, _ = self.finish(cid, write=data)
        return cqe

    def property_get(self, offset, size=8):
        cid = self.cid()
        self.send(self.capsule(nvme.fabrics(
            nvme.PROPERTY_GET, struct.pack("<B3xI", 1 if size == 8 else 0, offset), cid=cid)))
        cqe, _ = self.finish(cid)
        return cqe, cqe.dw0 | cqe.dw1 << 32

    def property_set(self, offset, value, size=4):
        cid = self.cid()
        self.send(self.capsule(nvme.fabrics(
            nvme.PROPERTY_SET, struct.pack("<B3xIQ", 1 if size == 8 else 0, offset, value),
            cid=cid)))
        return self.finish(cid)[0]

    def disconnect(self):
        cid = self.cid()
        self.send(self.capsule(nvme.fabrics(nvme.DISCONNECT, struct.pack("<H", 0), cid=cid)))
        return self.finish(cid)[0]

    # --- ends ---
    def expect_end(self, fes=None, *, within=2.0):
        """The target ends this connection: by a termination request (of class FES) or by closing."""
        self.sock.settimeout(within)
        limit = time.monotonic() + within
        try:
            while time.monotonic() < limit:
                self.recv_pdu()
        except Terminated as end:
            if fes is not None:
                assert end.fes == fes, f"FES {end.fes}, expected {fes}"
            try:
                while self.sock.recv(4096):
                    pass
            except (ConnectionResetError, TimeoutError) as error:
                assert not isinstance(error, TimeoutError), "TermReq but no close"
            return end
        except Closed:
            assert fes is None, f"closed without the termination request FES {fes}"
            return None
        raise AssertionError("the connection is still open")


class Admin(Tcp):
    """An admin queue with an enabled controller."""

    def __init__(self, address, subnqn, *, kato=0, enable=True, hostnqn=None,
                 hostid=bytes(range(1, 17)), **kw):
        super().__init__(address, **kw)
        self.address, self.subnqn, self.source = address, subnqn, kw.get("source")
        self.hostnqn = hostnqn or "nqn.2014-08.org.nvmexpress:uuid:" \
            "11111111-2222-3333-4444-555555555555"
        self.hostid = hostid
        cqe = self.connect(subnqn=subnqn, hostnqn=self.hostnqn, hostid=hostid, kato=kato)
        assert cqe.status == 0, cqe
        self.cntlid = cqe.dw0 & 0xFFFF
        if enable:
            self.enable()

    def enable(self):
        assert self.property_set(nvme.CC, 0x00460001).status == 0
        deadline = time.monotonic() + 5
        while not self.property_get(nvme.CSTS, 4)[1] & 1:
            assert time.monotonic() < deadline, "controller never became ready"

    def identify(self, cns, *, nsid=0, cntid=0, csi=0):
        return self.command(nvme.IDENTIFY, nsid=nsid, cdw=(cns | cntid << 16, csi << 24), read=4096)

    def get_log(self, lid, length, *, offset=0, nsid=0xFFFFFFFF, rae=0, numd=None):
        numd = length // 4 - 1 if numd is None else numd
        return self.command(nvme.GET_LOG, nsid=nsid, read=length, cdw=(
            lid | rae << 15 | (numd & 0xFFFF) << 16, numd >> 16, offset & 0xFFFFFFFF, offset >> 32))

    def set_feature(self, fid, value=0, *, save=0, data=None):
        return self.command(nvme.SET_FEATURES, cdw=(fid | save << 31, value), write=data)[0]

    def get_feature(self, fid, *, sel=0, read=0):
        return self.command(nvme.GET_FEATURES, cdw=(fid | sel << 8,), read=read)

    def io_queue(self, qid=1, *, sqsize=31, expect=0, **kw):
        """Connects I/O queue QID to this controller on a connection of its own."""
        queue = Tcp(self.address, qid=qid, hdgst=kw.pop("hdgst", False),
                    ddgst=kw.pop("ddgst", False), source=self.source,
                    rcvbuf=kw.pop("rcvbuf", None))
        cqe = queue.connect(subnqn=self.subnqn, hostnqn=kw.pop("hostnqn", self.hostnqn),
                            hostid=kw.pop("hostid", self.hostid),
                            cntlid=kw.pop("cntlid", self.cntlid), sqsize=sqsize, **kw)
        assert cqe.status == expect, cqe
        return queue

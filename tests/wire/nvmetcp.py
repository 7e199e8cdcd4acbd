# SPDX-License-Identifier: MIT
"""A raw NVMe/TCP host: it says exactly what a test tells it to say, legal or not."""
import socket
import struct
import time

import fabric
import nvme

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CMD, RSP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9

# Fatal error status of termination requests (NVMe TCP 1.0c, figure 25).
FES_INVALID_HEADER, FES_SEQUENCE, FES_HEADER_DIGEST, FES_DATA_RANGE, FES_R2T_LIMIT, \
    FES_UNSUPPORTED = 1, 2, 3, 4, 5, 6

ADMIN_IN_CAPSULE = 8192     # bytes of data that each target takes with admin and fabrics commands (TCP 1.0c 3.3.2)

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


class Closed(fabric.Gone):
    """The target has closed the connection."""


class Terminated(fabric.Gone):
    """The target has sent a termination request."""

    def __init__(self, fes, fei):
        super().__init__(f"C2HTermReq FES {fes} FEI {fei}")
        self.fes, self.fei = fes, fei


class Pdu:
    def __init__(self, kind, flags, header, data):
        self.kind, self.flags, self.header, self.data = kind, flags, header, data


class Tcp(fabric.Queue):
    """One TCP connection to a target. With hdgst/ddgst it asks for digests in ICReq.

    SOURCE is the address it comes from, RCVBUF what it lets lie unread.
    """
    kind = "tcp"

    def __init__(self, address, *, timeout=None, hdgst=False, ddgst=False, start=True, qid=0,
                 source=None, rcvbuf=None):
        self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.sock.settimeout(timeout or fabric.PATIENCE)
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
        self.writes = {}    # data of commands that are out, for their R2Ts
        if start:
            self.icreq(hdgst=hdgst, ddgst=ddgst)

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
    def capsule(self, sqe, data=b"", **kw):
        return self.pdu(CMD, sqe, data, **kw)

    def start(self, opcode, *, nsid=0, cdw=(), read=0, inline=None, fetched=None, length=None, flags=0x40):
        """Sends a command as command() has it; its identifier."""
        cid = self.cid()
        data = inline if inline is not None else fetched
        count = (read if data is None else len(data)) if length is None else length
        kind = nvme.SGL_TRANSPORT if inline is None else nvme.SGL_IN_CAPSULE
        sqe = nvme.command(opcode, cid=cid, nsid=nsid, dptr=nvme.sgl(kind, 0, count), cdw=cdw, flags=flags)
        self.writes[cid] = fetched or b""
        self.send(self.capsule(sqe, inline or b""))
        return cid

    def start_fabrics(self, fctype, body):
        cid = self.cid()
        self.send(self.capsule(nvme.fabrics(fctype, body, cid=cid)))
        return cid

    def finish(self, cid, *, write=None, collect=None):
        """Reads PDUs until the response for CID; answers R2Ts (with WRITE, or what start() was given); (Cqe, data)."""
        write = self.writes.pop(cid, b"") if write is None else write
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

    # --- fabrics ---
    def connect(self, *, subnqn, hostnqn=fabric.HOSTNQN, by_r2t=False, data=None, qid=None,
                hostid=fabric.HOSTID, cntlid=0xFFFF, **kw):
        cid = self.cid()
        qid = self.qid if qid is None else qid
        if data is None:
            data = nvme.connect_data(hostid=hostid, cntlid=cntlid, subnqn=subnqn, hostnqn=hostnqn)
        kind = nvme.SGL_TRANSPORT if by_r2t else nvme.SGL_IN_CAPSULE
        sqe = nvme.connect_command(cid=cid, qid=qid, dptr=nvme.sgl(kind, 0, len(data)), **kw)
        self.send(self.capsule(sqe, b"" if by_r2t else data))
        cqe, _ = self.finish(cid, write=data)
        return cqe

    # --- ends ---
    def expect_end(self, fes=None, *, within=None):
        """The target ends this connection: by a termination request (of class FES) or by closing."""
        within = min(2, fabric.PATIENCE) if within is None else within
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


class Admin(fabric.Admin, Tcp):
    """An admin queue with an enabled controller."""

    def __init__(self, address, subnqn, *, kato=0, enable=True, hostnqn=None, hostid=fabric.HOSTID, obey=False, **kw):
        super().__init__(address, **kw)
        self.address, self.source, self.obey = address, kw.get("source"), obey
        self.join(subnqn, kato=kato, enable=enable, hostnqn=hostnqn, hostid=hostid)
        if obey:
            self.in_capsule = ADMIN_IN_CAPSULE

    def new_queue(self, *, qid, sqsize, **kw):
        return Tcp(self.address, qid=qid, source=self.source, **kw)


def Queue(address, *, qid=0, sqsize=31):
    """As nvmerdma.Queue: TCP has no use for the size before Connect."""
    return Tcp(address, qid=qid)

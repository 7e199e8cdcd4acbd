# SPDX-License-Identifier: MIT
"""A target over TCP that does what a test says: any status, late answers, bytes that are wrong. It keeps an account of
all the commands that reach it. Independent of the C code, as tests/wire is, whose formats it uses.
"""
import collections
import pathlib
import queue
import socket
import struct
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "wire"))

import nvme  # noqa: E402
import nvmetcp  # noqa: E402

MAX_IN_CAPSULE = 8192
VERSION = 0x10300
CAPABILITIES = 127 | 1 << 16 | 20 << 24 | 1 << 37   # 128 entries, contiguous queues, ready within 10 s, NVM
CC_SHUTDOWN, CSTS_READY, CSTS_SHUTDOWN_COMPLETE = 3 << 14, 1, 2 << 2
FUA = 1 << 14   # in the upper half of dword 12 of a command
IO = {nvme.FLUSH: "flush", nvme.WRITE: "write", nvme.READ: "read", nvme.DSM: "dsm", nvme.WRITE_ZEROES: "zeroes"}

# An I/O command as it came: RANGES is a list of (first block, blocks), of one but for "dsm" and "flush".
Command = collections.namedtuple("Command", "what nsid ranges fua")


class Connection(nvmetcp.Tcp):
    """The other end of nvmetcp.Tcp."""

    def __init__(self, sock):   # pylint: disable=super-init-not-called
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.hdgst, self.ddgst = sock, False, False

    def read(self, count):
        out = self.sock.recv(count, socket.MSG_WAITALL)
        if len(out) < count:
            raise nvmetcp.Closed()
        return out

    def establish(self):
        assert self.recv_pdu().kind == nvmetcp.ICREQ
        self.send(self.pdu(nvmetcp.ICRESP, struct.pack("<HBBI", 0, 0, 0, 1 << 20).ljust(120, b"\0")))

    def data_of(self, cid, length):
        """By R2T, all at once. The host has no other command's data to send meanwhile, only commands."""
        got, commands = bytearray(length), []
        self.send(self.pdu(nvmetcp.R2T, struct.pack("<HHII4x", cid, 1, 0, length)))
        while length:
            pdu = self.recv_pdu()
            if pdu.kind == nvmetcp.CMD:
                commands.append(pdu)
                continue
            offset, = struct.unpack_from("<I", pdu.header, 12)
            got[offset:offset + len(pdu.data)] = pdu.data
            length -= len(pdu.data)
        return bytes(got), commands

    def answer(self, cid, status=0, value=0, data=b""):
        out = b""
        if data and not status:
            out = self.pdu(nvmetcp.C2H_DATA, struct.pack("<HHII4x", cid, 0, 0, len(data)), data,
                           flags=nvmetcp.F_LAST)
        return out + self.pdu(nvmetcp.RSP, struct.pack("<QHHHH", value, 0, 0, cid, status << 1))


class Scripted:
    """Two namespaces of BYTES each. STATUS_OF(command, its number among the I/O commands): what to answer instead of
    doing it. SPOIL(command, bytes): bytes to read instead of these. DELAY: seconds from a command to its answer; what
    they really were is in TOOK."""

    def __init__(self, nqn, *, block=512, size=4 << 20, delay=0, oncs=0x4, vwc=1):
        self.nqn, self.block, self.delay, self.oncs, self.vwc = nqn, block, delay, oncs, vwc
        self.disks = {nsid: bytearray(size) for nsid in (1, 2)}
        self.commands, self.took = [], []
        self.status_of = lambda command, number: 0
        self.spoil = lambda command, data: data
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}/{nqn}"
        self.nr_controllers = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def count(self, what, **fields):
        """How many commands of this kind there were."""
        with self.lock:
            return sum(command.what == what and all(getattr(command, name) == value for name, value in fields.items())
                       for command in self.commands)

    def ranges(self, what, nsid=1):
        """What was covered by commands of this kind: (first byte, bytes), in the order they came."""
        with self.lock:
            return [(first * self.block, blocks * self.block) for command in self.commands
                    if command.what == what and command.nsid == nsid for first, blocks in command.ranges]

    # --- connections ---

    def accept(self):
        while True:
            try:
                sock, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(Connection(sock),), daemon=True).start()

    def serve(self, connection):
        late = queue.SimpleQueue()
        if self.delay:
            threading.Thread(target=self.send_late, args=(connection, late), daemon=True).start()
        waiting = collections.deque()
        try:
            connection.establish()
            while True:
                pdu = waiting.popleft() if waiting else connection.recv_pdu()
                begin = time.monotonic()
                is_io, answer, more = self.run(connection, pdu.header[8:72], pdu.data)
                waiting.extend(more)
                if is_io and self.delay:
                    late.put((begin, answer))
                else:
                    connection.send(answer)
        except (nvmetcp.Closed, OSError):
            late.put(None)
            connection.close()

    def send_late(self, connection, late):
        for begin, answer in iter(late.get, None):
            time.sleep(max(begin + self.delay - time.monotonic(), 0))
            try:
                connection.send(answer)
            except OSError:
                return
            self.took.append(time.monotonic() - begin)

    def run(self, connection, sqe, data):
        """Whether it is I/O, the bytes of the answer, and PDUs that came meanwhile."""
        opcode, cid = sqe[0], struct.unpack_from("<H", sqe, 2)[0]
        if opcode == nvme.FABRICS:
            status, value = self.fabrics(connection, sqe, data)
            return False, connection.answer(cid, status, value), []
        if not connection.qid:
            status, value, page = self.admin(connection, sqe)
            return False, connection.answer(cid, status, value, page), []
        return True, *self.io(connection, sqe, data)

    # --- fabrics and admin ---

    def fabrics(self, connection, sqe, data):
        if sqe[4] == nvme.CONNECT:
            connection.qid, = struct.unpack_from("<H", sqe, 42)
            connection.cntlid, = struct.unpack_from("<H", data, 16)
            if not connection.qid:
                with self.lock:
                    self.nr_controllers += 1
                    connection.cntlid = self.nr_controllers
            connection.csts = CSTS_READY
            return 0, connection.cntlid
        offset, value = struct.unpack_from("<IQ", sqe, 44)
        if sqe[4] == nvme.PROPERTY_SET and offset == nvme.CC and value & CC_SHUTDOWN:
            connection.csts = CSTS_READY | CSTS_SHUTDOWN_COMPLETE
        if sqe[4] == nvme.PROPERTY_GET:
            return 0, {nvme.CAP: CAPABILITIES, nvme.VS: VERSION, nvme.CSTS: connection.csts}.get(offset, 0)
        return 0, 0

    def admin(self, connection, sqe):
        opcode, nsid, word = sqe[0], *struct.unpack_from("<I", sqe, 4), struct.unpack_from("<I", sqe, 40)[0]
        if opcode == nvme.IDENTIFY:
            page = self.identify(connection, word & 0xFF, nsid)
            return (nvme.INVALID_FIELD, 0, b"") if page is None else (0, 0, page)
        if opcode == nvme.SET_FEATURES and word & 0xFF == 7:
            return 0, 7 | 7 << 16, b""
        return (0 if opcode in (nvme.KEEP_ALIVE, nvme.SET_FEATURES) else nvme.INVALID_OPCODE), 0, b""

    def identify(self, connection, cns, nsid):
        page = bytearray(4096)
        if cns == 0:
            block_shift = self.block.bit_length() - 1
            blocks = len(self.disks[1]) // self.block
            struct.pack_into("<QQQ", page, 0, blocks, blocks, blocks)
            page[130] = block_shift
        elif cns == 1:
            page[4:64] = b"SCRIPTED".ljust(20) + b"scripted".ljust(40)
            struct.pack_into("<BHI", page, 77, 8, connection.cntlid, VERSION)
            page[111] = 1
            page[512:514] = b"\x66\x44"
            struct.pack_into("<HIH", page, 514, 128, 2, self.oncs)
            page[525] = self.vwc
            struct.pack_into("<I", page, 536, 1 | 1 << 20)
            page[768:768 + len(self.nqn)] = self.nqn.encode()
            struct.pack_into("<II", page, 1792, (64 + MAX_IN_CAPSULE) // 16, 1)
            page[1803] = 1
        elif cns == 2:
            page[:8] = struct.pack("<II", *[each if each > nsid else 0 for each in (1, 2)])
        elif cns != 3:
            return None
        return bytes(page)

    # --- I/O ---

    def io(self, connection, sqe, data):
        opcode, cid, nsid = sqe[0], *struct.unpack_from("<HI", sqe, 2)
        first, word = struct.unpack_from("<QI", sqe, 40)
        length, more = struct.unpack_from("<I", sqe, 32)[0], []
        if length and opcode in (nvme.WRITE, nvme.DSM) and not data:
            data, more = connection.data_of(cid, length)
        if opcode == nvme.DSM:
            ranges = [struct.unpack_from("<4xIQ", data, at)[::-1] for at in range(0, 16 * ((first & 0xFF) + 1), 16)]
        else:
            ranges = [] if opcode == nvme.FLUSH else [(first, (word & 0xFFFF) + 1)]
        command = Command(IO.get(opcode, opcode), nsid, ranges, bool(word >> 16 & FUA) and opcode == nvme.WRITE)
        with self.lock:
            self.commands.append(command)
            number = len(self.commands)
        status = self.status_of(command, number)
        out = b"" if status else self.execute(command, data)
        return connection.answer(cid, status, 0, out), more

    def execute(self, command, data):
        disk = self.disks[command.nsid]
        for first, blocks in command.ranges:
            start, end = first * self.block, (first + blocks) * self.block
            if command.what == "write":
                disk[start:end] = data
            elif command.what in ("dsm", "zeroes"):
                disk[start:end] = bytes(end - start)
            elif command.what == "read":
                return self.spoil(command, bytes(disk[start:end]))
        return b""

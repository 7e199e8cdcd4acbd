# SPDX-License-Identifier: MIT
"""What a host does on a queue, whatever the transport.

A transport brings start() and finish() of a command, start_fabrics(), connect(), expect_end() and close(); Admin also
new_queue(), a transport's connection for one more queue of the same controller.
"""
import struct
import time

import nvme

HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
HOSTID = bytes(range(1, 17))
PATIENCE = 5.0      # seconds that a host waits for an answer; --patience


def identity(number):
    """Of another host: a new controller waits for what the same host still writes."""
    return {"hostnqn": f"nqn.2026-11.org.example:host{number}", "hostid": number.to_bytes(16, "big")}


class Gone(Exception):
    """The connection has ended."""


class Limits:
    """What a controller demands of its hosts (base 2.0 figure 275)."""

    def __init__(self, identify):
        self.sgls, self.ioccsz = (struct.unpack_from("<I", identify, at)[0] for at in (536, 1792))
        self.mdts, self.msdbd, self.vwc = identify[77], identify[1803], identify[525]
        self.ofcs, = struct.unpack_from("<H", identify, 1804)
        self.oncs, = struct.unpack_from("<H", identify, 520)
        self.nn, = struct.unpack_from("<I", identify, 516)
        self.keyed = bool(self.sgls & 1 << 2)
        self.offset_in_capsule = bool(self.sgls & 1 << 20)
        self.in_capsule = max(self.ioccsz * 16 - 64, 0)         # bytes of data
        self.queues_end_alone = bool(self.ofcs & 1)             # Disconnect, and no association ends with one I/O queue
        self.most_bytes = 4096 << self.mdts if self.mdts else None


class Queue:
    """Commands on a connected queue.

    in_capsule: up to how many bytes a write's data goes with its command where the test does not say how. It is 0 with our
    own target, so that the tests of commands take the long way, which no host takes with small writes.
    """
    in_capsule = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def cid(self):
        self.next_cid = self.next_cid % 0x7FFF + 1
        return self.next_cid

    def command(self, opcode, *, nsid=0, cdw=(), write=None, read=0, inline=None, fetched=None, length=None, flags=0x40):
        """Runs a command to its end: its CQE, and the data of READ bytes.

        WRITE goes as suits the target, INLINE in the capsule, FETCHED is fetched by the target (R2T, RDMA READ). LENGTH
        is that of the descriptor, if it is not the data's.
        """
        if write is not None:
            if 0 < len(write) <= self.in_capsule and length is None:
                inline = write
            else:
                fetched = write
        return self.finish(self.start(opcode, nsid=nsid, cdw=cdw, read=read, inline=inline, fetched=fetched, length=length,
                                      flags=flags))

    def property_get(self, offset, size=8):
        cqe, _ = self.finish(self.start_fabrics(nvme.PROPERTY_GET, struct.pack("<B3xI", 1 if size == 8 else 0, offset)))
        return cqe, cqe.dw0 | cqe.dw1 << 32

    def property_set(self, offset, value, size=4):
        return self.finish(self.start_fabrics(nvme.PROPERTY_SET,
                                              struct.pack("<B3xIQ", 1 if size == 8 else 0, offset, value)))[0]

    def disconnect(self):
        return self.finish(self.start_fabrics(nvme.DISCONNECT, struct.pack("<H", 0)))[0]


class Admin:
    """Commands on an admin queue. OBEY: read from Identify what the target wants of its hosts, and keep to it."""
    obey = False

    def join(self, subnqn, *, kato=0, enable=True, hostnqn=None, hostid=HOSTID):
        """Connects and, if wanted, enables the controller."""
        self.subnqn, self.hostnqn, self.hostid = subnqn, hostnqn or HOSTNQN, hostid
        cqe = self.connect(subnqn=subnqn, hostnqn=self.hostnqn, hostid=hostid, kato=kato)
        assert cqe.status == 0, cqe
        self.cntlid = cqe.dw0 & 0xFFFF
        self._limits = None
        if enable:
            self.enable()

    @property
    def limits(self):
        if self._limits is None:
            cqe, data = self.identify(1)
            assert cqe.status == 0, cqe
            self._limits = Limits(data)
        return self._limits

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

    def io_queue(self, qid=1, *, sqsize=31, expect=0, hostnqn=None, hostid=None, cntlid=None, subnqn=None, **kw):
        """Connects I/O queue QID to this controller on a connection of its own."""
        queue = self.new_queue(qid=qid, sqsize=sqsize, **kw)
        cqe = queue.connect(subnqn=subnqn or self.subnqn, hostnqn=hostnqn or self.hostnqn,
                            hostid=self.hostid if hostid is None else hostid,
                            cntlid=self.cntlid if cntlid is None else cntlid, sqsize=sqsize)
        assert cqe.status == expect, cqe
        if self.obey and not expect:
            queue.in_capsule = self.limits.in_capsule if self.kind == "tcp" or self.limits.offset_in_capsule else 0
        return queue

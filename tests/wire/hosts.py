# SPDX-License-Identifier: MIT
"""One I/O queue as the tests of commands use it, whatever the transport."""
import struct

import nvme
import nvmerdma
import nvmetcp

HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


class Sent:
    """A command that is out."""

    def __init__(self, cid, write, read):
        self.cid, self.write, self.data, self.room = cid, write, b"", read
        self.cqe = None


class TcpQueue:
    in_capsule = 8192

    def __init__(self, address, subnqn, *, qid=1, depth=32, admin=None, **who):
        self.own_admin = admin is None
        self.admin = admin or nvmetcp.Admin(address, subnqn, **who)
        self.queue = self.admin.io_queue(qid, sqsize=depth - 1)
        self.out = {}

    def start(self, opcode, *, nsid=0, cdw=(), write=None, read=0, inline=False, length=None, flags=0x40):
        cid = self.queue.cid()
        count = (len(write) if write is not None else read) if length is None else length
        kind = nvme.SGL_IN_CAPSULE if inline else nvme.SGL_TRANSPORT
        sqe = nvme.command(opcode, cid=cid, nsid=nsid, flags=flags, cdw=cdw,
                           dptr=nvme.sgl(kind, 0, count) if count else bytes(16))
        self.out[cid] = sent = Sent(cid, write or b"", read)
        self.queue.send(self.queue.capsule(sqe, write if inline else b""))
        return sent

    def end(self, sent):
        while sent.cqe is None:
            pdu = self.queue.recv_pdu()
            if pdu.kind == nvmetcp.RSP:
                cqe = nvme.Cqe(pdu.header[8:24])
                self.out.pop(cqe.cid).cqe = cqe
            elif pdu.kind == nvmetcp.C2H_DATA:
                cid, _, offset, _ = struct.unpack_from("<HHII", pdu.header, 8)
                assert offset == len(self.out[cid].data)
                self.out[cid].data += pdu.data
                if pdu.flags & nvmetcp.F_SUCCESS:
                    self.out[cid].cqe = nvme.Cqe(struct.pack("<IIHHHH", 0, 0, 0, 0, cid, 0))
            elif pdu.kind == nvmetcp.R2T:
                cid = struct.unpack_from("<H", pdu.header, 8)[0]
                self.queue.answer_r2t(pdu, self.out[cid].write)
            else:
                raise AssertionError(f"unexpected PDU type {pdu.kind}")
        return sent.cqe, sent.data

    def identify(self, cns, *, nsid=0, csi=0):
        cqe, page = self.admin.identify(cns, nsid=nsid, csi=csi)
        assert cqe.status == 0, cqe
        return page

    def close(self):
        self.queue.close()
        if self.own_admin:
            self.admin.close()


class RdmaQueue:
    """Data goes through regions of its own, one a command that is out."""
    in_capsule = 4096
    NR_REGIONS = 8

    def __init__(self, address, subnqn, *, depth=32, **who):
        self.pair = nvmerdma.Pair(address, subnqn, depth=depth, **who)
        self.out = {}
        self.next_region = 0

    def start(self, opcode, *, nsid=0, cdw=(), write=None, read=0, inline=False, length=None, flags=0x40):
        io = self.pair.io
        count = (len(write) if write is not None else read) if length is None else length
        cid, dptr, self.next_region = io.cid(), bytes(16), (self.next_region + 1) % self.NR_REGIONS
        self.out[cid] = sent = Sent(cid, write or b"", read)
        if inline:
            dptr = nvme.sgl(nvme.SGL_IN_CAPSULE, 0, count)
        elif count:
            io.say(f"forget {self.next_region}")
            address, key = io.region(self.next_region, max(count, 1))
            if write:
                io.fill(self.next_region, write)
            dptr = nvmerdma.keyed(address, count, key)
        sent.region = self.next_region
        io.send(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw, flags=flags)
                + (write if inline else b""))
        return sent

    def end(self, sent):
        while sent.cqe is None:
            cqe = self.pair.io.receive()
            self.out.pop(cqe.cid).cqe = cqe
        if sent.room and not sent.cqe.status:
            sent.data = self.pair.io.dump(sent.region, sent.room)
        return sent.cqe, sent.data

    def identify(self, cns, *, nsid=0, csi=0):
        admin = self.pair.admin
        admin.say("forget 9")
        address, key = admin.region(9, 4096)
        cqe = admin.command(nvme.IDENTIFY, nsid=nsid, cdw=(cns, csi << 24), dptr=nvmerdma.keyed(address, 4096, key))
        assert cqe.status == 0, cqe
        return admin.dump(9, 4096)

    def close(self):
        self.pair.io.kill()
        self.pair.admin.kill()


class Queue:
    """KIND is "tcp" or "rdma"."""

    def __init__(self, kind, address, subnqn, **kw):
        self.on = (RdmaQueue if kind == "rdma" else TcpQueue)(address, subnqn, **kw)
        self.start, self.end, self.identify, self.close = \
            self.on.start, self.on.end, self.on.identify, self.on.close
        self.in_capsule = self.on.in_capsule

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, opcode, **kw):
        return self.end(self.start(opcode, **kw))

    def status(self, opcode, **kw):
        return self.run(opcode, **kw)[0].status

    def write(self, slba, data, *, nsid, control=0, block=512):
        cqe, _ = self.run(nvme.WRITE, nsid=nsid, write=data, cdw=nvme.rw_cdw(slba, len(data) // block, control=control))
        assert cqe.status == 0, cqe

    def read(self, slba, count, *, nsid, block=512):
        cqe, data = self.run(nvme.READ, nsid=nsid, read=count * block, cdw=nvme.rw_cdw(slba, count))
        assert cqe.status == 0, cqe
        return data

# SPDX-License-Identifier: MIT
"""A raw NVMe/RDMA host: capsules and memory regions through the program rdma_raw."""
import os
import struct
import subprocess
import time

import conftest
import fabric
import nvme

SGL_KEYED = 0x40
SGL_KEYED_INVALIDATE = 0x4F
SGL_LAST_SEGMENT = 0x31      # offset subtype: the descriptors are in the capsule
REJECT_LENGTH, REJECT_RECFMT, REJECT_QID, REJECT_HSQSIZE, REJECT_HRQSIZE, REJECT_RESOURCES = \
    1, 2, 3, 4, 5, 6


def keyed(address, length, key, kind=SGL_KEYED):
    """A keyed data block descriptor: 24 bits of length, 32 of key."""
    return struct.pack("<Q", address) + struct.pack("<I", length)[:3] + struct.pack("<IB", key, kind)


NULL = keyed(0, 0, 0)    # what hosts send with a command that has no data


def private(*, recfmt=0, qid=0, hrqsize=32, hsqsize=31, cntlid=0, cut=None):
    data = struct.pack("<HHHHH22x", recfmt, qid, hrqsize, hsqsize, cntlid)
    return data if cut is None else data[:cut]


# The variables that rdma_raw runs with: tests/softrdma, unless it is another's target (conftest.pytest_configure).
environment = conftest.rdma_environment()


class Ended(fabric.Gone):
    """The connection is gone."""


class Rdma:
    def __init__(self, address, *, data=None, depth=0, source="-", receives=128, **kw):
        self.raw = subprocess.Popen([str(conftest.BUILD / "tests" / "wire" / "rdma_raw")],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env=environment)     # it ends when its input does
        data = private(**kw) if data is None else data
        self.qid = kw.get("qid", 0)
        answer = self.say(f"connect {address[0]} {address[1]} {data.hex() or '-'} {depth} "
                          f"{source} {receives}")
        self.outcome, _, rest = answer.partition(" ")
        self.private = bytes.fromhex(rest) if self.outcome in ("established", "rejected") else rest
        self.next_cid = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.raw.kill()
        self.raw.wait()
        self.raw.stdin.close()
        self.raw.stdout.close()

    def say(self, line):
        self.raw.stdin.write(line + "\n")
        self.raw.stdin.flush()
        return self.raw.stdout.readline().strip()

    @property
    def reject(self):
        assert self.outcome == "rejected", (self.outcome, self.private)
        return struct.unpack_from("<HH", self.private)

    def region(self, number, size, access="both"):
        _, address, key = self.say(f"region {number} {size} {access}").split()
        return int(address), int(key)

    def fill(self, number, data, offset=0):
        assert self.say(f"fill {number} {offset} {data.hex()}") == "ok"

    def dump(self, number, size, offset=0):
        return bytes.fromhex(self.say(f"dump {number} {offset} {size}").split()[1])

    def send(self, capsule):
        answer = self.say(f"send {capsule.hex()}")
        if answer != "ok":
            raise Ended(answer)

    def receive(self, timeout=None):
        answer = self.say(f"receive {int((timeout or fabric.PATIENCE) * 1000)}").split(" ", 1)
        if answer[0] == "error":
            raise Ended(answer[1])
        assert answer[0] == "capsule", answer
        return nvme.Cqe(bytes.fromhex(answer[1]))

    def expect_end(self, within=None):
        within = fabric.PATIENCE if within is None else within
        assert self.say(f"ended {int(within * 1000)}") == "yes", "the connection is still open"

    def cid(self):
        self.next_cid = self.next_cid % 0x7FFF + 1
        return self.next_cid

    def command(self, opcode, *, nsid=0, cdw=(), dptr=NULL, inline=b"", flags=0x40):
        cid = self.cid()
        self.send(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw, flags=flags) + inline)
        return self.response(cid)

    def response(self, cid):
        cqe = self.receive()
        assert cqe.cid == cid
        return cqe

    def connect(self, *, subnqn, hostnqn=fabric.HOSTNQN, cntlid=0xFFFF, hostid=fabric.HOSTID, data=None, qid=None,
                inline=False, **kw):
        """The data is read from the host, as that of hosts is: not each target has room for it in an admin capsule."""
        if data is None:
            data = nvme.connect_data(hostid=hostid, cntlid=cntlid, subnqn=subnqn, hostnqn=hostnqn)
        cid, dptr = self.cid(), nvme.sgl(nvme.SGL_IN_CAPSULE, 0, len(data))
        if not inline:
            address, key = self.region(15, len(data), "read")
            self.fill(15, data)
            dptr = keyed(address, len(data), key)
        self.send(nvme.connect_command(cid=cid, qid=self.qid if qid is None else qid, dptr=dptr, **kw)
                  + (data if inline else b""))
        return self.response(cid)

    def property(self, fctype, offset, value=0, size8=0):
        cid = self.cid()
        self.send(nvme.fabrics(fctype, struct.pack("<B3xIQ", size8, offset, value), cid=cid, dptr=NULL))
        return self.response(cid)

    def enable(self):
        assert self.property(nvme.PROPERTY_SET, nvme.CC, 0x00460001).status == 0
        limit = time.monotonic() + 5
        while not self.property(nvme.PROPERTY_GET, nvme.CSTS).dw0 & 1:
            assert time.monotonic() < limit


class Pair:
    """An admin queue and one I/O queue of a controller. WHO: hostnqn and hostid."""

    def __init__(self, address, subnqn, *, depth=32, source="-", receives=128, **who):
        self.admin = Rdma(address, source=source)
        assert self.admin.outcome == "established", self.admin.private
        cqe = self.admin.connect(subnqn=subnqn, sqsize=31, **who)
        assert cqe.status == 0, cqe
        self.cntlid = cqe.dw0 & 0xFFFF
        self.admin.enable()
        self.io = Rdma(address, qid=1, hsqsize=depth - 1, hrqsize=depth, source=source,
                       receives=receives)
        assert self.io.outcome == "established", self.io.private
        cqe = self.io.connect(subnqn=subnqn, cntlid=self.cntlid, sqsize=depth - 1, **who)
        assert cqe.status == 0, cqe

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.io.kill()
        self.admin.kill()


class Queue(fabric.Queue, Rdma):
    """A queue on which data goes through regions of their own, one a command that is out.

    For a read it comes filled with UNTOUCHED; what is left of that at the end was not written.
    """
    kind = "rdma"
    NR_REGIONS = 8
    UNTOUCHED = b"\xc5"

    def __init__(self, address, *, qid=0, sqsize=31, **kw):
        super().__init__(address, qid=qid, hsqsize=sqsize, hrqsize=sqsize + 1, **kw)
        assert self.outcome == "established", (self.outcome, self.private)
        self.reads, self.waiting, self.next_region = {}, {}, 0

    def close(self):
        self.kill()

    def start(self, opcode, *, nsid=0, cdw=(), read=0, inline=None, fetched=None, length=None, flags=0x40):
        cid, dptr, data = self.cid(), NULL, inline if inline is not None else fetched
        count = (read if data is None else len(data)) if length is None else length
        if inline is not None:
            dptr = nvme.sgl(nvme.SGL_IN_CAPSULE, 0, count)
        elif count:
            self.next_region = (self.next_region + 1) % self.NR_REGIONS
            address, key = self.region(self.next_region, max(count, len(data or b"")),
                                       "both" if data is not None else "both,marked")
            if data:
                self.fill(self.next_region, data)
            dptr = keyed(address, count, key)
        self.reads[cid] = (self.next_region, read)
        self.send(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw, flags=flags) + (inline or b""))
        return cid

    def start_fabrics(self, fctype, body):
        cid = self.cid()
        self.send(nvme.fabrics(fctype, body, cid=cid, dptr=NULL))
        return cid

    def finish(self, cid):
        while cid not in self.waiting:
            cqe = self.receive()
            self.waiting[cqe.cid] = cqe
        cqe, (region, read) = self.waiting.pop(cid), self.reads.pop(cid, (0, 0))
        data = self.dump(region, read) if read and not cqe.status else b""
        bare = data.rstrip(self.UNTOUCHED)
        return cqe, data if len(data) - len(bare) < 4 else bare

    def expect_end(self, fes=None, *, within=None):
        super().expect_end(within)


class Admin(fabric.Admin, Queue):
    """An admin queue with an enabled controller."""

    def __init__(self, address, subnqn, *, kato=0, enable=True, hostnqn=None, hostid=fabric.HOSTID, obey=False, **kw):
        super().__init__(address, **kw)
        self.address, self.obey = address, obey
        self.join(subnqn, kato=kato, enable=enable, hostnqn=hostnqn, hostid=hostid)

    def new_queue(self, *, qid, sqsize, **kw):
        return Queue(self.address, qid=qid, sqsize=sqsize, **kw)


def still_serves(hauld, subnqn):
    """Another host connects and reads: nothing that a test did hurt the target."""
    with Pair(hauld.address, subnqn) as both:
        address, key = both.io.region(0, 512)
        assert both.io.command(nvme.READ, nsid=1, dptr=keyed(address, 512, key),
                               cdw=nvme.rw_cdw(0, 1)).status == 0

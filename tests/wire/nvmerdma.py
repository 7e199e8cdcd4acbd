# SPDX-License-Identifier: MIT
"""A raw NVMe/RDMA host: capsules and memory regions through the program rdma_raw."""
import os
import struct
import subprocess
import time

import conftest
import nvme

SGL_KEYED = 0x40
SGL_KEYED_INVALIDATE = 0x4F
SGL_LAST_SEGMENT = 0x31      # offset subtype: the descriptors are in the capsule
REJECT_LENGTH, REJECT_RECFMT, REJECT_QID, REJECT_HSQSIZE, REJECT_HRQSIZE, REJECT_RESOURCES = \
    1, 2, 3, 4, 5, 6


def keyed(address, length, key, kind=SGL_KEYED):
    """A keyed data block descriptor: 24 bits of length, 32 of key."""
    return struct.pack("<Q", address) + struct.pack("<I", length)[:3] + struct.pack("<IB", key, kind)


def private(*, recfmt=0, qid=0, hrqsize=32, hsqsize=31, cntlid=0, cut=None):
    data = struct.pack("<HHHHH22x", recfmt, qid, hrqsize, hsqsize, cntlid)
    return data if cut is None else data[:cut]


class Ended(Exception):
    """The connection is gone."""


class Rdma:
    def __init__(self, address, *, data=None, depth=0, source="-", receives=128, **kw):
        self.raw = subprocess.Popen([str(conftest.BUILD / "tests" / "wire" / "rdma_raw")],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env=conftest.rdma_environment())
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

    def receive(self, timeout=5.0):
        answer = self.say(f"receive {int(timeout * 1000)}").split(" ", 1)
        if answer[0] == "error":
            raise Ended(answer[1])
        assert answer[0] == "capsule", answer
        return nvme.Cqe(bytes.fromhex(answer[1]))

    def expect_end(self, within=5.0):
        assert self.say(f"ended {int(within * 1000)}") == "yes", "the connection is still open"

    def cid(self):
        self.next_cid = self.next_cid % 0x7FFF + 1
        return self.next_cid

    def command(self, opcode, *, nsid=0, cdw=(), dptr=bytes(16), inline=b"", flags=0x40):
        cid = self.cid()
        self.send(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw, flags=flags) + inline)
        return self.response(cid)

    def response(self, cid):
        cqe = self.receive()
        assert cqe.cid == cid
        return cqe

    def connect(self, *, subnqn, hostnqn="nqn.2014-08.org.nvmexpress:uuid:"
                "11111111-2222-3333-4444-555555555555", cntlid=0xFFFF, hostid=bytes(range(1, 17)),
                by_read=False, **kw):
        data = nvme.connect_data(hostid=hostid, cntlid=cntlid, subnqn=subnqn, hostnqn=hostnqn)
        cid = self.cid()
        if by_read:
            address, key = self.region(15, 1024, "read")
            self.fill(15, data)
            dptr, inline = keyed(address, 1024, key), b""
        else:
            dptr, inline = nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 1024), data
        self.send(nvme.connect_command(cid=cid, qid=self.qid, dptr=dptr, **kw) + inline)
        return self.response(cid)

    def property(self, fctype, offset, value=0, size8=0):
        cid = self.cid()
        self.send(nvme.fabrics(fctype, struct.pack("<B3xIQ", size8, offset, value), cid=cid))
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


def still_serves(hauld, subnqn):
    """Another host connects and reads: nothing that a test did hurt the target."""
    with Pair(hauld.address, subnqn) as both:
        address, key = both.io.region(0, 512)
        assert both.io.command(nvme.READ, nsid=1, dptr=keyed(address, 512, key),
                               cdw=nvme.rw_cdw(0, 1)).status == 0

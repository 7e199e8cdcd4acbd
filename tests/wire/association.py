# SPDX-License-Identifier: MIT
"""Hosts of one subsystem, an admin queue and I/O queues that read and write one block, over either transport."""
import struct
import time

import conftest
import nvme
import nvmetcp
from nvmerdma import Rdma, keyed

NQN = "nqn.2026-11.io.haul:association"


class TcpHost:
    """An admin queue over TCP and I/O queues that only read and write one block."""

    kind = "tcp"

    def __init__(self, hauld, **kw):
        self.address = conftest.split_uri(hauld.uris[0])
        self.names = {key: kw[key] for key in ("hostnqn",) if key in kw}
        self.admin = nvmetcp.Admin(self.address, NQN, **kw)
        self.cntlid = self.admin.cntlid

    def connect(self, qid=1, **kw):
        """A new queue and the response to its Connect."""
        queue = nvmetcp.Tcp(self.address, qid=qid)
        return queue, queue.connect(subnqn=NQN, cntlid=kw.pop("cntlid", self.cntlid), **kw)

    def queue(self, qid=1):
        queue, cqe = self.connect(qid, **self.names)
        assert cqe.status == 0, cqe
        return queue

    @staticmethod
    def read(queue):
        return queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status

    @staticmethod
    def begin_write(queue, data):
        """The target has the data of a write of block 0 and says nothing yet."""
        queue.send(queue.capsule(nvme.command(
            nvme.WRITE, cid=queue.cid(), nsid=1, cdw=nvme.rw_cdw(0, 1),
            dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512)), data))

    @staticmethod
    def write(queue, data):
        return queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(0, 1), write=data)[0].status

    def begin_enabling(self):
        self.admin.send(self.admin.capsule(nvme.fabrics(
            nvme.PROPERTY_SET, struct.pack("<B3xIQ", 0, nvme.CC, 0x00460001), cid=self.admin.cid())))

    def keep_alive(self):
        return self.admin.command(nvme.KEEP_ALIVE)[0].status

    @staticmethod
    def leave(queue):
        queue.close()

    def close(self):
        self.admin.close()


class RdmaHost:
    kind = "rdma"

    def __init__(self, hauld, *, kato=0, enable=True, **kw):
        self.address = conftest.split_uri(hauld.uris[1])
        self.names = {key: kw[key] for key in ("hostnqn",) if key in kw}
        self.admin = Rdma(self.address)
        assert self.admin.outcome == "established", self.admin.private
        cqe = self.admin.connect(subnqn=NQN, sqsize=31, kato=kato, **kw)
        assert cqe.status == 0, cqe
        self.cntlid = cqe.dw0 & 0xFFFF
        if enable:
            self.admin.enable()
        self.queues = []

    def connect(self, qid=1, **kw):
        queue = Rdma(self.address, qid=qid)
        assert queue.outcome == "established", queue.private
        self.queues.append(queue)
        return queue, queue.connect(subnqn=NQN, sqsize=31, cntlid=kw.pop("cntlid", self.cntlid), **kw)

    def queue(self, qid=1):
        queue, cqe = self.connect(qid, **self.names)
        assert cqe.status == 0, cqe
        queue.at, queue.key = queue.region(0, 512)
        return queue

    @staticmethod
    def read(queue):
        return queue.command(nvme.READ, nsid=1, dptr=keyed(queue.at, 512, queue.key),
                             cdw=nvme.rw_cdw(0, 1)).status

    @staticmethod
    def begin_write(queue, data):
        queue.send(nvme.command(nvme.WRITE, cid=queue.cid(), nsid=1, cdw=nvme.rw_cdw(0, 1),
                                dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512)) + data)

    @staticmethod
    def write(queue, data):
        queue.fill(0, data)
        return queue.command(nvme.WRITE, nsid=1, dptr=keyed(queue.at, 512, queue.key),
                             cdw=nvme.rw_cdw(0, 1)).status

    def begin_enabling(self):
        self.admin.send(nvme.fabrics(nvme.PROPERTY_SET, struct.pack("<B3xIQ", 0, nvme.CC, 0x00460001),
                                     cid=self.admin.cid()))

    def keep_alive(self):
        return self.admin.command(nvme.KEEP_ALIVE).status

    @staticmethod
    def leave(queue):
        queue.kill()

    def close(self):
        for queue in self.queues:
            queue.kill()
        self.admin.kill()


HOSTS = [TcpHost, RdmaHost]


def cc(host, value):
    answer = host.admin.property_set(nvme.CC, value) if host.kind == "tcp" else \
        host.admin.property(nvme.PROPERTY_SET, nvme.CC, value)
    assert answer.status == 0, answer


def csts(host):
    if host.kind == "tcp":
        return host.admin.property_get(nvme.CSTS, 4)[1]
    cid = host.admin.cid()
    host.admin.send(nvme.fabrics(nvme.PROPERTY_GET, struct.pack("<B3xI", 0, nvme.CSTS), cid=cid))
    cqe = host.admin.receive()
    while cqe.cid != cid:    # that of begin_enabling()
        cqe = host.admin.receive()
    return cqe.dw0


def until(host, mask, value):
    limit = time.monotonic() + 10
    while csts(host) & mask != value:
        assert time.monotonic() < limit, hex(csts(host))

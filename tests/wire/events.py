# SPDX-License-Identifier: MIT
"""An admin queue whose host waits for events, whatever the transport."""
import time

import nvme
import nvmerdma
import nvmetcp

NOTICE = 2
NS_CHANGED = NOTICE | 0x00 << 8 | 0x04 << 16
DISCOVERY_CHANGED = NOTICE | 0xF0 << 8 | 0x70 << 16
AEC_NS, AEC_DISCOVERY = 1 << 8, 1 << 31
HOSTNQN = "nqn.2026-11.io.haul:listener"


class Tcp:
    def __init__(self, address, subnqn, hostnqn, kato):
        self.on = nvmetcp.Admin(address, subnqn, hostnqn=hostnqn, kato=kato)
        self.data = {}

    def start(self, opcode, nsid, cdw, read):
        cid = self.on.cid()
        dptr = nvme.sgl(nvme.SGL_TRANSPORT, 0, read)
        self.on.send(self.on.capsule(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw)))
        self.data[cid] = bytearray()
        return cid

    def receive(self, timeout):
        """The next response, or None in time."""
        self.on.sock.settimeout(timeout)
        try:
            while True:
                pdu = self.on.recv_pdu()
                if pdu.kind == nvmetcp.RSP:
                    return nvme.Cqe(pdu.header[8:24])
                assert pdu.kind == nvmetcp.C2H_DATA
                cid = int.from_bytes(pdu.header[8:10], "little")
                self.data[cid] += pdu.data
                if pdu.flags & nvmetcp.F_SUCCESS:
                    return nvme.Cqe(bytes(12) + cid.to_bytes(2, "little") + bytes(2))
        except TimeoutError:
            return None
        finally:
            self.on.sock.settimeout(5)

    def take(self, cid, read):
        return bytes(self.data.pop(cid))[:read]

    def close(self):
        self.on.close()


class Rdma:
    REGION = 9

    def __init__(self, address, subnqn, hostnqn, kato):
        self.on = nvmerdma.Rdma(address)
        assert self.on.outcome == "established", self.on.private
        assert self.on.connect(subnqn=subnqn, hostnqn=hostnqn, kato=kato, sqsize=31).status == 0
        self.on.enable()

    def start(self, opcode, nsid, cdw, read):
        cid, dptr = self.on.cid(), bytes(16)
        if read:
            self.on.say(f"forget {self.REGION}")
            address, key = self.on.region(self.REGION, read)
            dptr = nvmerdma.keyed(address, read, key)
        self.on.send(nvme.command(opcode, cid=cid, nsid=nsid, dptr=dptr, cdw=cdw))
        return cid

    def receive(self, timeout):
        answer = self.on.say(f"receive {int(timeout * 1000)}").split(" ", 1)
        if answer[0] == "capsule":
            return nvme.Cqe(bytes.fromhex(answer[1]))
        if answer[0] == "timeout":
            return None
        raise nvmerdma.Ended(answer)

    def take(self, _, read):
        return self.on.dump(self.REGION, read)

    def close(self):
        self.on.kill()


class Host:
    """KIND is "tcp" or "rdma". Asks for all events and for AERS of them at a time."""

    def __init__(self, kind, address, subnqn, *, hostnqn=HOSTNQN, kato=120000, aers=4, configuration=0xFFFFBFFF):
        self.on = (Rdma if kind == "rdma" else Tcp)(address, subnqn, hostnqn, kato)
        self.events, self.asked = [], set()
        if configuration is not None:
            assert self.run(nvme.SET_FEATURES, cdw=(0x0B, configuration))[0].status == 0
        self.ask(aers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.on.close()

    def _note(self, cqe):
        assert cqe.cid in self.asked, cqe
        assert cqe.status == 0, cqe
        self.asked.remove(cqe.cid)
        self.events.append(cqe.dw0)

    def ask(self, count=1):
        for _ in range(count):
            self.asked.add(self.on.start(nvme.ASYNC_EVENT, 0, (), 0))

    def run(self, opcode, *, nsid=0, cdw=(), read=0):
        cid = self.on.start(opcode, nsid, cdw, read)
        while True:
            cqe = self.on.receive(5)
            assert cqe, "no response"
            if cqe.cid == cid:
                return cqe, self.on.take(cid, read) if read else b""
            self._note(cqe)

    def get_log(self, lid, length, *, offset=0, nsid=0xFFFFFFFF, rae=0, lsp=0):
        numd = length // 4 - 1
        cqe, data = self.run(nvme.GET_LOG, nsid=nsid, read=length, cdw=(
            lid | lsp << 8 | rae << 15 | (numd & 0xFFFF) << 16, numd >> 16, offset & 0xFFFFFFFF, offset >> 32))
        assert cqe.status == 0, cqe
        return data

    def event(self, *, within=5.0):
        """The next event; None: none came."""
        limit = time.monotonic() + within
        while not self.events and (left := limit - time.monotonic()) > 0:
            cqe = self.on.receive(left)
            if cqe:
                self._note(cqe)
        return self.events.pop(0) if self.events else None

    def nothing(self):
        """What has happened so far was not told: a later command is answered without an event."""
        assert self.run(nvme.KEEP_ALIVE)[0].status == 0
        assert not self.events, [hex(event) for event in self.events]

    def changed_namespaces(self, *, rae=0):
        data = self.get_log(4, 4096, rae=rae)
        ids = [int.from_bytes(data[at:at + 4], "little") for at in range(0, 4096, 4)]
        assert not any(ids[ids.index(0):])
        return ids[:ids.index(0)]

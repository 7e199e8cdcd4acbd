# SPDX-License-Identifier: MIT
"""Reservations (NVMe base 2.0 8.19 and 7.2 to 7.5), over TCP and RDMA."""
import fcntl
import os
import random
import signal
import struct
import time

import conftest
import control
import hosts
import nvme
import nvmerdma
import pytest

NSID = 1
REGISTER, UNREGISTER, REPLACE = 0, 1, 2
ACQUIRE, PREEMPT, PREEMPT_ABORT = 0, 1, 2
RELEASE, CLEAR = 0, 1
WE, EA, WE_RO, EA_RO, WE_AR, EA_AR = range(1, 7)
IEKEY = 8
PTPL_OFF, PTPL_ON = 2, 3
ABSENT = 0xFFFF


class Host:
    """A host with one controller and one I/O queue."""

    def __init__(self, kind, address, number, subnqn=conftest.MAIN):
        self.hostid = bytes([number]) * 16
        self.queue = hosts.Queue(kind, address, subnqn, hostid=self.hostid,
                                 hostnqn=f"nqn.2026-11.io.haul:host{number}")
        self.key = 0x1000 + number
        self.cntlid = self.queue.on.admin.cntlid if kind == "tcp" else self.queue.on.pair.cntlid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.queue.close()

    def run(self, opcode, word, *keys, nsid=NSID):
        return self.queue.status(opcode, nsid=nsid, cdw=(word,),
                                 write=struct.pack(f"<{len(keys)}Q", *keys))

    def register(self, action=REGISTER, *, current=0, key=None, iekey=0, cptpl=0):
        return self.run(nvme.RESV_REGISTER, action | iekey | cptpl << 30, current,
                        self.key if key is None else key)

    def acquire(self, rtype, action=ACQUIRE, *, key=None, preempt=0, iekey=0):
        return self.run(nvme.RESV_ACQUIRE, action | iekey | rtype << 8, self.key if key is None else key, preempt)

    def release(self, rtype, action=RELEASE, *, key=None):
        return self.run(nvme.RESV_RELEASE, action | rtype << 8, self.key if key is None else key)

    def report(self, size=4096):
        cqe, data = self.queue.run(nvme.RESV_REPORT, nsid=NSID, cdw=(size // 4 - 1, 1), read=size)
        assert cqe.status == 0, cqe
        return Report(data)

    def write(self):
        return self.queue.status(nvme.WRITE, nsid=NSID, write=bytes(512), cdw=nvme.rw_cdw(0, 1))

    def read(self):
        return self.queue.status(nvme.READ, nsid=NSID, read=512, cdw=nvme.rw_cdw(0, 1))


class Report:
    """The extended form."""

    def __init__(self, data):
        self.generation, self.rtype, self.count, self.ptpls = struct.unpack_from("<IBH2xB", data)
        self.entries = []
        for at in range(64, len(data) - 63, 64):
            cntlid, status, key, hostid = struct.unpack_from("<HB5xQ16s", data, at)
            if hostid != bytes(16):
                self.entries.append((hostid[0], cntlid, status, key))
        self.entries.sort()

    def holders(self):
        return sorted({number for number, _, status, _ in self.entries if status & 1})

    def keys(self):
        return {number: key for number, _, _, key in self.entries}


def address(hauld, kind):
    return hauld.address_of(kind)


def start(directory, *options, **kw):
    path = conftest.config(directory)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    return conftest.Hauld(directory, "--config", str(path), "--threads", "3", *options,
                          env=conftest.rdma_environment(), **kw)


@pytest.fixture(scope="module")
def hauld(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reservation")
    state = directory / "state"
    state.mkdir()
    daemon = start(directory, "--state", str(state))
    yield daemon
    assert daemon.alive(), daemon.log_path.read_text()
    assert daemon.stop() == 0, daemon.log_path.read_text()


@pytest.fixture(params=["tcp", "rdma"])
def three(request, hauld):
    """Hosts 1, 2 and 3; at the end nobody is registered."""
    with Host(request.param, address(hauld, request.param), 1) as one, \
            Host(request.param, address(hauld, request.param), 2) as two, \
            Host(request.param, address(hauld, request.param), 3) as three_:
        yield one, two, three_
        one.register(REPLACE, iekey=IEKEY, cptpl=PTPL_OFF)
        assert one.release(WE, CLEAR) == 0
        assert one.report().count == 0


# --- registering, the report ------------------------------------------------------------------

def test_identify_says_what_there_is(three):
    one = three[0]
    assert struct.unpack_from("<H", one.queue.identify(1), 520)[0] & 1 << 5      # ONCS
    assert one.queue.identify(0, nsid=NSID)[31] == 0xFF         # all types, IEKEY, PTPL
    assert one.queue.identify(8, nsid=NSID)[2] == 0xFF
    assert one.queue.identify(0, nsid=3)[31] == 0xFE            # memory does not persist


def test_registrants_are_reported(three):
    one, two, other = three
    before = one.report().generation
    assert [host.register() for host in three] == [0, 0, 0]
    assert two.register(key=9) == nvme.RESERVATION_CONFLICT
    assert two.register(REPLACE, current=two.key, key=one.key) == 0
    report = other.report()
    assert (report.generation, report.rtype, report.count) == (before + 4, 0, 3)
    assert report.entries == [(1, one.cntlid, 0, one.key), (2, two.cntlid, 0, one.key),
                              (3, other.cntlid, 0, other.key)]


def test_a_host_that_is_gone_stays_registered(three, hauld):
    """B066"""
    one, *_ = three
    kind = "tcp" if isinstance(one.queue.on, hosts.TcpQueue) else "rdma"
    assert one.register() == 0
    with Host(kind, address(hauld, kind), 9) as gone:
        assert gone.register() == 0
        assert gone.acquire(EA) == 0
        with Host(kind, address(hauld, kind), 9) as path:
            assert sorted(entry[1] for entry in one.report().entries if entry[0] == 9) == \
                sorted((gone.cntlid, path.cntlid))
            assert path.write() == 0
    deadline = time.monotonic() + 5
    while one.report().entries[1][1] != ABSENT:
        assert time.monotonic() < deadline
    report = one.report()
    assert report.entries == [(1, one.cntlid, 0, one.key), (9, ABSENT, 1, 0x1009)]
    assert (report.count, report.rtype, report.holders()) == (2, EA, [9])
    assert one.read() == nvme.RESERVATION_CONFLICT
    with Host(kind, address(hauld, kind), 9) as again:
        assert again.write() == 0


@pytest.mark.parametrize("size", [4, 24, 64, 68, 128, 192, 4096, 65536])
def test_report_is_cut_to_what_is_asked(three, size):
    """B066"""
    one = three[0]
    assert [host.register() for host in three] == [0, 0, 0]
    whole = one.queue.run(nvme.RESV_REPORT, nsid=NSID, cdw=(1023, 1), read=4096)[1]
    cqe, data = one.queue.run(nvme.RESV_REPORT, nsid=NSID, cdw=(size // 4 - 1, 1), read=size)
    assert cqe.status == 0
    assert data == (whole + bytes(65536))[:size]
    assert len(data) == size


def test_report_without_extended_identifiers_is_refused(three):
    cqe, _ = three[0].queue.run(nvme.RESV_REPORT, nsid=NSID, cdw=(15, 0), read=64)
    assert cqe.status == nvme.HOSTID_FORMAT
    cqe, _ = three[0].queue.run(nvme.RESV_REPORT, nsid=NSID, cdw=(0xFFFFFFFF, 1), read=64)
    assert cqe.status == nvme.INVALID_FIELD
    cqe, _ = three[0].queue.run(nvme.RESV_REPORT, nsid=77, cdw=(15, 1), read=64)
    assert cqe.status == nvme.INVALID_FIELD


# --- conflicts --------------------------------------------------------------------------------

def commands(host):
    """Every I/O command and its group; all ends of one namespace."""
    run = host.queue.status
    one = nvme.rw_cdw(0, 1)
    copy = struct.pack("<8xQH6x8x", 0, 0)
    return {
        "read": [run(nvme.READ, nsid=NSID, read=512, cdw=one),
                 run(nvme.COMPARE, nsid=NSID, write=bytes(512), cdw=one),
                 run(nvme.VERIFY, nsid=NSID, cdw=one)],
        "write": [run(nvme.WRITE, nsid=NSID, write=bytes(512), cdw=one),
                  run(nvme.WRITE, nsid=NSID, write=bytes(512), cdw=one, inline=True),
                  run(nvme.WRITE_ZEROES, nsid=NSID, cdw=one),
                  run(nvme.DSM, nsid=NSID, cdw=(0, 4), write=struct.pack("<IIQ", 0, 1, 100)),
                  run(nvme.COPY, nsid=NSID, cdw=(8, 0, 0), write=copy),
                  run(nvme.FLUSH, nsid=NSID),
                  run(nvme.FLUSH, nsid=0xFFFFFFFF)]}


@pytest.mark.parametrize("rtype, registrant, stranger", [
    (WE, "read", "read"), (EA, "", ""), (WE_RO, "read write", "read"), (EA_RO, "read write", ""),
    (WE_AR, "read write", "read"), (EA_AR, "read write", "")])
def test_conflicts_are_as_in_the_table(three, rtype, registrant, stranger):
    holder, other, outsider = three
    assert [holder.register(), other.register()] == [0, 0]
    assert holder.acquire(rtype) == 0
    for host, allowed in ((holder, "read write"), (other, registrant), (outsider, stranger)):
        for group, statuses in commands(host).items():
            expected = 0 if group in allowed else nvme.RESERVATION_CONFLICT
            assert statuses == [expected] * len(statuses), (host.key, group)
    assert outsider.acquire(rtype) == nvme.RESERVATION_CONFLICT
    assert outsider.release(rtype) == nvme.RESERVATION_CONFLICT
    assert holder.release(rtype) == 0
    assert outsider.write() == 0


@pytest.mark.parametrize("rtype", [WE, EA])
def test_fused_pair_conflicts_as_its_parts(three, rtype):
    holder, _, outsider = three
    data = bytes(512)
    assert holder.write() == 0
    assert holder.register() == 0
    assert holder.acquire(rtype) == 0
    for host in (holder, outsider):
        pair = [host.queue.start(opcode, nsid=NSID, write=data, cdw=nvme.rw_cdw(0, 1), flags=0x40 | fuse)
                for opcode, fuse in ((nvme.COMPARE, 1), (nvme.WRITE, 2))]
        compared, written = [host.queue.end(sent)[0].status for sent in pair]
        if host is holder:
            assert (compared, written) == (0, 0)
        elif rtype == WE:
            assert (compared, written) == (nvme.FUSED_FAILED, nvme.RESERVATION_CONFLICT)
        else:
            # Either may be the first to be looked at.
            assert {compared, written} <= {nvme.FUSED_FAILED, nvme.RESERVATION_CONFLICT}
            assert nvme.RESERVATION_CONFLICT in (compared, written)


def test_other_namespaces_are_free(three):
    holder, _, outsider = three
    assert holder.register() == 0
    assert holder.acquire(EA) == 0
    assert outsider.queue.status(nvme.WRITE, nsid=3, write=bytes(512), cdw=nvme.rw_cdw(0, 1)) == 0


def test_preempt_takes_the_reservation(three):
    one, two, other = three
    assert [host.register() for host in three] == [0, 0, 0]
    assert one.acquire(WE) == 0
    assert two.write() == nvme.RESERVATION_CONFLICT
    assert two.acquire(EA_RO, PREEMPT_ABORT, preempt=one.key) == 0
    assert [host.write() for host in three] == [nvme.RESERVATION_CONFLICT, 0, 0]
    report = other.report()
    assert (report.holders(), report.rtype, set(report.keys())) == ([2], EA_RO, {2, 3})


@pytest.mark.parametrize("opcode, word, length", [
    (nvme.RESV_REGISTER, 3, 16), (nvme.RESV_REGISTER, 1 << 30, 16), (nvme.RESV_ACQUIRE, 3 | 1 << 8, 16),
    (nvme.RESV_ACQUIRE, 0, 16), (nvme.RESV_ACQUIRE, 7 << 8, 16), (nvme.RESV_ACQUIRE, IEKEY | 1 << 8, 16),
    (nvme.RESV_RELEASE, 2, 8), (nvme.RESV_RELEASE, IEKEY, 8)])
def test_reserved_values_are_invalid(three, opcode, word, length):
    one = three[0]
    assert one.register() == 0
    assert one.queue.status(opcode, nsid=NSID, cdw=(word,),
                            write=struct.pack("<QQ", one.key, 0)[:length]) == nvme.INVALID_FIELD


@pytest.mark.parametrize("opcode, length", [(nvme.RESV_REGISTER, 8), (nvme.RESV_ACQUIRE, 8), (nvme.RESV_RELEASE, 4)])
def test_short_data_is_refused(three, opcode, length):
    assert three[0].queue.status(opcode, nsid=NSID, cdw=(0x100,), write=bytes(length)) == nvme.SGL_LENGTH_INVALID


@pytest.mark.parametrize("nsid", [0, 2, 0xFFFFFFFE, 0xFFFFFFFF])
def test_invalid_namespaces_are_refused(three, nsid):
    assert three[0].run(nvme.RESV_REGISTER, 0, 0, 1, nsid=nsid) == nvme.no_namespace(nsid)


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_a_host_without_identifier_cannot_register(hauld, kind):
    with Host(kind, address(hauld, kind), 0) as nobody:
        assert nobody.register() == nvme.OPERATION_DENIED
        assert nobody.report().count == 0


# --- through power loss -----------------------------------------------------------------------

def test_nothing_persists_without_a_directory(tmp_path):
    daemon = start(tmp_path)
    with Host("tcp", address(daemon, "tcp"), 1) as one:
        assert one.queue.identify(0, nsid=NSID)[31] == 0xFE
        assert one.register(cptpl=PTPL_ON) == nvme.INVALID_FIELD
        assert one.register(cptpl=PTPL_OFF) == 0
        assert one.report().ptpls == 0
    assert daemon.stop() == 0


def kill(daemon, directory):
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()
    # The kernel takes the ring apart behind its back, and so long it has the disks.
    for name in ("disk", "disk4k"):
        with open(directory / name, "rb") as disk:
            fcntl.flock(disk, fcntl.LOCK_EX)


def restart(daemon, directory, state):
    kill(daemon, directory)
    return start(directory, "--state", str(state))


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_state_is_there_after_a_restart(tmp_path, kind):
    """B066"""
    state = tmp_path / "state"
    state.mkdir()
    daemon = start(tmp_path, "--state", str(state))
    with Host(kind, address(daemon, kind), 1) as one, Host(kind, address(daemon, kind), 2) as two:
        assert one.register(cptpl=PTPL_ON) == 0
        assert two.register() == 0
        assert one.register(REPLACE, current=one.key, key=77) == 0
        assert one.acquire(EA_RO, key=77) == 0
        before = one.report()
        assert before.ptpls == 1
    daemon = restart(daemon, tmp_path, state)
    with Host(kind, address(daemon, kind), 1) as one, Host(kind, address(daemon, kind), 3) as other:
        after = one.report()
        assert (after.generation, after.rtype, after.ptpls) == (before.generation, EA_RO, 1)
        assert (after.keys(), after.holders()) == ({1: 77, 2: 0x1002}, [1])
        assert other.read() == nvme.RESERVATION_CONFLICT
        assert one.write() == 0
        assert one.register(REPLACE, iekey=IEKEY, key=1, cptpl=PTPL_OFF) == 0
        assert not list(state.iterdir())
    daemon = restart(daemon, tmp_path, state)
    with Host(kind, address(daemon, kind), 3) as other:
        after = other.report()
        assert (after.generation, after.rtype, after.count, after.ptpls) == (0, 0, 0, 0)
        assert other.write() == 0
    assert daemon.stop() == 0


def test_a_damaged_file_is_told(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    daemon = start(tmp_path, "--state", str(state))
    with Host("tcp", address(daemon, "tcp"), 1) as one:
        assert one.register(cptpl=PTPL_ON) == 0
    daemon.stop()
    stored, = state.iterdir()
    stored.write_bytes(stored.read_bytes()[:-5])
    with pytest.raises(AssertionError, match="damaged") as told:
        start(tmp_path, "--state", str(state))
    assert str(stored) in str(told.value)


def test_what_cannot_be_stored_is_not_so(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    daemon = start(tmp_path, "--state", str(state))
    state.rmdir()
    with Host("tcp", address(daemon, "tcp"), 1) as one:
        for _ in range(50):
            assert one.register(cptpl=PTPL_ON) == 0x006, "Internal Error"
        assert one.report().count == 0
    assert 1 <= daemon.log_path.read_text().count("cannot be stored") <= 20, "a host must not fill the log"
    assert daemon.stop() == 0


def test_two_cannot_share_a_directory(tmp_path):
    daemon = start(tmp_path, "--state", str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(AssertionError, match="another hauld"):
        start(other, "--state", str(tmp_path))
    assert daemon.stop() == 0


def test_killed_at_any_time_it_knows_what_it_has_answered(tmp_path):
    """What was answered is there; what was not is there whole or not at all."""
    state = tmp_path / "state"
    state.mkdir()
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    generation = 0
    for _ in range(12):
        daemon = start(tmp_path, "--state", str(state))
        with Host("tcp", address(daemon, "tcp"), 1) as one:
            report = one.report()
            assert report.generation >= generation, seed
            key = report.keys().get(1)
            if key is not None:
                # Each command has written the generation it makes as its key.
                assert key == report.generation and report.ptpls == 1, seed
            generation = report.generation
            ends = time.monotonic() + chance.uniform(0, 0.1)
            while True:
                sent = one.queue.start(nvme.RESV_REGISTER, nsid=NSID, cdw=(REPLACE | IEKEY | PTPL_ON << 30,),
                                       write=struct.pack("<QQ", 0, generation + 1), inline=True)
                if time.monotonic() > ends:
                    time.sleep(chance.uniform(0, 0.002))
                    break
                assert one.queue.end(sent)[0].status == 0
                generation += 1
            kill(daemon, tmp_path)
    assert generation > 12


# --- notifications and features ---------------------------------------------------------------

NOTIFICATION_MASK, PERSISTENCE = 0x82, 0x83
RESERVATION_LOG = 0x80
REGISTRATION_PREEMPTED, RELEASED, PREEMPTED = 1, 2, 3


class Watcher:
    """The admin queue of a host, over TCP or RDMA: events, the log page, features."""

    def __init__(self, host):
        self.tcp = isinstance(host.queue.on, hosts.TcpQueue)
        self.admin = host.queue.on.admin if self.tcp else host.queue.on.pair.admin

    def command(self, opcode, *, nsid=0, cdw=(), read=0):
        if self.tcp:
            return self.admin.command(opcode, nsid=nsid, cdw=cdw, read=read)
        dptr = bytes(16)
        if read:
            self.admin.say("forget 8")
            where, key = self.admin.region(8, read)
            dptr = nvmerdma.keyed(where, read, key)
        cqe = self.admin.command(opcode, nsid=nsid, cdw=cdw, dptr=dptr)
        return cqe, self.admin.dump(8, read) if read and not cqe.status else b""

    def ask(self):
        cid = self.admin.cid()
        sqe = nvme.command(nvme.ASYNC_EVENT, cid=cid)
        self.admin.send(self.admin.capsule(sqe) if self.tcp else sqe)
        return cid

    def told(self, cid):
        cqe = self.admin.finish(cid)[0] if self.tcp else self.admin.response(cid)
        assert cqe.status == 0
        return cqe.dw0

    def page(self, *, retain=0):
        """(count, type, further pages, namespace) of the oldest notification."""
        cqe, data = self.command(nvme.GET_LOG, nsid=0xFFFFFFFF, read=64,
                                 cdw=(RESERVATION_LOG | retain << 15 | 15 << 16, 0, 0, 0))
        assert cqe.status == 0, cqe
        assert not any(data[16:])
        return struct.unpack_from("<QBB2xI", data)

    def get(self, fid, *, nsid=NSID, sel=0):
        cqe, _ = self.command(nvme.GET_FEATURES, nsid=nsid, cdw=(fid | sel << 8,))
        return cqe.status or cqe.dw0

    def set(self, fid, value, *, nsid=NSID, save=0):
        return self.command(nvme.SET_FEATURES, nsid=nsid, cdw=(fid | save << 31, value))[0].status


def test_hosts_are_told(three):
    """8.19.1"""
    one, two, _ = three
    watch = Watcher(two)
    assert [host.register() for host in three] == [0, 0, 0]
    assert watch.page() == (0, 0, 0, 0)
    event = watch.ask()
    assert one.acquire(WE_RO) == 0
    assert one.release(WE_RO) == 0
    assert watch.told(event) == 6 | 0 << 8 | RESERVATION_LOG << 16
    assert one.acquire(WE, PREEMPT, preempt=two.key) == 0
    first = watch.page(retain=1)
    assert first[1:] == (RELEASED, 1, NSID)
    assert watch.page() == first
    assert watch.page() == (first[0] + 1, REGISTRATION_PREEMPTED, 0, NSID)
    assert watch.page() == (0, 0, 0, 0)
    assert two.register() == 0
    event = watch.ask()
    assert one.release(0, CLEAR) == 0
    assert watch.told(event) == 6 | RESERVATION_LOG << 16
    assert watch.page()[1:] == (PREEMPTED, 0, NSID)


def test_notifications_can_be_masked(three):
    """5.27.1.26"""
    one, two, _ = three
    watch = Watcher(two)
    assert watch.get(NOTIFICATION_MASK) == 0
    assert watch.get(NOTIFICATION_MASK, sel=3) == 6       # changeable, of a namespace, not saveable
    assert watch.set(NOTIFICATION_MASK, 1 << RELEASED) == 0
    assert watch.get(NOTIFICATION_MASK) == 1 << RELEASED
    assert watch.get(NOTIFICATION_MASK, nsid=3) == 0
    assert Watcher(one).get(NOTIFICATION_MASK) == 0
    assert [one.register(), two.register(), one.acquire(EA_AR), one.release(EA_AR)] == [0] * 4
    assert watch.page() == (0, 0, 0, 0)
    assert watch.set(NOTIFICATION_MASK, 0, nsid=0xFFFFFFFF) == 0
    assert [one.acquire(EA_AR), one.release(EA_AR)] == [0, 0]
    assert watch.page()[1] == RELEASED
    assert watch.set(NOTIFICATION_MASK, 1) == nvme.INVALID_FIELD
    assert watch.set(NOTIFICATION_MASK, 0, save=1) == nvme.NOT_SAVEABLE
    assert watch.set(NOTIFICATION_MASK, 0, nsid=2) == nvme.INVALID_FIELD
    assert watch.get(NOTIFICATION_MASK, nsid=0xFFFFFFFF) == nvme.INVALID_FIELD


def test_persistence_is_a_feature(three, hauld):
    """5.27.1.27: of the namespace, for all hosts."""
    one, two, _ = three
    state = hauld.log_path.parent / "state"
    assert Watcher(one).get(PERSISTENCE) == 0
    assert one.register() == 0
    assert not list(state.iterdir())
    assert Watcher(two).set(PERSISTENCE, 1) == 0
    assert Watcher(one).get(PERSISTENCE) == 1
    assert one.report().ptpls == 1
    assert len(list(state.iterdir())) == 1
    assert Watcher(one).set(PERSISTENCE, 2) == nvme.INVALID_FIELD
    assert Watcher(one).set(PERSISTENCE, 1, nsid=3) == nvme.INVALID_FIELD       # memory
    assert Watcher(one).set(PERSISTENCE, 0, nsid=0xFFFFFFFF) == 0
    assert one.report().ptpls == 0
    assert not list(state.iterdir())
    assert Watcher(one).set(PERSISTENCE, 1, nsid=0xFFFFFFFF) == 0
    assert (Watcher(one).get(PERSISTENCE), Watcher(one).get(PERSISTENCE, nsid=3)) == (1, 0)
    assert [path.suffix for path in state.iterdir()] == [".reservation"]


def test_effects_are_told(three):
    cqe, page = Watcher(three[0]).command(nvme.GET_LOG, nsid=0xFFFFFFFF, read=4096, cdw=(5 | 1023 << 16, 0))
    assert cqe.status == 0
    for opcode in (nvme.RESV_REGISTER, nvme.RESV_REPORT, nvme.RESV_ACQUIRE, nvme.RESV_RELEASE):
        assert struct.unpack_from("<I", page, 1024 + 4 * opcode)[0] & 1
    cqe, page = Watcher(three[0]).command(nvme.GET_LOG, nsid=0xFFFFFFFF, read=1024, cdw=(0x12 | 255 << 16, 0))
    for fid in (NOTIFICATION_MASK, PERSISTENCE):
        assert struct.unpack_from("<I", page, 4 * fid)[0] == 1 | 1 << 20


# --- changes ----------------------------------------------------------------------------------

def test_a_namespace_keeps_its_reservation_over_changes(tmp_path):
    """It is taken away, and given back."""
    daemon = start(tmp_path)
    text = (tmp_path / "hauld.conf").read_text()
    without = text.replace(f"      - path: {tmp_path}/disk\n        nsid: 1\n", "")
    assert without != text
    with Host("tcp", address(daemon, "tcp"), 1) as one, Host("tcp", address(daemon, "tcp"), 2) as two, \
            control.Control(daemon.control) as socket:
        assert [one.register(), one.acquire(WE)] == [0, 0]
        assert socket.change(without)
        assert one.write() == nvme.INVALID_FIELD
        assert socket.change(text)
        assert [one.write(), two.write()] == [0, nvme.RESERVATION_CONFLICT]
        assert two.report().holders() == [1]
    assert daemon.stop() == 0


def test_a_damaged_file_keeps_a_namespace_out(tmp_path):
    """... that a change would add; nothing changes then."""
    state = tmp_path / "state"
    state.mkdir()
    daemon = start(tmp_path, "--state", str(state))
    with Host("tcp", address(daemon, "tcp"), 1, conftest.BLOCKS_4K) as one:
        assert one.register(cptpl=PTPL_ON) == 0
    daemon.stop()
    stored, = state.iterdir()
    good = stored.read_bytes()
    path = tmp_path / "hauld.conf"
    text = path.read_text()
    path.write_text(text.replace(f"      - path: {tmp_path}/disk4k\n        nsid: 1\n        block: 4096\n",
                                 "      - ram: 1M\n        nsid: 2\n"))
    assert path.read_text() != text
    daemon = conftest.Hauld(tmp_path, "--config", str(path), "--state", str(state), env=conftest.rdma_environment())
    with control.Control(daemon.control) as socket:
        stored.write_bytes(b"x" + good)
        answer = socket.apply(text)
        assert "damaged" in answer["error"] and stored.name in answer["error"]
        stored.write_bytes(good)
        assert socket.change(text)
    with Host("tcp", address(daemon, "tcp"), 1, conftest.BLOCKS_4K) as one:
        assert one.report().keys() == {1: one.key}
    assert daemon.stop() == 0

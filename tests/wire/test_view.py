# SPDX-License-Identifier: MIT
"""Namespaces that some hosts of a subsystem see and others do not, over TCP and RDMA.

What is hidden is an inactive namespace id (NVMe base 2.0 3.2.1.5): commands get the status of one that is not there, and
no list, log page or event tells of it.
"""
import json
import struct
import threading

import conftest
import hosts
import nvme
import nvmetcp
import pytest
from control import Busy, Control, haulctl, wait_for
from events import AEC_NS, NS_CHANGED, Host

NQN = "nqn.2026-11.io.haul:views"
HOST_A, HOST_B, HOST_C = (f"nqn.2026-11.io.haul:host-{letter}" for letter in "abc")
# Who sees them; None: all. 4 is no namespace at all, 700 is nobody's.
NAMESPACES = {1: None, 2: [HOST_A], 5: [HOST_A, HOST_B], 700: []}
SIGHTS = {HOST_A: [1, 2, 5], HOST_B: [1, 5], HOST_C: [1]}
ABSENT = 4
ALL = 0xFFFFFFFF
AEC_ANA = 1 << 11


def config(namespaces=None, *, allow="any", groups=True):
    lines = [f"listen: {json.dumps(['tcp://127.0.0.1:0', 'rdma://127.0.0.1:0'])}", "subsystems:",
             f"  - nqn: {NQN}", f"    allow: {json.dumps(allow)}", "    namespaces:"]
    for nsid, seen_by in (namespaces or NAMESPACES).items():
        lines += ["      - ram: 1M", f"        nsid: {nsid}"]
        if groups:
            lines.append(f"        ana_group: {nsid % 100 + 1}")
        if seen_by is not None:
            lines.append(f"        allow: {json.dumps(seen_by)}")
    return "\n".join(lines) + "\n"


class Running:
    def __init__(self, hauld):
        self.hauld = hauld
        self.control = Control(hauld.control)

    def address(self, kind="tcp"):
        return conftest.split_uri(next(uri for uri in self.hauld.uris if uri.startswith(kind)))

    def admin(self, hostnqn, **kw):
        return nvmetcp.Admin(self.address(), NQN, hostnqn=hostnqn, **kw)

    def queue(self, kind, hostnqn):
        number = hostnqn[-1].encode()
        return hosts.Queue(kind, self.address(kind), NQN, hostnqn=hostnqn, hostid=number * 16)

    def listener(self, kind, hostnqn):
        return Host(kind, self.address(kind), NQN, hostnqn=hostnqn, configuration=AEC_NS | AEC_ANA)

    def change(self, namespaces, **kw):
        return self.control.change(config(namespaces, **kw))


@pytest.fixture
def running(start_hauld, tmp_path):
    path = tmp_path / "hauld.conf"
    path.write_text(config())
    state = tmp_path / "state"
    state.mkdir()
    running = Running(start_hauld("--config", str(path), "--threads", "2", "--state", str(state),
                                  env=conftest.rdma_environment()))
    running.path = path
    yield running
    running.control.close()


@pytest.fixture(params=["tcp", "rdma"])
def kind(request):
    return request.param


def ids(page):
    found = list(struct.unpack("<1024I", page[:4096]))
    assert not any(found[found.index(0):])
    return found[:found.index(0)]


def read(queue, nsid):
    return queue.status(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(0, 1), read=512)


def write(queue, nsid, data=b"w" * 512, slba=0):
    return queue.status(nvme.WRITE, nsid=nsid, cdw=nvme.rw_cdw(slba, 1), write=data)


# --- what a host finds ---

def test_lists_hold_what_the_host_sees(running, kind):
    for hostnqn, expect in SIGHTS.items():
        with running.queue(kind, hostnqn) as queue:
            for cns in (0x02, 0x07, 0x10, 0x1A):
                assert ids(queue.identify(cns)) == expect, (hostnqn, hex(cns))
            assert ids(queue.identify(0x02, nsid=1)) == expect[1:]


@pytest.mark.parametrize("cns", [0x00, 0x03, 0x05, 0x06, 0x08, 0x11, 0x12, 0x1B])
def test_identify_tells_nothing_of_what_is_hidden(running, cns):
    with running.admin(HOST_B) as admin:
        expect = admin.identify(cns, nsid=ABSENT)
        for nsid in (2, 700):
            cqe, page = admin.identify(cns, nsid=nsid)
            assert (cqe.status, page) == (expect[0].status, expect[1]), (hex(cns), nsid)
        # And all of what is seen.
        assert admin.identify(cns, nsid=5)[0].status == 0


def test_commands_find_what_the_host_sees_only(running, kind):
    ranges = struct.pack("<IIQ", 0, 1, 0)
    source = struct.pack("<QQIIQQ", 0, 0, 0, 0, 0, 0)[:32]
    keys = bytes(16)
    with running.queue(kind, HOST_B) as queue:
        for nsid in (2, 700, ABSENT):
            commands = [
                (nvme.READ, {"read": 512, "cdw": nvme.rw_cdw(0, 1)}),
                (nvme.WRITE, {"write": bytes(512), "cdw": nvme.rw_cdw(0, 1)}),
                (nvme.COMPARE, {"write": bytes(512), "cdw": nvme.rw_cdw(0, 1)}),
                (nvme.FLUSH, {}),
                (nvme.WRITE_ZEROES, {"cdw": nvme.rw_cdw(0, 1)}),
                (nvme.VERIFY, {"cdw": nvme.rw_cdw(0, 1)}),
                (nvme.DSM, {"write": ranges, "cdw": (0, 4)}),
                (nvme.COPY, {"write": source, "cdw": (8, 0, 0)}),
                (nvme.RESV_REGISTER, {"write": keys, "cdw": (0,)}),
                (nvme.RESV_ACQUIRE, {"write": keys, "cdw": (0x100,)}),
                (nvme.RESV_RELEASE, {"write": keys[:8], "cdw": (0x100,)}),
                (nvme.RESV_REPORT, {"read": 64, "cdw": (15, 1)}),
            ]
            for opcode, fields in commands:
                assert queue.status(opcode, nsid=nsid, **fields) == nvme.INVALID_FIELD, (hex(opcode), nsid)
        assert write(queue, 5) == write(queue, 1) == 0
        assert queue.status(nvme.FLUSH, nsid=ALL) == 0


def test_hosts_share_what_both_see(running, kind):
    with running.queue(kind, HOST_A) as one, running.queue(kind, HOST_B) as other:
        one.write(0, b"A" * 512, nsid=5)
        assert other.read(0, 1, nsid=5) == b"A" * 512
        one.write(0, b"2" * 512, nsid=2)
        assert read(other, 2) == nvme.INVALID_FIELD


def test_ana_log_has_what_the_host_sees(running):
    """5.16.1.13: groups without a namespace of this controller are not in it."""
    for hostnqn, expect in SIGHTS.items():
        with running.admin(hostnqn) as admin:
            cqe, page = admin.get_log(0x0C, 4096)
            assert cqe.status == 0
            seen, at = {}, 16
            for _ in range(struct.unpack_from("<H", page, 8)[0]):
                group, count = struct.unpack_from("<II", page, at)
                seen[group] = list(struct.unpack_from(f"<{count}I", page, at + 32))
                at += 32 + 4 * count
            assert seen == {nsid + 1: [nsid] for nsid in expect}
            assert not any(page[at:])


def test_smart_is_of_what_the_host_sees(running, kind):
    def writes(admin, nsid=ALL):
        cqe, page = admin.get_log(2, 512, nsid=nsid)
        assert cqe.status == 0, cqe
        return int.from_bytes(page[80:96], "little")
    with running.queue(kind, HOST_A) as queue, running.admin(HOST_A) as one, running.admin(HOST_B) as other:
        for nsid in (1, 2, 2, 5):
            assert write(queue, nsid) == 0
        assert (writes(one), writes(other)) == (4, 2)
        assert (writes(one, 2), writes(other, 5)) == (2, 1)
        for nsid in (2, 700):
            assert other.get_log(2, 512, nsid=nsid)[0].status == other.get_log(2, 512, nsid=ABSENT)[0].status \
                == nvme.INVALID_FIELD


def test_features_are_of_what_the_host_sees(running):
    """Write protection of all namespaces is of those that are attached (5.27: FFFFFFFFh)."""
    def protected():
        subsys, = running.control.status()["subsystems"]
        return [ns["nsid"] for ns in subsys["namespaces"] if ns["write_protected"]]
    with running.admin(HOST_B) as admin:
        for nsid in (2, 700):
            for opcode in (nvme.SET_FEATURES, nvme.GET_FEATURES):
                for fid in (0x83, 0x84):
                    got = admin.command(opcode, nsid=nsid, cdw=(fid, 1))[0].status
                    assert got == admin.command(opcode, nsid=ABSENT, cdw=(fid, 1))[0].status == nvme.INVALID_FIELD
        assert admin.command(nvme.SET_FEATURES, nsid=ALL, cdw=(0x84, 1))[0].status == 0
        assert protected() == [1, 5]
        assert admin.command(nvme.SET_FEATURES, nsid=ALL, cdw=(0x84, 0))[0].status == 0
        assert protected() == []


def test_controllers_of_a_namespace_are_those_that_see_it(running):
    def controllers(admin, cns, nsid=0):
        page = admin.identify(cns, nsid=nsid)[1]
        count = struct.unpack_from("<H", page)[0]
        return list(struct.unpack_from(f"<{count}H", page, 2))
    with running.admin(HOST_A) as one, running.admin(HOST_B) as other, running.admin(HOST_C) as third:
        everyone = sorted(admin.cntlid for admin in (one, other, third))
        assert controllers(one, 0x12, 1) == everyone
        assert controllers(one, 0x12, 2) == [one.cntlid]
        assert controllers(other, 0x12, 5) == sorted([one.cntlid, other.cntlid])
        assert controllers(third, 0x12, 5) == []
        assert controllers(third, 0x13) == everyone


def test_reservation_notices_are_of_what_the_host_sees(running, kind):
    """A host that has lost sight is a registrant still, and is told when it sees the namespace again and loses that."""
    notice = 6 | 0 << 8 | 0x80 << 16   # I/O command specific: Reservation Log Page Available
    register, clear = (nvme.RESV_REGISTER, (8,)), (nvme.RESV_RELEASE, (1,))   # IEKEY; RRELA 1

    def reserve(queue, command, *keys):
        opcode, cdw = command
        assert queue.status(opcode, nsid=5, cdw=cdw, write=struct.pack(f"<{len(keys)}Q", *keys)) == 0
    with running.queue(kind, HOST_A) as one, running.listener(kind, HOST_B) as told, \
            hosts.Queue(kind, running.address(kind), NQN, hostnqn=HOST_B) as other:
        for sees in (True, False, True):
            running.change(NAMESPACES)
            reserve(one, register, 0, 1)
            reserve(other, register, 0, 2)
            if not sees:
                running.change({**NAMESPACES, 5: [HOST_A]})
            told.changed_namespaces()
            told.events.clear()
            told.ask(4 - len(told.asked))
            reserve(one, clear, 1)
            if sees:
                assert told.event() == notice
            else:
                told.nothing()
            page = told.get_log(0x80, 64)
            assert page[8] == (3 if sees else 0), "Reservation Preempted, or nothing"


def test_discovery_is_the_same_to_all(running):
    for hostnqn in SIGHTS:
        with nvmetcp.Admin(running.address(), nvme.DISCOVERY_NQN, hostnqn=hostnqn) as admin:
            assert NQN.encode() in admin.get_log(0x70, 8192)[1]


# --- changes ---

def test_just_who_loses_or_gains_sight_is_told(running, kind):
    with running.listener(kind, HOST_A) as one, running.listener(kind, HOST_B) as other, \
            running.listener(kind, HOST_C) as third, Busy(running.address(), NQN, nsid=1, hostnqn=HOST_C):
        assert running.change({**NAMESPACES, 2: [HOST_B]}) == [
            f"- host {HOST_A} of namespace 2 of {NQN}", f"+ host {HOST_B} of namespace 2 of {NQN}"]
        for host in (one, other):
            assert host.event() == NS_CHANGED
            assert host.changed_namespaces() == [2]
        third.nothing()
        assert third.changed_namespaces() == []
        assert [ids(host.run(nvme.IDENTIFY, cdw=(2,), read=4096)[1]) for host in (one, other, third)] == [
            [1, 5], [1, 2, 5], [1]]
        # To all: one has it already.
        assert running.change({**NAMESPACES, 2: None}) == [
            f"- host {HOST_B} of namespace 2 of {NQN}", f"+ host any of namespace 2 of {NQN}"]
        assert one.event() == third.event() == NS_CHANGED
        other.nothing()
        # Those who see it are others by name only.
        running.change({**NAMESPACES, 2: [HOST_A, HOST_B, HOST_C]})
        for host in (one, other, third):
            assert host.changed_namespaces() in ([], [2])
            host.nothing()


def test_a_change_of_what_is_hidden_is_not_told(running, kind):
    with running.listener(kind, HOST_A) as one, running.listener(kind, HOST_B) as other:
        changes = running.control.change(config().replace("nsid: 2\n", "nsid: 2\n        readonly: true\n"))
        assert changes == [f"~ namespace 2 of {NQN}: writable -> read-only"]
        assert one.event() == NS_CHANGED and one.changed_namespaces() == [2]
        other.nothing()
        assert other.changed_namespaces() == []
        running.change({1: None, 5: NAMESPACES[5]})
        assert one.event() == NS_CHANGED and one.changed_namespaces() == [2]
        other.nothing()
        assert other.changed_namespaces() == []


def test_data_stays_while_hosts_come_and_go(running, kind):
    with running.queue(kind, HOST_A) as one, running.queue(kind, HOST_B) as other:
        one.write(8, b"n" * 512, nsid=2)
        running.change({**NAMESPACES, 2: [HOST_B]})
        assert read(one, 2) == nvme.INVALID_FIELD
        assert write(one, 2, b"x" * 512, 8) == nvme.INVALID_FIELD
        assert other.read(8, 1, nsid=2) == b"n" * 512
        running.change(NAMESPACES)
        assert one.read(8, 1, nsid=2) == b"n" * 512
        assert read(other, 2) == nvme.INVALID_FIELD


def test_data_that_comes_late_is_not_written(running):
    """The command was accepted before; no host holds up a change."""
    with running.admin(HOST_A) as admin, admin.io_queue() as queue, running.queue("tcp", HOST_B) as other:
        cid = queue.cid()
        queue.send(queue.capsule(nvme.command(nvme.WRITE, cid=cid, nsid=2, cdw=nvme.rw_cdw(16, 8),
                                              dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096))))
        pdu = queue.recv_pdu()
        assert pdu.kind == nvmetcp.R2T
        running.change({**NAMESPACES, 2: [HOST_B]})
        other.write(16, b"newer!!!" * 512, nsid=2)
        queue.answer_r2t(pdu, b"late" * 1024)
        assert queue.finish(cid)[0].status == nvme.INVALID_FIELD
        assert other.read(16, 8, nsid=2) == b"newer!!!" * 512
        assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status == 0


def test_what_the_disk_has_lands_before_the_change_counts(start_hauld, tmp_path, kind):
    if b"__asan_init" in (conftest.BUILD / "target" / "hauld").read_bytes():
        pytest.skip("a sanitized hauld takes no other library before its own")
    disk, stop = tmp_path / "disk", tmp_path / "stop"
    disk.write_bytes(bytes(1 << 20))
    text = config({1: None, 2: [HOST_A]}).replace("ram: 1M\n        nsid: 2", f"path: {disk}\n        nsid: 2")
    path = tmp_path / "hauld.conf"
    path.write_text(text)
    running = Running(start_hauld(
        "--config", str(path), "--threads", "2", engine="epoll",
        env={**conftest.rdma_environment(), "LD_PRELOAD": str(conftest.BUILD / "tests" / "wire" / "libslow_disk.so"),
             "SLOW_DISK_STOP": str(stop)}))
    answers = []
    with running.queue(kind, HOST_A) as one, running.queue(kind, HOST_B) as other:
        stop.touch()
        late = one.start(nvme.WRITE, nsid=2, write=b"late" * 128, cdw=nvme.rw_cdw(0, 1))
        assert read(one, 1) == 0   # the write has been taken before that
        change = threading.Thread(target=lambda: answers.append(
            running.control.change(text.replace(HOST_A, HOST_B))))
        change.start()
        wait_for(lambda: read(one, 2) == nvme.INVALID_FIELD)
        assert read(other, 1) == 0 and not answers and write(other, 2) == nvme.INVALID_FIELD
        stop.unlink()
        change.join(20)
        assert len(answers) == 1 and one.end(late)[0].status == 0
        assert other.read(0, 1, nsid=2) == b"late" * 128
        other.write(0, b"new!" * 128, nsid=2)
        assert disk.read_bytes()[:512] == b"new!" * 128
    running.control.close()


def test_a_dry_run_tells_and_changes_nothing(running):
    with running.listener("tcp", HOST_A) as host:
        answer = running.control.apply(config({**NAMESPACES, 2: []}), dry_run=True)
        assert answer["changes"] == [f"- host {HOST_A} of namespace 2 of {NQN}"]
        host.nothing()
        assert host.changed_namespaces() == []


def test_status_shows_who_sees_what(running):
    subsys, = running.control.status()["subsystems"]
    assert {ns["nsid"]: None if ns["allow_any"] else ns["allow"] for ns in subsys["namespaces"]} == NAMESPACES
    code, out, _ = haulctl(running.hauld.control, "status")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    for line, count in ((f"seen by: {HOST_A}", 2), (f"seen by: {HOST_B}", 1), ("seen by: no host", 1)):
        assert lines.count(line) == count, line


def test_apply_names_the_line_of_a_mistake(running):
    text = config({**NAMESPACES, 2: [HOST_A, "any"]})
    answer = running.control.apply(text, name="views.conf")
    line = text[:text.rindex('"any"')].count("\n") + 1
    assert answer["error"].startswith(f"views.conf:{line}: subsystems.0.namespaces.1.allow.1: ")
    answer = running.control.apply(config(allow=[HOST_A, HOST_C]), name="views.conf")
    assert f"'{HOST_B}' may not use the subsystem" in answer["error"]
    with running.queue("tcp", HOST_B) as queue:
        assert read(queue, 5) == 0

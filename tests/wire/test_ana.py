# SPDX-License-Identifier: MIT
"""Asymmetric Namespace Access (NVMe base 2.0 8.1) over TCP and RDMA: states by listener, changed while hosts are connected."""
import struct

import conftest
import control
import nvme
import nvmerdma
import nvmetcp
import pytest
from control import Busy, Control, haulctl, start  # noqa: F401 (start is a fixture)
from events import NOTICE, NS_CHANGED, Host
from hosts import Queue

NQN = "nqn.2026-11.io.haul:ana"
OTHER = "nqn.2026-11.io.haul:other"
OPTIMIZED, NON_OPTIMIZED, INACCESSIBLE, LOST, CHANGE = 1, 2, 3, 4, 15
NAMES = {OPTIMIZED: "optimized", NON_OPTIMIZED: "non-optimized", INACCESSIBLE: "inaccessible",
         LOST: "persistent-loss", CHANGE: "change"}
STATUS = {OPTIMIZED: 0, NON_OPTIMIZED: 0, INACCESSIBLE: 0x302, LOST: 0x301, CHANGE: 0x303}
ANA_CHANGED = NOTICE | 0x03 << 8 | 0x0C << 16
# What the end of a connection is to its host.
ENDED = {"tcp": (nvmetcp.Closed, OSError), "rdma": nvmerdma.Ended}
# Two listeners of each transport.
LISTEN = ["tcp://127.0.0.1:0", "tcp://127.0.0.2:0", "rdma://127.0.0.1:0", "rdma://127.0.0.2:0"]


def config(ana=(), namespaces=((1, 1), (2, 2))):
    disks = [(nsid, f"ram=1M ana_group={group}" if group else "ram=1M") for nsid, group in namespaces]
    return control.config(control.subsys(NQN, *disks, ana=ana), control.subsys(OTHER, (1, "ram=1M")), listen=LISTEN)


class Running:
    def __init__(self, hauld, kind):
        self.hauld, self.kind = hauld, kind
        self.control = Control(hauld.control)
        self.uris = [uri for uri in hauld.uris if uri.startswith(kind)]

    def host(self, which=0, subnqn=NQN, **kw):
        return Host(self.kind, conftest.split_uri(self.uris[which]), subnqn, **kw)

    def queue(self, which=0, subnqn=NQN):
        return Queue(self.kind, conftest.split_uri(self.uris[which]), subnqn)

    def listener(self, which):
        """As the configuration has it."""
        return [uri for uri in LISTEN if uri.startswith(self.kind)][which]

    def ana(self, group, state, which=None):
        at = () if which is None else ("--listener", self.uris[which])
        status, out, err = haulctl(self.hauld.control, "ana", NQN, str(group), NAMES[state], *at)
        assert status == 0, err
        return out.splitlines()


@pytest.fixture(params=["tcp", "rdma"])
def running(request, start):
    running = Running(start(config(), env=conftest.rdma_environment()), request.param)
    yield running
    running.control.close()


def parse(page):
    """(change count, {group: (state, change count, [nsid])}, length)"""
    count, nr = struct.unpack_from("<QH", page)
    at, groups = 16, {}
    for _ in range(nr):
        group, nr_ids, group_count, state = struct.unpack_from("<IIQB", page, at)
        ids = struct.unpack_from(f"<{nr_ids}I", page, at + 32)
        groups[group] = (state, group_count, list(ids))
        at += 32 + 4 * nr_ids
    return count, groups, at


def log(host, length=1024, **kw):
    return parse(host.get_log(0x0C, length, **kw))


def states(host):
    return {group: (state, ids) for group, (state, _, ids) in log(host)[1].items()}


def read(queue, nsid):
    return queue.run(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(0, 1), read=512)[0]


# --- what there is (8.1.1, 5.17.2.1, 5.16.1.13) ---

def test_identify_tells_of_groups_and_events(running):
    with running.host() as host:
        ctrl = host.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1]
        assert ctrl[76] & 8                                           # CMIC: ANA reporting
        assert struct.unpack_from("<I", ctrl, 92)[0] & 1 << 11        # OAES: ANA change
        assert ctrl[342] > 0                                          # ANATT
        assert ctrl[343] & 0x1F == 0x1F and not ctrl[343] & 0x40      # ANACAP: all states, groups may change
        largest, number = struct.unpack_from("<II", ctrl, 344)
        nn, mnan = struct.unpack_from("<I", ctrl, 516)[0], struct.unpack_from("<I", ctrl, 540)[0]
        assert number <= largest and 2 <= number
        assert 2 <= mnan <= nn
        for cns, at in ((0, 92), (8, 4)):
            groups = [struct.unpack_from("<I", host.run(nvme.IDENTIFY, nsid=nsid, cdw=(cns,), read=4096)[1], at)[0]
                      for nsid in (1, 2)]
            assert groups == [1, 2]
        assert host.get_log(0, 1024)[4 * 0x0C] & 1
        with running.host(subnqn=nvme.DISCOVERY_NQN) as discovery:
            assert not discovery.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1][76] & 8
            assert not discovery.get_log(0, 1024)[4 * 0x0C] & 1


def test_a_group_may_have_any_state_and_commands_end_as_it_says(running):
    with running.host() as host, running.queue() as queue:
        assert states(host) == {1: (OPTIMIZED, [1]), 2: (OPTIMIZED, [2])}
        for state in (NON_OPTIMIZED, CHANGE, INACCESSIBLE, OPTIMIZED, LOST):
            before = log(host)
            assert running.ana(2, state), "nothing has changed"
            assert host.event() == ANA_CHANGED
            host.ask()
            count, groups, _ = log(host)
            assert count == before[0] + 1
            assert groups[2] == (state, before[1][2][1] + 1, [2])
            assert groups[1] == before[1][1]
            cqe = read(queue, 2)
            assert (cqe.status, cqe.dnr) == (STATUS[state], False)
            assert queue.status(nvme.FLUSH, nsid=0xFFFFFFFF) == STATUS[state]
            assert read(queue, 1).status == 0
            page = host.run(nvme.IDENTIFY, nsid=2, cdw=(0,), read=4096)[1]
            nsze, ncap, nuse = struct.unpack_from("<QQQ", page)
            nvmcap = int.from_bytes(page[48:64], "little")
            assert nsze == ncap == 2048
            assert (nuse, nvmcap) == ((0, 0) if state in (INACCESSIBLE, LOST) else (2048, 1 << 20))


def test_every_listener_may_have_its_own_state(running):
    text = config([(1, "non-optimized"), (1, "inaccessible", running.listener(1)), (2, "change", running.listener(0))])
    with running.host(0) as first, running.host(1) as second, running.queue(0) as one, running.queue(1) as other:
        running.control.change(text)
        assert states(first) == {1: (NON_OPTIMIZED, [1]), 2: (CHANGE, [2])}
        assert states(second) == {1: (INACCESSIBLE, [1]), 2: (OPTIMIZED, [2])}
        assert [read(queue, nsid).status for queue in (one, other) for nsid in (1, 2)] == [0, 0x303, 0x302, 0]
        # The status tells the same.
        ana = running.control.status()["subsystems"][0]["ana"]
        assert [(e["group"], e["state"], e.get("listener")) for e in ana] == [
            (1, "non-optimized", None), (1, "inaccessible", running.uris[1]), (2, "change", running.uris[0])]
        assert "inaccessible at " + running.uris[1] in haulctl(running.hauld.control, "status")[1]
        # All states are taken back by a file that has none.
        assert len(running.control.change(config())) == 3
        assert [read(queue, nsid).status for queue in (one, other) for nsid in (1, 2)] == [0] * 4


# --- events (5.2, figure "Notice") ---

def test_just_the_hosts_concerned_are_told_and_once(running):
    with running.host(0) as first, running.host(1) as second, running.host(1, OTHER) as other:
        running.ana(2, INACCESSIBLE, 1)
        running.ana(2, CHANGE, 1)
        running.ana(7, INACCESSIBLE)            # without namespaces
        assert second.event() == ANA_CHANGED
        second.ask()
        second.nothing()
        assert states(second)[2] == (CHANGE, [2])
        running.ana(2, OPTIMIZED, 1)
        assert second.event() == ANA_CHANGED
        for host in (first, other):
            host.nothing()
        assert log(first)[0] == 0 and log(second)[0] == 3


def test_a_host_that_did_not_ask_is_not_told(running):
    with running.host(configuration=1 << 8) as host:
        running.ana(1, NON_OPTIMIZED)
        host.nothing()
        assert log(host)[0] == 1


def test_a_moved_namespace_and_a_new_one(running):
    with running.host() as host:
        assert "~ namespace 2 of %s: ana group 2 -> 1" % NQN in running.control.change(config(namespaces=((1, 1), (2, 1))))
        assert host.event() == ANA_CHANGED
        host.ask()
        host.nothing()
        assert states(host) == {1: (OPTIMIZED, [1, 2])}
        running.control.change(config(namespaces=((1, 1), (2, 1), (3, 0))))
        assert host.event() == NS_CHANGED
        host.nothing()
        count, groups, _ = log(host)
        assert count == 2 and groups == {1: (OPTIMIZED, 3, [1, 2, 3])}


def test_a_namespace_that_comes_lost_or_inaccessible_is_so_from_the_start(running):
    with running.queue() as queue:
        running.control.change(config([(9, "inaccessible")], namespaces=((1, 1), (2, 2), (9, 9))))
        assert read(queue, 9).status == 0x302
        assert read(queue, 1).status == 0


# --- the page (5.16.1.13) ---

def test_a_long_log_is_the_same_in_pieces_and_shorter_without_namespaces(running):
    namespaces = [(nsid, 1 + nsid % 20) for nsid in range(1, 301)]
    running.control.change(config(namespaces=namespaces))
    with running.host() as host:
        length = 16 + 20 * 32 + 300 * 4
        whole = host.get_log(0x0C, length)
        _, groups, end = parse(whole)
        assert end == length
        assert groups == {group: (OPTIMIZED, 1, [n for n, g in namespaces if g == group]) for group in range(1, 21)}
        for step in (4, 100, 1020):
            pieces = [host.get_log(0x0C, min(step, length - at), offset=at, rae=1) for at in range(0, length, step)]
            assert b"".join(pieces) == whole
        assert host.get_log(0x0C, length + 64) == whole + bytes(64)
        short = host.get_log(0x0C, 16 + 20 * 32, lsp=1)
        assert parse(short)[1] == {group: (OPTIMIZED, 1, []) for group in range(1, 21)}
        # Who does not parse reads as much as Identify says there can be.
        ctrl = host.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1]
        most = 16 + 32 * struct.unpack_from("<I", ctrl, 348)[0]
        mnan = struct.unpack_from("<I", ctrl, 540)[0]
        for offset, lsp, status in ((length, 0, 0), (most + 4 * mnan, 0, 0), (most + 4 * mnan + 4, 0, nvme.INVALID_FIELD),
                                    (2, 0, nvme.INVALID_FIELD), (most, 1, 0), (most + 4, 1, nvme.INVALID_FIELD)):
            cqe, _ = host.run(nvme.GET_LOG, nsid=0xFFFFFFFF, cdw=(0x0C | lsp << 8, 0, offset), read=4)
            assert cqe.status == status, offset


def test_a_log_that_changes_between_pieces_says_so(running):
    with running.host() as host:
        def count():
            return struct.unpack("<Q", host.get_log(0x0C, 8, rae=1))[0]
        before = count()
        host.get_log(0x0C, 48, offset=16, rae=1)
        running.ana(2, CHANGE)
        assert count() == before + 1


# --- others are not disturbed ---

def test_io_of_other_namespaces_and_listeners_goes_on(running):
    with Busy(running.hauld.address_of("tcp"), NQN, nsid=1) as busy, running.queue(1) as queue:
        for turn in range(10):
            running.ana(2, INACCESSIBLE if turn % 2 == 0 else OPTIMIZED)
            assert read(queue, 2).status == (0x302 if turn % 2 == 0 else 0)
            running.ana(1, (CHANGE, INACCESSIBLE, OPTIMIZED)[turn % 3], 1 if running.kind == "tcp" else 0)
            busy.worked(1)


def test_leaving_persistent_loss_ends_just_the_controllers_that_saw_it(running):
    with running.queue(0) as first, running.queue(1) as second:
        running.ana(2, LOST, 1)
        assert read(second, 2).status == 0x301
        running.ana(2, OPTIMIZED, 1)
        with pytest.raises(ENDED[running.kind]):
            read(second, 2)
        assert read(first, 2).status == 0
        with running.queue(1) as again:
            assert read(again, 2).status == 0


# --- what is wrong ---

@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The control socket of a hauld that nothing here changes."""
    with control.starting(tmp_path_factory.mktemp("unchanged")) as start, \
            Control(start(config(), env=conftest.rdma_environment()).control) as client:
        yield client


@pytest.mark.parametrize("ana, namespaces, what", [
    ([(0, "optimized")], ((1, 1),), "0 is not a number from 1 to 128"),
    ([(129, "optimized")], ((1, 1),), "129 is not a number from 1 to 128"),
    ([(1, "fine")], ((1, 1),), "'fine' is not known: optimized"),
    ([(1, "change", "tcp://127.0.0.9:0")], ((1, 1),), "none of those to listen at"),
    ([(1, "change"), (1, "optimized")], ((1, 1),), "has a state there already"),
    ([(1, "change", LISTEN[0]), (1, "optimized", LISTEN[1], LISTEN[0])], ((1, 1),), "has a state there already"),
    ([], ((1, 129),), "129 is not a number from 1 to 128")])
def test_mistakes_are_told_and_change_nothing(unchanged, ana, namespaces, what):
    before = unchanged.status()["target"]["generation"]
    answer = unchanged.apply(config(ana, namespaces))
    assert what in answer["error"] and answer["error"].startswith("a.conf:"), answer
    assert unchanged.status()["target"]["generation"] == before


@pytest.mark.parametrize("members, what", [
    ({}, "a subsystem is needed"),
    ({"subsystem": "nqn.2026-11.io.haul:none", "group": 1, "state": "change"}, "no subsystem of that name"),
    ({"subsystem": NQN, "group": 129, "state": "change"}, "from 1 to 128"),
    ({"subsystem": NQN, "group": "1", "state": "change"}, "from 1 to 128"),
    ({"subsystem": NQN, "group": 1.5, "state": "change"}, "from 1 to 128"),
    ({"subsystem": NQN, "group": 1, "state": "lost"}, "the states are"),
    ({"subsystem": NQN, "group": 1, "state": "change", "listener": 3}, "the listener is no text"),
    ({"subsystem": NQN, "group": 1, "state": "change", "listener": "tcp://127.0.0.1:1"}, "no such listener"),
    ({"subsystem": NQN, "group": 1, "state": "change", "listener": "udp://x"}, "")])
def test_requests_that_cannot_be_are_refused(unchanged, members, what):
    answer = unchanged.ask("ana", **members)
    assert what in answer["error"], answer
    assert unchanged.ask("ana", subsystem=NQN, group=1, state="optimized")["changes"] == []


@pytest.mark.parametrize("arguments, what", [
    (("ana", NQN, "1"), "SUBSYSTEM GROUP STATE"), (("ana", NQN, "one", "change"), "group one: not a number from 1 to 128"),
    (("ana", NQN, "200", "optimized"), "group 200: not a number from 1 to 128"),
    (("ana", NQN, "0", "optimized"), "group 0: not a number from 1 to 128"),
    (("ana", NQN, "1", "bad"), "state 'bad' is not known: optimized, "),
    (("ana", "disks", "1", "change"), "subsystem 'disks': "),
    (("ana", NQN, "1", "change", "--listener", "udp://127.0.0.1"), "listener udp://127.0.0.1: "),
    (("ana", NQN, "1", "change", "--listener", f"tcp://127.0.0.1/{NQN}"), f"listener tcp://127.0.0.1/{NQN}: "),
    (("status", "--listener", "tcp://127.0.0.1"), "--listener is for ana")])
def test_the_command_line_is_checked(tmp_path, arguments, what):
    status, _, err = haulctl(tmp_path / "none", *arguments)
    assert status == 2 and what in err

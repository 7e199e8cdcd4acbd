# SPDX-License-Identifier: MIT
"""Asynchronous events (NVMe base 2.0 5.2) of changes that the administrator makes, over TCP and RDMA."""
import json

import conftest
import control
import nvme
import pytest
from control import A, B, Busy, Control, start  # noqa: F401 (start is a fixture)
from events import AEC_DISCOVERY, AEC_NS, DISCOVERY_CHANGED, NS_CHANGED, Host

FRIEND = "nqn.2026-11.io.haul:friend"
LISTEN = ["tcp://127.0.0.1:0", "rdma://127.0.0.1:0"]


def config(a, b=((1, "ram=1M"),), *, allow_b="any", referrals=(), listen=None):
    return control.config(control.subsys(A, *a, allow="any"), control.subsys(B, *b, allow=allow_b), listen=listen or LISTEN,
                          more=f"referrals: {json.dumps(list(referrals))}\n")


BASE = ((1, "ram=1M"), (2, "ram=2M"))


class Running:
    def __init__(self, hauld):
        self.hauld = hauld
        self.control = Control(hauld.control)

    def address(self, kind):
        return self.hauld.address_of(kind)

    def host(self, kind, subnqn=A, **kw):
        return Host(kind, self.address(kind), subnqn, **kw)

    def change(self, *args, **kw):
        assert self.control.change(config(*args, **kw))


@pytest.fixture
def running(start):
    running = Running(start(config(BASE), env=conftest.rdma_environment()))
    yield running
    running.control.close()


@pytest.fixture(params=["tcp", "rdma"])
def kind(request):
    return request.param


# --- namespaces (5.2, figure 148: Attached Namespace Attribute Changed; 5.16.1.5) ---

@pytest.mark.parametrize("after, changed", [
    (BASE + ((7, "ram=1M"),), [7]),
    (BASE[:1], [2]),
    (((1, "ram=1M readonly=true"), BASE[1]), [1]),
    (((2, "ram=1M"), (9, "ram=1M")), [1, 2, 9])], ids=["added", "removed", "read-only", "three"])
def test_a_host_is_told_of_its_namespaces_and_finds_them_in_the_list(running, kind, after, changed):
    with running.host(kind) as host, running.host(kind, B) as other:
        host.nothing()
        running.change(after)
        assert host.event() == NS_CHANGED
        assert host.changed_namespaces() == changed
        assert host.changed_namespaces() == []
        host.nothing()
        other.nothing()
        assert other.changed_namespaces() == []


def test_a_grown_file_is_told(start, tmp_path):
    running = Running(start(config(((1, "path=disk"),)), files={"disk": 1 << 20}, env=conftest.rdma_environment()))
    with running.host("tcp") as host:
        with open(tmp_path / "disk", "ab") as disk:
            disk.truncate(2 << 20)
        assert host.event(within=15) == NS_CHANGED
        assert host.changed_namespaces() == [1]
        page = host.run(nvme.IDENTIFY, nsid=1, cdw=(0,), read=4096)[1]
        assert int.from_bytes(page[:8], "little") == (2 << 20) // 512
    running.control.close()


def test_what_was_told_is_told_again_only_after_it_was_read(running, kind):
    with running.host(kind) as host:
        for nsid in (7, 8, 9):
            running.change(BASE + ((nsid, "ram=1M"),))
        assert host.event() == NS_CHANGED
        host.nothing()
        assert host.changed_namespaces(rae=1) == [7, 8, 9]
        running.change(BASE)
        host.nothing()
        assert host.changed_namespaces() == [7, 8, 9]
        running.change(BASE + ((3, "ram=1M"),))
        assert host.event() == NS_CHANGED
        assert host.changed_namespaces() == [3]


def test_an_event_waits_for_a_request(running, kind):
    with running.host(kind, aers=0) as host:
        running.change(BASE[:1])
        host.nothing()
        host.ask()
        assert host.event() == NS_CHANGED


@pytest.mark.parametrize("configuration", [None, 0, AEC_DISCOVERY, 0xFF])
def test_a_host_that_did_not_ask_is_not_told(running, kind, configuration):
    with running.host(kind, configuration=configuration) as host:
        running.change(BASE[:1])
        host.nothing()
        assert host.changed_namespaces() == [2]


def test_a_change_disturbs_no_other_namespace(running):
    with Busy(running.address("tcp"), A) as busy, running.host("tcp") as host:
        for _ in range(10):
            rounds = busy.rounds
            running.change(BASE[:1])
            assert host.event() == NS_CHANGED and host.changed_namespaces() == [2]
            running.change(BASE)
            host.ask(2)
            assert host.event() == NS_CHANGED and host.changed_namespaces() == [2]
            while busy.rounds == rounds and busy.error is None:
                pass


# --- discovery (3.1.2.3.3, figure 148: Discovery Log Page Change) ---

def test_persistent_discovery_is_told_of_what_the_host_sees(running, kind):
    discovery = nvme.DISCOVERY_NQN
    with running.host(kind, discovery) as host, running.host(kind, discovery, hostnqn=FRIEND) as friend:
        running.change(BASE, allow_b=[FRIEND])
        assert host.event() == DISCOVERY_CHANGED
        friend.nothing()
        host.get_log(0x70, 1024)
        running.change(BASE, allow_b=[FRIEND, "nqn.2026-11.io.haul:third"])
        running.change(BASE[:1], allow_b=[FRIEND, "nqn.2026-11.io.haul:third"])
        host.nothing()
        friend.nothing()
        running.change(BASE[:1], allow_b=[])
        assert friend.event() == DISCOVERY_CHANGED
        host.nothing()


def test_referrals_and_listeners_are_told(running, kind):
    with running.host(kind, nvme.DISCOVERY_NQN) as host:
        running.change(BASE, referrals=["tcp://192.0.2.1:8009"])
        assert host.event() == DISCOVERY_CHANGED
        host.get_log(0x70, 1024)
        running.change(BASE, referrals=["tcp://192.0.2.1:8009"], listen=LISTEN + ["tcp://127.0.0.1:0"])
        assert host.event() == DISCOVERY_CHANGED


def test_referrals_for_some_hosts_are_told_to_them(running, kind):
    """Who is not told of it hears nothing of it, and finds nothing."""
    place = "tcp://192.0.2.1:8009"

    def referred(host):
        log = host.get_log(0x70, 9 * 1024)
        return [log[at + 512:at + 768].rstrip(b" ") for at in range(1024, 9 * 1024, 1024) if log[at + 2] == 1]

    with running.host(kind, nvme.DISCOVERY_NQN, hostnqn=FRIEND) as friend, \
            running.host(kind, nvme.DISCOVERY_NQN) as other:
        for allow, tells, finds in (([FRIEND], (True, False), (1, 0)), ("any", (False, True), (1, 1)),
                                    ([], (True, True), (0, 0)), ([FRIEND], (True, False), (1, 0))):
            running.change(BASE, referrals=[{"address": place, "allow": allow}])
            for host, told, nr in zip((friend, other), tells, finds):
                if told:
                    assert host.event() == DISCOVERY_CHANGED
                assert referred(host) == [b"192.0.2.1"] * nr
                host.nothing()


def test_apply_tells_of_hosts_of_referrals(running):
    place, of = "tcp://192.0.2.1:8009", "referral tcp://192.0.2.1:8009"

    def change(*referrals):
        return running.control.change(config(BASE, referrals=referrals))

    assert change({"address": place, "allow": [FRIEND]}) == [f"+ {of}", f"+ host {FRIEND} of {of}"]
    assert running.control.status()["referrals"] == [{"uri": place, "allow_any": False, "allow": [FRIEND]}]
    assert change({"address": place, "allow": []}) == [f"- host {FRIEND} of {of}"]
    assert change(place) == [f"+ host any of {of}"] and change({"address": place}) == []
    assert change() == [f"- {of}"]
    for wrong, word in (({"allow": "any"}, "address"), ({"address": place, "allow": "some"}, "allow"),
                        ({"address": place, "alow": []}, "alow"), ([place], "referrals.0"),
                        ({"address": [place]}, "address"), ({"address": "x://y"}, "referrals.0.address")):
        assert word in running.control.apply(config(BASE, referrals=[wrong]))["error"], wrong
    assert "twice" in running.control.apply(config(BASE, referrals=[place, {"address": place}]))["error"]


def test_three_changes_are_one_event_and_the_fourth_is_another(running, kind):
    """B042: also when the log is read in pieces, the last one without RAE."""
    with running.host(kind, nvme.DISCOVERY_NQN) as host:
        for allow in ([], "any", [FRIEND]):
            running.change(BASE, allow_b=allow)
        assert host.event() == DISCOVERY_CHANGED
        host.nothing()
        host.get_log(0x70, 1024, rae=1)
        host.get_log(0x70, 1024, offset=1024)
        host.nothing()
        running.change(BASE, allow_b="any")
        assert host.event() == DISCOVERY_CHANGED


def test_identify_promises_just_these_events(running):
    with running.host("tcp") as host, running.host("tcp", nvme.DISCOVERY_NQN) as discovery:
        oaes = [int.from_bytes(h.run(nvme.IDENTIFY, cdw=(1,), read=4096)[1][92:96], "little")
                for h in (host, discovery)]
        assert oaes[0] & AEC_NS and not oaes[0] & AEC_DISCOVERY
        assert oaes[1] == AEC_DISCOVERY

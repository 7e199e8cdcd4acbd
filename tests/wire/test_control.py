# SPDX-License-Identifier: MIT
"""What hauld offers is looked at and changed while hosts are connected: others never notice."""
import json
import os
import socket

import conftest
import hosts
import nvme
import nvmerdma
import nvmetcp
import pytest
from at_once import AtOnce
from control import A, B, BASE, Busy, Control, config, counters, free_port, haulctl, start, starting, subsys, wait_for

FRIEND = "nqn.2026-11.io.haul:friend"
at_once = AtOnce()
told = at_once.fixture(starting)


def read_status(queue, nsid):
    cqe, _ = queue.command(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(0, 1), read=512)
    return cqe.status


def active(admin):
    cqe, page = admin.identify(2)
    assert cqe.status == 0
    ids = [int.from_bytes(page[at:at + 4], "little") for at in range(0, 4096, 4)]
    return ids[:ids.index(0)] if 0 in ids else ids


def blocks(admin, nsid):
    cqe, page = admin.identify(0, nsid=nsid)
    assert cqe.status == 0, cqe
    return int.from_bytes(page[:8], "little")


def can_connect(address):
    try:
        socket.create_connection(address, timeout=5).close()
        return True
    except ConnectionRefusedError:
        return False


# --- status ---

def test_status_shows_what_is_offered_and_who_uses_it(start):
    hauld = start()
    with Control(hauld.control) as control, nvmetcp.Admin(hauld.address, B, hostnqn=FRIEND) as admin, \
            admin.io_queue(2, sqsize=15) as queue:
        assert read_status(queue, 1) == 0
        cids = [admin.cid() for _ in range(3)]
        for cid in cids:
            admin.send(admin.capsule(nvme.command(nvme.ASYNC_EVENT, cid=cid)))
        admin.identify(1)
        status = control.status()
        assert [listener["uri"] for listener in status["listeners"]] == hauld.uris
        assert [entry["nqn"] for entry in status["subsystems"]] == [A, B]
        ns = status["subsystems"][1]["namespaces"][1]
        assert (ns["nsid"], ns["path"], ns["size_bytes"], ns["block_bytes"], ns["read_only"], ns["state"]) == \
            (2, "ram:2M", 2 << 20, 512, False, "ready")
        assert len(ns["uuid"]) == 36
        host, = status["hosts"]
        assert host["nqn"] == FRIEND
        ctrl, = host["controllers"]
        assert (ctrl["cntlid"], ctrl["subsystem"], ctrl["ready"]) == (admin.cntlid, B, True)
        first, second = ctrl["queues"]
        assert (first["qid"], second["qid"], second["depth"]) == (0, 2, 16)
        assert second["peer"] == "%s:%d" % queue.sock.getsockname()
        assert second["transport"] == "tcp"
        assert first["in_flight"] == 3 and second["in_flight"] == 0
        assert second["commands"] == 2   # Connect and one read
        before = second["commands"]
        for _ in range(5):
            read_status(queue, 1)
        ctrl, = control.status()["hosts"][0]["controllers"]
        assert ctrl["queues"][1]["commands"] == before + 5


def test_counters_are_back_when_all_hosts_are_gone(start):
    hauld = start()
    with Control(hauld.control) as control:
        before = counters(control.status())
        for _ in range(2):
            admins = [nvmetcp.Admin(hauld.address, A, hostnqn=f"{FRIEND}{n}") for n in range(4)]
            queues = [admin.io_queue(qid) for admin in admins for qid in (1, 2)]
            for queue in queues:   # leave with a command that has no data yet
                queue.send(queue.capsule(nvme.command(
                    nvme.WRITE, cid=7, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096),
                    cdw=nvme.rw_cdw(0, 8))))
            during = control.status()
            assert sum(reactor["connections"] for reactor in during["reactors"]) == 12
            for connection in admins + queues:
                connection.close()
            wait_for(lambda: counters(control.status()) == before)


def test_haulctl_prints_the_status(start):
    hauld = start()
    with nvmetcp.Admin(hauld.address, A, hostnqn=FRIEND):
        code, out, err = haulctl(hauld.control, "status")
        assert code == 0 and not err
        for word in (hauld.uris[0], A, B, FRIEND, "namespace 2", "2.0 MiB", "queue 0"):
            assert word in out, word
    code, out, err = haulctl(hauld.control, "status", "--json")
    assert code == 0 and [s["nqn"] for s in json.loads(out)["subsystems"]] == [A, B]


@pytest.mark.parametrize("args, code, word", [
    ([], 2, "command"), (["destroy"], 2, "destroy"), (["apply"], 2, "FILE"), (["status", "x"], 2, "x"),
    (["status", "--dry-run"], 2, "--dry-run"), (["apply", "f", "--json"], 2, "--json"),
    (["--nonsense"], 2, "--nonsense"), (["status", "--control", "x" * 200], 2, "long"),
    (["apply", "/no/such/file"], 1, "/no/such/file"), (["status"], 1, "no hauld")])
def test_haulctl_says_what_is_wrong_in_one_line(tmp_path, args, code, word):
    got, out, err = haulctl(tmp_path / "nobody", *args)
    assert (got, out) == (code, "") and word in err and err.count("\n") == 1 and err.startswith("haulctl: ")


# --- namespaces ---

def test_namespaces_come_go_and_change_size_beside_a_host_at_work(start, tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    hauld = start()
    with Control(hauld.control) as control, Busy(hauld.address, B, nsid=2) as busy, \
            nvmetcp.Admin(hauld.address, A, hostnqn=FRIEND) as admin, admin.io_queue() as queue:
        def change(*namespaces):
            changes = control.change(config(subsys(A, *namespaces),
                                            subsys(B, (1, "ram=1M"), (2, "ram=2M"))))
            busy.worked()
            return changes
        first = (1, "ram=1M")
        for size in (1, 2, 3, 1):
            os.truncate(disk, size << 20)
            changes = change(first, (7, f"path={disk}"))
            assert len(changes) == 1 and "namespace 7 of " + A in changes[0]
            assert active(admin) == [1, 7] and blocks(admin, 7) == size << 11
            assert read_status(queue, 7) == 0
        assert change(first, (7, f"path={disk} readonly=true")) == \
            [f"~ namespace 7 of {A}: writable -> read-only"]
        cqe, _ = queue.command(nvme.WRITE, nsid=7, write=bytes(512), cdw=nvme.rw_cdw(0, 1))
        assert cqe.status == 0x120 or cqe.status == 0x020, cqe
        assert change(first, (7, f"path={disk}")) == [f"~ namespace 7 of {A}: read-only -> writable"]
        # The same disk under another number, in one step.
        assert len(change(first, (9, f"path={disk}"))) == 2
        assert active(admin) == [1, 9] and read_status(queue, 9) == 0
        assert read_status(queue, 7) == nvme.INVALID_FIELD
        assert change(first)[0].startswith(f"- namespace 9 of {A}")
        assert active(admin) == [1] and read_status(queue, 9) == nvme.INVALID_FIELD
        assert read_status(queue, 1) == 0


def test_what_stays_keeps_its_content(start):
    hauld = start()
    data = os.urandom(4096)
    with Control(hauld.control) as control, nvmetcp.Admin(hauld.address, A) as admin, \
            admin.io_queue() as queue:
        assert queue.command(nvme.WRITE, nsid=1, write=data, cdw=nvme.rw_cdw(0, 8))[0].status == 0
        uuid = control.status()["subsystems"][0]["namespaces"][0]["uuid"]
        control.change(config(subsys(A, (1, "ram=1M"), (2, "ram=1M")), subsys(B)))
        control.change(config(subsys(A, (1, "ram=1M"))))
        assert queue.command(nvme.READ, nsid=1, read=4096, cdw=nvme.rw_cdw(0, 8))[1] == data
        assert control.status()["subsystems"][0]["namespaces"][0]["uuid"] == uuid


@at_once
def test_other_size_of_a_file_is_noticed_by_itself(start):
    sizes = {1: 3, 2: 1}
    hauld = start(config(subsys(A, *((nsid, f"path=disk{nsid}") for nsid in sizes)), subsys(B, (1, "ram=1M"))),
                  files={f"disk{nsid}": 2 << 20 for nsid in sizes})
    with Busy(hauld.address, B), nvmetcp.Admin(hauld.address, A) as admin, admin.io_queue() as queue:
        for nsid, size in sizes.items():
            os.truncate(hauld.path.parent / f"disk{nsid}", size << 20)
        for nsid, size in sizes.items():
            wait_for(lambda: blocks(admin, nsid) == size << 11)
            last = queue.command(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw((size << 11) - 1, 1), read=512)[0]
            beyond = queue.command(nvme.READ, nsid=nsid, cdw=nvme.rw_cdw(size << 11, 1), read=512)[0]
            assert (last.status, beyond.status) == (0, nvme.LBA_OUT_OF_RANGE)
    for nsid, size in sizes.items():
        assert f"~ namespace {nsid} of {A}: 2 MiB -> {size} MiB" in hauld.log_path.read_text()


def test_a_disk_whose_name_is_another_files_is_told(start, tmp_path):
    text = config(subsys(A, (1, f"path={tmp_path}/disk.img")))
    hauld = start(text, files={"disk.img": 1 << 20, "other.img": 1 << 20})
    with Control(hauld.control) as control:
        assert control.apply(text)["notes"] == []
        os.rename(tmp_path / "other.img", tmp_path / "disk.img")
        for _ in ("another file", "no file"):
            answer = control.apply(text)
            assert answer["changes"] == []
            [note] = answer["notes"]
            assert f"{tmp_path}/disk.img has another name" in note
            (tmp_path / "disk.img").unlink(missing_ok=True)


@at_once
def test_file_that_is_emptied_is_lost_and_may_come_back(start):
    hauld = start(config(subsys(A, (1, "path=disk"))), files={"disk": 1 << 20})
    disk = hauld.path.parent / "disk"
    with Control(hauld.control) as control:
        def state():
            ns, = control.status()["subsystems"][0]["namespaces"]
            return ns["state"], ns["size_bytes"]
        os.truncate(disk, 0)
        wait_for(lambda: state() == ("lost", 1 << 20))
        os.truncate(disk, 2 << 20)
        wait_for(lambda: state() == ("ready", 2 << 20))


def many_come_and_half_go(control, admin, queue, many, half):
    for _ in range(2):
        control.change(many)
        assert active(admin) == list(range(1, 1025))
        cqe, page = admin.identify(2, nsid=1000)
        assert int.from_bytes(page[:4], "little") == 1001 and page[96:100] == bytes(4)
        control.change(half)
        assert active(admin) == list(range(1, 1025, 2))
        assert read_status(queue, 1023) == 0
        assert read_status(queue, 1024) == nvme.INVALID_FIELD
        cqe, page = admin.get_log(4, 4096)
        ids = [int.from_bytes(page[at:at + 4], "little") for at in range(0, 4096, 4)]
        assert cqe.status == 0 and (ids[0] == 0xFFFFFFFF or 1024 in ids)
        assert admin.get_log(4, 4096)[1] == bytes(4096)


def test_a_thousand_namespaces_come_and_half_of_them_go(start):
    """The active list goes on by its starting id; what has changed is told once (B030)."""
    hauld = start()
    many = config(subsys(A, *((n, "null=1M") for n in range(1, 1025))))
    half = config(subsys(A, *((n, "null=1M") for n in range(1, 1025, 2))))
    with Control(hauld.control) as control:
        before = counters(control.status())
        with nvmetcp.Admin(hauld.address, A) as admin, admin.io_queue() as queue:
            many_come_and_half_go(control, admin, queue, many, half)
        control.change(BASE)
        wait_for(lambda: counters(control.status()) == before)


def test_events_that_nobody_takes_or_too_many_do_not_hold_up_changes(start):
    """B024: each call is quick, and nothing of the event requests is left."""
    hauld = start()
    many = config(subsys(A, (1, "ram=1M"), (2, "ram=1M")), subsys(B, (1, "ram=1M"), (2, "ram=2M")))
    with Control(hauld.control, timeout=5) as control:
        before = counters(control.status())
        with nvmetcp.Admin(hauld.address, A, hostnqn=FRIEND) as admin:
            def arm():
                cid = admin.cid()
                admin.send(admin.capsule(nvme.command(nvme.ASYNC_EVENT, cid=cid)))
                return cid
            assert admin.set_feature(0x0B, 1 << 8).status == 0   # changes of namespaces
            first = [arm() for _ in range(4)]
            for turn in range(100):
                control.change(many)
                control.change(BASE)
                if turn == 0:
                    assert admin.finish(first[0])[0].status == 0
                    assert admin.get_log(4, 4096)[0].status == 0
            fifth = [arm() for _ in range(8)][-1]
            assert admin.finish(fifth)[0].status in (0, nvme.AER_LIMIT)
            control.change(many)
            arm()
        control.change(BASE)
        wait_for(lambda: counters(control.status()) == before)


@pytest.mark.parametrize("hosts, queues", [(1, 31), (8, 3)])
def test_queues_are_spread_evenly(start, hosts, queues):
    """B177: at most one more on one thread than on another, also when some have gone."""
    hauld = start(BASE, "--threads", "4")

    def spread():
        counts = [reactor["connections"] for reactor in control.status()["reactors"]]
        return sum(counts), max(counts) - min(counts)
    with Control(hauld.control) as control:
        admins = [nvmetcp.Admin(hauld.address, A, hostnqn=f"{FRIEND}{n}") for n in range(hosts)]
        io = [admin.io_queue(qid + 1) for qid in range(queues) for admin in admins]
        assert spread() == (32, 0)
        for queue in io[::2]:
            queue.close()
        wait_for(lambda: spread()[0] == 32 - len(io[::2]))
        more = [admins[n % hosts].io_queue(40 + n // hosts) for n in range(len(io[::2]))]
        assert spread() == (32, 0)
        for connection in admins + io + more:
            connection.close()


# --- listeners, subsystems, hosts ---

def test_a_listener_may_come_and_go_beside_another(start):
    """B020, B175: who came in elsewhere stays; the port is open just as long as it is offered."""
    hauld = start()
    second = ("127.0.0.1", free_port())
    one, two = hauld.uris[0], "tcp://%s:%d" % second
    text = BASE.split("\n", 1)[1]
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        for _ in range(20):
            assert control.change(f'listen: ["tcp://127.0.0.1:0", "{two}"]\n' + text) == [f"+ listener {two}"]
            with nvmetcp.Admin(second, B, hostnqn=FRIEND) as admin, admin.io_queue() as queue:
                assert read_status(queue, 1) == 0
                assert control.change(BASE) == [f"- listener {two}"]
                admin.expect_end()
                queue.expect_end()
            assert not can_connect(second)
            busy.worked(1)
        assert control.change('listen: ["tcp://127.0.0.1:0?hdgst=off"]\n' + text) == \
            [f"~ listener {one}: hdgst on -> off"]
        wait_for(lambda: busy.error)   # its listener was the other one
        busy.error = None


def test_a_listener_is_known_by_the_address_that_status_shows(start):
    hauld = start()
    text = BASE.split("\n", 1)[1]
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        assert control.change(f'listen: ["{hauld.uris[0]}"]\n' + text) == []
        assert control.change(f'listen: ["{hauld.uris[0]}"]\n' + text) == []
        assert control.change(BASE) == []
        busy.worked(1)


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_a_listener_that_was_to_go_stays_when_its_successor_cannot_listen(start, kind):
    """PITFALLS B020: an error changes nothing, also after the listener has made room."""
    text = BASE.split("\n", 1)[1]
    hauld = start(f'listen: ["tcp://127.0.0.1:0", "{kind}://127.0.0.1:0"]\n' + text, env=conftest.rdma_environment())
    old = conftest.split_uri(hauld.uris[1])
    with socket.create_server(("127.0.0.1", 0)) as taken, Control(hauld.control) as control:
        uri = "tcp://127.0.0.1:%d" % taken.getsockname()[1]
        answer = control.apply(f'listen: ["tcp://127.0.0.1:0", "{uri}"]\n' + text)
        assert uri in answer["error"], answer
        with hosts.Queue(kind, old, A) as queue:
            assert queue.status(nvme.READ, nsid=1, read=512, cdw=nvme.rw_cdw(0, 1)) == 0


def test_an_rdma_listener_may_come_and_go_beside_another(start):
    """B020 over RDMA; what is left of the device is counted at hauld's end."""
    second = f"rdma://127.0.0.1:{free_port()}"
    text = BASE.replace("tcp:", "rdma:")
    hauld = start(text, env=conftest.rdma_environment())
    more = text.replace('["', f'["{second}", "')

    def reads(rdma, address, key):
        return rdma.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 8),
                            dptr=nvmerdma.keyed(address, 4096, key)).status == 0
    with Control(hauld.control) as control, nvmerdma.Pair(hauld.address, A) as stays:
        region = stays.io.region(0, 4096)
        queue = control.status()["hosts"][0]["controllers"][0]["queues"][1]
        assert (queue["transport"], queue["qid"], queue["depth"]) == ("rdma", 1, 32)
        for _ in range(4):
            before = counters(control.status())
            assert control.change(more) == [f"+ listener {second}"]
            with nvmerdma.Pair(conftest.split_uri(second), B) as goes:
                assert reads(goes.io, *goes.io.region(0, 4096))
                assert control.change(text) == [f"- listener {second}"]
                goes.io.expect_end()
                goes.admin.expect_end()
            assert nvmerdma.Rdma(conftest.split_uri(second)).outcome != "established"
            assert reads(stays.io, *region)
            wait_for(lambda: {**counters(control.status()), "descriptors": 0} == {**before, "descriptors": 0})


def test_subsystems_come_and_go_with_hosts_at_work(start):
    """B022: hosts of the removed one are sent away each time, nothing is left."""
    hauld = start()
    only_a = config(subsys(A, (1, "ram=1M")))
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        before = counters(control.status())
        for turn in range(30):
            hosts = [nvmetcp.Admin(hauld.address, B, hostnqn=f"{FRIEND}{n}") for n in range(3)]
            queues = [host.io_queue() for host in hosts]
            for queue in queues:
                for cid in range(turn % 8):
                    queue.send(queue.capsule(nvme.command(
                        nvme.READ, cid=cid, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 4096),
                        cdw=nvme.rw_cdw(0, 8))))
            assert f"- subsystem {B}" in control.change(only_a)
            for connection in hosts + queues:
                connection.expect_end()
                connection.close()
            with nvmetcp.Tcp(hauld.address) as host:
                assert host.connect(subnqn=B).status == nvme.CONNECT_INVALID
            assert any(line.startswith(f"+ subsystem {B}") for line in control.change(BASE))
            busy.worked(1)

        def settled():
            now = counters(control.status())
            return [now["places"], now["descriptors"], [r["namespaces"] for r in now["reactors"]]] == \
                [before["places"], before["descriptors"], [r["namespaces"] for r in before["reactors"]]]
        wait_for(settled)


def test_a_host_that_is_struck_off_goes_and_others_stay(start):
    """B014, B015: at once, whatever the number of times it was listed."""
    def allowing(*hosts):
        return config(subsys(A, (1, "ram=1M"), allow=list(hosts)))
    busy_nqn = "nqn.2026-11.io.haul:busy"
    hauld = start(allowing(busy_nqn))
    with Control(hauld.control) as control, Busy(hauld.address, A, hostnqn=busy_nqn) as busy:
        with nvmetcp.Tcp(hauld.address) as host:
            assert host.connect(subnqn=A, hostnqn=FRIEND).status == nvme.CONNECT_INVALID_HOST
        assert control.change(allowing(busy_nqn, FRIEND, FRIEND)) == [f"+ host {FRIEND} of {A}"]
        with nvmetcp.Admin(hauld.address, A, hostnqn=FRIEND) as admin, admin.io_queue() as queue:
            assert read_status(queue, 1) == 0
            assert control.change(allowing(busy_nqn)) == [f"- host {FRIEND} of {A}"]
            admin.expect_end()
            queue.expect_end()
        with nvmetcp.Tcp(hauld.address) as host:
            assert host.connect(subnqn=A, hostnqn=FRIEND).status == nvme.CONNECT_INVALID_HOST
        busy.worked()


def test_controllers_that_end_as_soon_as_they_are_made_leave_nothing(start):
    """B031: with and without the listener going meanwhile."""
    hauld = start()
    second = ("127.0.0.1", free_port())
    both = f'listen: ["tcp://127.0.0.1:0", "tcp://127.0.0.1:{second[1]}"]\n' + BASE.split("\n", 1)[1]
    with Control(hauld.control) as control:
        before = counters(control.status())
        for turn in range(40):
            control.change(both)
            host = nvmetcp.Tcp(second)
            data = nvme.connect_data(subnqn=A, hostnqn=FRIEND)
            host.send(host.capsule(nvme.connect_command(
                dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, len(data))), data))
            if turn % 2:
                control.change(BASE)
            host.close()
            control.change(BASE)
        wait_for(lambda: counters(control.status()) == before)

# SPDX-License-Identifier: MIT
"""Whole files are applied: mistakes change nothing, many changes leave nothing behind, SIGHUP reads the file again."""
import os
import pathlib
import signal
import socket
import threading

import conftest
import hosts
import nvmerdma
import pytest
from control import A, B, BASE, Busy, Control, config, counters, haulctl, offered, start, subsys, wait_for

FRIEND = "nqn.2026-11.io.haul:friend"
HAULD = str(conftest.BUILD / "target" / "hauld")


# --- mistakes ---

MISTAKES = [
    (config(subsys("a name")), 3, "subsystems.0.nqn"),
    (config(subsys(A), subsys(A)), 4, "subsystems.1.nqn"),
    (config(subsys(A, (1, "ram=1M"), (1, "ram=1M"))), 8, "nsid"),
    (config(subsys(A, (1, "path=/no/such/disk"))), 5, "/no/such/disk"),
    (config(subsys(A, (1, "path=/dev/null"))), 5, "/dev/null"),
    (config(subsys(A, (1, "ram=1M uuid=1-2"))), 7, "uuid"),
    (config(subsys(A, (1, "ram=1M colour=red"))), 7, "colour"),
    (config(subsys(A) + "    serial: 123456789012345678901\n"), 4, "serial"),
    (config(subsys(A), listen=["tcp://127.0.0.1:0", "udp://127.0.0.1:1"]), 1, "listen.1"),
    (config(subsys(A), listen=["tcp://127.0.0.1:0", "tcp://192.0.2.77:0"]), 1, "listen.1"),
    (config(subsys(A), listen=[]), 1, "listen"),
    ("", 1, "empty"), ("listen: [\n", 2, "YAML"), ("listen: [a]\n\x00", 1, None),
    (BASE[:len(BASE) // 2], 3, None),
]


@pytest.mark.parametrize("text, line, word", MISTAKES)
def test_a_mistake_changes_nothing_and_names_its_line(start, text, line, word):
    """B170: then the right call works."""
    hauld = start()
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        before = control.status()
        for dry_run in (True, False):
            if line is None and dry_run:
                continue
            answer = control.apply(text, dry_run=dry_run)
            if dry_run and word == "listen.1" and "192.0.2.77" in text:
                assert "changes" in answer   # addresses are not tried
                continue
            assert list(answer) == ["error", "version"], answer
            if word:
                assert answer["error"].startswith(f"a.conf:{line}: ") and word in answer["error"]
        after = control.status()
        assert offered(after) == offered(before)
        assert after["target"]["generation"] == before["target"]["generation"]
        assert after["target"]["namespace_places"] == before["target"]["namespace_places"]
        assert len(control.change(BASE + "  - nqn: nqn.2026-11.io.haul:c\n")) == 2
        busy.worked()


def test_a_busy_port_changes_nothing(start):
    hauld = start()
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        uri = "tcp://127.0.0.1:%d" % other.getsockname()[1]
        before = control.status()
        answer = control.apply(config(subsys(B, (5, "ram=1M")), listen=["tcp://127.0.0.1:0", uri]))
        assert answer["error"].startswith("a.conf:1: listen.1: ") and uri[6:] in answer["error"]
        assert offered(control.status()) == offered(before)
        busy.worked()


def test_a_disk_that_is_open_otherwise_must_be_removed_first(start, tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    base = config(subsys(A, (1, f"path={disk} readonly=true")))
    hauld = start(base)
    with Control(hauld.control) as control:
        answer = control.apply(config(subsys(A, (1, f"path={disk}"))))
        assert "remove the namespace first" in answer["error"]
        answer = control.apply(config(subsys(A, (1, f"path={disk}"), (2, f"path={tmp_path}/./disk"))))
        assert "error" in answer
        assert control.change(base) == []
        control.change(config(subsys(A)))
        control.change(config(subsys(A, (1, f"path={disk}"))))


@pytest.mark.parametrize("dry_run", [None, 1, 0, "true", []], ids=str)
def test_who_does_not_say_whether_it_is_dry_changes_nothing(start, dry_run):
    with Control(start().control) as control:
        before = control.status()
        answer = control.apply(config(subsys(B, (1, "ram=1M"))), dry_run=dry_run)
        assert answer.get("error") == "dry_run is neither true nor false", answer
        assert offered(control.status()) == offered(before)


def test_a_dry_run_changes_nothing(start, tmp_path):
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    hauld = start()
    other = config(subsys(A, (1, "ram=2M"), (3, f"path={tmp_path}/disk")), listen=["tcp://127.0.0.2:0"])
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        before = control.status()
        lines = control.change(other, dry_run=True)
        assert {line.split(" ", 2)[1] for line in lines} == {"listener", "namespace", "subsystem"}
        after = control.status()
        assert offered(after) == offered(before)
        assert after["target"]["descriptors"] == before["target"]["descriptors"]
        assert after["target"]["generation"] == before["target"]["generation"]
        busy.worked()
    with Control(hauld.control) as control:
        assert [line for line in control.change(other) if "tcp" not in line and "uuid" not in line] == \
            [line for line in lines if "tcp" not in line and "uuid" not in line]


def test_settings_wait_for_the_next_start(start):
    hauld = start()
    with Control(hauld.control) as control:
        answer = control.apply(BASE + "threads: 5\nengine: epoll\nmemory: 64M\nspin_us: 3\npatience_s: 7\nkas_s: 2\n"
                               "cntlid_min: 2\ncntlid_max: 900\n"
                               "control: none\n")
        assert answer["changes"] == []
        assert [note.split()[0] for note in answer["notes"]] == \
            ["threads", "engine", "memory", "spin_us", "patience_s", "kas_s", "cntlid_min", "cntlid_max", "control"]
        answer = control.apply(BASE + "threads: 2\nspin_us: 20\n")
        assert answer["notes"] == []


def test_settings_that_are_not_in_the_file_any_more_wait_too(start):
    own = "nqn.2026-11.io.haul:discovery"
    hauld = start(BASE + f"cntlid_min: 500\ncntlid_max: 563\ndiscovery_nqn: {own}\nspin_us: 7\n")
    with Control(hauld.control) as control:
        for dry_run in (True, False):
            answer = control.apply(BASE, dry_run=dry_run)
            assert answer["changes"] == []
            # Not threads: they are on the command line.
            assert [note.split()[0] for note in answer["notes"]] == \
                ["spin_us", "cntlid_min", "cntlid_max", "discovery_nqn"]
            answer = control.apply(config(subsys(A), subsys(own)), dry_run=dry_run)
            assert answer["error"] == f"a.conf:4: subsystems.1.nqn: '{own}': " \
                "hauld's discovery service has this name until hauld is restarted"
            answer = control.apply(config(subsys(A), subsys(own)) + f"discovery_nqn: {own}\n", dry_run=dry_run)
            assert answer["error"] == "a.conf:5: discovery_nqn: a subsystem has this name, too"
        assert control.ask("config")["config"]
        assert control.apply(control.ask("config")["config"])["notes"] == []


def test_the_log_tells_what_was_done_and_no_dry_run(start):
    hauld = start()
    other = config(subsys(A, (1, "ram=1M")), subsys(B)) + "threads: 5\n"
    with Control(hauld.control) as control:
        control.change(other, dry_run=True)
        assert "a.conf" not in hauld.log_path.read_text()
        control.change(other)
        control.change(config(subsys(A, (1, "ram=1M"), (2, "ram=1M")), subsys(B)))
    text = hauld.log_path.read_text()
    assert "a.conf: threads cannot change" in text and "a.conf: 1 change made" in text


# --- many changes ---

def test_hundreds_of_applies_leave_the_counters_where_they_were(start, tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    hauld = start()
    other = config(subsys(A, (1, "ram=1M"), (2, f"path={disk}"), (3, "null=1M")),
                   subsys(B, (1, "ram=1M"), allow=[FRIEND]), listen=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    bad = config(subsys(A, (1, "ram=1M"), (2, f"path={disk}"), (3, "path=/no/such/disk")))
    with Control(hauld.control) as control:
        with Busy(hauld.address, A):
            control.change(other)
            control.change(BASE)
        wait_for(lambda: not control.status()["hosts"])
        before = counters(control.status())
        rss = control.status()["target"]["resident_bytes"]
        with Busy(hauld.address, A) as busy:
            for _ in range(150):
                assert control.change(other)
                assert "error" in control.apply(bad)
                assert control.change(BASE)
            busy.worked()
        wait_for(lambda: counters(control.status()) == before)
        if b"libasan" not in pathlib.Path(HAULD).read_bytes():   # which keeps what is free for a while
            assert control.status()["target"]["resident_bytes"] < rss + (8 << 20)


def test_clients_that_change_the_same_thing_are_served_in_turn(start):
    """B027: every call returns, and the end is that of the last."""
    hauld = start()
    texts = [config(subsys(A, (1, "ram=1M"), (2, "ram=1M"))), BASE,
             config(subsys(A, (1, "ram=1M")), listen=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])]
    answers = []

    def client(mine):
        with Control(hauld.control) as control:
            for turn in range(60):
                answers.append(control.apply(texts[(turn + mine) % 3], dry_run=turn % 5 == 4))
    with Busy(hauld.address, A):
        threads = [threading.Thread(target=client, args=(mine,)) for mine in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(answers) == 180 and all("changes" in answer for answer in answers)
        with Control(hauld.control) as control:
            control.change(BASE)
            assert control.change(BASE) == []
            assert len(control.status()["listeners"]) == 1


# --- files ---

def test_sighup_reads_the_file_again(start):
    hauld = start()

    def hup(word):
        size = hauld.log_path.stat().st_size
        hauld.process.send_signal(signal.SIGHUP)
        wait_for(lambda: word in hauld.log_path.read_text()[size:])
    with Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        before = offered(control.status())
        hauld.path.write_text(config(subsys(A, (1, "ram=1M"), (8, "ram=1M"))))
        hup(" made")
        assert [ns["nsid"] for ns in control.status()["subsystems"][0]["namespaces"]] == [1, 8]
        hauld.path.write_text("listen: [")
        hup(f"nothing has changed: {hauld.path}:")
        hauld.path.unlink()
        hup("nothing has changed")
        assert len(control.status()["subsystems"][0]["namespaces"]) == 2
        busy.worked()
        hauld.path.write_text(BASE)
        hup(" made")
        now = offered(control.status())
        assert now["listeners"] == before["listeners"]
        assert now["subsystems"][0] == before["subsystems"][0]


def test_relative_paths_start_where_the_file_is(start, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "disk").write_bytes(bytes(1 << 20))
    hauld = start()
    text = config(subsys(A, (1, "ram=1M"), (2, "path=disk")))
    (folder / "c.conf").write_text(text)
    for args, kw in (((str(folder / "c.conf"),), {}), (("images/c.conf",), {"cwd": tmp_path}),
                     (("c.conf",), {"cwd": folder}), (("-",), {"cwd": folder, "input": text})):
        code, out, err = haulctl(hauld.control, "apply", *args, **kw)
        assert (code, err) == (0, "") and (f"{folder}/disk" in out or out == "nothing changes\n")
    assert haulctl(hauld.control, "apply", "-", cwd=tmp_path, input=text)[0] == 1
    code, out, _ = haulctl(hauld.control, "apply", "-", "--dry-run", input=BASE)
    assert code == 0 and out.startswith(f"- namespace 2 of {A}: {folder}/disk\n")


def test_what_was_exported_on_the_command_line_can_be_changed_too(start_hauld, tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", f"{os.path.relpath(disk)},nqn={A},nsid=4",
                        "ram:1M")
    with Control(hauld.control) as control:
        status = control.status()
        own = status["subsystems"][1]["nqn"]
        assert status["subsystems"][0]["namespaces"][0]["path"] == str(disk)
        with Busy(hauld.address, A, nsid=4), Busy(hauld.address, own):
            same = config(subsys(A, (4, f"path={disk}")), subsys(own, (1, "ram=1M")))
            same = same.replace(f"nqn: {own}", f"nqn: {own}\n    serial: {status['subsystems'][1]['serial']}")
            assert control.change(same) == []
            assert len(control.change(same + subsys(B, (1, "ram=1M")))) == 3
    with Control(hauld.control) as control:
        assert len(control.change(config(subsys(A, (4, f"path={disk}"))))) > 0


@pytest.mark.parametrize("engine", conftest.ENGINES)
def test_rdma_listeners_that_end_leave_nothing(start, engine):
    """A channel of the connection manager is kept for as long as connections need it, not for ever."""
    one, other, bad = "rdma://127.0.0.1:0", "rdma://127.0.0.1:0?tos=1", "tcp://192.0.2.77:0"
    hauld = start(config(subsys(A, (1, "ram=1M")), listen=[one]), engine=engine, env=conftest.rdma_environment())

    def visit():
        port = int(control.status()["listeners"][0]["uri"].rsplit(":", 1)[1])
        with nvmerdma.Pair(("127.0.0.1", port), A):
            pass

    with Control(hauld.control) as control:
        for listener in (other, one):       # what each reactor opens for its first host stays
            for _ in range(2):
                visit()
            control.change(config(subsys(A, (1, "ram=1M")), listen=[listener]))
        before = wait_for(lambda: (now := counters(control.status())) and
                          not any(reactor["connections"] for reactor in now["reactors"]) and now)
        for _ in range(5):
            for listener in (other, one):
                visit()
                assert "error" in control.apply(config(subsys(A, (1, "ram=1M")), listen=[listener, bad]))
                control.change(config(subsys(A, (1, "ram=1M")), listen=[listener]))
        wait_for(lambda: counters(control.status()) == before)

# SPDX-License-Identifier: MIT
"""The control socket itself: who may use it, and what clients that do it wrong do to others."""
import json
import os
import signal
import stat
import subprocess
import time

import conftest
import pytest
from at_once import AtOnce
from control import A, BASE, Busy, Control, config, free_port, haulctl, offered, start, starting, subsys, wait_for

at_once = AtOnce()
told = at_once.fixture(starting)
HAULD = str(conftest.BUILD / "target" / "hauld")

# --- hostile clients ---

MALFORMED = [b"\n", b"{}\n", b"[]\n", b"null\n", b"17\n", b"\"status\"\n", b"{\"version\":1}\n",
             b"{\"version\":2,\"request\":\"status\"}\n", b"{\"version\":\"1\",\"request\":\"status\"}\n",
             b"{\"version\":1,\"request\":7}\n", b"{\"version\":1,\"request\":\"explode\"}\n",
             b"{\"version\":1,\"request\":\"apply\"}\n",
             b"{\"version\":1,\"request\":\"apply\",\"file\":\"a\",\"directory\":\"/\",\"text\":{}}\n",
             b"{\"version\":1,\"request\":\"apply\",\"file\":\"a\",\"directory\":\"b\",\"text\":\"\"}\n",
             b"{\"version\":1,\"request\":\"apply\",\"file\":\"a\\u0000\",\"directory\":\"/\",\"text\":\"\"}\n",
             b"{\"version\":1,\"request\":\"apply\",\"file\":\"a\",\"directory\":\"/\",\"text\":\"\",\"dry_run\":1}\n",
             b"{\"version\":1,\"request\":\"status\"\n", b"{\"version\":1,\"request\":\"status\"}}\n",
             b"{\"version\":1,\"request\":\"status\"} x\n", b"\xff\xfe\x00\n", b"[" * 100000 + b"\n",
             b"{\"a\":" * 1000 + b"1" + b"}" * 1000 + b"\n",
             b"{\"version\":1,\"request\":\"" + b"s" * 1000000 + b"\"}\n", b"GET / HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_malformed_requests_are_answered_once_and_harm_nobody(start, number):
    """B171."""
    hauld = start()
    raw = MALFORMED[number]
    with Control(hauld.control) as control:
        before = control.status()
        for _ in range(3):
            control.send(raw)
            for _ in range(raw.count(b"\n")):
                assert list(control.answer()) == ["error", "version"]
        after = control.status()
        assert offered(after) == offered(before)
        assert after["target"]["generation"] == before["target"]["generation"]


@pytest.mark.parametrize("line, word", [(b"[]", "something else"), (b"", "ends before"),
                                        (b'{"a":', "ends before"), (b"{]", "expected")])
def test_what_is_no_object_is_told_why(start, line, word):
    with Control(start().control) as control:
        control.send(line + b"\n")
        assert word in control.answer()["error"]


def test_a_line_without_end_is_cut_off(start):
    hauld = start()
    with Control(hauld.control) as control, Control(hauld.control) as other:
        try:
            for _ in range(200):
                control.send(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = control.answer()
        assert answer is None or "too long" in answer["error"]
        assert control.answer() is None
        other.status()


@at_once
def test_clients_that_do_not_go_on_are_bounded_in_number_and_time(start):
    hauld = start()
    halves = [Control(hauld.control) for _ in range(32)]
    for number, half in enumerate(halves):
        half.send(b"{\"version\":1,"[:number % 14])
    wait_for(lambda: Control(hauld.control).answer() is None, seconds=5)
    with Busy(hauld.address, A) as busy:
        busy.worked()
        halves.pop().close()

        def room():
            with Control(hauld.control) as control:
                try:
                    return control.ask("status")
                except (BrokenPipeError, ConnectionResetError):
                    return None
        wait_for(room)
        started = time.monotonic()
        assert halves[0].answer() is None
        assert time.monotonic() - started < 15
    for half in halves:
        half.close()


def test_a_client_may_leave_before_its_answer(start):
    hauld = start()
    request = {"version": 1, "request": "apply", "file": "f", "directory": "/", "text": BASE}
    other = config(subsys(A, (1, "ram=1M")))
    with Busy(hauld.address, A), Control(hauld.control) as control:
        for turn in range(50):
            with Control(hauld.control) as client:
                try:
                    client.send(json.dumps({**request, "text": (BASE, other)[turn % 2]}).encode() + b"\n"
                                + b"{\"version\":1,\"request\":\"status\"}\n" * (turn % 4))
                except BrokenPipeError:
                    pass   # those before it are not done yet: there are too many
        wait_for(lambda: control.change(BASE) == [])


def test_an_answer_that_nobody_takes_delays_nobody(start):
    many = config(subsys(A, (1, "ram=1M"), *((n, "null=1M") for n in range(2, 1025))))
    hauld = start(many)
    with Control(hauld.control) as lazy, Control(hauld.control) as control, Busy(hauld.address, A) as busy:
        lazy.send(b"{\"version\":1,\"request\":\"status\"}\n" * 100)
        for _ in range(5):
            assert len(control.status()["subsystems"][0]["namespaces"]) == 1024
        busy.worked()


def test_requests_may_come_in_pieces_or_together(start):
    hauld = start()
    line = b"{\"version\":1,\"request\":\"status\"}\n"
    with Control(hauld.control) as control:
        for at in range(len(line)):
            control.send(line[at:at + 1])
        assert "status" in control.answer()
        control.send(line * 5 + line[:7])
        for _ in range(5):
            assert "status" in control.answer()
        control.send(line[7:])
        assert "status" in control.answer()


# --- the socket ---

def test_the_socket_is_for_this_user_only_and_goes_with_hauld(start):
    hauld = start()
    assert stat.S_IMODE(os.stat(hauld.control).st_mode) == 0o600
    assert hauld.stop() == 0
    assert not hauld.control.exists()


def test_the_socket_of_a_killed_hauld_is_replaced(start_hauld, tmp_path):
    path = tmp_path / "sock"
    args = ("--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--control", str(path))
    for _ in range(3):
        hauld = start_hauld(*args)
        hauld.process.kill()
        hauld.process.wait()
        assert path.exists()
        hauld.stop = lambda: 0
    hauld = start_hauld(*args)
    assert haulctl(path, "status")[0] == 0
    done = subprocess.run([HAULD, *args], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "runs" in done.stderr and str(path) in done.stderr
    assert haulctl(path, "status")[0] == 0


@pytest.mark.parametrize("make, word", [
    (lambda path: path.write_text("mine"), "something else"), (lambda path: path.mkdir(), "something else"),
    (lambda path: os.symlink("/nowhere", path), "something else")])
def test_what_is_no_socket_is_left_alone(tmp_path, make, word):
    path = tmp_path / "sock"
    make(path)
    done = subprocess.run([HAULD, "--listen", "tcp://127.0.0.1:0", "--export", "null:1M", "--control", str(path)],
                          capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and word in done.stderr and os.path.lexists(path)


def test_without_a_place_for_the_default_socket_there_is_a_warning(start_hauld, tmp_path, monkeypatch):
    args = ("--listen", "tcp://127.0.0.1:0", "--export", "null:1M")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    hauld = start_hauld(*args, default_control=True)
    assert hauld.log_path.read_text().count("control socket") == 1
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    first = start_hauld(*args, default_control=True)
    assert haulctl(tmp_path / "hauld.sock", "status")[0] == 0
    second = start_hauld(*args, default_control=True)
    assert "control socket" not in first.log_path.read_text()
    assert "that of a hauld that runs" in second.log_path.read_text()
    third = start_hauld(*args, "--control", "none")
    assert "control socket" not in third.log_path.read_text()


def test_it_stops_with_clients_and_changes_under_way(start):
    """B174."""
    for turn in range(6):
        hauld = start()
        clients = [Control(hauld.control) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(json.dumps({"version": 1, "request": "apply", "file": "f", "directory": "/",
                                    "text": config(subsys(A, (number + 1, "ram=1M")))}).encode()
                        + b"\n" * (number % 2) + b"{\"version\":1,\"request\":\"status\"}\n")
        time.sleep(turn * 0.002)
        hauld.process.send_signal((signal.SIGTERM, signal.SIGINT)[turn % 2])
        assert hauld.process.wait(timeout=15) == 0, hauld.log_path.read_text()
        assert not hauld.control.exists()
        for client in clients:
            client.close()


def test_it_may_be_stopped_while_it_starts(tmp_path):
    """B174: with a defined status, and the port is free at once."""
    port = free_port()
    args = [HAULD, "--listen", f"tcp://127.0.0.1:{port}", "--export", "null:1M", "--control",
            str(tmp_path / "sock")]
    for turn in range(25):
        with subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            time.sleep(turn * 0.002)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=15) in (0, -signal.SIGTERM), process.stderr.read()

# SPDX-License-Identifier: MIT
"""hauld's control socket from the other side: raw lines, and haulctl."""
import contextlib
import json
import os
import socket
import subprocess
import threading
import time

import conftest
import nvme
import nvmetcp
import pytest

HAULCTL = str(conftest.BUILD / "target" / "haulctl")


class Control:
    """One connection to a control socket."""

    def __init__(self, path, *, timeout=20.0):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(str(path))
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, raw):
        self.sock.sendall(raw)

    def answer(self):
        """The next line, parsed; None when the other side has closed."""
        while b"\n" not in self.rest:
            try:
                piece = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not piece:
                return None
            self.rest += piece
        line, self.rest = self.rest.split(b"\n", 1)
        answer = json.loads(line)
        assert answer["version"] == 1
        return answer

    def ask(self, request, **members):
        self.send(json.dumps({"version": 1, "request": request, **members}).encode() + b"\n")
        return self.answer()

    def status(self):
        answer = self.ask("status")
        assert "status" in answer, answer
        return answer["status"]

    def apply(self, text, *, dry_run=False, directory="/", name="a.conf"):
        return self.ask("apply", file=name, directory=str(directory), text=text, dry_run=dry_run)

    def change(self, text, **kw):
        """apply that must succeed: the lines of what has changed."""
        answer = self.apply(text, **kw)
        assert "error" not in answer, answer
        return answer["changes"]


def haulctl(path, *args, timeout=20, **kw):
    """(exit status, stdout, stderr)"""
    done = subprocess.run([HAULCTL, "--control", str(path), *args], capture_output=True, text=True,
                          timeout=timeout, check=False, **kw)
    return done.returncode, done.stdout, done.stderr


def offered(status):
    """What a status says that a change could change."""
    return {key: status[key] for key in ("listeners", "subsystems")}


def counters(status):
    """What must be as before when nobody is connected and the same is offered."""
    per_reactor = [{key: reactor[key] for key in ("connections", "controllers", "requests", "hosts",
                                                  "fences", "namespaces", "namespace_requests")}
                   | {key: reactor["pool"][key] for key in ("used_buffers", "used_bytes", "waiting")}
                   for reactor in status["reactors"]]
    return {"places": status["target"]["namespace_places"],
            "descriptors": status["target"]["descriptors"], "reactors": per_reactor}


def wait_for(what, *, seconds=10):
    """Until WHAT() is true; returns it."""
    deadline = time.monotonic() + seconds
    while not (seen := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return seen


class Busy:
    """A host that writes and verifies all the time, on a thread, and fails the test at its end if anything went wrong."""

    def __init__(self, address, subnqn, *, nsid=1, hostnqn="nqn.2026-11.io.haul:busy", blocks=256):
        self.admin = nvmetcp.Admin(address, subnqn, hostnqn=hostnqn)
        self.queue = self.admin.io_queue()
        self.nsid, self.blocks = nsid, blocks
        self.error, self.rounds, self.stopping = None, 0, False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stopping = True
        self.thread.join(20)
        self.queue.close()
        self.admin.close()
        if kind is None:
            assert self.error is None, f"the host was disturbed: {self.error!r}"
            assert self.rounds > 0

    def _run(self):
        try:
            while not self.stopping:
                self._round()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def _round(self):
        count = 8 + self.rounds % 64
        slba = self.rounds * 13 % (self.blocks - count)
        data = os.urandom(count * 512)
        for opcode, kw in ((nvme.WRITE, {"write": data}), (nvme.READ, {"read": len(data)})):
            cqe, got = self.queue.command(opcode, nsid=self.nsid, cdw=nvme.rw_cdw(slba, count), **kw)
            assert cqe.status == 0, cqe
        assert got == data, f"blocks from {slba} hold something else"
        self.rounds += 1

    def worked(self, rounds=3):
        """It goes on."""
        goal = self.rounds + rounds
        wait_for(lambda: self.error or self.rounds >= goal)
        assert self.error is None, f"the host was disturbed: {self.error!r}"


# --- configurations ---

A, B = "nqn.2026-11.io.haul:a", "nqn.2026-11.io.haul:b"


def subsys(nqn, *namespaces, allow=None, ana=()):
    """NAMESPACES: (nsid, "ram=1M readonly=true"); ANA: (group, state) or (group, state, listener...)."""
    lines = [f"  - nqn: {nqn}"]
    if allow is not None:
        lines.append(f"    allow: {json.dumps(allow)}")
    if ana:
        lines.append("    ana:")
    for group, state, *listeners in ana:
        at = f", listeners: {json.dumps(listeners)}" if listeners else ""
        lines.append(f"      - {{group: {group}, state: {state}{at}}}")
    if namespaces:
        lines.append("    namespaces:")
    for number, disk in namespaces:
        options = disk.split()
        lines += [f"      - {options[0].replace('=', ': ', 1)}", f"        nsid: {number}"]
        lines += [f"        {option.replace('=', ': ', 1)}" for option in options[1:]]
    return "\n".join(lines) + "\n"


def config(*subsystems, listen=("tcp://127.0.0.1:0",), more=""):
    return f"listen: {json.dumps(list(listen))}\nsubsystems:\n" + "".join(subsystems) + more


BASE = config(subsys(A, (1, "ram=1M")), subsys(B, (1, "ram=1M"), (2, "ram=2M")))


@contextlib.contextmanager
def starting(directory):
    """start(TEXT, ...): a hauld that runs TEXT, on two threads. FILES: disks beside it, {name: bytes}."""
    started = []

    def go(text=BASE, *args, files=(), **kw):
        for name, size in dict(files).items():
            (directory / name).write_bytes(bytes(size))
        path = directory / "hauld.conf"
        path.write_text(text)
        started.append(conftest.Hauld(directory, "--config", str(path), "--threads", "2", *args, **kw))
        started[-1].path = path
        return started[-1]
    yield go
    for hauld in started:
        assert hauld.stop() == 0, hauld.log_path.read_text()


@pytest.fixture
def start(tmp_path):
    with starting(tmp_path) as go:
        yield go


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

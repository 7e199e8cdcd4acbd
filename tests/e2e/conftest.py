# SPDX-License-Identifier: MIT
"""Programs as users run them: a hauld, and haul or fio against it, over TCP and over RDMA (softrdma), on both engines.

    HAUL_BUILD_DIR=build python3 -m pytest tests/e2e [--transports tcp,rdma] [--engines io_uring,epoll]

Everything is started by the tests, on ports of the system's choice, and dies with them.
"""
import collections
import ctypes
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HAUL_BUILD_DIR", ROOT / "build")).resolve()
HAUL = BUILD / "initiator" / "haul"
HAULD = BUILD / "target" / "hauld"
ENGINE = BUILD / "fio-plugin" / "fio-haul.so"
SOFTRDMA = BUILD / "tests" / "softrdma"
NQN = "nqn.2026-11.io.haul:e2e"


def pytest_addoption(parser):
    parser.addoption("--transports", help="transports to try")
    parser.addoption("--engines", help="event loop engines to try, for both sides")
    parser.addoption("--part", choices=("same", "whole", "again"), help="same: just what is the same for all transports "
                     "and engines; whole: the rest; again: the rest, without most of long tables")


def pytest_configure(config):
    config.addinivalue_line("markers", "each: runs on each engine of each transport")


def pytest_generate_tests(metafunc):
    """All combinations of what is asked for; else each engine and each transport once."""
    tried = [(fixture, metafunc.config.getoption(option), default) for fixture, option, default in (
        ("transport", "--transports", "tcp,rdma"), ("engine", "--engines", "io_uring,epoll"))
        if fixture in metafunc.fixturenames]
    if len(tried) == 2 and not any(asked for _, asked, _ in tried):
        metafunc.parametrize("transport, engine", [("tcp", "io_uring"), ("rdma", "epoll")], scope="session")
        return
    for fixture, asked, default in tried:
        metafunc.parametrize(fixture, (asked or default).split(","), scope="session")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def environment(transport, preload=False, fault="", objects=None):
    """RDMA: the test library in place of the system's, with FAULT (tests/softrdma); what the program leaves of its
    devices is counted in the file OBJECTS. PRELOAD: for a program that is not built with the sanitizers but loads
    what is."""
    env = {**os.environ}
    if transport == "rdma":
        env["LD_LIBRARY_PATH"] = str(SOFTRDMA)
        env["SOFTRDMA_FAULT"] = fault
        if objects:
            env["SOFTRDMA_STATS"] = str(objects)
    if preload and sanitized():
        libraries = [subprocess.check_output(["gcc", "-print-file-name=" + name], text=True).strip()
                     for name in ("libasan.so", "libubsan.so")]
        env["LD_PRELOAD"] = " ".join(libraries)
        # fio itself leaks a few names at its end: leaks_of_ours() tells them from ours.
        env["LSAN_OPTIONS"] = "exitcode=0"
    return env


def wait_for(what, *, seconds=30):
    """Until WHAT() is true; returns it."""
    deadline = time.monotonic() + seconds
    while not (seen := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return seen


def objects_left(path):
    """PITFALLS B112: what a program has left of its devices, as tests/softrdma counts it: ["qp=1", ...]. Children that
    it forked may have counted before it."""
    assert path.exists(), "nothing was counted"
    return [word for word in path.read_text().splitlines()[-1].split() if not word.endswith("=0")]


def sanitized():
    return ENGINE.exists() and b"__asan_init" in ENGINE.read_bytes()


class Hauld:
    """A running hauld; uris by transport. NETNS: the network namespace it runs in. PREFIX: words of a command that
    executes what comes behind them."""

    def __init__(self, directory, *args, transport="tcp", engine=None, listen=None, netns=None, fault="",
                 prefix=()):
        self.log_path = pathlib.Path(directory) / f"hauld-{time.monotonic_ns()}.log"
        self.objects = self.log_path.with_suffix(".objects") if transport == "rdma" else None
        # The names of the tests' folders can be too long for a socket.
        self.control = pathlib.Path(tempfile.gettempdir()) / f"haul-{os.getpid()}-{id(self)}.sock"
        listening = [] if "--config" in args else ["--listen", listen or f"{transport}://127.0.0.1:0"]
        command = [str(HAULD), *listening, "--control", str(self.control), *args]
        if engine:
            command += ["--engine", engine]
        if netns:
            command = ["ip", "netns", "exec", netns, *command]
        command = [*prefix, *command]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            text=True, env=environment(transport, fault=fault, objects=self.objects),
                                            preexec_fn=die_with_parent)
        self.uri = None
        for line in self.process.stdout:
            listening = re.match(r"listening on (\S+)", line)
            if listening:
                self.uri = listening.group(1)
            if line.strip() == "ready":
                return
        raise AssertionError("hauld ended before it was ready:\n" + self.log())

    def log(self):
        return self.log_path.read_text(errors="replace")

    def status(self):
        """As haulctl status --json prints it."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(20)
            control.connect(str(self.control))
            control.sendall(b'{"version":1,"request":"status"}\n')
            return json.loads(control.makefile().readline())["status"]

    def connections(self):
        return sum(reactor["connections"] for reactor in self.status()["reactors"])

    def queues_at_work(self, commands=200):
        """How many I/O queues have had so many commands."""
        return sum(queue["qid"] > 0 and queue["commands"] >= commands for host in self.status()["hosts"]
                   for controller in host["controllers"] for queue in controller["queues"])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.control.unlink(missing_ok=True)

    def stop(self):
        """As a user would; it must end well, which includes the sanitizers' verdict."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("hauld did not end within 30 s of SIGTERM\n" + self.log()) from None
        assert status == 0, f"hauld ended with {status}\n" + self.log()
        if self.objects:
            left = objects_left(self.objects)
            assert not left, f"hauld left {left}\n" + self.log()


@pytest.fixture
def hauld(tmp_path):
    """Starts haulds: hauld(*args, transport=..., engine=...); they are stopped, and must end well."""
    running = []

    def start(*args, **kw):
        running.append(Hauld(tmp_path, *args, **kw))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.stop()


class Target:
    """A hauld with three RAM disks as namespaces 1 to 3 of NQN, of 16 MiB each."""

    def __init__(self, hauld, transport, engine):
        self.hauld, self.transport, self.engine = hauld, transport, engine
        self.uri = f"{hauld.uri}/{NQN}"
        self.disk = self.uri + "/1"


@pytest.fixture(scope="session")
def target(transport, engine, tmp_path_factory):
    exports = [arg for nsid in (1, 2, 3) for arg in ("--export", f"ram:16M,nqn={NQN},nsid={nsid}")]
    hauld = Hauld(tmp_path_factory.mktemp("target"), *exports, transport=transport, engine=engine)
    yield Target(hauld, transport, engine)
    hauld.stop()


def haul(*args, transport="tcp", timeout=60, **kw):
    return subprocess.run([str(HAUL), *args], text=True, capture_output=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env=environment(transport, **kw), preexec_fn=die_with_parent)


def leaks_of_ours(text):
    """Reports of leaks whose memory was not asked for by fio's own code."""
    reports = re.findall(r"^(?:Direct|Indirect) leak of .*\n(?: +#.*\n)+", text, re.M)
    return [report for report in reports if not re.search(r"#1 .*/bin/fio\+", report)]


class Fio:
    """What fio has done: exit status, output, and its JSON."""

    def __init__(self, done):
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        self.json = None
        start = done.stdout.find("\n{\n") + 1 if not done.stdout.startswith("{") else 0
        try:
            self.json = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
        except ValueError:
            pass

    def ok(self):
        assert self.status == 0, self.text
        assert self.json, self.text
        assert not leaks_of_ours(self.text), self.text
        assert all(job["error"] == 0 for job in self.json["jobs"]), self.text
        return self

    def failed(self, words=""):
        assert self.status not in (0, -signal.SIGSEGV, -signal.SIGABRT), self.text
        assert "AddressSanitizer:DEADLYSIGNAL" not in self.text and "ERROR: AddressSanitizer" not in self.text, self.text
        assert "runtime error" not in self.text and not leaks_of_ours(self.text), self.text
        assert words in self.text, self.text
        return self

    def total(self, direction, field="total_ios"):
        return sum(job[direction][field] for job in self.json["jobs"])


def fio_engine():
    if not ENGINE.exists():
        pytest.skip("the engine is not built (-Dfio_source=)")
    return f"external:{ENGINE}"


@pytest.fixture
def fio(tmp_path):
    """Runs fio in an empty directory, which must stay empty: fio(job options as key=value...). LIBRARY: the engine is
    where libraries are looked for."""
    directory = tmp_path / "fio"
    directory.mkdir()

    def run(*args, transport="tcp", timeout=120, fault="", objects=None, library=False, **options):
        engine = fio_engine()
        command = ["fio", "--output-format=json", "--eta=never", *(() if "jobfile" in options else (
            "--name=job", f"--ioengine={engine}"))]
        if "jobfile" in options:
            command.append(str(options.pop("jobfile")))
        command += [f"--{key}={value}" for key, value in options.items()] + list(args)
        env = environment(transport, preload=True, fault=fault, objects=objects)
        if library:
            env["LD_LIBRARY_PATH"] = f"{ENGINE.parent}:{env.get('LD_LIBRARY_PATH', '')}"
        done = subprocess.run(command, text=True, capture_output=True, timeout=timeout, cwd=directory,
                              stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, env=env)
        left = [name for name in os.listdir(directory) if not name.endswith(".state")]
        assert not left, f"fio left {left}"
        return Fio(done)

    run.directory = directory
    return run


def is_chosen(item, number_of):
    """--part; with "again", and with HAUL_THIN in the environment (slow builds), one in three of a long table of cases."""
    part = item.config.getoption("--part")
    if part and (part == "same") == bool({"transport", "engine"} & set(item.fixturenames)):
        return False
    name = (item.path, item.originalname)
    number_of[name] += 1
    thin = part == "again" or os.environ.get("HAUL_THIN")
    return not thin or number_of[name] < 4 or number_of[name] % 3 == 0


def pytest_collection_modifyitems(config, items):
    number_of = collections.Counter()
    chosen = [item for item in items if is_chosen(item, number_of)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    missing = next((str(path) for path in (HAULD, HAUL) if not path.exists()), None)
    if missing:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=missing + " is not built"))
    if not shutil.which("fio"):
        for item in items:
            if "fio" in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason="fio is not installed"))
    if not glob.glob(str(SOFTRDMA / "libibverbs.so*")):
        for item in items:
            if "rdma" in item.name:
                item.add_marker(pytest.mark.skip(reason="tests/softrdma is not built"))

# SPDX-License-Identifier: MIT
"""The target under test: a hauld that the tests start, or any other one given by --target.

    pytest tests/wire                         a hauld of $HAUL_BUILD_DIR (default: build), per engine
    pytest tests/wire --target tcp://HOST:PORT/NQN     a target that runs already (README.md); or rdma://
"""
import contextlib
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]

import at_once  # noqa: E402
import conformance  # noqa: E402
import fabric  # noqa: E402
import nvmetcp  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HAUL_BUILD_DIR", ROOT / "build"))
MAIN = "nqn.2026-11.io.haul:wire"
BLOCKS_4K = "nqn.2026-11.io.haul:wire4k"
PRIVATE = "nqn.2026-11.io.haul:private"
FRIEND = "nqn.2026-11.io.haul:friend"
# hauld's engines; a slow build (HAUL_THIN) finds with one what it is made for.
ENGINES = ["io_uring"] if os.environ.get("HAUL_THIN") else ["io_uring", "epoll"]
# Each engine and each transport once, for what does not depend on how they are combined.
CROSSED = [("io_uring", "tcp"), ("epoll", "rdma")]


class Hauld:
    """A running hauld. log is what it has written to stderr.

    With tests/softrdma it must have given all objects of its devices back when it stops (PITFALLS B112), unless the
    device keeps them: leftovers=True.
    """

    def __init__(self, directory, *args, engine=None, env=None, leftovers=False,
                 default_control=False, nofile=None):
        self.log_path = pathlib.Path(directory) / f"hauld-{id(self)}.log"
        self.objects = self.log_path.with_suffix(".objects")
        self.leftovers = leftovers
        self.control = None
        command = [str(BUILD / "target" / "hauld"), *args]
        if "--control" not in args and not default_control:
            # Not the default's, which another hauld may have. The names of its folders can be too long.
            self.control = pathlib.Path(tempfile.gettempdir()) / f"haul-{os.getpid()}-{id(self)}.sock"
            command += ["--control", str(self.control)]
        if engine:
            command += ["--engine", engine]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log,
                                            stdin=subprocess.DEVNULL, text=True,
                                            env={**os.environ, "SOFTRDMA_STATS": str(self.objects),
                                                 **(env or {})},
                                            preexec_fn=lambda: _before(nofile))
        self.uris = []
        for line in self.process.stdout:
            listening = re.match(r"listening on (\S+)", line)
            if listening:
                self.uris.append(listening.group(1))
            if line.strip() == "ready":
                return
        raise AssertionError("hauld ended before it was ready:\n" + self.log_path.read_text())

    @property
    def address(self):
        return split_uri(self.uris[0])

    def address_of(self, transport, number=0):
        """Of the NUMBERth listener of a transport."""
        return split_uri([uri for uri in self.uris if uri.startswith(transport)][number])

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """SIGTERM; the exit status, or an assertion when it does not end."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("hauld did not end within 20 s of SIGTERM") from None
        finally:
            if self.control:
                self.control.unlink(missing_ok=True)   # of one that was killed
        if status == 0 and not self.leftovers:
            left = objects_left(self.objects, any(uri.startswith("rdma:") for uri in self.uris))
            assert not left, f"{left} left\n" + self.log_path.read_text()
        return status

    def wait_for_log(self, text, within=10):
        """Until its log has TEXT; seconds."""
        limit = time.monotonic() + within
        while text not in self.log_path.read_text():
            assert time.monotonic() < limit, self.log_path.read_text()
            time.sleep(0.005)

    def end(self):
        """It has survived what the tests did, and ends well."""
        assert self.alive(), "hauld died:\n" + self.log_path.read_text()
        assert self.stop() == 0, self.log_path.read_text()


@contextlib.contextmanager
def starting_alone(directory, nqn, engine=None):
    """start("tcp" or "rdma", option...): a hauld with one reactor and the subsystem NQN; FAULT is tests/softrdma's."""
    started = []

    def run(transport, *options, fault="", **kw):
        started.append(Hauld(directory, "--listen", f"{transport}://127.0.0.1:0", "--threads", "1", *options,
                             "--export", f"ram:16M,nqn={nqn}", engine=engine,
                             env={**rdma_environment(), "SOFTRDMA_FAULT": fault}, **kw))
        return started[-1]

    yield run
    for daemon in started:
        if not daemon.leftovers:    # such a one has ended in its test
            daemon.end()


def objects_left(path, expected=True):
    """What a program has left of its devices, as tests/softrdma counts it: ["qp=1", ...]."""
    if not path.exists():
        return ["no count"] if expected else []
    return [word for word in path.read_text().split() if not word.endswith("=0")]


def start_both(directory, *args, engine=None):
    """A hauld with the subsystems of config(), over TCP and RDMA; its address_of() tells them apart."""
    path = config(directory)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    return Hauld(directory, "--config", str(path), *args, engine=engine, env=rdma_environment())


def rdma_environment():
    """RDMA without a device: the test library in place of the system's (tests/softrdma)."""
    return {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "tests" / "softrdma")}


def _before(nofile):
    _die_with_parent()
    if nofile:
        resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))


def _die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def split_uri(uri):
    host, port = re.match(r"\w+://(.*):(\d+)$", uri).groups()
    return host.strip("[]"), int(port)


def config(directory):
    """A configuration with the subsystems that the tests expect; returns its path."""
    directory = pathlib.Path(directory)
    for name in ("disk", "disk4k"):
        with open(directory / name, "wb") as disk:
            disk.truncate(64 << 20)
    path = directory / "hauld.conf"
    path.write_text(f"""\
listen:
  - tcp://127.0.0.1:0
subsystems:
  - nqn: {MAIN}
    serial: WIRE0001
    namespaces:
      - path: {directory}/disk
        nsid: 1
      - ram: 16M
        nsid: 3
      - ram: 1M
        nsid: 4
        readonly: true
  - nqn: {BLOCKS_4K}
    serial: WIRE0002
    namespaces:
      - path: {directory}/disk4k
        nsid: 1
        block: 4096
  - nqn: {PRIVATE}
    serial: WIRE0003
    allow:
      - {FRIEND}
    namespaces:
      - ram: 1M
        nsid: 1
""")
    return path


# --- options and hooks (what there is for another's target is in conformance.py) ---------------------------------------

def pytest_addoption(parser):
    parser.addoption("--engines", default=",".join(ENGINES), help="hauld's engines to try")
    conformance.add_options(parser)


def pytest_configure(config):
    conformance.configure(config)
    if config.getoption("--target"):
        import nvmerdma
        nvmerdma.environment = dict(os.environ)


def pytest_collection_modifyitems(config, items):
    items[:] = at_once.last(items)
    conformance.prepare(config, items)


def pytest_runtest_setup(item):
    conformance.check_paragraph(item)
    conformance.set_patience(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    conformance.note(item, outcome.get_result())


def pytest_terminal_summary(terminalreporter, config):
    conformance.summarize(terminalreporter, config)


# --- the target under test ------------------------------------------------------------------------------------------------

class Target:
    """KIND is its transport, "tcp" or "rdma"; HAULD is there if it is ours."""

    def __init__(self, kind, address, subsystem, hauld=None):
        self.kind, self.address, self.subsystem, self.hauld = kind, address, subsystem, hauld
        self.bystander = []     # admin and I/O queue

    @property
    def host(self):
        """The module with this transport's Queue and Admin."""
        import nvmerdma
        return nvmerdma if self.kind == "rdma" else nvmetcp

    def tcp(self, **kw):
        return nvmetcp.Tcp(self.address, **kw)

    def queue(self, **kw):
        """A connection of the transport, before Connect."""
        return self.host.Queue(self.address, **kw)

    def admin(self, subnqn=None, **kw):
        return self.host.Admin(self.address, subnqn or self.subsystem, obey=self.hauld is None, **kw)

    def lacks(self, what):
        """Something that a target need not have. Ours has all of it."""
        assert self.hauld is None, what
        pytest.skip(what)

    def expects(self, status, ours, *others):
        """A status of which the specification leaves more than one: ours is always the same."""
        assert status == ours if self.hauld else status in (ours, *others), hex(status)

    def still_serves(self):
        """Another host reads: nothing that a test did hurt the target. With ours it connects for that.

        With another's, where to connect may be slow, it has been there before; that one can connect, the next test shows.
        """
        if not self.bystander:
            self.bystander = [self.admin()]
            self.bystander.append(self.bystander[0].io_queue())
        try:
            cqe, data = self.bystander[1].command(2, nsid=1, cdw=(0, 0, 0), read=512)
            assert cqe.status == 0 and len(data) == 512
        finally:
            if self.hauld:
                self.leave()

    def leave(self):
        for queue in self.bystander:
            queue.close()
        self.bystander = []


# Of RDMA two kinds of device: one that can all, and one that has few SGEs and no inline data (PITFALLS B099).
RDMA_DEVICES = {"io_uring": "rdma", "epoll": "rdma-one_sge-no_inline"}
RDMA_FAULTS = {"rdma": "", "rdma-one_sge-no_inline": "max_sge=1,max_inline=0"}


def pytest_generate_tests(metafunc):
    if "target" not in metafunc.fixturenames or metafunc.config.getoption("--target"):
        return
    engines = metafunc.config.getoption("--engines").split(",")
    if conformance.transport(metafunc.definition) == "rdma":
        engines = [f"{engine}-{RDMA_DEVICES[engine]}" for engine in engines]
    metafunc.parametrize("target", engines, indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request, tmp_path_factory):
    if request.config.getoption("--target"):
        anothers = Target(*conformance.split_target(request.config.getoption("--target")))
        yield anothers
        anothers.leave()
        return
    directory = tmp_path_factory.mktemp("wire")
    engine, _, device = request.param.partition("-")
    path, kind, env = config(directory), "rdma" if device else "tcp", None
    if device:
        path.write_text(path.read_text().replace("tcp://", "rdma://"))
        env = {**rdma_environment(), "SOFTRDMA_FAULT": RDMA_FAULTS[device]}
    hauld = Hauld(directory, "--config", str(path), engine=engine, env=env)
    yield Target(kind, hauld.address, MAIN, hauld)
    hauld.end()


@pytest.fixture
def own(target):
    """For what only our own target can be asked (several subsystems, files to look into)."""
    return target


@pytest.fixture
def start_hauld(tmp_path):
    """Starts further hauld processes: start_hauld("--listen", ..., "--export", ...)."""
    running = []

    def start(*args, **kw):
        running.append(Hauld(tmp_path, *args, **kw))
        return running[-1]
    yield start
    for hauld in running:
        assert hauld.stop() == 0, hauld.log_path.read_text()

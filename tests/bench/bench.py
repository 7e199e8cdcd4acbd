#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What an I/O costs: counts that do not depend on the machine's speed, each against its limit.

usage: tests/bench/bench.py BUILD-DIR [NAME...]

Prints a row a measurement and fails when one is over its limit in tests/bench/limits.json. A limit
is lowered when the code gets better, never raised without a reason in the commit. Costs of one I/O
are differences of two runs, so that start and end of the programs do not count. Instructions of
memset do not count either: callgrind takes its "rep stosb" for an instruction a byte.
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wire"))
# meson sets it for tests: it makes malloc touch every page that it gives out.
os.environ.pop("MALLOC_PERTURB_", None)
os.environ["HAUL_BUILD_DIR"] = str(pathlib.Path(sys.argv[1]).resolve())

import conftest  # noqa: E402
import nvmetcp   # noqa: E402

BUILD = conftest.BUILD
NQN = "nqn.2026-11.io.haul:bench"
LOAD = str(BUILD / "tests" / "bench" / "load")
DEPTH, FEW, MANY = 32, 2000, 12000


def environment(transport, **more):
    env = conftest.rdma_environment() if transport == "rdma" else dict(os.environ)
    return {**env, **more}


@contextlib.contextmanager
def hauld(transport, *, engine="io_uring", wrapper=(), env=None, threads=1):
    """A hauld with a null namespace; yields (uri, process, log path)."""
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory) / "log"
        with open(log, "wb") as stderr:
            process = subprocess.Popen(
                [*wrapper, str(BUILD / "target" / "hauld"), "--listen", f"{transport}://127.0.0.1:0",
                 "--export", f"null:1G,nqn={NQN}", "--threads", str(threads), "--engine", engine,
                 "--log-level", "debug"],
                stdout=subprocess.PIPE, stderr=stderr, text=True, env=env or environment(transport))
        try:
            uri = None
            for line in process.stdout:
                uri = uri or line.strip().removeprefix("listening on ")
                if line.strip() == "ready":
                    break
            else:
                raise SystemExit("hauld did not start:\n" + log.read_text())
            yield uri, process, log
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0, log.read_text()


def load(uri, count, *, size=4096, kind="read", depth=DEPTH, wrapper=(), transport="tcp", env=None, engine="auto"):
    done = subprocess.run([*wrapper, LOAD, f"{uri}/{NQN}/1", str(depth), str(count), str(size), kind,
                           engine],
                          capture_output=True, text=True, timeout=300, check=False,
                          env=env or environment(transport))
    assert done.returncode == 0, done.stderr
    return dict(zip(done.stdout.split()[::2], map(int, done.stdout.split()[1::2])))


def callgrind_self_costs(path):
    """Instructions of a callgrind file, without the test RDMA libraries and memset."""
    names, functions, total, skip_next, counted, memset = {}, {}, 0, False, True, False
    for line in open(path, encoding="utf-8", errors="replace"):
        kind, equals, value = line.partition("=")
        if equals and kind in ("ob", "cob"):
            number, _, name = value.strip().partition(" ")
            if name:
                names[number] = name
            if kind == "ob":
                counted = "softrdma" not in names[number]
        elif equals and kind in ("fn", "cfn"):
            number, _, name = value.strip().partition(" ")
            if name:
                functions[number] = name
            if kind == "fn":
                memset = "memset" in functions[number]
        elif kind == "calls":
            skip_next = True
        elif line[0] in "0123456789+-*":
            if not skip_next and counted and not memset:
                total += int(line.split()[1])
            skip_next = False
    return total


def callgrind(out):
    return ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]


def target_instructions(transport, kind="read"):
    """With epoll: valgrind does not know that io_uring_enter blocks, and stops all threads there."""
    def run(count):
        with tempfile.NamedTemporaryFile() as out:
            with hauld(transport, engine="epoll", wrapper=callgrind(out.name)) as (uri, _, _):
                load(uri, count, kind=kind, transport=transport)
            return callgrind_self_costs(out.name)
    return (run(MANY) - run(FEW)) / (MANY - FEW)


def initiator_instructions(transport, kind="read"):
    def run(uri, count):
        with tempfile.NamedTemporaryFile() as out:
            load(uri, count, kind=kind, transport=transport, engine="epoll",
                 wrapper=callgrind(out.name))
            return callgrind_self_costs(out.name)
    with hauld(transport) as (uri, _, _):
        return (run(uri, MANY) - run(uri, FEW)) / (MANY - FEW)


def allocations(path):
    return int(pathlib.Path(path).read_text().split()[-1])


def preload(path, transport):
    return environment(transport, LD_PRELOAD=str(BUILD / "tests" / "bench" / "libcount_alloc.so"),
                       COUNT_ALLOC=path)


def target_allocations(transport):
    def run(count):
        with tempfile.NamedTemporaryFile() as out:
            with hauld(transport, env=preload(out.name, transport)) as (uri, _, _):
                load(uri, count, transport=transport)
            return allocations(out.name)
    return (run(MANY) - run(FEW)) / (MANY - FEW)


def initiator_allocations(transport):
    def run(uri, count):
        with tempfile.NamedTemporaryFile() as out:
            load(uri, count, transport=transport, env=preload(out.name, transport))
            return allocations(out.name)
    with hauld(transport) as (uri, _, _):
        return (run(uri, MANY) - run(uri, FEW)) / (MANY - FEW)


def target_syscalls(engine):
    """The loop's own count, told in the log at the end; the loop makes all system calls of an I/O."""
    def run(count):
        with hauld("tcp", engine=engine) as (uri, process, log):
            load(uri, count)
            process.terminate()
            process.wait(timeout=20)
            counts = re.findall(r"\bsyscalls=(\d+)", log.read_text())
            assert counts, "hauld did not tell its system calls"
            return sum(map(int, counts))
    # A host that is late makes turns of fewer commands, which only adds: the least of some runs is the code's own.
    return min((run(50 * MANY) - run(FEW)) / (50 * MANY - FEW) for _ in range(4))


def cpu_ns(pid):
    return sum(int(path.read_text().split()[0])
               for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def rss_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+)", text, re.M).group(1))


@contextlib.contextmanager
def idle_queues(uri, count):
    """COUNT idle I/O queues of depth 128; one controller a hundred."""
    with contextlib.ExitStack() as stack:
        address = conftest.split_uri(uri)
        for first in range(0, count, 100):
            admin = stack.enter_context(nvmetcp.Admin(address, NQN))
            admin.set_feature(7, 0x007F007F)
            for qid in range(1, min(100, count - first) + 1):
                stack.enter_context(admin.io_queue(qid, sqsize=127))
        yield


def idle_cpu_percent():
    with hauld("tcp", threads=2) as (uri, process, _), idle_queues(uri, 100):
        time.sleep(0.5)
        before, start = cpu_ns(process.pid), time.monotonic_ns()
        time.sleep(5)
        return 100 * (cpu_ns(process.pid) - before) / (time.monotonic_ns() - start)


def idle_rss_mib():
    with hauld("tcp", threads=2) as (_, process, _):
        time.sleep(0.3)
        return rss_kib(process.pid) / 1024


def rss_kib_per_idle_queue():
    with hauld("tcp", threads=2) as (uri, process, _):
        with idle_queues(uri, 10):
            before = rss_kib(process.pid)
            with idle_queues(uri, 400):
                return (rss_kib(process.pid) - before) / 400


MEASUREMENTS = {
    "target instructions per 4 KiB read, tcp": lambda: target_instructions("tcp"),
    "target instructions per 4 KiB read, rdma": lambda: target_instructions("rdma"),
    "target instructions per 4 KiB write, rdma": lambda: target_instructions("rdma", "write"),
    "initiator instructions per 4 KiB read, tcp": lambda: initiator_instructions("tcp"),
    "initiator instructions per 4 KiB read, rdma": lambda: initiator_instructions("rdma"),
    "target allocations per read, tcp": lambda: target_allocations("tcp"),
    "target allocations per read, rdma": lambda: target_allocations("rdma"),
    "initiator allocations per read, tcp": lambda: initiator_allocations("tcp"),
    "initiator allocations per read, rdma": lambda: initiator_allocations("rdma"),
    "target system calls per 4 KiB read, tcp, io_uring": lambda: target_syscalls("io_uring"),
    "target system calls per 4 KiB read, tcp, epoll": lambda: target_syscalls("epoll"),
    "idle CPU percent with 100 idle queues": idle_cpu_percent,
    "idle resident MiB": idle_rss_mib,
    "resident KiB per idle queue of depth 128, tcp": rss_kib_per_idle_queue,
}


def main(names):
    limits = json.loads((HERE / "limits.json").read_text())
    assert set(limits) == set(MEASUREMENTS), "limits.json and bench.py disagree"
    over = 0
    for name in names or MEASUREMENTS:
        value = MEASUREMENTS[name]()
        assert value > 0 or "allocations" in name or "CPU" in name, f"{name}: nothing was counted"
        bad = value > limits[name]
        over += bad
        print(f"{name:52} {value:12.3f}  limit {limits[name]:g}{'  OVER' if bad else ''}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))

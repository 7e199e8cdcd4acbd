# SPDX-License-Identifier: MIT
"""Both sides together on RDMA devices that can little, or say and do odd things (tests/softrdma)."""
import re
import resource
import subprocess
import time

import pytest

import conftest
from conftest import BUILD, HAUL, NQN, die_with_parent, environment, haul

LOAD = BUILD / "tests" / "bench" / "load"


@pytest.fixture
def target(hauld, engine):
    def start(fault=""):
        return hauld("--export", f"ram:16M,nqn={NQN}", transport="rdma", engine=engine, fault=fault)
    return start


def fio_verify(fio, running, fault="", query="", **options):
    settings = {"rw": "randwrite", "verify": "crc32c", "verify_fatal": 1, "iodepth": 16, "size": "8m", "io_size": "8m",
                "thread": 1, **options}
    done = fio(uri=f"{running.uri}/{NQN}/1{query}", transport="rdma", fault=fault, **settings).ok()
    assert done.total("read", "io_bytes") == done.total("write", "io_bytes") > 0, done.text


# --- B099: few SGEs, no inline data ------------------------------------------------------------------

@pytest.mark.parametrize("sges", [1, 2, 3])
def test_few_sges_and_no_inline_data(fio, target, sges):
    fault = f"max_sge={sges},max_inline=0"
    running = target(fault)
    fio_verify(fio, running, fault, bsrange="512-1m", bs_unaligned=0)
    fio_verify(fio, running, fault, bssplit="512/1k/4k/12k/64k", io_size="2m")


# --- keys=io -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("fault", ["", "no_inv", "max_sge=1,max_inline=0"])
def test_a_key_for_each_command(fio, target, fault):
    """Of targets that invalidate it and of those that leave it to us."""
    running = target(fault)
    fio_verify(fio, running, fault, bsrange="512-1m", bs_unaligned=0, query="?keys=io")
    fio_verify(fio, running, fault, bssplit="512/1k/4k/12k/64k", io_size="2m", query="?keys=io")


def test_a_device_without_windows_says_so(target):
    running = target()
    done = haul("id", f"{running.uri}/{NQN}?keys=io", transport="rdma", fault="no_mw")
    assert done.returncode == 1 and "no memory windows of type 2: keys=io cannot be had" in done.stderr, done
    assert haul("id", f"{running.uri}/{NQN}?keys=region", transport="rdma", fault="no_mw").returncode == 0


# --- B098: receives are withheld ---------------------------------------------------------------------

def load(running, count, engine, mode="read", fault="", query=""):
    command = [str(LOAD), f"{running.uri}/{NQN}{query}", "128", str(count), "4096", mode, engine]
    return subprocess.run(command, text=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=environment("rdma", fault=fault), preexec_fn=die_with_parent)


# A timer of 655 ms, what an unset one means, would look again after 655 and after 1310 ms, which is seen.
WITHHELD_MS = 700
SLACK_MS = 400


@pytest.mark.parametrize("side", ["target", "initiator"])
def test_receives_that_are_withheld_cost_no_more_than_that_time(target, engine, side):
    """After a while of good I/O with all of a deep queue, one side has no receive for the other's messages."""
    fault = f"withhold@2000,withhold_ms={WITHHELD_MS}"
    running = target(fault if side == "target" else "")
    took = []
    for fault_here in ("", fault if side == "initiator" else ""):
        began = time.monotonic()
        done = load(running, 1500 if not took else 4000, engine, fault=fault_here)
        took.append((time.monotonic() - began) * 1000)
        assert done.returncode == 0, done.stderr + running.log()
    assert WITHHELD_MS < took[1] < WITHHELD_MS + SLACK_MS + 3 * took[0], took


def test_receives_that_never_come_end_at_the_deadline(target, engine):
    running = target("withhold@2000,withhold_ms=60000")
    began = time.monotonic()
    done = load(running, 10000, engine, query="?timeout=1s")
    assert done.returncode == 1 and "not answered in time" in done.stderr, done.stderr
    assert "everything is freed" in done.stderr and time.monotonic() - began < 10, done.stderr


# --- B124: events of the port ------------------------------------------------------------------------

def test_queues_outlive_what_happens_to_the_port(target, engine):
    """Each of thousands of I/Os sees a port go and come, change its address and its partitions, on both sides."""
    fault = "port_events=97"
    running = target(fault)
    for mode in ("write", "read"):
        done = load(running, 5000, engine, mode, fault=fault)
        assert done.returncode == 0, done.stderr + running.log()
    assert running.log().count("connected to " + NQN) == 2, running.log()
    assert re.search(r"port 1: .*port error", running.log()) and re.search(r"port 1: .*port active", running.log())


# --- B119: locked memory -----------------------------------------------------------------------------

def limited(kib):
    """The limit that is told; tests/softrdma keeps it for root, too, when it is among its faults."""
    def before():
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (kib << 10, kib << 10))
    return before


@pytest.mark.parametrize("kib", [64, 1024, 4096])
def test_too_little_locked_memory_is_told_by_haul(target, tmp_path, kib):
    running = target()
    objects = tmp_path / "haul.objects"
    done = subprocess.run([str(HAUL), "id", f"{running.uri}/{NQN}"], text=True, capture_output=True, timeout=5,
                          stdin=subprocess.DEVNULL, preexec_fn=limited(kib),
                          env=environment("rdma", fault=f"memlock={kib << 10}", objects=objects))
    if kib < 4096:
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done
        assert f"limited to {kib} KiB" in done.stderr and "ulimit -l" in done.stderr, done
    else:
        assert done.returncode == 0, done
    assert not conftest.objects_left(objects)


# The target: 64 KiB are less than its receives need, 1 MiB less than the first buffers.
@pytest.mark.parametrize("kib", [64, 1024, 4096])
def test_too_little_locked_memory_of_the_target_refuses_the_connection(target, kib):
    running = target(f"memlock={kib << 10}")
    done = haul("id", f"{running.uri}/{NQN}", transport="rdma", timeout=5)
    if kib < 4096:
        assert done.returncode == 1 and "no resources" in done.stderr, done
        assert "LimitMEMLOCK" in running.log() and "cannot register" in running.log()
    else:
        assert done.returncode == 0, done.stderr + running.log()


@pytest.mark.parametrize("kib", [64, 1024, 4096, 65536])
def test_too_little_locked_memory_is_told_by_the_engine(fio, target, kib):
    running = target()
    done = fio(uri=f"{running.uri}/{NQN}/1", transport="rdma", rw="write", bs="64k", iodepth=32, size="4m", thread=1,
               fault=f"memlock={kib << 10}")
    if kib == 65536 or kib == 4096 and done.status == 0:    # what does not fit is copied
        done.ok()
    else:
        done.failed("ulimit -l")


def test_registering_that_fails_at_any_point_is_an_error_and_nothing_else(target, tmp_path):
    running = target()
    objects = tmp_path / "haul.objects"
    at = failed = 0
    while failed == at:
        at += 1
        done = haul("id", f"{running.uri}/{NQN}", transport="rdma", fault=f"fail:reg_mr@{at}", objects=objects)
        failed += done.returncode == 1 and "out of memory" in done.stderr
        assert done.returncode in (0, 1), done
        assert not conftest.objects_left(objects)
    assert failed > 1 and done.returncode == 0, done
    assert haul("id", f"{running.uri}/{NQN}", transport="rdma").returncode == 0


# --- B112 --------------------------------------------------------------------------------------------

def test_fio_leaves_no_objects_of_the_device(fio, target, tmp_path):
    running = target()
    objects = tmp_path / "fio.objects"
    fio(uri=f"{running.uri}/{NQN}/1", transport="rdma", rw="randread", bs="4k", numjobs=4, thread=1, size="1m",
        objects=objects).ok()
    assert not conftest.objects_left(objects)

# SPDX-License-Identifier: MIT
"""What a target does when its RDMA device has no more: it says so in the reject, and goes on."""
import contextlib
import signal
import subprocess
import threading
import time

import conftest
import nvme
import nvmerdma
import pytest
from at_once import AtOnce
from fabric import identity
from nvmerdma import Rdma, keyed

NQN = "nqn.2026-11.io.haul:limits"
DEPTH = 128


@contextlib.contextmanager
def starting(directory):
    """start(fault, option...): a hauld with one reactor on a device with that fault."""
    with conftest.starting_alone(directory, NQN) as run:
        yield lambda fault, *options, **kw: run("rdma", *options, fault=fault, **kw)


at_once = AtOnce()
told = at_once.fixture(starting)


@pytest.fixture
def start(tmp_path):
    with starting(tmp_path) as run:
        yield run


def queue(hauld):
    return Rdma(hauld.address, qid=1, hsqsize=DEPTH - 1, hrqsize=DEPTH)


def fill(hauld, most=64):
    """Queues of DEPTH until one is rejected; returns those that are up and the reject."""
    up = []
    for _ in range(most):
        rdma = queue(hauld)
        if rdma.outcome != "established":
            reject = rdma.reject
            rdma.kill()
            return up, reject
        up.append(rdma)
    raise AssertionError(f"{most} queues of depth {DEPTH} and no limit")


def comes_back(hauld):
    """The place of queues that are gone is free again, soon."""
    for _ in range(100):
        with queue(hauld) as rdma:
            if rdma.outcome == "established":
                return True
        time.sleep(0.05)
    return False


def reads(both):
    address, key = both.io.region(0, 4096)
    return both.io.command(nvme.READ, nsid=1, dptr=keyed(address, 4096, key),
                           cdw=nvme.rw_cdw(0, 8)).status == 0


@pytest.mark.parametrize("fault", ["max_srq_wr=384", "no_resize=1", "max_cqe=1024", "max_qp=6"])
def test_queues_beyond_what_the_device_has_are_rejected(start, fault):
    """No receiver is ever not ready, no completion queue overruns: who does not fit waits outside."""
    hauld = start(fault)
    with nvmerdma.Pair(hauld.address, NQN) as both:
        for _ in range(3):
            up, reject = fill(hauld)
            assert reject == (0, nvmerdma.REJECT_RESOURCES)
            assert reads(both), "a queue that is up must not suffer"
            for rdma in up:
                rdma.kill()
            assert comes_back(hauld)
        assert reads(both)


def test_too_little_locked_memory_is_said_in_the_log(start):
    hauld = start("memlock=64")
    with queue(hauld) as rdma:
        assert rdma.reject == (0, nvmerdma.REJECT_RESOURCES)
    assert "LimitMEMLOCK" in hauld.log_path.read_text()


def test_hosts_that_come_and_vanish_at_once_leave_nothing(start):
    """ESTABLISHED and DISCONNECTED of many hosts queue up together."""
    hauld = start("")
    for _ in range(3):
        hosts = []

        def come():
            rdma = Rdma.__new__(Rdma)
            hosts.append(rdma)
            try:
                Rdma.__init__(rdma, hauld.address)
            except (BrokenPipeError, ValueError, OSError):
                pass

        threads = [threading.Thread(target=come) for _ in range(24)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        for rdma in list(hosts):
            if hasattr(rdma, "raw"):
                rdma.raw.kill()
        for thread in threads:
            thread.join()
        for rdma in hosts:
            rdma.raw.kill()
            rdma.raw.wait()
        with nvmerdma.Pair(hauld.address, NQN) as both:
            assert reads(both)


def test_a_device_that_goes_takes_its_queues_only(start):
    """The listener is on that device, so nothing can come any more; the process must end well."""
    hauld = start("remove_device@12")
    try:
        with nvmerdma.Pair(hauld.address, NQN) as both:
            for _ in range(20):
                reads(both)
    except (nvmerdma.Ended, AssertionError, subprocess.SubprocessError, ValueError, IndexError):
        pass   # whatever a raw host meets then
    hauld.wait_for_log("the device failed or was removed", 20)
    assert hauld.alive(), hauld.log_path.read_text()


STUCK = "no_flush=1,fail:destroy_qp@1+"


@at_once
def test_a_device_that_keeps_its_queue_pairs_spoils_no_shutdown(start):
    """What such a device may still write to is given up; the process ends as always."""
    hauld = start(STUCK, leftovers=True)
    with nvmerdma.Pair(hauld.address, NQN, depth=DEPTH) as both:
        address, key = both.io.region(0, 1 << 20)
        capsule = nvme.command(nvme.WRITE, nsid=1, dptr=keyed(address, 1 << 20, key),
                               cdw=nvme.rw_cdw(0, 2048))
        assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
        both.io.raw.send_signal(signal.SIGSTOP)
        status, log = hauld.stop(), hauld.log_path.read_text()
    assert status == 0 and "was not flushed in time" in log, log


@at_once
def test_a_host_whose_device_keeps_its_queue_pairs_ends_well(start):
    hauld = start("")
    host, port = hauld.address
    done = subprocess.run([str(conftest.BUILD / "initiator" / "haul"), "id",
                           f"rdma://{host}:{port}/{NQN}"], capture_output=True, text=True,
                          timeout=60, env={**conftest.rdma_environment(), "SOFTRDMA_FAULT": STUCK})
    assert done.returncode == 0, done.stderr


def test_a_busy_pool_keeps_no_host_out(start):
    """Hosts that stand still hold all buffers and more wait; a new host's queue needs none."""
    hauld = start("", "--memory", "16M")
    with contextlib.ExitStack() as still:
        for number in range(6):
            both = still.enter_context(nvmerdma.Pair(hauld.address, NQN, depth=DEPTH, **identity(number)))
            address, key = both.io.region(0, 1 << 20)
            capsule = nvme.command(nvme.WRITE, nsid=1, dptr=keyed(address, 1 << 20, key),
                                   cdw=nvme.rw_cdw(0, 2048))
            assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
            both.io.raw.send_signal(signal.SIGSTOP)
        with Rdma(hauld.address) as rdma:
            assert rdma.outcome == "established", hauld.log_path.read_text()


def test_hosts_cannot_fill_the_log_with_what_the_device_lacks(start):
    hauld = start("fail:reg_mr@1+")
    for _ in range(20):
        with Rdma(hauld.address) as rdma:
            assert rdma.reject == (0, nvmerdma.REJECT_RESOURCES)
    assert 1 <= hauld.log_path.read_text().count("cannot register") <= 10

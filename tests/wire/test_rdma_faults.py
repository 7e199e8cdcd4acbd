# SPDX-License-Identifier: MIT
"""A target whose device or connection manager misbehaves while hosts come and go: what fails is one connection's, the
listener goes on, and at its end the target has given everything back (conftest.Hauld counts it)."""
import threading
import time

import conftest
import nvme
import nvmerdma
import pytest
from nvmerdma import Rdma, keyed

NQN = "nqn.2026-11.io.haul:faults"
CM_EVENTS = {"ADDR_RESOLVED": 0, "ADDR_ERROR": 1, "ROUTE_RESOLVED": 2, "ROUTE_ERROR": 3, "CONNECT_ERROR": 6,
             "UNREACHABLE": 7, "REJECTED": 8, "ESTABLISHED": 9, "DISCONNECTED": 10, "DEVICE_REMOVAL": 11,
             "MULTICAST_JOIN": 12, "MULTICAST_ERROR": 13, "ADDR_CHANGE": 14, "TIMEWAIT_EXIT": 15}
# Those that say nothing about a connection that works, or only what is known.
HARMLESS = ("ESTABLISHED", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT")


@pytest.fixture
def start(tmp_path):
    """start(fault, *more arguments): a hauld with one reactor on a device with that fault."""
    started = []

    def run(fault, *args, listen=("rdma://127.0.0.1:0",), **env):
        uris = [word for uri in listen for word in ("--listen", uri)]
        env = {**conftest.rdma_environment(), "SOFTRDMA_FAULT": fault, **env}
        started.append(conftest.Hauld(tmp_path, *uris, "--threads", "1", "--export", f"ram:16M,nqn={NQN}", *args,
                                      env=env))
        return started[-1]

    yield run
    for daemon in started:
        assert daemon.alive(), daemon.log_path.read_text()
        began = time.monotonic()
        assert daemon.stop() == 0, daemon.log_path.read_text()
        assert time.monotonic() - began < 4, "something was waited for that never comes"
        assert "cannot destroy" not in daemon.log_path.read_text()


def reads(both):
    address, key = both.io.region(0, 4096)
    return both.io.command(nvme.READ, nsid=1, dptr=keyed(address, 4096, key),
                           cdw=nvme.rw_cdw(0, 8)).status == 0


def serves(address):
    """A host comes and reads, or is turned away or lost on the way."""
    try:
        with nvmerdma.Pair(address, NQN) as both:
            return reads(both)
    except (nvmerdma.Ended, AssertionError, ValueError, IndexError):
        return False


# --- B107: between the request and the accept --------------------------------------------------------

@pytest.mark.parametrize("call, most", [
    ("alloc_pd", 1), ("reg_mr", 4), ("create_channel", 1), ("create_cq", 1), ("create_srq", 1), ("create_qp", 6),
    ("modify_qp", 6), ("post_recv", 1), ("accept", 2), ("post_send", 3)])
def test_a_call_that_fails_costs_one_connection(start, call, most):
    """The target opens the device for the first host, so that the first uses of each call are here."""
    for at in range(1, most + 1):
        hauld = start(f"fail:{call}@{at}")
        first = serves(hauld.address)
        # A pool that could not grow waits a moment before it tries again.
        assert serves(hauld.address) or time.sleep(0.2) or serves(hauld.address), \
            f"{call}@{at}: the first host was served: {first}"


def test_a_device_that_refuses_all_queue_pairs_costs_nothing_else(start):
    hauld = start("fail:create_qp@1+")
    for _ in range(5):
        with Rdma(hauld.address) as rdma:
            assert rdma.reject == (0, nvmerdma.REJECT_RESOURCES)


# --- B108, B110: events of the connection manager ---------------------------------------------------

def test_commands_before_established_are_held_and_answered(start):
    hauld = start("delay_established=300,fail:notify@1+")
    began = time.monotonic()
    with nvmerdma.Pair(hauld.address, NQN) as both:
        assert reads(both)
    assert time.monotonic() - began > 0.5, "ESTABLISHED was not late at all"


def test_a_host_that_goes_before_established_leaves_nothing(start):
    hauld = start("delay_established=300,fail:notify@1+")
    address, key = (1 << 12, 1)
    capsule = nvme.command(nvme.READ, nsid=1, dptr=keyed(address, 512, key), cdw=nvme.rw_cdw(0, 1))
    for _ in range(12):     # more commands than the shared receive queue has slots
        with Rdma(hauld.address) as rdma:
            assert rdma.say(f"burst 16 {capsule.hex()}") == "ok"
            time.sleep(0.02)
    assert serves(hauld.address)


@pytest.mark.parametrize("late", [False, True], ids=["established", "accepted"])
@pytest.mark.parametrize("event", CM_EVENTS)
def test_an_event_out_of_place_ends_at_most_its_connection(start, event, late):
    """It comes with the first command, twice; ACCEPTED: before the event that the host is there."""
    fault = f"cm_event={CM_EVENTS[event]},cm_event_times=2"
    hauld = start(fault + ",delay_established=100" if late else fault)
    with Rdma(hauld.address) as rdma:
        try:
            ended = rdma.connect(subnqn=NQN, sqsize=31).status != 0
        except nvmerdma.Ended:
            ended = True
        if not ended:
            ended = rdma.say("ended 200") == "yes"
        assert ended == (event not in HARMLESS), hauld.log_path.read_text()
    assert serves(hauld.address)


def test_a_device_that_goes_while_hosts_come_takes_only_its_own(start):
    """Two devices, a listener on each. One goes while hosts come to it: its events are told and acknowledged, the
    other's hosts notice nothing."""
    for at in (30, 34, 39, 44, 50):     # the other's host needs some 20 completions
        hauld = start(f"remove_device@{at}", listen=("rdma://127.0.0.1:0", "rdma://127.0.0.2:0"),
                      SOFTRDMA_DEVICES="2")
        first, second = [conftest.split_uri(uri) for uri in hauld.uris]
        with nvmerdma.Pair(second, NQN) as other:
            threads = [threading.Thread(target=serves, args=(first,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not serves(first), "it has not gone"
            assert reads(other) and serves(second), f"after {at}:\n" + hauld.log_path.read_text()

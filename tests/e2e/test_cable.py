# SPDX-License-Identifier: MIT
"""B091: the cable between host and target is pulled: no reset, no end of stream, packets just vanish both ways.

The test makes two network namespaces of its own with one link between them. Pulled, each side sends to a hardware
address that the other does not have: nobody is told, which is what a switch between them would do.
"""
import os
import shutil
import subprocess
import time

import pytest

from conftest import BUILD, NQN, die_with_parent

LOAD = BUILD / "tests" / "bench" / "load"
KATO_S, TIMEOUT_S = 2, 3
# For what is not waiting itself, on a machine that has other things to do.
SLACK_S = 3
SIDES = {"host": ("192.0.2.1", "02:00:00:00:00:01"), "target": ("192.0.2.2", "02:00:00:00:00:02")}
NOWHERE = "02:00:00:00:00:99"


def ip(*args):
    done = subprocess.run(["ip", *args], text=True, capture_output=True, timeout=20)
    if done.returncode:
        pytest.skip(f"ip {' '.join(args)}: {done.stderr.strip()}")


class Cable:
    """Namespaces are processes' own names, so that tests beside each other do not meet."""

    def __init__(self):
        self.netns = {side: f"haul-{side}-{os.getpid()}" for side in SIDES}

    def lay(self):
        for side in SIDES:
            ip("netns", "add", self.netns[side])
        ip("-n", self.netns["host"], "link", "add", "cable", "type", "veth", "peer", "cable",
           "netns", self.netns["target"])
        for side, (address, mac) in SIDES.items():
            ip("-n", self.netns[side], "link", "set", "cable", "address", mac, "up")
            ip("-n", self.netns[side], "address", "add", address + "/24", "dev", "cable")
        self.plug()

    def point(self, side, mac):
        other = "target" if side == "host" else "host"
        ip("-n", self.netns[side], "neighbour", "replace", SIDES[other][0], "lladdr", mac, "dev", "cable",
           "nud", "permanent")

    def plug(self):
        for side in SIDES:
            self.point(side, SIDES["target" if side == "host" else "host"][1])

    def pull(self):
        for side in SIDES:
            self.point(side, NOWHERE)

    def remove(self):
        for name in self.netns.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20, check=False)


@pytest.fixture
def cable():
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip(8)")
    cable = Cable()
    try:
        cable.lay()
        yield cable
    finally:
        cable.remove()


class Load:
    def __init__(self, cable, uri, mode, engine, count=10 ** 9):
        command = ["ip", "netns", "exec", cable.netns["host"], str(LOAD), uri, "8", str(count), "65536", mode, engine]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def end(self, timeout):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the load did not end within {timeout} s: {self.process.communicate()}") from None
        return self.process.returncode, out + err


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what()}"
        time.sleep(0.05)


def test_pulled_cable_ends_both_sides_in_time(cable, hauld):
    """Of both engines at once."""
    modes = ("idle", "read", "write")
    targets = {engine: hauld("--export", f"ram:16M,nqn={NQN}", engine=engine, netns=cable.netns["target"],
                             listen=f"tcp://{SIDES['target'][0]}:0") for engine in ("io_uring", "epoll")}
    loads = {(mode, engine): Load(cable, f"{running.uri}/{NQN}?kato={KATO_S}s&timeout={TIMEOUT_S}s", mode, engine)
             for mode in modes for engine, running in targets.items()}
    for running in targets.values():
        wait_until(lambda: running.log().count("connected to " + NQN) == len(modes), 10, running.log)
    time.sleep(0.5)  # for the streams to be full of data
    assert all(load.process.poll() is None for load in loads.values()), running.log()

    pulled = time.monotonic()
    cable.pull()
    for (mode, _), load in loads.items():
        # An idle host learns it from its keep-alives, of which two must go unanswered.
        limit = (2 * KATO_S if mode == "idle" else TIMEOUT_S) + SLACK_S
        status, text = load.end(pulled + limit - time.monotonic())
        assert status == 1 and "everything is freed" in text, f"{mode}: {text}"
        assert "keep-alive" in text or "not answered in time" in text, f"{mode}: {text}"
    for running in targets.values():
        wait_until(lambda: running.log().count("keep-alive timer expired") == len(modes),
                   max(pulled + KATO_S + 0.5 + SLACK_S - time.monotonic(), 0.5), running.log)

    cable.plug()
    for engine, running in targets.items():
        status, text = Load(cable, f"{running.uri}/{NQN}", "write", engine, count=1000).end(20)
        assert status == 0, text

# SPDX-License-Identifier: MIT
"""B018 and B078: a server that is slow, silent or swallows everything: it is waited for as long as was said, no longer,
and without burning the processor meanwhile."""
import os
import pathlib
import re
import select
import socket
import subprocess
import threading
import time

import pytest

from conftest import BUILD, HAUL, NQN, die_with_parent, environment, haul

# For starting a program on a machine that has other things to do.
SLACK_S = 8


class Between:
    """A way to a hauld that lets its answers through DELAY_S late, and no more than the first LIMIT bytes of them."""

    def __init__(self, uri, delay_s=0, limit=None):
        host, port = re.match(r"tcp://(.*):(\d+)", uri).groups()
        self.target = (host, int(port))
        self.delay_s, self.limit = delay_s, limit
        self.full = threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp://127.0.0.1:{self.server.getsockname()[1]}/{NQN}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            host = self.server.accept()[0]
            self.carry(host, socket.create_connection(self.target))
        except OSError:
            pass  # the test is over

    def carry(self, host, target):
        passed, delay_s = 0, self.delay_s
        while True:
            for ready in select.select([host, target], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                if ready is host:
                    target.sendall(data)
                    continue
                time.sleep(delay_s)
                delay_s = 0
                if self.limit is not None:
                    data = data[:self.limit - passed]
                host.sendall(data)
                passed += len(data)
                if passed == self.limit:
                    self.full.set()


def cpu_ns(pid):
    """What all threads of a process have used so far."""
    used = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            used += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return used


def give_up(uri, transport="tcp", **env):
    """haul id, told to wait one second: the time it took, and what it said."""
    start = time.monotonic()
    done = subprocess.run([str(HAUL), "id", uri + "?connect_timeout=1s"], text=True, capture_output=True, timeout=60,
                          stdin=subprocess.DEVNULL, env={**environment(transport), **env},
                          preexec_fn=die_with_parent, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    assert "no answer within 1000 ms" in done.stderr, done.stderr
    assert 0.9 < time.monotonic() - start < 1 + SLACK_S


def test_an_answer_that_is_late_but_in_time_is_good(hauld):
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    start = time.monotonic()
    done = haul("id", Between(running.uri, delay_s=1.5).uri + "?connect_timeout=20s")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start > 1.5


def test_an_address_that_swallows_everything_is_given_up_in_time():
    """The backlog is full, so that Linux drops what else comes, as a firewall would."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        others = [socket.socket() for _ in range(8)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(server.getsockname())
        time.sleep(0.2)
        assert not all(select.select([], [other], [], 0)[1] for other in others), "the backlog is not full"
        give_up(f"tcp://127.0.0.1:{server.getsockname()[1]}/{NQN}")
        for other in others:
            other.close()


def test_an_rdma_address_that_swallows_everything_is_given_up_in_time():
    give_up(f"rdma://192.0.2.1/{NQN}", transport="rdma")


def test_an_rdma_listener_that_never_accepts_is_given_up_in_time(tmp_path):
    """And of the try nothing is left: no queue pair, no memory region, no identifier."""
    stats = tmp_path / "stats"
    with subprocess.Popen([str(BUILD / "tests" / "wire" / "rdma_raw")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=environment("rdma"), preexec_fn=die_with_parent) as listener:
        listener.stdin.write("listen 127.0.0.1\n")
        listener.stdin.flush()
        port = re.match(r"listening (\d+)", listener.stdout.readline()).group(1)
        give_up(f"rdma://127.0.0.1:{port}/{NQN}", transport="rdma", SOFTRDMA_STATS=str(stats))
        listener.stdin.write("asked\n")
        listener.stdin.flush()
        assert listener.stdout.readline() == "yes\n", "the listener was not even asked"
        listener.stdin.close()
    left = stats.read_text()
    assert not re.search(r"=[1-9]", left), left


# In ICResp, in the response to Connect, in the data of Identify Controller.
@pytest.mark.parametrize("limit", [1, 64, 128 + 10, 128 + 5 * 24 + 24 + 100])
def test_nobody_spins_while_the_rest_is_missing(hauld, engine, limit):
    running = hauld("--export", f"ram:1M,nqn={NQN}", engine=engine)
    between = Between(running.uri, limit=limit)
    with subprocess.Popen([str(HAUL), "id", between.uri, f"--engine={engine}"], env=environment("tcp"),
                          stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          preexec_fn=die_with_parent) as process:
        assert between.full.wait(20)
        time.sleep(0.2)
        before = cpu_ns(process.pid), cpu_ns(running.process.pid)
        time.sleep(1)
        used = [after - then for after, then in
                zip((cpu_ns(process.pid), cpu_ns(running.process.pid)), before)]
        assert process.poll() is None
        process.terminate()
        process.wait(timeout=20)
    assert max(used) < 50e6, f"haul and hauld have used {used} ns in a second of waiting"

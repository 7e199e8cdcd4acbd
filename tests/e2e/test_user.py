# SPDX-License-Identifier: MIT
"""Users of libhaul that do what haul and fio do not (user.c)."""
import re
import subprocess
import time

import pytest

import conftest
from conftest import BUILD, NQN, die_with_parent, environment

USER = BUILD / "tests" / "e2e" / "user"
# What is lost takes seconds; sanitizers on a busy machine take a part of one.
LONGEST_US = 1000000 if conftest.sanitized() else 200000


class User:
    def __init__(self, tmp_path, transport, *args, **kw):
        self.objects = tmp_path / f"user-{time.monotonic_ns()}.objects"
        self.rdma = transport == "rdma"
        self.process = subprocess.Popen([str(USER), *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent,
                                        env=environment(transport, objects=self.objects, **kw))

    def says(self, word):
        line = self.process.stdout.readline()
        assert line.strip() == word, line + self.process.stdout.read()

    def ends(self, timeout=60):
        """Well, and with nothing left of its devices; what it has printed."""
        try:
            text = self.process.communicate("\n", timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"no end within {timeout} s: {self.process.communicate()}") from None
        assert self.process.returncode == 0, text
        if self.rdma:
            assert not conftest.objects_left(self.objects), text
        return text


# B130. A machine that is busy delays an I/O now and then; what is lost until something else happens takes seconds, and
# is lost each time.
def test_no_io_waits_for_something_else_to_happen(hauld, tmp_path, transport, engine):
    (tmp_path / "disk").write_bytes(bytes(16 << 20))
    running = hauld("--export", f"{tmp_path}/disk,nqn={NQN}", transport=transport, engine=engine)
    longest = []
    while len(longest) < 3 and min(longest, default=LONGEST_US) >= LONGEST_US:
        text = User(tmp_path, transport, "gaps", f"{running.uri}/{NQN}", engine, 200).ends()
        longest.append(int(re.fullmatch(r"longest (\d+) us\n", text).group(1)))
    assert min(longest) < LONGEST_US, longest


# B113
@pytest.mark.parametrize("batch", [1, 128])
def test_a_target_that_dies_costs_the_other_queue_of_the_loop_nothing(hauld, tmp_path, transport, engine, batch):
    second = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
    for pause in (0, 0.003, 0.03):
        first = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
        user = User(tmp_path, transport, "two", f"{first.uri}/{NQN}", f"{second.uri}/{NQN}", engine, batch)
        user.says("running")
        time.sleep(pause)
        first.kill()
        text = user.ends()
        lost = int(re.fullmatch(r"the first: \d+ good (\d+) lost\n", text).group(1))
        assert 0 <= lost <= 128, text


# B120
def test_a_program_may_fork_after_it_has_registered_memory(hauld, tmp_path, transport, engine):
    running = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
    user = User(tmp_path, transport, "fork", f"{running.uri}/{NQN}", engine, 60)
    user.says("disconnected")
    limit = time.monotonic() + 5
    while f"disconnected from {NQN}" not in running.log():
        assert time.monotonic() < limit, "what a child has inherited keeps the connection up\n" + running.log()
        time.sleep(0.02)
    user.ends()


# B112, B122
def test_connecting_again_and_again_leaves_nothing(hauld, tmp_path, transport, engine):
    running = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
    assert "500 connections" in User(tmp_path, transport, "rounds", f"{running.uri}/{NQN}", engine, 50).ends()


# B157
def test_io_across_the_borders_of_registered_memory(hauld, tmp_path, transport, engine):
    """Data is right wherever it lies; what is not all of one region is copied, over RDMA."""
    running = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
    text = User(tmp_path, transport, "borders", f"{running.uri}/{NQN}", engine).ends()
    rows = [tuple(map(int, row)) for row in re.findall(r"^(\d+)\+(\d+): (\d+) copied$", text, re.M)]
    assert len(rows) == 10, text
    region = 64 * 1024
    for at, length, copied in rows:
        inside = at + length <= 2 * region and at // region == (at + length - 1) // region
        assert (copied > 0) == (transport == "rdma" and not inside), text

# SPDX-License-Identifier: MIT
"""Compare and Write against everything else that writes: no increment is lost (NVMe base 2.0 3.4.2)."""
import random
import struct
import threading
import time

import conftest
import hosts
import nvme
import pytest

FILE, RAM = 1, 3
COUNTER = 1000      # block
DEADLINE_S = 60


@pytest.fixture(scope="module", params=conftest.ENGINES)
def hauld(request, tmp_path_factory):
    daemon = conftest.start_both(tmp_path_factory.mktemp("stress"), "--threads", "4", engine=request.param)
    yield daemon
    daemon.end()


def block(value, count):
    return struct.pack("<Q", value) * (64 * count)


class Host(threading.Thread):
    """A host with a queue of its own that takes one step after the other until all of the race have had enough."""

    def __init__(self, hauld, kind, nsid, count, seed):
        super().__init__()
        self.queue = hosts.Queue(kind, hauld.address_of(kind), conftest.MAIN)
        self.nsid, self.count, self.random = nsid, count, random.Random(seed)
        self.steps, self.nr, self.error = 0, 0, None
        self.over = None

    def run(self):
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not self.over():
                assert time.monotonic() < deadline, "too slow, or starved"
                self.step()
                self.steps += 1
        except BaseException as error:
            self.error = error
            raise

    def step(self):
        raise NotImplementedError


def race(all_hosts, *, increments=0, steps=20):
    """Until so many INCREMENTS are made and each host has had its STEPS."""
    def over():
        return any(host.error for host in all_hosts) or (
            all(host.steps >= steps for host in all_hosts)
            and sum(host.nr for host in all_hosts if isinstance(host, Incrementer)) >= increments)
    for host in all_hosts:
        host.over = over
        host.start()
    for host in all_hosts:
        host.join()
        host.queue.close()
    assert not [host.error for host in all_hosts if host.error]


class Incrementer(Host):
    """Adds 1 to the counter, as a lock of a cluster's file system does."""

    def step(self):
        old = self.queue.read(COUNTER, self.count, nsid=self.nsid)
        value, = struct.unpack_from("<Q", old)
        assert old == block(value, self.count), "half of a write was read"
        cdw = nvme.rw_cdw(COUNTER, self.count)
        compare = self.queue.start(nvme.COMPARE, nsid=self.nsid, write=old, cdw=cdw, flags=0x41,
                                   inline=self.random.random() < 0.5 and len(old) <= self.queue.in_capsule)
        write = self.queue.start(nvme.WRITE, nsid=self.nsid, write=block(value + 1, self.count), cdw=cdw, flags=0x42)
        status = self.queue.end(compare)[0].status, self.queue.end(write)[0].status
        assert status in ((0, 0), (nvme.COMPARE_FAILURE, nvme.FUSED_FAILED)), status
        self.nr += status == (0, 0)


class Neighbour(Host):
    """Writes, zeroes and reads the blocks on both sides, and all at once except the counter's."""

    def step(self):
        self.nr += 1
        data = self.random.randbytes(8 * 512)
        self.queue.write(COUNTER - 8, data, nsid=self.nsid)
        self.queue.write(COUNTER + self.count, data, nsid=self.nsid)
        self.queue.read(COUNTER - 8, 8 + self.count, nsid=self.nsid)
        assert self.queue.status(nvme.WRITE_ZEROES, nsid=self.nsid, cdw=nvme.rw_cdw(COUNTER + self.count, 64)) == 0


@pytest.mark.parametrize("kinds, nsid, count", [
    ("tcp tcp tcp", RAM, 1), ("tcp tcp tcp", FILE, 256), ("tcp rdma tcp", FILE, 1), ("rdma rdma rdma", RAM, 16)])
def test_no_increment_is_lost(hauld, kinds, nsid, count):
    first, second, third = kinds.split()
    with hosts.Queue("tcp", hauld.address_of("tcp"), conftest.MAIN) as queue:
        queue.write(COUNTER, block(0, count), nsid=nsid)
        all_hosts = [Incrementer(hauld, kind, nsid, count, seed) for seed, kind in enumerate((first, second, third))]
        all_hosts += [Neighbour(hauld, kind, nsid, count, 7 + seed) for seed, kind in enumerate((first, second))]
        race(all_hosts, increments=200)
        counts = [host.nr for host in all_hosts]
        print("increments and neighbours' turns:", counts)
        assert queue.read(COUNTER, count, nsid=nsid) == block(sum(counts[:3]), count)


class Stranger(Host):
    """Writes the counter itself, without a look at it, marked in the upper half."""

    def step(self):
        self.nr += 1
        self.queue.write(COUNTER, block(self.nr << 32, self.count), nsid=self.nsid)
        for _ in range(self.random.randrange(4)):
            value, = struct.unpack_from("<Q", self.queue.read(COUNTER, self.count, nsid=self.nsid))
            assert value >> 32 == self.nr, "a pair has written over what came after its Compare"


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_a_plain_write_of_the_counter_is_before_or_after_a_pair(hauld, kind):
    """Whatever is there at the end is a plain write and the increments after it: never more than all there were."""
    with hosts.Queue(kind, hauld.address_of(kind), conftest.MAIN) as queue:
        queue.write(COUNTER, block(0, 4), nsid=FILE)
        all_hosts = [Incrementer(hauld, kind, FILE, 4, seed) for seed in range(2)] + [Stranger(hauld, kind, FILE, 4, 9)]
        race(all_hosts, steps=100)
        data = queue.read(COUNTER, 4, nsid=FILE)
        value, = struct.unpack_from("<Q", data)
        assert data == block(value, 4)
        assert value >> 32 == all_hosts[2].nr and value & 0xFFFFFFFF <= all_hosts[0].nr + all_hosts[1].nr

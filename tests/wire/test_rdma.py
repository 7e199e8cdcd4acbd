# SPDX-License-Identifier: MIT
"""The RDMA transport's own rules (NVMe RDMA 1.0), over tests/softrdma."""
import os
import random
import struct
import subprocess
import threading
import time

import conftest
import nvme
import nvmerdma
import pytest
from nvmerdma import Rdma, keyed, private

NQN = "nqn.2026-11.io.haul:rdma"
SIZE = 16 << 20


# Two engines on two kinds of device: one that can all, and one that has few SGEs and no inline data (PITFALLS B099).
@pytest.fixture(scope="module", params=[("io_uring", ""), ("epoll", "max_sge=1,max_inline=0")],
                ids=["io_uring", "epoll-one_sge-no_inline"])
def hauld(request, tmp_path_factory):
    engine, fault = request.param
    daemon = conftest.Hauld(tmp_path_factory.mktemp("rdma"), "--listen", "rdma://127.0.0.1:0",
                            "--export", f"ram:{SIZE >> 20}M,nqn={NQN}", engine=engine,
                            env={**conftest.rdma_environment(), "SOFTRDMA_FAULT": fault})
    yield daemon
    assert daemon.alive(), daemon.log_path.read_text()
    assert daemon.stop() == 0, daemon.log_path.read_text()


@pytest.fixture
def pair(hauld):
    with nvmerdma.Pair(hauld.address, NQN) as both:
        yield both


def still_serves(hauld):
    nvmerdma.still_serves(hauld, NQN)


# --- private data (RDMA 1.0 3.3.1) ------------------------------------------------------------

def test_accept_carries_the_queue_size(hauld):
    with Rdma(hauld.address) as rdma:
        assert rdma.outcome == "established"
        recfmt, crqsize = struct.unpack_from("<HH", rdma.private)
        assert recfmt == 0 and crqsize >= 31


@pytest.mark.parametrize("data, status", [
    (private(recfmt=1), nvmerdma.REJECT_RECFMT),
    (private(recfmt=0xFFFF), nvmerdma.REJECT_RECFMT),
    (private(qid=0xFFFF), nvmerdma.REJECT_QID),
    (private(qid=129), nvmerdma.REJECT_QID),
    (private(qid=1, hsqsize=0), nvmerdma.REJECT_HSQSIZE),
    (private(qid=1, hsqsize=0xFFFF), nvmerdma.REJECT_HSQSIZE),
    (private(qid=1, hrqsize=0), nvmerdma.REJECT_HRQSIZE),
], ids=["recfmt 1", "recfmt FFFFh", "qid", "qid 129", "hsqsize 0", "hsqsize FFFFh", "hrqsize 0"])
def test_bad_private_data_is_rejected_with_its_reason(hauld, data, status):
    with Rdma(hauld.address, data=data) as rdma:
        assert rdma.reject == (0, status)
    still_serves(hauld)


@pytest.mark.parametrize("cut, status", [
    (0, nvmerdma.REJECT_HSQSIZE), (4, nvmerdma.REJECT_HSQSIZE), (6, nvmerdma.REJECT_HSQSIZE)])
def test_short_private_data_is_rejected(hauld, cut, status):
    """RoCE pads the data with zeros, so that what is missing reads as 0."""
    with Rdma(hauld.address, data=private(cut=cut)) as rdma:
        assert rdma.reject == (0, status)
    still_serves(hauld)


def test_what_follows_the_private_data_is_the_cms_padding(hauld):
    with Rdma(hauld.address, data=private() + b"\xff" * 24) as rdma:
        assert rdma.outcome == "established"


def test_an_initiator_depth_is_tolerated(hauld):
    with Rdma(hauld.address, depth=16) as rdma:
        assert rdma.outcome == "established"


def test_sqsize_must_be_that_of_the_private_data(hauld):
    with Rdma(hauld.address) as rdma:
        cqe = rdma.connect(subnqn=NQN, sqsize=15)
        assert cqe.status == nvme.CONNECT_INVALID and cqe.dw0 & 0xFFFF == 44


def test_qid_must_be_that_of_the_private_data(hauld):
    with Rdma(hauld.address, qid=0) as admin:
        admin.qid = 1
        assert admin.connect(subnqn=NQN, sqsize=31).status == nvme.CONNECT_INVALID


def test_connect_data_may_be_read_from_the_host(hauld):
    with Rdma(hauld.address) as rdma:
        assert rdma.connect(subnqn=NQN, sqsize=31, by_read=True).status == 0


# --- identify -----------------------------------------------------------------------------------

def test_connect_gives_a_controller_id_that_identify_repeats(hauld):
    """Base 2.0 5.17.2.1. Two hosts, three associations each, all at once."""
    hosts = ["nqn.2014-08.org.nvmexpress:uuid:aaaaaaaa-0000-0000-0000-00000000000" + n for n in "12"]
    admins, seen = [], set()
    try:
        for host in hosts * 3:
            admins.append(Rdma(hauld.address))
            cqe = admins[-1].connect(subnqn=NQN, hostnqn=host, sqsize=31)
            assert cqe.status == 0
            admins[-1].cntlid = cqe.dw0 & 0xFFFF
            seen.add(admins[-1].cntlid)
        for admin in admins:
            admin.enable()
            address, key = admin.region(0, 4096)
            assert admin.command(nvme.IDENTIFY, dptr=keyed(address, 4096, key), cdw=(1,)).status == 0
            assert struct.unpack_from("<H", admin.dump(0, 4096), 78)[0] == admin.cntlid
    finally:
        for admin in admins:
            admin.kill()
    assert len(seen) == len(admins)


def test_identify_says_what_rdma_hosts_insist_on(pair):
    address, key = pair.admin.region(0, 4096)
    cqe = pair.admin.command(nvme.IDENTIFY, dptr=keyed(address, 4096, key), cdw=(1,))
    assert cqe.status == 0
    data = pair.admin.dump(0, 4096)
    sgls = struct.unpack_from("<I", data, 536)[0]
    assert sgls & 1 << 2, "keyed SGLs"
    assert sgls & 1 << 20, "in-capsule offset"
    assert struct.unpack_from("<I", data, 1792)[0] == (64 + 4096) // 16, "4 KiB in the capsule"
    assert struct.unpack_from("<H", data, 1800)[0] == 0, "ICDOFF"
    assert data[1803] == 16, "MSDBD"


# --- data -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [512, 4096, 4608, 65536, 131072, 1 << 20])
def test_data_moves_by_read_and_write(pair, size):
    address, key = pair.io.region(0, size)
    back, back_key = pair.io.region(1, size, "write")
    data = os.urandom(size)
    pair.io.fill(0, data)
    cdw = nvme.rw_cdw(64, size // 512)
    assert pair.io.command(nvme.WRITE, nsid=1, dptr=keyed(address, size, key), cdw=cdw).status == 0
    assert pair.io.command(nvme.READ, nsid=1, dptr=keyed(back, size, back_key), cdw=cdw).status == 0
    assert pair.io.dump(1, size) == data


@pytest.mark.parametrize("size", [512, 2048, 4096])
def test_in_capsule_write(pair, size):
    back, key = pair.io.region(1, size, "write")
    data = os.urandom(size)
    cdw = nvme.rw_cdw(7, size // 512)
    assert pair.io.command(nvme.WRITE, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, size), cdw=cdw,
                           inline=data).status == 0
    assert pair.io.command(nvme.READ, nsid=1, dptr=keyed(back, size, key), cdw=cdw).status == 0
    assert pair.io.dump(1, size) == data


def descriptors(pieces, capsule_offset=0):
    """The last segment descriptor, and the list that goes into the capsule behind the command."""
    body = b"".join(keyed(*piece) for piece in pieces)
    return nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, capsule_offset, len(body)), body


@pytest.mark.parametrize("lengths", [[512], [512] * 16, [1, 511, 4096, 3584], [4096, 0, 4096]])
def test_several_keyed_descriptors(pair, lengths):
    """RDMA 1.0 2.2: up to MSDBD descriptors, of any length and alignment."""
    total = sum(lengths)
    address, key = pair.io.region(0, total + 4096)
    data = os.urandom(total)
    spread, at = [], 0
    for length in lengths:
        spread.append((address + at, length, key))
        at += length
    pair.io.fill(0, data)
    cdw = nvme.rw_cdw(2, total // 512)
    dptr, body = descriptors(spread)
    assert pair.io.command(nvme.WRITE, nsid=1, dptr=dptr, inline=body, cdw=cdw).status == 0
    pair.io.fill(0, bytes(total))
    assert pair.io.command(nvme.READ, nsid=1, dptr=dptr, inline=body, cdw=cdw).status == 0
    assert pair.io.dump(0, total) == data


@pytest.mark.parametrize("what", [
    "17 descriptors", "not a multiple of 16", "offset beyond the capsule", "empty list",
    "other type in the list", "nested segment"])
def test_bad_descriptor_lists_are_refused(pair, what):
    address, key = pair.io.region(0, 65536)
    good = [(address, 512, key)] * 8
    dptr, body = descriptors(good)
    if what == "17 descriptors":
        dptr, body = descriptors([(address, 512, key)] * 17)
    elif what == "not a multiple of 16":
        dptr = nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, 0, len(body) - 3)
    elif what == "offset beyond the capsule":
        dptr = nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, 1 << 33, len(body))
    elif what == "empty list":
        dptr = nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, 0, 0)
    elif what == "other type in the list":
        body = body[:-16] + nvme.sgl(nvme.SGL_IN_CAPSULE, 0, 512)
    elif what == "nested segment":
        body = body[:-16] + nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, 0, 16)
    blocks = 17 if what == "17 descriptors" else 8
    cqe = pair.io.command(nvme.READ, nsid=1, dptr=dptr, inline=body, cdw=nvme.rw_cdw(0, blocks))
    assert cqe.status in (nvme.INVALID_FIELD, 0x00D, 0x00E, 0x00F, 0x010, 0x011, 0x012, 0x016), cqe
    assert pair.io.command(nvme.FLUSH, nsid=1).status == 0


@pytest.mark.parametrize("offset, length, sent", [
    (0, 4096, 512), (1 << 40, 512, 512), (512, 512, 512), (0xFFFFFFFFFFFFFE00, 1024, 1024)])
def test_in_capsule_data_must_be_in_the_capsule(pair, offset, length, sent):
    cqe = pair.io.command(nvme.WRITE, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, offset, length),
                          cdw=nvme.rw_cdw(0, length // 512), inline=bytes(sent))
    assert cqe.status != 0
    assert pair.io.command(nvme.FLUSH, nsid=1).status == 0


def test_a_capsule_shorter_than_a_command_ends_the_connection(hauld, pair):
    pair.io.send(bytes(40))
    pair.io.expect_end()
    still_serves(hauld)


@pytest.mark.parametrize("wrong", ["key", "before", "behind", "gone", "not writable"])
@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE, nvme.IDENTIFY],
                         ids=["read", "write", "identify"])
def test_a_wrong_key_ends_only_its_own_connection(hauld, opcode, wrong):
    with nvmerdma.Pair(hauld.address, NQN) as guilty, nvmerdma.Pair(hauld.address, NQN) as other:
        io = guilty.admin if opcode == nvme.IDENTIFY else guilty.io
        address, key = io.region(0, 8192, "none" if wrong == "not writable" else "both")
        if wrong == "key":
            key ^= 0x5A5A00
        elif wrong == "before":
            address -= 4096
        elif wrong == "behind":
            address += 8192 - 2048
        elif wrong == "gone":
            assert io.say("forget 0") == "ok"
        io.send(nvme.command(opcode, cid=1, nsid=1, dptr=keyed(address, 4096, key),
                             cdw=() if opcode == nvme.IDENTIFY else nvme.rw_cdw(0, 8)))
        io.expect_end()
        where, good = other.io.region(0, 4096)
        assert other.io.command(nvme.READ, nsid=1, dptr=keyed(where, 4096, good),
                                cdw=nvme.rw_cdw(0, 8)).status == 0
    still_serves(hauld)


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE], ids=["read", "write"])
def test_commands_with_a_wrong_key_keep_no_buffer(tmp_path, opcode):
    """More of them than the pool has buffers."""
    hauld = conftest.Hauld(tmp_path, "--listen", "rdma://127.0.0.1:0", "--threads", "1", "--memory", "16M",
                           "--export", f"ram:16M,nqn={NQN}", env=conftest.rdma_environment())
    try:
        for _ in range(4):
            with nvmerdma.Pair(hauld.address, NQN) as both:
                address, key = both.io.region(0, 1 << 20, "none")
                capsule = nvme.command(opcode, nsid=1, dptr=keyed(address, 1 << 20, key),
                                       cdw=nvme.rw_cdw(0, 2048))
                assert both.io.say(f"burst 8 {capsule.hex()}") == "ok"
                both.io.expect_end()
        with nvmerdma.Pair(hauld.address, NQN) as both:
            address, key = both.io.region(0, 1 << 20)
            assert both.io.command(nvme.READ, nsid=1, dptr=keyed(address, 1 << 20, key),
                                   cdw=nvme.rw_cdw(0, 2048)).status == 0
    finally:
        assert hauld.stop() == 0, hauld.log_path.read_text()


def test_more_commands_than_the_queue_holds_ends_only_that_association(hauld):
    with nvmerdma.Pair(hauld.address, NQN, depth=4) as both:
        address, key = both.io.region(0, 1 << 20)
        capsule = nvme.command(nvme.READ, nsid=1, dptr=keyed(address, 1 << 20, key),
                               cdw=nvme.rw_cdw(0, 2048))
        assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
        both.io.expect_end()
    still_serves(hauld)


def test_many_commands_at_once_are_all_answered(hauld):
    with nvmerdma.Pair(hauld.address, NQN, depth=64) as both:
        address, key = both.io.region(0, 64 * 4096)
        for cid in range(60):
            both.io.send(nvme.command(nvme.READ, cid=cid, nsid=1,
                                      dptr=keyed(address + cid * 4096, 4096, key),
                                      cdw=nvme.rw_cdw(cid * 8, 8)))
        assert {both.io.receive().cid for _ in range(60)} == set(range(60))


# --- ends -----------------------------------------------------------------------------------------

def test_hosts_may_vanish_at_any_moment(hauld):
    chance = random.Random(5)
    for _ in range(12):
        both = nvmerdma.Pair(hauld.address, NQN, depth=64)
        address, key = both.io.region(0, 1 << 20)
        for cid in range(chance.randrange(40)):
            opcode = chance.choice((nvme.READ, nvme.WRITE))
            both.io.send(nvme.command(opcode, cid=cid, nsid=1,
                                      dptr=keyed(address, 131072, key),
                                      cdw=nvme.rw_cdw(chance.randrange(1000), 256)))
        chance.choice((both.io, both.admin)).kill()
        both.io.kill()
        both.admin.kill()
    still_serves(hauld)


def test_a_host_that_asks_and_vanishes_leaves_nothing(hauld):
    """Killed at 0 to 10 ms after the connection request."""
    for delay in range(10):
        rdma = Rdma.__new__(Rdma)
        thread = threading.Thread(target=Rdma.__init__, args=(rdma, hauld.address), daemon=True)
        thread.start()
        while not hasattr(rdma, "raw"):
            time.sleep(0.0005)
        time.sleep(0.02 + delay / 1000)
        rdma.raw.kill()
        rdma.raw.wait()
        thread.join()
    still_serves(hauld)


def test_disconnect_by_the_host_is_answered(hauld, pair):
    assert pair.io.say("disconnect") == "ok"
    pair.io.expect_end()
    assert pair.admin.property(nvme.PROPERTY_GET, nvme.CSTS).status == 0
    still_serves(hauld)


def test_the_io_queues_end_with_the_admin_queue(hauld, pair):
    pair.admin.kill()
    pair.io.expect_end()
    still_serves(hauld)


@pytest.mark.parametrize("delay_ms", range(0, 40, 5))
def test_connects_on_their_way_survive_the_end_of_the_listener(tmp_path, delay_ms):
    """SIGTERM while new connections travel from the listener's thread to their own."""
    daemon = conftest.Hauld(tmp_path, "--listen", "rdma://127.0.0.1:0", "--threads", "4",
                            "--export", f"ram:1M,nqn={NQN}", env=conftest.rdma_environment())
    hosts = [subprocess.Popen([str(conftest.BUILD / "tests" / "wire" / "rdma_raw")],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              env=conftest.rdma_environment()) for _ in range(12)]
    host, port = daemon.address
    for raw in hosts:
        raw.stdin.write(f"connect {host} {port} {private().hex()} 0\n")
        raw.stdin.flush()
    time.sleep(delay_ms / 1000)
    try:
        assert daemon.stop() == 0, daemon.log_path.read_text()
    finally:
        for raw in hosts:
            raw.kill()
            raw.wait()
            raw.stdin.close()


# --- listeners ------------------------------------------------------------------------------------

def listening(directory, *uris):
    args = [word for uri in uris for word in ("--listen", uri)]
    return conftest.Hauld(directory, *args, "--export", f"ram:1M,nqn={NQN}", "--threads", "1",
                          env=conftest.rdma_environment())


def established(host, port):
    with Rdma((host, port)) as rdma:
        return rdma.outcome == "established"


def test_a_wildcard_of_ipv6_takes_ipv4_too(tmp_path):
    daemon = listening(tmp_path, "rdma://[::]:0")
    try:
        assert established("::1", daemon.address[1])
        assert established("127.0.0.1", daemon.address[1])
    finally:
        assert daemon.stop() == 0


def test_a_wildcard_of_ipv6_leaves_ipv4_to_a_listener_that_has_it(tmp_path):
    """And then it is not offered to IPv4 hosts: the other one is."""
    first = listening(tmp_path, "rdma://0.0.0.0:0")
    port = first.address[1]
    assert first.stop() == 0
    daemon = listening(tmp_path, f"rdma://0.0.0.0:{port}", f"rdma://[::]:{port}")
    try:
        for host in ("::1", "127.0.0.1"):
            assert established(host, port)
        found = subprocess.run([str(conftest.BUILD / "initiator" / "haul"), "discover",
                                f"rdma://127.0.0.1:{port}"], capture_output=True, text=True,
                               timeout=30, env=conftest.rdma_environment())
        assert found.returncode == 0, found.stderr
        assert found.stdout.count(NQN) == 1, found.stdout
    finally:
        assert daemon.stop() == 0


def test_a_listener_that_cannot_be_is_named(tmp_path):
    daemon = listening(tmp_path, "rdma://127.0.0.1:0")
    try:
        with pytest.raises(AssertionError, match=f"cannot listen at {daemon.uris[0]}: "):
            listening(tmp_path, daemon.uris[0])
    finally:
        assert daemon.stop() == 0

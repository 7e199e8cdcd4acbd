# SPDX-License-Identifier: MIT
"""The RDMA transport's own rules (NVMe RDMA 1.0), over tests/softrdma or a device."""
import contextlib
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

pytestmark = pytest.mark.transport("rdma")


@pytest.fixture(scope="module")
def shared_pair():
    """Of another's target: one for all tests, connected again when it is broken; to connect may be slow."""
    shared = []
    yield shared
    for both in shared:
        both.__exit__()


@pytest.fixture
def pair(target, shared_pair):
    both = shared_pair.pop() if shared_pair else nvmerdma.Pair(target.address, target.subsystem)
    yield both
    if not target.hauld and in_step(both):
        shared_pair.append(both)
    else:
        both.__exit__()


def in_step(both):
    try:
        return both.admin.property(nvme.PROPERTY_GET, nvme.CSTS).status == 0 and both.io.command(nvme.FLUSH, nsid=1).status == 0
    except (nvmerdma.Ended, OSError, ValueError, AssertionError):     # ValueError: the test has closed it
        return False


# --- private data (RDMA 1.0 3.3.1) ------------------------------------------------------------

def test_accept_carries_the_queue_size(target):
    """RDMA 1.0 3.2: RECFMT 0 and CRQSIZE in the private data of the acceptance."""
    with Rdma(target.address) as rdma:
        assert rdma.outcome == "established"
        recfmt, crqsize = struct.unpack_from("<HH", rdma.private)
        assert recfmt == 0 and crqsize >= 31


@pytest.mark.parametrize("data, status", [
    (private(recfmt=1), nvmerdma.REJECT_RECFMT),
    (private(recfmt=0xFFFF), nvmerdma.REJECT_RECFMT),
    (private(qid=0xFFFF), nvmerdma.REJECT_QID),
    (private(qid=1, hsqsize=0), nvmerdma.REJECT_HSQSIZE),
    (private(qid=1, hsqsize=0xFFFF), nvmerdma.REJECT_HSQSIZE),
    (private(qid=1, hrqsize=0), nvmerdma.REJECT_HRQSIZE),
], ids=["recfmt 1", "recfmt FFFFh", "qid", "hsqsize 0", "hsqsize FFFFh", "hrqsize 0"])
def test_bad_private_data_is_rejected_with_its_reason(target, data, status):
    """RDMA 1.0 3.2: a rejection's private data say why."""
    with Rdma(target.address, data=data) as rdma:
        assert rdma.reject == (0, status)
    target.still_serves()


def test_a_queue_id_beyond_the_most_that_there_can_be_is_rejected(own):
    with Rdma(own.address, data=private(qid=129)) as rdma:
        assert rdma.reject == (0, nvmerdma.REJECT_QID)


@pytest.mark.parametrize("cut, status", [
    (0, nvmerdma.REJECT_HSQSIZE), (4, nvmerdma.REJECT_HSQSIZE), (6, nvmerdma.REJECT_HSQSIZE)], ids=["0", "4", "6"])
def test_short_private_data_is_rejected(target, cut, status):
    """RDMA 1.0 3.2: RoCE pads the data with zeros, so that what is missing reads as 0."""
    with Rdma(target.address, data=private(cut=cut)) as rdma:
        assert rdma.reject == (0, status)
    target.still_serves()


def test_what_follows_the_private_data_is_the_cms_padding(target):
    """RDMA 1.0 3.2: 32 bytes count, whatever the connection manager adds."""
    with Rdma(target.address, data=private() + b"\xff" * 24) as rdma:
        assert rdma.outcome == "established"


def test_an_initiator_depth_is_tolerated(target):
    """RDMA 1.0 3.2: hosts need no RDMA READs of their own, but may offer them."""
    with Rdma(target.address, depth=16) as rdma:
        assert rdma.outcome == "established"


def test_sqsize_must_be_that_of_the_private_data(target):
    """RDMA 1.0 3.2: HSQSIZE is the SQSIZE of Connect, which says where it is wrong (Base 2.0 6.3)."""
    with Rdma(target.address) as rdma:
        cqe = rdma.connect(subnqn=target.subsystem, sqsize=15)
        assert cqe.status == nvme.CONNECT_INVALID and cqe.dw0 & 0xFFFF == 44


def test_qid_must_be_that_of_the_private_data(target):
    """RDMA 1.0 3.2: QID is that of Connect."""
    with Rdma(target.address, qid=0) as admin:
        admin.qid = 1
        assert admin.connect(subnqn=target.subsystem, sqsize=31).status == nvme.CONNECT_INVALID


def test_connect_data_is_read_from_the_host(target):
    """RDMA 1.0 2.2: by the key of its descriptor."""
    with Rdma(target.address) as rdma:
        assert rdma.connect(subnqn=target.subsystem, sqsize=31).status == 0


def test_connect_data_may_come_in_the_capsule(own):
    with Rdma(own.address) as rdma:
        assert rdma.connect(subnqn=own.subsystem, sqsize=31, inline=True).status == 0


# --- identify -----------------------------------------------------------------------------------

def test_identify_says_what_rdma_hosts_insist_on(target):
    """Base 2.0 figure 275: keyed SGLs; ICDOFF 0."""
    with target.admin() as admin:
        data = admin.identify(1)[1]
        assert struct.unpack_from("<I", data, 536)[0] & 1 << 2, "keyed SGLs"
        assert struct.unpack_from("<H", data, 1800)[0] == 0, "ICDOFF"
        assert data[1803] >= 1, "MSDBD"


def test_identify_offers_what_ours_has(own):
    with own.admin() as admin:
        assert admin.limits.offset_in_capsule and admin.limits.in_capsule == 4096
        assert admin.limits.msdbd == 16


# --- data -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [512, 4096, 4608, 65536, 131072, 1 << 20],
                         ids=["512", "4096", "4608", "64 KiB", "128 KiB", "1 MiB"])
def test_data_moves_by_read_and_write(pair, size):
    """RDMA 1.0 2.2: the target reads and writes the host's memory by its key."""
    address, key = pair.io.region(0, size)
    back, back_key = pair.io.region(1, size, "write")
    data = os.urandom(size)
    pair.io.fill(0, data)
    cdw = nvme.rw_cdw(64, size // 512)
    assert pair.io.command(nvme.WRITE, nsid=1, dptr=keyed(address, size, key), cdw=cdw).status == 0
    assert pair.io.command(nvme.READ, nsid=1, dptr=keyed(back, size, back_key), cdw=cdw).status == 0
    assert pair.io.dump(1, size) == data


def need_in_capsule(target, size):
    with target.admin() as admin:
        if not admin.limits.offset_in_capsule or admin.limits.in_capsule < size:
            target.lacks("IOCCSZ or SGLS have no such data in the capsule")


def need_descriptors(target, count):
    with target.admin() as admin:
        if admin.limits.msdbd < count:
            target.lacks(f"MSDBD is {admin.limits.msdbd}")


@pytest.mark.parametrize("size", [512, 2048, 4096])
def test_in_capsule_write(target, pair, size):
    """RDMA 1.0 2.2: in the capsule, up to IOCCSZ."""
    need_in_capsule(target, size)
    back, key = pair.io.region(1, size, "write")
    data = os.urandom(size)
    cdw = nvme.rw_cdw(7, size // 512)
    assert pair.io.command(nvme.WRITE, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, 0, size), cdw=cdw,
                           inline=data).status == 0
    assert pair.io.command(nvme.READ, nsid=1, dptr=keyed(back, size, key), cdw=cdw).status == 0
    assert pair.io.dump(1, size) == data


def test_a_command_without_data_needs_no_descriptor(own):
    """Neither the kernel's hosts nor others leave it empty, but nothing says what it has to be."""
    with own.admin() as admin, admin.io_queue() as queue:
        assert nvmerdma.Rdma.command(queue, nvme.FLUSH, nsid=1, dptr=bytes(16)).status == 0


def descriptors(pieces, capsule_offset=0):
    """The last segment descriptor, and the list that goes into the capsule behind the command."""
    body = b"".join(keyed(*piece) for piece in pieces)
    return nvme.sgl(nvmerdma.SGL_LAST_SEGMENT, capsule_offset, len(body)), body


@pytest.mark.parametrize("lengths", [[512], [512] * 16, [1, 511, 4096, 3584], [4096, 0, 4096]],
                         ids=["one", "16", "odd", "an empty one"])
def test_several_keyed_descriptors(target, pair, lengths):
    """RDMA 1.0 2.2: up to MSDBD descriptors, of any length and alignment."""
    need_descriptors(target, len(lengths) if len(lengths) > 1 else 2)
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


BAD_LISTS = {
    "17 descriptors": nvme.SGL_NUMBER_INVALID, "not a multiple of 16": nvme.SGL_SEGMENT_INVALID,
    "offset beyond the capsule": nvme.SGL_OFFSET_INVALID, "empty list": nvme.SGL_SEGMENT_INVALID,
    "other type in the list": nvme.SGL_TYPE_INVALID, "nested segment": nvme.SGL_SEGMENT_INVALID}


@pytest.mark.parametrize("what", BAD_LISTS)
def test_bad_descriptor_lists_are_refused(target, pair, what):
    """Base 2.0 4.1.2: a list that cannot be is the command's error, not the connection's."""
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
    target.expects(cqe.status, BAD_LISTS[what], nvme.INVALID_FIELD, nvme.SGL_SEGMENT_INVALID, nvme.SGL_NUMBER_INVALID,
                   nvme.SGL_LENGTH_INVALID, 0x010, nvme.SGL_TYPE_INVALID, 0x012, nvme.SGL_OFFSET_INVALID)
    assert pair.io.command(nvme.FLUSH, nsid=1).status == 0


@pytest.mark.parametrize("offset, length, sent", [
    (0, 4096, 512), (1 << 40, 512, 512), (512, 512, 512), (0xFFFFFFFFFFFFFE00, 1024, 1024)],
    ids=["longer", "far off", "behind", "before"])
def test_in_capsule_data_must_be_in_the_capsule(pair, offset, length, sent):
    """Base 2.0 4.1.2: offset and length are within the capsule."""
    cqe = pair.io.command(nvme.WRITE, nsid=1, dptr=nvme.sgl(nvme.SGL_IN_CAPSULE, offset, length),
                          cdw=nvme.rw_cdw(0, length // 512), inline=bytes(sent))
    assert cqe.status != 0
    assert pair.io.command(nvme.FLUSH, nsid=1).status == 0


def send_the_last(rdma, capsule):
    """What ends the connection, perhaps before the device says that it was sent."""
    with contextlib.suppress(nvmerdma.Ended):
        rdma.send(capsule)
    rdma.expect_end()


def test_a_capsule_shorter_than_a_command_ends_the_connection(target, pair):
    """RDMA 1.0 2.2: a command capsule has 64 bytes at least."""
    send_the_last(pair.io, bytes(40))
    target.still_serves()


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["key", "before", "behind", "gone", "not writable"])
@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE, nvme.IDENTIFY],
                         ids=["read", "write", "identify"])
def test_a_wrong_key_ends_only_its_own_connection(target, opcode, wrong):
    """RDMA 1.0 2.2: an access that the host's device refuses breaks that queue pair and no other."""
    with nvmerdma.Pair(target.address, target.subsystem) as guilty, nvmerdma.Pair(target.address, target.subsystem) as other:
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
        send_the_last(io, nvme.command(opcode, cid=1, nsid=1, dptr=keyed(address, 4096, key),
                                       cdw=() if opcode == nvme.IDENTIFY else nvme.rw_cdw(0, 8)))
        where, good = other.io.region(0, 4096)
        assert other.io.command(nvme.READ, nsid=1, dptr=keyed(where, 4096, good),
                                cdw=nvme.rw_cdw(0, 8)).status == 0
    target.still_serves()


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


def test_more_commands_than_the_queue_holds_ends_only_that_association(target):
    """Base 2.0 3.3.2.7: hosts keep to the size of their queue; others are served when one does not. Ours ends the connection;
    with a receive queue for each connection the device can hold such a host back."""
    with nvmerdma.Pair(target.address, target.subsystem, depth=4) as both:
        address, key = both.io.region(0, 1 << 20)
        capsule = nvme.command(nvme.READ, nsid=1, dptr=keyed(address, 1 << 20, key),
                               cdw=nvme.rw_cdw(0, 2048))
        assert both.io.say(f"burst 64 {capsule.hex()}") == "ok"
        if target.hauld:
            both.io.expect_end()
    target.still_serves()


def test_many_commands_at_once_are_all_answered(target):
    """Base 2.0 3.3.2.7: as many commands as the queue holds are out at a time."""
    with nvmerdma.Pair(target.address, target.subsystem, depth=64) as both:
        address, key = both.io.region(0, 64 * 4096)
        for cid in range(60):
            both.io.send(nvme.command(nvme.READ, cid=cid, nsid=1,
                                      dptr=keyed(address + cid * 4096, 4096, key),
                                      cdw=nvme.rw_cdw(cid * 8, 8)))
        assert {both.io.receive().cid for _ in range(60)} == set(range(60))


# --- ends -----------------------------------------------------------------------------------------

@pytest.mark.long
def test_hosts_may_vanish_at_any_moment(target):
    """Base 2.0 3.3.2.4: hosts may go at any moment, and others are served."""
    chance = random.Random(5)
    for _ in range(12):
        both = nvmerdma.Pair(target.address, target.subsystem, depth=64)
        address, key = both.io.region(0, 1 << 20)
        for cid in range(chance.randrange(40)):
            opcode = chance.choice((nvme.READ, nvme.WRITE))
            both.io.send(nvme.command(opcode, cid=cid, nsid=1,
                                      dptr=keyed(address, 131072, key),
                                      cdw=nvme.rw_cdw(chance.randrange(1000), 256)))
        chance.choice((both.io, both.admin)).kill()
        both.io.kill()
        both.admin.kill()
    target.still_serves()


def test_a_host_that_asks_and_vanishes_leaves_nothing(target):
    """RDMA 1.0 3.2: killed at 0 to 10 ms after the connection request; others are served."""
    for delay in range(10):
        rdma = Rdma.__new__(Rdma)
        thread = threading.Thread(target=Rdma.__init__, args=(rdma, target.address), daemon=True)
        thread.start()
        while not hasattr(rdma, "raw"):
            time.sleep(0.0005)
        time.sleep(0.02 + delay / 1000)
        rdma.raw.kill()
        rdma.raw.wait()
        thread.join()
    target.still_serves()


def test_disconnect_by_the_host_is_answered(target, pair):
    """RDMA 1.0 3.2: a queue ends with its connection, the association does not."""
    assert pair.io.say("disconnect") == "ok"
    pair.io.expect_end()
    assert pair.admin.property(nvme.PROPERTY_GET, nvme.CSTS).status == 0
    target.still_serves()


def test_the_io_queues_end_with_the_admin_queue(target, pair):
    """Base 2.0 3.3.2.4: all queues of an association end with the admin queue's connection."""
    pair.admin.kill()
    pair.io.expect_end()
    target.still_serves()


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

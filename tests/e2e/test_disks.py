# SPDX-License-Identifier: MIT
"""hauld on disks of all kinds: file systems that lack something, full ones, devices with large sectors or partitions,
disks that go. What needs root or a loop device is a skip elsewhere.
"""
import errno
import fcntl
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from concurrent import futures

import pytest

from conftest import HAUL, HAULD, NQN, Hauld, die_with_parent, environment, fio_engine, haul, wait_for
from disks import Host, in_namespace, inside, losetup, mounted, refusing, sectors
from test_haul import Silent

MIB = 1 << 20
CAPACITY_EXCEEDED, WRITE_FAULT, READ_ERROR = 0x081, 0x280, 0x281
MEDIA_ERRORS = {WRITE_FAULT, READ_ERROR}
PAGE_CACHE = "using the page cache"


@pytest.fixture
def loop(tmp_path):
    """Makes loop devices: loop(size, "losetup option"...). backing(device) is the file behind it."""
    if os.geteuid() != 0 or not shutil.which("losetup"):
        pytest.skip("loop devices need root and losetup(8)")
    made = {}

    def start(size, *options, file=None):
        file = file or tmp_path / f"backing{len(made)}"
        if not file.exists():
            with open(file, "wb") as new:
                new.truncate(size)
        device = losetup("--find", "--show", *options, str(file))
        made[device] = file
        return device

    start.backing = made.get
    start.adopt = lambda device: made.update({device: None})
    yield start
    for device in made:
        subprocess.run(["losetup", "--detach", device], capture_output=True, timeout=20, check=False)


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "mount"
    made.mkdir()
    return made


def exercise(host, size):
    """All that a host can do, at the start, in the middle and at the end; returns what the disk must hold."""
    rng = random.Random(1)
    want = bytearray(size)
    block = host.block
    for at, length in ((0, 64 * block), (size // 2, 8 * block), (size // 2 + 16 * block, 256 * 1024), (size - block, block)):
        data = rng.randbytes(length)
        assert host.write(at, data, fua=bool(at & 1024)) == 0
        want[at:at + length] = data
    assert host.flush() == 0
    assert host.zero(block, 3 * block) == 0
    want[block:4 * block] = bytes(3 * block)
    assert host.zero(8 * block, 8 * block, deallocate=True) == 0
    want[8 * block:16 * block] = bytes(8 * block)
    for at, length in ((0, 64 * block), (size // 2, 8 * block), (size // 2 + 16 * block, 256 * 1024), (size - block, block)):
        assert host.read(at, length) == want[at:at + length]
    return want


# --- file systems that lack something (B132, B138) ---------------------------------------------------------

# Whether direct I/O works there; None: newer kernels have it.
FILE_SYSTEMS = [("ramfs", False), ("tmpfs", None)]


@pytest.mark.parametrize("kind, direct", FILE_SYSTEMS)
def test_data_is_right_with_and_without_direct_io(hauld, engine, directory, kind, direct):
    running = hauld("--export", f"{directory}/disk,nqn={NQN}", engine=engine, prefix=mounted(kind, directory))
    if direct is not None:
        assert (PAGE_CACHE in running.log()) == (not direct), running.log()
    with Host(running.uri) as host:
        want = exercise(host, 16 * MIB)
    assert inside(running, directory / "disk").read_bytes() == want


def test_overlays_and_ext4_have_direct_io(hauld, engine, directory, loop):
    """An overlay over ext4, and the ext4 itself."""
    device = loop(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", device], check=True, timeout=60, capture_output=True)
    running = hauld("--export", f"{directory}/ext4/disk,nqn={NQN},nsid=1", "--export",
                    f"{directory}/overlay/disk,nqn={NQN},nsid=2", engine=engine, prefix=in_namespace(
                        'mount -t tmpfs none "$1"; cd "$1"; mkdir ext4 overlay; mount "$2" ext4; '
                        'mkdir ext4/lower ext4/upper ext4/scratch; truncate -s 16M ext4/disk ext4/lower/disk; '
                        'mount -t overlay -o lowerdir=ext4/lower,upperdir=ext4/upper,workdir=ext4/scratch none overlay',
                        str(directory), device))
    assert PAGE_CACHE not in running.log()
    for nsid, path in ((1, "ext4/disk"), (2, "overlay/disk")):
        with Host(running.uri, nsid) as host:
            want = exercise(host, 16 * MIB)
        assert inside(running, directory / path).read_bytes() == want


@pytest.mark.parametrize("kind", ["ramfs", "device"])
def test_discard_succeeds_where_it_cannot_be_done(hauld, engine, directory, loop, kind):
    """ramfs has no holes, and a loop device on it no discard; zeroes are zeroes all the same."""
    if kind == "device":
        made = subprocess.run([*mounted("ramfs", directory), "losetup", "--find", "--show", f"{directory}/disk"],
                              check=True, text=True, capture_output=True, timeout=20)
        device = made.stdout.strip()
        loop.adopt(device)
        running = hauld("--export", f"{device},nqn={NQN}", engine=engine)
    else:
        running = hauld("--export", f"{directory}/disk,nqn={NQN}", engine=engine, prefix=mounted(kind, directory))
    with Host(running.uri) as host:
        data = random.Random(2).randbytes(64 * 1024)
        assert host.write(0, data) == 0
        for at in range(100):
            assert host.discard((at * 512, 512), (MIB + at * 512, 4096)) == 0
        assert host.zero(512, 512) == 0 and host.zero(2048, 1024, deallocate=True) == 0
        want = bytearray(data)
        want[512:1024], want[2048:3072] = bytes(512), bytes(1024)
        assert host.read(0, 64 * 1024) in (want, bytes(64 * 1024))
        assert host.read(512, 512) == bytes(512) and host.read(2048, 1024) == bytes(1024)


def test_discard_gives_back_space_where_it_can(hauld, engine, loop):
    """Ranges at the disk itself (B149), on a device and on a file."""
    device = loop(16 * MIB)
    backing = loop.backing(device)
    running = hauld("--export", f"{device},nqn={NQN}", engine=engine)
    with Host(running.uri) as host:
        want = bytearray(random.Random(3).randbytes(4 * MIB))
        for at in range(0, 4 * MIB, 256 * 1024):
            assert host.write(at, want[at:at + 256 * 1024]) == 0
        assert host.flush() == 0
        before = sectors(device)["discarded"]
        assert host.discard((MIB, 64 * 1024), (2 * MIB, 128 * 1024), (3 * MIB, 0), (3 * MIB, 4096)) == 0
        assert sectors(device)["discarded"] - before == (64 + 128 + 4) * 1024
        assert host.zero(0, 8192) == 0 and host.zero(8192, 8192, deallocate=True) == 0
        for at, length in ((0, 16384), (MIB, 64 * 1024), (2 * MIB, 128 * 1024), (3 * MIB, 4096)):
            want[at:at + length] = bytes(length)
        for at in range(0, 4 * MIB, 256 * 1024):
            assert host.read(at, 256 * 1024) == want[at:at + 256 * 1024]
    assert backing.read_bytes()[:4 * MIB] == want


def test_each_flush_reaches_the_disk(hauld, fio, engine, loop):
    """What fio sends (B148) is what the kernel has counted of the device."""
    device = loop(4 * MIB)
    running = hauld("--export", f"{device},nqn={NQN}", engine=engine)

    def flushes(**options):
        before = sectors(device)["flushes"]
        fio(uri=f"{running.uri}/{NQN}/1", rw="write", bs="4k", size="256k", **options).ok()
        return sectors(device)["flushes"] - before

    at_shutdown = flushes()
    for options, number in (({"fsync": 4}, 15), ({"end_fsync": 1}, 1), ({"fdatasync": 8}, 7), ({"sync": 1}, 64)):
        assert flushes(**options) - at_shutdown == number, options


# --- block sizes (B131) -----------------------------------------------------------------------------------

@pytest.mark.parametrize("on, sector, asked, block", [
    ("io_uring", 4096, "", 4096), ("epoll", 4096, ",block=4096", 4096), ("epoll", 512, "", 512),
    ("io_uring", 512, ",block=4096", 4096)])
def test_devices_have_the_block_size_that_is_told(hauld, fio, on, loop, sector, asked, block):
    device = loop(16 * MIB, "--sector-size", str(sector))
    running = hauld("--export", f"{device},nqn={NQN}{asked}", engine=on)
    assert PAGE_CACHE not in running.log()
    assert f"blocks of {block} bytes" in haul("id", f"{running.uri}/{NQN}").stdout
    with Host(running.uri, block=block) as host:
        want = exercise(host, 16 * MIB)
    assert loop.backing(device).read_bytes() == want
    # Small writes travel in the capsule, at whatever address that gives them.
    done = fio(uri=f"{running.uri}/{NQN}/1", rw="randwrite", bsrange=f"{block}-16k", size="4m", verify="crc32c",
               verify_fatal=1, iodepth=16).ok()
    assert done.total("read") > 0
    if block > 512:
        fio(uri=f"{running.uri}/{NQN}/1", rw="randread", bs=512, size="1m").failed("block size 4096")


def test_blocks_below_a_devices_sectors_are_refused(loop):
    device = loop(16 * MIB, "--sector-size", "4096")
    done = subprocess.run([str(HAULD), "--listen", "tcp://127.0.0.1:0", "--export", f"{device},block=512"], text=True,
                          capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 2 and f"block=512 is less than the 4096 bytes of {device}" in done.stderr, done
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("on, asked, block, cached", [
    ("io_uring", "", 4096, False), ("io_uring", ",block=512", 512, True), ("epoll", ",block=512", 512, True),
    ("epoll", ",block=4096", 4096, False)])
def test_files_on_large_sectors_keep_their_promise(hauld, fio, on, directory, loop, asked, block, cached):
    """Direct I/O is possible in 4096 bytes only: such blocks, or those asked for through the page cache."""
    device = loop(64 * MIB, "--sector-size", "4096")
    subprocess.run(["mkfs.ext4", "-q", device], check=True, timeout=60, capture_output=True)
    running = hauld("--export", f"{directory}/disk,nqn={NQN}{asked}", engine=on, prefix=in_namespace(
        'mount "$2" "$1"; truncate -s 16M "$1/disk"', str(directory), device))
    assert (running.log().count(PAGE_CACHE) == 1) == cached, running.log()
    with Host(running.uri, block=block) as host:
        want = exercise(host, 16 * MIB)
    assert inside(running, directory / "disk").read_bytes() == want
    fio(uri=f"{running.uri}/{NQN}/1", rw="randwrite", bsrange=f"{block}-16k", size="4m", verify="crc32c",
        verify_fatal=1, iodepth=16).ok()


# --- full disks, disks that go (B133) ------------------------------------------------------------------------

def fill(host, size, step=64 * 1024):
    """Writes from the start until it fails; how many bytes were written, and the status."""
    for at in range(0, size, step):
        status = host.write(at, bytes([at // step % 251 + 1]) * step)
        if status:
            return at, status
    return size, 0


def check_filled(host, length, step=64 * 1024):
    for at in range(0, length, step):
        assert host.read(at, step) == bytes([at // step % 251 + 1]) * step


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_file_system_fails_writes_only_and_until_there_is_room(hauld, fio, engine, directory, loop, kind):
    if kind == "tmpfs":
        prefix = mounted("tmpfs", directory, "size=8M", 'head -c 2M /dev/zero > "$1/ballast"')
    else:
        device = loop(12 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", device], check=True, timeout=60, capture_output=True)
        prefix = in_namespace('mount "$2" "$1"; truncate -s 16M "$1/disk"; head -c 2M /dev/zero > "$1/ballast"; sync',
                              str(directory), device)
    running = hauld("--export", f"{directory}/disk,nqn={NQN},nsid=1", "--export", f"ram:1M,nqn={NQN},nsid=2", engine=engine,
                    prefix=prefix)
    with Host(running.uri) as host, Host(running.uri, 2) as other:
        length, status = fill(host, 16 * MIB)
        assert status == CAPACITY_EXCEEDED and 4 * MIB < length < 12 * MIB
        check_filled(host, length)
        assert host.flush() == 0
        assert other.write(0, bytes(512)) == 0
        # What has its place already can be written.
        assert host.write(0, b"\x01" * 65536) == 0
        done = fio(uri=f"{running.uri}/{NQN}/1", rw="write", bs="64k", offset="14m", size="2m").failed("081h: Capacity Exceeded")
        assert done.json["jobs"][0]["error"] == errno.EIO
        inside(running, directory / "ballast").unlink()
        assert host.write(length, bytes([length // 65536 % 251 + 1]) * 65536) == 0
        check_filled(host, length + 65536)


def shut_down(path):
    """As when the device under a file system has gone (EXT4_IOC_SHUTDOWN, without writing the log)."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, 0x8004587D, struct.pack("<I", 2))
    os.close(fd)


def check_gone(host, seconds=5):
    begin = time.monotonic()
    # What is in the page cache may be read.
    assert host.write(0, bytes(4096)) in MEDIA_ERRORS
    assert host.read(8 * MIB, 4096) in MEDIA_ERRORS
    assert host.flush() in MEDIA_ERRORS | {0}
    assert host.zero(MIB, 4096) in MEDIA_ERRORS
    assert host.discard((MIB, 4096)) in MEDIA_ERRORS | {0}
    for _ in range(50):
        assert host.write(MIB, bytes(4096)) in MEDIA_ERRORS
    assert time.monotonic() - begin < seconds, "the errors are slow"


@pytest.mark.parametrize("kind", ["file system", "device"])
def test_a_disk_that_goes_fails_fast_and_alone(hauld, fio, engine, directory, loop, kind):
    device = loop(64 * MIB)
    if kind == "file system":
        subprocess.run(["mkfs.ext4", "-q", device], check=True, timeout=60, capture_output=True)
        running = hauld("--export", f"{directory}/disk,nqn={NQN},nsid=1", "--export", f"ram:1M,nqn={NQN},nsid=2",
                        engine=engine, prefix=in_namespace('mount "$2" "$1"; truncate -s 16M "$1/disk"', str(directory), device))
    else:
        running = hauld("--export", f"{device},nqn={NQN},nsid=1", "--export", f"ram:1M,nqn={NQN},nsid=2", engine=engine)
    with Host(running.uri) as host, Host(running.uri, 2) as other:
        assert host.write(0, b"x" * 65536) == 0 and host.flush() == 0
        if kind == "file system":
            shut_down(inside(running, directory))
        else:
            os.truncate(loop.backing(device), 0)
            losetup("--set-capacity", device)
        check_gone(host)
        assert other.write(0, bytes(512)) == 0 and other.read(0, 512) == bytes(512)
        done = fio(uri=f"{running.uri}/{NQN}/1", rw="write", bs="4k", size="1m").failed("NVMe status 280h: Write Fault")
        assert done.json["jobs"][0]["error"] == errno.EIO
        fio(uri=f"{running.uri}/{NQN}/2", rw="write", bs="4k", size="1m", verify="crc32c").ok()


def test_a_name_that_goes_hurts_nobody(hauld, engine, directory):
    """The file unlinked, the file system unmounted lazily: what is open stays."""
    running = hauld("--export", f"{directory}/disk,nqn={NQN}", engine=engine, prefix=mounted("tmpfs", directory))
    with Host(running.uri) as host:
        assert host.write(0, b"x" * 4096) == 0
        inside(running, directory / "disk").unlink()
        subprocess.run(["nsenter", f"--mount=/proc/{running.process.pid}/ns/mnt", *(
            [] if os.geteuid() == 0 else [f"--user=/proc/{running.process.pid}/ns/user"]), "umount", "-l", str(directory)],
            check=True, timeout=20)
        assert host.read(0, 4096) == b"x" * 4096
        exercise(host, 16 * MIB)


# --- one disk, one user (B139) -------------------------------------------------------------------------------

def partitioned(loop):
    """A device with two partitions of 4 MiB."""
    device = loop(16 * MIB, "--partscan")
    for number in (1, 2):
        done = subprocess.run(["addpart", device, str(number), str(2048 + 8192 * (number - 1)), "8192"], text=True,
                              capture_output=True, timeout=20, check=False)
        if done.returncode:
            pytest.skip(f"addpart: {done.stderr.strip()}")
    return device


def refused(path):
    done = subprocess.run([str(HAULD), "--listen", "tcp://127.0.0.1:0", "--export", str(path)], text=True,
                          capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1 and f"{path} is mounted or used by something else" in done.stderr, done
    assert done.stderr.count("\n") == 1
    return True


def all_refused(*paths):
    """At once: each is waited for, in case that its last user has just ended."""
    with futures.ThreadPoolExecutor(len(paths)) as pool:
        return all(pool.map(refused, paths))


def test_a_device_and_its_partitions_are_one_disk(loop, tmp_path):
    device = partitioned(loop)
    name = tmp_path / "name"
    name.symlink_to(device)
    node = tmp_path / "node"
    os.mknod(node, 0o600 | 0o060000, os.stat(device).st_rdev)
    whole = Hauld(tmp_path, "--export", f"{device},nqn={NQN}")
    assert all_refused(device, name, node, f"{device}p1", f"{device}p2")
    whole.stop()
    one = Hauld(tmp_path, "--export", f"{device}p1,nqn={NQN}")
    assert all_refused(device, f"{device}p1")
    two = Hauld(tmp_path, "--export", f"{device}p2,nqn={NQN}")
    with Host(one.uri) as first, Host(two.uri) as second:
        want = exercise(first, 4 * MIB) + exercise(second, 4 * MIB)
    one.stop()
    two.kill()
    assert loop.backing(device).read_bytes()[MIB:9 * MIB] == want
    # The claim goes with the process, whatever its end.
    Hauld(tmp_path, "--export", f"{device},nqn={NQN}").stop()


def test_a_mounted_device_is_refused(loop, directory):
    device = loop(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", device], check=True, timeout=60, capture_output=True)
    subprocess.run(["mount", device, str(directory)], check=True, timeout=20)
    try:
        assert refused(device)
    finally:
        subprocess.run(["umount", str(directory)], check=True, timeout=20)


# --- the start: limits and descriptors (B135, B140) --------------------------------------------------------------

@pytest.mark.parametrize("asked", ["epoll", "auto"])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_full_aio_table_ends_the_start_with_limit_and_need(asked, threads, tmp_path):
    apply = refusing("io_setup", errno.EAGAIN)
    without_ring = refusing("io_uring_setup", errno.EPERM)

    def before():
        die_with_parent()
        apply()
        without_ring()

    (tmp_path / "disk").write_bytes(bytes(MIB))
    done = subprocess.run([str(HAULD), "--listen", "tcp://127.0.0.1:0", "--export", "disk", "--engine", asked, "--threads",
                           str(threads)], text=True, capture_output=True, timeout=20, stdin=subprocess.DEVNULL,
                          cwd=tmp_path, preexec_fn=before, check=False)
    assert done.returncode == 1 and "ready" not in done.stdout, done
    assert "fs.aio-max-nr" in done.stderr and "hauld: " in done.stderr, done.stderr
    assert "Sanitizer" not in done.stderr


def closing(fds):
    def before():
        die_with_parent()
        for fd in fds:
            os.close(fd)
    return before


def descriptors(process):
    """What 0 to 2 are."""
    return {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)}


CLOSED = [(0,), (1,), (2,), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("fds", CLOSED)
def test_a_target_started_without_descriptors_prints_into_no_disk(fds, engine, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    exports = []
    for nsid in (1, 2, 3, 4):
        (tmp_path / f"disk{nsid}").write_bytes(bytes(MIB))
        exports += ["--export", f"{tmp_path}/disk{nsid},nqn={NQN},nsid={nsid}"]
    with subprocess.Popen([str(HAULD), "--listen", uri, *exports, "--engine", engine], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=closing(fds)) as process:
        deadline = time.monotonic() + 10
        while haul("id", f"{uri}/{NQN}").returncode:
            assert time.monotonic() < deadline and process.poll() is None
        found = descriptors(process)
        process.terminate()
        assert process.wait(20) == 0
    assert found == {"/dev/null"}
    assert all((tmp_path / f"disk{nsid}").read_bytes() == bytes(MIB) for nsid in (1, 2, 3, 4))


@pytest.mark.parametrize("fds", CLOSED)
def test_a_program_started_without_descriptors_prints_into_no_connection(hauld, fds, tmp_path):
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    with open(tmp_path / "output", "wb") as output:
        for what, status in ((["id", f"{running.uri}/{NQN}"], 0), (["discover", running.uri], 0),
                             (["id", f"{running.uri}/{NQN}/9"], 1)):
            done = subprocess.run([str(HAUL), *what], stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=30,
                                  preexec_fn=closing(fds), check=False)
            # As with an output that cannot be written.
            assert done.returncode == (1 if 1 in fds else status), what
    wait_for(lambda: running.log().count(" disconnected from") == 3)
    log = running.log()
    assert log.count(" connected to") == 3 and "error" not in log, log
    silent = Silent()
    with subprocess.Popen([str(HAUL), "id", silent.uri], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, preexec_fn=closing(fds)) as process, silent.accept():
        assert descriptors(process) == {"/dev/null"}
        process.kill()


@pytest.mark.parametrize("fds", [(2,), (0, 1, 2)])
def test_the_engine_takes_no_descriptor_of_fios_output(hauld, fds, tmp_path):
    """fio itself takes them all before the engine is there."""
    running = hauld("--export", f"ram:1M,nqn={NQN}")
    with subprocess.Popen(["fio", "--name=job", "--thread", f"--ioengine={fio_engine()}", f"--uri={running.uri}/{NQN}/1",
                           "--rw=randread", "--time_based", "--runtime=60"], cwd=tmp_path, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment("tcp", preload=True),
                          preexec_fn=closing(fds)) as process:
        deadline = time.monotonic() + 20
        while running.log().count(" connected to") < 2:
            assert time.monotonic() < deadline and process.poll() is None, running.log()
        found = descriptors(process)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert not any(re.match(r"socket:|anon_inode:\[(io_uring|eventfd|eventpoll)", each) for each in found), found

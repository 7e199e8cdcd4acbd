# SPDX-License-Identifier: MIT
"""Disks of many kinds for hauld: file systems of its own, loop devices; and a raw host to use them."""
import os
import pathlib
import platform
import struct
import subprocess
import sys

import pytest

from conftest import NQN

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "wire"))

import nvme  # noqa: E402
import nvmetcp  # noqa: E402


class Host:
    """A host of one namespace, by tests/wire's raw commands: each returns a status, or what was read."""

    def __init__(self, uri, nsid=1, block=512):
        address, port = uri.removeprefix("tcp://").rsplit(":", 1)
        self.admin = nvmetcp.Admin((address, int(port)), NQN, timeout=20)
        self.queue = self.admin.io_queue()
        self.queue.sock.settimeout(20)
        self.nsid, self.block = nsid, block

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.queue.close()
        self.admin.close()

    def cdw(self, at, length, control=0):
        return nvme.rw_cdw(at // self.block, length // self.block, control=control)

    def write(self, at, data, *, fua=False):
        cdw = self.cdw(at, len(data), 1 << 30 if fua else 0)
        return self.queue.command(nvme.WRITE, nsid=self.nsid, cdw=cdw, write=data)[0].status

    def read(self, at, length):
        cqe, data = self.queue.command(nvme.READ, nsid=self.nsid, cdw=self.cdw(at, length), read=length)
        return cqe.status or data

    def flush(self):
        return self.queue.command(nvme.FLUSH, nsid=self.nsid)[0].status

    def zero(self, at, length, *, deallocate=False):
        cdw = self.cdw(at, length, 1 << 25 if deallocate else 0)
        return self.queue.command(nvme.WRITE_ZEROES, nsid=self.nsid, cdw=cdw)[0].status

    def discard(self, *ranges):
        body = b"".join(struct.pack("<IIQ", 0, length // self.block, at // self.block) for at, length in ranges)
        return self.queue.command(nvme.DSM, nsid=self.nsid, cdw=(len(ranges) - 1, 4), write=body)[0].status


def in_namespace(script, *words):
    """A prefix for Hauld: in a mount namespace of its own SCRIPT sets up what it wants, with WORDS as $1...; the
    namespace goes with the process."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--mount"]
    done = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no mount namespaces here: " + done.stderr.strip())
    nr = len(words)
    return [*unshare, "sh", "-ec", f'{script}\nshift {nr}\nexec "$@"', "sh", *words]


def mounted(kind, directory, options="defaults", script="true"):
    """Mounts a file system of KIND there, with a sparse disk of 16 MiB on it, for Hauld alone."""
    return in_namespace(f'mount -t {kind} -o {options} none "$1"\ntruncate -s 16M "$1/disk"\n{script}', str(directory))


def inside(hauld, path):
    """The path as hauld's namespace has it."""
    return pathlib.Path(f"/proc/{hauld.process.pid}/root") / str(path).lstrip("/")


def losetup(*args):
    done = subprocess.run(["losetup", *args], text=True, capture_output=True, timeout=20, check=False)
    if done.returncode:
        pytest.skip(f"losetup {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout.strip()


def sectors(device):
    """What the kernel has counted of a device (Documentation/block/stat.rst): flushes, and bytes discarded."""
    fields = pathlib.Path(f"/sys/block/{pathlib.Path(device).name}/stat").read_text().split()
    return {"flushes": int(fields[15]), "discarded": int(fields[13]) * 512}


def refusing(syscall, error):
    """For preexec_fn: the system call fails with ERROR from now on, as where a limit is reached."""
    import ctypes
    numbers = {"x86_64": {"io_setup": 206, "io_uring_setup": 425}, "aarch64": {"io_setup": 0, "io_uring_setup": 425}}
    if platform.machine() not in numbers:
        pytest.skip("the numbers of system calls are known for x86_64 and aarch64 only")
    number = numbers[platform.machine()][syscall]
    filters = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("<HBBI", *each) for each in filters)

    def apply():
        libc = ctypes.CDLL(None, use_errno=True)
        program = ctypes.create_string_buffer(code, len(code))
        fprog = ctypes.create_string_buffer(struct.pack("@HP", len(filters), ctypes.addressof(program)))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, fprog, 0, 0):
            raise OSError(ctypes.get_errno(), "no seccomp filters here")

    return apply

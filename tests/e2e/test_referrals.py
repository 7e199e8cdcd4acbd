# SPDX-License-Identifier: MIT
"""Discovery controllers that refer to others: haul discover lists what all of them offer, and whoever gives no name gets
the only subsystem, wherever it is listed. One that is dead costs a warning and a little time."""
import json
import pathlib
import socket
import struct
import sys
import threading
import time

import pytest

from conftest import NQN, ROOT, haul

sys.path.insert(0, str(pathlib.Path(ROOT) / "tests" / "wire"))
import nvme  # noqa: E402

REFERRAL, NVM, CURRENT = 1, 2, 3


def entry(port, subtype=REFERRAL, nqn=nvme.DISCOVERY_NQN, address="127.0.0.1", trtype=3):
    """An entry of the discovery log (base 2.0 figure 264)."""
    return (struct.pack("<BBBBHHHH", trtype, 1, subtype, 0, 1, 0xFFFF, 32, 0).ljust(32, b"\0")
            + str(port).encode().ljust(32) + bytes(192) + nqn.encode().ljust(256, b"\0")
            + address.encode().ljust(256) + bytes(256))


class Discovery:
    """A discovery controller over TCP that has ENTRIES in its log. It answers what haul asks, no more."""

    def __init__(self, entries=()):
        self.entries = list(entries)
        self.nr_hosts = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.uri = f"tcp://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            host = self.server.accept()[0]
            self.nr_hosts += 1
            threading.Thread(target=self.talk, args=(host,), daemon=True).start()

    def talk(self, host):
        with host, host.makefile("rb") as stream:
            stream.read(128)
            host.sendall(struct.pack("<BBBBIHBBI", 1, 0, 128, 0, 128, 0, 0, 0, 65536).ljust(128, b"\0"))
            cc = 0
            while head := stream.read(8):
                command = stream.read(struct.unpack_from("<I", head, 4)[0] - 8)
                cid, value, data = struct.unpack_from("<H", command, 2)[0], 0, b""
                if command[0] == nvme.FABRICS and command[4] == nvme.CONNECT:
                    value = 1
                elif command[0] == nvme.FABRICS and command[4] == nvme.PROPERTY_SET:
                    cc = struct.unpack_from("<Q", command, 48)[0]
                elif command[0] == nvme.FABRICS:
                    value = {nvme.CAP: 127 | 1 << 16 | 1 << 24 | 1 << 37, nvme.VS: 0x10400,
                             nvme.CSTS: 1 | (8 if cc >> 14 & 3 else 0)}[struct.unpack_from("<I", command, 44)[0]]
                elif command[0] == nvme.IDENTIFY:
                    data = bytearray(4096)
                    data[78], data[111] = 1, 2
                elif command[0] == nvme.GET_LOG:
                    data = self.log(struct.unpack_from("<I", command, 40)[0] >> 16, command)
                if data:
                    host.sendall(struct.pack("<BBBBIHHII4x", 7, 4, 24, 24, 24 + len(data), cid, 0, 0, len(data)) + data)
                host.sendall(struct.pack("<BBBBIQHHHH", 5, 0, 24, 0, 24, value, 0, 0, cid, 0))

    def log(self, numd, command):
        offset, length = struct.unpack_from("<Q", command, 48)[0], 4 * (numd + 1)
        whole = struct.pack("<QQH", 1, len(self.entries), 0).ljust(1024, b"\0") + b"".join(self.entries)
        return whole[offset:offset + length].ljust(length, b"\0")


def nobody():
    """A port that refuses."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.fixture
def disk(hauld):
    return hauld("--export", f"ram:1M,nqn={NQN}")


def port_of(running):
    return int(running.uri.rsplit(":", 1)[1])


def test_what_a_referral_offers_is_listed(disk):
    first = Discovery([entry(port_of(disk))])
    done = haul("discover", first.uri)
    assert done.returncode == 0 and done.stderr == "", done
    assert f"referral   tcp://127.0.0.1:{port_of(disk)}/{nvme.DISCOVERY_NQN}\n" in done.stdout
    assert done.stdout.count(f"subsystem  tcp://127.0.0.1:{port_of(disk)}/{NQN}\n") == 1
    log = json.loads(haul("discover", "--json", first.uri).stdout)
    assert [e["subtype"] for e in log["entries"]] == ["referral", "discovery", "subsystem"]


def test_the_only_subsystem_is_found_behind_referrals(disk):
    last = Discovery([entry(port_of(disk))])
    first = Discovery([entry(last.port)])
    done = haul("id", first.uri)
    assert done.returncode == 0 and done.stderr == "", done
    assert NQN in done.stdout


@pytest.mark.parametrize("command", ["discover", "id"])
def test_circles_are_left(disk, command):
    one, two = Discovery(), Discovery()
    one.entries = [entry(two.port), entry(one.port), entry(port_of(disk), NVM, NQN)]
    two.entries = [entry(one.port), entry(two.port), entry(port_of(disk), NVM, NQN)]
    done = haul(command, one.uri)
    assert done.returncode == 0 and done.stderr == "", done
    assert (one.nr_hosts, two.nr_hosts) == (1, 1)
    assert done.stdout.count(NQN) == 1


@pytest.mark.parametrize("command", ["discover", "id"])
def test_dead_referrals_are_a_warning(disk, command):
    """One refuses, one accepts and is silent, one is something else."""
    silent = socket.create_server(("127.0.0.1", 0))
    first = Discovery([entry(nobody()), entry(silent.getsockname()[1]), entry(port_of(disk), REFERRAL, NQN),
                       entry(port_of(disk))])
    start = time.monotonic()
    done = haul(command, first.uri + "?connect_timeout=4s")
    assert time.monotonic() - start < 20
    assert done.returncode == 0 and NQN in done.stdout, done
    assert done.stderr.count("\n") == (3 if command == "discover" else 1), done.stderr
    assert all("warning: " in line for line in done.stderr.splitlines()), done.stderr
    assert "does an NVMe/TCP target listen at this address and port?" in done.stderr  # whole
    silent.close()


def test_the_first_one_must_answer():
    done = haul("discover", f"tcp://127.0.0.1:{nobody()}")
    assert done.returncode == 1 and "refused" in done.stderr and "warning" not in done.stderr


@pytest.mark.parametrize("command", ["discover", "id"])
def test_a_chain_is_followed_four_steps(disk, command):
    chain = [Discovery() for _ in range(6)]
    for one, after in zip(chain, chain[1:]):
        one.entries = [entry(after.port)]
    chain[-1].entries = [entry(port_of(disk), NVM, NQN)]
    done = haul(command, chain[0].uri)
    assert "referral" in done.stderr and NQN not in done.stdout
    assert done.returncode == (1 if command == "id" else 0)
    assert [one.nr_hosts for one in chain] == [1, 1, 1, 1, 1, 0]
    done = haul(command, chain[1].uri)
    assert done.returncode == 0 and done.stderr == "" and NQN in done.stdout, done


@pytest.mark.parametrize("command", ["discover", "id"])
def test_no_more_than_16_controllers_are_asked(disk, command):
    many = [Discovery() for _ in range(20)]
    first = Discovery([entry(port_of(disk), NVM, NQN), *(entry(one.port) for one in many)])
    done = haul(command, first.uri)
    assert done.returncode == 0 and NQN in done.stdout and done.stderr.count("\n") == 1, done
    assert first.nr_hosts + sum(one.nr_hosts for one in many) == 16

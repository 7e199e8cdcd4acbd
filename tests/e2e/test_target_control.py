# SPDX-License-Identifier: MIT
"""tests/lab/nvme_target_control, as blktests calls it: each operation, seen with haul discover and haul id."""
import json
import os
import socket
import subprocess

import pytest

from conftest import BUILD, HAUL, ROOT, environment

OTHER = "nqn.2026-11.io.haul:blktests-other"
OTHER_UUID = "91fdba0d-f87b-4c25-b80f-db7be1418b9e"


class Control:
    """The script with a folder and a port of its own."""

    def __init__(self, folder, transport):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.transport, self.folder = transport, folder
        self.env = {**environment(transport), "HAUL_CONTROL_DIR": str(folder), "HAUL_BUILD_DIR": str(BUILD),
                    "nvme_trtype": transport, "HAUL_TRSVCID": self.port, "nvme_img_size": "16M"}

    def call(self, *args):
        return subprocess.run([ROOT / "tests" / "lab" / "nvme_target_control", *args], env=self.env, timeout=60,
                              capture_output=True, text=True, check=False)

    def succeed(self, *args):
        done = self.call(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def show(self, name):
        return self.succeed("config", f"--show-{name}")

    def setup(self, nqn, uuid, *args):
        return self.call("setup", "--subsysnqn", nqn, "--subsys-uuid", uuid, "--hostnqn", self.show("hostnqn"), *args)

    def haul(self, what, path="", hostnqn=None):
        uri = f"{self.transport}://127.0.0.1:{self.port}{path}?hostnqn={hostnqn or self.show('hostnqn')}"
        return subprocess.run([HAUL, what, "--json", uri], env=environment(self.transport), timeout=60,
                              capture_output=True, text=True, check=False)

    def offered(self, **kw):
        log = json.loads(self.haul("discover", **kw).stdout)
        return sorted(entry["nqn"] for entry in log["entries"] if entry["subtype"] == "subsystem")


@pytest.fixture
def control(tmp_path, transport):
    one = Control(tmp_path / "control", transport)
    yield one
    one.succeed("stop")


def test_config_shows_what_setup_takes(control):
    assert control.show("trtype") == control.transport and control.show("blkdev-type") == "file"
    assert control.show("traddr") == control.show("host-traddr") == "127.0.0.1"
    assert control.show("trsvid") == control.port
    assert control.show("hostnqn").endswith(":uuid:" + control.show("hostid"))
    assert control.call("config").returncode == 2


def test_setup_and_cleanup_change_what_one_hauld_offers(control):
    nqn, uuid = control.show("subsysnqn"), control.show("subsys-uuid")
    assert control.setup(nqn, uuid).returncode == 0
    pid = (control.folder / "pid").read_text()
    assert control.offered() == [nqn]
    shown = control.haul("id", "/" + nqn)
    assert shown.returncode == 0, shown.stderr
    namespaces = json.loads(shown.stdout)["namespaces"]
    assert [one["nsid"] for one in namespaces] == [1]
    assert namespaces[0]["uuid"] == uuid and namespaces[0]["size_bytes"] == 16 << 20
    assert control.setup(OTHER, OTHER_UUID).returncode == 0
    assert control.offered() == sorted([nqn, OTHER])
    assert control.offered(hostnqn="nqn.2026-11.io.haul:stranger") == [], "only the host of setup may come in"
    control.succeed("cleanup", "--subsysnqn", nqn)
    assert control.offered() == [OTHER]
    control.succeed("cleanup", "--subsysnqn", OTHER)
    assert control.offered() == []
    assert control.setup(nqn, uuid).returncode == 0
    assert control.offered() == [nqn]
    assert (control.folder / "pid").read_text() == pid, "it was another hauld"
    assert len(list(control.folder.glob("disk-*"))) == 1, "a disk is left"


def test_what_cannot_be_is_said_and_changes_nothing(control):
    nqn, uuid = control.show("subsysnqn"), control.show("subsys-uuid")
    assert control.setup(nqn, uuid).returncode == 0
    for refused, why in ((control.setup(nqn, uuid), "is set up already"),
                         (control.setup("blktests-subsystem-1", OTHER_UUID), "nqn"),
                         (control.setup(OTHER, OTHER_UUID, "--ctrkey", "DHHC-1:00:x:"), "no authentication"),
                         (control.call("cleanup", "--subsysnqn", OTHER), "is not set up")):
        assert refused.returncode == 1 and why in refused.stderr, refused
        assert refused.stderr.startswith("nvme_target_control: ")
    assert control.offered() == [nqn]
    assert len(list(control.folder.glob("disk-*"))) == 1, "a disk is left"


def test_stop_ends_hauld_and_the_next_setup_starts_one(control):
    nqn, uuid = control.show("subsysnqn"), control.show("subsys-uuid")
    assert control.setup(nqn, uuid).returncode == 0
    pid = int((control.folder / "pid").read_text())
    control.succeed("stop")
    assert not os.path.exists(f"/proc/{pid}") or "Z" in open(f"/proc/{pid}/stat").read().split(")")[1]
    assert not list(control.folder.glob("disk-*"))
    assert control.setup(nqn, uuid).returncode == 0
    assert control.offered() == [nqn]

# SPDX-License-Identifier: MIT
"""haul doctor: on machines that are made of files, and on the way to real targets."""
import json
import os
import re
import socket
import subprocess

import pytest

from conftest import HAUL, NQN, haul
from scripted import Scripted

UUID = "01234567-89ab-cdef-0123-456789abcdef"
HOST_NQN = f"nqn.2014-08.org.nvmexpress:uuid:{UUID}"


class Machine:
    """The files of a machine below a directory: sound, with one RoCE v2 port, until a test changes something."""

    def __init__(self, root):
        self.root = root
        self.write("etc/nvme/hostnqn", HOST_NQN)
        self.write("etc/nvme/hostid", UUID)
        self.write("proc/sys/vm/nr_hugepages", "0")
        self.write("sys/module/nvme_rdma/refcnt", "0")
        self.write("dev/infiniband/rdma_cm", "")
        self.netdev("ens1", 9000)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n" if text else "")

    def remove(self, path):
        (self.root / path).unlink()

    def netdev(self, name, mtu, operstate="up"):
        for file, text in ("type", "1"), ("mtu", str(mtu)), ("operstate", operstate):
            self.write(f"sys/class/net/{name}/{file}", text)

    def device(self, name, *, node_type="1: CA", layer="Ethernet", state="4: ACTIVE", gids=("RoCE v2",), ip=True,
               netdev="ens1", software=False, verbs="uverbs0"):
        port = f"sys/class/infiniband/{name}/ports/1"
        self.write(f"sys/class/infiniband/{name}/node_type", node_type)
        self.write(f"sys/class/infiniband/{name}/fw_ver", "28.39.1002")
        if not software:
            self.write(f"sys/class/infiniband/{name}/device/vendor", "0x15b3")
        self.write(f"{port}/state", state)
        self.write(f"{port}/rate", "100 Gb/sec (4X EDR)")
        self.write(f"{port}/link_layer", layer)
        self.write(f"{port}/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001")
        self.write(f"{port}/gid_attrs/types/0", "IB/RoCE v1")
        if netdev:
            self.write(f"{port}/gid_attrs/ndevs/0", netdev)
        for index, kind in enumerate(gids, 1):
            gid = "0000:0000:0000:0000:0000:ffff:c000:0201" if ip else "fe80:0000:0000:0000:0000:00ff:fe00:0001"
            self.write(f"{port}/gids/{index}", gid)
            self.write(f"{port}/gid_attrs/types/{index}", kind)
        self.write(f"sys/class/infiniband_verbs/{verbs}/ibdev", name)
        self.write(f"dev/infiniband/{verbs}", "")

    def points(self):
        done = haul("doctor", "--json", f"--sysroot={self.root}")
        said = json.loads(done.stdout)
        assert done.stderr == "" and said["problems"] == sum(p["state"] == "problem" for p in said["points"])
        assert done.returncode == (1 if said["problems"] else 0)
        return said["points"]

    def states(self):
        """Those that are not ok: {point: (state, text, cure)}"""
        return {p["point"]: (p["state"], p["text"], p.get("cure", "")) for p in self.points() if p["state"] != "ok"}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_sound_machine_has_no_problem(machine):
    machine.device("mlx5_0")
    points = machine.points()
    assert {p["state"] for p in points} == {"ok"}
    texts = {p["point"]: p["text"] for p in points}
    assert texts["port"] == "mlx5_0/1 is active: RoCE at ens1, 100 Gb/sec (4X EDR)"
    assert texts["IP address"].startswith("mlx5_0/1 has 1 for RoCE v2")
    assert texts["MTU"] == "9000 at ens1" and texts["host NQN"] == HOST_NQN and texts["host id"] == UUID
    assert texts["RDMA device"] == "mlx5_0, firmware 28.39.1002"


def test_text_has_what_json_has(machine):
    machine.device("mlx5_0", state="1: DOWN")
    done = haul("doctor", f"--sysroot={machine.root}")
    lines = done.stdout.splitlines()
    for point in machine.points():
        at = next(i for i, line in enumerate(lines) if point["point"] in line and point["text"] in line)
        assert lines[at].startswith(point["state"])
        cure = point.get("cure", "").splitlines()
        assert [line.strip() for line in lines[at + 1:at + 1 + len(cure)]] == cure
    assert done.returncode == 1 and done.stderr == ""


def test_without_a_device_soft_roce_is_the_cure(machine):
    machine.netdev("ens0", 1500, "down")
    state, text, cure = machine.states()["RDMA device"]
    assert state == "problem" and "soft-RoCE" in text
    assert cure.splitlines() == ["modprobe rdma_rxe", "rdma link add rxe0 type rxe netdev ens1"]


@pytest.mark.parametrize("vendor, module", [("0x15b3", "mlx5_ib"), ("0x8086", "irdma"), ("0x14e4", "bnxt_re"),
                                            ("0x1425", "iw_cxgb4"), ("0x1077", "qedr"), ("0x1d0f", "efa")])
def test_an_adapter_without_its_driver_is_named(machine, vendor, module):
    machine.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086")
    machine.write("sys/bus/pci/devices/0000:01:00.0/class", "0x060400")
    machine.write("sys/bus/pci/devices/0000:02:00.0/vendor", vendor)
    machine.write("sys/bus/pci/devices/0000:02:00.0/class", "0x020000")
    state, _, cure = machine.states()["RDMA device"]
    assert state == "problem" and cure.splitlines()[0].startswith(f"modprobe {module} ")


@pytest.mark.parametrize("options, point, state, text, cure", [
    ({"state": "1: DOWN"}, "port", "problem", "mlx5_0/1 is DOWN", "ip link set dev ens1 up"),
    ({"layer": "InfiniBand", "netdev": None, "state": "2: INIT"}, "port", "problem", "is INIT", "opensm"),
    ({"layer": "InfiniBand", "netdev": None, "state": "1: DOWN"}, "port", "problem", "is DOWN", "ibstat mlx5_0"),
    ({"gids": ()}, "RoCE version", "problem", "no address for RoCE v2, only for v1", "rdma link show"),
    ({"ip": False}, "IP address", "problem", "only a link-local one", "ip address add ADDRESS/PREFIX dev ens1"),
])
def test_ports_that_cannot_be_used(machine, options, point, state, text, cure):
    machine.device("mlx5_0", **options)
    found = machine.states()
    assert list(found) == [point]
    assert found[point][0] == state and text in found[point][1] and cure in found[point][2]


@pytest.mark.parametrize("mtu, payload", [(1500, "1024"), (2199, "1024"), (2200, "2048"), (4199, "2048")])
def test_a_small_mtu_is_a_hint(machine, mtu, payload):
    machine.netdev("ens1", mtu)
    machine.device("mlx5_0")
    state, text, cure = machine.states()["MTU"]
    assert state == "hint" and f"{mtu} at ens1: RoCE sends {payload} bytes" in text
    assert cure.startswith("ip link set dev ens1 mtu 9000")


@pytest.mark.parametrize("options, words", [
    ({"layer": "InfiniBand", "netdev": None}, "mlx5_0/1 is active: InfiniBand, "),
    ({"node_type": "4: RNIC", "gids": ()}, "mlx5_0/1 is active: iWARP at ens1, "),
])
def test_infiniband_and_iwarp_want_no_roce(machine, options, words):
    machine.device("mlx5_0", **options)
    points = machine.points()
    assert not any(p["point"] in ("RoCE version", "IP address", "MTU") for p in points)
    assert any(p["point"] == "port" and p["text"].startswith(words) for p in points)


def test_a_default_of_roce_v1_is_a_problem(machine):
    machine.device("mlx5_0")
    mode = "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"
    machine.write(mode, "IB/RoCE v1")
    state, text, cure = machine.states()["RoCE version"]
    assert state == "problem" and "connects with IB/RoCE v1" in text and cure == f"echo 'RoCE v2' >/{mode}"
    machine.write(mode, "RoCE v2")
    assert machine.states() == {}


def test_nodes_that_a_container_lacks(machine):
    machine.device("mlx5_1", verbs="uverbs1")
    machine.device("mlx5_0", verbs="uverbs3")
    machine.remove("dev/infiniband/uverbs3")
    machine.remove("dev/infiniband/rdma_cm")
    found = machine.states()
    assert set(found) == {"verbs", "connections"}
    assert found["verbs"][0] == found["connections"][0] == "problem"
    assert "--device /dev/infiniband/uverbs3" in found["verbs"][2]
    assert "modprobe rdma_ucm" in found["connections"][2]


def test_nodes_that_may_not_be_opened(machine):
    machine.device("mlx5_0")
    for node in "uverbs0", "rdma_cm":
        (machine.root / "dev/infiniband" / node).chmod(0)
    # Root may open everything, if it is not kept from it.
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, HAUL, "doctor", f"--sysroot={machine.root}"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert "/dev/infiniband/uverbs0 may not be opened" in done.stdout
    assert "/dev/infiniband/rdma_cm may not be opened" in done.stdout and done.returncode == 1


def test_each_device_has_its_lines(machine):
    machine.device("mlx5_0")
    machine.device("rxe0", software=True, verbs="uverbs1")
    said = [p["text"] for p in machine.points() if p["point"] == "RDMA device"]
    assert said == ["mlx5_0, firmware 28.39.1002", "rxe0 (in software), firmware 28.39.1002"]


@pytest.mark.parametrize("nqn, hostid, point, state, text", [
    (None, UUID, "host NQN", "hint", "cannot be read"),
    ("host.example", UUID, "host NQN", "problem", "/etc/nvme/hostnqn: "),
    (HOST_NQN, "1234", "host id", "problem", "is no UUID"),
    (HOST_NQN, UUID.replace("0", "f"), "host id", "hint", "the host NQN is another"),
    ("nqn.2014-08.org.example:host", UUID.replace("0", "f"), None, None, None),
    (HOST_NQN, None, None, None, None),
])
def test_names_of_the_host(machine, nqn, hostid, point, state, text):
    machine.device("mlx5_0")
    for name, value in ("hostnqn", nqn), ("hostid", hostid):
        machine.remove(f"etc/nvme/{name}")
        if value:
            machine.write(f"etc/nvme/{name}", value)
    found = machine.states()
    assert list(found) == ([point] if point else [])
    if point:
        assert found[point][0] == state and text in found[point][1] and "/etc/nvme/hostnqn" in found[point][2]


@pytest.mark.parametrize("path, text, cure", [
    ("run/firewalld/x", "", "firewall-cmd --permanent --add-port=4420/tcp --add-port=4791/udp"),
    ("etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low", "ufw allow 4420/tcp"),
    ("etc/ufw/ufw.conf", "ENABLED=no", None),
])
def test_firewalls_that_are_on(machine, path, text, cure):
    machine.device("mlx5_0")
    machine.write(path, text)
    found = machine.states()
    assert list(found) == (["firewall"] if cure else [])
    if cure:
        assert found["firewall"][0] == "hint" and found["firewall"][2].splitlines()[0] == cure


def test_a_root_deep_down_is_looked_at_as_well(tmp_path):
    deep = Machine(tmp_path / ("deep" * 30))
    deep.device("mlx5_0")
    deep.write("etc/ufw/ufw.conf", "ENABLED=yes")
    assert deep.states()["firewall"][0] == "hint"


def test_the_kernels_host_is_a_hint_only(machine):
    machine.device("mlx5_0")
    machine.remove("sys/module/nvme_rdma/refcnt")
    (machine.root / "sys/module/nvme_rdma").rmdir()
    assert machine.states()["kernel's host"][::2] == ("hint", "modprobe nvme-rdma")


def test_this_machine_is_looked_at():
    """Whatever it has: each point has a state, and RDMA is left out for TCP."""
    said = json.loads(haul("doctor", "--json").stdout)
    names = {p["point"] for p in said["points"]}
    assert {"io_uring", "locked memory", "firewall", "RDMA device"} <= names
    assert {p["state"] for p in said["points"]} <= {"ok", "hint", "unknown", "problem"}


# --- the way to a target ------------------------------------------------------------------------

def path_points(uri, transport):
    """The points from the name on."""
    done = haul("doctor", "--json", uri, transport=transport)
    points = json.loads(done.stdout)["points"]
    at = [p["point"] for p in points].index("name")
    return points[at:], done


def test_a_good_way_is_walked_to_the_end(target):
    points, done = path_points(target.uri + "/1", target.transport)
    steps = ["name", "discovery", "controller", "reads"]
    if target.transport == "rdma":
        steps.insert(1, "route")
    assert [p["point"] for p in points] == steps and {p["state"] for p in points} == {"ok"}, done
    assert NQN in points[-2]["text"]
    assert points[-1]["text"].startswith("200 of 4096 bytes, one at a time: min ")
    if target.transport == "tcp":
        assert not any(p["point"] in ("RDMA device", "locked memory") for p in json.loads(done.stdout)["points"])
        assert done.returncode == 0
    else:
        assert points[1]["text"].startswith("through soft0/1, from 127.0.0.1 ")


def test_the_first_of_several_namespaces_is_read(target):
    points, _ = path_points(target.uri, target.transport)
    assert points[-1]["point"] == "reads" and points[-1]["state"] == "ok"


def test_nobody_there_is_told_once_a_step(transport):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    points, done = path_points(f"{transport}://127.0.0.1:{port}", transport)
    assert [p["point"] for p in points if p["state"] == "problem"] == ["discovery"]
    assert "refused" in points[-1]["text"] and done.returncode == 1


def test_a_wrong_subsystem_is_told_after_discovery(target):
    points, _ = path_points(target.hauld.uri + "/" + NQN + "x", target.transport)
    assert [p["state"] for p in points][-2:] == ["ok", "problem"]
    assert points[-1]["point"] == "controller" and NQN + "x" in points[-1]["text"]


def test_a_target_may_have_its_discovery_elsewhere():
    """And reads take as long as is said."""
    scripted = Scripted(NQN, delay=0.005)
    try:
        points, done = path_points(scripted.uri, "tcp")
    finally:
        scripted.close()
    assert [(p["point"], p["state"]) for p in points[1:]] == [("discovery", "problem"), ("controller", "ok"),
                                                              ("reads", "ok")]
    least, median, most = (int(n) for n in re.findall(r"(?:min|median|max) (\d+)", points[-1]["text"]))
    assert 5000 <= least <= median <= most and done.returncode == 1


def test_a_name_that_nobody_knows_ends_it():
    points, done = path_points("tcp://nobody.invalid", "tcp")
    assert [p["point"] for p in points] == ["name"] and points[0]["state"] == "problem"
    assert "getent ahosts" in points[0]["cure"] and done.returncode == 1


def test_a_subsystem_without_namespaces_is_a_hint(hauld, tmp_path):
    conf = tmp_path / "hauld.conf"
    conf.write_text("listen: ['tcp://127.0.0.1:0']\n"
                    f"subsystems: [{{nqn: {NQN}, namespaces: [{{ram: 1M, allow: []}}]}}]\n")
    running = hauld("--config", str(conf))
    points, done = path_points(f"{running.uri}/{NQN}", "tcp")
    assert (points[-1]["point"], points[-1]["state"], done.returncode) == ("reads", "hint", 0)


@pytest.mark.parametrize("args, words", [
    (["doctor", "http://127.0.0.1"], "tcp://"),
    (["doctor", "tcp://127.0.0.1", "more"], "more"),
    (["id", "--sysroot=/", "tcp://127.0.0.1"], "--sysroot is not for haul id"),
])
def test_wrong_usage(args, words):
    done = haul(*args)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_a_root_that_is_not_there_is_said():
    done = haul("doctor", "--sysroot=/no/such/directory")
    assert done.returncode == 1 and done.stdout == "" and "/no/such/directory cannot be read" in done.stderr

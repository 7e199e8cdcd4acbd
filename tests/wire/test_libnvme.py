# SPDX-License-Identifier: MIT
"""Another reader of our pages: libnvme's structures (libnvme_page.c). What it finds is what the configuration says."""
import json
import struct
import subprocess

import conftest
import nvme
import pytest
from control import Control, haulctl
from events import Host as EventHost
from test_reservation import CLEAR, PTPL_ON, WE_RO, Host, address

READER = conftest.BUILD / "tests" / "wire" / "libnvme_page"
NQN, OTHER = "nqn.2026-11.io.haul:read", "nqn.2026-11.io.haul:other"
UUID = "6f1c2a30-0000-4000-8000-00000000abcd"
NGUID, EUI64 = "00112233445566778899aabbccddeeff", "0011223344556677"
ALL = 0xFFFFFFFF
KINDS = ["tcp", "rdma"]

pytestmark = pytest.mark.skipif(not READER.exists(), reason="libnvme-dev is not installed: no libnvme_page in this build")


def read(kind, page):
    """{field: value} of a page: numbers, texts, and identifiers in hexadecimal."""
    said = subprocess.run([str(READER), kind], input=page, stdout=subprocess.PIPE, timeout=20, check=True).stdout
    fields = {}
    for line in said.decode().splitlines():
        name, value = line.split(" ", 1)
        fields[name] = value[1:-1] if value.startswith("'") else value
        if value.isdecimal() and not name.endswith(("uuid", "nguid", "eui64", "hostid", "csi")):
            fields[name] = int(value)
    return fields


@pytest.fixture(scope="module")
def hauld(tmp_path_factory):
    directory = tmp_path_factory.mktemp("libnvme")
    (directory / "state").mkdir()
    with open(directory / "disk", "wb") as disk:
        disk.truncate(64 << 20)
    path = directory / "hauld.conf"
    path.write_text(f"""\
listen: ["tcp://127.0.0.1:0", "rdma://127.0.0.1:0"]
referrals: ["tcp://192.0.2.7:8009"]
subsystems:
  - nqn: {NQN}
    serial: READ0001
    ana: [{{group: 1, state: optimized}}, {{group: 7, state: non-optimized}}, {{group: 9, state: inaccessible}}]
    namespaces:
      - {{path: {directory}/disk, nsid: 1, uuid: {UUID}, nguid: "{NGUID}", eui64: "{EUI64}"}}
      - {{ram: 4M, nsid: 5, block: 4096, ana_group: 7, readonly: true}}
      - {{ram: 1M, nsid: 6, ana_group: 9}}
      - {{ram: 1M, nsid: 1024, ana_group: 7}}
  - nqn: {OTHER}
    namespaces: [{{ram: 1M, nsid: 1}}]
""")
    daemon = conftest.Hauld(directory, "--config", str(path), "--threads", "2", "--state", str(directory / "state"),
                            env=conftest.rdma_environment())
    yield daemon
    assert daemon.stop() == 0, daemon.log_path.read_text()


@pytest.fixture(params=KINDS)
def host(request, hauld):
    with EventHost(request.param, address(hauld, request.param), NQN) as one:
        one.kind = request.param
        yield one


def identify(host, cns, nsid=0, csi=0):
    cqe, page = host.run(nvme.IDENTIFY, nsid=nsid, cdw=(cns, csi << 24), read=4096)
    assert cqe.status == 0, cqe
    return page


# --- Identify ---------------------------------------------------------------------------------

def test_the_controller(host):
    ctrl = read("id-ctrl", identify(host, 1))
    assert ctrl["sn"] == "READ0001".ljust(20) and ctrl["mn"] == "haul NVMe-oF target".ljust(40)
    assert len(ctrl["fr"]) == 8 and ctrl["fr"].strip() and ctrl["subnqn"] == NQN
    assert ctrl["ver"] == 0x20000 and ctrl["cntrltype"] == 1 and 0 < ctrl["cntlid"] < 0xFFF0
    assert ctrl["mdts"] == 8 and ctrl["nn"] == 1024 and 4 <= ctrl["mnan"] <= 1024
    assert ctrl["cmic"] & 0xB == 0xB and ctrl["anacap"] & 0x1F == 0x1F and ctrl["anatt"]
    assert 9 <= ctrl["nanagrpid"] <= ctrl["anagrpmax"]
    assert ctrl["kas"] and ctrl["ioccsz"] >= 4 and ctrl["iorcsz"] == 1 and ctrl["icdoff"] == 0
    assert ctrl["sqes"] == 0x66 and ctrl["cqes"] == 0x44 and ctrl["maxcmd"] >= 128 and ctrl["fcatt"] == 0
    assert ctrl["sgls"] & 3 and ctrl["sgls"] & 1 << 20 and ctrl["msdbd"] == (16 if host.kind == "rdma" else 1)
    assert bool(ctrl["sgls"] & 4) == (host.kind == "rdma"), "keyed SGLs"
    # Compare, Dataset Management, Write Zeroes, Save and Select, Reservations, Verify, Copy; Compare and Write.
    assert ctrl["oncs"] & 0x1BD == 0x1BD and ctrl["fuses"] == 1 and ctrl["vwc"] & 1 and ctrl["nwpc"] & 1


def test_the_discovery_controller(hauld):
    with EventHost("tcp", address(hauld, "tcp"), nvme.DISCOVERY_NQN) as host:
        ctrl = read("id-ctrl", identify(host, 1))
        assert ctrl["cntrltype"] == 2 and ctrl["subnqn"] == nvme.DISCOVERY_NQN and ctrl["oaes"] == 1 << 31
        assert ctrl["dctype"] == 1 and ctrl["nn"] == 0


@pytest.mark.parametrize("nsid, blocks, shift, group", [(1, 131072, 9, 1), (5, 1024, 12, 7), (1024, 2048, 9, 7)])
def test_a_namespace(host, nsid, blocks, shift, group):
    ns = read("id-ns", identify(host, 0, nsid))
    assert ns["nsze"] == ns["ncap"] == blocks and ns["nuse"] <= blocks and ns["nvmcap"] == blocks << shift
    assert ns["nlbaf"] == ns["flbas"] == 0 and ns["lbaf[0].ds"] == shift and ns["lbaf[0].ms"] == 0 == ns["lbaf[1].ds"]
    assert ns["anagrpid"] == group and ns["nmic"] == 1 and ns["nsattr"] == (nsid == 5)
    assert ns["rescap"] == (0xFF if nsid == 1 else 0xFE), "memory does not persist"
    assert ns["mssrl"] and ns["mcl"] >= ns["mssrl"]
    same = read("independent", identify(host, 8, nsid))
    assert {name: ns[name] for name in ("nmic", "rescap", "anagrpid", "nsattr")} == \
        {name: same[name] for name in ("nmic", "rescap", "anagrpid", "nsattr")}
    assert same["nstat"] & 1, "ready"
    if nsid == 1:
        assert ns["nguid"] == NGUID and ns["eui64"] == EUI64


def test_the_names_of_a_namespace(host):
    names = read("descriptors", identify(host, 3, 1))
    assert names == {"uuid": UUID.replace("-", ""), "nguid": NGUID, "eui64": EUI64, "csi": "00"}
    other = read("descriptors", identify(host, 3, 5))
    assert other.keys() == names.keys() and other["uuid"] == other["nguid"]
    page = read("id-ns", identify(host, 0, 5))
    assert (page["nguid"], page["eui64"]) == (other["nguid"], other["eui64"])


def test_the_lists(host):
    for cns in (2, 7, 0x10):
        assert list(read("namespaces", identify(host, cns)).values()) == [1, 5, 6, 1024]
    own = read("id-ctrl", identify(host, 1))["cntlid"]
    assert own in read("controllers", identify(host, 0x13)).values()
    assert read("command-sets", identify(host, 0x1C)) == {"combination.0": 1}
    limits = read("nvm-id-ctrl", identify(host, 6))
    assert limits.pop("wzsl") == 13, "32 MiB"
    assert not any(limits.values())


# --- log pages --------------------------------------------------------------------------------

def test_supported_pages_and_effects(host):
    pages = read("supported", host.get_log(0, 1024))
    assert {f"page.{lid}" for lid in (0, 1, 2, 3, 4, 5, 0x0C, 0x12, 0x13, 0x80)} == pages.keys()
    assert all(value & 1 for value in pages.values())
    effects = read("effects", host.get_log(5, 4096))
    assert {f"admin.{opcode}" for opcode in (2, 6, 8, 9, 0x0A, 0x0C, 0x18)} <= effects.keys()
    assert {f"io.{opcode}" for opcode in (0, 1, 2, 5, 8, 9, 0x0C, 0x0D, 0x0E, 0x11, 0x15, 0x19)} == \
        {name for name in effects if name.startswith("io.")}
    changes = {opcode for opcode in (1, 8, 9, 0x19) if effects[f"io.{opcode}"] & 2}     # LBCC
    assert changes == {1, 8, 9, 0x19} and all(value & 1 for value in effects.values())
    features = read("feature-effects", host.get_log(0x12, 1024))
    assert {f"feature.{fid}" for fid in (1, 2, 4, 6, 7, 0x0B, 0x0F, 0x16, 0x81, 0x82, 0x83, 0x84)} <= features.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_counters_of_what_a_host_did(hauld, kind):
    """SMART and the error log, which is a controller's own."""
    with Host(kind, address(hauld, kind), 1, NQN) as worker, EventHost(kind, address(hauld, kind), NQN) as host:
        before = read("smart", host.get_log(2, 512))
        for _ in range(5):
            assert worker.read() == 0 and worker.write() == 0
        assert worker.queue.status(nvme.READ, nsid=1, read=512, cdw=nvme.rw_cdw(1 << 35, 1)) == nvme.LBA_OUT_OF_RANGE
        after = read("smart", host.get_log(2, 512))
        assert after["host_reads"] - before["host_reads"] == 5 == after["host_writes"] - before["host_writes"]
        assert after["data_units_read"] == after["data_units_written"] == 1, "each thousand blocks that have begun"
        assert after["critical_warning"] == 0 and after["avail_spare"] == 100 and 273 < after["temperature"] < 340
        assert after["num_err_log_entries"] == 0, "the error was another controller's"
        firmware = read("firmware", host.get_log(3, 512))
        assert firmware["afi"] == 1 and firmware["frs[0]"] == read("id-ctrl", identify(host, 1))["fr"]
        assert host.run(nvme.GET_LOG, nsid=9, cdw=(0xC1 | 127 << 16,), read=512)[0].status == nvme.INVALID_LOG_PAGE
        errors = read("errors", host.get_log(1, 256))
        assert errors["0.error_count"] == 1 and errors["1.error_count"] == 0 and errors["0.sqid"] == 0
        assert errors["0.status_field"] >> 1 & 0x7FF == nvme.INVALID_LOG_PAGE and errors["0.nsid"] == 9
        assert read("smart", host.get_log(2, 512))["num_err_log_entries"] == 1
        assert errors["0.trtype"] == {"rdma": 1, "tcp": 3}[kind]


def test_changed_namespaces(hauld, host):
    """What was added is in the list that the event is about; the configuration is as it was afterwards."""
    was = hauld.log_path.parent.joinpath("hauld.conf").read_text()
    with Control(hauld.control) as control:
        for text in (was.replace("nsid: 6,", "nsid: 77,"), was):
            control.change(text, directory=hauld.log_path.parent)
            assert host.event() is not None
            assert set(read("namespaces", host.get_log(4, 4096)).values()) == {6, 77}
            host.events.clear()
            host.ask(4 - len(host.asked))


def test_ana_groups(hauld, host):
    log = read("ana", host.get_log(0x0C, 1024))
    groups = {log[f"{n}.grpid"]: n for n in range(log["ngrps"])}
    assert {1, 7, 9} <= groups.keys()
    assert [log[f"{groups[group]}.state"] for group in (1, 7, 9)] == [1, 2, 3]
    assert [log[f"{groups[group]}.nnsids"] for group in (1, 7, 9)] == [1, 2, 1]
    assert [log[f"{groups[7]}.{n}"] for n in (0, 1)] == [5, 1024] and log[f"{groups[9]}.0"] == 6
    for state, number in (("optimized", 1), ("non-optimized", 2)):
        assert haulctl(hauld.control, "ana", NQN, "7", state)[0] == 0
        later = read("ana", host.get_log(0x0C, 1024))
        assert later[f"{groups[7]}.state"] == number and later["chgcnt"] > log["chgcnt"]
        log = later


# --- reservations -----------------------------------------------------------------------------

@pytest.mark.parametrize("kind", KINDS)
def test_registrants_in_both_forms(hauld, kind):
    with Host(kind, address(hauld, kind), 1, NQN) as one, Host(kind, address(hauld, kind), 2, NQN) as two:
        assert one.register(cptpl=PTPL_ON) == two.register() == one.acquire(WE_RO) == 0
        pages = {}
        for name, word in (("resv", 0), ("resv-ext", 1)):
            size = 4096
            cqe, page = one.queue.run(nvme.RESV_REPORT, nsid=1, cdw=(size // 4 - 1, word), read=size)
            assert cqe.status == (0 if word else nvme.HOSTID_FORMAT)
            pages[name] = page
        report = read("resv-ext", pages["resv-ext"])
        assert report["rtype"] == WE_RO and report["regctl"] == 2 and report["ptpls"] == 1 and report["gen"] >= 2
        found = {report[f"{n}.hostid"]: n for n in (0, 1)}
        for host, holds in ((one, 1), (two, 0)):
            n = found[host.hostid.hex()]
            assert (report[f"{n}.rkey"], report[f"{n}.cntlid"], report[f"{n}.rcsts"] & 1) == (host.key, host.cntlid, holds)
        assert one.release(WE_RO, CLEAR) == 0
        with EventHost(kind, address(hauld, kind), NQN) as other:
            assert read("notification", other.get_log(0x80, 64))["nalp"] == 0


# --- discovery --------------------------------------------------------------------------------

def test_discovery(hauld):
    with EventHost("tcp", address(hauld, "tcp"), nvme.DISCOVERY_NQN) as host:
        size = 1024 * (1 + struct.unpack_from("<Q", host.get_log(0x70, 1024), 8)[0])
        log = read("discovery", host.get_log(0x70, size))
    assert log["recfmt"] == 0
    entries = [{name.split(".", 1)[1]: value for name, value in log.items() if name.startswith(f"{n}.")}
               for n in range(log["numrec"])]
    for entry in entries:
        entry["traddr"], entry["trsvcid"] = entry["traddr"].rstrip(" "), entry["trsvcid"].rstrip(" ")
        assert entry["adrfam"] == "ipv4" and entry["cntlid"] == 0xFFFF and entry["asqsz"] >= 32
        if entry["trtype"] == "rdma":
            assert (entry["cms"], entry["prtype"], entry["qptype"], entry["pkey"]) == ("rdma-cm", "not specified", "connected", 0)
        else:
            assert entry["trtype"] == "tcp" and entry["sectype"] == "none"
    ports = {(kind, *map(str, address(hauld, kind))) for kind in KINDS}
    for nqn in (NQN, OTHER):
        found = [entry for entry in entries if entry["subnqn"] == nqn]
        assert {(entry["trtype"], entry["traddr"], entry["trsvcid"]) for entry in found} == ports
        assert {entry["subtype"] for entry in found} == {"nvme subsystem"}
        assert len({entry["portid"] for entry in found}) == 2
    referral = [entry for entry in entries if entry["trsvcid"] == "8009"]
    assert [(entry["traddr"], entry["trtype"], entry["subtype"]) for entry in referral] == \
        [("192.0.2.7", "tcp", "discovery subsystem referral")]
    current = [entry for entry in entries if entry["subtype"] == "current discovery subsystem"]
    assert current and all(entry["eflags"] in (0, 2, 3) for entry in current)

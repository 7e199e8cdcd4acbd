# SPDX-License-Identifier: MIT
"""The discovery subsystem (NVMe base 2.0 3.1.2.3, 5.16.1.23)."""
import struct
import time

import conftest
import nvme
import nvmetcp
import pytest


def parse(data):
    genctr, numrec, recfmt = struct.unpack_from("<QQH", data)
    assert recfmt == 0
    entries = []
    for n in range(numrec):
        raw = data[1024 + n * 1024:2048 + n * 1024]
        entry = dict(trtype=raw[0], adrfam=raw[1], subtype=raw[2], treq=raw[3])
        entry["portid"], entry["cntlid"], entry["asqsz"] = struct.unpack_from("<HHH", raw, 4)
        entry["trsvcid"] = raw[32:64].rstrip(b" ").decode()
        entry["subnqn"] = raw[256:512].rstrip(b"\0").decode()
        entry["traddr"] = raw[512:768].rstrip(b" ").decode()
        entry["tsas"] = raw[768:]
        entries.append(entry)
    return genctr, entries


def whole_log(admin, piece=4096):
    head = admin.get_log(0x70, 1024)[1]
    total = 1024 + 1024 * struct.unpack_from("<Q", head, 8)[0]
    data = b""
    while len(data) < total:
        size = min(piece, total - len(data))
        cqe, part = admin.get_log(0x70, size, offset=len(data))
        assert cqe.status == 0
        data += part
    return data


def test_the_log_lists_what_this_host_may_use(own):
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        names = {e["subnqn"] for e in parse(whole_log(admin))[1] if e["subtype"] == 2}
        assert names == {conftest.MAIN, conftest.BLOCKS_4K}
    with own.admin(nvme.DISCOVERY_NQN, hostnqn=conftest.FRIEND) as admin:
        names = {e["subnqn"] for e in parse(whole_log(admin))[1] if e["subtype"] == 2}
        assert names == {conftest.MAIN, conftest.BLOCKS_4K, conftest.PRIVATE}


def test_entries_are_usable_as_they_are(own):
    host, port = own.address
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        for entry in parse(whole_log(admin))[1]:
            assert entry["trtype"] == 3 and entry["adrfam"] == 1
            assert entry["traddr"] == host and entry["trsvcid"] == str(port)
            assert entry["cntlid"] == 0xFFFF and entry["asqsz"] >= 32
            assert entry["tsas"][0] == 0, "SECTYPE none"


@pytest.mark.parametrize("piece", [512, 1024, 4096, 4100, 65536])
def test_the_log_is_the_same_however_it_is_cut(start_hauld, piece):
    import nvmetcp
    names = [f"nqn.2026-11.io.haul:cut{n}" for n in range(100)]
    args = sum((["--export", f"null:1M,nqn={name}"] for name in names), [])
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", *args)
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin, piece)
        assert data == whole_log(admin, len(data))
        assert {e["subnqn"] for e in parse(data)[1] if e["subtype"] == 2} == set(names)


@pytest.mark.parametrize("offset", [2, 1 << 40, (1 << 64) - 4], ids=["2", "1 TiB", "16 EiB - 4"])
def test_offsets_outside_of_the_log_are_refused(target, offset):
    """Base 2.0 5.16: dwords, and not beyond the page."""
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        assert admin.get_log(0x70, 1024, offset=offset)[0].status == nvme.INVALID_FIELD


def test_a_long_read_ends_with_zeros(target):
    """Base 2.0 5.16: what is beyond the page is undefined, but nothing of earlier buffers: zeros."""
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin)
        cqe, more = admin.get_log(0x70, len(data) + 8192)
        assert cqe.status == 0 and more[:len(data)] == data
        assert more[len(data):] == bytes(len(more) - len(data))


def test_generation_counter_is_still_on_an_idle_target(target):
    """Base 2.0 5.16.1.23: GENCTR counts changes of the log."""
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        assert parse(whole_log(admin))[0] == parse(whole_log(admin))[0]


@pytest.mark.parametrize("listen, come", [("tcp://0.0.0.0:0", ["127.0.0.1", "127.0.0.2"]),
                                          ("tcp://[::]:0", ["::1"])])
def test_a_wildcard_listener_answers_with_the_address_the_host_came_to(start_hauld, listen, come):
    import nvmetcp
    hauld = start_hauld("--listen", listen, "--export", "null:1M,nqn=nqn.2026-11.io.haul:any")
    port = hauld.address[1]
    for address in come:
        with nvmetcp.Admin((address, port), nvme.DISCOVERY_NQN) as admin:
            entries = parse(whole_log(admin))[1]
            assert len(entries) == 2, "the discovery subsystem and the other one"
            for entry in entries:
                assert entry["traddr"] == address and entry["trsvcid"] == str(port)
                assert entry["adrfam"] == (2 if ":" in address else 1)
        with nvmetcp.Admin((address, port), "nqn.2026-11.io.haul:any"):
            pass


@pytest.mark.parametrize("listen, same", [("tcp://127.0.0.1:0", True), ("tcp://0.0.0.0:0", False)])
def test_ports_tell_the_same_where_none_is_a_wildcard(start_hauld, listen, same):
    """Base 2.0 5.16.1.23, EFLAGS: DUPRETINFO is for information that is the same at all ports."""
    import nvmetcp
    hauld = start_hauld("--listen", listen, "tcp://[::1]:0", "--export", "null:1M,nqn=nqn.2026-11.io.haul:any")
    with nvmetcp.Admin(("127.0.0.1", hauld.address[1]), nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin)
        flags = {struct.unpack_from("<H", raw_entry(data, n), 10)[0]
                 for n, entry in enumerate(parse(data)[1]) if entry["subtype"] == 3}
        assert flags == {EPCSD_DUPRETINFO if same else EPCSD}


def test_io_commands_and_queues_are_refused(target):
    """Base 2.0 3.1.2.3: discovery controllers have neither, but keep-alive."""
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        admin.io_queue(1, expect=nvme.CONNECT_INVALID).close()
        assert admin.identify(0, nsid=1)[0].status != 0
        assert admin.command(0x18)[0].status == 0, "Keep Alive"


@pytest.mark.long
def test_discovery_keep_alive_is_the_hosts_own(target):
    """Base 2.0 3.9: a timer that a host has asked for counts on discovery controllers too."""
    with target.admin(nvme.DISCOVERY_NQN, kato=1000) as admin:
        admin.expect_end(within=4)


@pytest.mark.long
def test_a_host_that_keeps_alive_keeps_its_discovery_controller(target):
    """Base 2.0 3.9: whether the timer comes from Connect or from a feature, for longer than it (B041)."""
    with target.admin(nvme.DISCOVERY_NQN, kato=1000) as first, target.admin(nvme.DISCOVERY_NQN) as later:
        assert later.set_feature(0x0F, 1000).status == 0
        for admin in (first, later):
            assert 1000 <= admin.get_feature(0x0F)[0].dw0 < 3000, "rounded up to the granularity at most"
        for _ in range(6):
            time.sleep(0.4)
            for admin in (first, later):
                assert admin.command(nvme.KEEP_ALIVE)[0].status == 0


def test_a_listener_that_left_ipv4_to_another_is_not_offered_to_ipv4_hosts(start_hauld):
    """Each host is told only of what it can reach."""
    import nvmetcp
    hauld = start_hauld("--listen", "tcp://0.0.0.0:0", "--export", "null:1M,nqn=nqn.2026-11.io.haul:v4")
    port = hauld.address[1]
    both = start_hauld("--listen", f"tcp://[::]:{port}", "tcp://127.0.0.1:0", "--export",
                       "null:1M,nqn=nqn.2026-11.io.haul:v6")
    other = conftest.split_uri(both.uris[1])
    with nvmetcp.Admin(other, nvme.DISCOVERY_NQN) as admin:
        offered = {(e["adrfam"], e["trsvcid"]) for e in parse(whole_log(admin))[1]}
        assert (1, str(other[1])) in offered and (1, str(port)) not in offered, offered
    with nvmetcp.Admin(("::1", port), nvme.DISCOVERY_NQN) as admin:
        assert (2, str(port)) in {(e["adrfam"], e["trsvcid"]) for e in parse(whole_log(admin))[1]}


# --- log specific parameters, ports, referrals ---

EXTDLPE, PLEO, ALLSUBE = 1, 2, 4
EPCSD_DUPRETINFO = 3
EPCSD = 2


def get_log(admin, length, *, offset=0, lsp=0):
    numd = length // 4 - 1
    return admin.command(nvme.GET_LOG, read=length, cdw=(0x70 | lsp << 8 | numd << 16, numd >> 16, offset, 0))


def many_ports(tmp_path, start_hauld, more=""):
    path = tmp_path / "ports.conf"
    path.write_text(f"""\
listen: ["tcp://127.0.0.1:0", "rdma://127.0.0.1:0", "tcp://127.0.0.1:0", "tcp://[::1]:0"]
{more}
subsystems:
  - nqn: nqn.2026-11.io.haul:ports
    namespaces:
      - ram: 1M
""")
    hauld = start_hauld("--config", str(path), env=conftest.rdma_environment())
    return hauld, {(uri.split(":")[0], *conftest.split_uri(uri)) for uri in hauld.uris}


def place(entry):
    return ({1: "rdma", 3: "tcp"}[entry["trtype"]], entry["traddr"], int(entry["trsvcid"]))


def raw_entry(data, n, size=1024):
    return data[1024 + n * size:1024 + (n + 1) * size]


def test_each_port_has_an_entry_of_each_subsystem_and_of_discovery(start_hauld, tmp_path):
    """Base 2.0 5.16.1.23: the port that was asked first, and all of them with the same information."""
    import nvmetcp
    hauld, places = many_ports(tmp_path, start_hauld)
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin)
        entries = parse(data)[1]
        assert len(entries) == 8
        for subtype in (2, 3):
            of_type = [e for e in entries if e["subtype"] == subtype]
            assert {place(e) for e in of_type} == places
            assert len({e["portid"] for e in of_type}) == 4
        assert entries[0]["subtype"] == 3 and place(entries[0])[1:] == hauld.address
        for n, entry in enumerate(entries):
            eflags = struct.unpack_from("<H", raw_entry(data, n), 10)[0]
            assert eflags == (EPCSD_DUPRETINFO if entry["subtype"] == 3 else 0)
            assert entry["adrfam"] == (2 if ":" in entry["traddr"] else 1)
            if entry["trtype"] == 1:
                assert tuple(entry["tsas"][:3]) == (1, 1, 1), "connected, no provider named, RDMA-CM"
                assert entry["tsas"][3:] == bytes(253)
            else:
                assert entry["tsas"] == bytes(256), "SECTYPE none"


def test_the_log_is_the_same_over_rdma(start_hauld, tmp_path):
    import nvmetcp
    from events import Host
    hauld, _ = many_ports(tmp_path, start_hauld)
    rdma = hauld.address_of("rdma")
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin, Host("rdma", rdma, nvme.DISCOVERY_NQN) as host:
        over_tcp, over_rdma = whole_log(admin), host.get_log(0x70, 9 * 1024)
        assert parse(over_rdma)[1][0]["trtype"] == 1
        assert sorted(map(str, parse(over_tcp)[1])) == sorted(map(str, parse(over_rdma)[1]))


def test_an_admin_queue_may_be_as_deep_as_its_entry_says(start_hauld, tmp_path):
    import nvmetcp
    hauld, _ = many_ports(tmp_path, start_hauld)
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        asqsz = {e["asqsz"] for e in parse(whole_log(admin))[1] if e["trtype"] == 3}.pop()
    for sqsize, expect in ((asqsz - 1, 0), (asqsz, nvme.CONNECT_INVALID)):
        with nvmetcp.Tcp(hauld.address) as queue:
            assert queue.connect(subnqn=nvme.DISCOVERY_NQN, sqsize=sqsize).status == expect


def test_extended_entries_are_served_when_asked_for(start_hauld, tmp_path):
    import nvmetcp
    hauld, _ = many_ports(tmp_path, start_hauld)
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        plain = whole_log(admin)
        assert plain[18:1024] == bytes(1006)
        size = 1024 + 8 * 1032
        cqe, data = get_log(admin, size + 64, lsp=EXTDLPE)
        assert cqe.status == 0 and data[:18] == plain[:18] and data[size:] == bytes(64)
        assert data[18] == 1 and struct.unpack_from("<I", data, 20)[0] == size, "DLPF, TDLPL"
        for n in range(8):
            entry = raw_entry(data, n, 1032)
            assert entry[:1024] == raw_entry(plain, n)
            assert struct.unpack_from("<IHH", entry, 1024) == (1032, 0, 0), "TEL, NUMEXAT"
        assert b"".join(get_log(admin, 512, offset=at, lsp=EXTDLPE)[1] for at in range(0, size, 512))[:size] \
            == data[:size]
        assert get_log(admin, 8, offset=size + 4, lsp=EXTDLPE)[0].status == nvme.INVALID_FIELD


def extended(data):
    """(subsystem, attributes) of each entry; every length in it is right."""
    numrec, = struct.unpack_from("<Q", data, 8)
    total, = struct.unpack_from("<I", data, 20)
    found, at = [], 1024
    for _ in range(numrec):
        tel, numexat = struct.unpack_from("<IH", data, at + 1024)
        attributes, inner = [], at + 1032
        for _ in range(numexat):
            kind, length = struct.unpack_from("<HH", data, inner)
            assert length and length % 4 == 0
            attributes.append((kind, data[inner + 4:inner + 4 + length]))
            inner += 4 + length
        assert inner == at + tel
        found.append((data[at + 256:at + 512].rstrip(b"\0").decode(), attributes))
        at += tel
    assert at == total
    return found


LABELS = {"ascii": "disks", "utf8": "Größe 1", "longest": "x" * 256, "none": None}


def labelled(labels, **kw):
    return "listen: [tcp://127.0.0.1:0]\nsubsystems:\n" + "".join(
        f"  - nqn: nqn.2026-11.io.haul:{name}\n" + (f"    admin_label: {label}\n" if label else "")
        + (f"    allow: [{kw[name]}]\n" if name in kw else "") for name, label in labels.items())


def test_labels_are_attributes_of_extended_entries(start_hauld, tmp_path):
    """Base 2.1 5.1.12.3.1, figures 498 and 499: of 4 to 256 bytes, a multiple of 4, ASCII or UTF-8."""
    path = tmp_path / "hauld.conf"
    path.write_text(labelled(LABELS))
    hauld = start_hauld("--config", str(path))
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        data = get_log(admin, 16384, lsp=EXTDLPE)[1]
        found = {name.rpartition(":")[2]: attributes for name, attributes in extended(data)}
        assert found["ascii"] == [(2, b"disks\0\0\0")]
        assert found["utf8"] == [(3, "Größe 1".encode() + bytes(3))]
        assert found["longest"] == [(2, b"x" * 256)]
        assert found["none"] == [] and found.pop("discovery", []) == []
        size, = struct.unpack_from("<I", data, 20)
        assert data[size:] == bytes(16384 - size)
        assert b"".join(get_log(admin, 260, offset=at, lsp=EXTDLPE)[1] for at in range(0, size, 260))[:size] == data[:size]
        assert get_log(admin, 8, offset=size + 4, lsp=EXTDLPE)[0].status == nvme.INVALID_FIELD
        plain = whole_log(admin)
        assert len(plain) == 1024 * 6 and b"disks" not in plain


@pytest.mark.parametrize("label", ["x" * 257, '"a\\tb"', '"\\x7f"', '"\\x85"', '""'])
def test_wrong_labels_are_mistakes(start_hauld, tmp_path, label):
    from control import Control
    path = tmp_path / "hauld.conf"
    path.write_text(labelled(LABELS))
    hauld = start_hauld("--config", str(path))
    with Control(hauld.control) as control:
        assert "admin_label" in control.apply(labelled({**LABELS, "ascii": label}))["error"]


def test_a_new_label_is_a_change_to_hosts_that_see_it(start_hauld, tmp_path):
    from control import Control
    from events import AEC_DISCOVERY, DISCOVERY_CHANGED, Host
    friend, stranger = "nqn.2026-11.io.haul:friend", "nqn.2026-11.io.haul:stranger"
    path = tmp_path / "hauld.conf"
    path.write_text(labelled(LABELS, ascii=friend))
    hauld = start_hauld("--config", str(path))
    with Host("tcp", hauld.address, nvme.DISCOVERY_NQN, hostnqn=friend, configuration=AEC_DISCOVERY) as host, \
            Host("tcp", hauld.address, nvme.DISCOVERY_NQN, hostnqn=stranger, configuration=AEC_DISCOVERY) as other, \
            Control(hauld.control) as control:
        before = struct.unpack_from("<Q", host.get_log(0x70, 1024))[0]
        changes = control.change(labelled({**LABELS, "ascii": "tapes"}, ascii=friend))
        assert changes == ["~ subsystem nqn.2026-11.io.haul:ascii: admin label 'disks' -> 'tapes'"]
        assert host.event() == DISCOVERY_CHANGED
        assert struct.unpack_from("<Q", host.get_log(0x70, 1024))[0] > before
        other.nothing()


def test_entries_of_the_port_asked_only(start_hauld, tmp_path):
    import nvmetcp
    hauld, _ = many_ports(tmp_path, start_hauld, 'referrals: ["tcp://192.0.2.7:8009"]')
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        entries = parse(get_log(admin, 8192, lsp=PLEO)[1])[1]
        assert [(e["subtype"], place(e)[1:]) for e in entries] == [(3, hauld.address), (2, hauld.address)]
        assert len(parse(get_log(admin, 65536)[1])[1]) == 9


@pytest.mark.parametrize("lsp", [ALLSUBE, ALLSUBE | EXTDLPE, 0x08, 0x40])
def test_other_log_specific_parameters_are_refused(own, lsp):
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        cqe, _ = get_log(admin, 1024, lsp=lsp)
        assert cqe.status == nvme.INVALID_FIELD and cqe.dnr


def test_referrals_are_entries(start_hauld, tmp_path):
    import nvmetcp
    named = "nqn.2026-11.io.haul:unique-discovery"
    hauld, _ = many_ports(tmp_path, start_hauld, f"""\
referrals:
  - tcp://192.0.2.7:8009
  - rdma://[2001:db8::7]
  - tcp://198.51.100.1:8009/{named}""")
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin)
        entries = parse(data)[1]
        referrals = [(n, e) for n, e in enumerate(entries) if e["subtype"] == 1]
        assert [(place(e), e["subnqn"]) for _, e in referrals] == [
            (("tcp", "192.0.2.7", 8009), nvme.DISCOVERY_NQN),
            (("rdma", "2001:db8::7", 4420), nvme.DISCOVERY_NQN),
            (("tcp", "198.51.100.1", 8009), named)]
        for n, entry in referrals:
            raw = raw_entry(data, n)
            assert entry["cntlid"] == 0xFFFF and entry["asqsz"] >= 32 and entry["treq"] == 0
            assert raw[10:32] == bytes(22) and raw[64:256] == bytes(192)
            assert raw[32:64] == entry["trsvcid"].encode().ljust(32) and raw[512:768] == entry["traddr"].encode().ljust(256)


def test_generation_counter_moves_with_each_change(start_hauld, tmp_path):
    """B033"""
    import nvmetcp
    from control import Control
    base = """\
listen: {listen}
referrals: {referrals}
subsystems:
  - nqn: nqn.2026-11.io.haul:a
    allow: {allow}
  - nqn: {name}
    allow: any
"""
    kept = dict(listen='["tcp://127.0.0.1:0"]', referrals="[]", allow="any", name="nqn.2026-11.io.haul:b")
    path = tmp_path / "hauld.conf"
    path.write_text(base.format(**kept))
    hauld = start_hauld("--config", str(path))
    with nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN) as admin, Control(hauld.control) as control:
        before, entries = parse(whole_log(admin))
        for change in (dict(name="nqn.2026-11.io.haul:c"), dict(allow="[]"), dict(referrals='["tcp://192.0.2.7"]'),
                       dict(listen='["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]'), kept):
            kept = {**kept, **change}
            assert control.change(base.format(**kept))
            now, then = parse(whole_log(admin))
            assert now > before and then != entries
            before, entries = now, then
        assert parse(whole_log(admin)) == (before, entries)


def test_the_service_may_have_a_name_of_its_own(start_hauld, tmp_path):
    """Base 2.0 3.1.2.3: beside the well-known one, told by Identify and by its own entry."""
    name = "nqn.2026-11.io.haul:discovery"
    path = conftest.config(tmp_path)
    path.write_text(path.read_text() + f"discovery_nqn: {name}\n")
    hauld = start_hauld("--config", str(path))
    for nqn in (nvme.DISCOVERY_NQN, name):
        with nvmetcp.Admin(hauld.address, nqn) as admin:
            page = admin.identify(1)[1]
            assert page[111] == 2 and page[768:1024] == name.encode().ljust(256, b"\0")
            log = admin.get_log(0x70, 2048)[1]
            assert log[1024 + 2] == 3 and log[1024 + 256:1024 + 512] == name.encode().ljust(256, b"\0")

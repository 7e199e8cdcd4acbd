# SPDX-License-Identifier: MIT
"""The discovery subsystem (NVMe base 2.0 3.1.2.3, 5.16.1.23)."""
import struct

import conftest
import nvme
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


@pytest.mark.parametrize("offset", [2, 1 << 40, (1 << 64) - 4])
def test_offsets_outside_of_the_log_are_refused(target, offset):
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        assert admin.get_log(0x70, 1024, offset=offset)[0].status == nvme.INVALID_FIELD


def test_a_long_read_ends_with_zeros(target):
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        data = whole_log(admin)
        cqe, more = admin.get_log(0x70, len(data) + 8192)
        assert cqe.status == 0 and more[:len(data)] == data
        assert more[len(data):] == bytes(len(more) - len(data))


def test_generation_counter_is_still_on_an_idle_target(target):
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
            for entry in parse(whole_log(admin))[1]:
                assert entry["traddr"] == address and entry["trsvcid"] == str(port)
                assert entry["adrfam"] == (2 if ":" in address else 1)
        with nvmetcp.Admin((address, port), "nqn.2026-11.io.haul:any"):
            pass


def test_io_commands_and_queues_are_refused(target):
    with target.admin(nvme.DISCOVERY_NQN) as admin:
        admin.io_queue(1, expect=nvme.CONNECT_INVALID).close()
        assert admin.identify(0, nsid=1)[0].status != 0
        assert admin.command(0x18)[0].status == 0, "Keep Alive"


def test_discovery_keep_alive_is_the_hosts_own(target):
    with target.admin(nvme.DISCOVERY_NQN, kato=1000) as admin:
        admin.expect_end(within=4)


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

# SPDX-License-Identifier: MIT
"""haulctl status: reservations, write protection and hosts' shares, for programs and for people."""
import json

import nvme
import nvmetcp
from control import A, B, BASE, Control, haulctl, start, wait_for  # noqa: F401 (start is a fixture)
from test_reservation import EA_AR, PTPL_ON, WE, Host

WRITE_PROTECT, SET = 0x84, 1


def status(hauld):
    code, out, err = haulctl(hauld.control, "status", "--json")
    assert (code, err) == (0, "")
    code, text, err = haulctl(hauld.control, "status")
    assert (code, err) == (0, "")
    return json.loads(out), text


def namespace(seen, nqn, nsid=1):
    subsys, = [entry for entry in seen["subsystems"] if entry["nqn"] == nqn]
    ns, = [entry for entry in subsys["namespaces"] if entry["nsid"] == nsid]
    return ns


def of_disk(tmp_path):
    with open(tmp_path / "disk", "wb") as disk:
        disk.truncate(4 << 20)
    (tmp_path / "state").mkdir()
    return f"""\
listen: [tcp://127.0.0.1:0]
state: {tmp_path}/state
subsystems:
  - nqn: {A}
    namespaces:
      - path: {tmp_path}/disk
      - ram: 1M
      - {{ram: 1M, readonly: true}}
"""


def test_reservations(start, tmp_path):
    hauld = start(of_disk(tmp_path))
    seen, text = status(hauld)
    assert seen["target"]["state_directory"] == f"{tmp_path}/state"
    assert namespace(seen, A)["reservation"] == {
        "type": "none", "generation": 0, "persists": False, "nr_registrants": 0, "registrants": []}
    assert "reservation:" not in text
    with Host("tcp", hauld.address, 1, A) as one, Host("tcp", hauld.address, 2, A) as two:
        assert one.register(cptpl=PTPL_ON) == two.register() == one.acquire(WE) == 0
        ids = ["01010101-0101-0101-0101-010101010101", "02020202-0202-0202-0202-020202020202"]
        seen, text = status(hauld)
        assert namespace(seen, A)["reservation"] == {
            "type": "write-exclusive", "holder": ids[0], "generation": 2, "persists": True, "nr_registrants": 2,
            "registrants": [{"host": ids[0], "key": "0x0000000000001001", "holder": True},
                            {"host": ids[1], "key": "0x0000000000001002", "holder": False}]}
        for word in ("reservation: write-exclusive, generation 2, 2 registrants, persists",
                     f"registered: {ids[0]} (nqn.2026-11.io.haul:host1)  key 0x0000000000001001  holds it",
                     f"registered: {ids[1]} (nqn.2026-11.io.haul:host2)  key 0x0000000000001002\n"):
            assert word in text, text
        assert one.release(WE) == one.acquire(EA_AR) == 0
    wait_for(lambda: not status(hauld)[0]["hosts"])
    seen, text = status(hauld)
    shared = namespace(seen, A)["reservation"]
    assert shared["type"] == "exclusive-access-all-registrants" and "holder" not in shared
    assert all(entry["holder"] for entry in shared["registrants"])
    assert f"registered: {ids[0]}  key" in text


def test_write_protection(start, tmp_path):
    hauld = start(of_disk(tmp_path))
    with nvmetcp.Admin(hauld.address, A) as admin:
        assert admin.command(nvme.SET_FEATURES, nsid=1, cdw=(WRITE_PROTECT, SET))[0].status == 0
        seen, text = status(hauld)
    keys = ("read_only", "configured_read_only", "write_protected")
    assert [tuple(namespace(seen, A, nsid)[key] for key in keys) for nsid in (1, 2, 3)] == [
        (True, False, True), (False, False, False), (True, True, False)]
    lines = [line for line in text.splitlines() if line.startswith("  namespace ")]
    assert "  write-protected by a host  " in lines[0] and "  read-only  " in lines[2]
    assert "protected" not in lines[1] and "read-only" not in lines[1]


def test_shares_of_hosts(start):
    hauld = start()
    seen, text = status(hauld)
    assert [reactor["shares"] for reactor in seen["reactors"]] == [[], []]
    assert "shares" not in text
    with nvmetcp.Admin(hauld.address, A) as admin, admin.io_queue() as queue:
        queue.send(queue.capsule(nvme.command(   # its buffer waits for data that does not come
            nvme.WRITE, cid=7, nsid=1, dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, 65536), cdw=nvme.rw_cdw(0, 128))))
        wait_for(lambda: sum(reactor["pool"]["used_bytes"] for reactor in status(hauld)[0]["reactors"]))
        seen, text = status(hauld)
        shares = [share for reactor in seen["reactors"] for share in reactor["shares"]]
        assert {share["address"] for share in shares} == {"127.0.0.1"}
        assert sum(share["buffer_bytes"]["held"] for share in shares) == 128 << 10
        assert sum(share["controllers"]["held"] for share in shares) == 1
        conns, = [share["connections"] for share in shares if "connections" in share]
        assert conns["held"] == 2 and conns["limit"] > 100
        for share in shares:
            for key in ("buffer_bytes", "reserve_bytes", "controllers"):
                assert 0 <= share[key]["held"] < share[key]["limit"], (key, share)
            assert share["rdma_receives"] == {"held": 0, "limit": 0} and share["waiting"] == 0
        total = 512 << 20
        assert all(share["buffer_bytes"]["limit"] <= total / 2 / 2 for share in shares), "half of a reactor's, alone"
        for word in ("Hosts' shares", "127.0.0.1", "128.0 KiB of ", "2 of "):
            assert word in text, text
    wait_for(lambda: all(not reactor["shares"] for reactor in status(hauld)[0]["reactors"]))


def test_all_is_readable(start):
    """Nothing is wider than what a terminal of 160 shows, but for paths and names."""
    hauld = start()
    with nvmetcp.Admin(hauld.address, B):
        text = status(hauld)[1]
    assert all(len(line) <= 160 for line in text.splitlines()), text


def test_who_waits_for_memory_is_counted(start):
    """Whether in its host's line or in the pool's."""
    hauld = start(BASE, "--threads", "1", "--memory", "16M")
    mib = 1 << 20
    with Control(hauld.control) as control, nvmetcp.Admin(hauld.address, A) as admin, \
            admin.io_queue() as queue:
        queue.send(b"".join(queue.capsule(nvme.command(
            nvme.WRITE, cid=queue.cid(), nsid=1, cdw=nvme.rw_cdw(0, mib // 512),
            dptr=nvme.sgl(nvme.SGL_TRANSPORT, 0, mib))) for _ in range(31)))

        def all_there():
            pool = control.status()["reactors"][0]["pool"]
            return pool["used_buffers"] and pool["used_buffers"] + pool["waiting"] >= 31
        wait_for(all_there)


def test_what_is_not_the_default(start):
    own = "nqn.2026-11.org.example:discovery"
    seen, text = status(start())
    assert (seen["target"]["discovery_nqn"], seen["target"]["cntlid_min"], seen["target"]["cntlid_max"]) == (
        nvme.DISCOVERY_NQN, 1, 0xffef)
    assert seen["referrals"] == []
    assert seen["target"]["kas_ms"] == 1000
    for word in ("discovery is also", "controller ids", "keep-alive", "Referrals", "ana group"):
        assert word not in text, text
    seen, text = status(start(f"""\
listen: [tcp://127.0.0.1:0]
discovery_nqn: {own}
cntlid_min: 128
cntlid_max: 255
kas_s: 60
referrals: [tcp://127.0.0.1:8009, tcp://127.0.0.2/{own}]
subsystems:
  - nqn: {A}
    namespaces:
      - ram: 1M
      - {{ram: 1M, ana_group: 7}}
"""))
    assert (seen["target"]["discovery_nqn"], seen["target"]["cntlid_min"], seen["target"]["cntlid_max"]) == (own, 128, 255)
    assert seen["referrals"] == [{"uri": uri, "allow_any": True, "allow": []} for uri in (
        "tcp://127.0.0.1:8009", f"tcp://127.0.0.2:4420/{own}")]
    assert seen["target"]["kas_ms"] == 60000
    for word in (f"discovery is also {own}\n", "keep-alive timeouts are multiples of 60 s\n",
                 "controller ids 128 to 255\n",
                 f"Referrals\n  tcp://127.0.0.1:8009\n  tcp://127.0.0.2:4420/{own}\n"):
        assert word in text, text
    one, two = [line for line in text.splitlines() if line.startswith("  namespace")]
    assert "ana group" not in one and f"{namespace(seen, A, 2)['uuid']}  ana group 7  " in two


def test_one_is_no_plural(start):
    hauld = start()
    with nvmetcp.Admin(hauld.address, A):
        _, text = status(hauld)
        assert ": 1 connection, 1 controller, " in text

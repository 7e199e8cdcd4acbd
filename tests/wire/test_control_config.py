# SPDX-License-Identifier: MIT
"""haulctl config: what runs, as a file that changes nothing and starts the same."""
import os
import re
import subprocess

import auth
import conftest
import nvmetcp
import pytest
from control import A, B, BASE, config, free_port, haulctl, start, subsys  # noqa: F401 (start is a fixture)

UUID = "7c0e4f3a-1d2b-4c5d-8e9f-a0b1c2d3e4f5"


def running(hauld):
    code, out, err = haulctl(hauld.control, "config")
    assert (code, err) == (0, ""), err
    return out


def check_round_trip(hauld, tmp_path):
    """hauld --check finds it right, apply finds nothing to do, and it is the same afterwards."""
    text = running(hauld)
    printed = tmp_path / "printed.conf"
    printed.write_text(text)
    done = subprocess.run([str(conftest.BUILD / "target" / "hauld"), "--check", str(printed)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    for dry_run in ([], ["--dry-run"]):
        assert haulctl(hauld.control, "apply", str(printed), *dry_run) == (0, "nothing changes\n", ""), text
    assert running(hauld) == text
    return text


def identities(hauld):
    """What hosts would notice."""
    code, out, _ = haulctl(hauld.control, "status", "--json")
    assert code == 0
    return re.findall(r'"(?:nqn|serial|uuid|nguid|eui64|path|nsid|block_bytes|size_bytes|read_only|ana_group)":\s*(\S+)', out)


def make_files(tmp_path):
    for name in ("disk", "a disk: with #odd \"names\" é\\", "ro"):
        with open(tmp_path / name, "wb") as disk:
            disk.truncate(8 << 20)
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "a.key").write_text(auth.secret(bytes(32)))
    (tmp_path / "a.key").chmod(0o600)


def full(tmp_path, port):
    make_files(tmp_path)
    odd = str(tmp_path / "a disk: with #odd \"names\" é\\").replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
listen:
  - tcp://127.0.0.1:{port}?hdgst=off&tos=32&priority=5
  - "tcp://[::1]:{port}"
  - tcp://127.0.0.1:0
referrals: [{{address: tcp://10.0.0.3, allow: [nqn.2026-11.io.haul:x]}}, {{address: tcp://10.0.0.4, allow: []}},
  {{address: tcp://10.0.0.5, allow: any}}, tcp://10.0.0.2:8009, "rdma://[fd00::2]:4420/nqn.2014-08.org.example:a%20b"]
threads: 3
engine: epoll
memory: 100M
spin_us: 0
patience_s: 17
kas_s: 9
discovery_nqn: nqn.2026-11.io.haul:discovery
cntlid_min: 300
cntlid_max: 1299
control: {tmp_path}/ctl.sock
state: {tmp_path}/state
subsystems:
  - nqn: {A}
    serial: "# 1: a"
    max_io_queues: 12
    admin_label: "Größe: 1 # a"
    duplicate_hosts: refuse
    subsystem_reset: true
    allow: [nqn.2026-11.io.haul:x, "testnqn: \\"é\\""]
    hosts: [{{nqn: nqn.2026-11.io.haul:x, dhchap_key: a.key}},
      {{nqn: "testnqn: \\"é\\"", dhchap_key: a.key, dhchap_ctrl_key: a.key, dhchap_hashes: [sha512], dhchap_groups: ['null']}}]
    ana:
      - {{group: 2, state: inaccessible}}
      - {{group: 2, state: non-optimized, listeners: ["tcp://[::1]:{port}"]}}
      - {{group: 9, state: optimized, listeners: ["tcp://127.0.0.1:{port}", "tcp://127.0.0.1:0"]}}
    namespaces:
      - {{path: "{odd}", nsid: 7, ana_group: 2, nguid: 00112233445566778899aabbccddeeff, eui64: 0022334455667788}}
      - {{ram: 3M, block: 4096, uuid: {UUID}, readonly: true}}
      - {{'null': 1G, nsid: 1000, allow: [nqn.2026-11.io.haul:x]}}
      - {{'null': 2G, nsid: 1001, allow: []}}
  - nqn: {B}
    allow: []
    namespaces:
      - {{path: {tmp_path}/disk, block: 4096}}
      - {{path: {tmp_path}/ro, readonly: true}}
  - nqn: nqn.2014-08.org.nvmexpress:uuid:{UUID}
"""


def start_full(start_hauld, path):
    hauld = start_hauld("--config", str(path), default_control=True)
    hauld.control = path.parent / "ctl.sock"
    return hauld


def test_all_keys_are_printed_and_taken_again(start_hauld, tmp_path):
    path = tmp_path / "full.conf"
    path.write_text(full(tmp_path, free_port()))
    hauld = start_full(start_hauld, path)
    text = check_round_trip(hauld, tmp_path)
    schema = (conftest.ROOT / "target" / "config_schema.c").read_text()
    for key in re.findall(r'CYAML_FIELD_\w+\(\s*"(\w+)"', schema):
        assert re.search(rf"^[ -]*{key}:", text, re.M), f"{key} is not printed"
    was = identities(hauld)
    assert hauld.stop() == 0
    again = start_full(start_hauld, tmp_path / "printed.conf")
    assert identities(again) == was
    assert without_ports(check_round_trip(again, tmp_path)) == without_ports(text)


def without_ports(text):
    return re.sub(r"now it is \d+", "", text)


def test_what_the_quick_form_has_made(start_hauld, tmp_path):
    with open(tmp_path / "disk", "wb") as disk:
        disk.truncate(8 << 20)
    port = free_port()
    hauld = start_hauld("--listen", f"tcp://127.0.0.1:{port}?ddgst=off", "--listen", "tcp://127.0.0.1:0",
                        "--export", f"{tmp_path}/disk,readonly", "--export", "ram:2M",
                        "--export", f"null:1G,nqn={A},nsid=5,block=4096,uuid={UUID}", "--threads", "2")
    text = check_round_trip(hauld, tmp_path)
    assert f"path: {tmp_path}/disk" in text and "threads: 2" in text
    was = identities(hauld)
    assert hauld.stop() == 0
    again = start_hauld("--config", str(tmp_path / "printed.conf"))
    assert identities(again) == was, "the names that hosts know are given now"
    check_round_trip(again, tmp_path)


def test_what_was_changed_since_is_printed(start, tmp_path):
    hauld = start()
    first, = hauld.uris
    assert haulctl(hauld.control, "ana", A, "3", "inaccessible")[0] == 0
    assert haulctl(hauld.control, "ana", B, "1", "change", "--listener", first)[0] == 0
    text = check_round_trip(hauld, tmp_path)
    assert "state: inaccessible" in text and "state: change" in text and "listeners:" in text
    more = tmp_path / "more.conf"
    more.write_text(config(subsys(A, (4, "ram=1M"), allow="any"), listen=("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")))
    assert haulctl(hauld.control, "apply", str(more))[0] == 0
    text = check_round_trip(hauld, tmp_path)
    assert B not in text and "state:" not in text and "nsid: 4" in text


def test_hosts_are_not_disturbed_by_applying_it(start, tmp_path):
    hauld = start()
    with nvmetcp.Admin(hauld.address, A) as admin:
        check_round_trip(hauld, tmp_path)
        assert admin.identify(1)[0].status == 0


def test_a_path_that_no_file_can_name_is_told(start_hauld, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(name, "wb") as disk:
        disk.truncate(1 << 20)
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", os.fsdecode(name))
    code, out, err = haulctl(hauld.control, "config", errors="replace")
    assert (code, out) == (1, "") and "not UTF-8" in err


@pytest.mark.parametrize("args", [["config", "x"], ["config", "--json"], ["config", "--dry-run"]])
def test_it_takes_nothing(tmp_path, args):
    code, out, err = haulctl(tmp_path / "nobody", *args)
    assert (code, out) == (2, "") and err.count("\n") == 1

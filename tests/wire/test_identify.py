# SPDX-License-Identifier: MIT
"""Identify (NVMe base 2.0 5.17, NVM command set 1.0 4.1.5): each field beside the figure that defines it."""
import os
import struct
import time

import conftest
import nvme
import nvmetcp
import pytest
from control import free_port
from events import Host

NS, CTRL, ACTIVE, DESCRIPTORS, SETS, CSI_NS, CSI_CTRL, CSI_ACTIVE, INDEPENDENT = range(9)
IO_COMMAND_SETS = 0x1C
ALLOCATED_LIST, ALLOCATED, NS_CTRLS, CTRLS, CSI_ALLOCATED_LIST, CSI_ALLOCATED = 0x10, 0x11, 0x12, 0x13, 0x1A, 0x1B


def field(data, at, size):
    return int.from_bytes(data[at:at + size], "little")


# Figure 275 from top to bottom: offset, size, name, value; a value is a number or a test. What is not listed is 0: a field
# of something that is not offered, or reserved.
ANY = object()
IO_CONTROLLER = [
    (4, 20, "SN", ANY), (24, 40, "MN", ANY), (64, 8, "FR", ANY),
    (72, 1, "RAB", 7),
    (76, 1, "CMIC", lambda v: v & 3 == 3),                       # several ports and controllers
    (77, 1, "MDTS", 8),                                          # 1 MiB
    (78, 2, "CNTLID", lambda v: 0 < v < 0xFFF0),
    (80, 4, "VER", 0x00020000),
    (88, 4, "RTD3E", 10_000_000),                                # microseconds
    (92, 4, "OAES", lambda v: v & 0x100 and not v & ~0x900),     # namespace attributes, maybe ANA
    (96, 4, "CTRATT", 0x41),                                     # 128-bit host identifier, TBKAS
    (111, 1, "CNTRLTYPE", 1),
    (128, 2, "CRDT1", 1), (130, 2, "CRDT2", 10),                 # retry delays in 100 ms
    (256, 2, "OACS", 0),                                         # no Format, firmware, namespace management...
    (258, 1, "ACL", 3), (259, 1, "AERL", 3),
    (260, 1, "FRMW", 3),                                         # one slot, read-only
    (261, 1, "LPA", 0x27),
    (262, 1, "ELPE", 63),
    (263, 1, "NPSS", 0),
    (266, 2, "WCTEMP", 343), (268, 2, "CCTEMP", 353),
    (320, 2, "KAS", 10),
    (342, 1, "ANATT", ANY), (343, 1, "ANACAP", ANY), (344, 4, "ANAGRPMAX", ANY), (348, 4, "NANAGRPID", ANY),
    (512, 1, "SQES", 0x66), (513, 1, "CQES", 0x44),
    (514, 2, "MAXCMD", lambda v: v >= 128),
    (516, 4, "NN", 1024),
    (520, 2, "ONCS", lambda v: v & 0x1DD == 0x1DD and not v & ~0x1FD),  # Compare, DSM, Write Zeroes, Save/Select, Verify, Copy
    (522, 2, "FUSES", 1),
    (524, 1, "FNA", 0),
    (525, 1, "VWC", 7),                                          # Flush of all; the first disk is a file
    (526, 2, "AWUN", 0), (528, 2, "AWUPF", 0),
    (530, 1, "ICSVSCC", 0),
    (531, 1, "NWPC", 0),                                         # not without a state directory
    (532, 2, "ACWU", ANY),
    (534, 2, "OCFS", 1),
    (536, 4, "SGLS", lambda v: v & 3 and v & 1 << 20),
    (540, 4, "MNAN", ANY),                                       # 0, or ANA: NN
    (768, 256, "SUBNQN", ANY),
    (1792, 4, "IOCCSZ", lambda v: v >= 4 + 256),                 # 4 KiB in the capsule
    (1796, 4, "IORCSZ", 1),
    (1800, 2, "ICDOFF", 0),
    (1802, 1, "FCATT", 0),                                       # dynamic controllers
    (1803, 1, "MSDBD", lambda v: v >= 1),
    (1804, 2, "OFCS", 1),                                        # Disconnect
    (2048, 32, "PSD0", 0),
]
DISCOVERY_CONTROLLER = [
    (4, 20, "SN", ANY), (24, 40, "MN", ANY), (64, 8, "FR", ANY),
    (77, 1, "MDTS", 8), (78, 2, "CNTLID", ANY), (80, 4, "VER", 0x00020000),
    (92, 4, "OAES", 1 << 31),                                    # discovery log changes
    (96, 4, "CTRATT", 0x41), (111, 1, "CNTRLTYPE", 2),
    (259, 1, "AERL", 3), (261, 1, "LPA", 0x26), (262, 1, "ELPE", 63), (320, 2, "KAS", 10),
    (512, 1, "SQES", ANY), (513, 1, "CQES", ANY),
    (514, 2, "MAXCMD", lambda v: v >= 32),
    (536, 4, "SGLS", lambda v: v & 3 and v & 1 << 20),
    (768, 256, "SUBNQN", ANY),
    (1792, 4, "IOCCSZ", ANY), (1796, 4, "IORCSZ", 1), (1803, 1, "MSDBD", ANY), (1806, 1, "DCTYPE", 1),
]
# NVM command set 1.0 figure 97, of the namespace that a file of 64 MiB is.
NAMESPACE = [
    (0, 8, "NSZE", 131072), (8, 8, "NCAP", 131072), (16, 8, "NUSE", 131072),
    (24, 1, "NSFEAT", lambda v: v & 2 and not v & ~0x12),        # atomics; maybe optimal sizes
    (25, 1, "NLBAF", 0), (26, 1, "FLBAS", 0), (27, 1, "MC", 0), (28, 1, "DPC", 0), (29, 1, "DPS", 0),
    (30, 1, "NMIC", 1),
    (31, 1, "RESCAP", ANY),
    (32, 1, "FPI", 0),
    (33, 1, "DLFEAT", 9),                                        # zeroes, Write Zeroes deallocates
    (34, 2, "NAWUN", 0), (36, 2, "NAWUPF", 0), (38, 2, "NACWU", ANY),
    (46, 2, "NOIOB", 0),
    (48, 16, "NVMCAP", 64 << 20),
    (64, 2, "NPWG", ANY), (66, 2, "NPWA", ANY), (68, 2, "NPDG", ANY), (70, 2, "NPDA", ANY), (72, 2, "NOWS", ANY),
    (74, 2, "MSSRL", lambda v: v > 0), (76, 4, "MCL", lambda v: v > 0), (80, 1, "MSRC", ANY),
    (92, 4, "ANAGRPID", ANY),
    (99, 1, "NSATTR", 0),
    (100, 2, "NVMSETID", 0), (102, 2, "ENDGID", 0),
    (104, 16, "NGUID", lambda v: v), (120, 8, "EUI64", lambda v: v),
    (128, 4, "LBAF0", 9 << 16),                                  # 512 bytes, no metadata, best performance
]


def check(data, figure):
    assert len(data) == 4096
    rest = bytearray(data)
    for at, size, name, value in figure:
        got = field(data, at, size)
        assert value is ANY or (value(got) if callable(value) else got == value), f"{name} is {got:#x}"
        rest[at:at + size] = bytes(size)
    unknown = [at for at in range(4096) if rest[at]]
    assert not unknown, f"bytes {unknown} are set"


def test_identify_controller(own):
    with own.admin() as admin:
        check(admin.identify(CTRL)[1], IO_CONTROLLER)


def test_identify_discovery_controller(own):
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        check(admin.identify(CTRL)[1], DISCOVERY_CONTROLLER)


def test_identify_namespace(own):
    with own.admin() as admin:
        check(admin.identify(NS, nsid=1)[1], NAMESPACE)


def test_a_file_says_what_its_file_system_does_best(start_hauld, tmp_path):
    """NVM command set 1.0 5.8.2; memory has nothing to say."""
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    hauld = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", f"{disk},nqn=nqn.2026-11.io.haul:file",
                        "--export", "ram:1M,nqn=nqn.2026-11.io.haul:ram")
    with nvmetcp.Admin(hauld.address, "nqn.2026-11.io.haul:file") as admin:
        page = admin.identify(NS, nsid=1)[1]
        assert page[24] & 0x10
        blocks = os.stat(disk).st_blksize >> page[130]
        assert struct.unpack_from("<5H", page, 64) == (blocks - 1,) * 5
    with nvmetcp.Admin(hauld.address, "nqn.2026-11.io.haul:ram") as admin:
        page = admin.identify(NS, nsid=1)[1]
        assert not page[24] & 0x10 and not any(page[64:74])


def test_limits_of_commands_without_data(own):
    """NVM command set 1.0 figure 102: Write Zeroes of 32 MiB is recommended, nothing else limited."""
    with own.admin() as admin:
        assert admin.identify(CSI_CTRL)[1] == bytes([0, 13]).ljust(4096, b"\0")


def test_texts_are_those_of_the_target(own):
    """B051: printable, padded with spaces, a serial number of each subsystem."""
    def texts(subnqn):
        with own.admin(subnqn) as admin:
            data = admin.identify(CTRL)[1]
            return [data[at:at + size] for at, size in ((4, 20), (24, 40), (64, 8), (768, 256))]
    one, other = texts(conftest.MAIN), texts(conftest.BLOCKS_4K)
    assert one[0] == b"WIRE0001".ljust(20) and other[0] == b"WIRE0002".ljust(20)
    assert one[1] == b"haul NVMe-oF target".ljust(40) and one[1:3] == other[1:3]
    assert one[3] == conftest.MAIN.encode().ljust(256, b"\0")


def test_namespaces_in_other_blocks_and_read_only_say_so(own):
    with own.admin(conftest.BLOCKS_4K) as admin:
        data = admin.identify(NS, nsid=1)[1]
        assert field(data, 0, 8) == 16384 and data[128:132] == bytes([0, 0, 12, 0])
    with own.admin() as admin:
        assert admin.identify(NS, nsid=4)[1][99] == 1
        assert admin.identify(INDEPENDENT, nsid=4)[1][8] == 1
        assert admin.identify(INDEPENDENT, nsid=1)[1][8] == 0


def test_independent_namespace_agrees_with_the_namespace(own):
    """Figure 280 beside the NVM command set's figure 97."""
    with own.admin() as admin:
        for nsid in (1, 3, 4):
            one, other = admin.identify(NS, nsid=nsid)[1], admin.identify(INDEPENDENT, nsid=nsid)[1]
            assert [other[1], other[2], other[3], other[8]] == [one[30], one[31], one[32], one[99]]
            assert other[4:8] == one[92:96] and other[10:14] == one[100:104]
            assert other[14] == 1, "NSTAT: ready"
            assert not any(other[15:])


# --- identifiers of namespaces (figure 277; base 2.0 4.5.1) -------------------------------------

def descriptors(data):
    out, at = {}, 0
    while data[at + 1]:
        kind, length = data[at], data[at + 1]
        assert kind not in out and data[at + 2:at + 4] == bytes(2)
        out[kind] = data[at + 4:at + 4 + length]
        at += 4 + length
    assert data[at:] == bytes(len(data) - at), "bytes after the end of the list"
    return out


def test_identifiers_are_complete_and_agree(own):
    """B050"""
    seen = set()
    for nqn, nsids in ((conftest.MAIN, (1, 3, 4)), (conftest.BLOCKS_4K, (1,))):
        with own.admin(nqn) as admin:
            for nsid in nsids:
                found = descriptors(admin.identify(DESCRIPTORS, nsid=nsid)[1])
                data = admin.identify(NS, nsid=nsid)[1]
                assert sorted(found) == [1, 2, 3, 4] and found[4] == b"\0"
                assert [len(found[kind]) for kind in (1, 2, 3)] == [8, 16, 16]
                assert found[2] == data[104:120] == found[3], "the NGUID is the UUID"
                assert found[1] == data[120:128] and found[1][0] & 3 == 2, "local, of one device"
                assert not {found[1], found[2]} & seen
                seen |= {found[1], found[2]}


NAMED = """\
listen:
  - tcp://127.0.0.1:0
subsystems:
  - nqn: nqn.2026-11.io.haul:named
    namespaces:
      - ram: 1M
        uuid: 6f9619ff-8b86-d011-b42d-00c04fc964ff
        nguid: 0123456789abcdef0123456789ABCDEF
        eui64: 02ff0000deadbeef
      - ram: 1M
      - null: 1M
"""


def identifiers(hauld, subnqn="nqn.2026-11.io.haul:named", nsids=(1, 2, 3)):
    with nvmetcp.Admin(hauld.address, subnqn) as admin:
        return [descriptors(admin.identify(DESCRIPTORS, nsid=nsid)[1]) for nsid in nsids]


def test_identifiers_may_be_given_and_stay_over_restarts(start_hauld, tmp_path):
    """B050: also those of disks in memory."""
    path = tmp_path / "named.conf"
    path.write_text(NAMED)
    hauld = start_hauld("--config", str(path))
    first = identifiers(hauld)
    assert first[0][1].hex() == "02ff0000deadbeef"
    assert first[0][2].hex() == "0123456789abcdef" * 2
    assert first[0][3].hex() == "6f9619ff8b86d011b42d00c04fc964ff"
    assert len({one[3] for one in first}) == len({one[1] for one in first}) == 3
    assert hauld.stop() == 0
    again = start_hauld("--config", str(path))
    assert identifiers(again) == first
    with nvmetcp.Admin(again.address, "nqn.2026-11.io.haul:named") as admin:
        data = admin.identify(NS, nsid=1)[1]
        assert data[104:128].hex() == "0123456789abcdef" * 2 + "02ff0000deadbeef"


def discovered(address):
    import test_discovery
    with nvmetcp.Admin(address, nvme.DISCOVERY_NQN) as admin:
        return [entry["subnqn"] for entry in test_discovery.parse(test_discovery.whole_log(admin))[1]
                if entry["subtype"] == 2]


def test_default_names_of_memory_are_those_of_its_place(start_hauld):
    """Behind the same listener the same, behind another one others, on the same machine, too."""
    def names(port):
        hauld = start_hauld("--listen", f"tcp://127.0.0.1:{port}", "--export", "ram:1M", "--export", "ram:1M",
                            "--export", "null:1M")
        out = discovered(hauld.address)
        assert hauld.stop() == 0
        return out
    port = free_port()
    first = names(port)
    assert len(set(first)) == 3
    assert names(port) == first
    assert not set(names(free_port())) & set(first)
    assert not set(names(0)) & set(names(0)), "nobody knows whose port that is"


# --- lists and what is not there ----------------------------------------------------------------

@pytest.mark.parametrize("cns", [ACTIVE, CSI_ACTIVE, ALLOCATED_LIST, CSI_ALLOCATED_LIST])
@pytest.mark.parametrize("start, expect", [(0, [1, 3, 4]), (2, [3, 4]), (3, [4]), (4, []), (1024, []), (0xFFFFFFFD, []),
                                           (0xFFFFFFFE, None), (0xFFFFFFFF, None)])
def test_active_namespace_lists(own, cns, start, expect):
    """5.17.2.3, 5.17.2.7"""
    with own.admin() as admin:
        cqe, data = admin.identify(cns, nsid=start)
        if expect is None:
            assert cqe.status == nvme.INVALID_NAMESPACE and cqe.dnr
        else:
            assert list(struct.unpack("<1024I", data)) == expect + [0] * (1024 - len(expect))


@pytest.mark.parametrize("cns", [NS, DESCRIPTORS, CSI_NS, INDEPENDENT, ALLOCATED, CSI_ALLOCATED])
@pytest.mark.parametrize("nsid", [2, 9, 1024, 0, 1025, 0xFFFFFFFE, 0xFFFFFFFF])
def test_namespaces_that_are_not_there(own, cns, nsid):
    """B048. 5.17.2: zeros for an id without a namespace, but for the descriptors, whose list cannot be empty."""
    with own.admin() as admin:
        cqe, data = admin.identify(cns, nsid=nsid)
        if not 1 <= nsid <= 1024:
            assert cqe.status == nvme.INVALID_NAMESPACE and cqe.dnr
        elif cns == DESCRIPTORS:
            assert cqe.status == nvme.INVALID_FIELD and cqe.dnr
        else:
            assert cqe.status == 0 and data == bytes(4096)


def test_the_nvm_command_set_is_the_only_one(own):
    """5.17.2.5, .6, .7 and .21"""
    with own.admin() as admin:
        for cns in (CSI_NS, CSI_CTRL, CSI_ACTIVE, CSI_ALLOCATED, CSI_ALLOCATED_LIST):
            assert admin.identify(cns, nsid=1, csi=0)[0].status == 0
            for csi in (1, 2, 3, 0x30, 0xFF):
                assert admin.identify(cns, nsid=1, csi=csi)[0].status == nvme.INVALID_FIELD
        data = admin.identify(IO_COMMAND_SETS, cntid=0xFFFF)[1]
        assert data == b"\1" + bytes(4095), "one combination, of bit 0"


def test_allocated_namespaces_are_the_active_ones(own):
    with own.admin() as admin:
        for nsid in (1, 2, 3, 4):
            assert admin.identify(ALLOCATED, nsid=nsid)[1] == admin.identify(NS, nsid=nsid)[1]
            assert admin.identify(CSI_ALLOCATED, nsid=nsid)[1] == admin.identify(CSI_NS, nsid=nsid)[1]


def controllers(admin, cns, *, nsid=0, start=0):
    cqe, data = admin.identify(cns, nsid=nsid, cntid=start)
    assert cqe.status == 0
    count, *ids = struct.unpack("<2048H", data)
    assert not any(ids[count:])
    return ids[:count]


def test_controller_lists_have_all_of_the_subsystem(start_hauld, tmp_path):
    """5.17.2.12, 5.17.2.13: those of all reactors, in order, from an identifier on; not those of other subsystems."""
    hauld = start_hauld("--config", str(conftest.config(tmp_path)), "--threads", "3")
    admins = [nvmetcp.Admin(hauld.address, conftest.MAIN, hostnqn=f"nqn.2026-11.io.haul:h{n}") for n in range(7)]
    with nvmetcp.Admin(hauld.address, conftest.BLOCKS_4K) as other:
        ids = sorted(admin.cntlid for admin in admins)
        assert len({one % 3 for one in ids}) == 3, "of each reactor"
        assert controllers(admins[0], CTRLS) == ids
        assert controllers(admins[6], NS_CTRLS, nsid=3) == ids
        assert controllers(admins[6], CTRLS, start=ids[2]) == ids[2:]
        assert controllers(admins[6], CTRLS, start=ids[2] + 1) == ids[3:]
        assert controllers(admins[6], CTRLS, start=0xFFFF) == []
        assert controllers(other, CTRLS) == [other.cntlid]
        assert controllers(admins[0], NS_CTRLS, nsid=2) == [], "no such namespace"
        for nsid, expect in ((0xFFFFFFFF, nvme.INVALID_FIELD), (0, nvme.INVALID_NAMESPACE),
                             (1025, nvme.INVALID_NAMESPACE)):
            assert admins[0].identify(NS_CTRLS, nsid=nsid)[0].status == expect
        admins.pop().close()
        left = sorted(admin.cntlid for admin in admins)
        limit = time.monotonic() + 5
        while controllers(admins[0], CTRLS) != left:
            assert time.monotonic() < limit
    for admin in admins:
        admin.close()


# Figure 273: what an I/O controller has to have, and some that it may have without namespace management.
HAVE = {NS, CTRL, ACTIVE, DESCRIPTORS, CSI_NS, CSI_CTRL, CSI_ACTIVE, INDEPENDENT, IO_COMMAND_SETS} | {
    ALLOCATED_LIST, ALLOCATED, NS_CTRLS, CTRLS, CSI_ALLOCATED_LIST, CSI_ALLOCATED}


def test_other_cns_are_refused(own):
    """5.17.1: Invalid Field in Command, also for what is only reserved so far."""
    with own.admin() as admin:
        for cns in range(256):
            cqe, data = admin.identify(cns, nsid=1)
            assert (cqe.status == 0) == (cns in HAVE), hex(cns)
            assert cqe.status in (0, nvme.INVALID_FIELD) and cqe.dnr == (cqe.status != 0)
            assert len(data) == (4096 if cqe.status == 0 else 0)


def test_discovery_controllers_identify_only_themselves(own):
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        for cns in set(range(256)) - {CTRL}:
            assert admin.identify(cns, nsid=1)[0].status == nvme.INVALID_FIELD, hex(cns)


def test_opcodes_that_oacs_does_not_offer_are_invalid(own):
    """B057. Figure 275, OACS: each bit and its commands."""
    optional = {0: (0x81, 0x82), 1: (0x80,), 2: (0x10, 0x11), 3: (0x0D, 0x15), 4: (0x14,), 5: (0x19, 0x1A),
                6: (0x1D, 0x1E), 7: (0x1C,), 8: (0x7C,), 9: (0x86,), 10: (0x24,)}
    with own.admin() as admin:
        oacs = field(admin.identify(CTRL)[1], 256, 2)
        effects = struct.unpack("<256I", admin.get_log(5, 1024)[1])
        for bit, opcodes in optional.items():
            for opcode in opcodes + (0x84, 0x20, 0x21):
                cqe, _ = admin.command(opcode, nsid=1, read=4096)
                assert not oacs >> bit & 1 and not effects[opcode] & 1
                assert cqe.status == nvme.INVALID_OPCODE and cqe.dnr, hex(opcode)


# --- over RDMA ----------------------------------------------------------------------------------

def test_identify_over_rdma_differs_in_what_the_transport_is(tmp_path):
    path = conftest.config(tmp_path)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    hauld = conftest.Hauld(tmp_path, "--config", str(path), env=conftest.rdma_environment())
    uris = {uri.split(":")[0]: conftest.split_uri(uri) for uri in hauld.uris}
    pages = {}
    for kind in ("tcp", "rdma"):
        with Host(kind, uris[kind], conftest.MAIN) as host:
            pages[kind] = [bytearray(host.run(nvme.IDENTIFY, nsid=1, cdw=(cns,), read=4096)[1])
                           for cns in (CTRL, NS, DESCRIPTORS, INDEPENDENT)]
    check(bytes(pages["rdma"][0]), IO_CONTROLLER)
    assert field(pages["rdma"][0], 536, 4) & 4, "keyed SGLs"
    for at, size in ((78, 2), (514, 2), (536, 4), (1792, 4), (1803, 1)):
        for kind in pages:
            pages[kind][0][at:at + size] = bytes(size)
    assert pages["tcp"] == pages["rdma"]
    assert hauld.stop() == 0, hauld.log_path.read_text()

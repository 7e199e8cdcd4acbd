# SPDX-License-Identifier: MIT
"""Limits that the administrator sets for a listener: what hosts are told, and that it is kept, over TCP and RDMA."""
import struct

import conftest
import nvme
import nvmerdma
import nvmetcp
import pytest
from control import Control, free_port, haulctl
from test_discovery import parse, whole_log

NQN = "nqn.2026-11.io.haul:limits"
HOSTS = {"tcp": nvmetcp.Admin, "rdma": nvmerdma.Admin}
BOTH = pytest.mark.parametrize("kind", HOSTS)
BLOCK = 512


@pytest.fixture
def start(start_hauld):
    """start(kind, options): a hauld, and a class that makes an admin queue of it."""
    def run(kind, options="", *more):
        hauld = start_hauld("--listen", f"{kind}://127.0.0.1:0?{options}".rstrip("?"), "--threads", "2",
                            "--export", f"ram:16M,nqn={NQN}", *more, env=conftest.rdma_environment())
        return hauld, lambda subnqn=NQN, **kw: HOSTS[kind](hauld.address, subnqn, **kw)
    return run


def told(admin):
    """(MQES, MAXCMD, IOCCSZ, MDTS, MSDBD, ACWU) of a controller."""
    mqes = admin.property_get(nvme.CAP)[1] & 0xFFFF
    page = admin.identify(1)[1]
    return (mqes, *struct.unpack_from("<H", page, 514), *struct.unpack_from("<I", page, 1792), page[77], page[1803],
            *struct.unpack_from("<H", page, 532))


def read(queue, nbytes):
    return queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, nbytes // BLOCK), read=nbytes)[0]


def write(queue, data, **how):
    return queue.command(nvme.WRITE, nsid=1, cdw=nvme.rw_cdw(0, len(data) // BLOCK), **how)[0]


def data_of(nbytes):
    return bytes(range(251)) * (nbytes // 251) + bytes(nbytes % 251)


# --- what is told ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind, options, expect", [
    ("tcp", "", (1023, 1024, 4 + 512, 8, 1, 31)), ("rdma", "", (1023, 1024, 4 + 256, 8, 16, 31)),
    ("tcp", "max_queue_size=2&in_capsule=0&mdts=8K", (1, 2, 4, 1, 1, 1)),
    ("rdma", "max_queue_size=64&in_capsule=0&mdts=64K", (63, 64, 4, 4, 16, 15)),
    ("tcp", "in_capsule=64K&mdts=512K", (1023, 1024, 4 + 4096, 7, 1, 31)),
    # Hosts 5.4 to 5.12 corrupt larger in-capsule writes if MSDBD is more than 1.
    ("rdma", "in_capsule=8K", (1023, 1024, 4 + 512, 8, 1, 31))])
def test_hosts_are_told_the_limits(start, kind, options, expect):
    """Base 2.0 3.1.3.1 (CAP.MQES) and 5.17.2.1 (MAXCMD, IOCCSZ, MDTS, MSDBD)."""
    _, admin_of = start(kind, options)
    with admin_of() as admin:
        assert told(admin) == expect
    with admin_of(nvme.DISCOVERY_NQN) as discovery:
        assert told(discovery)[:5] == expect[:5]


# --- max_queue_size ----------------------------------------------------------------------------------------------------

def test_a_larger_tcp_queue_is_refused_and_points_at_sqsize(start):
    """Base 2.0 6.3: SQSIZE is bounded by MQES; an admin queue is not (3.1.3.1)."""
    _, admin_of = start("tcp", "max_queue_size=16")
    with admin_of() as admin:
        with admin.io_queue(sqsize=15) as queue:
            assert read(queue, BLOCK).status == 0
        with admin.new_queue(qid=2, sqsize=16) as queue:
            cqe = queue.connect(subnqn=NQN, cntlid=admin.cntlid, sqsize=16)
            assert cqe.status == nvme.CONNECT_INVALID and cqe.dw0 == 40 + 4, cqe
            assert queue.connect(subnqn=NQN, cntlid=admin.cntlid, sqsize=15).status == 0


def test_a_larger_rdma_queue_is_rejected(start):
    """RDMA 1.0 3.3: HSQSIZE beyond what the target takes is rejected with that status."""
    hauld, admin_of = start("rdma", "max_queue_size=16")
    with admin_of() as admin:
        with admin.io_queue(sqsize=15) as queue:
            assert read(queue, BLOCK).status == 0
        with nvmerdma.Rdma(hauld.address, qid=2, hsqsize=16, hrqsize=17) as rdma:
            assert rdma.reject == (0, nvmerdma.REJECT_HSQSIZE)


@BOTH
def test_admin_queues_are_as_deep_as_discovery_says_whatever_io_queues_are(start, kind):
    """Base 2.0 5.16.1.23: ASQSZ, at least 32."""
    hauld, admin_of = start(kind, "max_queue_size=2")
    with admin_of(nvme.DISCOVERY_NQN) as discovery:
        asqsz = {entry["asqsz"] for entry in parse(whole_log(discovery))[1]}.pop()
    assert asqsz >= 32
    with HOSTS[kind].__mro__[2](hauld.address, **({"sqsize": asqsz - 1} if kind == "rdma" else {})) as queue:
        assert queue.connect(subnqn=NQN, sqsize=asqsz - 1).status == 0
    if kind == "rdma":
        with nvmerdma.Rdma(hauld.address, hsqsize=asqsz, hrqsize=asqsz + 1) as rdma:
            assert rdma.reject == (0, nvmerdma.REJECT_HSQSIZE)
    else:
        with nvmetcp.Tcp(hauld.address) as queue:
            assert queue.connect(subnqn=NQN, sqsize=asqsz).status == nvme.CONNECT_INVALID


# --- in_capsule --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind, size", [("tcp", 65536), ("tcp", 16), ("tcp", 0), ("rdma", 16384), ("rdma", 12288),
                                        ("rdma", 8192), ("rdma", 0)])
def test_data_goes_in_the_capsule_up_to_the_limit_and_no_further(start, kind, size):
    """Base 2.0 5.17.2.1: IOCCSZ. What is in a longer capsule is not taken."""
    _, admin_of = start(kind, f"in_capsule={size}")
    fits = size - size % BLOCK
    with admin_of() as admin, admin.io_queue() as queue:
        for _ in range(3):
            if fits:
                data = data_of(fits)
                assert write(queue, data, inline=data).status == 0
                assert queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, fits // BLOCK), read=fits)[1] == data
        assert write(queue, data_of(4096), fetched=data_of(4096)).status == 0
        if kind == "tcp" and size < nvmetcp.ADMIN_IN_CAPSULE:
            cqe = write(queue, data_of(fits + BLOCK), inline=data_of(fits + BLOCK))
            assert cqe.status and cqe.dnr, cqe
            assert read(queue, BLOCK).status == 0, "the stream is out of step"
        else:
            with pytest.raises((nvmetcp.Terminated, nvmetcp.Closed, nvmerdma.Ended)):
                write(queue, data_of(fits + BLOCK), inline=data_of(fits + BLOCK))


def test_admin_queues_take_8_kib_over_tcp_whatever_the_limit_is(start):
    """TCP 1.0c 3.3.2.1: capsules of admin and fabrics commands may have 8 KiB of data."""
    _, admin_of = start("tcp", "in_capsule=0")
    with admin_of() as admin:   # Connect itself had its data in the capsule
        assert admin.command(nvme.SET_FEATURES, cdw=(0x16,), inline=bytes(512))[0].status == 0


def test_rdma_listeners_of_different_sizes_beside_each_other(start_hauld, tmp_path):
    """Each has receives of its own size, on one device."""
    path = tmp_path / "hauld.conf"
    path.write_text("listen: ['rdma://127.0.0.1:0?in_capsule=0', 'rdma://127.0.0.1:0', 'rdma://127.0.0.1:0?in_capsule=16K']\n"
                    f"threads: 1\nsubsystems: [{{nqn: {NQN}, namespaces: [{{ram: 16M}}]}}]\n")
    hauld = start_hauld("--config", str(path), env=conftest.rdma_environment())
    for _ in range(2):
        admins = [nvmerdma.Admin(hauld.address_of("rdma", number), NQN) for number in range(3)]
        queues = [admin.io_queue() for admin in admins]
        for size, queue in reversed(list(zip((0, 4096, 16384), queues, strict=True))):
            data = data_of(size or 4096)
            assert write(queue, data, **{"inline" if size else "fetched": data}).status == 0
            assert read(queue, 4096).status == 0
        for queue in queues + admins:
            queue.close()


# --- mdts --------------------------------------------------------------------------------------------------------------

@BOTH
def test_a_command_moves_no_more_than_mdts(start, kind):
    """Base 2.0 5.17.2.1: MDTS; a longer command is an Invalid Field and the queue lives on."""
    _, admin_of = start(kind, "mdts=16K")
    with admin_of() as admin, admin.io_queue() as queue:
        data = data_of(16384)
        assert write(queue, data, fetched=data).status == 0
        assert read(queue, 16384).status == 0
        for cqe in (read(queue, 16384 + BLOCK), write(queue, data + bytes(BLOCK), fetched=data + bytes(BLOCK)),
                    queue.command(nvme.COMPARE, nsid=1, cdw=nvme.rw_cdw(0, 33), fetched=data + bytes(BLOCK))[0]):
            assert cqe.status == nvme.INVALID_FIELD and cqe.dnr, cqe
        assert admin.get_log(0x0C, 16384)[0].status == 0
        cqe, _ = admin.get_log(0x0C, 16384 + 4)
        assert cqe.status == nvme.INVALID_FIELD and cqe.dnr
        assert read(queue, BLOCK).status == 0


@pytest.mark.parametrize("options, expect", [("", 131072), ("mdts=8K", 8192), ("mdts=256K", 131072)])
def test_maxh2cdata_is_never_more_than_mdts(start, options, expect):
    """TCP 1.0c 3.6.2.3: MAXH2CDATA; a longer H2CData ends the connection."""
    hauld, admin_of = start("tcp", options)
    with nvmetcp.Tcp(hauld.address) as queue:
        assert queue.maxh2cdata == expect
    with admin_of() as admin, admin.io_queue() as queue:
        queue.maxh2cdata = expect
        data = data_of(expect)
        assert write(queue, data, fetched=data).status == 0


# --- max_io_queues -----------------------------------------------------------------------------------------------------

def granted(admin, wanted=None):
    """Of Number of Queues: what WANTED is answered, or the current value."""
    cqe = admin.get_feature(7)[0] if wanted is None else admin.set_feature(7, (wanted - 1) * 0x10001)
    assert cqe.status == 0 and cqe.dw0 & 0xFFFF == cqe.dw0 >> 16
    return (cqe.dw0 & 0xFFFF) + 1


def one_subsystem(listen, more):
    return (f"listen: ['{listen}']\nthreads: 2\n"
            f"subsystems: [{{nqn: {NQN}, namespaces: [{{ram: 16M}}]{more}}}]\n")


@BOTH
def test_a_changed_number_of_queues_is_for_new_controllers(start_hauld, tmp_path, kind):
    """Base 2.0 5.27.1.5: no more queues than granted; a controller's number stays, over its resets too."""
    listen = f"{kind}://127.0.0.1:{free_port()}"
    path = tmp_path / "hauld.conf"
    path.write_text(one_subsystem(listen, ", max_io_queues: 3"))
    hauld = start_hauld("--config", str(path), env=conftest.rdma_environment())
    with Control(hauld.control) as control, HOSTS[kind](hauld.address, NQN) as admin:
        assert granted(admin) == granted(admin, 100) == 3 and granted(admin, 2) == 2
        assert admin.get_feature(7, sel=1)[0].dw0 == 0x20002, "the default"
        assert granted(admin, 3) == 3
        queues = [admin.io_queue(qid) for qid in (1, 2, 3)]
        with admin.new_queue(qid=4, sqsize=31) as queue:
            cqe = queue.connect(subnqn=NQN, cntlid=admin.cntlid)
            assert cqe.status == nvme.CONNECT_INVALID and cqe.dw0 == 40 + 2, cqe
        expect = f"~ subsystem {NQN}: at most 3 -> 1 I/O queues for new controllers"
        assert control.change(one_subsystem(listen, ", max_io_queues: 1")) == [expect]
        assert all(read(queue, BLOCK).status == 0 for queue in queues)
        with HOSTS[kind](hauld.address, NQN) as other:
            assert granted(other, 128) == 1
            with other.io_queue(1) as queue:
                assert read(queue, BLOCK).status == 0
        assert admin.property_set(nvme.CC, 0).status == 0
        for queue in queues:
            queue.expect_end()
        admin.enable()
        assert granted(admin) == granted(admin, 128) == 3
        assert control.ask("ana", subsystem=NQN, group=2, state="inaccessible")["changes"]
        subsystem, = control.status()["subsystems"]
        assert subsystem["max_io_queues"] == 1
        assert f"{NQN}  serial {subsystem['serial']}, at most 1 I/O queue\n" in haulctl(hauld.control, "status")[1]
        assert control.change(one_subsystem(listen, "")) [0] == expect.replace("3 -> 1", "1 -> 128")


# --- the administrator's side ------------------------------------------------------------------------------------------

@BOTH
def test_status_tells_them(start, kind):
    hauld, _ = start(kind, "mdts=64K&max_queue_size=100")
    with Control(hauld.control) as control:
        listener, = control.status()["listeners"]
    expect = {"max_queue_size": 100, "in_capsule": 8192 if kind == "tcp" else 4096, "mdts": 65536, "tos": 0}
    assert expect.items() <= listener["options"].items()
    assert listener["given"] == ["max_queue_size=100", "mdts=64K"]
    assert f"  {listener['uri']}  max_queue_size=100  mdts=64K\n" in haulctl(hauld.control, "status")[1]


@BOTH
def test_a_changed_limit_is_a_new_listener_at_the_same_address(start_hauld, tmp_path, kind):
    """Its hosts end, for they were told another one, and come back; those of another listener do not notice."""
    port = free_port()
    here, other = f"{kind}://127.0.0.1:{port}", f"{kind}://127.0.0.1:0"
    config = f"listen: ['{here}', '{other}']\nsubsystems: [{{nqn: {NQN}, namespaces: [{{ram: 16M}}]}}]\n"
    (tmp_path / "hauld.conf").write_text(config)
    hauld = start_hauld("--config", str(tmp_path / "hauld.conf"), env=conftest.rdma_environment())
    admin_of = HOSTS[kind]
    with Control(hauld.control) as control, admin_of(hauld.address_of(kind, 1), NQN) as stays, \
            admin_of(hauld.address, NQN) as admin:
        changed = config.replace(here, f"{here}?mdts=32K")
        expect = [f"~ listener {here}: mdts 1M -> 32K"]
        assert control.change(changed, dry_run=True) == expect
        assert told(admin)[3] == 8
        assert control.change(changed) == expect
        admin.expect_end()
        with admin_of(hauld.address, NQN) as again:
            assert told(again)[3] == 3
        assert "?mdts=32K\n" in haulctl(hauld.control, "config")[1]
        assert control.change(config) == [f"~ listener {here}: mdts 32K -> 1M"]
        assert told(stays)[3] == 8

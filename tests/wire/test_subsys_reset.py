# SPDX-License-Identifier: MIT
"""NVM Subsystem Reset (NVMe base 2.0 3.7.1), over TCP and RDMA: offered by configuration only, felt by all hosts."""
import conftest
import control
import hosts
import nvme
import nvmetcp
import pytest
from control import A, B, start, wait_for  # noqa: F401 (start is a fixture)

NSSR, RESET = 0x20, 0x4E564D65
NSSRS, RDY, NSSRO = 1 << 36, 1, 0x10
OTHER = "nqn.2026-11.io.haul:other"
LISTEN = ["tcp://127.0.0.1:0", "rdma://127.0.0.1:0"]


def config(offered=True, more=""):
    text = control.config(control.subsys(A, (1, "ram=1M")), control.subsys(B, (1, "ram=1M")), listen=LISTEN, more=more)
    return text.replace(f"nqn: {A}\n", f"nqn: {A}\n    subsystem_reset: {'true' if offered else 'false'}\n")


@pytest.fixture
def hauld(start):
    return start(config(), env=conftest.rdma_environment())


def admin(hauld, nqn=A, **kw):
    return nvmetcp.Admin(hauld.address_of("tcp"), nqn, **kw)


def status_of(one):
    return one.property_get(nvme.CSTS, 4)[1]


def test_it_is_not_offered_unless_it_is_configured(hauld):
    with admin(hauld, B) as one, one.io_queue() as queue, control.Control(hauld.control) as socket:
        assert not one.property_get(nvme.CAP)[1] & NSSRS
        assert one.property_get(NSSR, 4)[0].status == nvme.INVALID_FIELD
        assert one.property_set(NSSR, RESET).status == nvme.INVALID_FIELD
        assert one.property_set(nvme.CSTS, NSSRO).status == nvme.INVALID_FIELD
        assert status_of(one) == RDY
        assert queue.command(nvme.FLUSH, nsid=1)[0].status == 0
        assert [subsys["resets"] for subsys in socket.status()["subsystems"]] == [0, 0]


def test_a_discovery_controller_never_offers_it(hauld):
    with admin(hauld, nvme.DISCOVERY_NQN) as one:
        assert not one.property_get(nvme.CAP)[1] & NSSRS
        assert one.property_set(NSSR, RESET).status == nvme.INVALID_FIELD


def test_other_values_do_nothing(hauld):
    with admin(hauld) as one, one.io_queue() as queue:
        assert one.property_get(nvme.CAP)[1] & NSSRS
        assert one.property_get(NSSR, 4)[1] == 0
        for value in (0, 1, 0x654D564E, 0xFFFFFFFF):
            assert one.property_set(NSSR, value).status == 0
        assert one.property_set(NSSR, RESET, size=8).status == nvme.INVALID_FIELD
        assert one.property_get(NSSR, 8)[0].status == nvme.INVALID_FIELD
        assert status_of(one) == RDY and queue.command(nvme.FLUSH, nsid=1)[0].status == 0


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_it_resets_the_controllers_of_all_hosts(hauld, kind):
    """3.7.2: I/O queues are gone, properties are as at first; the association is the host's to end."""
    with admin(hauld) as one, one.io_queue() as own, \
            hosts.Queue(kind, hauld.address_of(kind), A, hostnqn=OTHER, hostid=b"o" * 16) as other, \
            hosts.Queue(kind, hauld.address_of(kind), B, hostnqn=OTHER, hostid=b"o" * 16) as elsewhere, \
            control.Control(hauld.control) as socket:
        other.write(8, b"kept" * 128, nsid=1)
        assert one.property_set(NSSR, RESET).status == 0
        wait_for(lambda: status_of(one) == NSSRO)
        assert one.property_get(nvme.CC, 4)[1] == 0
        with pytest.raises(Exception):
            own.command(nvme.FLUSH, nsid=1)
        with pytest.raises(Exception):
            other.status(nvme.FLUSH, nsid=1)
        assert elsewhere.status(nvme.FLUSH, nsid=1) == 0, "another subsystem"
        one.enable()
        assert status_of(one) == RDY | NSSRO
        with one.io_queue() as again:
            assert again.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(8, 1), read=512)[1] == b"kept" * 128
        assert one.property_set(nvme.CSTS, RDY).status == 0 and status_of(one) == RDY | NSSRO
        assert one.property_set(nvme.CSTS, NSSRO).status == 0 and status_of(one) == RDY
        assert [subsys["resets"] for subsys in socket.status()["subsystems"]] == [1, 0]
    assert hauld.log_path.read_text().count(f"NVM Subsystem Reset of {A}, by host") == 1


def test_controllers_of_later_associations_tell_of_it(hauld):
    """3.1.3.6: the initial value of NSSRO, for a host that has lost its controller; other changes leave it."""
    with admin(hauld) as one, control.Control(hauld.control) as socket:
        assert status_of(one) == RDY
        assert one.property_set(NSSR, RESET).status == 0
        with admin(hauld, hostnqn=OTHER, hostid=b"o" * 16) as later, admin(hauld, B) as elsewhere:
            assert status_of(later) == RDY | NSSRO and status_of(elsewhere) == RDY
        assert socket.change(config(more="referrals: [tcp://10.0.0.9]\n"))
        assert [subsys["resets"] for subsys in socket.status()["subsystems"]] == [1, 0]
        with admin(hauld) as later, later.io_queue() as queue:
            assert status_of(later) == RDY | NSSRO and queue.command(nvme.FLUSH, nsid=1)[0].status == 0


def test_reservations_and_write_protection_stay(start, tmp_path):
    (tmp_path / "state").mkdir()
    hauld = start(config(more=f"state: {tmp_path}/state\n"), env=conftest.rdma_environment())
    with admin(hauld) as one, one.io_queue() as queue:
        assert one.command(nvme.SET_FEATURES, nsid=1, cdw=(0x84, 1))[0].status == 0
        keys = bytes(8) + (7).to_bytes(8, "little")
        assert queue.command(nvme.RESV_REGISTER, nsid=1, write=keys, cdw=(0,))[0].status == 0
        assert one.property_set(NSSR, RESET).status == 0
        one.enable()
        assert one.command(nvme.GET_FEATURES, nsid=1, cdw=(0x84,))[0].dw0 == 1
        with one.io_queue() as again:
            page = again.command(nvme.RESV_REPORT, nsid=1, cdw=(31, 1), read=128)[1]
            assert page[5:7] == (1).to_bytes(2, "little"), "registrants"


def test_it_can_be_taken_back_and_given_again(hauld):
    with admin(hauld) as one, control.Control(hauld.control) as socket:
        assert socket.change(config(offered=False)) == [f"~ subsystem {A}: hosts may not reset it any more"]
        assert not one.property_get(nvme.CAP)[1] & NSSRS
        assert one.property_set(NSSR, RESET).status == nvme.INVALID_FIELD and status_of(one) == RDY
        printed = socket.ask("config")["config"]
        assert "subsystem_reset" not in printed
        assert socket.change(config()) == [f"~ subsystem {A}: hosts may reset it"]
        assert socket.ask("config")["config"].count("subsystem_reset: true") == 1
        assert one.property_set(NSSR, RESET).status == 0


def test_a_host_that_resets_all_the_time_holds_up_nobody(hauld):
    with admin(hauld, source="127.0.0.2") as greedy, admin(hauld, B, source="127.0.0.3") as other, \
            control.Control(hauld.control) as socket:
        cids = [greedy.start_fabrics(nvme.PROPERTY_SET, (0).to_bytes(4, "little") + NSSR.to_bytes(4, "little")
                                     + RESET.to_bytes(8, "little")) for _ in range(28)]
        assert socket.ask("ana", subsystem=B, group=1, state="non-optimized")["changes"]
        assert other.identify(1)[0].status == 0
        assert [greedy.finish(cid)[0].status for cid in cids] == [0] * len(cids)
        assert socket.status()["subsystems"][0]["resets"] == 28

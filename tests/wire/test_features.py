# SPDX-License-Identifier: MIT
"""Set and Get Features (NVMe base 2.0 5.15 and 5.27, NVM command set 1.0 4.1.3)."""
import itertools
import struct
import time

import conftest
import nvme
import nvmetcp
import pytest
from events import Host

NQN = "nqn.2026-11.io.haul:features"
CURRENT, DEFAULT, SAVED, SUPPORTED = range(4)
SAVEABLE, OF_NAMESPACE, CHANGEABLE = 1, 2, 4
ARBITRATION, POWER, TEMPERATURE, ERROR_RECOVERY, WRITE_CACHE, QUEUES, ATOMICITY, ASYNC_EVENT, TIMESTAMP, KEEP_ALIVE = (
    0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0A, 0x0B, 0x0E, 0x0F)
BEHAVIOR, PROFILE, HOST_ID, RESERVATION_MASK, RESERVATION_PERSISTENCE, WRITE_PROTECT = (
    0x16, 0x19, 0x81, 0x82, 0x83, 0x84)
NOT_CHANGEABLE, NOT_PER_NS, COMBINATION_REJECTED = 0x10E, 0x10F, 0x12B
ALL = 0xFFFFFFFF

# Those that an I/O controller over a fabric has to have (base 2.0 3.1.2.1.3, NVM command set 1.0 figure 6).
#      feature         default  of a namespace  changeable
MANDATORY = [
    (ARBITRATION,      7,       False,          False),
    (POWER,            0,       False,          True),
    (TEMPERATURE,      343,     False,          True),
    (ERROR_RECOVERY,   0,       True,           False),
    (QUEUES,           0x7F007F, False,         True),
    (ATOMICITY,        0,       False,          True),
    (ASYNC_EVENT,      0,       False,          True),
    (PROFILE,          0,       False,          True),
]


def get(admin, fid, *, sel=CURRENT, nsid=0, cdw11=0, read=0):
    return admin.command(nvme.GET_FEATURES, nsid=nsid, cdw=(fid | sel << 8, cdw11), read=read)


def put(admin, fid, value=0, *, nsid=0, **kw):
    return admin.command(nvme.SET_FEATURES, nsid=nsid, cdw=(fid, value), **kw)[0]


@pytest.mark.parametrize("fid, default, of_namespace, changeable", MANDATORY, ids=lambda v: hex(v))
def test_each_mandatory_feature_tells_what_it_can_do_and_its_default(own, fid, default, of_namespace, changeable):
    nsid = 1 if of_namespace else 0
    with own.admin() as admin:
        for sel in (CURRENT, DEFAULT, SAVED):
            cqe, _ = get(admin, fid, sel=sel, nsid=nsid)
            assert (cqe.status, cqe.dw0) == (0, default), sel
        cqe, _ = get(admin, fid, sel=SUPPORTED, nsid=nsid)
        assert cqe.dw0 == (OF_NAMESPACE if of_namespace else 0) | (CHANGEABLE if changeable else 0)
        assert put(admin, fid, default, nsid=nsid).status == 0, "to what it is"


def test_keep_alive_timer_is_that_of_connect_and_two_minutes_by_default(own):
    """5.27.1.12: the default of transports that need one, rounded up to KAS."""
    with own.admin(kato=0) as admin:
        assert get(admin, KEEP_ALIVE)[0].dw0 == 0
        assert get(admin, KEEP_ALIVE, sel=DEFAULT)[0].dw0 == get(admin, KEEP_ALIVE, sel=SAVED)[0].dw0 == 120000
        assert get(admin, KEEP_ALIVE, sel=SUPPORTED)[0].dw0 == CHANGEABLE
        assert put(admin, KEEP_ALIVE, 1500).status == 0
        assert get(admin, KEEP_ALIVE)[0].dw0 == 2000


def test_keep_alive_timer_has_the_granularity_that_the_administrator_chose(start_hauld, tmp_path):
    """5.27.1.12: every value, the default too, is rounded up to KAS; 0 is none."""
    path = tmp_path / "hauld.conf"
    path.write_text(f"listen: ['tcp://127.0.0.1:0']\nkas_s: 7\nsubsystems: [{{nqn: {NQN}, namespaces: [{{ram: 1M}}]}}]\n")
    hauld = start_hauld("--config", str(path))
    with nvmetcp.Admin(hauld.address, NQN, kato=1) as admin, \
            nvmetcp.Admin(hauld.address, nvme.DISCOVERY_NQN, kato=7001) as discovery:
        assert [int.from_bytes(host.identify(1)[1][320:322], "little") for host in (admin, discovery)] == [70, 70]
        assert [get(host, KEEP_ALIVE)[0].dw0 for host in (admin, discovery)] == [7000, 14000]
        assert get(admin, KEEP_ALIVE, sel=DEFAULT)[0].dw0 == 126000
        for value, rounded in ((7000, 7000), (7001, 14000), (0xFFFFFFFF, 0xFFFFFFFF // 7000 * 7000), (0, 0)):
            assert put(admin, KEEP_ALIVE, value).status == 0
            assert get(admin, KEEP_ALIVE)[0].dw0 == rounded


def test_events_of_endurance_groups_cannot_be_asked_for(target):
    """Base 2.0 5.27.1.8, bit 14: there are none where CTRATT has none."""
    with target.admin() as admin:
        if admin.identify(1)[1][96] & 1 << 4:
            target.lacks("there are endurance groups")
        assert put(admin, ASYNC_EVENT, 0x100).status == 0
        assert put(admin, ASYNC_EVENT, 0x4900).status == nvme.INVALID_FIELD
        assert get(admin, ASYNC_EVENT)[0].dw0 == 0x100


def test_reserved_selections_are_refused(target):
    """Base 2.0 5.15: SEL has four values; others are Invalid Field, where ONCS says that SEL is there."""
    with target.admin() as admin:
        if not admin.limits.oncs & 1 << 4:
            target.lacks("ONCS has no Save and Select")
        for sel in (4, 5, 6, 7):
            assert get(admin, ASYNC_EVENT, sel=sel)[0].status == nvme.INVALID_FIELD


def test_no_feature_can_be_saved(own):
    """5.27: whatever it is, and none says it could be."""
    with own.admin() as admin:
        for fid, _, of_namespace, _ in MANDATORY:
            nsid = 1 if of_namespace else 0
            cqe, _ = admin.command(nvme.SET_FEATURES, nsid=nsid, cdw=(fid | 1 << 31, 0))
            assert cqe.status == nvme.NOT_SAVEABLE and cqe.dnr, hex(fid)


FORMS = list(itertools.product(range(4), (0, 4096), (0, 1, 9, ALL)))
UNKNOWN_FORMS = [(0, 0, 0), (1, 4096, 1), (2, 0, 9), (3, 4096, ALL)]


def test_every_feature_in_every_form(target):
    """Base 2.0 5.15: each is answered, none that is not there accepted, and no data sent that it has not (B055)."""
    with target.admin() as admin:
        cqe, page = admin.get_log(0x12, 1024)
        if cqe.status:
            target.lacks("there is no log of features")
        effects = struct.unpack("<256I", page)
        for fid in set(range(256)) - {KEEP_ALIVE}:
            known = bool(effects[fid] & 1)
            for sel, read, nsid in FORMS if known else UNKNOWN_FORMS:
                cqe, data = get(admin, fid, sel=sel, nsid=nsid, read=read, cdw11=1 if fid == HOST_ID else 0)
                assert known or cqe.status == nvme.INVALID_FIELD, (hex(fid), cqe)
                assert cqe.dnr == (cqe.status != 0), (hex(fid), cqe)
                if fid not in (TIMESTAMP, BEHAVIOR, HOST_ID):
                    assert not data
            if not known:
                assert put(admin, fid).status == nvme.INVALID_FIELD
                assert put(admin, fid, write=bytes(4096)).status == nvme.INVALID_FIELD
    target.still_serves()


@pytest.mark.parametrize("fid, default", [(fid, default) for fid, default, of_namespace, _ in MANDATORY if not of_namespace],
                         ids=lambda v: hex(v))
def test_features_of_the_controller_are_not_set_for_a_namespace(target, fid, default):
    """Base 2.0 5.27: Feature Not Namespace Specific; FFFFFFFFh means the controller."""
    with target.admin() as admin:
        if get(admin, fid)[0].status == nvme.INVALID_FIELD:
            target.lacks("there is no such feature")
        assert put(admin, fid, default, nsid=1).status == NOT_PER_NS
        assert put(admin, fid, default, nsid=ALL).status == 0


@pytest.mark.parametrize("nsid, expect", [(1, 0), (2, nvme.INVALID_FIELD), (0, nvme.INVALID_NAMESPACE),
                                          (1025, nvme.INVALID_NAMESPACE), (ALL, nvme.INVALID_FIELD)])
def test_features_of_namespaces_need_one(own, nsid, expect):
    with own.admin() as admin:
        for fid in (RESERVATION_MASK, RESERVATION_PERSISTENCE):
            wrong = expect and nvme.INVALID_FIELD
            assert get(admin, fid, nsid=nsid)[0].status == wrong, "5.27.1.26, 5.27.1.27"
            if nsid != ALL:
                assert put(admin, fid, nsid=nsid).status == wrong
        assert get(admin, ERROR_RECOVERY, nsid=nsid)[0].status == expect
        if nsid != ALL:
            assert put(admin, ERROR_RECOVERY, nsid=nsid).status == expect


def test_what_cannot_be_changed_says_so(own):
    with own.admin() as admin:
        assert put(admin, ARBITRATION, 3).status == NOT_CHANGEABLE
        assert put(admin, ERROR_RECOVERY, 1 << 16, nsid=1).status == NOT_CHANGEABLE, "DULBE, as NSFEAT says"
        assert not admin.identify(0, nsid=1)[1][24] & 4
        assert get(admin, ARBITRATION)[0].dw0 == 7


def test_power_states_beyond_npss_are_refused(own):
    with own.admin() as admin:
        assert admin.identify(1)[1][263] == 0, "NPSS"
        assert put(admin, POWER, 1).status == nvme.INVALID_FIELD
        assert put(admin, POWER, 3 << 5).status == nvme.INVALID_FIELD, "a reserved workload hint"
        assert put(admin, POWER, 2 << 5 | 0xFFFF0000).status == 0
        assert get(admin, POWER)[0].dw0 == 2 << 5, "without the reserved bits"


def test_a_reset_brings_the_defaults_back(own):
    """Base 2.0 3.7.2: nothing is saved."""
    with own.admin() as admin:
        assert put(admin, POWER, 1 << 5).status == 0
        assert put(admin, ATOMICITY, 1).status == 0
        assert put(admin, TEMPERATURE, 330).status == 0
        assert put(admin, BEHAVIOR, inline=b"\1".ljust(512, b"\0")).status == 0
        assert get(admin, ATOMICITY)[0].dw0 == 1
        assert admin.property_set(nvme.CC, 0).status == 0
        admin.enable()
        assert get(admin, POWER)[0].dw0 == 0 and get(admin, ATOMICITY)[0].dw0 == 0
        assert get(admin, TEMPERATURE)[0].dw0 == 343
        assert get(admin, BEHAVIOR, read=512)[1] == bytes(512)


def test_one_host_does_not_see_the_features_of_another(own):
    with own.admin() as admin, own.admin(hostnqn="nqn.2026-11.io.haul:another") as other:
        assert put(admin, TEMPERATURE, 320).status == 0
        assert get(other, TEMPERATURE)[0].dw0 == 343


# --- temperature threshold (5.27.1.3) -----------------------------------------------------------

OVER, UNDER = 0 << 20, 1 << 20


def test_temperature_thresholds_are_two_of_one_sensor(target):
    """Base 2.0 5.27.1.3: over and under; selections of reserved sensors and types are invalid."""
    with target.admin() as admin:
        wctemp = struct.unpack_from("<H", admin.identify(1)[1], 266)[0]
        if get(admin, TEMPERATURE)[0].status == nvme.INVALID_FIELD:
            target.lacks("there is no temperature threshold")
        assert get(admin, TEMPERATURE, cdw11=OVER)[0].dw0 == wctemp
        assert get(admin, TEMPERATURE, cdw11=UNDER)[0].dw0 == UNDER
        assert put(admin, TEMPERATURE, OVER | 350).status == 0
        assert put(admin, TEMPERATURE, UNDER | 0xF << 16 | 250).status == 0, "all sensors"
        assert get(admin, TEMPERATURE, cdw11=OVER)[0].dw0 == 350
        assert get(admin, TEMPERATURE, cdw11=UNDER)[0].dw0 == UNDER | 250
        assert get(admin, TEMPERATURE, cdw11=UNDER, sel=DEFAULT)[0].dw0 == UNDER
        for wrong in (1 << 16, 8 << 16, 2 << 20, 3 << 20):
            assert put(admin, TEMPERATURE, wrong | 300).status == nvme.INVALID_FIELD
            assert get(admin, TEMPERATURE, cdw11=wrong)[0].status == nvme.INVALID_FIELD
        assert get(admin, TEMPERATURE, cdw11=0xF << 16)[0].status == nvme.INVALID_FIELD


@pytest.mark.parametrize("value", [OVER | 290, UNDER | 310], ids=["over", "under"])
def test_a_threshold_that_is_reached_is_told(own, value):
    """5.2 and 5.16.1.3: an event, and the bit of the critical warning, until the threshold is moved away."""
    with Host("tcp", own.address, conftest.MAIN, configuration=0x02) as host:
        assert host.run(nvme.SET_FEATURES, cdw=(TEMPERATURE, value))[0].status == 0
        assert host.event() == 1 | 1 << 8 | 2 << 16
        assert host.get_log(2, 512)[0] == 0x02
        assert host.run(nvme.SET_FEATURES, cdw=(TEMPERATURE, value & UNDER | (0 if value & UNDER else 400)))[0].status == 0
        assert host.get_log(2, 512)[0] == 0


def test_a_host_that_has_not_asked_hears_of_no_temperature(own):
    with Host("tcp", own.address, conftest.MAIN, configuration=0x08) as host:
        assert host.run(nvme.SET_FEATURES, cdw=(TEMPERATURE, 290))[0].status == 0
        host.nothing()


# --- with data ----------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["inline", "write"])
def test_host_behavior_is_kept_but_for_reserved_bytes(own, kind):
    """5.27.1.18"""
    with own.admin() as admin:
        assert get(admin, BEHAVIOR, read=512)[1] == bytes(512)
        data = bytes([1, 1, 1]) + b"\xff" * 509
        assert put(admin, BEHAVIOR, **{kind: data}).status == 0
        cqe, back = get(admin, BEHAVIOR, read=512)
        assert cqe.status == 0 and back == bytes([1, 1, 1]) + bytes(509)
        assert get(admin, BEHAVIOR, read=512, sel=DEFAULT)[1] == bytes(512)
        cqe, data = get(admin, BEHAVIOR, sel=SUPPORTED)
        assert cqe.dw0 == CHANGEABLE and not data


@pytest.mark.parametrize("at", [0, 1, 2])
def test_host_behavior_that_is_reserved_is_refused(own, at):
    with own.admin() as admin:
        data = bytearray(512)
        data[at] = 2
        assert put(admin, BEHAVIOR, inline=bytes(data)).status == nvme.INVALID_FIELD
        assert get(admin, BEHAVIOR, read=512)[1] == bytes(512)


@pytest.mark.parametrize("length", [0, 511, 508])
def test_host_behavior_that_is_too_short_is_refused(own, length):
    with own.admin() as admin:
        assert put(admin, BEHAVIOR, inline=bytes(length)).status == nvme.SGL_LENGTH_INVALID
        assert get(admin, BEHAVIOR, read=length)[0].status == nvme.SGL_LENGTH_INVALID


def timestamp(admin, sel=CURRENT):
    """Milliseconds, origin, synch."""
    cqe, data = get(admin, TIMESTAMP, sel=sel, read=8)
    assert cqe.status == 0 and cqe.dw0 == 0 and len(data) == 8 and data[7] == 0 and not data[6] & 0xF0
    return int.from_bytes(data[:6], "little"), data[6] >> 1, data[6] & 1


@pytest.mark.parametrize("kind", ["inline", "write"])
def test_timestamp_goes_on_from_what_the_host_has_set(own, kind):
    """5.27.1.11; ONCS says that it is there."""
    with own.admin() as admin, own.admin() as other:
        assert struct.unpack_from("<H", admin.identify(1)[1], 520)[0] & 0x40
        ms, origin, synch = timestamp(admin)
        assert 0 <= ms < 60000 and (origin, synch) == (0, 0), "since the reset"
        limit = time.monotonic() + 20
        while timestamp(admin)[0] < 50:
            assert time.monotonic() < limit, "it stands still"
        value = 1764547200123
        start = time.monotonic()
        assert put(admin, TIMESTAMP, **{kind: value.to_bytes(6, "little") + b"\xff\xff"}).status == 0
        seen = [timestamp(admin)]
        while seen[-1][0] < value + 5:
            assert time.monotonic() < limit, "it stands still"
            seen.append(timestamp(admin))
        assert seen[-1][0] - value <= (time.monotonic() - start) * 1000 + 1, "from then on, in milliseconds"
        assert seen == sorted(seen)
        assert {one[1:] for one in seen} == {(1, 0)}
        assert timestamp(other)[1] == 0, "it is the controller's"
        assert timestamp(admin, DEFAULT) == timestamp(admin, SAVED) == (0, 0, 0)
        assert get(admin, TIMESTAMP, sel=SUPPORTED)[0].dw0 == CHANGEABLE
        assert admin.property_set(nvme.CC, 0).status == 0
        admin.enable()
        ms, origin, synch = timestamp(admin)
        assert 0 <= ms < 60000 and (origin, synch) == (0, 0)


def test_timestamp_wraps_at_48_bits(own):
    with own.admin() as admin:
        assert put(admin, TIMESTAMP, inline=b"\xff" * 6 + bytes(2)).status == 0
        while timestamp(admin)[0] > 60000:
            pass
        assert timestamp(admin)[1] == 1


@pytest.mark.parametrize("length", [0, 7, 6])
def test_timestamp_of_another_length_is_refused(own, length):
    with own.admin() as admin:
        assert put(admin, TIMESTAMP, inline=bytes(length)).status == nvme.SGL_LENGTH_INVALID


def test_host_identifier_is_that_of_connect(target):
    """Base 2.0 5.27.1.25: on fabrics 128 bits, read-only."""
    with target.admin() as admin:
        cqe, data = get(admin, HOST_ID, cdw11=1, read=16)
        assert cqe.status == 0 and data == bytes(range(1, 17))
        assert get(admin, HOST_ID, cdw11=0, read=16)[0].status == nvme.INVALID_FIELD, "figure 365"
        assert put(admin, HOST_ID, 1, write=bytes(16)).status == nvme.SEQUENCE_ERROR


def test_the_host_identifier_cannot_be_changed(own):
    with own.admin() as admin:
        assert get(admin, HOST_ID, sel=SUPPORTED, cdw11=1)[0].dw0 == 0


def test_there_is_one_io_command_set_combination(own):
    """5.27.1.21"""
    with own.admin() as admin:
        assert put(admin, PROFILE, 0).status == 0
        assert put(admin, PROFILE, 1).status == COMBINATION_REJECTED
        assert get(admin, PROFILE)[0].dw0 == 0


# --- the cache, other controllers, other transports ---------------------------------------------

def test_write_cache_is_what_identify_says(own, start_hauld, tmp_path):
    """5.27.1.4: of a file it is there; memory has none, and the feature neither."""
    ram = start_hauld("--listen", "tcp://127.0.0.1:0", "--export", "ram:1M,nqn=nqn.2026-11.io.haul:ram")
    import nvmetcp
    with own.admin() as admin:
        assert admin.identify(1)[1][525] & 1
        assert get(admin, WRITE_CACHE)[0].dw0 == 1
        assert get(admin, WRITE_CACHE, sel=SUPPORTED)[0].dw0 == CHANGEABLE
        for value in (1, 0, 0, 1, 0):
            assert put(admin, WRITE_CACHE, value).status == 0
            assert get(admin, WRITE_CACHE)[0].dw0 == value
            assert get(admin, WRITE_CACHE, sel=DEFAULT)[0].dw0 == 1
        assert admin.property_set(nvme.CC, 0).status == 0
        admin.enable()
        assert get(admin, WRITE_CACHE)[0].dw0 == 1
    with nvmetcp.Admin(ram.address, "nqn.2026-11.io.haul:ram") as admin:
        assert not admin.identify(1)[1][525] & 1
        assert get(admin, WRITE_CACHE)[0].status == nvme.INVALID_FIELD
        assert put(admin, WRITE_CACHE, 1).status == nvme.INVALID_FIELD


def test_discovery_controllers_have_two_features(own):
    """Base 2.0 3.1.2.3.5"""
    with own.admin(nvme.DISCOVERY_NQN) as admin:
        for fid in range(256):
            expect = 0 if fid in (ASYNC_EVENT, KEEP_ALIVE) else nvme.INVALID_FIELD
            assert get(admin, fid, cdw11=1 if fid == HOST_ID else 0)[0].status == expect, hex(fid)
            if expect:
                assert put(admin, fid).status == expect, hex(fid)


def test_features_over_rdma(tmp_path):
    path = conftest.config(tmp_path)
    path.write_text(path.read_text().replace("listen:\n", "listen:\n  - rdma://127.0.0.1:0\n"))
    hauld = conftest.Hauld(tmp_path, "--config", str(path), "--threads", "2", env=conftest.rdma_environment())
    address = hauld.address_of("rdma")
    with Host("rdma", address, conftest.MAIN, configuration=0x02) as host:
        assert host.run(nvme.GET_FEATURES, cdw=(BEHAVIOR,), read=512)[1] == bytes(512)
        assert host.run(nvme.GET_FEATURES, cdw=(TEMPERATURE,))[0].dw0 == 343
        assert host.run(nvme.SET_FEATURES, cdw=(TEMPERATURE, 290))[0].status == 0
        assert host.event() == 1 | 1 << 8 | 2 << 16
    assert hauld.stop() == 0, hauld.log_path.read_text()

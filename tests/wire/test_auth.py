# SPDX-License-Identifier: MIT
"""In-band authentication (NVMe base 2.0 8.13), over TCP and RDMA, by a host in Python."""
import os
import struct

import auth
import conftest
import fabric
import nvme
import nvmerdma
import nvmetcp
import pytest
from auth import Failure, Host, secret
from control import Control, haulctl, wait_for

NQN = "nqn.2026-11.io.haul:proof"
HOST = "nqn.2026-11.io.haul:host"
FREE = "nqn.2026-11.io.haul:free"       # a host without a key
KEY = secret(bytes(range(32)), 1)
CTRL_KEY = secret(bytes(range(100, 164)), 3)
OTHER_KEY = secret(bytes(range(32)), 2)


def config(*lines, key="host.key", options=""):
    text = f"""listen: ["tcp://127.0.0.1:0{options}", "rdma://127.0.0.1:0{options}"]
subsystems:
  - nqn: {NQN}
    allow: [{HOST}, {FREE}]
    hosts:
      - nqn: {HOST}
        dhchap_key: {key}
"""
    return text + "".join(f"        {line}\n" for line in lines) + "    namespaces:\n      - ram: 1M\n"


class Running:
    def __init__(self, hauld, directory):
        self.hauld, self.directory, self.open, self.controls = hauld, directory, [], []

    @property
    def control(self):
        """A new one: hauld waits ten seconds for a request."""
        self.controls.append(Control(self.hauld.control))
        return self.controls[-1]

    def close(self):
        for one in self.open + self.controls:
            one.close()

    def address(self, kind):
        return conftest.split_uri(next(uri for uri in self.hauld.uris if uri.startswith(kind)))

    def admin(self, kind, hostnqn=HOST, **kw):
        module = nvmerdma if kind == "rdma" else nvmetcp
        queue = module.Admin(self.address(kind), NQN, hostnqn=hostnqn, enable=False, **kw)
        self.open.append(queue)
        return queue

    def host(self, queue, key=KEY, **kw):
        return Host(queue, key=key, hostnqn=HOST, subnqn=NQN, **kw)

    def ready(self, kind, **kw):
        """An admin queue that has proved itself, with an enabled controller."""
        admin = self.admin(kind)
        self.host(admin, **kw).run()
        admin.enable()
        return admin

    def io_queue(self, admin, qid=1, **kw):
        queue = admin.io_queue(qid, **kw)
        self.open.append(queue)
        return queue

    def log(self):
        return self.hauld.log_path.read_text()

    def change(self, text):
        return self.control.change(text, directory=str(self.directory))


@pytest.fixture
def start(start_hauld, tmp_path):
    started = []

    def go(*lines, options="", **kw):
        for name, text in (("host.key", KEY), ("ctrl.key", CTRL_KEY), ("other.key", OTHER_KEY)):
            (tmp_path / name).write_text(text + "\n")
            (tmp_path / name).chmod(0o600)
        path = tmp_path / "hauld.conf"
        path.write_text(config(*lines, options=options))
        started.append(Running(start_hauld("--config", str(path), "--threads", "2", env=conftest.rdma_environment(), **kw),
                               tmp_path))
        return started[-1]
    yield go
    for running in started:
        running.close()


@pytest.fixture
def running(start):
    return start("dhchap_ctrl_key: ctrl.key")


@pytest.fixture(params=["tcp", "rdma"])
def kind(request):
    return request.param


def read(queue):
    return queue.command(nvme.READ, nsid=1, cdw=nvme.rw_cdw(0, 1), read=512)[0].status


def refusal(host, *steps):
    """What Failure1 says after the steps; then the connection ends."""
    with pytest.raises(Failure) as failure:
        for step in steps:
            step()
        host.receive()
    assert failure.value.t_id == host.t_id
    host.queue.expect_end()
    return failure.value.why


# --- as it should be ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("both_ways", [False, True])
def test_a_queue_serves_when_its_host_has_proved_itself(running, kind, both_ways):
    """8.13.5"""
    ctrl_key = CTRL_KEY if both_ways else None
    admin = running.admin(kind)
    host = running.host(admin, ctrl_key=ctrl_key).run()
    assert (host.hash, host.group) == (3, 5)     # the strongest
    admin.enable()
    assert admin.identify(1)[0].status == 0
    queue = running.io_queue(admin)
    assert read(queue) == auth.AUTH_REQUIRED
    running.host(queue, ctrl_key=ctrl_key, groups=[1]).run()
    assert read(queue) == 0
    assert running.log().count("refused") == 0


@pytest.mark.parametrize("hash_id", [1, 2, 3])
@pytest.mark.parametrize("group", [0, 1, 2, 3, 4, 5])
def test_each_hash_and_group_is_known(running, hash_id, group):
    """8.13.5.1"""
    host = running.host(running.admin("tcp"), ctrl_key=CTRL_KEY, hashes=[hash_id], groups=[group]).run()
    assert (host.hash, host.group) == (hash_id, group)


def test_messages_come_in_the_capsule_or_are_fetched(running, kind):
    """6.2"""
    admin = running.admin(kind)
    for way in ("inline", "fetched"):
        host = running.host(admin, groups=[5])
        message = host.negotiate_message()
        host.send(message, **{way: message})
        host.challenged()
        message = host.reply_message()
        host.send(message, **{way: message})
        host.succeeded()
        admin.enable() if way == "inline" else None
    assert admin.identify(1)[0].status == 0


def test_little_room_in_capsules_is_enough(start, kind):
    """TCP 3.3.2.1: fabrics commands bring 8 KiB in any case, and Linux does so; over RDMA hosts keep to IOCCSZ."""
    running = start(options="?in_capsule=0")
    admin = running.ready(kind, groups=[0])
    queue = running.io_queue(admin)
    host = running.host(queue, groups=[5])
    host.negotiate()
    host.challenged()
    message = host.reply_message()
    host.send(message, **{"inline" if kind == "tcp" else "fetched": message})
    host.succeeded()
    assert read(queue) == 0


def test_challenges_differ_and_are_numbered(running):
    """8.13.5.3"""
    admin = running.admin("tcp")
    hosts = [running.host(admin, t_id=t_id).run() for t_id in (1, 2)]
    assert hosts[0].c1 != hosts[1].c1 and hosts[0].shared != hosts[1].shared
    assert hosts[1].s1 == hosts[0].s1 % 0xFFFFFFFF + 1


def test_connect_tells_who_must_prove_himself(running, kind):
    """6.3: AUTHREQ"""
    module = nvmerdma if kind == "rdma" else nvmetcp
    for hostnqn, wanted in ((HOST, auth.ATR), (FREE, 0)):
        queue = module.Queue(running.address(kind))
        cqe = queue.connect(subnqn=NQN, hostnqn=hostnqn)
        assert (cqe.status, cqe.dw0 & 0xFFFF0000) == (0, wanted)
        queue.close()


def test_who_has_no_key_proves_nothing(running, kind):
    admin = running.admin(kind, FREE)
    admin.enable()
    host = running.host(admin)
    assert host.send_cqe(host.negotiate_message()).status == nvme.INVALID_OPCODE
    assert host.receive_cqe()[0].status == nvme.INVALID_OPCODE
    assert admin.identify(1)[0].status == 0


def test_discovery_wants_no_proof(running):
    with nvmetcp.Admin(conftest.split_uri(running.hauld.uris[0]), nvme.DISCOVERY_NQN, hostnqn=HOST) as admin:
        assert admin.get_log(0x70, 1024)[0].status == 0


# --- before ------------------------------------------------------------------------------------------------------------

def everything(queue):
    """The status of each command but authentication."""
    yield queue.property_get(nvme.CAP)[0].status
    yield queue.property_set(nvme.CC, 0x00460001).status
    yield queue.disconnect().status
    for opcode in list(range(0x00, 0x20)) + [0x7C, 0x80, 0x84, 0xC0]:
        yield queue.command(opcode, nsid=1)[0].status
    yield queue.identify(1)[0].status if hasattr(queue, "identify") else read(queue)
    yield queue.connect(subnqn=NQN, hostnqn=HOST).status


def test_nothing_else_is_answered_before_the_proof(running, kind):
    """3.3.2"""
    admin = running.admin(kind)
    assert set(everything(admin)) == {auth.AUTH_REQUIRED}
    host = running.host(admin, ctrl_key=CTRL_KEY)
    for step in (host.negotiate, host.challenged, host.reply, host.succeeded):
        step()
        assert set(everything(admin)) == {auth.AUTH_REQUIRED}
    host.confirm()
    admin.enable()
    queue = running.io_queue(admin)
    assert set(everything(queue)) == {auth.AUTH_REQUIRED}
    running.host(queue, groups=[0]).run()
    assert read(queue) == 0


def test_no_error_log_is_written_by_strangers(running):
    admin = running.ready("tcp", groups=[0])
    queue = running.io_queue(admin)
    assert read(queue) == auth.AUTH_REQUIRED
    cqe, page = admin.get_log(1, 64)
    assert (cqe.status, page[:8]) == (0, bytes(8))


def test_an_io_queue_needs_a_controller_that_is_enabled(running):
    """Hence one whose host has proved itself."""
    admin = running.admin("tcp")
    running.open.append(admin.io_queue(1, expect=nvme.SEQUENCE_ERROR))


def test_a_stranger_does_not_put_a_living_queue_out(running):
    admin = running.ready("tcp", groups=[0])
    queue = running.io_queue(admin)
    running.host(queue, groups=[0]).run()
    running.open.append(admin.io_queue(1, expect=nvme.SEQUENCE_ERROR))
    assert read(queue) == 0


def test_who_dawdles_is_put_out(start_hauld, start):
    running = start()
    text = config() + "patience_s: 1\n"
    running.hauld.path = running.directory / "hasty.conf"
    running.hauld.path.write_text(text)
    hasty = Running(start_hauld("--config", str(running.hauld.path), env=conftest.rdma_environment()), running.directory)
    for steps in range(4):
        admin = hasty.admin("tcp")
        host = hasty.host(admin, groups=[0])
        for step in (host.negotiate, host.challenged, host.reply)[:steps]:
            step()
        admin.expect_end(within=4)
    assert "has not finished its authentication in time" in hasty.log()
    # Who has proved himself before keeps what he has.
    admin = hasty.ready("tcp", groups=[0])
    host = hasty.host(admin, groups=[0])
    host.negotiate()
    wait_for(lambda: hasty.log().count("has not finished its authentication in time") == 5)
    assert host.receive_cqe()[0].status == nvme.SEQUENCE_ERROR
    assert admin.identify(1)[0].status == 0
    hasty.close()


# --- refused -----------------------------------------------------------------------------------------------------------

def test_wrong_key_is_refused(running, kind):
    """8.13.5.4"""
    host = running.host(running.admin(kind), key=OTHER_KEY)
    assert refusal(host, host.negotiate, host.challenged, host.reply) == auth.FAILED
    assert f"host {HOST} is refused at {NQN}: authentication failed" in running.log()
    running.ready(kind, groups=[0])


def test_wrong_controller_key_is_for_the_host_to_see(running, kind):
    """8.13.5.6"""
    admin = running.admin(kind)
    host = running.host(admin, ctrl_key=OTHER_KEY)
    for step in (host.negotiate, host.challenged, host.reply):
        step()
    with pytest.raises(AssertionError):
        host.succeeded()
    host.send(host.header(auth.COMMON, auth.FAILURE2) + bytes([1, auth.FAILED]))
    admin.expect_end()
    assert "does not go on with its authentication" in running.log()


def test_who_asks_a_controller_without_a_key_is_refused(start):
    running = start()
    host = running.host(running.admin("tcp"), ctrl_key=CTRL_KEY)
    assert refusal(host, host.negotiate, host.challenged, host.reply) == auth.FAILED


@pytest.mark.parametrize("dh", ["zero", "one", "prime less one", "prime", "ones"])
def test_values_that_give_the_secret_away_are_refused(running, dh):
    """8.13.5.4"""
    host = running.host(running.admin("tcp"), groups=[1])
    host.negotiate()
    host.challenged()
    p = auth.prime(1)
    value = {"zero": 0, "one": 1, "prime less one": p - 1, "prime": p, "ones": (1 << 2048) - 1}[dh]
    host.dh = value.to_bytes(256, "big")
    host.shared = pow(value, 1, p).to_bytes(256, "big")
    assert refusal(host, host.reply) == auth.PAYLOAD


def test_a_challenge_sent_back_is_refused(running):
    host = running.host(running.admin("tcp"), groups=[0], ctrl_key=CTRL_KEY)
    host.negotiate()
    host.challenged()
    message = bytearray(host.reply_message())
    message[16 + 64:16 + 128] = host.c1
    assert refusal(host, lambda: host.send(bytes(message))) == auth.FAILED


def test_secure_channels_are_refused(running):
    """8.13.4.1: SC_C"""
    for sc_c in (1, 2, 255):
        host = running.host(running.admin("tcp"))
        assert refusal(host, lambda: host.send(host.negotiate_message(sc_c=sc_c))) == auth.CONCAT


def test_what_is_not_good_enough_is_refused(start):
    """8.13.4.1"""
    running = start("dhchap_hashes: [sha384, sha512]", "dhchap_groups: [ffdhe3072, ffdhe2048]")
    for offer, why in (({"hashes": [1]}, auth.NO_HASH), ({"groups": [0, 5]}, auth.NO_GROUP), ({"hashes": [0, 9]}, auth.NO_HASH)):
        host = running.host(running.admin("tcp"), **offer)
        assert refusal(host, host.negotiate) == why
    host = running.host(running.admin("tcp")).run()
    assert (host.hash, host.group) == (3, 2)
    host = running.host(running.admin("tcp"))
    assert refusal(host, lambda: host.send(host.negotiate_message(authid=2))) == auth.PROTOCOL


@pytest.mark.parametrize("cut", [1, 5, 6, 7, 8, 71, 73, 136, 4096])
def test_negotiate_of_another_length_is_refused(running, cut):
    host = running.host(running.admin("tcp"))
    if cut < 6:
        host.t_id = 0      # no message: it has none
    assert refusal(host, lambda: host.send_inline(host.negotiate_message().ljust(cut, b"\0")[:cut])) == auth.PAYLOAD


@pytest.mark.parametrize("more", [-1000, -257, -256, -1, 1, 4])
def test_reply_of_another_length_is_refused(running, more):
    host = running.host(running.admin("tcp"), groups=[1])
    host.negotiate()
    host.challenged()
    message = host.reply_message()
    length = max(6, len(message) + more)
    assert refusal(host, lambda: host.send_inline(message.ljust(length, b"\0")[:length])) == auth.PAYLOAD


def test_another_transaction_is_refused(running):
    """8.13.2: T_ID"""
    host = running.host(running.admin("tcp"), groups=[0])
    host.negotiate()
    host.challenged()
    message = bytearray(host.reply_message())
    message[4] ^= 1
    assert refusal(host, lambda: host.send(bytes(message))) == auth.PAYLOAD


@pytest.mark.parametrize("steps,kind,number", [
    (0, auth.DHCHAP, auth.REPLY), (0, auth.DHCHAP, auth.SUCCESS2), (0, auth.COMMON, auth.FAILURE2),
    (1, auth.DHCHAP, auth.REPLY), (1, auth.DHCHAP, auth.SUCCESS2), (2, auth.DHCHAP, auth.SUCCESS2),
    (2, auth.DHCHAP, auth.CHALLENGE), (2, auth.COMMON, auth.REPLY), (2, 2, auth.REPLY), (2, auth.COMMON, auth.FAILURE1),
    (3, auth.DHCHAP, auth.REPLY), (3, auth.DHCHAP, auth.SUCCESS2), (3, auth.DHCHAP, auth.SUCCESS1)])
def test_messages_out_of_order_are_refused(running, steps, kind, number):
    """8.13.4.2: incorrect protocol message"""
    host = running.host(running.admin("tcp"), groups=[0])
    if not steps:
        host.t_id = 0       # nobody has told it yet
    for step in (host.negotiate, host.challenged, host.reply)[:steps]:
        step()
    assert refusal(host, lambda: host.send(host.header(kind, number) + bytes(10))) == auth.MESSAGE


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_receive_when_nothing_is_due_is_refused(running, steps):
    host = running.host(running.admin("tcp"), groups=[0], ctrl_key=CTRL_KEY)
    if not steps:
        host.t_id = 0
    for step in (host.negotiate, host.challenged, host.reply, host.succeeded)[:steps]:
        step()
    assert refusal(host) == auth.MESSAGE


def test_nothing_is_taken_after_a_failure(running):
    host = running.host(running.admin("tcp"), key=OTHER_KEY, groups=[0])
    for step in (host.negotiate, host.challenged, host.reply):
        step()
    host.key = KEY
    assert host.send_cqe(host.reply_message()).status == nvme.SEQUENCE_ERROR
    assert host.send_cqe(host.negotiate_message()).status == nvme.SEQUENCE_ERROR
    assert refusal(host) == auth.FAILED


def test_a_transaction_may_begin_anew(running):
    """8.13.2: the host may have given up."""
    host = running.host(running.admin("tcp"), groups=[0], ctrl_key=CTRL_KEY)
    steps = (host.negotiate, host.challenged, host.reply, host.succeeded)
    for nr in range(1, 5):
        for step in steps[:nr]:
            step()
        host.t_id += 1
    host.run()
    host.queue.enable()


def test_a_reply_of_before_is_worth_nothing(running):
    host = running.host(running.admin("tcp"), groups=[0])
    host.negotiate()
    host.challenged()
    replay = host.reply_message()
    host.negotiate()
    host.challenged()
    assert refusal(host, lambda: host.send(replay)) == auth.FAILED


@pytest.mark.parametrize("cdw,length", [
    (0xEA << 24 | 0x010100, 72), (0xE9 << 24 | 0x020100, 72), (0xE9 << 24 | 0x010200, 72), (auth.WHAT, 0),
    (auth.WHAT, (64 << 10) + 1), (auth.WHAT, 0xFFFFFFFF)])
def test_fields_of_the_commands_are_checked(running, cdw, length):
    """6.1, 6.2"""
    admin = running.admin("tcp")
    data = bytes(min(length, 1 << 17))
    for fctype, how in ((nvme.AUTH_SEND, {"fetched": data}), (nvme.AUTH_RECV, {"read": len(data)})):
        assert admin.command(nvme.FABRICS, nsid=fctype, cdw=(cdw, length), **how)[0].status == nvme.INVALID_FIELD
    running.host(admin, groups=[0]).run()


def test_lengths_of_command_and_sgl_are_one(running):
    host = running.host(running.admin("tcp"), groups=[0])
    for length in (71, 73):
        assert host.send_cqe(host.negotiate_message(), length=length).status == nvme.SGL_LENGTH_INVALID
    host.run()


def test_little_room_is_told_and_nothing_is_lost(running):
    """6.1: AL"""
    host = running.host(running.admin("tcp"), groups=[5], ctrl_key=CTRL_KEY)
    host.negotiate()
    for room in (1, 8, 16, 80, 1103):
        assert host.receive_cqe(room)[0].status == nvme.INVALID_FIELD
    host.challenged(length=1104)
    host.reply()
    assert host.receive_cqe(79)[0].status == nvme.INVALID_FIELD
    host.succeeded()
    host.confirm()
    host.queue.enable()


# --- later -------------------------------------------------------------------------------------------------------------

def test_a_host_may_prove_itself_again(running, kind):
    """8.13.2"""
    admin = running.ready(kind, groups=[0])
    queue = running.io_queue(admin)
    running.host(queue, groups=[0]).run()
    for again in (admin, queue):
        host = running.host(again, groups=[1], ctrl_key=CTRL_KEY, t_id=9)
        for step in (host.negotiate, host.challenged, host.reply, host.succeeded, host.confirm):
            step()
            assert admin.identify(1)[0].status == 0 and read(queue) == 0
    for over in (admin, queue):
        host = running.host(over, groups=[0])
        assert host.send_cqe(host.header(auth.DHCHAP, auth.REPLY) + bytes(10)).status == nvme.SEQUENCE_ERROR
        assert host.receive_cqe()[0].status == nvme.SEQUENCE_ERROR
    assert admin.identify(1)[0].status == 0 and read(queue) == 0


def test_a_host_that_fails_again_is_put_out(running, kind):
    """8.13.2"""
    admin = running.ready(kind, groups=[0])
    queue = running.io_queue(admin)
    running.host(queue, groups=[0]).run()
    host = running.host(queue, key=OTHER_KEY, groups=[0])
    assert refusal(host, host.negotiate, host.challenged, host.reply) == auth.FAILED
    assert admin.identify(1)[0].status == 0
    host = running.host(admin, key=OTHER_KEY, groups=[0])
    assert refusal(host, host.negotiate, host.challenged, host.reply) == auth.FAILED


def test_another_key_counts_from_the_next_proof_on(running, kind):
    """haulctl apply; who is connected notices nothing."""
    admin = running.ready(kind, groups=[0])
    queue = running.io_queue(admin)
    running.host(queue, groups=[0]).run()
    changes = running.change(config("dhchap_ctrl_key: ctrl.key", key="other.key"))
    assert changes == [f"~ authentication of host {HOST} of {NQN}: another key"]
    assert admin.identify(1)[0].status == 0 and read(queue) == 0
    running.host(admin, key=OTHER_KEY, groups=[0]).run()
    assert read(queue) == 0
    host = running.host(running.admin(kind), groups=[0])
    assert refusal(host, host.negotiate, host.challenged, host.reply) == auth.FAILED


def test_a_key_that_goes_and_comes(running):
    admin = running.ready("tcp", groups=[0])
    none = config().replace(config().split("    hosts:\n")[1].split("    namespaces")[0], "").replace("    hosts:\n", "")
    assert running.change(none) == [f"- authentication of host {HOST} of {NQN}"]
    host = running.host(admin, groups=[0])
    assert refusal(host, host.negotiate) == auth.FAILED
    free = running.admin("tcp")
    free.enable()
    assert running.change(config()) == [f"+ authentication of host {HOST} of {NQN}"]
    assert free.identify(1)[0].status == 0
    queue = running.io_queue(free)
    assert read(queue) == auth.AUTH_REQUIRED
    running.ready("tcp", groups=[0])


# --- what is told ------------------------------------------------------------------------------------------------------

def test_secrets_are_told_to_nobody(start):
    running = start(f"dhchap_ctrl_key: \"{CTRL_KEY}\"", "dhchap_groups: [ffdhe3072]")
    running.ready("tcp", ctrl_key=CTRL_KEY)
    host = running.host(running.admin("tcp"), key=OTHER_KEY)
    refusal(host, host.negotiate, host.challenged, host.reply)
    texts = [haulctl(running.hauld.control, "config"), haulctl(running.hauld.control, "status"),
             haulctl(running.hauld.control, "status", "--json")]
    told = "".join(text for _, *both in texts for text in both) + running.log()
    for key in (KEY, CTRL_KEY):
        assert key.split(":")[2][:20] not in told and "DHHC" not in told
    assert f"dhchap_key: {running.directory}/host.key" in texts[0][1]
    assert "dhchap_groups: [ffdhe3072]" in texts[0][1] and "dhchap_hashes" not in texts[0][1]
    assert "# dhchap_ctrl_key:" in texts[0][1]
    status = running.control.status()
    proof = status["subsystems"][0]["authentication"]
    assert proof == [{"host": HOST, "both_ways": True, "hashes": ["sha256", "sha384", "sha512"], "groups": ["ffdhe3072"],
                      "succeeded": 1, "refused": 1}]
    queues = [queue for seen in status["hosts"] for ctrl in seen["controllers"] for queue in ctrl["queues"]]
    assert [queue["authentication"] for queue in queues] == ["sha512 ffdhe3072 both ways"]


def test_many_strangers_hold_up_nobody(running):
    """The control thread's time is shared out: 24 transactions of the largest group, and the status is there."""
    hosts = [running.host(running.admin("tcp"), groups=[5]) for _ in range(24)]
    cids = []
    for host in hosts:
        host.negotiate()
        cids.append(host.queue.start(nvme.FABRICS, nsid=nvme.AUTH_RECV, cdw=(auth.WHAT, 4096), read=4096))
    assert running.control.status()["target"]["pid"]
    for host, cid in zip(hosts, cids):
        assert host.queue.finish(cid)[0].status == 0


def test_who_leaves_in_the_middle_leaves_nothing_behind(running, kind):
    for steps in range(5):
        host = running.host(running.admin(kind), groups=[5], ctrl_key=CTRL_KEY)
        for step in (host.negotiate, host.challenged, host.reply, host.succeeded)[:steps]:
            step()
        if steps == 1:
            host.queue.start(nvme.FABRICS, nsid=nvme.AUTH_RECV, cdw=(auth.WHAT, 4096), read=4096)
        host.queue.close()
        running.open.remove(host.queue)
    control = running.control
    wait_for(lambda: not control.status()["hosts"])


@pytest.mark.parametrize("mode,right", [(0o600, True), (0o400, True), (0o640, True), (0o644, False), (0o660, False),
                                        (0o602, False), (0o601, False)])
def test_files_of_secrets_must_be_private(running, mode, right):
    key = running.directory / "new.key"
    key.write_text(OTHER_KEY)
    key.chmod(mode)
    answer = running.control.apply(config("dhchap_ctrl_key: ctrl.key", key="new.key"), directory=str(running.directory))
    assert ("error" not in answer) == right
    if not right:
        assert f"new.key has mode 0{mode:o}" in answer["error"] and "chmod" in answer["error"]


def test_what_may_be_a_secret_is_not_told(running):
    for key in ("no-such-file", KEY.split(":")[2], "x" * 4000, "missing/host.key"):
        answer = running.control.apply(config(key=key), directory=str(running.directory))
        assert "dhchap_key: is neither a secret" in answer["error"] and key not in answer["error"]
    (running.directory / "folder").mkdir()
    answer = running.control.apply(config(key="folder"), directory=str(running.directory))
    assert "folder is not a regular file" in answer["error"]


@pytest.mark.parametrize("text,why", [
    ("", "is not a secret"), (KEY[:-2], "no ':'"), (KEY + "\n" + KEY, "more than a secret"), (KEY.replace("A", "B", 1), "checksum"),
    ("x" * 4096, "is not a secret"), (KEY + " " * 200 + "x", None)])
def test_files_of_something_else_are_refused(running, text, why):
    key = running.directory / "new.key"
    key.write_text(text)
    key.chmod(0o600)
    answer = running.control.apply(config(key="new.key"), directory=str(running.directory))
    if why:
        assert why in answer["error"] and (not text or text[12:30] not in answer["error"])
        running.ready("tcp", groups=[0])

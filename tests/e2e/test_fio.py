# SPDX-License-Identifier: MIT
"""The fio engine: jobs as users write them. Each verify job asserts that its verify phase has read something."""
import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import NQN, Fio, die_with_parent, environment, fio_engine, wait_for
from test_haul import Silent

MIB = 1 << 20


def verify(fio, target, **options):
    """A write job with verify; returns fio's result after checking that as much was verified as written."""
    settings = {"uri": target.disk, "rw": "randwrite", "verify": "crc32c", "bs": "4k", "iodepth": 16,
                "haul_engine": target.engine, "size": "4m", "io_size": "4m", "verify_fatal": 1, **options}
    done = fio(transport=target.transport, **settings).ok()
    assert done.total("read", "io_bytes") > 0, "nothing was verified\n" + done.text
    return done


# --- jobs ------------------------------------------------------------------------------------------

@pytest.mark.each
@pytest.mark.parametrize("thread", [0, 1])
@pytest.mark.parametrize("iodepth", [1, 32])
def test_verify_as_process_and_thread(fio, target, thread, iodepth):
    done = verify(fio, target, thread=thread, iodepth=iodepth)
    assert done.total("read", "io_bytes") == done.total("write", "io_bytes") == 4 * MIB


@pytest.mark.each
def test_mixed_read_and_write(fio, target):
    done = verify(fio, target, rw="randrw", size="8m", io_size="8m")
    assert done.total("write", "io_bytes") > MIB


def test_time_based_run_ends_in_time(fio, target):
    start = time.monotonic()
    done = fio(uri=target.disk, rw="randread", bs="4k", iodepth=32, time_based=1, runtime=1,
               transport=target.transport).ok()
    assert time.monotonic() - start < 20
    assert done.total("read") > 100


# B145: ends one by one while others run; B142: a mix of processes and threads.
@pytest.mark.each
@pytest.mark.parametrize("thread", [0, 1])
def test_many_jobs_each_with_its_queue(fio, target, thread):
    done = fio(uri=target.disk, rw="randread", bs="4k", iodepth=4, numjobs=8, thread=thread, io_size="256k",
               transport=target.transport).ok()
    assert len(done.json["jobs"]) == 8
    assert done.total("read", "io_bytes") == 8 * 256 * 1024


def once_at_work(running, action, *args):
    """A thread that does it when a job is at its I/O."""
    def act():
        wait_for(running.queues_at_work)
        action(*args)
    thread = threading.Thread(target=act)
    thread.start()
    return thread


# B144: one admin and one I/O connection a job and namespace, no more.
@pytest.mark.parametrize("thread", [0, 1])
def test_connections_are_one_set_a_job(target, tmp_path, thread):
    wait_for(lambda: target.hauld.connections() == 0)
    with subprocess.Popen(["fio", "--name=job", f"--ioengine={fio_engine()}", f"--uri={target.uri}",
                           "--filename=1:2", "--rw=randread", "--time_based", "--runtime=60", "--numjobs=3",
                           f"--thread={thread}"], cwd=tmp_path, env=environment(target.transport, preload=True),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          preexec_fn=die_with_parent) as process:
        wait_for(lambda: target.hauld.queues_at_work() >= 6)
        found = target.hauld.connections()
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=30)[0]
    assert found == 9, text


def test_job_file_with_groups_threads_and_another_engine(fio, target, tmp_path):
    jobfile = tmp_path / "jobs.fio"
    jobfile.write_text(f"""\
[global]
ioengine={fio_engine()}
uri={target.disk}
bs=4k
size=1m
iodepth=8

[writer]
rw=write
verify=crc32c

[thread]
stonewall
new_group
thread=1
rw=randread

[process]
rw=randread
runtime=1

[null]
stonewall
ioengine=null
rw=read
""")
    done = fio(jobfile=jobfile, transport=target.transport).ok()
    assert len(done.json["jobs"]) == 4


def many_ends(fio, tmp_path, uri, engine, **kw):
    lines = ["[global]", f"ioengine={engine}", f"uri={uri}", "rw=randread", "bs=4k", "iodepth=4", "time_based=1"]
    for number in range(16):
        lines += [f"[job{number}]", f"runtime={50 + 37 * number}ms", f"thread={number & 1}", *(
            ["stonewall", "new_group"] if number % 6 == 5 else []), *(["ioengine=null", "size=1m"] if number % 5 == 4 else [])]
    (tmp_path / "jobs.fio").write_text("\n".join(lines) + "\n")
    done = fio(jobfile=tmp_path / "jobs.fio", **kw).ok()
    assert len(done.json["jobs"]) == 16 and all(job["read"]["total_ios"] for job in done.json["jobs"])


# B145: jobs end one after the other, at times of their own, while others run and begin; the engine is found by its path,
# and by its name where libraries are installed.
def test_many_ends_of_jobs(fio, target, tmp_path):
    many_ends(fio, tmp_path, target.disk, fio_engine(), transport=target.transport)


def test_many_ends_of_jobs_whose_engine_has_a_name(fio, hauld, tmp_path):
    running = hauld("--export", f"ram:16M,nqn={NQN}")
    many_ends(fio, tmp_path, f"{running.uri}/{NQN}/1", "fio-haul.so", library=True)


def test_server_mode(target, tmp_path):
    engine, path = fio_engine(), tmp_path / "fio.sock"
    env = environment(target.transport, preload=True)
    with subprocess.Popen(["fio", f"--server=sock:{path}"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, preexec_fn=die_with_parent) as server:
        try:
            deadline = time.monotonic() + 20
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            jobfile = tmp_path / "job.fio"
            jobfile.write_text(f"[job]\nioengine={engine}\nuri={target.disk}\nrw=randwrite\nbs=4k\nsize=1m\n"
                               "verify=crc32c\niodepth=8\n")
            done = Fio(subprocess.run(["fio", f"--client=sock:{path}", str(jobfile)], cwd=tmp_path, env=env,
                                      capture_output=True, text=True, timeout=60))
            assert done.status == 0 and "err= 0" in done.text, done.text
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def test_daemon(target, tmp_path):
    """fio forks once more, before its jobs."""
    engine, output = fio_engine(), tmp_path / "output"
    subprocess.run(["fio", f"--daemonize={tmp_path}/pid", f"--output={output}", "--output-format=json", "--name=job",
                    f"--ioengine={engine}", f"--uri={target.disk}", "--rw=randwrite", "--bs=4k", "--size=1m",
                    "--verify=crc32c", "--iodepth=8", "--verify_state_save=0"], check=True, timeout=60,
                   cwd=tmp_path, env=environment(target.transport, preload=True), stdin=subprocess.DEVNULL,
                   capture_output=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = output.read_text() if output.exists() else ""
        if text.rstrip().endswith("}"):
            break
        time.sleep(0.1)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    assert job["error"] == 0 and job["read"]["io_bytes"] == MIB, text


@pytest.mark.parametrize("thread", [0, 1])
def test_interrupt_ends_jobs_in_order(target, tmp_path, thread):
    with subprocess.Popen(["fio", "--name=job", f"--ioengine={fio_engine()}", f"--uri={target.disk}", "--rw=randread",
                           "--iodepth=16", "--time_based", "--runtime=60", "--numjobs=3", f"--thread={thread}"],
                          cwd=tmp_path, env=environment(target.transport, preload=True), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          preexec_fn=die_with_parent) as process:
        wait_for(lambda: target.hauld.queues_at_work() >= 3)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=30)[0]
    assert text.count("err= 0") == 3, text


# B159: the keep-alive has a queue of its own, so that load does not hold it up.
def test_keep_alive_under_load(fio, target):
    done = fio(uri=target.disk, rw="randrw", bs="128k", iodepth=32, numjobs=2, time_based=1, runtime=2,
               keep_alive=1000, transport=target.transport).ok()
    assert done.total("read") > 0


# The target is to notice within minutes that a job's machine is gone; a job that thinks is not gone.
@pytest.mark.parametrize("options, kato", [
    ((), 120000), (("--thinktime=100s",), 200000), (("--keep_alive=0", "--thinktime=100s"), 0),
    (("--keep_alive=7000",), 7000)])
def test_keep_alive_is_asked_for(tmp_path, options, kato):
    def read(connection, count):
        got = b""
        while len(got) < count:
            piece = connection.recv(count - len(got))
            assert piece, "fio has hung up"
            got += piece
        return got

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        with subprocess.Popen(["fio", "--name=job", f"--ioengine={fio_engine()}", "--rw=read",
                               f"--uri=tcp://127.0.0.1:{server.getsockname()[1]}/{NQN}/1", *options],
                              cwd=tmp_path, env=environment("tcp", preload=True), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              preexec_fn=die_with_parent) as process, server.accept()[0] as connection:
            connection.settimeout(30)
            read(connection, 128)
            connection.sendall(struct.pack("<BBBBIHBBI", 1, 0, 128, 0, 128, 0, 0, 0, 4096).ljust(128, b"\0"))
            connect = read(connection, 72)
            connection.close()
            process.communicate(timeout=30)
    assert connect[8] == 0x7f and connect[8 + 4] == 1, "a fabrics command, Connect"
    assert struct.unpack_from("<I", connect, 8 + 48)[0] == kato


# --- volumes (B144) --------------------------------------------------------------------------------

def test_several_namespaces_of_one_job(fio, target):
    done = verify(fio, target, uri=target.uri, filename="1:2:3", size="3m", io_size="3m", numjobs=2,
                  offset_increment="4m", loops=2, verify_pattern="%o")
    assert done.total("write", "io_bytes") >= 6 * MIB


def test_each_namespace_has_its_own_data(fio, target):
    for nsid in (1, 2):
        fio(uri=f"{target.uri}/{nsid}", rw="write", bs="64k", size="1m", verify="pattern",
            verify_pattern=f"0x{nsid}{nsid}", do_verify=0, transport=target.transport).ok()
    for nsid in (1, 2):
        fio(uri=target.uri, filename=str(nsid), rw="read", bs="64k", size="1m", verify="pattern",
            verify_pattern=f"0x{nsid}{nsid}", transport=target.transport).ok()
    fio(uri=f"{target.uri}/2", rw="read", bs="64k", size="1m", verify="pattern", verify_pattern="0x11",
        transport=target.transport).failed()


def test_names_may_be_whole_addresses(fio, target):
    name = ":".join(f"{target.uri}/{nsid}".replace(":", "\\:") for nsid in (1, 2))
    done = fio(filename=name, rw="randwrite", bs="4k", size="2m", iodepth=8, verify="crc32c",
               transport=target.transport).ok()
    assert done.total("read", "io_bytes") == 2 * MIB


# B151
def test_longest_name_and_ipv6(fio, hauld):
    nqn = "nqn.2014-08.org.example:" + "x" * (223 - 24)
    running = hauld("--export", f"ram:64K,nqn={nqn}", listen="tcp://[::1]:0")
    uri = f"{running.uri}/{nqn}/1"
    for option in ({"uri": uri}, {"filename": uri.replace(":", "\\:")}):
        done = fio(rw="write", bs="4k", verify="crc32c", **option).ok()
        assert done.total("read", "io_bytes") == 64 * 1024


def test_fill_device_writes_all_of_it(fio, disks):
    done = fio(uri=f"{disks}/1", rw="write", bs="4k", fill_device=1).ok()
    assert done.total("write", "io_bytes") == MIB


def test_disk_of_one_block(fio, hauld):
    running = hauld("--export", f"ram:4K,nqn={NQN},block=4096")
    uri = f"{running.uri}/{NQN}/1"
    assert fio(uri=uri, rw="write", bs="4k", verify="crc32c").ok().total("read") == 1
    fio(uri=uri, rw="write", bs="8k").failed()


# --- data that is wrong is found (B154) --------------------------------------------------------------

def test_flipped_byte_is_found(fio, hauld, tmp_path, transport):
    disk = tmp_path / "disk"
    with open(disk, "wb") as file:
        file.truncate(4 * MIB)
    running = hauld("--export", f"{disk},nqn={NQN}", transport=transport)
    options = {"uri": f"{running.uri}/{NQN}/1", "bs": "4k", "verify": "crc32c", "iodepth": 8,
               "transport": transport, "size": "4m"}
    fio(rw="write", do_verify=0, **options).ok()
    fio("--verify_only", rw="write", **options).ok()
    with open(disk, "r+b") as file:
        file.seek(3 * MIB + 1234)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    fio("--verify_only", rw="write", **options).failed("verify")


# --- flush (B148), trim (B149) -----------------------------------------------------------------------

@pytest.mark.parametrize("options, at_least", [({"fsync": 4}, 63), ({"fsync": 1, "iodepth": 16}, 254)])
def test_flush_is_counted_by_fio(fio, target, options, at_least):
    done = fio(uri=target.disk, rw="write", bs="4k", size="1m", transport=target.transport, **options).ok()
    assert sum(job["sync"]["total_ios"] for job in done.json["jobs"]) >= at_least
    assert done.total("write") == 256


@pytest.mark.parametrize("options", [{"fdatasync": 4}, {"end_fsync": 1}, {"sync": 1}])
def test_other_kinds_of_flush_fail_nothing(fio, target, options):
    """fio does not count these."""
    done = fio(uri=target.disk, rw="write", bs="4k", size="1m", transport=target.transport, **options).ok()
    assert done.total("write") == 256


def test_kind_of_sync_that_disks_lack_is_an_error(fio, target):
    fio(uri=target.disk, rw="write", bs="4k", size="1m", sync_file_range="write:4",
        transport=target.transport).failed("not supported")


@pytest.mark.parametrize("options", [{"rw": "trim"}, {"rw": "randtrim"}, {"rw": "trimwrite"}, {"rw": "randtrimwrite"}])
def test_trim(fio, target, options):
    done = fio(uri=target.disk, bs="4k", size="1m", iodepth=8, transport=target.transport, **options).ok()
    job = done.json["jobs"][0]
    assert job["trim"]["total_ios"] > 0
    assert job["trim"]["clat_ns"]["mean"] > 1000


def test_large_trims_need_no_memory(fio, hauld):
    running = hauld("--export", f"null:1T,nqn={NQN}")
    done = fio(uri=f"{running.uri}/{NQN}/1", rw="trim", bs="1g", size="64g", iodepth=64).ok()
    assert done.total("trim", "io_bytes") == 64 << 30


# --- sizes (B150, B151, B155, B157) --------------------------------------------------------------------

@pytest.fixture(scope="module")
def disks(tmp_path_factory):
    from conftest import Hauld
    hauld = Hauld(tmp_path_factory.mktemp("disks"), "--export", f"ram:1M,nqn={NQN},nsid=1",
                  "--export", f"ram:1M,nqn={NQN},nsid=2,block=4096", "--export", f"ram:1M,nqn={NQN},nsid=3,readonly",
                  "--export", f"null:64M,nqn={NQN},nsid=4")
    yield f"{hauld.uri}/{NQN}"
    hauld.stop()


@pytest.mark.parametrize("nsid, options, words", [
    (1, {"bs": 1000}, "bs= of 1000 is not a multiple of the block size 512"),
    (1, {"bsrange": "256-8k"}, "bs= of 256"),
    (1, {"bssplit": "4k/50:4608/40:4700/10"}, "4700"),
    (1, {"ba": 100, "bs": 512}, "blockalign= of 100"),
    (1, {"offset": 100}, "offset= of 100"),
    (1, {"rw": "write:3000"}, "3000"),
    (1, {"size": "2m"}, "beyond the end"),
    (1, {"offset": "512k", "size": "1m"}, "beyond the end"),
    (2, {"bs": 512}, "block size 4096"),
    (2, {"bsrange": "512-8k"}, "block size 4096"),
    (3, {"rw": "write"}, "read-only"),
    (9, {}, "namespace 9"),
])
def test_what_the_disk_cannot_do_is_refused_before_io(fio, disks, nsid, options, words):
    done = fio(uri=f"{disks}/{nsid}", **{"rw": "randread", **options}).failed(words)
    if done.json:
        assert done.total("read") == done.total("write") == 0


@pytest.mark.parametrize("nsid, options, size", [
    (1, {}, MIB), (1, {"bs": 512}, MIB), (1, {"bsrange": "512-8k"}, MIB), (1, {"size": "50%"}, MIB // 2),
    (1, {"offset": "90%"}, None), (1, {"bssplit": "4k/50:4608/50", "norandommap": 1}, None),
    (1, {"io_size": "3m"}, 3 * MIB), (2, {}, MIB), (2, {"bs": "8k", "rw": "read"}, MIB), (3, {}, MIB),
    (1, {"size": 10240, "rw": "read", "bs": 1024}, 10240),
])
def test_sizes_come_from_the_disk(fio, disks, nsid, options, size):
    done = fio(uri=f"{disks}/{nsid}", **{"rw": "randread", "iodepth": 4, **options}).ok()
    if size is not None:
        assert done.total("read", "io_bytes") == size
    assert done.total("read") > 0


@pytest.mark.each
@pytest.mark.parametrize("bs, iodepth", [("4k", 1024), ("128k", 256), ("1m", 64), ("2052k", 16), ("16m", 4), ("16m", 1)])
def test_large_blocks_at_large_depths(fio, target, bs, iodepth):
    if target.transport == "rdma" and iodepth > 256:
        iodepth = 256
    done = fio(uri=target.disk, rw="randread", bs=bs, iodepth=iodepth, io_size="64m",
               transport=target.transport, timeout=300).ok()
    assert done.total("read", "io_bytes") > 0


@pytest.mark.parametrize("iomem", ["malloc", "shm", "mmap", "mmapshared"])
@pytest.mark.parametrize("options", [{}, {"iomem_align": 512}, {"iomem_align": "2m"}, {"bs": "2052k", "iodepth": 2}])
def test_buffers_of_all_kinds(fio, target, iomem, options):
    verify(fio, target, **{"iomem": iomem, "size": "8m", "io_size": "8m", "bs": "64k", "iodepth": 4, **options})


# B007: a command more than the queue holds would end the association.
@pytest.mark.parametrize("queue_depth, iodepth", [(1, 1), (2, 1), (2, 2), (16, 15), (16, 16), (128, 127), (128, 128)])
def test_a_queue_is_used_to_its_depth_and_no_further(fio, target, queue_depth, iodepth):
    done = fio(uri=target.disk, rw="randread", bs="4k", iodepth=iodepth, queue_depth=queue_depth, io_size="4m",
               iodepth_batch_submit=iodepth, transport=target.transport).ok()
    assert done.total("read", "io_bytes") == 4 * MIB and "iodepth is" not in done.text
    level = str(1 << iodepth.bit_length() - 1) if iodepth < 64 else ">=64"
    assert done.json["jobs"][0]["iodepth_level"][level] > 0, done.text


def free_huge_pages():
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"HugePages_Free: +(\d+)", file.read() + "HugePages_Free: 0").group(1))


@pytest.mark.parametrize("iomem", ["mmaphuge", "shmhuge"])
@pytest.mark.parametrize("options", [{}, {"bs": "2052k", "iodepth": 2, "size": "8208k", "io_size": "8208k"}, {"thread": 1}])
def test_buffers_in_huge_pages(fio, target, iomem, options):
    if free_huge_pages() < 8:
        pytest.skip(f"{free_huge_pages()} huge pages are free, of 8 that are needed (sysctl vm.nr_hugepages)")
    verify(fio, target, **{"iomem": iomem, "bs": "64k", "iodepth": 4, **options})


def test_smaller_queue_than_depth_is_said_and_works(fio, target):
    done = fio(uri=target.disk, rw="randwrite", bs="4k", iodepth=32, queue_depth=4, size="1m", verify="crc32c",
               transport=target.transport).ok()
    assert "iodepth is 4, not 32" in done.text
    assert done.total("read", "io_bytes") == MIB


# --- numbers (B158) ----------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [{}, {"iodepth_batch": 16}, {"iodepth_batch": 8, "iodepth_batch_complete_min": 4,
                                          "iodepth_batch_complete_max": 16}, {"iodepth_low": 4}, {"rate_iops": 2000}])
def test_latencies_add_up(fio, target, options):
    done = fio(uri=target.disk, rw="randread", bs="4k", iodepth=16, io_size="2m", transport=target.transport,
               **options).ok()
    read = done.json["jobs"][0]["read"]
    assert read["total_ios"] == read["clat_ns"]["N"] == read["slat_ns"]["N"] == 512
    assert 0 < read["clat_ns"]["min"] and read["clat_ns"]["max"] < 60e9 and read["slat_ns"]["max"] < 60e9
    assert read["lat_ns"]["mean"] == pytest.approx(read["slat_ns"]["mean"] + read["clat_ns"]["mean"], rel=0.05)


# --- errors (B152), dead targets ------------------------------------------------------------------------

@pytest.fixture
def broken_disk(hauld, tmp_path):
    """A disk whose second half is gone: its file was cut."""
    disk = tmp_path / "disk"
    with open(disk, "wb") as file:
        file.write(bytes(MIB))
    running = hauld("--export", f"{disk},nqn={NQN}")
    os.truncate(disk, MIB // 2)
    return f"{running.uri}/{NQN}/1"


def test_status_is_an_error_with_a_text(fio, broken_disk):
    done = fio(uri=broken_disk, rw="read", bs="4k").failed("NVMe status")
    assert "Unknown error" not in done.text
    assert done.json["jobs"][0]["error"] == errno.EIO


def test_errors_may_be_ignored_and_are_counted(fio, broken_disk):
    done = fio(uri=broken_disk, rw="read", bs="4k", continue_on_error="all", iodepth=8)
    assert done.json["jobs"][0]["total_err"] == 128, done.text


@pytest.mark.each
@pytest.mark.parametrize("rw", ["randread", "randwrite"])
def test_target_that_dies_ends_the_job(fio, hauld, transport, rw):
    running = hauld("--export", f"ram:16M,nqn={NQN}", transport=transport)
    killer = once_at_work(running, running.kill)
    start = time.monotonic()
    done = fio(uri=f"{running.uri}/{NQN}/1", rw=rw, bs="4k", iodepth=16, time_based=1, runtime=60, command_timeout=5000,
               transport=transport)
    killer.join()
    done.failed()
    assert time.monotonic() - start < 30
    assert "Unknown error" not in done.text
    assert len(re.findall(r"^fio-haul: .*(connection|disconnected)", done.text, re.M)) == 1, done.text


def test_target_that_stops_answering_ends_the_job(fio, hauld):
    running = hauld("--export", f"ram:16M,nqn={NQN}")
    stopper = once_at_work(running, running.process.send_signal, signal.SIGSTOP)
    start = time.monotonic()
    try:
        fio(command_timeout=1500, uri=f"{running.uri}/{NQN}/1", rw="randread", bs="4k", iodepth=16, time_based=1,
            runtime=60).failed()
    finally:
        stopper.join()
        running.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - start < 30


def test_nobody_there_ends_the_job(fio):
    fio(uri=f"tcp://127.0.0.1:1/{NQN}/1", rw="read").failed("refused")


def test_silent_target_ends_the_job(fio):
    silent = Silent()
    start = time.monotonic()
    fio(uri=silent.uri + "/1", rw="read", connect_timeout=1000).failed("no answer within 1000 ms")
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("options, words", [
    ({}, "uri= is missing"),
    ({"uri": "http://127.0.0.1"}, "tcp://"),
    ({"filename": "disk"}, "neither a URI"),
    ({"filename": "1"}, "uri= is missing"),
    ({"uri": "tcp://127.0.0.1", "nrfiles": 2}, "nrfiles"),
    ({"uri": "tcp://127.0.0.1", "haul_engine": "kqueue"}, "haul_engine= is"),
    ({"uri": "tcp://127.0.0.1", "hostnqn": "me"}, "host NQN"),
])
def test_wrong_options_are_said(fio, options, words):
    fio(rw="read", **options).failed(words)

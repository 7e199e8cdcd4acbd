# SPDX-License-Identifier: MIT
"""The fio engine against a target that does as a test says: what reaches the target, and what its answers become."""
import errno
import os
import re
import statistics
import subprocess

import pytest

from conftest import NQN, die_with_parent, environment, fio_engine
from scripted import Scripted

MIB = 1 << 20
DELAY_MS = 50


@pytest.fixture
def scripted():
    """Starts targets: scripted(option=value...)."""
    running = []

    def start(**options):
        running.append(Scripted(NQN, **options))
        return running[-1]

    yield start
    for target in running:
        target.close()


def run_jobs(fio, tmp_path, jobs, together=True):
    """One fio for all of them, as each fio takes its time to start: JOBS is a dictionary of a name's target and
    options. Returns fio's result, and the JSON of each job by its name."""
    lines = ["[global]", f"ioengine={fio_engine()}", "verify_state_save=0", *([] if together else ["stonewall"])]
    for name, (target, options) in jobs.items():
        uri = target.uri if "filename" in options else target.uri + "/1"
        lines += [f"[{name}]", f"uri={uri}", *(f"{key}={value}" for key, value in options.items())]
    jobfile = tmp_path / "jobs.fio"
    jobfile.write_text("\n".join(lines) + "\n")
    done = fio(jobfile=jobfile)
    assert done.json, done.text
    return done, {name: [job for job in done.json["jobs"] if job["jobname"] == name] for name in jobs}


def named(table):
    """By a name that fio takes: a letter and the number in the table."""
    return {f"job{number}": options for number, options in enumerate(table)}




# --- flush (B148) --------------------------------------------------------------------------------------

def test_every_flush_reaches_the_target(fio, scripted, tmp_path):
    """Options; how many flushes fio sends for 64 writes, mostly none after the last of them; whether fio counts them."""
    table = named([({"fsync": 4}, 15, True), ({"fsync": 1, "iodepth": 16}, 63, True), ({"fdatasync": 4}, 15, False),
                   ({"end_fsync": 1}, 1, False), ({"fsync_on_close": 1}, 1, False),
                   ({"fsync": 4, "end_fsync": 1}, 16, False), ({"sync": 1}, 0, False), ({}, 0, False)])
    jobs = {name: (scripted(), {"rw": "write", "bs": "4k", "size": "256k", **options})
            for name, (options, _, _) in table.items()}
    done, found = run_jobs(fio, tmp_path, jobs)
    done.ok()
    for name, (options, flushes, counted) in table.items():
        target = jobs[name][0]
        assert target.count("flush", nsid=1) == target.count("flush"), options
        assert target.count("flush") in (flushes, flushes + (counted and options["fsync"] == 1)), options
        assert not counted or found[name][0]["sync"]["total_ios"] == target.count("flush"), options
        assert target.count("write", fua="sync" in options) == target.count("write") == 64, options


def test_a_flush_that_fails_fails_the_job(fio, scripted, tmp_path):
    jobs = {name: (scripted(), {"rw": "write", "bs": "4k", "size": "256k", **options}) for name, options in named([
        {"fsync": 4}, {"fdatasync": 4}, {"fsync": 1, "iodepth": 16}, {"end_fsync": 1}, {"thread": 1, "fsync": 8}]).items()}
    for target, _ in jobs.values():
        target.status_of = lambda command, number: 0x4280 if command.what == "flush" else 0
    done, found = run_jobs(fio, tmp_path, jobs)
    done.failed()
    for name, (target, options) in jobs.items():
        assert found[name][0]["error"] == errno.EIO, options
        assert done.text.count(f"fio-haul: {name}: Flush: NVMe status 280h: Write Fault") == target.count("flush"), options
        assert target.count("write") < 64 or "end_fsync" in options, options


def test_flushes_that_fail_may_be_passed_over(fio, scripted):
    target = scripted()
    target.status_of = lambda command, number: 0x280 if command.what == "flush" else 0
    done = fio(uri=target.uri + "/1", rw="write", bs="4k", size="256k", fsync=4, continue_on_error="all")
    assert target.count("write") == 64 and done.json["jobs"][0]["total_err"] == target.count("flush") == 15, done.text


# --- trim (B149) ----------------------------------------------------------------------------------------

def test_the_target_gets_just_the_ranges(fio, scripted, tmp_path):
    jobs = {name: (scripted(), {"bs": "4k", "size": "256k", **options}) for name, options in named([
        {"rw": "trim"}, {"rw": "randtrim"}, {"rw": "randtrim", "iodepth": 16}, {"rw": "trim", "bs": "512"},
        {"rw": "trim", "bs": "1m", "size": "4m"}, {"rw": "randtrim", "bsrange": "4k-64k"},
        {"rw": "trim", "offset": "1m", "filename": "2"}]).items()}
    done, found = run_jobs(fio, tmp_path, jobs)
    done.ok()
    for name, (target, options) in jobs.items():
        trim = found[name][0]["trim"]
        ranges = sorted(target.ranges("dsm", nsid=int(options.get("filename", 1))))
        assert trim["total_ios"] == len(ranges) == len(target.commands), options
        end = start = MIB if "offset" in options else 0
        for first, length in ranges:
            assert first == end, f"{options}: a gap, or one range twice"
            end += length
        assert end - start == trim["io_bytes"] == (4 * MIB if options["size"] == "4m" else 256 << 10), options


@pytest.mark.parametrize("options", [{}, {"verify": "crc32c"}])
def test_what_is_written_has_been_trimmed(fio, scripted, tmp_path, options):
    jobs = {rw: (scripted(), {"rw": rw, "bs": "4k", "size": "256k", **options}) for rw in ("trimwrite", "randtrimwrite")}
    done, found = run_jobs(fio, tmp_path, jobs)
    done.ok()
    for rw, (target, _) in jobs.items():
        orders = [(command.what, command.ranges) for command in target.commands if command.what != "read"]
        assert found[rw][0]["trim"]["total_ios"] == found[rw][0]["write"]["total_ios"] == len(orders) // 2 > 0
        assert [what for what, _ in orders] == ["dsm", "write"] * (len(orders) // 2)
        assert all(orders[at][1] == orders[at + 1][1] for at in range(0, len(orders), 2))
        assert target.count("read") == (len(orders) // 2 if options else 0)


@pytest.mark.parametrize("keeps", [False, True])
def test_trim_with_verify_sees_what_is_left_there(fio, scripted, keeps):
    """KEEPS: the target calls it done and does nothing, which is found out."""
    target = scripted()
    if keeps:
        execute = target.execute
        target.execute = lambda command, data: b"" if command.what == "dsm" else execute(command, data)
    done = fio(uri=target.uri + "/1", rw="randtrimwrite", bs="4k", size="1m", verify="crc32c", trim_percentage=50,
               trim_verify_zero=1, trim_backlog=16, verify_backlog=64)
    assert target.count("dsm") > target.count("write") > 0 and target.count("read") > 0
    if keeps:
        done.failed("trim: verify failed")
    else:
        done.ok()


@pytest.mark.parametrize("disk, options, words", [
    ({"oncs": 0}, {"rw": "trim"}, "cannot trim"), ({"oncs": 0}, {"rw": "randtrimwrite"}, "cannot trim"),
    ({}, {"rw": "randwrite", "verify": "crc32c", "trim_percentage": 50, "trim_backlog": 16}, "needs a job that trims"),
])
def test_trims_that_cannot_be_are_refused_before_io(fio, scripted, disk, options, words):
    target = scripted(**disk)
    fio(uri=target.uri + "/1", bs="4k", size="256k", **options).failed(words)
    assert not target.commands


def test_trims_take_the_time_they_take(fio, scripted):
    target = scripted(delay=DELAY_MS / 1000)
    done = fio(uri=target.uri + "/1", rw="randtrim", bs="4k", size="64k", iodepth=4).ok()
    assert done.json["jobs"][0]["trim"]["clat_ns"]["min"] >= DELAY_MS * 1e6


def test_memory_of_both_sides_stays_flat_with_large_trims(hauld, tmp_path):
    running = hauld("--export", f"null:1T,nqn={NQN}")
    peaks = []
    for bs, depth, size in (("4k", 1, "64k"), ("1g", 64, "256g")):
        command = ["fio", "--name=job", "--thread", f"--ioengine={fio_engine()}", f"--uri={running.uri}/{NQN}/1",
                   "--rw=trim", f"--bs={bs}", f"--size={size}", f"--iodepth={depth}"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment("tcp", preload=True), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, preexec_fn=die_with_parent) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        with open(f"/proc/{running.process.pid}/status", encoding="ascii") as file:
            peaks.append((usage.ru_maxrss, int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))))
    assert all(large < small + (16 << 10) for small, large in zip(*peaks)), f"KiB of fio and hauld: {peaks}"


# --- every status is an error with a text (B152) -----------------------------------------------------------

STATUSES = {
    0x001: "Invalid Command Opcode", 0x002: "Invalid Field in Command", 0x004: "Data Transfer Error",
    0x006: "Internal Error", 0x007: "Command Abort Requested", 0x008: "Command Aborted due to SQ Deletion",
    0x00B: "Invalid Namespace or Format", 0x00C: "Command Sequence Error", 0x00F: "Data SGL Length Invalid",
    0x020: "Namespace is Write Protected", 0x021: "Command Interrupted", 0x022: "Transient Transport Error",
    0x080: "LBA Out of Range", 0x081: "Capacity Exceeded", 0x082: "Namespace Not Ready",
    0x083: "Reservation Conflict", 0x182: "Attempted Write to Read Only Range", 0x280: "Write Fault",
    0x281: "Unrecovered Read Error", 0x282: "End-to-end Guard Check Error", 0x285: "Compare Failure",
    0x286: "Access Denied", 0x287: "Deallocated or Unwritten Logical Block", 0x300: "Internal Path Error",
    0x302: "Asymmetric Access Inaccessible", 0x370: "Host Pathing Error", 0x371: "Command Aborted By Host",
    0x07F: "unknown generic status", 0x1BF: "unknown command specific status", 0x2BF: "unknown media error",
    0x37F: "unknown path error", 0x47F: "status of a reserved type", 0x7C1: "vendor specific status",
}


def test_any_status_ends_the_job_with_its_text(fio, scripted, tmp_path):
    """The 100th of 256 I/Os fails; reads and writes take turns in this table. Do Not Retry and More change nothing."""
    jobs = {f"status{status:03x}": (scripted(), {"rw": "read" if status & 1 else "write", "bs": "4k", "size": "1m"})
            for status in STATUSES}
    for status, (target, _) in zip(STATUSES, jobs.values()):
        target.status_of = lambda command, number, status=status: status | 0x6000 * (status & 1) if number == 100 else 0
    done, found = run_jobs(fio, tmp_path, jobs)
    done.failed()
    assert "Unknown error" not in done.text
    for (status, text), (name, (target, options)) in zip(STATUSES.items(), jobs.items()):
        assert re.search(rf"^fio: haul: NVMe status {status:03x}h: .*{text}$", done.text, re.M), done.text
        job = found[name][0]
        assert job["error"] == errno.EIO and job[options["rw"]]["total_ios"] in (99, 100), job
        assert target.count(options["rw"]) == 100


def test_passed_over_errors_are_counted_and_the_job_goes_on(fio, scripted, tmp_path):
    table = named([(status, options) for status in (0x080, 0x022, 0x281, 0x300) for options in (
        {"continue_on_error": "all"}, {"continue_on_error": "io"}, {"ignore_error": "EIO,EIO,EIO"})])
    jobs = {name: (scripted(), {"rw": "randread", "bs": "4k", "size": "1m", "iodepth": 8, **options})
            for name, (_, options) in table.items()}
    for name, (status, _) in table.items():
        jobs[name][0].status_of = lambda command, number, status=status: 0 if number % 10 else status
    done, found = run_jobs(fio, tmp_path, jobs)
    assert done.status == 0, done.text
    for name, (status, options) in table.items():
        job = found[name][0]
        assert jobs[name][0].count("read") == 256 and job["total_err"] == 25, f"{status:03x}h {options}: {job}"


# --- each kind of verify job finds one wrong byte (B154) -----------------------------------------------------

KINDS = named([
    {"rw": "write"}, {"rw": "randwrite"}, {"rw": "randwrite", "iodepth": 32}, {"rw": "randrw"}, {"rw": "rw"},
    {"rw": "randwrite", "thread": 1}, {"rw": "randwrite", "bs": "64k"}, {"rw": "randwrite", "bsrange": "512-16k"},
    {"rw": "write", "verify": "md5"}, {"rw": "write", "verify": "sha256"}, {"rw": "write", "verify": "xxhash"},
    {"rw": "write", "verify": "pattern", "verify_pattern": "0xdeadbeef"}, {"rw": "randwrite", "verify_async": 2},
    {"rw": "randwrite", "verify_backlog": 16}, {"rw": "write", "verify_interval": 512},
    {"rw": "randwrite", "numjobs": 2, "offset_increment": "512k", "size": "512k"},
    {"rw": "randwrite", "filename": "1:2"}, {"rw": "write", "loops": 2},
    {"rw": "randwrite", "serialize_overlap": 1, "norandommap": 1, "iodepth": 16, "randrepeat": 0, "io_size": "4m"},
    # Verifies while it runs: after its time there would be no reading any more.
    {"rw": "randwrite", "time_based": 1, "runtime": 3, "verify_backlog": 64},
])


def flip(target, at):
    """Reads of the byte AT see it with one bit changed."""
    def spoil(command, data):
        first = command.ranges[0][0] * target.block
        if not first <= at < first + len(data):
            return data
        return data[:at - first] + bytes([data[at - first] ^ 0x10]) + data[at - first + 1:]

    target.spoil = spoil


@pytest.mark.parametrize("flipped", [False, True])
def test_each_kind_of_job_finds_one_wrong_byte(fio, scripted, tmp_path, flipped):
    # Without verify_fatal this fio forgets what it found when a later part of the same I/O is right.
    jobs = {name: (scripted(size=MIB), {"bs": "4k", "size": "1m", "verify": "crc32c", "verify_fatal": 1, **options})
            for name, options in KINDS.items()}
    for target, _ in jobs.values():
        if flipped:
            flip(target, 345 << 10 | 0x1a3)  # in a block's data, behind fio's header
    done, found = run_jobs(fio, tmp_path, jobs)
    for name, (target, options) in jobs.items():
        if flipped:
            assert any(job["error"] == errno.EILSEQ for job in found[name]), f"{options} found nothing\n{done.text}"
        else:
            assert not any(job["error"] for job in found[name]), done.text
            assert sum(job["read"]["total_ios"] for job in found[name]) > 0 and target.count("read") > 0, options


# --- latencies against a target whose own is known (B158) ------------------------------------------------------

def check_latencies(job, target, options):
    """Returns whether half of them are those of the target itself and what the way there takes."""
    part = job["write" if "write" in options.get("rw", "") else "read"]
    clat, lat, slat = part["clat_ns"], part["lat_ns"], part["slat_ns"]
    assert part["total_ios"] == clat["N"] == lat["N"] == slat["N"], options
    assert clat["min"] >= DELAY_MS * 1e6 and lat["min"] >= clat["min"] and lat["max"] >= clat["max"], options
    assert lat["mean"] == pytest.approx(slat["mean"] + clat["mean"], rel=0.01), options
    assert options or job["iodepth_level"]["16"] > 80, job
    return clat["percentile"]["50.000000"] < (statistics.median(target.took) * 1.1 + 0.005) * 1e9


def test_latencies_are_those_of_the_target(fio, scripted, tmp_path):
    table = named([
        {}, {"iodepth": 1, "size": "64k"}, {"iodepth_batch": 16}, {"iodepth_low": 4}, {"rw": "randwrite"},
        {"iodepth_batch": 8, "iodepth_batch_complete_min": 4, "iodepth_batch_complete_max": 16}, {"rate_iops": 200},
        {"iodepth_batch": 16, "thread": 1, "rw": "write"}])
    late = []
    for _ in range(4):  # none is ever too short; a machine that is busy makes some too long
        jobs = {name: (scripted(delay=DELAY_MS / 1000), {
            "rw": "randread", "bs": "4k", "iodepth": 16, "size": "1m", "percentile_list": "50", **options})
            for name, options in table.items()}
        done, found = run_jobs(fio, tmp_path, jobs, together=False)
        done.ok()
        late = [name for name, options in table.items() if not check_latencies(found[name][0], jobs[name][0], options)]
        table = {name: table[name] for name in late}
        if not late:
            return
    raise AssertionError(f"{table} took too long, four times")

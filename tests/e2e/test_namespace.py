# SPDX-License-Identifier: MIT
"""Which namespace a job uses and which process opens it."""
import json
import pathlib
import subprocess
import time

import conftest
import pytest


@pytest.mark.parametrize("nsid", ["4294967297", "1x", "0x1", "+1", "18446744073709551617"])
def test_a_wrong_namespace_id_is_refused(fio, target, nsid):
    done = fio(uri=target.uri + "/" + nsid, rw="write", bs="4k", size="64k", transport=target.transport)
    assert done.status != 0, done.text


def test_a_wrong_namespace_number_as_filename_is_refused(fio, target):
    done = fio(uri=target.uri, filename="4294967297", rw="write", bs="4k", size="64k",
               transport=target.transport)
    assert done.status != 0, done.text


def test_without_an_id_the_choices_are_listed(fio, target):
    done = fio(uri=target.uri, rw="read", bs="4k", size="64k", transport=target.transport)
    assert done.status != 0 and "several namespaces (1, 2, 3)" in done.text, done.text


def test_id_shows_the_namespace_that_is_named_or_all(target):
    def shown(uri):
        done = conftest.haul("id", "--json", uri, transport=target.transport)
        assert done.returncode == 0, done.stderr
        return [ns["nsid"] for ns in json.loads(done.stdout)["namespaces"]]
    assert shown(target.uri + "/2") == [2]
    assert shown(target.uri) == [1, 2, 3]


def threads(pid):
    """Of a process that may end meanwhile, as the one that looks sizes up does."""
    try:
        return [path.read_text().strip() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")]
    except OSError:
        return []


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_device_is_opened_in_the_jobs_and_not_in_the_process_that_forks_them(target, tmp_path):
    """What an RDMA library keeps open in fio's parent would be shared by all jobs."""
    if target.transport != "rdma":
        pytest.skip("TCP has no device")
    command = ["fio", "--name=job", f"--ioengine={conftest.fio_engine()}", f"--uri={target.uri}/1",
               "--rw=randread", "--bs=4k", "--time_based", "--runtime=20", "--numjobs=2"]
    with subprocess.Popen(command, cwd=tmp_path, env=conftest.environment("rdma", preload=True), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, preexec_fn=conftest.die_with_parent) as fio:
        try:
            limit = time.monotonic() + 15
            jobs = []
            while len(jobs) < 2 and time.monotonic() < limit:
                jobs = [job for job in children(fio.pid) if "softrdma" in threads(job)]
                time.sleep(0.05)
            assert len(jobs) == 2, "the jobs have not begun"
            assert "softrdma" not in threads(fio.pid)
        finally:
            fio.terminate()

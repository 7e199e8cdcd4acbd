# SPDX-License-Identifier: MIT
"""The suite against a target that runs already (--target), with hauld as that target: it conforms, without deviations."""
import os
import re
import subprocess
import sys

import conftest
import pytest

HERE = conftest.ROOT / "tests" / "wire"
NQN = "nqn.2026-11.io.haul:conforms"
# Over TCP, and with RDMA's own rules, the tests run with a hauld of their own, too: enough to see that a host can find and
# obey a target by its URI. What takes long is for those.
SUITES = {"tcp": ["connect", "io"], "rdma": ["connect", "admin", "discovery", "features", "log", "io"]}


@pytest.fixture(scope="module")
def hauld(tmp_path_factory):
    directory = tmp_path_factory.mktemp("conformance")
    disk = directory / "disk"
    disk.touch()
    os.truncate(disk, 64 << 20)
    daemon = conftest.Hauld(directory, "--listen", "tcp://127.0.0.1:0", "--listen", "rdma://127.0.0.1:0", "--threads", "2",
                            "--export", f"{disk},nqn={NQN}", env=conftest.rdma_environment())
    yield daemon
    assert daemon.stop() == 0, daemon.log_path.read_text()


def suite(*args, **kw):
    """A run of tests/wire: its exit status and what it has printed."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "-rf", *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, cwd=conftest.ROOT, **kw)
    return done.returncode, done.stdout


@pytest.mark.parametrize("kind", ["tcp", "rdma"])
def test_hauld_conforms_as_any_other_target_would(hauld, kind):
    uri = next(uri for uri in hauld.uris if uri.startswith(kind))
    status, said = suite(*[HERE / f"test_{name}.py" for name in SUITES[kind]], "-m", "not long",
                         "--target", f"{uri}/{NQN}", env=conftest.rdma_environment())
    print(said)
    assert status == 0 and not re.search(r"^(FAILS|deviates)", said, re.M)


def test_a_deviation_that_is_none_fails(hauld, tmp_path):
    """The list cannot rot: what passes is told, and so is a test that is not there."""
    target = ("--target", f"{hauld.uris[0]}/{NQN}")
    name = "test_connect.py::test_connect_sqsize_0_is_invalid"
    known = tmp_path / "deviations"
    known.write_text(f"# a comment\n{name}  it passes\nrdma: test_connect.py::test_not_for_tcp  nothing\n")
    status, said = suite(HERE / name, *target, "--deviations", known)
    assert status == 1 and re.search(r"^no longer deviates .* connect sqsize 0 is invalid: .*it passes", said, re.M), said
    known.write_text("test_log.py::test_not_there  nothing\n")
    status, said = suite(HERE / "test_log.py", "--collect-only", *target, "--deviations", known)
    assert status and "there are no tests ['test_log.py::test_not_there']" in said, said


def test_a_test_without_its_paragraph_fails(hauld, tmp_path):
    (tmp_path / "test_new.py").write_text("def test_something(target):\n    \"\"\"I want it so.\"\"\"\n")
    status, said = suite(tmp_path / "test_new.py", "-p", "conftest", "--target", f"{hauld.uris[0]}/{NQN}", "--rootdir", tmp_path,
                         env={**os.environ, "PYTHONPATH": str(HERE)})
    assert status == 1 and "test_new.py::test_something names no paragraph" in said, said

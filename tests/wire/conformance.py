# SPDX-License-Identifier: MIT
"""The suite against any target (--target): which tests are run, what is expected to differ, and what was found."""
import collections
import pathlib
import re

import fabric
import pytest

# What a test names: the specification, its version, and a chapter or figure.
PARAGRAPH = re.compile(r"\b(Base|NVM|TCP|RDMA) [12]\.[0-9][a-z]? (?:figures? |chapter )?[0-9]+(?:\.[0-9]+)*")
Found = collections.namedtuple("Found", "outcome why")
FOUND = pytest.StashKey()
SHORT = 0.5     # seconds of patience where the target is known to deviate, which often is that nothing comes


def add_options(parser):
    parser.addoption("--target", help="tcp:// or rdma://HOST:PORT/NQN of a target that runs already, with a namespace 1")
    parser.addoption("--deviations", help="a file with the tests that this target is known to fail, and why")
    parser.addoption("--patience", type=float, help="seconds that the host waits for an answer (default: 5)")


def configure(config):
    config.addinivalue_line("markers", "transport(name): is about this transport alone, tcp or rdma")
    config.addinivalue_line("markers", "long: waits for time-outs or connects often, and is not asked of each target each time")
    config.stash[FOUND] = {}


def split_target(uri):
    """(TRANSPORT, (HOST, PORT), NQN) of --target."""
    parts = re.match(r"(tcp|rdma)://(.+):(\d+)/(.+)$", uri)
    if not parts:
        raise pytest.UsageError(f"--target {uri}: not tcp://HOST:PORT/NQN or rdma://HOST:PORT/NQN")
    kind, host, port, subnqn = parts.groups()
    return kind, (host.strip("[]"), int(port)), subnqn


def transport(item):
    """The transport that a test is about, or None."""
    mark = item.get_closest_marker("transport")
    return mark.args[0] if mark else None


# What a test needs that only hauld has, by its fixtures.
OURS = {"own": "needs the subsystems that our tests give to hauld", "start_hauld": "starts a hauld of its own"}


def needs_hauld(item):
    """Why another's target cannot be asked, or None."""
    for fixture, why in OURS.items():
        if fixture in item.fixturenames:
            return why
    return None if "target" in item.fixturenames else "is about hauld itself"


# --- before ---------------------------------------------------------------------------------------------------------------

def name_of(item):
    return f"{item.path.name}::{item.name}"


def deviations(path, kind):
    """{test: (why, whether to run it)} of this transport's lines: "[tcp: |rdma: ][not run: ]FILE::TEST  WHY", two spaces between.

    TEST may be without its parameters, to mean all.
    """
    known = {}
    for line in pathlib.Path(path).read_text().splitlines():
        parts = re.match(r"(?:(tcp|rdma): )?(not run: )?(\S+\.py::.+?) {2,}(\S.*)$", line)
        if not parts and line and line[0] != "#":
            raise pytest.UsageError(f"{path}: not understood: {line}")
        if parts and parts[1] in (None, kind):
            known[parts[3]] = parts[4], not parts[2]
    return known


def expect_deviations(config, items, kind):
    """A known deviation has to be there: a test that passes nevertheless fails the run, and so does an unknown name."""
    path, names = config.getoption("--deviations"), set()
    known = deviations(path, kind) if path else {}
    for item in items:
        for name in (name_of(item), name_of(item).split("[")[0]):
            if name in known:
                why, run = known[name]
                item.add_marker(pytest.mark.xfail(reason=why, run=run, strict=True))
                names.add(name)
    files = {item.path.name for item in items}
    unknown = [name for name in known if name not in names and name.split("::")[0] in files]
    if unknown and not config.option.keyword and not any("::" in arg for arg in config.args):
        raise pytest.UsageError(f"{path}: there are no tests {unknown}")


def prepare(config, items):
    if not config.getoption("--target"):
        return
    kind = split_target(config.getoption("--target"))[0]
    for item in items:
        why = needs_hauld(item)
        if not why and transport(item) not in (None, kind):
            why = f"is about {transport(item).upper()}"
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
    expect_deviations(config, [item for item in items if not item.get_closest_marker("skip")], kind)


def paragraph(item):
    found = PARAGRAPH.search(item.function.__doc__ or "")
    return found.group(0) if found else None


def set_patience(item):
    whole = item.config.getoption("--patience") or 5.0
    fabric.PATIENCE = min(SHORT, whole) if item.get_closest_marker("xfail") else whole


def check_paragraph(item):
    """Each test that any target can be asked says who demands it."""
    if not needs_hauld(item) and not paragraph(item):
        pytest.fail(f"{name_of(item)} names no paragraph of a specification in its first lines", pytrace=False)


# --- after ----------------------------------------------------------------------------------------------------------------

ORDER = ["FAILS", "no longer deviates", "deviates", "passes", "not asked"]


def note(item, report):
    """Keeps the worst that was found of a test."""
    if report.when != "call" and report.passed:
        return
    why = ""
    if hasattr(report, "wasxfail"):
        outcome, why = "deviates", report.wasxfail
    elif report.skipped:
        outcome, why = "not asked", report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
    elif report.failed and "[XPASS(strict)]" in str(report.longrepr):
        outcome, why = "no longer deviates", str(report.longrepr)
    else:
        outcome = "FAILS" if report.failed else "passes"
    results = item.config.stash[FOUND].setdefault((item.path.name, item.originalname), (item, []))[1]
    results.append(Found(outcome, why))


def summarize(reporter, config):
    """For the tester of a target: a line for each behaviour."""
    if not config.getoption("--target"):
        return
    reporter.section(f"conformance of {config.getoption('--target')}")
    total = collections.Counter()
    of_hauld = collections.Counter()
    for (_, name), (item, results) in config.stash[FOUND].items():
        if needs_hauld(item):
            of_hauld[item.path.name] += len(results)
            continue
        worst = min((found.outcome for found in results), key=ORDER.index)
        count = sum(found.outcome == worst for found in results)
        part = f" ({count} of {len(results)})" if count < len(results) else ""
        why = next(found.why for found in results if found.outcome == worst)
        total.update(found.outcome for found in results)
        behaviour = name.removeprefix("test_").replace("_", " ")
        reporter.write_line(f"{worst:9} {paragraph(item) or '':20} {behaviour}{part}{': ' + why if why else ''}")
    for file, count in of_hauld.items():
        reporter.write_line(f"{'not asked':9} {count} tests of {file} that need hauld itself")
    reporter.write_line(", ".join(f"{total[outcome]} {outcome}" for outcome in ORDER if total[outcome]))

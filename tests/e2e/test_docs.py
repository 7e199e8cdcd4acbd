# SPDX-License-Identifier: MIT
"""The examples of the man pages and the job files: compiled and run."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ENGINE, HAUL, ROOT, NQN, environment, fio_engine

PAGES = sorted(path.name for path in (ROOT / "initiator").glob("*.3"))
JOBS = sorted((ROOT / "fio-plugin" / "examples").glob("*.fio"))


def literals(page):
    text = (ROOT / page).read_text()
    return [block.replace("\\e", "\\").replace("\\&", "")
            for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", text, re.M | re.S)]


def code(page):
    return [block for block in literals(page) if "#include" in block]


def compiles(compiler, source):
    return subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}/initiator", str(source)],
                          capture_output=True, text=True)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_library_compile(page, tmp_path):
    examples = code(f"initiator/{page}")
    assert len(examples) == 1
    source = tmp_path / "example.c"
    source.write_text(examples[0])
    done = compiles("gcc", source)
    assert done.returncode == 0, done.stderr


def test_header_is_good_in_cxx(tmp_path):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    source = tmp_path / "example.cc"
    source.write_text("#include <haul.h>\nint main() { return haul_version() == nullptr; }\n")
    done = compiles("g++", source)
    assert done.returncode == 0, done.stderr


def header():
    return re.sub(r"/\*.*?\*/", "", (ROOT / "initiator" / "haul.h").read_text(), flags=re.S)


def functions():
    return sorted(set(re.findall(r"\b(haul_\w+)\(", header())))


def test_every_public_function_has_a_page():
    pages = "".join((ROOT / "initiator" / page).read_text() for page in PAGES)
    assert not [name for name in functions() if not re.search(rf"\.Fn {name}\b", pages)]


def test_every_field_of_a_public_structure_has_a_page():
    pages = "".join((ROOT / "initiator" / page).read_text() for page in PAGES)
    structures = re.findall(r"^struct (haul_\w+) \{(.*?)^\}", header(), re.M | re.S)
    fields = {f"{name}.{field}" for name, body in structures for field in re.findall(r"(\w+)(?:\[\w*\])?[;,]", body)}
    assert len(fields) > 50
    assert not sorted(field for field in fields if not re.search(rf"\b{field.split('.')[1]}\b", pages))


def test_man_finds_every_public_function(tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "man", "--destdir", tmp_path], check=True,
                   capture_output=True)
    installed = {page.stem: page.resolve(strict=True).read_text() for page in tmp_path.rglob("*.3")}
    names = {name: text.split(".Sh SYNOPSIS")[0] for name, text in installed.items()}
    assert not [name for name in functions() if f".Nm {name}" not in names.get(name, "")]


def test_example_of_the_library_runs(target, tmp_path):
    source, program = tmp_path / "example.c", tmp_path / "example"
    source.write_text(code("initiator/libhaul.3")[0])
    library = BUILD / "initiator"
    flags = ["-fsanitize=address,undefined"] if b"__asan_init" in (library / "libhaul.so").read_bytes() else []
    subprocess.run(["gcc", "-o", str(program), str(source), f"-I{ROOT}/initiator", f"-L{library}", "-lhaul", *flags],
                   check=True)
    env = environment(target.transport)
    env["LD_LIBRARY_PATH"] = f"{library}:{env.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run([str(program), target.disk], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"([0-9a-f]{2} ){16}\n", done.stdout)
    done = subprocess.run([str(program), target.disk + "9"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "active ones" in done.stderr


def test_examples_of_haul_run(target):
    lines = literals("initiator/haul.1")[-1].splitlines()
    assert len(lines) == 4
    for line in lines:
        # Another target, the same options.
        line = re.sub(r"\w+://[^'?]*(\?[^']*)?", lambda m: target.hauld.uri + (m.group(1) or ""), line)
        if target.transport != "tcp":
            line = re.sub(r"[hd]dgst=1&?", "", line)
        line = line.replace("haul ", f"{HAUL} ", 1)
        done = subprocess.run(["sh", "-c", line], env=environment(target.transport), capture_output=True, text=True,
                              timeout=60)
        # The machine that is made for tests has no RDMA device in sysfs, which doctor minds.
        expected = 1 if " doctor " in line and target.transport == "rdma" else 0
        assert done.returncode == expected and NQN in done.stdout, f"{line}: {done.stderr}"


def test_examples_of_the_engine_run(target, tmp_path):
    fio_engine()
    for line in literals("fio-plugin/fio-haul.1")[-1].splitlines():
        env = {**environment(target.transport, preload=True), "ENGINE": str(ENGINE), "URI": target.disk}
        done = subprocess.run(["sh", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_job_files_run(target, job, tmp_path):
    fio_engine()
    text = re.sub(r"runtime=\d+", "runtime=1", job.read_text()).replace("size=64m", "size=4m")
    (tmp_path / job.name).write_text(text)
    uri = target.uri if "filename=" in text else target.disk
    env = {**environment(target.transport, preload=True), "ENGINE": str(ENGINE), "URI": uri}
    done = subprocess.run(["fio", job.name], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "err= 0" in done.stdout, done.stdout + done.stderr
    assert os.listdir(tmp_path) == [job.name]


# --- guides -------------------------------------------------------------------------------------

def test_functions_that_guides_name_are_there():
    sources = "".join(path.read_text() for folder in ("proto", "target", "initiator")
                      for path in (ROOT / folder).rglob("*.[ch]"))
    named = set(re.findall(r"`([a-z_]+)\(\)`", (ROOT / "docs" / "how-a-read-travels.md").read_text()))
    assert len(named) > 20 and not [name for name in named if not re.search(rf"\b{name}\(", sources)]


def test_the_commands_that_try_rdma_run(hauld):
    text = (ROOT / "docs" / "rdma.md").read_text()
    export, = re.findall(r"^disk\$ hauld --listen rdma://192.0.2.1 --export (\S+)$", text, re.M)
    path, = re.findall(r"^host\$ haul doctor rdma://192.0.2.1(/\S+)$", text, re.M)
    running = hauld("--export", export.replace("1G", "16M"), transport="rdma")
    done = subprocess.run([str(HAUL), "doctor", running.uri + path], env=environment("rdma"), capture_output=True,
                          text=True, timeout=60, check=False)
    assert re.search(r"^ok +reads +200 of 4096 bytes", done.stdout, re.M), done.stdout + done.stderr

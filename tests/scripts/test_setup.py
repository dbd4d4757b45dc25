"""Run the scripts on machines where something is missing, and read their messages."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = [
    "awk",
    "cat",
    "chmod",
    "cut",
    "dirname",
    "env",
    "find",
    "grep",
    "id",
    "mkdir",
    "mktemp",
    "rm",
    "sed",
    "sh",
    "tail",
    "tr",
]
CHECKS = ("ruff", "djangofmt", "lint-imports", "mypy")
FAKE_DF = "#!/bin/sh\necho header\necho /dev/disk 1 1 {kilobytes} 1% /\n"
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *ensurepip*) exit {has_venv} ;;
  *version_info*) exit {is_old} ;;
esac
exit 0
"""
FAKE_TESTS = """#!/bin/sh
case "$*" in
  *"tests.services missing" | *manage.py*) exit 0 ;;
  *{failing}*)
    echo "what went wrong"
    cache="${{*##*cache_dir=}}/v/cache"
    mkdir -p "$cache"
    printf '{{\n  "tests/test_x.py::test_y": true\n}}' >"$cache/lastfailed"
    exit 1 ;;
  *pytest*) exit 0 ;;
esac
exec {python} "$@"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A clone whose PATH contains only basic tools and those that a test adds."""

    clone: Path
    tools: Path

    def add(self, name: str, script: str) -> None:
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def prepare_venv(self, python: str = f'#!/bin/sh\nexec {sys.executable} "$@"\n') -> None:
        """Make the clone look set up."""
        folder = self.clone / ".venv" / "bin"
        folder.mkdir(parents=True)
        (folder / "python").write_text(python)
        (folder / "python").chmod(0o755)
        version = re.match(r"uv==([0-9.]+)", (self.clone / "requirements-uv.lock").read_text())
        assert version
        parts = ["requirements.lock", "pyproject.toml"]
        content = version[1].encode() + b"\n"
        content += b"".join((self.clone / part).read_bytes() for part in parts)
        stamp = self.clone / ".venv" / "evalsite-stamp"
        stamp.write_text(hashlib.sha256(content).hexdigest() + "\n")

    def run(self, script: str, *arguments: str, **env: str) -> tuple[int, str]:
        """Run a script without root; return its exit code and output."""
        done = subprocess.run(
            ["sh", f"scripts/{script}", *arguments],
            cwd=self.clone,
            env={"PATH": str(self.tools), "HOME": str(self.clone), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    clone, tools = tmp_path / "clone", tmp_path / "tools"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    for name in ("requirements.lock", "requirements-uv.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    made = Machine(clone, tools)
    made.add("id", "#!/bin/sh\necho 1000\n")
    made.add("df", FAKE_DF.format(kilobytes=9_000_000))
    return made


@pytest.mark.parametrize("script", ["demo", "up", "test", "bench"])
def test_without_python_the_script_says_so(machine: Machine, script: str) -> None:
    code, said = machine.run(script)
    assert code == 1
    assert "No Python 3.11 or newer was found." in said
    assert "apt-get install python3 python3-venv" in said


def test_an_old_python_does_not_count(machine: Machine) -> None:
    machine.add("python3", FAKE_PYTHON.format(has_venv=0, is_old=1))
    assert "No Python 3.11 or newer was found." in machine.run("demo")[1]


def test_without_the_venv_module_the_package_is_named(machine: Machine) -> None:
    machine.add("python3", FAKE_PYTHON.format(has_venv=1, is_old=0))
    code, said = machine.run("demo")
    assert code == 1
    assert "has no venv module." in said
    assert "sudo apt-get install python" in said
    assert not (machine.clone / ".venv").exists()


def test_a_full_disk_is_reported_before_anything_is_created(machine: Machine) -> None:
    machine.add("python3", FAKE_PYTHON.format(has_venv=0, is_old=0))
    machine.add("df", FAKE_DF.format(kilobytes=204_800))
    code, said = machine.run("demo")
    assert code == 1
    assert "Only 200 MB are free" in said
    assert not (machine.clone / ".venv").exists()


@pytest.mark.parametrize(
    ("failing", "named"),
    [
        ("--note-statements", "sqlite, sqlite-pages"),
        ("--ignore=tests/api", "sqlite"),
        ("'sqlite-pages.statements tests/api'", "sqlite-pages"),
        ("--database-only", "postgresql"),
        ("tests/browser", "browser, browser-pages"),
        ("'tests/browser --ignore'", "browser"),
        ("'-q tests/browser/'", "browser-pages"),
        ("'-m processes'", "processes"),
        ("pytest", "browser, browser-pages, postgresql, sqlite, sqlite-pages, processes"),
    ],
)
def test_every_group_of_tests_runs_and_failures_are_named(
    machine: Machine, failing: str, named: str
) -> None:
    code, message = run_all(machine, failing)
    assert code == 1
    [last] = re.findall(r"^Failed: (.+)\.$", message, re.MULTILINE)
    assert sorted(last.split(", ")) == sorted(named.split(", "))
    assert message.count("what went wrong") == len(named.split(", "))
    for group in named.split(", "):
        assert f"  {group}: tests/test_x.py::test_y\n" in message
    assert "All checks and tests passed" not in message


@pytest.mark.parametrize("arguments", [(), ("core",)])
def test_a_failed_check_is_named_after_the_tests(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    machine.add("mypy", "#!/bin/sh\necho wrong type; exit 1\n")
    code, message = run_all(machine, "nothing", *arguments)
    assert code == 1
    assert "wrong type" in message
    assert "Failed: Types.\n" in message


@pytest.mark.parametrize("arguments", [(), ("core",)])
def test_success_is_the_last_line(machine: Machine, arguments: tuple[str, ...]) -> None:
    code, message = run_all(machine, "nothing", *arguments)
    assert code == 0
    assert "All checks and tests passed" in message.splitlines()[-1]


def run_all(machine: Machine, failing: str, *arguments: str) -> tuple[int, str]:
    """Run scripts/test with tools that pass, except the groups that fail on purpose."""
    machine.prepare_venv(FAKE_TESTS.format(failing=failing, python=sys.executable))
    (machine.clone / "templates").mkdir()
    for tool in CHECKS:
        if not (machine.tools / tool).exists():
            machine.add(tool, "#!/bin/sh\nexit 0\n")
    return machine.run("test", *arguments)


@pytest.mark.slow
def test_without_chromium_and_root_the_package_is_named(machine: Machine) -> None:
    machine.prepare_venv()
    shutil.copytree(ROOT / "tests" / "services", machine.clone / "tests" / "services")
    (machine.clone / "templates").mkdir()
    for tool in CHECKS:
        machine.add(tool, "#!/bin/sh\nexit 0\n")
    machine.add("playwright", "#!/bin/sh\necho no network >&2\nexit 1\n")
    code, said = machine.run("test", "tests/x.py", PLAYWRIGHT_BROWSERS_PATH=str(machine.clone))
    assert code == 1
    assert "There is no Chromium, and it could not be installed." in said
    assert "sudo apt-get install chromium" in said


def test_scripts_are_executable_and_clean_shell() -> None:
    for path in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
        subprocess.run(["sh", "-n", path], check=True)
        if path.name != "setup":
            assert os.access(path, os.X_OK), path


def test_ci_runs_the_tests_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1] == "exec bash scripts/test"
    assert len(lines) == 4

"""The wheel and the sdist: what is in them, and the demo as somebody meets it who has installed nothing else."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import pytest
from packaging.utils import canonicalize_name

from evalsite import data_folder
from tests.production.composed import IN_ANOTHER_FOLDER
from tests.scripts.bill_of_materials import production_packages
from tests.services.processes import ROOT, Process, free_port, running, scratch_folder, wait_until
from tests.services.visitor import Visitor

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CODE = ("evalsite", "runs", "evaluators")
BUNDLED = ("templates", "static", "examples")
# For developers: how the site is built, tested and run in containers.
BESIDE = {
    *("tests", "scripts", ".ci", "manage.py", "pyproject.toml", "requirements.lock"),
    *("requirements-uv.lock", "sbom.cdx.json", "Dockerfile", ".dockerignore", "compose.yaml"),
    *("README.md", "CHANGELOG.md", ".env.example", ".gitignore", "PKG-INFO"),
}
# A working folder may have packages of the same names.
INTRUDER = "raise SystemExit('A package of the working folder was imported.')\n"
STATIC = re.compile(r'(?:href|src)="(/static/[^"]+)"')
HASHED = re.compile(r"\.[0-9a-f]{12}\.\w+$")


@dataclass(frozen=True, slots=True)
class Machine:
    """An empty home and working folder, and an environment with the wheel alone beside what it depends on."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder / "env")}))

    def env(self, **more: str) -> dict[str, str]:
        path = f"{self.folder / 'env' / 'bin'}{os.pathsep}{os.defpath}"
        return {"PATH": path, "HOME": str(self.home), **more}

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        """Run `evalsite` in the working folder and return what it printed; check its exit code."""
        done = subprocess.run(
            [self.folder / "env" / "bin" / "evalsite", *words],
            cwd=self.work,
            env=self.env(**env),
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def demo(self, port: int) -> Process:
        evalsite = str(self.folder / "env" / "bin" / "evalsite")
        log = self.folder / "demo.log"
        return Process(
            [sys.executable, "-c", IN_ANOTHER_FOLDER, str(self.work), evalsite, "demo"],
            log=log,
            env=self.env(PORT=str(port)),
            is_ready=lambda: log.exists() and "Ctrl-C stops it" in log.read_text(),
        )


def build(source: Path, folder: Path, kind: str) -> Path:
    """Build the sdist or the wheel of a folder, and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [built] = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def sdist() -> Iterator[Path]:
    with scratch_folder("sdist") as folder:
        yield build(ROOT, folder, "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Build the wheel from the sdist, so that this has all it needs."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    return build(sdist.with_name(sdist.name.removesuffix(".tar.gz")), sdist.parent, "wheel")


@pytest.fixture(scope="module")
def machine(wheel: Path) -> Iterator[Machine]:
    with scratch_folder("machine") as folder:
        made = Machine(folder)
        made.home.mkdir()
        for name in CODE:
            (made.work / name).mkdir(parents=True)
            (made.work / name / "__init__.py").write_text(INTRUDER)
        env = folder / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--offline"]
        subprocess.run([*uv, "--no-deps", "--python", env / "bin" / "python", wheel], check=True)
        # Its dependencies are installed here already. Their folder names no clone: its own .pth files are not read.
        (made.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        yield made


def files(*folders: str) -> set[str]:
    """Return the files of a clone's folders, without what Python compiled."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
@pytest.mark.processes
def test_the_sdist_is_the_clone_without_data_and_caches(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in inside} == {*CODE, *BUNDLED, *BESIDE}
    assert {name for name in inside if "/" in name} == files(
        *CODE, *BUNDLED, "tests", "scripts", ".ci"
    )


@pytest.mark.slow
@pytest.mark.processes
def test_the_wheel_has_the_site_and_what_it_reads_within_its_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {name for name in inside if not name.startswith("evalsite/bundled/")}
    assert code == files(*CODE)
    bundled = {name.removeprefix("evalsite/bundled/") for name in inside - code}
    assert bundled == files(*BUNDLED) - files("examples/screens")


def test_every_imported_package_is_one_that_is_installed_with_the_site() -> None:
    imported: set[str] = set()
    for path in files(*CODE, "examples"):
        if path.endswith(".py"):
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                match node:
                    case ast.Import(names=names):
                        imported |= {name.name.partition(".")[0] for name in names}
                    case ast.ImportFrom(module=str(module)):
                        imported.add(module.partition(".")[0])
    known = importlib.metadata.packages_distributions()
    installed = production_packages().keys()
    missing = {
        name
        for name in imported & known.keys() - {*CODE}
        # Several distributions can have parts of one package.
        if not installed & {canonicalize_name(distribution) for distribution in known[name]}
    }
    # Only pytest loads the plugin that imports it.
    assert missing == {"pytest"}


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    [newest, *_] = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest == PROJECT["version"]


@pytest.mark.parametrize(
    ("is_installed", "platform", "variables", "folder"),
    [
        (False, "linux", {"XDG_DATA_HOME": "/xdg"}, ROOT / "data"),
        (True, "linux", {}, Path.home() / ".local/share/evalsite"),
        (True, "linux", {"XDG_DATA_HOME": "/xdg"}, Path("/xdg/evalsite")),
        (True, "linux", {"XDG_DATA_HOME": "xdg"}, Path.home() / ".local/share/evalsite"),
        (True, "darwin", {}, Path.home() / "Library/Application Support/evalsite"),
    ],
)
def test_data_are_where_the_platform_keeps_them_unless_they_are_a_clones(
    monkeypatch: pytest.MonkeyPatch,
    is_installed: bool,
    platform: str,
    variables: dict[str, str],
    folder: Path,
) -> None:
    monkeypatch.setattr(data_folder, "IS_INSTALLED", is_installed)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder.default_data_folder(variables) == folder


@pytest.mark.slow
@pytest.mark.processes
def test_commands_work_in_any_folder_and_put_nothing_there(machine: Machine) -> None:
    assert machine.run("--version") == f"evalsite {PROJECT['version']}\n"
    assert "no issues" in machine.run("check")
    example = machine.packages / "evalsite" / "bundled" / "examples" / "quick-check"
    evaluated = machine.run(
        *("evaluate", str(example / "suite.yaml"), "--outputs", str(example / "outputs.jsonl"))
    )
    assert f"New site in {machine.home}/.local/share/evalsite" in evaluated
    assert "10 of 12" in evaluated
    assert "quick-check" in machine.run("list", "suites")
    assert {path.name for path in machine.work.iterdir()} == set(CODE)


@pytest.mark.slow
@pytest.mark.processes
def test_the_demo_is_served_from_an_empty_folder(machine: Machine) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running(machine.demo(port)) as demo:
        message = demo.log.read_text()
        assert f"Evalsite {PROJECT['version']} is at {url}." in message
        assert f"its data stays in {machine.home}/.local/share/evalsite/demo." in message
        [link] = re.findall(rf"^  ({url}/login/\S+)$", message, re.MULTILINE)
        [judge] = re.findall(r"Scripted judge ready at (\S+)", message)
        check_static_files(f"{url}/login/")

        visitor = Visitor(url)
        visitor.log_in(link)
        assert "Customer support, core" in visitor.get("/")
        # Of all examples the one that needs most: its agent is a program, judged by programs.
        run = "/suites/returns-desk/runs/1/"
        wait_until(lambda: "12 of 14 results passed" in visitor.get(run))

        taken = machine.run("demo", code=3, PORT=str(port))
        assert f"Port {port} is taken" in taken
        assert f"PORT={port + 1}." in taken
    assert not answers(url)
    wait_until(lambda: not answers(judge))


def check_static_files(page: str) -> None:
    """Check that a page forbids what stands in it, and that all its files have names that can be kept for good."""
    with urllib.request.urlopen(page) as answer:
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    addresses = set(STATIC.findall(text))
    assert {address.rpartition("/")[2].partition(".")[0] for address in addresses} >= {"app"}
    for address in addresses:
        assert HASHED.search(address), address
        with urllib.request.urlopen(urljoin(page, address)) as file:
            assert "immutable" in file.headers["Cache-Control"]


def answers(url: str) -> bool:
    """Tell whether a server listens at the address."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True

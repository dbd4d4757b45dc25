"""The real site as its own processes: gunicorn on a fresh data folder, and workers beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar

from tests.services.processes import (
    ROOT,
    Process,
    Started,
    children,
    free_port,
    running,
    scratch_folder,
)

MIGRATE = ("migrate", "--no-input", "--verbosity", "0")
PREPARE = "from runs.cli.command import migrate; migrate()"
SQLITE_FILE = "evalsite.sqlite3"


class Site:
    """A site in a folder: its address, its environment, its web process and its workers.

    Without other variables it is on SQLite and works in the web process. `popen` starts its programs.
    """

    popen: ClassVar[Callable[..., Started]] = subprocess.Popen

    def __init__(
        self, folder: Path, *, config: str = "python:evalsite.gunicorn", **env: str
    ) -> None:
        """Lay out a site whose processes get the given variables besides their own; start none."""
        port = free_port()
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.url = f"http://127.0.0.1:{port}"
        self.data_dir = folder
        own = {"PORT": str(port), "EVALSITE_DATA_DIR": str(folder), "EVALSITE_URL": self.url}
        self.env = {**kept, **own, **env}
        self.web = Process(
            [sys.executable, "-m", "gunicorn", "-c", config],
            log=folder / "server.log",
            is_ready=lambda: is_healthy(self.url),
            env=self.env,
            popen=self.popen,
        )
        self.workers: list[Process] = []
        self.commands: list[Process] = []

    def begin_worker(self, *more: str, clock_off_by_s: int = 0) -> Process:
        """Start one more worker process with more options, on a machine whose clock may be wrong."""
        number = len(self.workers) + 1
        program = (
            ["tests.services.wrong_clock", str(clock_off_by_s)] if clock_off_by_s else ["celery"]
        )
        options = ["-A", "evalsite", "worker", "--hostname", f"worker-{number}@%h", *more]
        worker = Process(
            [sys.executable, "-m", *program, *options],
            log=self.data_dir / f"worker-{number}.log",
            env=self.env,
            # Libraries that are loaded before the clock is wrong would keep the right one.
            popen=subprocess.Popen if clock_off_by_s else self.popen,
        )
        worker.begin()
        self.workers.append(worker)
        return worker

    def begin_command(self, *arguments: str) -> Process:
        """Start a management command and do not wait for its end."""
        command = Process(
            [sys.executable, "manage.py", *arguments],
            log=self.data_dir / f"{arguments[0]}.log",
            env=self.env,
            popen=self.popen,
        )
        command.begin()
        self.commands.append(command)
        return command

    def web_workers(self) -> list[int]:
        """Return the processes that serve and work, children of the one that watches them."""
        return children(self.web.pid)

    def manage(self, *arguments: str) -> str:
        """Run a management command on the site's database and return what it printed."""
        done = run(["manage.py", *arguments], env=self.env)
        if done.returncode:
            words = " ".join(arguments)
            raise AssertionError(f"manage.py {words}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def migrate(self) -> None:
        """Give the site an empty database that is up to date; on SQLite a copy of one made before."""
        if "DATABASE_URL" in self.env:
            self.manage(*MIGRATE)
        else:
            (self.data_dir / SQLITE_FILE).write_bytes(_migrated())

    def login_link(self, username: str = "admin") -> str:
        """Make a one-time login link; the first call makes the admin."""
        return self.manage("login_link", username)

    def log(self) -> str:
        """Return what the server has logged."""
        return self.web.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill every process of the site that still runs."""
        for process in (self.web, *self.workers, *self.commands):
            if process.is_running:
                process.kill()


def run(arguments: Sequence[str], *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python to its end as the programs of sites are run, in the root of the project."""
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        command = [sys.executable, *arguments]
        code = Site.popen(command, cwd=ROOT, env=env, stdout=stdout, stderr=stderr).wait()
        stdout.seek(0)
        stderr.seek(0)
        printed, errors = stdout.read().decode(), stderr.read().decode()
    return subprocess.CompletedProcess(command, code, printed, errors)


@cache
def _migrated() -> bytes:
    """Make the tables once for all sites of this process, as `evalsite prepare` makes those of a new site."""
    with scratch_folder("migrated") as folder:
        Site(folder).manage("shell", "--verbosity", "0", "-c", PREPARE)
        return (folder / SQLITE_FILE).read_bytes()


@contextmanager
def running_site(**env: str) -> Iterator[Site]:
    """Run a site on SQLite, migrated, with the given variables besides its own."""
    with scratch_folder("site") as folder:
        site = Site(folder, **env)
        site.migrate()
        with running(site.web):
            yield site


def is_healthy(url: str) -> bool:
    """Tell whether the site answers that all its parts are there."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False

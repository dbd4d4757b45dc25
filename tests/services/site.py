"""The real site as its own process: gunicorn with the embedded worker on a fresh data folder."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.services.processes import free_port, running, scratch_folder

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Site:
    """A running site: its address, its folder and its environment."""

    url: str
    data_dir: Path
    env: dict[str, str]
    pid: int = 0

    def workers(self) -> list[int]:
        """Return the processes that serve and work, children of the one that watches them."""
        done = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True)
        return [int(line) for line in done.stdout.split()]

    def manage(self, *arguments: str) -> str:
        """Run a management command on the site's database and return what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise AssertionError(f"manage.py {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def login_link(self, username: str = "admin") -> str:
        """Make a one-time login link; the first call makes the admin."""
        return self.manage("login_link", username)

    def log(self) -> str:
        """Return what the server has logged."""
        return (self.data_dir / "server.log").read_text(errors="replace")


@contextmanager
def running_site(**env: str) -> Iterator[Site]:
    """Run a site on SQLite, migrated, with the given variables besides its own."""
    port = free_port()
    with scratch_folder("site") as folder:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        own = {
            "PORT": str(port),
            "EVALSITE_DATA_DIR": str(folder),
            "EVALSITE_URL": f"http://127.0.0.1:{port}",
        }
        site = Site(own["EVALSITE_URL"], folder, {**kept, **own, **env})
        site.manage("migrate", "--no-input", "--verbosity", "0")
        gunicorn = Path(sys.executable).with_name("gunicorn")
        with running(
            [gunicorn, "--chdir", ROOT, "-c", "python:evalsite.gunicorn", "evalsite.wsgi"],
            log=folder / "server.log",
            is_ready=lambda: is_healthy(site.url),
            env=site.env,
        ) as process:
            yield replace(site, pid=process.pid)


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

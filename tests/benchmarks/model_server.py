"""A model that answers every chat after a while, in a process of its own, and may fail like a provider."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from aiohttp import web

from tests.services.processes import ROOT

ANSWER = json.dumps(
    {"reasoning": "Says what was asked.", "hits": ["on topic"], "misses": [], "score": 0.9}
)
COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "mock",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": ANSWER},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
).encode()
HANGS_S = 30.0
OK, TOO_MANY, BROKEN, AWAY = 200, 429, 500, 503


@dataclass(frozen=True)
class Faults:
    """How often calls fail, drawn from a fixed seed, and when all do.

    Shares are those of all calls. From `away_from_s` on, counted from the first call, the model answers 503 for
    `away_s`. More calls than `per_minute` are refused with `retry_after`, by a bucket that holds `burst`.
    """

    refused: float = 0.0
    broken: float = 0.0
    hanging: float = 0.0
    away_from_s: float = 0.0
    away_s: float = 0.0
    per_minute: int = 0
    burst: int = 0
    retry_after: str = ""


@dataclass
class Provider:
    """Decides how each call ends, and remembers it."""

    faults: Faults
    calls: list[tuple[float, int]] = field(default_factory=list)
    random: Random = field(default_factory=lambda: Random(1))
    began_at: float | None = None
    left: float = 0.0
    filled_at: float = 0.0

    def decide(self, now: float) -> tuple[int, float]:
        """Return the status of a call that arrives now, and how many seconds more than usual it takes."""
        faults = self.faults
        if self.began_at is None:
            self.began_at, self.left = now, float(faults.burst)
        at = now - self.began_at
        status, more_s = self._drawn(at)
        if status == OK and faults.per_minute:
            self.left += (at - self.filled_at) * faults.per_minute / 60
            self.left, self.filled_at = min(float(faults.burst), self.left), at
            status = OK if self.left >= 1 else TOO_MANY
            self.left -= status == OK
        self.calls.append((at, status))
        return status, more_s

    def _drawn(self, at: float) -> tuple[int, float]:
        faults, drawn = self.faults, self.random.random()
        if faults.away_from_s <= at < faults.away_from_s + faults.away_s:
            return AWAY, 0.0
        if drawn < faults.hanging:
            return OK, HANGS_S
        if drawn < faults.hanging + faults.refused:
            return TOO_MANY, 0.0
        return (BROKEN if drawn < faults.hanging + faults.refused + faults.broken else OK), 0.0


@dataclass(frozen=True)
class Model:
    """The running server: its address, and every call so far as its seconds since the first and its status."""

    url: str

    def calls(self) -> list[tuple[float, int]]:
        """Ask the server for its calls."""
        with urllib.request.urlopen(f"{self.url}/calls") as answer:
            return [(at, status) for at, status in json.load(answer)]


@contextmanager
def model_server(*, latency_s: float, faults: Faults | None = None) -> Iterator[Model]:
    """Run the model."""
    facts = json.dumps(asdict(faults or Faults()))
    command = [sys.executable, "-m", "tests.benchmarks.model_server", str(latency_s), facts]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.stdout is None:
        raise RuntimeError("the model server has no output to read its address from")
    try:
        yield Model(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait()


async def serve(latency_s: float, faults: Faults) -> None:
    """Serve on a free port, written to standard output, until killed."""
    provider = Provider(faults)

    async def answer(request: web.Request) -> web.Response:
        status, more_s = provider.decide(time.monotonic())
        await request.read()
        if latency_s + more_s:
            await asyncio.sleep(latency_s + more_s)
        if status == OK:
            return web.Response(body=COMPLETION, content_type="application/json")
        headers = {"Retry-After": faults.retry_after} if faults.retry_after else {}
        return web.json_response({"error": {"message": "no"}}, status=status, headers=headers)

    async def tell(request: web.Request) -> web.Response:
        calls: list[Any] = provider.calls
        return web.json_response(calls)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/calls", tell)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), Faults(**json.loads(sys.argv[2]))))

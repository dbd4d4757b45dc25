"""A model that answers every chat after a while, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def model_server(*, latency_s: float) -> Iterator[str]:
    """Run the model and give its address."""
    command = [sys.executable, "-m", "tests.benchmarks.model_server", str(latency_s)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.stdout is None:
        raise RuntimeError("the model server has no output to read its address from")
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def serve(latency_s: float) -> None:
    """Serve on a free port, written to standard output, until killed."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        if latency_s:
            await asyncio.sleep(latency_s)
        return web.Response(body=COMPLETION, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))

"""A model that answers every chat after 100 ms, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

LATENCY_S = 0.1
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


async def answer(request: web.Request) -> web.Response:
    """Answer a chat."""
    await request.read()
    await asyncio.sleep(LATENCY_S)
    return web.Response(body=COMPLETION, content_type="application/json")


async def serve() -> None:
    """Serve on a free port, written to standard output, until killed."""
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
    asyncio.run(serve())

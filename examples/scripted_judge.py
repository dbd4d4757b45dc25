"""Serve the demo's written judge replies the way an OpenAI-compatible model would.

No model is called. A reply is found by target, case and evaluator, which Evalsite names in its
trace headers; a request without them gets the smallest JSON object its schema allows.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

MODEL = "scripted-judge"
HOST = "127.0.0.1"
REPLIES = Path(__file__).parent / "support-agent" / "judge.jsonl"
PLACES = ("target", "case", "evaluator")
SHORTEST_DELAY_MS = 60
LONGEST_DELAY_MS = 250
SHOWN_OBJECT = re.compile(r'\{"[^{}]*\}')

Key = tuple[str, ...]

log = logging.getLogger("scripted_judge")


def read_replies(path: Path) -> dict[Key, str]:
    """Return the reply text of every key; raise ValueError naming the line that is wrong."""
    replies: dict[Key, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            key = tuple(str(entry[place]) for place in PLACES)
            text = (
                entry["text"] if "text" in entry else json.dumps(entry["reply"], ensure_ascii=False)
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path.name} line {number}: no readable reply ({error!r})") from error
        if key in replies:
            raise ValueError(f"{path.name} line {number}: a second reply for {' / '.join(key)}")
        replies[key] = text
    return replies


def smallest(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return a small value that satisfies the schema, as far as judges' schemas go."""
    if "$ref" in schema:
        return smallest(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        return smallest(schema["anyOf"][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "string":
            return "ok".ljust(schema.get("minLength", 0), ".")
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "array":
            return [smallest(schema.get("items", {}), root)] * schema.get("minItems", 0)
        case _:
            names = schema.get("required", ())
            return {name: smallest(schema["properties"][name], root) for name in names}


def answer_without_case(body: Mapping[str, Any]) -> str:
    """Answer a test question by its schema, else by the object it shows, else with {"ok": true}."""
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema")
    if schema:
        return json.dumps(smallest(schema, schema))
    contents = [str(message.get("content")) for message in body["messages"]]
    shown = SHOWN_OBJECT.findall("\n".join(contents))
    return shown[-1] if shown else '{"ok": true}'


def delay_seconds(key: Key, longest_ms: int) -> float:
    """Return the same short wait for the same key, so that a live run can be watched."""
    if longest_ms <= 0:
        return 0.0
    shortest_ms = min(SHORTEST_DELAY_MS, longest_ms)
    draw = int.from_bytes(hashlib.sha256("/".join(key).encode()).digest()[:4], "big")
    return (shortest_ms + draw % (longest_ms - shortest_ms + 1)) / 1000


def completion(text: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a reply as a chat completion; a token is counted as four characters."""
    asked = sum(len(json.dumps(message)) // 4 for message in body.get("messages", ()))
    said = len(text) // 4
    digest = hashlib.sha256(json.dumps([body, text]).encode()).hexdigest()
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def refusal(status: int, code: str, message: str) -> web.Response:
    """Say what went wrong in the error shape of the chat API."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


def named_key(request: web.Request) -> Key:
    """Return target, case and evaluator of a judge call; empty texts for headers left out."""
    headers = (f"X-Evalsite-{place.title()}" for place in PLACES)
    return tuple(unquote(request.headers.get(header, "")) for header in headers)


class ScriptedJudge:
    """The written replies and the routes that give them out."""

    def __init__(self, replies: Mapping[Key, str], longest_delay_ms: int) -> None:
        """Keep the replies; 0 as the longest delay answers at once."""
        self.replies = replies
        self.longest_delay_ms = longest_delay_ms

    async def complete(self, request: web.Request) -> web.Response:
        """Answer one chat completion; 404 names a key that has no reply."""
        try:
            body = await request.json()
        except ValueError:
            return refusal(400, "invalid_json", "The request body is not JSON.")
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            return refusal(400, "invalid_body", "The request needs a list of messages.")
        if body.get("stream"):
            return refusal(400, "no_streaming", "The scripted judge does not stream.")
        key = named_key(request)
        text = self.replies.get(key) if any(key) else answer_without_case(body)
        await asyncio.sleep(delay_seconds(key, self.longest_delay_ms))
        if text is None:
            sought = ", ".join(f"{place} {part!r}" for place, part in zip(PLACES, key, strict=True))
            return refusal(404, "no_scripted_reply", f"No reply was written for {sought}.")
        return web.json_response(completion(text, body))

    async def models(self, request: web.Request) -> web.Response:
        """List the one model there is."""
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "evalsite-demo"}
        return web.json_response({"object": "list", "data": [model]})

    def app(self) -> web.Application:
        """Return the application with its two routes."""
        app = web.Application(client_max_size=16 * 1024**2)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        return app


async def serve(judge: ScriptedJudge, port: int, ready_file: Path | None) -> None:
    """Serve until cancelled; the ready file holds the base URL once connections are accepted."""
    listener = socket.create_server((HOST, port))
    runner = web.AppRunner(judge.app(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        base_url = f"http://{HOST}:{listener.getsockname()[1]}/v1"
        log.info("Scripted judge ready at %s with %d replies", base_url, len(judge.replies))
        if ready_file:
            await asyncio.to_thread(ready_file.write_text, f"{base_url}\n", encoding="utf-8")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Read the arguments and serve until interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8790, help="0 takes any free port")
    parser.add_argument("--ready-file", type=Path, help="written with the base URL when ready")
    parser.add_argument("--replies", type=Path, default=REPLIES, help="JSONL file of replies")
    parser.add_argument("--delay", type=int, default=LONGEST_DELAY_MS, help="longest wait in ms")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        judge = ScriptedJudge(read_replies(chosen.replies), chosen.delay)
        asyncio.run(serve(judge, chosen.port, chosen.ready_file))
    except KeyboardInterrupt:
        log.info("Scripted judge stopped")
    except (OSError, ValueError) as error:
        parser.exit(1, f"scripted_judge: {error}\n")


if __name__ == "__main__":
    main()

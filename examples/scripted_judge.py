"""Serve the demo's judges the way an OpenAI-compatible server would, and its agents over HTTP.

No model is called. A reply is found by target, case and evaluator, which Evalsite names in its
trace headers: it was written word by word, or is made by reading the answer with a marking guide.
A request without the headers gets the smallest JSON object its schema allows.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from scripted.agents import READER, USD_PER_CHARACTER, ScriptedAgents, read_attempts
from scripted.asking import read_agent_question, read_asked
from scripted.drafting import Case, draft, read_cases
from scripted.marking import Guide, read_guides
from scripted.preferences import HASTY
from scripted.proposals import proposals
from scripted.replies import read_reply
from scripted.tempers import MOODY, STRICT, Tempers
from scripted.written import PLACES, Key, answer_without_case, read_replies

MODEL = "scripted-judge"
MODELS = (MODEL, "scripted-judge-small", "scripted-judge-large", STRICT, MOODY, HASTY)
HOST = "127.0.0.1"
EXAMPLES = Path(__file__).parent
REPLIES = EXAMPLES / "support-agent" / "judge.jsonl"
DRAFTS = EXAMPLES / "support-agent" / "drafts.jsonl"
MIN_DELAY_MS = 60
MAX_DELAY_MS = 250

log = logging.getLogger("scripted_judge")


def delay_seconds(key: Key, longest_ms: int) -> float:
    """Return the same short wait for the same key, so that a live run can be watched."""
    if longest_ms <= 0:
        return 0.0
    shortest_ms = min(MIN_DELAY_MS, longest_ms)
    draw = int.from_bytes(hashlib.sha256("/".join(key).encode()).digest()[:4], "big")
    return (shortest_ms + draw % (longest_ms - shortest_ms + 1)) / 1000


def completion(text: str, body: Mapping[str, Any], fingerprint: str) -> dict[str, Any]:
    """Wrap a reply as a chat completion; a token is counted as four characters."""
    prompt = sum(len(json.dumps(message)) // 4 for message in body.get("messages", ()))
    reply = len(text) // 4
    digest = hashlib.sha256(json.dumps([body, text]).encode()).hexdigest()
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model") or MODEL,
        "system_fingerprint": fingerprint,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": reply,
            "total_tokens": prompt + reply,
        },
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
    """The written replies, guides and agents, and the routes that give them out."""

    def __init__(
        self,
        replies: Mapping[Key, str],
        guides: Mapping[str, Guide],
        agents: ScriptedAgents,
        longest_delay_ms: int,
        drafts: Sequence[Case] = (),
    ) -> None:
        """Keep what was written; 0 as the longest delay answers at once."""
        self.drafts = drafts
        self.replies = replies
        self.guides = guides
        self.agents = agents
        self.longest_delay_ms = longest_delay_ms
        self.tempers = Tempers()

    def text_for(self, body: Mapping[str, Any], key: Key) -> str | None:
        """Return the reply written for a key, else the one its case's guide makes; None without both."""
        if not any(key):
            asked = read_asked(body, key)
            if "candidates" in asked.parts():
                return json.dumps(proposals(asked), ensure_ascii=False)
            return draft(body, self.drafts) or answer_without_case(body)
        text = self.replies.get(key)
        if text is None:
            reply = read_reply(read_asked(body, key), self.guides)
            text = None if reply is None else json.dumps(reply, ensure_ascii=False)
        return None if text is None else self.tempers.apply(text, str(body.get("model")), key)

    def attempt(self, agent: str, case: str, task: str) -> Mapping[str, Any] | None:
        """Return what an agent answers, the reader its opinion; None where nothing was written."""
        if agent != READER:
            return self.agents.next_attempt(agent, case)
        reply = read_reply(read_agent_question(task, case, agent), self.guides)
        if reply is None:
            return None
        text = json.dumps(reply, ensure_ascii=False)
        return {"answer": text, "cost_usd": round((len(task) + len(text)) * USD_PER_CHARACTER, 6)}

    async def complete(self, request: web.Request) -> web.Response:
        """Answer one chat completion; 404 names a key that has no reply."""
        try:
            body = await request.json()
        except ValueError:
            return refusal(400, "invalid_json", "The request body is not JSON.")
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not all(
            isinstance(message, dict) for message in messages
        ):
            return refusal(400, "invalid_body", "The request needs a list of messages.")
        if body.get("stream"):
            return refusal(400, "no_streaming", "The scripted judge does not stream.")
        key = named_key(request)
        text = self.text_for(body, key)
        await asyncio.sleep(delay_seconds(key, self.longest_delay_ms))
        if text is None:
            sought = ", ".join(f"{place} {part!r}" for place, part in zip(PLACES, key, strict=True))
            return refusal(404, "no_scripted_reply", f"No reply was written for {sought}.")
        fingerprint = self.tempers.fingerprint(str(body.get("model")))
        return web.json_response(completion(text, body, fingerprint))

    async def models(self, request: web.Request) -> web.Response:
        """List the models there are."""
        facts = {"object": "model", "created": 0, "owned_by": "evalsite-demo"}
        return web.json_response({"object": "list", "data": [{"id": m, **facts} for m in MODELS]})

    async def act(self, request: web.Request) -> web.Response:
        """Answer as an agent; 404 names what nothing was written for."""
        agent = request.match_info["agent"]
        try:
            body = await request.json()
            case, task = str(body["case"]), str(body["task"])
        except (ValueError, TypeError, KeyError):
            return refusal(400, "invalid_json", "The request is no JSON object with case and task.")
        attempt = self.attempt(agent, case, task)
        await asyncio.sleep(delay_seconds((agent, case), self.longest_delay_ms))
        if attempt is None:
            return refusal(404, "no_attempt", f"Nothing was written for {agent!r} and {case!r}.")
        return web.json_response(attempt)

    def app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(client_max_size=16 * 1024**2)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/agents/{agent}", self.act)
        return app


async def serve(
    judge: ScriptedJudge, port: int, ready_file: Path | None, *, until_input_ends: bool
) -> None:
    """Serve until cancelled; the ready file holds the base URL once connections are accepted."""
    end = asyncio.Event()
    if until_input_ends:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), end.set)
    listener = socket.create_server((HOST, port))
    runner = web.AppRunner(judge.app(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        base_url = f"http://{HOST}:{listener.getsockname()[1]}/v1"
        counts = len(judge.replies), len(judge.guides)
        log.info("Scripted judge ready at %s with %d replies and %d guides", base_url, *counts)
        if ready_file:
            await asyncio.to_thread(ready_file.write_text, f"{base_url}\n", encoding="utf-8")
        await end.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Read the arguments and serve until interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8790, help="0 takes any free port")
    parser.add_argument("--ready-file", type=Path, help="written with the base URL when ready")
    parser.add_argument("--replies", type=Path, default=REPLIES, help="JSONL file of replies")
    parser.add_argument("--delay", type=int, default=MAX_DELAY_MS, help="longest wait in ms")
    parser.add_argument(
        "--until-input-ends", action="store_true", help="stop when standard input is closed"
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        guides = read_guides(sorted(EXAMPLES.glob("*/marking.jsonl")))
        agents = ScriptedAgents(read_attempts(sorted(EXAMPLES.glob("*/attempts-*.jsonl"))))
        drafts = read_cases(DRAFTS)
        judge = ScriptedJudge(read_replies(chosen.replies), guides, agents, chosen.delay, drafts)
        asyncio.run(
            serve(judge, chosen.port, chosen.ready_file, until_input_ends=chosen.until_input_ends)
        )
    except KeyboardInterrupt:
        log.info("Scripted judge stopped")
    except (OSError, ValueError) as error:
        parser.exit(1, f"scripted_judge: {error}\n")


if __name__ == "__main__":
    main()

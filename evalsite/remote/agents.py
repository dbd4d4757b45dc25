"""An agent on this machine, asked as the site asks its targets: a command, or an address."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx2
from pydantic import ValidationError

from evalsite.client import Case
from evaluators.kinds._base import (
    CaseFacts,
    Message,
    Output,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
)
from evaluators.kinds._prompts import VARIABLE
from evaluators.reading.json import read_json, storable
from evaluators.sandbox.box import KeptFilesError, collect
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds import get_target_kind
from runs.target_kinds._base import AgentFailure, AgentReply, AgentRequest, TargetContext
from runs.target_kinds._outputs import messages_as_json, trace_as_json, usage_as_json
from runs.target_kinds.http import is_allowed_variable

NAME = "agent"
# Another try may get an answer to these; the wait doubles from one to the next.
TEMPORARY, FIRST_WAIT_S = (429, 500, 502, 503, 504), 0.5
RemoteAgent = Callable[[Case], Awaitable[dict[str, Any]]]


class UnusableAgentError(Exception):
    """The agent is described in a way in which it cannot be asked."""


def agent_here(agent: str, settings: Mapping[str, Any]) -> RemoteAgent:
    """Return what asks an agent and gives its output in the form of a recorded line.

    `agent` is an address or a command, and `settings` are those of a target of that kind. Raises UnusableAgentError.
    """
    is_address = agent.startswith(("http://", "https://"))
    kind = get_target_kind("http" if is_address else "command")
    named = {"url" if is_address else "command": agent}
    known = list(kind.config.model_fields)
    if unknown := sorted(settings.keys() - set(known)):
        raise UnusableAgentError(
            f"--set {unknown[0]}: {kind.name} has no such setting; there are {', '.join(known)}."
        )
    try:
        config = kind.config.model_validate({**settings, **named})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "--agent"
        raise UnusableAgentError(f"{place}: {first['msg']}") from None

    async def ask(case: Case) -> dict[str, Any]:
        turns = tuple(Message(turn["role"], turn["content"]) for turn in case.input)
        facts = CaseFacts(key=case.key, input=turns, metadata=case.metadata)
        context = TargetContext(NAME, facts, agent=ask_address, sandbox=ThisMachine())
        answer = await kind.answer(config, context)
        if isinstance(answer, TargetFailure):
            return {"error": answer.reason}
        return output_as_json(answer)

    return ask


def output_as_json(output: Output) -> dict[str, Any]:
    """Return an output in the form of a recorded line."""
    usage = usage_as_json(output.usage)
    values = {
        "output": output.text,
        "messages": messages_as_json(output),
        "trace": trace_as_json(output),
        "files": {name: _content(content) for name, content in output.files.items()},
        "latency_ms": usage.pop("latency_ms", None),
        "cost_usd": usage.pop("cost_usd", None),
        "usage": usage,
    }
    return {name: value for name, value in values.items() if value or name == "output"}


def _content(content: bytes) -> Any:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


class ThisMachine:
    """Runs the agent's program as the member who calls, without a sandbox: it is their own."""

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Return how the program ended; raises SandboxRefusal if it could not be started."""
        if call.files:
            raise SandboxRefusal("files of a target are for the site; keep them beside the agent")
        started_at = time.perf_counter()
        with tempfile.TemporaryDirectory() as workspace:
            try:
                process = await asyncio.create_subprocess_exec(
                    *call.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=call.folder or None,
                    env={**os.environ, "EVAL_WORKSPACE": workspace},
                    start_new_session=True,
                )
            except OSError as error:
                reason = f"{call.command[0]} cannot be started: {error.strerror}"
                raise SandboxRefusal(reason) from error
            stdout, stderr, ended_by, timed_out = b"", b"", "", False
            try:
                async with asyncio.timeout(call.seconds):
                    stdout, stderr = await process.communicate(call.stdin)
            except TimeoutError:
                ended_by, timed_out = f"its time of {call.seconds:g} s", True
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            took_ms = round((time.perf_counter() - started_at) * 1000)
            try:
                files = {} if timed_out else _files_in(workspace)
            except KeptFilesError as error:
                files, ended_by = {}, str(error)
        return ScriptResult(
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            exit_code=process.returncode,
            ended_by=ended_by,
            timed_out=timed_out,
            duration_ms=took_ms,
            files=files,
        )


def _files_in(folder: str) -> Mapping[str, bytes]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return collect(handle)
    finally:
        os.close(handle)


async def ask_address(request: AgentRequest) -> Output:
    """Return the output of an agent behind an address; raises AgentFailure if there is none in time."""
    started_at = time.perf_counter()
    try:
        async with asyncio.timeout(request.timeout_s):
            response = await _send(request)
    except TimeoutError:
        reason = f"no answer within {request.timeout_s:g} s"
        raise AgentFailure(reason, Cause.TIMEOUT) from None
    if not response.is_success:
        detail = f": {response.text[:300]}" if response.text else ""
        raise AgentFailure(f"the agent answered {response.status_code}{detail}", Cause.FAILED)
    reading = request.read(_reply(response))
    if reading.output is None:
        raise AgentFailure(reading.problem, Cause.BAD_REPLY)
    took_ms = round((time.perf_counter() - started_at) * 1000)
    usage = replace(reading.usage, latency_ms=took_ms)
    return replace(reading.output, usage=usage)


async def _send(request: AgentRequest) -> httpx2.Response:
    """Return the answer; a request that may have arrived is not sent again, except after 429 and 5xx."""
    headers = {header.name: _value(header.value) for header in request.headers}
    async with httpx2.AsyncClient(timeout=request.timeout_s, trust_env=False) as http:
        for attempt in range(1, request.tries + 1):
            try:
                response = await http.request(
                    request.method, request.url, headers=headers, json=request.body
                )
            except httpx2.ConnectError as error:
                if attempt == request.tries:
                    reason = f"{request.url} cannot be reached: {error}"
                    raise AgentFailure(reason, Cause.CONNECTION) from error
            except httpx2.TransportError as error:
                reason = f"the agent broke the connection: {error}"
                raise AgentFailure(reason, Cause.CONNECTION) from error
            else:
                if response.status_code not in TEMPORARY or attempt == request.tries:
                    return response
            await asyncio.sleep(FIRST_WAIT_S * 2 ** (attempt - 1))
    raise AssertionError("the last try returns or raises")


def _value(value: str) -> str:
    """Return the value of a header with the variables of the environment that it may name."""
    return VARIABLE.sub(
        lambda match: os.environ.get(match[1], "") if is_allowed_variable(match[1]) else match[0],
        value,
    )


def _reply(response: httpx2.Response) -> AgentReply:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    try:
        value, is_json = read_json(response.text, keeps_last=True, unstorable="replace"), True
    except ValueError:
        value, is_json = None, False
    return AgentReply(storable(response.text), value, is_json, kind)

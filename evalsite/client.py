"""Evaluate an agent from Python, wherever it runs; the site scores what it answers.

    from evalsite.client import Evalsite

    site = Evalsite("http://127.0.0.1:8000", token="evs_…")
    report = site.evaluate("support-agent", lambda case: my_agent(case.text))
    print(report.conclusion, report.url)

It needs `httpx2` and no Django.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

import httpx2

from evaluators.reading.json import storable

SERVER, TOKEN = "EVALSITE_SERVER", "EVALSITE_TOKEN"
TARGET = "python"
CONCURRENCY = 8
BATCH, PAGE = 50, 500
# The site takes 8 MB of JSON.
MAX_BATCH_BYTES, MAX_OUTPUT_BYTES = 4_000_000, 8_000_000
PUSH_EVERY_S = 0.5
POLL_EVERY_S = 1.0
WAIT_S, LOOK_S, TIMEOUT_S = 30, 2, 60.0
TRIES = 5
MAX_WAIT_S = 60.0
MAX_ERROR_LENGTH = 2_000
# Answers that another try may change. A repeated push changes nothing, and a start has its key.
TEMPORARY = (429, 502, 503, 504)
# A worker still makes the file.
PREPARED = 202


class EvalsiteError(Exception):
    """The site refused a request, or cannot be reached.

    `status` is the HTTP status, None without an answer. `code` names the refusal, "" for none, and `errors` are
    the wrong places of what was sent, by JSON pointer.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        errors: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Keep what the site says."""
        super().__init__(message)
        self.status, self.code, self.errors = status, code, dict(errors or {})


@dataclass(frozen=True, slots=True)
class Case:
    """What the agent is asked; it never contains what is expected."""

    key: str
    repetition: int
    input: Sequence[Mapping[str, Any]]
    title: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the last message of the user."""
        texts = [turn["content"] for turn in self.input if turn.get("role") == "user"]
        return str(texts[-1]) if texts else ""


@dataclass(frozen=True, slots=True)
class Output:
    """What the agent answered, with what it took; the latency is measured where it is None.

    `messages` are turns with role and content, and `trace` are steps with type and name, such as
    {"type": "tool", "name": "find_order", "input": …, "output": …}.
    """

    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    trace: Sequence[Mapping[str, Any]] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | float | str | None = None
    latency_ms: int | None = None

    def as_json(self, *, took_ms: int) -> dict[str, Any]:
        """Return it in the form of a line of recorded outputs."""
        tokens = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        values: dict[str, Any] = {
            "output": self.text,
            "messages": list(self.messages) or None,
            "trace": None if self.trace is None else list(self.trace),
            "usage": {name: count for name, count in tokens.items() if count is not None} or None,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
            "latency_ms": took_ms if self.latency_ms is None else self.latency_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


# A mapping has the form of a line of recorded outputs, or says an `error`.
Answer = str | Output | Mapping[str, Any]
Agent = Callable[[Case], Answer | Awaitable[Answer]]
OnProgress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Report:
    """A run that has ended; `document` is everything the site says about it."""

    name: str
    url: str
    exit_code: int
    conclusion: str
    document: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Tell whether both gates are met."""
        return self.exit_code == 0


class Evalsite:
    """A site, reached with a token with the scopes run and edit.

    Without arguments, EVALSITE_SERVER and EVALSITE_TOKEN name them.
    """

    def __init__(
        self,
        server: str = "",
        *,
        token: str = "",
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Connect to nothing yet; raises EvalsiteError without server or token."""
        self.server = (server or os.environ.get(SERVER, "")).rstrip("/")
        token = token or os.environ.get(TOKEN, "")
        if not self.server or not token:
            missing = TOKEN if self.server else SERVER
            raise EvalsiteError(
                f"Name the site and a token, or set {SERVER} and {TOKEN}; {missing} is missing."
            )
        self._sleep = sleep
        self._http = httpx2.Client(
            base_url=f"{self.server}/api/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
        )

    def __enter__(self) -> Self:
        """Return the site."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the answer to a call that reads, such as `runs/support-agent:12`."""
        return self._send("GET", path, params=parameters)

    def post(self, path: str, body: Any = None, *, key: str = "") -> Any:
        """Return the answer to a call that changes something; with a `key` it is safe to repeat."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._send("POST", path, json={} if body is None else body, headers=headers)

    def replace(self, path: str, old: Any, new: Any) -> None:
        """Replace what is at a path, which was `old`; raises EvalsiteError if somebody has changed it since."""
        response = self._answer("GET", path)
        if _read(response) != old:
            raise EvalsiteError(
                f"Another member has just changed {path}. Look at it, then try again."
            )
        self._send("PUT", path, json=new, headers={"If-Match": response.headers["ETag"]})

    def put_file(self, path: str, content: bytes, media_type: str) -> Any:
        """Return the answer to a call that stores a file, such as `suites/support-agent`."""
        return self._send("PUT", path, content=content, headers={"Content-Type": media_type})

    def file(self, path: str, **parameters: Any) -> bytes:
        """Return a file, such as `runs/support-agent:12/results.jsonl`; one that a worker makes is waited for."""
        response = self._answer("GET", path, params=parameters)
        while response.status_code == PREPARED:
            state = _read(response)
            if state["error"]:
                raise EvalsiteError(f"The file {state['file']} cannot be made: {state['error']}")
            self._sleep(POLL_EVERY_S)
            response = self._answer("GET", path, params=parameters)
        if not response.is_success:
            _read(response)
        return response.content

    def rows(self, path: str, **parameters: Any) -> Iterator[Any]:
        """Yield the rows of a list, page after page."""
        answer = self.get(path, limit=PAGE, **parameters)
        while True:
            yield from answer["results"]
            if not answer["next"]:
                return
            # The token goes to no other site, whatever a proxy makes of the address.
            following = httpx2.URL(answer["next"]).raw_path
            answer = self._send("GET", str(self._http.base_url.copy_with(raw_path=following)))

    def evaluate(
        self,
        suite: str,
        agent: Agent,
        *,
        target: str = TARGET,
        repetitions: int = 1,
        cases: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        note: str = "",
        concurrency: int = CONCURRENCY,
        on_progress: OnProgress | None = None,
        run: str = "",
    ) -> Report:
        """Ask the agent about every case of a suite, and return the report once all answers are scored.

        The agent is a function or a coroutine function; up to `concurrency` cases are under way at a time. An
        exception of the agent is the error of its case. `target` is what the site calls the agent; it is added
        if there is none. With `run`, such as "support-agent:12", that run is continued where it was left.
        `on_progress` is called with the number of answered cases and of all that waited. Raises EvalsiteError.
        """
        if not run:
            self.add_target(target)
            choices = {"repetitions": repetitions, "note": note, "cases": cases, "tags": tags}
            run = self.start(suite, target, **choices)
        self.answer(run, agent, concurrency=concurrency, on_progress=on_progress)
        return self.wait(run)

    def answer(
        self,
        run: str,
        agent: Agent,
        *,
        concurrency: int = CONCURRENCY,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Ask the agent about every case that a run waits for, and push its answers; see `evaluate`."""
        waiting = list(self.awaited(run))
        Evaluation(self, run, agent, concurrency, on_progress).answer(waiting)

    def awaited(self, run: str) -> Iterator[Case]:
        """Yield every case that a run waits for, in each of its repetitions."""
        for row in self.rows(f"runs/{run}/awaited"):
            yield Case(
                key=row["case"],
                repetition=row["repetition"],
                input=row["input"],
                title=row["title"],
                tags=row["tags"],
                metadata=row["metadata"],
            )

    def start(self, suite: str, target: str, **choices: Any) -> str:
        """Start a run with what the call that starts runs takes, and return its name: support-agent:12."""
        return self.start_campaign(suite, [target], **choices)[0]

    def start_campaign(self, suite: str, targets: Sequence[str], **choices: Any) -> Sequence[str]:
        """Start a run against each target, all or none, and return their names in the order of the targets."""
        body = {"suite": suite, "targets": list(targets), **choices}
        started = self.post("runs", body, key=os.urandom(16).hex())
        return [str(run["name"]) for run in started["runs"]]

    def add_target(self, name: str) -> None:
        """Add a target whose outputs are pushed, unless there is one of this name."""
        if any(row["name"] == name for row in self.rows("targets", kind="pushed")):
            return
        try:
            self.post("targets", {"name": name, "kind": "pushed"})
        except EvalsiteError:
            # Somebody else may have added it meanwhile.
            if not any(row["name"] == name for row in self.rows("targets", kind="pushed")):
                raise

    def push(self, run: str, outputs: Sequence[Mapping[str, Any]]) -> Any:
        """Push outputs, each with case and repetition, into a run that waits for them; safe to repeat."""
        return self.post(f"runs/{run}/outputs", {"outputs": list(outputs)})

    def wait(self, run: str, *, on_look: Callable[[Any], object] | None = None) -> Report:
        """Return the report of a run once it has ended; `on_look` is called with what the run is until then."""
        wait_s = WAIT_S if on_look is None else LOOK_S
        while (document := self.get(f"runs/{run}", wait=wait_s))["exit_code"] is None:
            if on_look is not None:
                on_look(document)
            self._sleep(POLL_EVERY_S)
        return Report(
            name=document["name"],
            url=f"{self.server}{document['url']}",
            exit_code=document["exit_code"],
            conclusion=document["conclusion"],
            document=document,
        )

    def _send(self, method: str, path: str, **options: Any) -> Any:
        return _read(self._answer(method, path, **options))

    def _answer(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Return the answer of the last try."""
        for attempt in range(1, TRIES + 1):
            try:
                response = self._http.request(method, path, **options)
            except httpx2.RequestError as error:
                if attempt == TRIES:
                    raise EvalsiteError(f"{self.server} cannot be reached: {error}") from error
                self._sleep(min(2.0**attempt, MAX_WAIT_S))
                continue
            if response.status_code not in TEMPORARY or attempt == TRIES:
                return response
            self._sleep(_wait_s(response, attempt))
        raise AssertionError("the last try returns or raises")


class Evaluation:
    """Asks an agent about cases and pushes what it answers, in batches, while others are under way."""

    def __init__(
        self,
        site: Evalsite,
        run: str,
        agent: Agent,
        concurrency: int,
        on_progress: OnProgress | None,
    ) -> None:
        """Have asked nothing yet."""
        self._site, self._run, self._agent = site, run, agent
        self._concurrency, self._on_progress = max(1, concurrency), on_progress
        self._is_coroutine = inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(
            getattr(agent, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
        )
        self._outputs: list[dict[str, Any]] = []
        self._done = 0
        self._task: asyncio.Task[None] | None = None
        self._problem: Exception | None = None
        self._is_stopped = False
        self._has_ended = threading.Event()

    def answer(self, cases: Sequence[Case]) -> None:
        """Ask about all cases, and push every answer; an error of the site ends it and is raised.

        Ctrl-C asks about nothing more, pushes what was answered, and is raised.
        """
        # In a thread, because the caller may have a loop of its own, as in a notebook.
        thread = threading.Thread(target=self._run_loop, args=(cases,), daemon=True)
        try:
            thread.start()
            self._has_ended.wait()
        except KeyboardInterrupt:
            self._is_stopped = True
            if self._task is not None:
                # Its loop may end at this moment.
                with suppress(RuntimeError):
                    self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            # To join it a second time would not wait: Python 3.11 takes it for ended once Ctrl-C came in the first.
            if thread.is_alive():
                self._has_ended.wait()
            raise
        if self._problem is not None:
            raise self._problem

    def _run_loop(self, cases: Sequence[Case]) -> None:
        try:
            asyncio.run(self._answer_all(cases))
        except asyncio.CancelledError:
            # Ctrl-C is raised where it arrived.
            return
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the caller
            self._problem = error
        finally:
            self._has_ended.set()

    async def _answer_all(self, cases: Sequence[Case]) -> None:
        self._task = asyncio.current_task()
        queue = iter(() if self._is_stopped else cases)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(self._concurrency) as threads:

            async def consume() -> None:
                for case in queue:
                    output = await self._ask(case, loop, threads)
                    self._outputs.append(
                        {**output, "case": case.key, "repetition": case.repetition}
                    )
                    self._done += 1
                    if self._on_progress is not None:
                        self._on_progress(self._done, len(cases))

            consumers = {asyncio.create_task(consume()) for _ in range(self._concurrency)}
            try:
                at_work = consumers
                while at_work:
                    done, at_work = await asyncio.wait(at_work, timeout=PUSH_EVERY_S)
                    for consumer in done:
                        consumer.result()
                    await self._push(loop)
            except asyncio.CancelledError:
                _cancel(consumers)
                await asyncio.wait(consumers)
                await self._push(loop)
                raise
            finally:
                _cancel(consumers)

    async def _ask(
        self, case: Case, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor
    ) -> dict[str, Any]:
        started = time.perf_counter()
        try:
            if self._is_coroutine:
                answer: Any = await self._agent(case)  # type: ignore[misc]  # a coroutine function
            else:
                answer = await loop.run_in_executor(threads, self._agent, case)
                answer = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - whatever the agent raises is the error of its case
            text = "".join(traceback.format_exception_only(error)).strip()
            return {"error": storable(text[:MAX_ERROR_LENGTH])}
        took_ms = round((time.perf_counter() - started) * 1000)
        if not isinstance(answer, str | Output | Mapping):
            name = type(answer).__name__
            return {"error": f"The agent returned {name}, not a text or an Output."}
        output = answer_as_json(answer, took_ms=took_ms)
        try:
            json.dumps(output, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            return {"error": f"The answer of the agent cannot be sent as JSON: {error}."}
        # A character that no database stores would refuse the outputs of other cases too.
        return dict(storable(output))

    async def _push(self, loop: asyncio.AbstractEventLoop) -> None:
        outputs, self._outputs = self._outputs, []
        for batch in batches(outputs):
            await loop.run_in_executor(None, self._site.push, self._run, batch)


def answer_as_json(answer: Answer, *, took_ms: int) -> dict[str, Any]:
    """Return what an agent answered in the form of a line of recorded outputs."""
    if isinstance(answer, Mapping):
        took = {} if "error" in answer else {"latency_ms": took_ms}
        return {**took, **answer}
    output = answer if isinstance(answer, Output) else Output(answer)
    return output.as_json(took_ms=took_ms)


def batches(outputs: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the outputs in parts that the site takes: neither too many nor too long."""
    batch: list[Mapping[str, Any]] = []
    length = 0
    for output in outputs:
        size = len(json.dumps(output, ensure_ascii=False).encode())
        if size > MAX_OUTPUT_BYTES:
            place = {name: output[name] for name in ("case", "repetition")}
            output = {**place, "error": f"The output has {size // 1_000_000} MB; 8 is the limit."}
            size = 0
        if batch and (len(batch) == BATCH or length + size > MAX_BATCH_BYTES):
            yield batch
            batch, length = [], 0
        batch.append(output)
        length += size
    if batch:
        yield batch


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _read(response: httpx2.Response) -> Any:
    """Return the object of an answer, None if it is empty; raises EvalsiteError for a refusal and anything else."""
    content: Any = None
    with suppress(ValueError, RecursionError):
        content = response.json() if response.content else None
    if response.is_success:
        if isinstance(content, dict) or not response.content:
            return content
        message = (
            f"{response.url} does not answer like a site of Evalsite: it is not a JSON object."
        )
        raise EvalsiteError(message, status=response.status_code)
    problem = content if isinstance(content, dict) else {}
    errors = problem.get("errors")
    raise EvalsiteError(
        str(problem.get("detail") or f"The site answered {response.status_code}."),
        status=response.status_code,
        code=str(problem.get("code") or ""),
        errors={
            place: [*map(str, texts)]
            for place, texts in (errors.items() if isinstance(errors, dict) else ())
            if isinstance(texts, list)
        },
    )


def _wait_s(response: httpx2.Response, attempt: int) -> float:
    """Return how long to wait for another try: what the site says, or ever longer."""
    seconds = response.headers.get("Retry-After", "")
    is_number = seconds.isascii() and seconds.isdecimal()
    return min(float(seconds) if is_number else 2.0**attempt, MAX_WAIT_S)

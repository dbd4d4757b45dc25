"""Outputs as plain JSON, as recorded lines and stored outputs hold them: conversations, traces, files and usage."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from posixpath import normpath
from typing import Any, TypeVar

from evaluators.kinds._base import Message, Output, Step
from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import normal_spelling
from evaluators.reading.json import MAX_REPLY_VALUES, count_values, read_json
from evaluators.scoring.types import Usage

MAX_SHOWN_LENGTH = 120
# A page of more could hardly be opened, and a judge could hardly read it.
MAX_TURNS, MAX_STEPS = 1000, 5000
CALLS = "tool_calls"
CALL_NAMES = ("tool", "name", "tool_name")
CALL_INPUTS = ("input", "arguments", "args")
CALL_OUTPUTS = ("output", "result")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns, the tool calls (None if no turn reports any), the last answer, and what was left out."""

    messages: tuple[Message, ...] = ()
    steps: tuple[Step, ...] | None = None
    answer: str = ""
    warnings: tuple[str, ...] = ()


def read_conversation(turns: Any) -> Conversation:
    """Return the conversation in a list of turns.

    A turn has a role and a content: a text, blocks of text, or JSON, which becomes text. Its
    `tool_calls` become steps, in the form {tool, input, output} or that of the OpenAI API, where a
    later turn of role tool brings the output. Of more than 1,000 turns the first and the last are kept,
    with a warning. Raises ValueError, naming the turn, and for more than 5,000 tool calls.
    """
    if not isinstance(turns, list | tuple):
        raise ValueError(f"messages is {type(turns).__name__}, not a list of turns")
    warnings: tuple[str, ...] = ()
    if len(turns) > MAX_TURNS:
        kept = (
            f"{len(turns):,} turns were reported; the first {MAX_TURNS - 1:,} and the last are kept"
        )
        turns, warnings = [*turns[: MAX_TURNS - 1], turns[-1]], (kept,)
    reading = _Turns()
    for turn in turns:
        reading.read(turn)
    steps = tuple(reading.steps) if reading.tells_calls else None
    answers = [
        turn.content for turn in reading.messages if turn.role == "assistant" and turn.content
    ]
    return Conversation(tuple(reading.messages), steps, answers[-1] if answers else "", warnings)


class _Turns:
    """Reads the turns of one conversation."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.steps: list[Step] = []
        self.tells_calls = False
        self.arguments = Arguments()
        self.places: dict[str, int] = {}

    def read(self, turn: Any) -> None:
        """Add a turn and the calls in it."""
        if not isinstance(turn, Mapping) or not isinstance(turn.get("role"), str):
            raise ValueError(f"messages contains {_shown(turn)}, not a role with its content")
        fields = {normal_spelling(str(key)): value for key, value in turn.items()}
        content = _text(fields.get("content"))
        self.messages.append(Message(fields["role"], content))
        if fields.get(CALLS) is not None:
            self.tells_calls = True
            calls = _list(fields[CALLS])
            check_steps(len(self.steps) + len(calls))
            for call in calls:
                self._add(call)
        place = self.places.get(str(fields.get("tool_call_id") or ""))
        if place is not None and self.steps[place].output is None:
            self.steps[place] = replace(self.steps[place], output=content)

    def _add(self, call: Any) -> None:
        if not isinstance(call, Mapping):
            raise ValueError(f"tool_calls contains {_shown(call)}, not a call with tool and input")
        fields = {normal_spelling(str(key)): value for key, value in call.items()}
        inner = fields.get("function")
        if isinstance(inner, Mapping):
            fields = {**fields, **inner}
        name = _first(fields, CALL_NAMES)
        if not isinstance(name, str) or not name:
            raise ValueError(f"tool_calls contains {_shown(call)}, which does not name its tool")
        if fields.get("id"):
            self.places[str(fields["id"])] = len(self.steps)
        self.steps.append(
            Step(
                type="tool",
                name=name,
                input=self.arguments.read(_first(fields, CALL_INPUTS)),
                output=_first(fields, CALL_OUTPUTS),
                duration_ms=_milliseconds(fields.get("duration_ms")),
                error=str(fields.get("error") or ""),
            )
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[:MAX_SHOWN_LENGTH]}…"


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"tool_calls is {type(value).__name__}, not a list of calls")
    return value


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def read_arguments(value: Any) -> Any:
    """Return the arguments of a call: parsed if they are a JSON text, else unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return read_json(value, keeps_last=True, unstorable="replace", max_values=MAX_REPLY_VALUES)
    except ValueError:
        return value


class Arguments:
    """Reads the arguments of all calls of one output, up to as many values as a reply may have."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._values = 0

    def read(self, value: Any) -> Any:
        """Return arguments as `read_arguments` does; raises ValueError for too many values together."""
        read = read_arguments(value)
        if read is not value:
            self._values += count_values(value)
            if self._values > MAX_REPLY_VALUES:
                raise ValueError(
                    f"the arguments of tool_calls contain more than {MAX_REPLY_VALUES:,} values"
                )
        return read


def _milliseconds(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"tool_calls: duration_ms is {value!r}, not a number of 0 or more")
    return int(value)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and any(_is_block(part) for part in content):
        return "\n".join(_blocks(content))
    return json.dumps(content, ensure_ascii=False)


def _is_block(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str)


def _blocks(content: list[Any]) -> Iterator[str]:
    for block in content:
        fields = block if isinstance(block, Mapping) else {}
        text = _first(fields, ("text", "value"))
        if "text" not in str(fields.get("type")) or not isinstance(text, str):
            shown = f"a block of type {fields['type']}" if fields.get("type") else _shown(block)
            raise ValueError(f"messages contains {shown}, and only text can be judged")
        yield text


MAX_FILES = 500
MAX_BYTES = 20_000_000
MAX_PATH_LENGTH = 300
MAX_LEFT_OUT = 20
UNSTORABLE = re.compile("[\\x00-\\x1f\\x7f\ud800-\udfff\\\\]")
Content = TypeVar("Content")
FORMS = 'write a text, {"text": …}, {"base64": …} or {"path": …}'


def files_from_json(stored: Any, beside: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the files of an output by path.

    A value is the text of the file, or an object with `text`, `base64`, or the `path` of one of the
    suite's files in `beside`. Raises ValueError, naming the file, for another form, a path that leads
    out of the output, and too many or too large files.
    """
    if stored is None:
        return {}
    if not isinstance(stored, Mapping):
        raise ValueError("files is not a mapping of paths to contents")
    files: dict[str, bytes] = {}
    for name, value in stored.items():
        path = clean_path(str(name))
        if path in files:
            raise ValueError(f"files: {name!r} is repeated")
        files[path] = _content(str(name), value, beside)
    check_files(files)
    return files


def clean_path(name: str) -> str:
    """Return the path of a target's file; raises ValueError for a path that leads out of the output."""
    if len(name) > MAX_PATH_LENGTH:
        raise ValueError(f"files: {name[:60]!r}… is longer than {MAX_PATH_LENGTH} characters")
    path = normpath(name) if name.strip() else ""
    if (
        UNSTORABLE.search(name)
        or path in ("", ".")
        or path.startswith("/")
        or path.split("/")[0] == ".."
    ):
        message = "is not a path inside the output; write one like report/summary.md"
        raise ValueError(f"files: {name!r} {message}")
    return path


def select_files(
    named: Iterable[tuple[str, Content]], read: Callable[[str, Content], bytes]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files of an answer, and why others are left out: one odd file does not fail the answer.

    Of two files with one path, the later counts. Raises ValueError for too many files and too large ones.
    """
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    left_out: list[str] = []
    for name, written in named:
        try:
            path = clean_path(name)
            content = read(name, written)
            _check_folders(path, files)
            if path in folders:
                raise ValueError(f"files: {path!r} is a folder with other files in it")
        except ValueError as error:
            left_out.append(f"A file was left out of the answer: {error}")
        else:
            files[path] = content
            folders.update(_folders(path))
            if len(files) > MAX_FILES:
                break
    check_files(files)
    if len(left_out) > MAX_LEFT_OUT:
        more = len(left_out) - MAX_LEFT_OUT
        left_out[MAX_LEFT_OUT:] = [f"{more} more files were left out of the answer"]
    return files, tuple(left_out)


def _check_folders(path: str, taken: Mapping[str, bytes]) -> None:
    if folder := next((folder for folder in _folders(path) if folder in taken), ""):
        raise ValueError(f"files: {folder!r} is a file, so {path!r} cannot be in it")


def _folders(path: str) -> list[str]:
    return [path[:place] for place, sign in enumerate(path) if sign == "/"]


def check_files(files: Mapping[str, bytes]) -> None:
    """Raise ValueError for too many files, too large ones, and a file in place of a folder."""
    if len(files) > MAX_FILES:
        raise ValueError(f"files: there are {len(files)}, and {MAX_FILES} is the limit")
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        limit = f"{MAX_BYTES // 1_000_000} MB"
        raise ValueError(f"files: they contain {size / 1_000_000:.1f} MB, and {limit} is the limit")
    for path in files:
        _check_folders(path, files)


def _content(name: str, value: Any, beside: Mapping[str, bytes] | None) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"files: {name!r} is not readable; {FORMS}")
    form, inner = next(iter(value.items()))
    if not isinstance(inner, str):
        raise ValueError(f"files: {name!r}: {form} is not text; {FORMS}")
    match form:
        case "text":
            return inner.encode()
        case "base64":
            return _decoded(name, inner)
        case "path":
            return _beside(name, inner, beside)
        case _:
            raise ValueError(f"files: {name!r}: {form!r} is not known; {FORMS}")


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"files: {name!r} is not readable as base64: {error}") from error


def _beside(name: str, reference: str, beside: Mapping[str, bytes] | None) -> bytes:
    if beside is None:
        message = "names a file of the suite, which is only possible in a suite file"
        raise ValueError(f"files: {name!r} {message}; write its text or base64 here")
    path = reference_path(reference)
    if path not in beside:
        raise ValueError(f"files: {name!r}: the file {reference!r} is not among those of the suite")
    return beside[path]


STEP_FIELDS = tuple(field.name for field in fields(Step))
STEP_FIGURES = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
STEP_IDS = ("id", "parent_id")
# What steps are; a step of another type is kept, and counts as none of them.
STEP_TYPES = ("model", "tool", "agent", "retrieval", "embedding", "step")
MAX_COUNT = 2**31 - 1
# Thousands of these still fit into the column of a run's total.
MAX_USD = 100_000


def output_from_json(
    stored: Mapping[str, Any], *, beside: Mapping[str, bytes] | None = None
) -> Output:
    """Return the output of a recorded line: output, messages, trace, files, usage, latency, cost.

    `output` may be a conversation itself. Without a text, its last answer is the text; without a
    trace, its tool calls are the trace. `beside` are the files of the suite that `files` may name.
    Raises ValueError or TypeError, naming the field, for another form.
    """
    text, turns = stored.get("output"), stored.get("messages")
    if isinstance(text, list):
        text, turns = None, turns or text
    if text is not None and not isinstance(text, str):
        raise TypeError(f"output is {type(text).__name__}, not text")
    conversation = read_conversation(turns or ())
    trace = stored.get("trace")
    return Output(
        text=conversation.answer if text is None else text,
        messages=conversation.messages,
        trace=conversation.steps
        if trace is None
        else tuple(_step(step) for step in _listed(trace)),
        files=files_from_json(stored.get("files"), beside),
        usage=_usage(stored),
        warnings=conversation.warnings,
    )


def check_steps(count: int) -> None:
    """Raise ValueError for more steps than a trace may have."""
    if count > MAX_STEPS:
        raise ValueError(f"there are {count:,} steps or tool_calls; {MAX_STEPS:,} is the limit")


def _listed(trace: Any) -> list[Any]:
    if not isinstance(trace, list):
        raise TypeError(f"trace is {type(trace).__name__}, not a list of steps")
    check_steps(len(trace))
    return trace


def _step(step: Any) -> Step:
    if not isinstance(step, Mapping):
        raise ValueError(f"trace contains {step!r}, not a step with type and name")
    known = {name: step[name] for name in STEP_FIELDS if name in step}
    if not (isinstance(known.get("type"), str) and isinstance(known.get("name"), str)):
        raise ValueError(f"trace contains {step!r}, not a step with type and name")
    for name in STEP_FIGURES:
        value = known.get(name)
        is_figure = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if value is not None and not is_figure:
            message = f"{name} is {value!r}, not a number of 0 or more"
            raise ValueError(f"trace contains a step whose {message}")
    for name in STEP_IDS:
        if known.get(name) is not None:
            known[name] = str(known[name])
    if "cost_usd" in known:
        known["cost_usd"] = read_money(known["cost_usd"])
    return Step(**{name: value for name, value in known.items() if value is not None})


def _usage(stored: Mapping[str, Any]) -> Usage:
    usage = stored.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise TypeError(f"usage is {type(usage).__name__}, not input_tokens and output_tokens")
    cost = stored.get("cost_usd")
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cost_usd=read_money(cost),
        latency_ms=_count(stored, "latency_ms"),
    )


def _count(holder: Mapping[str, Any], name: str) -> int | None:
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{name} is {value!r}, not a number of 0 or more")
    return int(value)


def read_money(value: Any) -> Decimal | None:
    """Return an amount of US dollars; raises ValueError for what is none, and for more than anything costs."""
    if value is None:
        return None
    try:
        usd = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"cost_usd is {value!r}, not an amount of dollars") from error
    if not usd.is_finite() or not 0 <= usd <= MAX_USD:
        raise ValueError(f"cost_usd is {value!r}, not an amount of 0 to {MAX_USD} dollars")
    return usd


def messages_as_json(output: Output) -> list[dict[str, str]]:
    """Return the turns of the conversation."""
    return [{"role": turn.role, "content": turn.content} for turn in output.messages]


def trace_as_json(output: Output) -> list[dict[str, Any]] | None:
    """Return the steps without their empty fields; None if no steps were reported."""
    if output.trace is None:
        return None
    return [
        {
            name: str(value) if name == "cost_usd" else value
            for name in STEP_FIELDS
            if (value := getattr(step, name)) not in (None, "") or name in ("type", "name")
        }
        for step in output.trace
    ]


def usage_as_json(usage: Usage) -> dict[str, Any]:
    """Return the reported figures; money as text."""
    figures = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "latency_ms": usage.latency_ms,
        "cost_usd": None if usage.cost_usd is None else str(usage.cost_usd),
    }
    return {name: value for name, value in figures.items() if value is not None}


def output_from_columns(
    text: str,
    messages: list[Any],
    trace: list[Any] | None,
    usage: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> Output:
    """Return the output of a result from the columns that the functions above filled."""
    output = output_from_json(
        {
            "output": text,
            "messages": messages,
            "trace": trace,
            "usage": usage,
            "latency_ms": usage.get("latency_ms"),
            "cost_usd": usage.get("cost_usd"),
        }
    )
    return replace(output, files=dict(files or {}))

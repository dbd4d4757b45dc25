"""Recorded outputs in JSON Lines: one object a line, with the id of the case and what was answered."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from runs.formats._content import RecordedLine
from runs.formats._problems import Problem, UnreadableFileError
from runs.targets._outputs import output_from_json

LABEL = "JSON Lines of recorded outputs"
SUFFIXES = (".jsonl", ".ndjson")
ID_KEYS = ("id", "case_id", "eval_id")
MOST_PROBLEMS = 100
LONGEST_KEY = 200
# Databases read JSON to a limited depth; what is said in a conversation or trace is far from it.
MOST_DEPTH = 200
UNSTORABLE = re.compile("[\\x00\ud800-\udfff]")
UNSTORABLE_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read_outputs(content: bytes, *, file: str = "outputs.jsonl") -> tuple[RecordedLine, ...]:
    """Return the recorded outputs of a file, blank lines left out.

    Raises UnreadableFileError with line and reason for each line that is no JSON object, has no
    id or no readable output, or repeats the id of another.
    """
    found: dict[str, RecordedLine] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            line = _line(raw, number)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            problems.append(Problem(_reason(error), file, number))
            continue
        if line.key in found:
            said = f"the id stands twice, first on line {found[line.key].line}"
            problems.append(Problem(said, file, number, line.key))
            continue
        found[line.key] = line
    if not found and not problems:
        problems.append(Problem("the file holds no outputs", file))
    if problems:
        raise UnreadableFileError(problems[:MOST_PROBLEMS])
    return tuple(found.values())


def write_outputs(lines: Iterable[RecordedLine]) -> bytes:
    """Return the file that reads back as these outputs."""
    written = (
        json.dumps({"id": line.key, **line.output}, ensure_ascii=False, allow_nan=False)
        for line in lines
    )
    return "".join(f"{text}\n" for text in written).encode()


def _line(raw: bytes, number: int) -> RecordedLine:
    fields: Any = json.loads(
        raw.decode("utf-8"),
        object_pairs_hook=_object,
        parse_constant=_refuse_constant,
        parse_float=_finite,
    )
    if raw.count(b"[") + raw.count(b"{") > MOST_DEPTH or UNSTORABLE_ESCAPE.search(raw):
        _check_storable(fields)
    if not isinstance(fields, dict):
        raise TypeError("the line is not a JSON object")
    key = next((fields[name] for name in ID_KEYS if fields.get(name) not in (None, "")), None)
    if key is None:
        raise ValueError("the line has no id of a case")
    if not isinstance(key, str | int) or isinstance(key, bool) or len(str(key)) > LONGEST_KEY:
        raise ValueError(f"id is not a text of at most {LONGEST_KEY} characters")
    output = {name: value for name, value in fields.items() if name not in ID_KEYS}
    if "output" not in output and "messages" not in output:
        raise ValueError("the line has no output")
    output_from_json(output)
    return RecordedLine(str(key), output, number)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not readable as JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _check_storable(value: Any, depth: int = 0) -> None:
    """Refuse depth and characters that no database keeps: NUL and halves of surrogate pairs."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str) and UNSTORABLE.search(value):
        raise ValueError("the line holds a character that cannot be stored: NUL or half of a pair")
    if isinstance(value, dict):
        for name, part in value.items():
            _check_storable(name, depth)
            _check_storable(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            _check_storable(part, depth + 1)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")

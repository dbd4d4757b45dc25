"""Read JSON Lines strictly, and tell what they contain: cases, recorded outputs, or results of a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evaluators.kinds._refusals import normal_spelling
from evaluators.model_calls.bodies import MAX_REPLY_BYTES
from evaluators.reading.json import (
    MAX_VALUES,
    TooManyValuesError,
    finite_float,
    read_json,
    refuse_excess,
)
from evaluators.reading.yaml import MAX_DEPTH, Path
from runs.formats.shared_texts import MAX_CASES
from runs.formats.yaml import refuse_size
from runs.specs.problems import Problem, UnreadableFileError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Of UTF-8: the bytes after the first of a letter, and the first of one that makes each of its text take four bytes.
CONTINUATION, WIDEST = bytes(range(0x80, 0xC0)), re.compile(rb"[\xf0-\xff]")
FROM_FIRST_SIGN = re.compile(rb"\S[^\n]*")
# Of a whole file once it is read: empty values take memory, too, and one emoji makes each letter take four bytes.
MAX_HELD_BYTES = 300 * 1024 * 1024
# Of a text, beside which its values take about as much.
MAX_TEXT_BYTES = 200 * 1024 * 1024
# One answer has at most 16 MB, and quotes and line ends are written as two characters.
MAX_LINE_BYTES = 2 * MAX_REPLY_BYTES


class UnreadableLineError(ValueError):
    """A line is not a JSON object that can be stored; the message says why."""


class WrittenFloat(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        """Read a number; raises ValueError for one that is not finite."""
        number = super().__new__(cls, finite_float(text))
        number.text = text
        return number


def with_plain_numbers(value: Any) -> Any:
    """Return a value with plain numbers in place of WrittenFloat."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {name: with_plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_plain_numbers(part) for part in value]
    return value


def numbered_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank with their numbers from 1; only a line feed ends a line.

    Blank lines are skipped without a look at each: a file of nothing else has hundreds of millions.
    """
    content = content.removeprefix(BYTE_ORDER_MARK)
    number, end = 1, 0
    for found in FROM_FIRST_SIGN.finditer(content):
        number += content.count(b"\n", end, found.start())
        start = max(end, content.rfind(b"\n", end, found.start()) + 1)
        end = found.end()
        yield number, content[start:end]


def held_bytes(value: Any) -> int:
    """Return how much memory a value takes, without the keys of objects, which those of a line share."""
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    return sys.getsizeof(value) + sum(map(held_bytes, parts))


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the object of a line, its numbers with a point as WrittenFloat.

    Raises UnreadableLineError if the line is too long, is not a JSON object, repeats a key, is nested too deeply or
    cannot be stored.
    """
    if len(raw) > MAX_LINE_BYTES:
        raise UnreadableLineError(
            f"the line has more than {MAX_LINE_BYTES // 1024**2} MB; shorten its texts"
        )
    try:
        fields = read_json(raw.decode("utf-8"), number=WrittenFloat)
    except ValueError as error:
        raise UnreadableLineError(_reason(error)) from error
    if not isinstance(fields, dict):
        raise UnreadableLineError("the line is not a JSON object; write {…} on one line")
    return fields


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        # Some messages of Python end with "at" already.
        return f"not readable as JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8; save the file as UTF-8"
    return str(error)


MAX_PROBLEMS = 100
# Of a whole file: four million take up to 500 MB.
MAX_FILE_VALUES = 4 * MAX_VALUES


def refuse_values(text: str, file: str) -> None:
    """Raise UnreadableFileError for a file of JSON whose values would fill the memory, before any is read.

    For JSON Lines the text may be the bytes, each as a letter: it has as many values and takes less memory.
    """
    try:
        refuse_excess(text, MAX_FILE_VALUES)
    except TooManyValuesError as error:
        message = f"{error}; split it into several files"
        raise UnreadableFileError([Problem(message, file)]) from error


def whole_text(content: bytes, file: str) -> str:
    """Return the text of a file that is one JSON document.

    Raises UnicodeDecodeError if it is not UTF-8, and UnreadableFileError if it would take too much memory.
    """
    if not content.isascii():
        letters = len(content.translate(None, CONTINUATION))
        if letters * (4 if WIDEST.search(content) else 2) > MAX_TEXT_BYTES:
            message = (
                f"the file is one JSON document that takes more than {MAX_TEXT_BYTES // 1024**2} MB in memory; "
                "write each result on a line of its own, or split it"
            )
            raise UnreadableFileError([Problem(message, file)])
    return content.decode("utf-8-sig")


@dataclass(slots=True)
class LinedCases:
    """The cases of a file, where each value stands, and what is wrong with lines."""

    cases: list[Any] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_lined(content: bytes, file: str, key: str) -> LinedCases:
    """Return the cases of JSON Lines, with their places as in a list under a key.

    Unreadable lines become problems. Raises UnreadableFileError for a file that is or holds too much.
    """
    refuse_size(content, file)
    refuse_values(content.decode("latin-1"), file)
    cases = LinedCases()
    for number, raw in numbered_lines(content):
        at: Path = (key, len(cases.cases))
        try:
            case = _plain(read_object(raw), at, cases.written)
        except UnreadableLineError as error:
            cases.problems.append(Problem(str(error), file, number))
            if len(cases.problems) >= MAX_PROBLEMS:
                break
            continue
        cases.cases.append(case)
        cases.lines[at] = number
        if len(cases.cases) > MAX_CASES or len(cases.written) > MAX_VALUES:
            message = f"has more than {MAX_CASES:,} cases, or {MAX_VALUES:,} numbers with a point; split it"
            raise UnreadableFileError([Problem(message, file, number)])
    return cases


def _plain(value: Any, path: Path, written: dict[Path, str]) -> Any:
    """Return a value as YAML would give it, and remember how its numbers are written."""
    if len(path) > MAX_DEPTH:
        raise UnreadableLineError("nested too deeply")
    if isinstance(value, WrittenFloat):
        written[path] = value.text
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(part, (*path, key), written) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, (*path, n), written) for n, part in enumerate(value)]
    return value


YAML_SUFFIXES = (".yaml", ".yml")
LINES_SUFFIXES = (".jsonl", ".ndjson")
CASES_KEYS = {"tests", "cases", "evalcases", "eval_cases"}
EVALUATOR_KEYS = {"evaluators", "assertions", "assert"}
INPUT_KEYS = {"input", "input_messages"}
ID_KEYS = {"id", "key", "case_id", "eval_id", "test_id"}
OUTPUT_KEYS = {"output", "messages"}
RESULT_KEYS = {
    "hits", "misses", "verdict", "candidate_answer", "answer", "evaluator_results", "scores",
    "timestamp", "decided_by",
}  # fmt: skip
MAX_LINES_READ = 20


class Form(StrEnum):
    """What a file of JSON Lines holds."""

    CASES = "cases"
    OUTPUTS = "recorded outputs"
    RESULTS = "results of a run"
    OTHER = "something else"


# One line with an input makes it a file of cases, even if another line lacks the input.
TELLING = (Form.RESULTS, Form.CASES, Form.OUTPUTS)
REMEDIES = {
    Form.CASES: "give it as the suite file",
    Form.OUTPUTS: "give it as recorded outputs, with the name of the target that gave them",
    Form.RESULTS: "import it as the results of a run, in the browser or with evalsite import_results",
    Form.OTHER: "a case has an id and an input, a recorded output an id and an output",
}


def detect_form(content: bytes) -> Form:
    """Return what JSON Lines contain, judged by the first lines."""
    forms: set[Form] = set()
    for _, raw in numbered_lines(b"\n".join(content.split(b"\n", MAX_LINES_READ)[:MAX_LINES_READ])):
        with suppress(UnreadableLineError):
            forms.add(_guess_form({normal_spelling(key) for key in read_object(raw)}))
    return next((form for form in TELLING if form in forms), Form.OTHER)


def is_meant_as_suite(value: Any) -> bool:
    """Tell whether the values of a YAML file are a suite's, even one without cases."""
    keys = _keys(value)
    inner = _keys(value["execution"]) if "execution" in keys else set()
    return bool((keys | inner) & (CASES_KEYS | EVALUATOR_KEYS | {"scenarios"}))


def wrong_content_problem(content: bytes, file: str, wanted: Form) -> Problem | None:
    """Return the problem of a file that clearly contains something else than wanted; else None."""
    form = detect_form(content)
    if form in (wanted, Form.OTHER):
        return None
    return Problem(f"the file contains {form}, not {wanted}; {REMEDIES[form]}", file)


def _guess_form(keys: set[str]) -> Form:
    if "score" in keys and keys & RESULT_KEYS:
        return Form.RESULTS
    if keys & INPUT_KEYS:
        return Form.CASES
    if keys & ID_KEYS and keys & OUTPUT_KEYS:
        return Form.OUTPUTS
    return Form.OTHER


def _keys(value: Any) -> set[str]:
    return {normal_spelling(str(key)) for key in value} if isinstance(value, dict) else set()

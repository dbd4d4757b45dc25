"""Recorded outputs: in JSON Lines with the id of the case, or with a case of a suite file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.kinds._refusals import normal_spelling
from runs.formats.lines import (
    LINES_SUFFIXES,
    MAX_HELD_BYTES,
    Form,
    held_bytes,
    numbered_lines,
    read_object,
    wrong_content_problem,
)
from runs.formats.reading import Fields
from runs.formats.shared_texts import MAX_CASES
from runs.specs.problems import Problem, UnreadableFileError, did_you_mean
from runs.target_kinds._outputs import output_from_json, read_conversation

# Keys inside an output or, if the output is a text or a list of turns, next to it.
BESIDE = {
    "messages": (),
    "trace": (),
    "files": (),
    "usage": ("token_usage",),
    "latency_ms": ("duration_ms",),
    "cost_usd": (),
    "model": (),
}
WITHIN = {"output": ("text", "answer"), **BESIDE}
TOKENS = {
    "input_tokens": ("input", "prompt_tokens"),
    "output_tokens": ("output", "completion_tokens"),
}
REFERENCE = re.compile(r"\A(?:file:\S+|\.{1,2}/\S+)\Z")


def read_recorded(case: Fields) -> Mapping[str, Any] | None:
    """Return the recorded output of a case, None without one; problems are noted.

    Files it names are kept with the suite and referred to by their path.
    """
    key, value = case.take("output")
    beside = {name: entry for name in BESIDE if (entry := case.take_as(name, *BESIDE[name]))[0]}
    if value is None:
        for part_key, _ in beside.values():
            case.refuse(part_key, "belongs to an output, and the case has none; add output")
        return None
    recorded = _form(case, key, value)
    for name, (part_key, part) in beside.items():
        if name in recorded:
            case.refuse(part_key, f"is in {key} too; keep one of them")
        recorded[name] = part
    if "usage" in recorded:
        recorded["usage"] = _usage(recorded["usage"])
    if isinstance(recorded.get("files"), dict):
        recorded["files"] = _files(case, key, recorded["files"])
    try:
        output_from_json(recorded, beside=case.reading.used_files)
    except (ValueError, TypeError) as error:
        case.refuse(key, f"the recorded output is not readable: {error}")
    return recorded


def _form(case: Fields, output_key: str, value: Any) -> dict[str, Any]:
    """Return the output as a mapping, from any form."""
    if isinstance(value, list):
        return _read_turns(value)
    if not isinstance(value, dict):
        return {"output": case.written(output_key, value)}
    inner = Fields(case.reading, case.place(output_key), value=value, case=case.case)
    known = {name: inner.take_as(name, *spellings) for name, spellings in WITHIN.items()}
    names = {key: name for name, (key, _) in known.items() if key}
    for key in inner.rest():
        inner.warn(key, "is not used by Evalsite and is kept with the output")
    names |= {key: key for key in inner.rest()}
    recorded = {names[key]: part for key, part in value.items() if key in names}
    if not recorded.keys() & {"output", "messages", "files"}:
        message = "contains no output, messages or files; put an answer that is JSON in quotes"
        case.refuse(output_key, message)
    text = recorded.get("output")
    if isinstance(text, list):
        recorded |= {
            "output": _read_turns(text)["output"],
            "messages": recorded.get("messages", text),
        }
    elif "output" in recorded:
        recorded["output"] = inner.written(known["output"][0], text)
    return recorded


def _read_turns(turns: list[Any]) -> dict[str, Any]:
    try:
        return {"output": read_conversation(turns).answer, "messages": turns}
    except ValueError:
        return {"output": "", "messages": turns}


def _usage(usage: Any) -> Any:
    """Return the tokens under their standard names; other figures do not change."""
    if not isinstance(usage, dict):
        return usage
    left = Fields.in_snake_case(usage)
    for name, spellings in TOKENS.items():
        for spelling in spellings:
            if spelling in left and name not in left:
                left[name] = left.pop(spelling)
    return left


def _files(case: Fields, key: str, files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files; a file of the suite becomes {path: its path there}."""
    kept: dict[str, Any] = {}
    for name, value in files.items():
        reference = value
        if isinstance(value, dict) and len(value) == 1:
            reference = value.get("path", value.get("file"))
        is_named = isinstance(reference, str) and bool(REFERENCE.match(reference.strip()))
        if isinstance(reference, str) and (is_named or reference is not value):
            try:
                value = {"path": f"./{case.reading.use(reference)}"}
            except ValueError as error:
                message = f"files: {name!r}: {error}"
                case.refuse(
                    key, f'{message}; a text that looks like a path is written {{"text": …}}'
                )
                value = {"text": ""}
        kept[name] = value
    return kept


SUFFIXES = LINES_SUFFIXES
ID_KEYS = ("id", "case_id", "eval_id")
# Each spelling of a key, with the key itself.
KNOWN = {spelling: name for name, spellings in WITHIN.items() for spelling in (name, *spellings)}
MAX_PROBLEMS = 100
MAX_KEY_LENGTH = 200


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """One recorded output: the case it belongs to and what was answered, in the form of the file."""

    key: str
    output: Mapping[str, Any]
    line: int = 0

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the keys that nothing here reads."""
        return tuple(name for name in self.output if name not in WITHIN)


def read_outputs(content: bytes, *, file: str = "outputs.jsonl") -> tuple[RecordedLine, ...]:
    """Return the recorded outputs of a file, blank lines left out.

    Raises UnreadableFileError with line and reason for each line that is not a JSON object, has no id or
    no readable output, or repeats another's id, up to 100 of them, and for a file that is too much for the
    memory; a file of cases or results is only one problem.
    """
    outputs: dict[str, RecordedLine] = {}
    problems: list[Problem] = []
    held = 0
    for number, raw in numbered_lines(content):
        if len(problems) >= MAX_PROBLEMS:
            break
        try:
            line = _line(raw, number)
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(Problem(str(error), file, number))
            continue
        if line.key in outputs:
            message = (
                f"the id is repeated, first on line {outputs[line.key].line}; keep one of them"
            )
            problems.append(Problem(message, file, number, line.key))
            continue
        outputs[line.key] = line
        held += held_bytes(line.output)
        if len(outputs) > MAX_CASES or held > MAX_HELD_BYTES:
            size = f"{MAX_CASES:,} outputs or {MAX_HELD_BYTES // 1024**2} MB in memory"
            message = f"the file has more than {size}; split it over several targets"
            problems.append(Problem(message, file, number))
            break
    if not outputs and not problems:
        problems.append(
            Problem("the file contains no outputs; write one per line, with id and output", file)
        )
    if problems:
        only = wrong_content_problem(content, file, Form.OUTPUTS)
        raise UnreadableFileError([only] if only else problems)
    return tuple(outputs.values())


def unknown_keys(lines: Iterable[RecordedLine], file: str) -> tuple[Problem, ...]:
    """Return a note for each key that nothing here reads, at its first line."""
    first: dict[str, RecordedLine] = {}
    counts = Counter[str]()
    for line in lines:
        counts.update(line.unknown)
        for name in line.unknown:
            first.setdefault(name, line)
    return tuple(
        Problem(
            f"is not used by Evalsite and is kept with the output{did_you_mean(normal_spelling(name), KNOWN)}"
            + (f" ({counts[name]} lines have it)" if counts[name] > 1 else ""),
            *(file, line.line, line.key, name),
        )
        for name, line in first.items()
    )


def write_outputs(lines: Iterable[RecordedLine]) -> bytes:
    """Return the file that reads back as these outputs."""
    written = (
        json.dumps({"id": line.key, **line.output}, ensure_ascii=False, allow_nan=False)
        for line in lines
    )
    return "".join(f"{text}\n" for text in written).encode()


def _line(raw: bytes, number: int) -> RecordedLine:
    fields = read_object(raw)
    key = next((fields[name] for name in ID_KEYS if fields.get(name) not in (None, "")), None)
    if key is None:
        raise ValueError("the line has no id of a case; add it as id")
    if not isinstance(key, str | int) or isinstance(key, bool) or len(str(key)) > MAX_KEY_LENGTH:
        raise ValueError(f"id is not a text of at most {MAX_KEY_LENGTH} characters")
    output: dict[str, Any] = {}
    for written, value in fields.items():
        if written in ID_KEYS:
            continue
        name = KNOWN.get(normal_spelling(written), written)
        if name in output:
            raise ValueError(f"{written} says the same as {name}; keep one of them")
        output[name] = value
    if "usage" in output:
        output["usage"] = _usage(output["usage"])
    if "output" not in output and "messages" not in output:
        raise ValueError("the line has no output; add it as output")
    output_from_json(output)
    return RecordedLine(str(key), output, number)

"""Recorded outputs in JSON Lines: one object a line, with the id of the case and what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterable

from runs.formats._content import RecordedLine
from runs.formats._json_lines import lines_of, read_object
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._recognising import LINES_SUFFIXES, Form, misplaced
from runs.targets._outputs import output_from_json

LABEL = "JSON Lines of recorded outputs"
SUFFIXES = LINES_SUFFIXES
ID_KEYS = ("id", "case_id", "eval_id")
MOST_PROBLEMS = 100
LONGEST_KEY = 200


def read_outputs(content: bytes, *, file: str = "outputs.jsonl") -> tuple[RecordedLine, ...]:
    """Return the recorded outputs of a file, blank lines left out.

    Raises UnreadableFileError with line and reason for each line that is no JSON object, has no
    id or no readable output, or repeats the id of another; one problem only for a file of cases or of
    results.
    """
    found: dict[str, RecordedLine] = {}
    problems: list[Problem] = []
    for number, raw in lines_of(content):
        try:
            line = _line(raw, number)
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(Problem(str(error), file, number))
            continue
        if line.key in found:
            said = f"the id stands twice, first on line {found[line.key].line}"
            problems.append(Problem(said, file, number, line.key))
            continue
        found[line.key] = line
    if not found and not problems:
        problems.append(Problem("the file holds no outputs", file))
    if problems:
        only = misplaced(content, file, Form.OUTPUTS)
        raise UnreadableFileError([only] if only else problems[:MOST_PROBLEMS])
    return tuple(found.values())


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
        raise ValueError("the line has no id of a case")
    if not isinstance(key, str | int) or isinstance(key, bool) or len(str(key)) > LONGEST_KEY:
        raise ValueError(f"id is not a text of at most {LONGEST_KEY} characters")
    output = {name: value for name, value in fields.items() if name not in ID_KEYS}
    if "output" not in output and "messages" not in output:
        raise ValueError("the line has no output")
    output_from_json(output)
    return RecordedLine(str(key), output, number)

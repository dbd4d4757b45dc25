"""Cases in JSON Lines, one a line, as values with their places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runs.formats._document import MOST_DEPTH, Path
from runs.formats._json_lines import UnreadableLineError, WrittenFloat, lines_of, read_object
from runs.formats._problems import Problem
from runs.formats._text import refuse_size

MOST_PROBLEMS = 100


@dataclass(slots=True)
class LinedCases:
    """The cases of a file, where each value stands, and what is wrong with lines."""

    cases: list[Any] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_lined(content: bytes, file: str, key: str) -> LinedCases:
    """Return the cases of JSON Lines, with their places as those of a list under a key.

    Lines that cannot be read are among its problems. Raises UnreadableFileError for a file too large.
    """
    refuse_size(content, file)
    found = LinedCases()
    for number, raw in lines_of(content):
        at: Path = (key, len(found.cases))
        try:
            case = _plain(read_object(raw), at, found.written)
        except UnreadableLineError as error:
            found.problems.append(Problem(str(error), file, number))
            if len(found.problems) >= MOST_PROBLEMS:
                break
            continue
        found.cases.append(case)
        found.lines[at] = number
    return found


def _plain(value: Any, path: Path, written: dict[Path, str]) -> Any:
    """Return a value as a suite in YAML would give it, and note how its numbers are written."""
    if len(path) > MOST_DEPTH:
        raise UnreadableLineError("nested too deeply")
    if isinstance(value, WrittenFloat):
        written[path] = value.text
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(part, (*path, key), written) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, (*path, n), written) for n, part in enumerate(value)]
    return value

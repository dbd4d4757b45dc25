"""Cells of a table as parts of a case: texts, conversations, lists, objects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from runs.formats._case_mapping import SEPARATORS, Split
from runs.formats._document import Document
from runs.formats._fields import Fields
from runs.formats._json_lines import (
    UNSTORABLE,
    UnreadableLineError,
    read_object,
    with_plain_numbers,
)
from runs.formats._problems import UnreadableFileError
from runs.formats._reading import Reading
from runs.formats._turns import read_turns
from runs.targets._outputs import output_from_json

MARKER = re.compile(r"\A(?:[-*•–]|\d{1,2}[.)]|\[[ xX]?\])\s+")
# What a promptfoo assertion says to a judge, or as an answer in full.
ASKED = re.compile(r"\A(?:llm-rubric|g-eval|factuality|grade)(?:\([^)]*\))?:\s*(.+)\Z", re.S)
CONTAINS = re.compile(r"\A(not-)?i?contains(?:\([^)]*\))?:\s*(.+)\Z", re.S)
EQUALS = re.compile(r"\A(?:equals|similar)(?:\([^)]*\))?:\s*(.+)\Z", re.S)
TYPED = re.compile(r"\A(?:not-)?[a-z][a-z0-9-]*(?:\([^)]*\))?:")
Turn = Mapping[str, Any]


class UnreadableCellError(ValueError):
    """A cell cannot be read as its part of the case; the message says why."""


def text_of(cell: Any) -> str:
    """Return a cell as a text: what is no text in its JSON spelling, nothing as an empty one."""
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    if UNSTORABLE.search(text):
        raise UnreadableCellError(
            "holds a NUL character or half of a pair, which no database keeps"
        )
    return text


def structure_of(cell: Any) -> Any:
    """Return the list or object that a cell is or spells in JSON, None for any other."""
    if isinstance(cell, list | dict):
        return cell
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return with_plain_numbers(
            read_object(b'{"cell":' + cell.encode("utf-8", "surrogatepass") + b"}")["cell"]
        )
    except UnreadableLineError:
        return None


def turns_of(cell: Any) -> tuple[Turn, ...]:
    """Return a conversation, or a text as the one message of a user."""
    found = structure_of(cell)
    if isinstance(found, dict) and isinstance(found.get("messages"), list) and len(found) == 1:
        found = found["messages"]
    if not _is_conversation(found):
        return ({"role": "user", "content": text_of(cell)},)
    reading = Reading(Document(value={"input": found}), {})
    try:
        turns = read_turns(Fields(reading, (), value={"input": found}), "input", found)
    except UnreadableFileError as error:
        raise UnreadableCellError(str(error.problems[0])) from error
    if reading.problems:
        raise UnreadableCellError(str(reading.problems[0]))
    return turns


def expected_of(cell: Any) -> str:
    """Return the expected output: of a conversation, what the assistant says in it."""
    found = structure_of(cell)
    if isinstance(found, dict) and isinstance(found.get("messages"), list) and len(found) == 1:
        found = found["messages"]
    if isinstance(found, dict) and "role" in found and "content" in found:
        found = [found]
    if not _is_conversation(found):
        return text_of(cell)
    said = [turn["content"] for turn in turns_of(found) if turn["role"] == "assistant"]
    return "\n\n".join(content for content in said if content)


def outcomes_of(cell: Any, split: Split) -> tuple[str, ...]:
    """Return the expected outcomes of a cell, without bullets and numbers before them."""
    found = structure_of(cell)
    if isinstance(found, list):
        return tuple(text for part in found if (text := text_of(_claim(part)).strip()))
    text = text_of(cell)
    parts = [text] if split is Split.NONE else text.split(SEPARATORS[split])
    shorn = (MARKER.sub("", part.strip()) for part in parts)
    return tuple(part for part in shorn if part)


def tags_of(cell: Any) -> tuple[str, ...]:
    """Return the tags of a cell: a JSON list, or with commas, semicolons, bars or lines between."""
    found = structure_of(cell)
    parts = found if isinstance(found, list) else re.split(r"[,;|\n]", text_of(cell))
    return tuple(dict.fromkeys(text for part in parts if (text := text_of(part).strip())))


def metadata_of(name: str, cell: Any) -> dict[str, Any]:
    """Return what a column puts into the metadata: an object of a column so named as it is."""
    plain = name.strip().lower()
    if plain.startswith("__metadata:"):
        return {name.strip()[len("__metadata:") :] or name: cell}
    if plain in ("metadata", "meta") and isinstance(found := structure_of(cell), dict):
        text_of(found)
        return dict(found)
    text_of(cell)
    return {name: cell}


def recorded_of(cell: Any) -> dict[str, Any]:
    """Return a recorded output in the form of a recorded line."""
    found = structure_of(cell)
    if isinstance(found, dict) and found.keys() & {"output", "messages"}:
        try:
            output_from_json(found)
        except (ValueError, TypeError) as error:
            raise UnreadableCellError(f"the recorded output is not readable: {error}") from error
        return found
    return {"output": text_of(cell)}


def assertion_of(cell: Any) -> tuple[str, tuple[str, ...], bool]:
    """Return a promptfoo assertion as an expected output or outcomes, and whether it was understood.

    Without a type before it, it is the answer in full.
    """
    text = text_of(cell).strip()
    if asked := ASKED.match(text):
        return "", (asked[1].strip(),), True
    if contains := CONTAINS.match(text):
        word = "Does not contain" if contains[1] else "Contains"
        return "", (f"{word} “{contains[2].strip()}”",), True
    if equals := EQUALS.match(text):
        return equals[1].strip(), (), True
    return ("", (), False) if TYPED.match(text) else (text, (), True)


def _claim(part: Any) -> Any:
    """Return what an outcome of a list claims, which others keep in an object beside its weight."""
    if isinstance(part, dict):
        named = ("text", "outcome", "criterion", "claim", "value")
        return next((part[name] for name in named if isinstance(part.get(name), str)), part)
    return part


def _is_conversation(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(turn, dict) and "role" in turn for turn in found)
    )

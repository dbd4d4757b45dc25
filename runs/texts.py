"""Conversations and answers as pages show them: cut where too long, and compared line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from evaluators.templatetags.ui import (
    WORD,
    TextPart,
    TextParts,
    as_text,
    changed_blocks,
    compare_words,
)
from runs.models.results import ResultOutput
from runs.models.suites import Case

MAX_SHOWN_LENGTH, MAX_BEGINNING_LENGTH = 20_000, 200
MAX_SHOWN_TOGETHER = 200_000


@dataclass(frozen=True, slots=True)
class Turns:
    """A conversation, and how many characters were cut to keep the page readable."""

    messages: tuple[Mapping[str, Any], ...]
    cut_characters: int


def conversation(case: Case, output: ResultOutput) -> Turns:
    """Return the case's input and the target's answer as one conversation."""
    question = [{"role": turn["role"], "content": turn["content"]} for turn in case.input]
    turns = list(output.messages)
    if turns[: len(question)] != question:
        is_whole = bool(turns) and turns[0].get("role") in ("user", "system")
        turns = turns if is_whole else [*question, *turns]
    if output.text and not any(turn.get("content") == output.text for turn in turns):
        turns.append({"role": "assistant", "content": output.text})
    return cut_turns(turns)


def cut_turns(turns: Iterable[Mapping[str, Any]]) -> Turns:
    """Return the turns with their long texts cut, and the later ones to their beginnings where all are long.

    `size` is the length of the whole text.
    """
    shown, cut, left = [], 0, MAX_SHOWN_TOGETHER
    for turn in turns:
        content, whole = turn.get("content"), {}
        if isinstance(content, str):
            length = max(MAX_BEGINNING_LENGTH, min(MAX_SHOWN_LENGTH, left))
            if len(content) > length:
                whole = {"size": len(content)}
                cut += len(content) - length
                content = content[:length]
            left -= len(content)
        shown.append({"role": turn.get("role", "user"), "content": content or "", **whole})
    return Turns(tuple(shown), cut)


def cut_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step of a trace with its long texts cut."""
    return {name: _cut(value) for name, value in step.items()}


def _cut(value: Any) -> Any:
    is_plain = value is None or isinstance(value, int | float)
    text = value if is_plain or isinstance(value, str) else as_text(value)
    if isinstance(text, str) and len(text) > MAX_SHOWN_LENGTH:
        return f"{text[:MAX_SHOWN_LENGTH]}\n… {len(text) - MAX_SHOWN_LENGTH} characters more"
    return value


MAX_TEXT_LENGTH = 6_000
MAX_LINE_WORDS = 400
LONG_VALUE = 40
MIN_ALIKE = 0.2
MIN_ALIKE_TEXTS = 0.4


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line; `tone` is same, bad (only expected) or good (only in the output)."""

    tone: str
    parts: TextParts


def text_diff(expected: str, output: str) -> tuple[DiffLine, ...] | None:
    """Return the lines of both texts, or None when they are too long or too different to compare."""
    if len(expected) + len(output) > MAX_TEXT_LENGTH or not _are_alike(expected, output):
        return None
    old, new = _lines(expected), _lines(output)
    lines: list[DiffLine] = []
    for is_changed, before, after in changed_blocks(old, new):
        if is_changed:
            lines += _changed(before, after)
        else:
            lines += [_whole("same", line) for line in before]
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class ChangedValueRow:
    """One value, old and new; None for no value. `lines` show two texts side by side.

    `is_left_out` tells that its texts were not compared, because the page has too many long ones.
    """

    name: str
    old: str | None
    new: str | None
    lines: tuple[DiffLine, ...] | None = None
    is_left_out: bool = False

    @property
    def is_long(self) -> bool:
        """Tell whether it needs its own line."""
        values = (self.old, self.new)
        return any(text and (len(text) > LONG_VALUE or "\n" in text) for text in values)


# In pairs of characters: some 20 of the longest texts, or thousands of short ones. All of 500 would take 20 seconds.
MAX_COMPARED_PAIRS = 200_000_000


class ChangedValues:
    """The changed values of one page; their texts are compared until that has cost enough."""

    def __init__(self) -> None:
        """Begin a page."""
        self._left = MAX_COMPARED_PAIRS

    def row(self, name: str, old: str | None, new: str | None, *, is_text: bool) -> ChangedValueRow:
        """Return the row of a value; `is_text` says whether it is one to compare."""
        lines, is_left_out = None, False
        if is_text and old and new and len(old) + len(new) <= MAX_TEXT_LENGTH:
            pairs = len(old) * len(new)
            is_left_out = pairs > self._left
            if not is_left_out:
                self._left -= pairs
                lines = text_diff(old, new)
        return ChangedValueRow(name, old, new, lines, is_left_out)


def _are_alike(expected: str, output: str) -> bool:
    """Tell whether the texts share enough words for their differences to be readable."""
    old, new = WORD.findall(expected), WORD.findall(output)
    return _ratio(old, new) >= MIN_ALIKE_TEXTS


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _changed(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    lines: list[DiffLine] = []
    for before, after in zip_longest(old, new):
        if before is None or after is None:
            lines.append(_whole("good" if before is None else "bad", after or before or ""))
        else:
            lines += _pair(before, after)
    return lines


def _pair(before: str, after: str) -> list[DiffLine]:
    old, new = WORD.findall(before), WORD.findall(after)
    too_long = max(len(old), len(new)) > MAX_LINE_WORDS
    if too_long or _ratio(old, new) < MIN_ALIKE:
        return [_whole("bad", before), _whole("good", after)]
    removed, added = compare_words(old, new)
    return [DiffLine("bad", removed), DiffLine("good", added)]


def _whole(tone: str, line: str) -> DiffLine:
    return DiffLine(tone, (TextPart(line, tone != "same"),))


def _ratio(old: Sequence[str], new: Sequence[str]) -> float:
    """Return which share of the words of both is in both, in the same order."""
    first, second = ([word for word in words if not word.isspace()] for words in (old, new))
    shared = sum(
        len(part) for is_changed, part, _ in changed_blocks(first, second) if not is_changed
    )
    return 2 * shared / (len(first) + len(second) or 1)

"""Cells of a file of reviews, each read strictly: what is no such value is refused with its reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from runs.reviewing import LABELS, VERDICTS, Reason

LONGEST_NAME = 150
LONGEST_NOTE = 10_000
MOST_OUTCOMES = 200
MOST_SECONDS = 24 * 3600
LARGEST = 2**31 - 1
OUTCOMES = ("met", "missed", "unmarked")
SHA256 = re.compile(r"[0-9a-f]{64}")
# What no database keeps.
UNSTORABLE = re.compile("[\\x00\ud800-\udfff]")


class WrongCellError(ValueError):
    """A row is no review; `column` is the one to blame, "" where the row is."""

    def __init__(self, column: str, reason: str) -> None:
        """Keep what is wrong and where."""
        self.column, self.reason = column, reason
        super().__init__(f"{column}: {reason}" if column else reason)


def _text(most: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, bool | list | Mapping) or not isinstance(value, str | int):
            raise ValueError("is not a text")
        text = str(value).strip()
        if UNSTORABLE.search(text):
            raise ValueError("holds a character that cannot be stored")
        if len(text) > most:
            raise ValueError(f"has {len(text)} characters, and {most} is the most")
        return text

    return read


def _one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(f"{str(value)[:40]!r} is none of {', '.join(words)}")
        return word

    return read


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        text = str(value).strip().removeprefix("#")
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,12}(\.0+)?", text, re.ASCII):
            raise ValueError(f"{str(value)[:40]!r} is not a whole number")
        number = int(text.partition(".")[0])
        if not least <= number <= most:
            raise ValueError(f"{number} is outside {least} to {most}")
        return number

    return read


def _share(value: Any) -> float:
    try:
        number = float(str(value).strip())
    except ValueError as error:
        raise ValueError(f"{str(value)[:40]!r} is not a number") from error
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError(f"{str(value)[:40]} is outside 0 to 1")
    return number


def _rate(value: Any) -> float:
    if (number := _share(value)) == 0:
        raise ValueError("0 would stand for endlessly many; it is above 0, or empty")
    return number


def _parts(value: Any) -> list[str]:
    if isinstance(value, str):
        value = value.splitlines() if "\n" in value.strip("\r") else value.split(";")
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("is not a list of texts")
    return [part.strip() for part in value if part.strip()]


def _tags(value: Any) -> tuple[str, ...]:
    return tuple(_text(10_000)(part) for part in _parts(value))


def _outcomes(value: Any) -> tuple[str, ...]:
    found = tuple(map(_one_of(OUTCOMES), _parts(value)))
    if len(found) > MOST_OUTCOMES:
        raise ValueError(f"has {len(found)} marks, and {MOST_OUTCOMES} is the most")
    return found


def _reasons(value: Any) -> tuple[str, ...]:
    return tuple(map(_one_of(tuple(Reason)), _parts(value)))


def _labels(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError('is not readable as JSON, such as {"tone": 4}') from error
    if not isinstance(value, Mapping):
        raise ValueError('is no object, such as {"tone": 4}')
    whole = _whole(0, int(LABELS[-1]))
    return {_text(1_000)(key): whole(label) for key, label in value.items()}


def _moment(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        said = f"{str(value)[:40]!r} is no moment such as 2026-03-14T09:26:53+00:00"
        raise ValueError(said) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _digest(value: Any) -> str:
    text = str(value).strip().lower()
    if not SHA256.fullmatch(text):
        raise ValueError("is not a SHA-256 of 64 hexadecimal digits")
    return text


READERS: Mapping[str, Callable[[Any], Any]] = {
    "suite": _text(80),
    "run": _whole(1, LARGEST),
    "case": _text(1_000),
    "repetition": _whole(1, LARGEST),
    "reviewer": _text(LONGEST_NAME),
    "verdict": _one_of(VERDICTS),
    "outcomes": _outcomes,
    "metric_labels": _labels,
    "tags": _tags,
    "note": _text(LONGEST_NOTE),
    "seconds": _whole(0, MOST_SECONDS),
    "machine_verdict": _one_of(VERDICTS),
    "machine_score": _share,
    "output_sha256": _digest,
    "generation": _whole(1, LARGEST),
    "sampling_rate": _rate,
    "reasons": _reasons,
    "created_at": _moment,
    "withdrawn_at": _moment,
    "stale_at": _moment,
}

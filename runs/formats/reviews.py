"""People's decisions as a file: one line each, as JSON Lines or as a table for spreadsheets, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from evaluators.scoring.numbers import rounded
from runs.engine.review_rules import LABELS, VERDICTS, ReviewReason
from runs.formats.table_cases import Rejected
from runs.formats.tables import Table, TableRow, as_meant, harmless, read_table
from runs.specs.problems import Problem, UnreadableFileError

MAX_NAME_LENGTH = 150
MAX_NOTE_LENGTH = 10_000
MAX_OUTCOMES = 200
MAX_SECONDS = 24 * 3600
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
            raise ValueError(f"has {len(text)} characters, and {most} is the limit")
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
    if len(found) > MAX_OUTCOMES:
        raise ValueError(f"has {len(found)} marks, and {MAX_OUTCOMES} is the limit")
    return found


def _reasons(value: Any) -> tuple[str, ...]:
    return tuple(map(_one_of(tuple(ReviewReason)), _parts(value)))


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
        message = f"{str(value)[:40]!r} is no moment such as 2026-03-14T09:26:53+00:00"
        raise ValueError(message) from error
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
    "reviewer": _text(MAX_NAME_LENGTH),
    "verdict": _one_of(VERDICTS),
    "outcomes": _outcomes,
    "metric_labels": _labels,
    "tags": _tags,
    "note": _text(MAX_NOTE_LENGTH),
    "seconds": _whole(0, MAX_SECONDS),
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


NEEDED = ("suite", "run", "case", "reviewer", "verdict")
MARK_WORDS = {"1": "met", "0": "missed", "-": "unmarked"}


@dataclass(frozen=True, slots=True)
class ReviewLine:
    """One decision. `line` is where it stood in a file, 0 when it is made to be written.

    `outcomes` are met, missed or unmarked in the order of the expected outcomes; `metric_labels` whole numbers of
    0 to 5; `machine_score` 0 to 1; `sampling_rate` above 0, to 1, None where a person picked the execution.
    `machine_verdict` and `machine_score` are of then, `settled_verdict` is what all decisions came to by now and is
    not read back. `output_sha256` is of the output's text.
    """

    suite: str
    run: int
    case: str
    reviewer: str
    verdict: str
    repetition: int = 1
    outcomes: Sequence[str] = ()
    metric_labels: Mapping[str, int] = field(default_factory=dict)
    tags: Sequence[str] = ()
    note: str = ""
    seconds: int | None = None
    machine_verdict: str = ""
    machine_score: float | None = None
    settled_verdict: str = ""
    output_sha256: str = ""
    generation: int | None = None
    sampling_rate: float | None = None
    reasons: Sequence[str] = ()
    created_at: datetime | None = None
    withdrawn_at: datetime | None = None
    stale_at: datetime | None = None
    line: int = 0

    @property
    def marks(self) -> str:
        """Return the outcomes as one character each: 1 met, 0 missed, - unmarked."""
        known = {word: mark for mark, word in MARK_WORDS.items()}
        return "".join(known[word] for word in self.outcomes)


@dataclass(frozen=True, slots=True)
class ReadReviews:
    """What a file of reviews holds: decisions, and the rows that are none, each with line, column and reason."""

    reviews: tuple[ReviewLine, ...]
    rejected: tuple[Rejected, ...]
    table: Table

    @property
    def passed_over(self) -> list[str]:
        """Return the columns that no review has."""
        return [name for name in self.table.columns if name not in COLUMNS]


COLUMNS = tuple(one.name for one in fields(ReviewLine) if one.name != "line")


def review_json(review: ReviewLine) -> str:
    """Return a decision as a line of JSON with the line feed; what is not known is null or empty."""
    values = {name: _plain(getattr(review, name)) for name in COLUMNS}
    return json.dumps(values, ensure_ascii=False) + "\n"


def review_cells(review: ReviewLine) -> list[Any]:
    """Return a decision as cells of a table, none of which a spreadsheet takes for a formula."""
    return [_cell(getattr(review, name)) for name in COLUMNS]


def read_reviews(content: bytes, *, file: str = "reviews.jsonl") -> ReadReviews:
    """Return the decisions of a file and its rejected rows; columns that are not known are passed over.

    Raises UnreadableFileError for what is no table, and for one that lacks a column no review can do without.
    """
    table = read_table(content, file=file)
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        message = (
            f"no column is called {', '.join(missing)}; the export of reviews shows what is needed"
        )
        raise UnreadableFileError([Problem(message, file, 1)])
    reviews, rejected = [], []
    for row in table.rows:
        try:
            reviews.append(_review(row, table))
        except WrongCellError as error:
            rejected.append(Rejected(row.line, error.column, error.reason, row.cells))
    return ReadReviews(tuple(reviews), tuple(rejected), table)


def _review(row: TableRow, table: Table) -> ReviewLine:
    if row.unread:
        raise WrongCellError("", row.unread)
    found: dict[str, Any] = {}
    for name, cell in zip(table.columns, row.cells, strict=False):
        if name not in READERS:
            continue
        value = as_meant(cell) if isinstance(cell, str) and not table.is_json else cell
        if value is None or (isinstance(value, str) and not value.strip()):
            if name in NEEDED:
                raise WrongCellError(name, "is empty")
            continue
        try:
            found[name] = READERS[name](value)
        except ValueError as error:
            raise WrongCellError(name, str(error)) from error
    if absent := [name for name in NEEDED if name not in found]:
        raise WrongCellError(absent[0], "is empty")
    return ReviewLine(**found, line=row.line)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return rounded(value)
    return list(value) if isinstance(value, tuple) else value


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False) if value else ""
    if isinstance(value, list | tuple):
        # Lines, where a semicolon is part of what stands there.
        if any(";" in part for part in value):
            return harmless("\n".join([*value, ""]))
        return harmless("; ".join(value))
    if isinstance(value, datetime):
        return value.isoformat()
    return harmless(value) if isinstance(value, str) else value


def rejected_rows(rejected: Sequence[Rejected]) -> Iterator[str]:
    """Yield each rejected row in words: line, column and reason."""
    for one in rejected:
        column = f", {one.column}" if one.column else ""
        yield f"line {one.line}{column}: {one.reason}"

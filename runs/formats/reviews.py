"""Write reviews to a file, as JSON Lines or as a table for spreadsheets, one line each, and read them back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from evaluators.reading.json import is_storable, read_json
from evaluators.scoring.numbers import rounded
from runs.engine.review_rules import LABELS, VERDICTS, ReviewReason
from runs.formats.table_cases import Rejected
from runs.formats.tables import Table, TableRow, read_table, unescape_formula
from runs.specs.problems import Problem, UnreadableFileError

MAX_NAME_LENGTH = 150
MAX_NOTE_LENGTH = 10_000
MAX_OUTCOMES = MAX_LABELS = 200
MAX_SECONDS = 24 * 3600
LARGEST = 2**31 - 1
OUTCOMES = ("met", "missed", "unmarked")
SHA256 = re.compile(r"[0-9a-f]{64}")


class WrongCellError(ValueError):
    """A row is not a review; `column` is the wrong column, "" if the whole row is wrong."""

    def __init__(self, column: str, reason: str) -> None:
        """Keep the column and the reason."""
        self.column, self.reason = column, reason
        super().__init__(f"{column}: {reason}" if column else reason)


def _text(limit: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, bool | list | Mapping) or not isinstance(value, str | int):
            raise ValueError("is not text")
        text = str(value).strip()
        if not is_storable(text):
            raise ValueError("contains a character that cannot be stored")
        if len(text) > limit:
            raise ValueError(f"has {len(text)} characters, and {limit} is the limit")
        return text

    return read


def _choice(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        choice = str(value).strip().lower()
        if choice not in choices:
            raise ValueError(f"{str(value)[:40]!r} is not one of {', '.join(choices)}")
        return choice

    return read


def _whole(lowest: int, highest: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        text = str(value).strip().removeprefix("#")
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,12}(\.0+)?", text, re.ASCII):
            raise ValueError(f"{str(value)[:40]!r} is not a whole number")
        number = int(text.partition(".")[0])
        if not lowest <= number <= highest:
            raise ValueError(f"{number} is not from {lowest} to {highest}")
        return number

    return read


def _share(value: Any) -> float:
    try:
        number = float(str(value).strip())
    except ValueError as error:
        raise ValueError(f"{str(value)[:40]!r} is not a number") from error
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError(f"{str(value)[:40]} is not from 0 to 1")
    return number


def _rate(value: Any) -> float:
    if (number := _share(value)) == 0:
        raise ValueError("0 is not a rate; write a number above 0, or leave it empty")
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
    marks = tuple(map(_choice(OUTCOMES), _parts(value)))
    if len(marks) > MAX_OUTCOMES:
        raise ValueError(f"has {len(marks)} marks, and {MAX_OUTCOMES} is the limit")
    return marks


def _reasons(value: Any) -> tuple[str, ...]:
    return tuple(map(_choice(tuple(ReviewReason)), _parts(value)))


def _labels(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            raise ValueError('is not JSON such as {"tone": 4}') from error
    if not isinstance(value, Mapping):
        raise ValueError('is not an object such as {"tone": 4}')
    if len(value) > MAX_LABELS:
        raise ValueError(f"has {len(value):,} labels, and {MAX_LABELS} is the limit")
    whole = _whole(0, int(LABELS[-1]))
    return {_text(1_000)(key): whole(label) for key, label in value.items()}


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        message = f"{str(value)[:40]!r} is not a date and time such as 2026-03-14T09:26:53+00:00"
        raise ValueError(message) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
    "verdict": _choice(VERDICTS),
    "outcomes": _outcomes,
    "metric_labels": _labels,
    "tags": _tags,
    "note": _text(MAX_NOTE_LENGTH),
    "seconds": _whole(0, MAX_SECONDS),
    "machine_verdict": _choice(VERDICTS),
    "machine_score": _share,
    "output_sha256": _digest,
    "generation": _whole(1, LARGEST),
    "sampling_rate": _rate,
    "reasons": _reasons,
    "created_at": _moment,
    "withdrawn_at": _moment,
    "stale_at": _moment,
}


REQUIRED = ("suite", "run", "case", "reviewer", "verdict")
MARKS = {"1": "met", "0": "missed", "-": "unmarked"}


@dataclass(frozen=True, slots=True)
class ReviewLine:
    """One review. `line` is its line in a file, 0 for a review to write.

    `outcomes` are met, missed or unmarked, in the order of the expected outcomes. `metric_labels` are whole
    numbers from 0 to 5, `machine_score` is from 0 to 1, `sampling_rate` above 0 and at most 1, None if a person
    picked the execution. `machine_verdict` and `machine_score` are those at the time of the review;
    `settled_verdict` is the verdict of all reviews now, `imported_by` who imported this one from a file;
    decisions made at once on identical outputs have the same `together`; none of them is read back. `output_sha256` is
    the digest of the output's text.
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
    imported_by: str = ""
    together: str = ""
    line: int = 0

    @property
    def marks(self) -> str:
        """Return the outcomes as one character each: 1 met, 0 missed, - unmarked."""
        marks = {outcome: mark for mark, outcome in MARKS.items()}
        return "".join(marks[outcome] for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class ReadReviews:
    """The content of a file of reviews: the reviews, and the rejected rows with line, column and reason."""

    reviews: tuple[ReviewLine, ...]
    rejected: tuple[Rejected, ...]
    table: Table

    @property
    def ignored_columns(self) -> list[str]:
        """Return the columns that are not part of a review."""
        return [name for name in self.table.columns if name not in COLUMNS]


COLUMNS = tuple(column.name for column in fields(ReviewLine) if column.name != "line")


def review_json(review: ReviewLine) -> str:
    """Return a review as a line of JSON with its line feed; unknown values are null or empty."""
    values = {name: _plain(getattr(review, name)) for name in COLUMNS}
    return json.dumps(values, ensure_ascii=False) + "\n"


def review_cells(review: ReviewLine) -> list[Any]:
    """Return a review as cells of a table; no spreadsheet takes any of them for a formula."""
    return [_cell(getattr(review, name)) for name in COLUMNS]


def read_reviews(content: bytes, *, file: str = "reviews.jsonl") -> ReadReviews:
    """Return the reviews of a file and its rejected rows; unknown columns are ignored.

    Raises UnreadableFileError for a file that is not a table, and for a table without a required column.
    """
    table = read_table(content, file=file)
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        message = (
            f"no column is called {', '.join(missing)}; see the columns in an export of reviews"
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
    values: dict[str, Any] = {}
    for name, cell in zip(table.columns, row.cells, strict=False):
        if name not in READERS:
            continue
        value = unescape_formula(cell) if isinstance(cell, str) and not table.is_json else cell
        if value is None or (isinstance(value, str) and not value.strip()):
            if name in REQUIRED:
                raise WrongCellError(name, "is empty")
            continue
        try:
            values[name] = READERS[name](value)
        except ValueError as error:
            raise WrongCellError(name, str(error)) from error
    if absent := [name for name in REQUIRED if name not in values]:
        raise WrongCellError(absent[0], "is empty")
    return ReviewLine(**values, line=row.line)


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
        # One line for each part if a part contains a semicolon.
        if any(";" in part for part in value):
            return "\n".join([*value, ""])
        return "; ".join(value)
    return value.isoformat() if isinstance(value, datetime) else value


def rejected_rows(rejected: Sequence[Rejected]) -> Iterator[str]:
    """Yield the message of each rejected row: line, column and reason."""
    for row in rejected:
        column = f", {row.column}" if row.column else ""
        yield f"line {row.line}{column}: {row.reason}"

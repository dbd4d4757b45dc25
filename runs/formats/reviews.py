"""People's decisions as a file: one line each, as JSON Lines or as a table for spreadsheets, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from evaluators.scoring.numbers import rounded
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._review_cells import READERS, WrongCellError
from runs.formats._row_cases import Rejected
from runs.formats._table_cells import as_meant, harmless
from runs.formats._table_rows import Row, Table, read_table

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
        said = (
            f"no column is called {', '.join(missing)}; the export of reviews shows what is needed"
        )
        raise UnreadableFileError([Problem(said, file, 1)])
    reviews, rejected = [], []
    for row in table.rows:
        try:
            reviews.append(_review(row, table))
        except WrongCellError as error:
            rejected.append(Rejected(row.line, error.column, error.reason, row.cells))
    return ReadReviews(tuple(reviews), tuple(rejected), table)


def _review(row: Row, table: Table) -> ReviewLine:
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

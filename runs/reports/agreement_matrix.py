"""The confusion matrix of one judge, each cell with the address that lists its cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluators.templatetags.marks import VERDICT_WORDS
from runs.reports.agreement_query import AgreementQuery
from runs.reviewing import Agreement


@dataclass(frozen=True, slots=True)
class Cell:
    """How many decisions are in one cell, and the address that lists their cases."""

    count: int
    words: str
    id: str
    address: str
    is_same: bool
    is_on: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What the machine said, and the cells of what people said of it."""

    machine: str
    word: str
    cells: Sequence[Cell]


def matrix_rows(agreement: Agreement, query: AgreementQuery) -> Iterator[MatrixRow]:
    """Yield the rows with the highest category first, as people read them."""
    names = agreement.categories
    for machine in reversed(range(len(names))):
        cells = []
        for person in reversed(range(len(names))):
            pair = names[machine], names[person]
            is_on = (query.machine, query.person) == pair
            asked = query.with_(machine="" if is_on else pair[0], person="" if is_on else pair[1])
            words = f"machine {word_of(pair[0]).lower()}, people {word_of(pair[1]).lower()}"
            count = agreement.matrix[machine][person]
            cell_id = f"cell-{machine}-{person}"
            cells.append(Cell(count, words, cell_id, asked.address, machine == person, is_on))
        yield MatrixRow(names[machine], word_of(names[machine]), cells)


def word_of(category: str) -> str:
    """Return what a verdict, mark or label is called."""
    return VERDICT_WORDS.get(category) or {"met": "Met", "missed": "Missed"}.get(category, category)

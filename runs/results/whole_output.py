"""The whole text that a target answered, read from the database piece by piece.

As one string 16 MB may take 64, more than once, and would be held until its client has received the last byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Left, Length, Substr

from runs.models.results import ResultOutput
from runs.models.runs import Run

PIECE_LENGTH = 500_000


@dataclass(frozen=True, slots=True)
class WholeOutput:
    """What there is to send; the pieces can be taken once."""

    characters: int
    pieces: Iterator[str]

    @property
    def is_short(self) -> bool:
        """Whether it is one piece."""
        return self.characters <= PIECE_LENGTH

    def json(self) -> Iterator[str]:
        """Yield the parts of its JSON document, `WholeOutputDoc`."""
        yield '{"text":"'
        for piece in self.pieces:
            yield json.dumps(piece, ensure_ascii=False)[1:-1]
        yield f'","characters":{self.characters}}}'


def whole_output(run: Run, key: str, repetition: int) -> WholeOutput:
    """Return the answer in a result.

    Raises ResultOutput.DoesNotExist, also when it was removed; so do the pieces when it goes or is replaced meanwhile.
    """
    outputs = ResultOutput.objects.filter(
        result__run=run,
        result__case__key=key,
        result__repetition=repetition,
        removed_at=None,
    )
    first: Any = outputs.values(
        "pk", "result__finished_at", characters=Length("text"), start=Left("text", PIECE_LENGTH)
    ).get()
    same = outputs.filter(pk=first["pk"], result__finished_at=first["result__finished_at"])

    def pieces() -> Iterator[str]:
        yield first["start"]
        for start in range(PIECE_LENGTH, first["characters"], PIECE_LENGTH):
            yield same.values_list(Substr("text", start + 1, PIECE_LENGTH), flat=True).get()

    return WholeOutput(first["characters"], pieces())

"""What the page of judge against people is asked for, as its address says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from runs.reports.judge_agreement import JudgeFigures, Span, SuiteAgreement

VERDICT, EVALUATOR, OUTCOMES, METRIC = "verdict", "evaluator", "outcomes", "metric"
KINDS = (VERDICT, EVALUATOR, OUTCOMES, METRIC)
LONGEST_PATH = 1_000
LONGEST_WORD = 20
MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class AgreementQuery:
    """Whose figures are shown, which cell's cases are listed, and over which runs.

    `by` is one of `KINDS`; `evaluator` is the path of an evaluator or the key of a metric. `machine` and
    `person` are what they said, "" for whatever. `since` is a suite's version, `run` a number, 0 for all.
    """

    by: str = VERDICT
    evaluator: str = ""
    machine: str = ""
    person: str = ""
    since: int = 0
    run: int = 0
    judge: str = ""
    page: int = 1

    @classmethod
    def read(cls, values: Mapping[str, str]) -> AgreementQuery:
        """Return the query of an address; what cannot be read is left out."""
        by = values.get("by", VERDICT)
        return cls(
            by=by if by in KINDS else VERDICT,
            evaluator=values.get("evaluator", "")[:LONGEST_PATH],
            machine=values.get("machine", "")[:LONGEST_WORD],
            person=values.get("person", "")[:LONGEST_WORD],
            since=_whole(values.get("since", "")),
            run=_whole(values.get("run", "")),
            judge=values.get("judge", "")[:LONGEST_PATH],
            page=max(_whole(values.get("page", "")), 1),
        )

    @property
    def span(self) -> Span:
        """Return the runs that count."""
        return Span(self.since, self.run, self.judge)

    @property
    def is_cell(self) -> bool:
        """Tell whether the cases of one cell, row or column are asked for."""
        return bool(self.machine or self.person)

    def with_(self, **changes: Any) -> AgreementQuery:
        """Return the query with some of it changed, from the first page on."""
        return replace(self, **{"page": 1, **changes})

    def pairs(self) -> dict[str, str]:
        """Return what differs from the plain page, as an address has it."""
        usual = AgreementQuery()
        names = ("by", "evaluator", "machine", "person", "since", "run", "judge", "page")
        found = {name: getattr(self, name) for name in names}
        return {name: str(value) for name, value in found.items() if value != getattr(usual, name)}

    @property
    def address(self) -> str:
        """Return the query as an address has it."""
        found = self.pairs()
        return f"?{urlencode(found)}" if found else "?"

    def figures(self, found: SuiteAgreement) -> JudgeFigures:
        """Return the figures asked for; those of the verdicts where there are none of that name."""
        if self.by == OUTCOMES:
            return found.outcomes
        if self.by == METRIC:
            return found.metrics.get(self.evaluator, found.verdicts)
        if self.by == EVALUATOR:
            named = (one for one in found.evaluators if one.path == self.evaluator)
            return next(named, found.verdicts)
        return found.verdicts


def _whole(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else 0

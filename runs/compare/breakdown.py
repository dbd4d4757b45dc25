"""A comparison by tag or metadata: pass rate and mean score of each group of cases, with corrected evidence."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from django.db.models import TextField
from django.db.models.functions import Cast

from evaluators.scoring.numbers import mean
from evaluators.scoring.significance import evidence
from evaluators.templatetags.figures import MISSING, delta, p_value, pct
from runs import lists
from runs.compare.changes import EVERY, ComparisonQuery
from runs.compare.comparison import Comparison
from runs.compare.conclusion import chance_text
from runs.compare.evidence import (
    Columns,
    Paired,
    correct_by_holm,
    paired_figures,
    share_change,
    shared_changes,
)
from runs.compare.measures import TONES
from runs.compare.rules import CaseChange
from runs.filters.fields import METADATA
from runs.filters.language import FieldComparison, Operator
from runs.lists import ListQuery
from runs.models.suites import Case
from runs.results.display import plain_keys, plain_texts

TAGS = ""
MAX_GROUPS, MAX_KEYS = 40, 30


@dataclass(frozen=True, slots=True)
class BreakdownQuery(ListQuery):
    """By what the cases of a comparison are grouped: a key of their metadata, "" for their tags."""

    by: str = lists.setting()


@dataclass(frozen=True, slots=True)
class GroupFigure:
    """A figure of a group in both runs: the change is coloured by its corrected p, which `chance` explains."""

    means: str
    change: str
    tone: str
    chance: str


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """The cases of one tag or value; `shared` of `cases` have a verdict in both runs."""

    name: str
    url: str
    shared: int
    cases: int
    pass_rate: GroupFigure
    mean_score: GroupFigure

    @property
    def figures(self) -> tuple[GroupFigure, GroupFigure]:
        """Return both figures."""
        return self.pass_rate, self.mean_score


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The groups, largest first; `left_out` more are not listed, and `without` cases are in none.

    `options` are what the cases can be grouped by.
    """

    by: str
    options: Sequence[tuple[str, str]]
    rows: Sequence[BreakdownRow]
    left_out: int
    without: int

    @property
    def tested(self) -> int:
        """Return for how many tests each p is corrected."""
        figures = [figure for row in self.rows for figure in row.figures]
        return sum("p " in figure.chance for figure in figures)


def build_breakdown(comparison: Comparison, query: ComparisonQuery, by: str) -> Breakdown:
    """Group the cases that both runs have; one query.

    All groups and both figures are one family of tests, whose p are corrected together (SCORING §9).
    """
    facts = _facts(comparison)
    found = {key for _, metadata in facts.values() for key in plain_keys(metadata)}
    keys = sorted(found)[:MAX_KEYS]
    by = by if by in keys else TAGS
    members: dict[str, list[CaseChange]] = defaultdict(list)
    without = 0
    in_both = [change for change in comparison.cases if change.baseline and change.candidate]
    for change in in_both:
        tags, metadata = facts.get(change.case, ((), {}))
        names = plain_texts(metadata.get(by)) if by else tuple(dict.fromkeys(tags))
        without += not names
        for name in names:
            members[name].append(change)
    largest = sorted(members, key=lambda name: (-len(members[name]), name))
    shown = {name: members[name] for name in largest[:MAX_GROUPS]}
    evidence_of = _evidence(comparison, shown)
    return Breakdown(
        by=by,
        options=[(TAGS, "Tag"), *((key, key) for key in keys)],
        rows=[_row(query, by, name, cases, *evidence_of[name]) for name, cases in shown.items()],
        left_out=len(largest) - len(shown),
        without=without,
    )


def _facts(comparison: Comparison) -> Mapping[str, tuple[Sequence[str], Mapping[str, Any]]]:
    """Return tags and metadata of the candidate's cases by key."""
    cases = Case.objects.filter(
        pk__in=comparison.candidate.run.cases.order_by().values("case_id")
    ).order_by()
    texts = (Cast(column, TextField()) for column in ("tags", "metadata"))
    # As text, for thousands of cases have the same tags: each list is read once.
    read = cache(json.loads)
    facts = (
        (key, read(tags), read(metadata))
        for key, tags, metadata in cases.values_list("key", *texts)
    )
    return {
        key: (tags, metadata if isinstance(metadata, dict) else {}) for key, tags, metadata in facts
    }


def _evidence(
    comparison: Comparison, groups: Mapping[str, Sequence[CaseChange]]
) -> Mapping[str, tuple[Paired, Paired]]:
    """Return the paired changes of pass rate and mean score of each group, each p corrected for all."""
    shared = shared_changes(comparison.cases)
    places = {change.case: place for place, change in enumerate(shared)}
    shares, scores = (
        np.array([value(change) for change in shared], dtype=float)
        for value in (share_change, attrgetter("score_change"))
    )
    columns: list[Columns] = []
    for cases in groups.values():
        inside = [places[change.case] for change in cases if change.case in places]
        for values in (shares, scores):
            column = np.full(len(shared), np.nan)
            column[inside] = values[inside]
            columns.append(column)
    seed = comparison.seed
    figures = list(paired_figures(columns, seed=seed))
    for place in range(0, len(figures), 2):
        known = Counter(columns[place][~np.isnan(columns[place])].tolist())
        figures[place] = replace(figures[place], p=evidence(known, seed=seed).p)
    corrected = correct_by_holm(figures)
    return dict(zip(groups, zip(corrected[::2], corrected[1::2], strict=True), strict=True))


def _row(
    query: ComparisonQuery,
    by: str,
    name: str,
    cases: Sequence[CaseChange],
    rate: Paired,
    score: Paired,
) -> BreakdownRow:
    shared = shared_changes(cases)
    sides = [
        [side for change in shared if (side := getattr(change, role))]
        for role in ("baseline", "candidate")
    ]
    condition = FieldComparison(f"{METADATA}{by}" if by else "tag", Operator.EQUAL, (name,))
    return BreakdownRow(
        name=name,
        url=query.address(text=str(condition), show=EVERY, cell=""),
        shared=len(shared),
        cases=len(cases),
        pass_rate=_figure(rate, [mean_figure(side, "pass_share") for side in sides]),
        mean_score=_figure(score, [mean_figure(side, "mean_score") for side in sides]),
    )


def mean_figure(cases: Sequence[Any], name: str) -> float | None:
    """Return the mean of a figure over the cases that have it; None without one."""
    return mean([value for case in cases if (value := getattr(case, name)) is not None])


def _figure(paired: Paired, means: Sequence[float | None]) -> GroupFigure:
    text = chance_text(paired)
    return GroupFigure(
        means=" → ".join(map(pct, means)) if paired.cases else MISSING,
        change=delta(paired.mean, "pts"),
        tone=TONES.get(paired.change, ""),
        chance=f"{text} ({p_value(paired.p)})" if paired.p is not None else "too few cases",
    )

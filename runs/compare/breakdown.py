"""A comparison by tag or metadata: pass rate and mean score of each group of cases, with corrected evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from django.db.models import TextField
from django.db.models.functions import Cast
from pydantic_core import from_json

from evaluators.scoring.significance import evidence
from evaluators.templatetags.figures import MISSING, chance_words, delta, pct
from runs.compare.changes import EVERY, ComparisonQuery
from runs.compare.comparison import Comparison
from runs.compare.evidence import (
    NO_CLEAR_CHANGE,
    Paired,
    SharedFigure,
    correct_by_holm,
    paired_groups,
    shared_changes,
)
from runs.compare.measures import TONES
from runs.compare.sides import NOWHERE
from runs.lists import Control
from runs.models.suites import Case
from runs.results.breakdown import (
    MAX_GROUPS,
    TAGS,
    breakdown_control,
    field_name,
)
from runs.results.display import MAX_KEYS, plain_keys, plain_texts
from runs.results.groups import group_filter


@dataclass(frozen=True, slots=True)
class GroupFigure:
    """A figure of a group in both runs: the change is coloured by its corrected p, which `chance` explains.

    `is_tested` is False where there are too few cases for a p.
    """

    means: str
    change: str
    tone: str
    chance: str
    is_tested: bool


@dataclass(frozen=True, slots=True)
class ChangeBreakdownRow:
    """The cases of one tag or value; `shared` of `cases` have a verdict in both runs.

    `url` lists them, "" where no filter can be so long.
    """

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

    @property
    def is_tested(self) -> bool:
        """Tell whether there are enough cases to test a figure."""
        return any(figure.is_tested for figure in self.figures)


@dataclass(frozen=True, slots=True)
class ChangeBreakdown:
    """The groups, largest first; `left_out` more are not listed, and `without` cases are in none.

    `controls` is the field that chooses by what the cases are grouped, `tested` for how many tests each p is corrected.
    """

    by: str
    controls: Sequence[Control]
    rows: Sequence[ChangeBreakdownRow]
    left_out: int
    without: int
    tested: int


def build_breakdown(comparison: Comparison, query: ComparisonQuery, by: str) -> ChangeBreakdown:
    """Group the cases that both runs have; one query.

    All groups and both figures are one family of tests, whose p are corrected together (SCORING §9).
    """
    texts = _texts(comparison)
    # As text, for thousands of cases have the same tags and metadata: each text is read once.
    known = {text: _metadata(text) for text in {text for _, text in texts.values()}}
    keys = sorted(plain_keys(known.values()))[:MAX_KEYS]
    by = by if by in keys else TAGS

    @cache
    def names(tags: str, metadata: str) -> Sequence[str]:
        found = plain_texts(known[metadata].get(by)) if by else from_json(tags)
        return tuple(dict.fromkeys(found))

    shared = shared_changes(comparison.cases)
    places = {change.case: place for place, change in enumerate(shared)}
    groups: dict[str, list[int]] = defaultdict(list)
    without = 0
    for change in comparison.cases:
        if change.baseline is None or change.candidate is None:
            continue
        of_case = names(*texts[change.case])
        without += not of_case
        place = places.get(change.case, NOWHERE)
        for name in of_case:
            groups[name].append(place)
    largest = sorted(groups, key=lambda name: (-len(groups[name]), name))
    shown = {name: np.array(groups[name]) for name in largest[:MAX_GROUPS]}
    shares, scores = SharedFigure.pass_shares(shared), SharedFigure.mean_scores(shared)
    compared = [members[members != NOWHERE] for members in shown.values()]
    figures = [(shares.only(at), scores.only(at)) for at in compared]
    tested = correct_by_holm(
        [
            paired
            for (share, _), score in zip(
                figures, paired_groups(scores.change, compared, seed=comparison.seed), strict=True
            )
            for paired in (_paired_shares(share, comparison.seed), score)
        ]
    )
    return ChangeBreakdown(
        by=by,
        controls=[breakdown_control(by, keys)],
        rows=[
            ChangeBreakdownRow(
                name=name,
                url=_address(query, by, name),
                shared=share.change.size,
                cases=len(members),
                pass_rate=_figure(rate, share.means),
                mean_score=_figure(score, of_score.means),
            )
            for (name, members), (share, of_score), (rate, score) in zip(
                shown.items(), figures, zip(tested[::2], tested[1::2], strict=True), strict=True
            )
        ],
        left_out=len(largest) - len(shown),
        without=without,
        tested=sum(figure.p is not None for figure in tested),
    )


def _texts(comparison: Comparison) -> Mapping[str, tuple[str, str]]:
    """Return tags and metadata of the candidate's cases by key, as JSON."""
    cases = Case.objects.filter(
        pk__in=comparison.candidate.run.cases.order_by().values("case_id")
    ).order_by()
    columns = (Cast(column, TextField()) for column in ("tags", "metadata"))
    rows = cases.values_list("key", *columns)
    return {key: (tags, metadata) for key, tags, metadata in rows}


def _metadata(text: str) -> Mapping[str, Any]:
    value = from_json(text)
    return value if isinstance(value, dict) else {}


def _paired_shares(share: SharedFigure, seed: int) -> Paired:
    return Paired.without_interval(share.change, evidence(share.changes, seed=seed).p)


def _address(query: ComparisonQuery, by: str, name: str) -> str:
    text = group_filter(field_name(by), name)
    return query.address(text=text, show=EVERY, cell="") if text else ""


def _figure(paired: Paired, means: Sequence[float | None]) -> GroupFigure:
    return GroupFigure(
        means=" → ".join(map(pct, means)) if paired.cases else MISSING,
        change=delta(paired.mean, "pts"),
        tone=TONES.get(paired.change, ""),
        chance=chance_words(paired.p, is_clear=paired.change != NO_CLEAR_CHANGE),
        is_tested=paired.p is not None,
    )

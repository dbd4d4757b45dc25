"""Which two runs an address means to compare, which there are to choose from, and within which tolerances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q

from runs.compare.cases import Tolerances
from runs.compare.comparison import ComparisonQuery
from runs.lists import read_integer
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.results.run_list import run_word
from runs.what_if.services import cannot_score_alike, has_rules_of

OFFERED = 200
MAX_RUN_NUMBER = 2**31 - 1
BESIDE = 20


@dataclass(frozen=True, slots=True)
class RunChoice:
    """One run that can be chosen, as an address names it and as a reader knows it."""

    word: str
    text: str


@dataclass(frozen=True, slots=True)
class RunLink:
    """A run that may take a side's place: its number, what it is, and the comparison with it."""

    number: int
    text: str
    url: str
    is_on: bool


def runs_beside(query: ComparisonQuery, *sides: Run) -> list[list[RunLink]]:
    """Return for baseline and candidate the newest runs of its suite, but the one on the other side; a query each."""
    names = "baseline", "candidate"
    pairs = zip(names, sides, reversed(sides), strict=True)
    return [_beside(query, name, run, other) for name, run, other in pairs]


def _beside(query: ComparisonQuery, name: str, run: Run, other: Run) -> list[RunLink]:
    runs = Run.objects.filter(suite=run.suite_id, done_count__gt=0).exclude(pk=other.pk)
    columns = ("id", "number", "target_name", "status", "note")
    links = []
    for pk, number, target, status, note in runs.order_by("-number").values_list(*columns)[:BESIDE]:
        words = [target, note] if note else [target]
        if pk == run.suite.baseline_run_id:
            words.append("baseline")
        if status != RunStatus.COMPLETED:
            words.append(RunStatus(status).label.lower())
        url = query.address(**{name: f"{run.suite.slug}:{number}"})
        links.append(RunLink(number, ", ".join(words), url, pk == run.pk))
    return links


def named(word: str) -> tuple[str, int] | None:
    """Return suite and number of `support-agent:12`; None for what names no run."""
    slug, _, number = word.rpartition(":")
    # What cannot be printed names nothing, and no database is asked for the character NUL.
    run = read_integer(number, maximum=MAX_RUN_NUMBER)
    return (slug, run) if slug and slug.isprintable() and run is not None else None


def usual_baseline(run: Run) -> str:
    """Return what a run is held against: its suite's baseline, else the completed run before it; "" without."""
    others = Run.objects.filter(suite=run.suite, status=RunStatus.COMPLETED).exclude(pk=run.pk)
    marked = others.filter(pk=run.suite.baseline_run_id or 0)
    before = others.filter(number__lt=run.number).order_by("-number")
    for runs in (marked, before):
        number = runs.values_list("number", flat=True).first()
        if number is not None:
            return f"{run.suite.slug}:{number}"
    return ""


def in_order(runs: Sequence[Run]) -> tuple[str, str]:
    """Return which of two runs is held against which: a suite's baseline is one, else the older."""
    first, second = sorted(runs, key=lambda run: (run.created_at, run.pk))
    if second.pk == second.suite.baseline_run_id and first.pk != first.suite.baseline_run_id:
        first, second = second, first
    return run_word(first), run_word(second)


def runs_offered(*words: str) -> list[RunChoice]:
    """Return the newest runs, and those named already; two queries."""
    light = Run.objects.select_related("suite").only(
        *("number", "target_name", "status", "note", "suite__slug", "suite__title"),
        "suite__baseline_run",
    )
    asked = Q(pk__in=[])
    for pair in filter(None, map(named, words)):
        asked |= Q(suite__slug=pair[0], number=pair[1])
    found = {run.pk: run for run in light.order_by("-pk")[:OFFERED]}
    found |= {run.pk: run for run in light.filter(asked)}
    return [_choice(found[key], found[key].suite) for key in sorted(found, reverse=True)]


def _choice(run: Run, suite: Suite) -> RunChoice:
    notes = [run.target_name]
    if run.pk == suite.baseline_run_id:
        notes.append("baseline")
    if run.status != RunStatus.COMPLETED:
        notes.append(RunStatus(run.status).label.lower())
    return RunChoice(run_word(run), f"{suite.title} #{run.number}, {', '.join(notes)}")


RIGHTS = ("runs.start_run", "runs.change_suite")
NOT_ALLOWED = "Editors and admins can score both under one policy."


@dataclass(frozen=True, slots=True)
class OneScoring:
    """A policy that both could be scored under: `like` names the side that has it."""

    like: str
    label: str


@dataclass(frozen=True, slots=True)
class RescoringOffer:
    """The policies that are offered, or the reason why none is; neither where the rules are the same."""

    choices: Sequence[OneScoring] = ()
    reason: str = ""


def rescoring_of(baseline: Run, candidate: Run, reader: User) -> RescoringOffer:
    """Return what is offered to a reader; no query."""
    if has_rules_of(baseline, candidate):
        return RescoringOffer()
    if reason := cannot_score_alike(baseline, candidate) or cannot_score_alike(candidate, baseline):
        return RescoringOffer(reason=reason)
    if not reader.has_perms(RIGHTS):
        return RescoringOffer(reason=NOT_ALLOWED)
    return RescoringOffer(
        [
            OneScoring(side, f"Score both under the policy of #{run.number}, v{run.suite_version}")
            for side, run in (("candidate", candidate), ("baseline", baseline))
        ]
    )


# What a field's number is divided by to be stored.
UNITS = {"max_pass_rate_drop": 1.0, "max_avg_score_drop": 100.0, "max_latency_increase_pct": 1.0}


class TolerancesForm(forms.Form):
    """Three numbers in the units of the command line; an empty one is the suite's."""

    max_pass_rate_drop = forms.FloatField(
        label="Pass rate may fall by",
        help_text="a share from 0 to 1",
        required=False,
        min_value=0,
        max_value=1,
    )
    max_avg_score_drop = forms.FloatField(
        label="Mean score may fall by",
        help_text="points of 100",
        required=False,
        min_value=0,
        max_value=100,
    )
    max_latency_increase_pct = forms.FloatField(
        label="Mean latency may grow by", help_text="percent", required=False, min_value=0
    )

    def __init__(self, usual: Tolerances, sent: dict[str, str]) -> None:
        """Show what was sent, and the usual ones where nothing was."""
        self.usual, self.sent = usual, sent
        shown = {name: f"{getattr(usual, name) * unit:.10g}" for name, unit in UNITS.items()}
        super().__init__(data=shown | sent, use_required_attribute=False)
        for field in self.fields.values():
            field.widget.attrs["step"] = "any"

    @property
    def tolerances(self) -> Tolerances:
        """Return what was entered; the suite's where a number cannot be read."""
        self.is_valid()
        return with_limits(
            self.usual, {name: self.cleaned_data.get(name) for name in self.sent if name in UNITS}
        )


def with_limits(usual: Tolerances, given: Mapping[str, Any]) -> Tolerances:
    """Return the usual tolerances with those that are given, in the units of the command line."""
    changed: dict[str, Any] = {
        name: given[name] / unit for name, unit in UNITS.items() if given.get(name) is not None
    }
    return replace(usual, **changed)

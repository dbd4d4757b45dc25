"""Which two runs an address means to compare, and which there are to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from runs.models import Run, RunStatus, Suite
from runs.reports.comparison_query import ComparisonQuery, run_word

OFFERED = 200
BESIDE = 20
LONGEST_NUMBER = 9


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
    if not slug.isprintable() or not slug or not number.isdecimal() or len(number) > LONGEST_NUMBER:
        return None
    return slug, int(number)


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

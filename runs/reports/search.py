"""Find suites, cases, runs and targets by a few words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db.models import Q
from django.urls import reverse

from runs.models import Case, Run, Suite, Target
from runs.reports.run_list import RunRow, listed, run_row

MOST_EACH = 20
LONGEST_QUERY = 200
RUN_NUMBER = re.compile(r"#?(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: where it is, what it is called and what it belongs to."""

    url: str
    code: str
    title: str
    belongs_to: str


@dataclass(frozen=True, slots=True)
class Found:
    """What matches, by sort; `only_url` is where an exact name leads at once."""

    query: str
    suites: tuple[Hit, ...]
    cases: tuple[Hit, ...]
    runs: tuple[RunRow, ...]
    targets: tuple[Hit, ...]
    only_url: str

    @property
    def total(self) -> int:
        """Return how many hits are shown."""
        return len(self.suites) + len(self.cases) + len(self.runs) + len(self.targets)

    @property
    def nothing(self) -> str:
        """Say that nothing was found."""
        return f"Nothing matches “{self.query}”"


def search(text: str) -> Found:
    """Return what matches in title, key, slug, tag or number; at most 20 of each sort."""
    query = text.strip()[:LONGEST_QUERY]
    if not query:
        return Found("", (), (), (), (), "")
    suites, cases, runs = _suites(query), _cases(query), _runs(query)
    targets = _targets(query)
    return Found(query, suites, cases, runs, targets, _only(query, cases, runs))


def _suites(query: str) -> tuple[Hit, ...]:
    named = Q(title__icontains=query) | Q(slug__icontains=query) | Q(description__icontains=query)
    found = Suite.objects.filter(named, archived_at=None)[:MOST_EACH]
    return tuple(
        Hit(reverse("runs:suite", kwargs={"slug": suite.slug}), suite.slug, suite.title, "")
        for suite in found
    )


def _cases(query: str) -> tuple[Hit, ...]:
    named = Q(key__icontains=query) | Q(title__icontains=query)
    cases = Case.objects.filter(named, is_current=True, suite__archived_at=None)
    found = cases.select_related("suite").only("key", "title", "suite__slug", "suite__title")
    return tuple(
        Hit(
            reverse("runs:case", kwargs={"slug": case.suite.slug, "key": case.key}),
            case.key,
            case.title,
            case.suite.title,
        )
        for case in found.order_by("suite__title", "position")[:MOST_EACH]
    )


def _runs(query: str) -> tuple[RunRow, ...]:
    number = RUN_NUMBER.fullmatch(query)
    named = Q(note__icontains=query) | Q(target_name__icontains=query)
    wanted = Q(number=int(number[1])) if number else named
    runs = listed(Run.objects.filter(wanted))
    return tuple(run_row(run) for run in runs[:MOST_EACH])


def _targets(query: str) -> tuple[Hit, ...]:
    found = Target.objects.filter(name__icontains=query, archived_at=None)[:MOST_EACH]
    return tuple(
        Hit(reverse("runs:target", kwargs={"pk": target.pk}), "", target.name, target.kind)
        for target in found
    )


def _only(query: str, cases: tuple[Hit, ...], runs: tuple[RunRow, ...]) -> str:
    """Return where a case's key or a run's number leads, when only one thing bears it."""
    keyed = [hit for hit in cases if hit.code.casefold() == query.casefold()]
    if len(keyed) == 1:
        return keyed[0].url
    return runs[0].url if query.startswith("#") and len(runs) == 1 else ""

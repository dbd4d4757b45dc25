"""What a run can be started of: suites, targets and cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Avg, Count, Exists, OuterRef, Q, QuerySet

from evaluators.templatetags.figures import duration, pct
from runs.lists import read_integer
from runs.models.results import Result, ResultStatus
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.models.targets import Target
from runs.running.estimate import ENDED
from runs.running.warnings import recorded_counts
from runs.target_kinds import target_kinds

MAX_SHOWN = 50
MAX_QUERY_LENGTH = 200
PASSED = "pass"


@dataclass(frozen=True, slots=True)
class CaseOption:
    """A case to pick."""

    key: str
    title: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class CasePick:
    """The cases shown to pick from, chosen ones first; `others` are keys chosen beside them.

    `found` of `total` cases have the text of the query in key or title.
    """

    options: Sequence[CaseOption]
    others: Sequence[str]
    text: str
    found: int
    total: int


def case_pick(suite: Suite, text: str, chosen: Collection[str]) -> CasePick:
    """Return what a search among the suite's cases shows; one query."""
    text = text.strip()[:MAX_QUERY_LENGTH]
    rows = list(_current(suite).values_list("key", "title"))
    sought = text.casefold()
    fitting = [row for row in rows if sought in f"{row[0]} {row[1]}".casefold()]
    wanted = set(chosen)
    # Those ticked already stay in sight when another text is sought.
    ticked = [row for row in rows if row[0] in wanted][:MAX_SHOWN]
    shown = ticked + [row for row in fitting if row[0] not in wanted][:MAX_SHOWN]
    listed = {key for key, _ in ticked}
    return CasePick(
        options=[CaseOption(key, title, key in listed) for key, title in shown],
        others=[key for key in chosen if key not in listed],
        text=text,
        found=len(fitting),
        total=len(rows),
    )


def outcomes_by_key(suite: Suite) -> dict[str, bool]:
    """Return the keys of the current cases, in order, with whether outcomes are expected of them."""
    return {
        key: bool(outcomes)
        for key, outcomes in _current(suite).values_list("key", "expected_outcomes")
    }


def last_ended(suite: Suite) -> Run | None:
    """Return the newest run that was carried out and is over, without its long columns."""
    ended = suite.runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
    return ended.defer("snapshot", "summary", "leaf_scores").order_by("-number").first()


def case_keys_not_passed(run: Run) -> list[str]:
    """Return the keys of the cases with a repetition that failed, was borderline or errored."""
    scored = Q(status=ResultStatus.SCORED) & ~Q(verdict=PASSED)
    found = run.results.filter(scored | Q(status=ResultStatus.ERROR)).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def case_keys_of_run(run: Run) -> list[str]:
    """Return the keys of the cases that a run was of."""
    found = run.results.filter(repetition=1).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def _current(suite: Suite) -> QuerySet[Case]:
    return suite.cases.filter(is_current=True).order_by("position", "id")


@dataclass(frozen=True, slots=True)
class UnavailableTarget:
    """A target that was asked for and cannot be run: archived, or deleted with `pk` None and no name."""

    pk: int | None
    name: str


@dataclass(frozen=True, slots=True)
class TargetOption:
    """A target to choose, with what is known of it from this suite's runs.

    `recorded` counts the suite's `cases` that it has an output for, None where it is asked.
    """

    pk: int
    name: str
    kind_label: str
    model: str
    description: str
    last_number: int | None
    last_share: float | None
    is_live: bool
    mean_cost_usd: Decimal | None
    mean_latency_ms: float | None
    recorded: int | None
    cases: int

    @property
    def chosen_as(self) -> str:
        """Return the value a form sends for this target."""
        return str(self.pk)

    @property
    def past(self) -> str:
        """Say what is recorded, and how it did in its last run of this suite."""
        stored = "" if self.recorded is None else f"{self.recorded} of {self.cases} cases recorded"
        if self.last_number is None:
            return "; ".join(filter(None, (stored, "never run on this suite")))
        parts = [f"last run #{self.last_number}"]
        if self.is_live:
            parts.append("live")
        elif self.last_share is not None:
            parts.append(f"{pct(self.last_share)} passed")
        if self.mean_latency_ms is not None:
            parts.append(f"{duration(self.mean_latency_ms)} mean")
        return "; ".join(filter(None, (stored, ", ".join(parts))))


@dataclass(frozen=True, slots=True)
class SuiteChoice:
    """A suite to start a run of."""

    slug: str
    title: str
    description: str
    cases: int
    last_number: int | None
    last_at: datetime | None


def suite_choices() -> tuple[SuiteChoice, ...]:
    """Return the suites that can be run, with their number of cases and their last run."""
    suites = Suite.objects.filter(archived_at=None)
    counted = suites.annotate(case_total=Count("cases", filter=Q(cases__is_current=True)))
    last = {run.suite_id: run for run in _last_runs(Run.objects.all(), "suite")}
    return tuple(
        SuiteChoice(
            suite.slug,
            suite.title,
            suite.description,
            suite.case_total,
            last[suite.pk].number if suite.pk in last else None,
            last[suite.pk].created_at if suite.pk in last else None,
        )
        for suite in counted
    )


def target_options(suite: Suite) -> tuple[TargetOption, ...]:
    """Return every target with its last run of this suite; constant in queries.

    First stand those that ran on it, the latest first, then those that never ran, then the others.
    """
    runs = Run.objects.filter(target=OuterRef("pk"), source_run=None)
    targets = list(
        Target.objects.filter(archived_at=None)
        .annotate(ran_somewhere=Exists(runs))
        .select_related("model")
    )
    last = {run.target_id: run for run in _last_runs(suite.runs.filter(source_run=None), "target")}
    means = {
        row["run"]: row
        for row in Result.objects.filter(run__in=[run.pk for run in last.values()])
        .order_by()
        .values("run")
        .annotate(latency=Avg("latency_ms"), cost=Avg("run_cost_usd"))
    }
    recorded = recorded_counts(suite, targets)
    cases = suite.cases.filter(is_current=True).count()
    # Sorting keeps what is alike in the order of names.
    targets.sort(
        key=lambda one: (0, -last[one.pk].pk) if one.pk in last else (1, one.ran_somewhere)
    )
    return tuple(
        _option(target, last.get(target.pk), means, recorded.get(target.pk), cases)
        for target in targets
    )


def _last_runs(runs: QuerySet[Run], of: str) -> QuerySet[Run]:
    later = runs.filter(**{of: OuterRef(of)}).filter(pk__gt=OuterRef("pk"))
    return runs.filter(~Exists(later)).defer("snapshot", "leaf_scores")


def _option(
    target: Target,
    run: Run | None,
    means: Mapping[int, Mapping[str, Any]],
    recorded: int | None,
    cases: int,
) -> TargetOption:
    mean = means.get(run.pk, {}) if run else {}
    kind = target_kinds().get(target.kind)
    return TargetOption(
        pk=target.pk,
        name=target.name,
        kind_label=kind.label if kind else target.kind,
        model=target.model.name if target.model else "",
        description=target.description,
        last_number=run.number if run else None,
        last_share=run.pass_count / run.done_count if run and run.done_count else None,
        is_live=bool(run and run.is_active),
        mean_cost_usd=mean.get("cost"),
        mean_latency_ms=mean.get("latency"),
        recorded=recorded,
        cases=cases,
    )


def unavailable_targets(asked: Collection[str]) -> tuple[UnavailableTarget, ...]:
    """Return which of the targets, by their ids as an address names them, cannot be run."""
    numbers = {number for number in map(read_integer, asked) if number is not None}
    known = Target.objects.filter(pk__in=numbers).in_bulk()
    archived = [one for one in known.values() if one.archived_at is not None]
    gone = len(asked) - len(known)
    return (
        *(UnavailableTarget(one.pk, one.name) for one in archived),
        *[UnavailableTarget(None, "")] * min(gone, 1),
    )

"""What runs have stored, and what keeps it from being deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse

from evaluators.templatetags.figures import counted
from runs.engine.plan import JUDGED_AGAIN
from runs.models.database import TextBytes, among, database_now, update_rows
from runs.models.removals import RemovalPart, RetentionRule
from runs.models.results import (
    Artifact,
    ComparedOutput,
    EvaluatorScore,
    ModelCall,
    Result,
    ResultOutput,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import (
    ACTIVE_RUN_STATUSES,
    HEAVY_RUN_COLUMNS,
    Campaign,
    Run,
    RunWorker,
)
from runs.models.sharing import ShareLink
from runs.models.suites import FileContent, Suite, Target

# The texts that are measured, by part and table. Their rows' other columns are small.
TEXTS: Mapping[str, Mapping[Any, tuple[str, ...]]] = {
    "outputs": {
        ResultOutput: ("text", "messages", "trace", "outcomes", "decision"),
        ComparedOutput: ("text",),
    },
    "calls": {ModelCall: ("request", "reply", "error")},
    "reasons": {EvaluatorScore: ("reasoning", "findings", "details", "warnings")},
}
FILES = "files"
PARTS = (*TEXTS, FILES)
# A page measures this many results at most: half a second. Each run takes as long as some results, however few it has.
MEASURED_AT_ONCE, RESULTS_A_RUN = 40_000, 20


class StoredLength(TextBytes):
    """The bytes that a value takes, as PostgreSQL stores it; in SQLite those of its text."""

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Ask for the stored size, which reads no long values."""
        return self.as_sql(compiler, connection, function="pg_column_size", **context)


@dataclass(frozen=True, slots=True)
class Selection:
    """Runs of one suite of which somebody wants to remove a part, perhaps the whole suite with them."""

    part: RemovalPart
    suite: Suite
    runs: Sequence[Run]
    campaign: Campaign | None = None
    is_whole_suite: bool = False

    @property
    def name(self) -> str:
        """Return the name of what is deleted, as the audit and the list of removals show it."""
        if self.is_whole_suite:
            return self.suite.slug
        if self.campaign is not None:
            return f"{self.suite.slug}, campaign {self.campaign.name or self.campaign.pk}"
        numbers = ", ".join(f"#{run.number}" for run in self.runs[:5])
        more = f" and {len(self.runs) - 5} more" if len(self.runs) > 5 else ""
        return f"{self.suite.slug} {numbers}{more}"


def select_runs(suite: Suite, **which: Any) -> list[Run]:
    """Return runs of a suite by their columns, newest first, without their long columns."""
    # They share the suite, which is read once.
    runs = Run.objects.filter(suite=suite, **which).prefetch_related("suite")
    return list(runs.defer(*HEAVY_RUN_COLUMNS).order_by("-number"))


@dataclass(frozen=True, slots=True)
class StoredData:
    """Counts of what runs have stored, and bytes by part; `unmeasured` runs are left out of the bytes."""

    runs: int
    results: int
    calls: int
    reviews: int
    bytes_by_part: Mapping[str, int]
    unmeasured: int

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all parts."""
        return sum(self.bytes_by_part.values())

    def as_facts(self) -> dict[str, int]:
        """Return what the audit stores."""
        return {
            "runs": self.runs,
            "results": self.results,
            "calls": self.calls,
            "reviews": self.reviews,
            "bytes": self.total_bytes,
        }


def stored_data(runs: Sequence[Run]) -> StoredData:
    """Count what runs have stored and measure those that were not measured since they ended."""
    measure_runs(runs)
    ids = [run.pk for run in runs]
    measured = [run.stored_bytes for run in runs if run.stored_bytes is not None]
    return StoredData(
        runs=len(runs),
        results=Result.objects.filter(run__in=ids).count(),
        calls=ModelCall.objects.filter(run__in=ids).count(),
        reviews=Review.objects.filter(result__run__in=ids).count(),
        bytes_by_part={part: sum(sizes[part] for sizes in measured) for part in PARTS},
        unmeasured=len(runs) - len(measured),
    )


def measure_runs(runs: Iterable[Run]) -> None:
    """Measure ended runs that were not measured since they ended, up to a number of results and of runs.

    A run that is still unmeasured afterwards has no `stored_bytes`. The number of queries does not grow with the
    runs, except for those that left files.
    """
    room, chosen = MEASURED_AT_ONCE, []
    for run in runs:
        if run.measured_at and run.finished_at and run.measured_at >= run.finished_at:
            continue
        run.stored_bytes = None
        cost = max(run.execution_count, RESULTS_A_RUN)
        if room < cost and room < MEASURED_AT_ONCE:
            continue
        room -= cost
        chosen.append(run)
    if not chosen:
        return
    sizes, now = _measure([run.pk for run in chosen]), database_now()
    for run in chosen:
        run.stored_bytes, run.measured_at = sizes[run.pk], now
    rows = [(run.stored_bytes, now, run.pk) for run in chosen if not run.is_active]
    with transaction.atomic():
        update_rows(Run, ("stored_bytes", "measured_at"), rows, key=("id",))


def _measure(runs: Sequence[int]) -> Mapping[int, dict[str, int]]:
    """Return the bytes of each run by part."""
    sizes = {run: dict.fromkeys(PARTS, 0) for run in runs}
    for part, tables in TEXTS.items():
        for model, columns in tables.items():
            lengths = [Coalesce(StoredLength(F(column)), 0) for column in columns]
            total: Any = sum(lengths[1:], start=lengths[0])
            rows = model.objects.filter(result__run__in=among(runs)).order_by()
            for run, size in rows.values_list("result__run").annotate(total=Sum(total)):
                sizes[run][part] += size
    left = Artifact.objects.filter(result__run__in=among(runs)).order_by()
    for run in left.values_list("result__run", flat=True).distinct():
        # A file that several results of the run left counts once.
        shas = Artifact.objects.filter(result__run=run).order_by().values("content")
        files = FileContent.objects.filter(pk__in=shas).aggregate(total=Sum("size", default=0))
        sizes[run][FILES] = files["total"]
    return sizes


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason why some runs cannot be deleted now, with the page where it can be changed.

    `is_review` is set where their results wait for reviewers; a person may give these up.
    """

    runs: tuple[int, ...]
    text: str
    url: str
    is_review: bool = False


def find_holds(
    runs: Sequence[Run], part: RemovalPart, *, now: datetime, is_whole_suite: bool = False
) -> tuple[Hold, ...]:
    """Return everything that keeps a part of runs from being deleted; a fixed number of queries.

    These are unfinished work, a baseline, open share links and results that wait for reviewers. A run
    that another one was scored again from stays as long as that one, whose cost would seem its own.
    """
    by_id = {run.pk: run for run in runs}
    return (
        *_unfinished(by_id, part, now=now),
        *(() if is_whole_suite else _baselines(by_id)),
        *_share_links(by_id, now=now),
        *_waiting_reviews(by_id),
        *_rescored(by_id, part),
    )


def run_url(run: Run) -> str:
    """Return the page of a run."""
    return reverse("runs:run", args=(run.suite.slug, run.number))


def _unfinished(by_id: Mapping[int, Run], part: RemovalPart, *, now: datetime) -> Iterator[Hold]:
    workers = RunWorker.objects.alive(now=now).at_work().filter(run__in=list(by_id))
    ending = set(workers.values_list("run_id", flat=True))
    for run in by_id.values():
        if run.is_active:
            yield Hold((run.pk,), f"Run {run} has not ended. Cancel it first.", run_url(run))
        elif run.pk in ending:
            text = (
                f"A worker is still finishing the last calls of run {run}. Try again in a minute."
            )
            yield Hold((run.pk,), text, run_url(run))
        elif run.removal_id is not None and part != RemovalPart.RUN:
            text = f"Data of run {run} are being removed already."
            yield Hold((run.pk,), text, reverse("runs:retention"))


def _baselines(by_id: Mapping[int, Run]) -> Iterator[Hold]:
    for run in by_id.values():
        if run.pk == run.suite.baseline_run_id:
            text = f"Run {run} is the baseline of {run.suite.title}."
            yield Hold((run.pk,), text, run_url(run))


def _share_links(by_id: Mapping[int, Run], *, now: datetime) -> Iterator[Hold]:
    is_open = Q(expires_at=None) | Q(expires_at__gt=now)
    links = ShareLink.objects.filter(is_open, revoked_at=None).select_related("created_by")
    for link in links.defer("frozen"):
        shown = [by_id[pk] for pk in link.sources.get("runs", ()) if pk in by_id]
        if shown:
            maker = f" of {link.created_by.get_username()}" if link.created_by else ""
            numbers = " and ".join(f"run {run}" for run in shown)
            text = f"The share link “{link.title}”{maker} shows {numbers}. Revoke it first."
            yield Hold(tuple(run.pk for run in shown), text, reverse("runs:share-list"))


def _waiting_reviews(by_id: Mapping[int, Run]) -> Iterator[Hold]:
    waiting = ReviewItem.objects.waiting().filter(run__in=list(by_id)).order_by()
    rows: Any = waiting.values_list("run").annotate(count=Count("pk"))
    for pk, count in sorted(rows):
        verb = "waits" if count == 1 else "wait"
        text = f"{counted(count, 'result')} of run {by_id[pk]} {verb} for reviewers."
        yield Hold((pk,), text, f"{reverse('runs:review')}?run={pk}", is_review=True)


def _rescored(by_id: Mapping[int, Run], part: RemovalPart) -> Iterator[Hold]:
    copies = Run.objects.filter(source_run__in=list(by_id)).exclude(pk__in=list(by_id))
    copies = copies.annotate(judged_again=F(f"snapshot__{JUDGED_AGAIN}__run"))
    for copy in copies.select_related("suite").defer(*HEAVY_RUN_COLUMNS).order_by("pk"):
        source = by_id[copy.source_run_id or 0]
        if vars(copy)["judged_again"] is not None:
            # It has its own copy of the outputs, but its target cost is that of its source.
            if part != RemovalPart.RUN:
                continue
            text = f"Run {copy} judges the outputs of run {source} again. Delete run {copy} first."
        elif copy.is_active:
            text = f"Run {source} is being rescored as run {copy}."
        elif part == RemovalPart.RUN:
            text = f"Run {copy} was rescored from run {source}. Delete run {copy} first."
        else:
            continue
        yield Hold((source.pk,), text, run_url(copy))


def find_readers(target: Target) -> tuple[Hold, ...]:
    """Return the unfinished runs that replay the recorded outputs of a target."""
    active = Run.objects.filter(target=target, status__in=ACTIVE_RUN_STATUSES)
    runs = active.select_related("suite").defer(*HEAVY_RUN_COLUMNS).order_by("pk")
    return tuple(
        Hold(
            (run.pk,),
            f"Run {run} of {run.suite.title} has not ended. Cancel it first.",
            run_url(run),
        )
        for run in runs
    )


@dataclass(frozen=True, slots=True)
class DueRemoval:
    """What a rule would remove of one suite now; `holds` keep other runs that are old enough."""

    suite: Suite
    part: RemovalPart
    runs: tuple[Run, ...]
    holds: tuple[Hold, ...]

    @property
    def selection(self) -> Selection:
        """Return the runs to remove it from."""
        return Selection(self.part, self.suite, self.runs)

    @property
    def results(self) -> int:
        """Return how many results lose something."""
        return sum(run.execution_count for run in self.runs)

    @property
    def bytes(self) -> int:
        """Return how much of what was measured goes."""
        return sum(
            (run.stored_bytes or {}).get(part, 0) for run in self.runs for part in self._parts
        )

    @property
    def unmeasured(self) -> int:
        """Return how many runs were not measured yet."""
        return sum(run.stored_bytes is None for run in self.runs)

    @property
    def _parts(self) -> tuple[str, ...]:
        return PARTS if self.part == RemovalPart.DETAILS else ("outputs", "calls", FILES)

    @property
    def held_count(self) -> int:
        """Return how many runs are old enough but kept."""
        return len({pk for hold in self.holds for pk in hold.runs})


def retention_preview(*, now: datetime, suite: Suite | None = None) -> tuple[DueRemoval, ...]:
    """Return what the rules would remove now, measured."""
    due = due_removals(now=now, suite=suite)
    measure_runs([run for removal in due for run in removal.runs])
    return due


def site_rule() -> RetentionRule:
    """Return the rule of the site; a new one keeps everything."""
    return RetentionRule.objects.filter(suite=None).first() or RetentionRule()


def suite_rule(suite: Suite) -> RetentionRule | None:
    """Return a suite's own rule, None if it follows the site's."""
    return RetentionRule.objects.filter(suite=suite).first()


def due_removals(*, now: datetime, suite: Suite | None = None) -> tuple[DueRemoval, ...]:
    """Return what the rules would remove now, of one suite or all; a fixed number of queries."""
    rules = {rule.suite_id: rule for rule in RetentionRule.objects.all()}
    due: dict[tuple[int, RemovalPart], list[Run]] = defaultdict(list)
    for run in _old_runs(rules.values(), now=now, suite=suite):
        rule = rules.get(run.suite_id, rules.get(None))
        if rule is not None and (part := _due_part(run, rule, now=now)):
            due[run.suite_id, part].append(run)
    removals = []
    for part in (RemovalPart.DETAILS, RemovalPart.OUTPUTS):
        groups = [runs for (_, due_part), runs in due.items() if due_part == part]
        holds = find_holds([run for runs in groups for run in runs], part, now=now)
        suites = {run.pk: run.suite_id for runs in groups for run in runs}
        of_suite: dict[int, list[Hold]] = defaultdict(list)
        for hold in holds:
            for suite_id in dict.fromkeys(suites[pk] for pk in hold.runs):
                of_suite[suite_id].append(hold)
        for runs in groups:
            own = tuple(of_suite[runs[0].suite_id])
            held = {pk for hold in own for pk in hold.runs}
            free = tuple(run for run in runs if run.pk not in held)
            removals.append(DueRemoval(runs[0].suite, part, free, own))
    return tuple(sorted(removals, key=lambda removal: removal.suite.title))


def _old_runs(
    rules: Iterable[RetentionRule], *, now: datetime, suite: Suite | None
) -> Iterable[Run]:
    """Return the ended runs that are older than the shortest time of any rule, newest first."""
    times = [days for rule in rules for days in (rule.outputs_days, rule.details_days) if days]
    if not times:
        return ()
    old = Run.objects.exclude(status__in=ACTIVE_RUN_STATUSES).filter(
        finished_at__lt=now - timedelta(days=min(times)), removal=None
    )
    if suite is not None:
        old = old.filter(suite=suite)
    # Many runs share few suites, each of which is read once.
    return old.prefetch_related("suite").defer(*HEAVY_RUN_COLUMNS).order_by("-number")


def _due_part(run: Run, rule: RetentionRule, *, now: datetime) -> RemovalPart | None:
    """Return what a rule removes of an ended run now; removing details removes outputs too."""
    ended = run.finished_at
    for part, days, was_removed in (
        (RemovalPart.DETAILS, rule.details_days, run.lacks_details),
        (RemovalPart.OUTPUTS, rule.outputs_days, run.lacks_outputs),
    ):
        is_old = ended is not None and days and ended < now - timedelta(days=days)
        if is_old and not was_removed:
            return part
    return None

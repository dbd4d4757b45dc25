"""Runs, campaigns, their workers, and what a process keeps of the results of runs."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Generic, Self, TypeVar
from uuid import uuid4

from django.conf import settings
from django.db import models
from django.utils import timezone

from evaluators.models import money_field
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.engine.plan import BASELINE as PAIRWISE_BASELINE
from runs.engine.plan import JUDGED_AGAIN, MEASURES_JUDGE, case_tree, read_policy
from runs.lists import MAX_RUN_NUMBER, read_integer
from runs.models.database import database_now
from runs.models.suites import Case, Suite, Target
from runs.summary.judge_spread import JUDGE_SPREAD, JudgeSpread


class RunStatus(models.TextChoices):
    """How far a run is. Pages show stopped as Cancelled."""

    QUEUED = "queued", "Waiting"
    RUNNING = "running", "Running"
    COMPLETED = "completed", "Completed"
    STOPPED = "stopped", "Cancelled"
    BUDGET_REACHED = "budget_reached", "Budget reached"
    FAILED = "failed", "Failed"


# A worker renews its leases of results six times in this span. One that has not counts as dead.
LEASE = timedelta(seconds=settings.LEASE_S)
# The reason of a run that failed because of its target begins so, before the target's error.
ALL_ALIKE = "The first results all had the same error."
HEAVY_RUN_COLUMNS = ("snapshot", "summary", "leaf_scores")
MAX_OWNER_ID_LENGTH = 200
OWNER_COLUMNS = ("owner", "owner_id", "heartbeat_at")
ACTIVE_RUN_STATUSES = (RunStatus.QUEUED, RunStatus.RUNNING)
RESUMABLE_RUN_STATUSES = (RunStatus.STOPPED, RunStatus.BUDGET_REACHED, RunStatus.FAILED)


class RunOwner(models.TextChoices):
    """Who may claim the results of a run."""

    WORKERS = "workers", "The workers"
    COMMAND_LINE = "command_line", "A command line"


def removal_message(what: str, removed_at: datetime | None, removed_by: str) -> str:
    """Say what was removed, when and by whom; "" if nothing was."""
    if removed_at is None:
        return ""
    day = timezone.localtime(removed_at)
    return f"{what} removed on {day.day} {day:%b %Y} by {removed_by}."


class Campaign(models.Model):
    """Runs of one suite started together against several targets."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="campaigns")
    name = models.CharField(max_length=200, blank=True, default="")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        """Return the name."""
        return self.name


LATEST, BASELINE = "latest", "baseline"


class RunQuerySet(models.QuerySet["Run"]):
    """Runs, and the lock for changes that must happen together."""

    def named(self, slug: str, name: str) -> Self:
        """Return the run of a suite by its number, or by `latest` or `baseline`, as the first row.

        The latest is the newest finished run, with any status; runs rescored or judged again do not count.
        """
        runs = self.filter(suite__slug=slug)
        if name == LATEST:
            ended = runs.filter(source_run=None).exclude(status__in=ACTIVE_RUN_STATUSES)
            return ended.order_by("-number")
        if name == BASELINE:
            return runs.filter(suite__baseline_run=models.F("pk"))
        number = read_integer(name, maximum=MAX_RUN_NUMBER)
        return runs.none() if number is None else runs.filter(number=number)

    def called(self, word: str) -> Self:
        """Return the run of an id, or of a suite with a number, latest or baseline, as the first row."""
        slug, colon, name = word.rpartition(":")
        # Text that cannot be printed is never a slug, and a database refuses the character NUL.
        if colon and slug.isprintable():
            return self.named(slug, name)
        pk = read_integer(word)
        return self.none() if pk is None else self.filter(pk=pk)

    def hold(self, run_id: int) -> Run:
        """Return a run whose row stays locked until the transaction ends.

        Everything that changes several results of a run at once holds it, so that no two transactions
        deadlock. Claiming does not, and never waits.
        """
        return self._held(run_id).get()

    def hold_if_there(self, run_id: int) -> Run | None:
        """Return a run as `hold` does, None when it is deleted."""
        return self._held(run_id).first()

    def _held(self, run_id: int) -> Self:
        return (
            self.select_for_update(no_key=True)
            .defer(*HEAVY_RUN_COLUMNS)
            .filter(id=run_id)
            .order_by()
        )


class RunManager(models.Manager["Run"]):
    """The runs of the site, without those that are being deleted."""

    def get_queryset(self) -> RunQuerySet:
        """Leave out runs that are being deleted."""
        return RunQuerySet(self.model, using=self._db).filter(is_deleted=False)

    def named(self, slug: str, name: str) -> RunQuerySet:
        """Return the run of a suite by its number, or by `latest` or `baseline`; see RunQuerySet."""
        return self.get_queryset().named(slug, name)

    def called(self, word: str) -> RunQuerySet:
        """Return the run of an id, or of a suite with a number, latest or baseline; see RunQuerySet."""
        return self.get_queryset().called(word)

    def hold(self, run_id: int) -> Run:
        """Return a run whose row stays locked until the transaction ends; see RunQuerySet."""
        return self.get_queryset().hold(run_id)

    def hold_if_there(self, run_id: int) -> Run | None:
        """Return a run as `hold` does, None when it is deleted."""
        return self.get_queryset().hold_if_there(run_id)


class Run(models.Model):
    """One suite against one target, with everything that decides its verdicts frozen in `snapshot`.

    The snapshot: {"version": 1, "suite": {slug, title, version}, "policy", "evaluators" (the tree),
    "target": {name, kind, config, model}, "judge": a model's parameters and prices or null,
    "models": {slug: …}, "files": {path: sha256}, "prompts": {kind: version}, "cases_hash"}; that of an
    imported run also has "imported": {file, sha256}, and that of one that judges the outputs of its source
    again "judged_again" (`runs.running.judging_again`), and that of one that only measures the judge of its source
    "measures_judge" (`runs.running.measuring`) as well.
    Counters count executions and change together with the results. `started_at` is when workers last
    started the run, None before the first time; `worked_before_ms` is how long they worked on it before
    it was last resumed. `waits_since` is when it was last queued or lost a worker. `max_minutes` after
    `started_at` it is ended; None for never.
    A run with `is_deleted` is gone for everybody but the worker that deletes its rows, or, without a `removal`,
    not there yet for anybody but the import that writes it. `removal` is the removal that works on it. Who
    removed outputs or details, and when, is kept; "retention" is the rule.
    `stored_bytes` is the size of its rows by part when they were measured. `results_version` is another random value
    after every change of its results, even after a backup was restored.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="runs")
    number = models.PositiveIntegerField()
    status = models.CharField(
        max_length=20, choices=RunStatus.choices, default=RunStatus.QUEUED, db_index=True
    )
    status_reason = models.TextField(blank=True, default="")
    target = models.ForeignKey(
        Target, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    target_name = models.CharField(max_length=120)
    judge_name = models.CharField(max_length=120, blank=True, default="")
    is_scripted = models.BooleanField(default=False)
    suite_version = models.PositiveIntegerField()
    campaign = models.ForeignKey(
        Campaign, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    source_run = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="rescored_runs"
    )
    note = models.CharField(max_length=300, blank=True, default="")
    repetitions = models.PositiveIntegerField(default=1)
    concurrency = models.PositiveIntegerField(default=8)
    budget_usd = money_field(null=True, blank=True)
    max_minutes = models.PositiveIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=20, choices=RunOwner.choices, default=RunOwner.WORKERS)
    owner_id = models.CharField(max_length=MAX_OWNER_ID_LENGTH, blank=True, default="")
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(default=database_now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    worked_before_ms = models.PositiveBigIntegerField(default=0)
    waits_since = models.DateTimeField(default=database_now)
    case_count = models.PositiveIntegerField(default=0)
    execution_count = models.PositiveIntegerField(default=0)
    done_count = models.PositiveIntegerField(default=0)
    pass_count = models.PositiveIntegerField(default=0)
    borderline_count = models.PositiveIntegerField(default=0)
    fail_count = models.PositiveIntegerField(default=0)
    error_count = models.PositiveIntegerField(default=0)
    score_sum = models.FloatField(default=0.0)
    score_count = models.PositiveIntegerField(default=0)
    run_cost_usd = money_field(default=0)
    evaluation_cost_usd = money_field(default=0)
    dearest_usd = money_field(null=True, blank=True)
    is_short_of_money = models.BooleanField(default=False)
    snapshot_hash = models.CharField(max_length=64)
    summary = models.JSONField(null=True, blank=True)
    snapshot = models.JSONField()
    leaf_scores = models.BinaryField(null=True, blank=True)
    results_version = models.UUIDField(default=uuid4, editable=False)
    # The external scores that its results have, as filters and columns name them: source/name.
    external_names = models.JSONField(default=list, blank=True)
    removal = models.ForeignKey(
        "runs.Removal", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    is_deleted = models.BooleanField(default=False)
    outputs_removed_at = models.DateTimeField(null=True, blank=True)
    outputs_removed_by = models.CharField(max_length=150, blank=True, default="")
    details_removed_at = models.DateTimeField(null=True, blank=True)
    details_removed_by = models.CharField(max_length=150, blank=True, default="")
    stored_bytes = models.JSONField(null=True, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)

    objects = RunManager()
    including_deleted = RunQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("suite", "number"), name="run_number_unique"),
        )
        indexes = (
            models.Index(fields=("suite", "status", "-number"), name="run_of_suite"),
            models.Index(
                fields=("status",),
                condition=models.Q(summary__isnull=True),
                name="run_without_summary",
            ),
        )
        permissions = (
            ("start_run", "Can start, stop and retry runs"),
            ("run_scripts", "Can start runs that run scripts and programs"),
        )

    def __str__(self) -> str:
        """Return the number as pages show it."""
        return f"#{self.number}"

    @property
    def is_active(self) -> bool:
        """Tell whether work on the run may continue."""
        return self.status in ACTIVE_RUN_STATUSES

    @property
    def lacks_outputs(self) -> bool:
        """Tell whether its outputs were removed; a retry since then has new ones."""
        return self._was_removed(self.outputs_removed_at)

    @property
    def lacks_details(self) -> bool:
        """Tell whether everything but its figures was removed, and no retry came after."""
        return self._was_removed(self.details_removed_at)

    def _was_removed(self, removed_at: datetime | None) -> bool:
        ended = self.finished_at
        return removed_at is not None and (ended is None or removed_at >= ended)

    @property
    def removal_message(self) -> str:
        """Say what was removed of it, when and by whom; "" if nothing was."""
        if self.lacks_details:
            who = self.details_removed_by
            return removal_message("Everything but figures was", self.details_removed_at, who)
        if self.lacks_outputs:
            who = self.outputs_removed_by
            return removal_message("Outputs were", self.outputs_removed_at, who)
        return ""

    @property
    def imported_from(self) -> str:
        """Return the name of the file that an imported run came from, "" for other runs."""
        origin = self.snapshot.get("imported") or {}
        return str(origin.get("file", ""))

    @property
    def is_judged_again(self) -> bool:
        """Tell whether it judges the outputs of its source again, so that it never asks the target."""
        return JUDGED_AGAIN in self.snapshot

    @property
    def measures_judge(self) -> bool:
        """Tell whether it judges outputs of its source only to measure how far the judge differs from itself."""
        return MEASURES_JUDGE in self.snapshot

    @property
    def pairwise_baseline(self) -> int | None:
        """Return the number of the run with whose outputs its own are compared pair by pair, None without one."""
        baseline = self.snapshot.get(PAIRWISE_BASELINE)
        return baseline["run"] if baseline else None

    def is_compared_with(self, other: Run) -> bool:
        """Tell whether its outputs are compared pair by pair with those of the other run."""
        return self.suite_id == other.suite_id and self.pairwise_baseline == other.number

    @property
    def allows_rescore(self) -> bool:
        """Tell whether results can be chosen to be executed or scored again.

        An imported run has nothing to do it with, and of a measurement only errors can be scored again: choosing
        among judgings would change how far they differ.
        """
        return not self.imported_from and not self.measures_judge

    @property
    def policy(self) -> PolicySpec:
        """Return the policy frozen in the snapshot; raises DomainError when it cannot be read."""
        return read_policy(self.snapshot)

    def readable_policy(self) -> PolicySpec:
        """Return the frozen policy, or the suite's when the snapshot cannot be read."""
        try:
            return self.policy
        except (DomainError, KeyError, TypeError):
            return self.suite.policy

    @property
    def judge_spread(self) -> JudgeSpread | None:
        """Return how far its judge differs from itself by its own judgings; None where its figures do not say."""
        stored = (self.summary or {}).get(JUDGE_SPREAD)
        return None if stored is None else JudgeSpread.from_json(stored)

    @property
    def scale(self) -> int:
        """Return the scale of its scores on pages: 1, 5, 10 or 100 (SCORING §1)."""
        policy = self.snapshot.get("policy") or {}
        return int(policy.get("scale", 1))

    def own_trees(self, root: EvaluatorSpec) -> Sequence[tuple[int, str, EvaluatorSpec]]:
        """Return id, key and tree of each case with evaluators of its own; `root` is the run's tree; one query."""
        ran = self.cases.order_by().values("case_id")
        own = Case.objects.filter(pk__in=ran, evaluators__isnull=False)
        rows = own.values_list("pk", "key", "evaluators", "evaluators_append")
        return [
            (pk, key, case_tree(root, evaluators, append=append))
            for pk, key, evaluators, append in rows
        ]

    def assign_to(self, owner_id: str, *, now: datetime) -> None:
        """Let only the command-line process of that name execute the run, or with "" the workers.

        Saves nothing.
        """
        # The end of the name identifies the process; it begins with the host, which may be long.
        self.owner_id = owner_id[-MAX_OWNER_ID_LENGTH:]
        self.owner = RunOwner.COMMAND_LINE if owner_id else RunOwner.WORKERS
        self.heartbeat_at = now if owner_id else None

    def worked_ms(self, *, now: datetime) -> float | None:
        """Return how long workers have worked on the run in all, in ms; None before the start.

        Never negative, even if start and end were written by clocks that differ.
        """
        if self.started_at is None:
            return self.worked_before_ms or None
        until = now if self.is_active else self.finished_at or now
        since_start = (until - self.started_at).total_seconds() * 1000
        return self.worked_before_ms + max(since_start, 0.0)


class RunEvent(models.Model):
    """An event for readers of the run page: a lowered limit, a lost worker, a retry."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=database_now)
    kind = models.CharField(max_length=40)
    text = models.CharField(max_length=500)

    class Meta:
        """Newest first."""

        ordering = ("-at", "-id")

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class RunWorkerQuerySet(models.QuerySet["RunWorker"]):
    """Workers of runs."""

    def alive(self, *, now: datetime) -> Self:
        """Return those with a recent heartbeat."""
        return self.filter(heartbeat_at__gte=now - LEASE)

    def at_work(self) -> Self:
        """Return those that take new work; the others await replies to calls of before the run was stopped."""
        return self.exclude(wanted=0, share__gt=0)

    def remove(self, *, now: datetime) -> None:
        """Delete the workers; their runs wait from now on if no other worker executes them."""
        run_ids = list(self.values_list("run_id", flat=True))
        if run_ids:
            Run.objects.filter(id__in=run_ids).update(waits_since=now)
            self.delete()


class RunWorker(models.Model):
    """One worker of one run, alive while its heartbeat is recent.

    `share` of the run's concurrency is reserved for it. `wanted` is how much it asked for last, at least its share.
    `reserved_usd` of the run's budget is reserved for what it has in flight or has not booked yet.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="run_workers")
    token = models.CharField(max_length=64, unique=True)
    worker = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    in_flight = models.PositiveIntegerField(default=0)
    share = models.PositiveIntegerField(default=0)
    wanted = models.PositiveIntegerField(default=0)
    reserved_usd = money_field(default=0)

    objects = RunWorkerQuerySet.as_manager()

    def __str__(self) -> str:
        """Return worker and run."""
        return f"{self.worker} on run {self.run_id}"

    @property
    def is_at_work(self) -> bool:
        """Tell whether it takes new work; see `RunWorkerQuerySet.at_work`."""
        return bool(self.wanted or not self.share)


class WorkerProcessQuerySet(models.QuerySet["WorkerProcess"]):
    """Worker processes."""

    def alive(self, *, now: datetime) -> Self:
        """Return those with a recent heartbeat."""
        return self.filter(heartbeat_at__gte=now - LEASE)


class WorkerProcess(models.Model):
    """One worker process, alive while its heartbeat is recent."""

    name = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=40)
    sandbox = models.CharField(max_length=100, blank=True, default="")
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(db_index=True)
    last_error = models.TextField(blank=True, default="")
    last_error_at = models.DateTimeField(null=True, blank=True)

    objects = WorkerProcessQuerySet.as_manager()

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def members_at_limit(members: Iterable[int | None], *, workers: int) -> frozenset[int]:
    """Return the members whose runs have all places that those of one member may have: of each worker all but one.

    `members` has who started each run that a worker is at, None for nobody.
    """
    most = max(workers, 1) * (settings.CELERY_WORKER_CONCURRENCY - 1)
    taken = Counter(members)
    return frozenset(pk for pk, count in taken.items() if pk is not None and count >= most)


RESCORED = "rescored"


Value = TypeVar("Value")


@dataclass(slots=True)
class RecentValues(Generic[Value]):
    """The last few values that this process made from stored rows; a key differs whenever one of these does."""

    size: int
    values: OrderedDict[Hashable, Value] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made now if it is not kept."""
        with self.lock:
            if key in self.values:
                self.values.move_to_end(key)
                return self.values[key]
        value = make()
        with self.lock:
            self.values[key] = value
            while len(self.values) > self.size:
                self.values.popitem(last=False)
        return value

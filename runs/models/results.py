"""Results with their outputs, evaluator scores, attempts and artifacts, and the ledger of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Cast, Coalesce

from evaluators.models import LanguageModel, money_field
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.tree import MAX_PATH_LENGTH
from runs.engine.plan import METRICS_KIND
from runs.models.database import TextBytes, among
from runs.models.runs import Run, removal_message
from runs.models.suites import Case, FileContent
from runs.specs.external_scores import (
    MAX_LABEL_LENGTH,
    MAX_SCORE_NAME_LENGTH,
    MAX_SOURCE_LENGTH,
)

CHUNK = 2000
# An output may have many megabytes.
OUTPUT_BYTES_AT_ONCE = 4 * 1024 * 1024


class ResultStatus(models.TextChoices):
    """How far the work on one result is. Pages show pending as Waiting."""

    PENDING = "pending", "Waiting"
    RUNNING = "running", "Running"
    SCORED = "scored", "Scored"
    ERROR = "error", "Errored"
    SKIPPED = "skipped", "Skipped"
    CANCELLED = "cancelled", "Cancelled"


OPEN_RESULT_STATUSES = (ResultStatus.PENDING, ResultStatus.RUNNING)
# The stage of an error of the target; others are those of evaluators.
TARGET_STAGE = "target"
ENDED_RESULT_STATUSES = (ResultStatus.SCORED, ResultStatus.ERROR)


class VerdictChoice(models.TextChoices):
    """How good one output is; never how far the work is."""

    PASS = "pass", "Pass"
    BORDERLINE = "borderline", "Borderline"
    FAIL = "fail", "Fail"


# Of more expected outcomes only the first so many are marked.
MAX_MARKS = 200
MAX_VERSION_LENGTH = 200


class ResultQuerySet(models.QuerySet["Result"]):
    """Results of runs."""

    def ready(self) -> ResultQuerySet:
        """Return the waiting results that a worker can take now."""
        # SQLite reads an index for `= 0`, but not for the NOT that a plain False becomes.
        return self.filter(status=ResultStatus.PENDING, awaits_output=models.Value(False))


class Result(models.Model):
    """One execution of one case with its verdict. Long texts are in ResultOutput and EvaluatorScore.

    `generation` counts retries by people, `attempt` the tries within one, after a lost lease or a
    stop. A record is accepted only from the holder of the lease. With `keeps_output` the target is not
    asked, and the evaluators at `retry_paths` score again, None all of them; those without a score always
    do. One that `awaits_output` waits for a program to push it, and no worker takes it until then.
    `outcome_marks` has one character per expected outcome in order: 1 met, 0 missed. `is_forced` marks a
    fail that a rule forced regardless of the score (required, a gate, all or nothing); it fails the case
    too (SCORING §8).
    """

    # The indexes below begin with the run, so its own index would only slow down writing.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="results", db_index=False)
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="results")
    # No column: the row of both, for joins.
    run_case = models.ForeignObject(
        "runs.RunCase",
        on_delete=models.DO_NOTHING,
        from_fields=("run", "case"),
        to_fields=("run", "case"),
        related_name="results",
    )
    position = models.PositiveIntegerField(default=0)
    repetition = models.PositiveIntegerField(default=1)
    status = models.CharField(
        max_length=10, choices=ResultStatus.choices, default=ResultStatus.PENDING
    )
    verdict = models.CharField(max_length=10, choices=VerdictChoice.choices, blank=True, default="")
    reviewed_verdict = models.CharField(
        max_length=10, choices=VerdictChoice.choices, blank=True, default=""
    )
    score = models.FloatField(null=True, blank=True)
    metrics_score = models.FloatField(null=True, blank=True)
    decided_by = models.CharField(max_length=300, blank=True, default="")
    is_forced = models.BooleanField(default=False)
    error = models.TextField(blank=True, default="")
    error_stage = models.CharField(max_length=30, blank=True, default="")
    outcome_marks = models.CharField(max_length=MAX_MARKS, blank=True, default="")
    warnings = models.JSONField(default=list, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    generation = models.PositiveIntegerField(default=1)
    awaits_output = models.BooleanField(default=False)
    keeps_output = models.BooleanField(default=False)
    retry_paths = models.JSONField(null=True, blank=True)
    lease_token = models.CharField(max_length=64, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    run_cost_usd = money_field(null=True, blank=True)
    evaluation_cost_usd = money_field(null=True, blank=True)

    objects = ResultQuerySet.as_manager()

    class Meta:
        """In the order of the suite, repetition after repetition."""

        ordering = ("position", "repetition", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("run", "case", "repetition"), name="result_one_an_execution"
            ),
        )
        indexes = (
            models.Index(
                fields=("run", "status", "awaits_output", "position"), name="result_to_claim"
            ),
            models.Index(fields=("run", "position", "repetition"), name="result_in_order"),
            # Only running results have a lease. SQLite cannot use a condition on the status: it plans
            # a query before it knows the value of the status.
            models.Index(
                fields=("lease_until",),
                condition=models.Q(lease_until__isnull=False),
                name="result_lease",
            ),
        )
        permissions = (("review_result", "Can review results"),)

    def __str__(self) -> str:
        """Return the case and the repetition."""
        return f"case {self.case_id}, repetition {self.repetition}"

    def counted_generation(self) -> int:
        """Return the generation of the attempt that counts: the newest, unless a person chose another.

        One query for a result that was retried.
        """
        if self.generation == 1:
            return 1
        chosen = self.attempts.filter(is_counted=True).values_list("generation", flat=True).first()
        return self.generation if chosen is None else chosen


class OutputQuerySet(models.QuerySet["ResultOutput"]):
    """Outputs of results."""

    def batches(self, results: Iterable[int], *columns: str) -> Iterator[list[int]]:
        """Yield the results in parts whose outputs are read together.

        A part has at most CHUNK results, and in these columns not much more than OUTPUT_BYTES_AT_ONCE.
        """
        lengths = [Coalesce(TextBytes(Cast(name, models.TextField())), 0) for name in columns]
        length = sum(lengths, start=models.Value(0))
        ids = list(results)
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            found = self.filter(pk__in=among(chunk)).order_by()
            sizes = dict(found.values_list("pk", length))
            yield from parts_of_size(chunk, sizes, OUTPUT_BYTES_AT_ONCE)


def parts_of_size(ids: Iterable[int], sizes: Mapping[int, int], most: int) -> Iterator[list[int]]:
    """Yield ids in parts, each of which ends once its sizes together reach `most`; one without a size has 0."""
    some, total = list[int](), 0
    for pk in ids:
        some.append(pk)
        total += sizes.get(pk, 0)
        if total >= most:
            yield some
            some, total = [], 0
    if some:
        yield some


class ResultOutput(models.Model):
    """The target's answer in one result, and the whole decision on it.

    Once the answer was removed, only the outcomes and the decision are left.
    """

    result = models.OneToOneField(
        Result, on_delete=models.CASCADE, primary_key=True, related_name="output"
    )
    text = models.TextField(blank=True, default="")
    messages = models.JSONField(default=list, blank=True)
    trace = models.JSONField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    outcomes = models.JSONField(null=True, blank=True)
    decision = models.JSONField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)
    removed_by = models.CharField(max_length=150, blank=True, db_default="")

    objects = OutputQuerySet.as_manager()

    def __str__(self) -> str:
        """Return the beginning of the text."""
        return self.text[:80]

    @property
    def removal_message(self) -> str:
        """Say that the output was removed, when and by whom; "" if it was not."""
        return removal_message("The output was", self.removed_at, self.removed_by)


class PushedOutput(models.Model):
    """What a program pushed for a result, in the form of a recorded line, until the run is over.

    `digest` stays: it tells whether a program pushes the same again or something else.
    """

    result = models.OneToOneField(
        Result, on_delete=models.CASCADE, primary_key=True, related_name="pushed"
    )
    digest = models.CharField(max_length=64)
    output = models.JSONField(null=True, blank=True)

    def __str__(self) -> str:
        """Return the beginning of the digest."""
        return self.digest[:12]


class ComparedOutput(models.Model):
    """What the baseline run answered in the same case, copied for a result that is compared with it.

    `repetition` is that of the baseline's result. Without an answer `problem` says why.
    """

    result = models.OneToOneField(
        Result, on_delete=models.CASCADE, primary_key=True, related_name="compared_with"
    )
    repetition = models.PositiveIntegerField(default=1)
    text = models.TextField(blank=True, default="")
    problem = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        """Return the beginning of the text."""
        return self.text[:80]


class Artifact(models.Model):
    """A file the target left."""

    result = models.ForeignKey(Result, on_delete=models.CASCADE, related_name="artifacts")
    path = models.CharField(max_length=300)
    content = models.ForeignKey(FileContent, on_delete=models.PROTECT, related_name="+")

    class Meta:
        """One file a path."""

        constraints = (
            models.UniqueConstraint(fields=("result", "path"), name="artifact_one_a_path"),
        )

    def __str__(self) -> str:
        """Return the path."""
        return self.path


class Retry(models.Model):
    """One request to retry results of a run.

    With `keeps_output` the outputs stay and only scoring is repeated. `paths` names the evaluators that
    score again, None all of them. `count` is the number of retried results.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="retries")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    asked_by_name = models.CharField(max_length=150, blank=True, default="")
    asked_at = models.DateTimeField()
    keeps_output = models.BooleanField(default=False)
    paths = models.JSONField(null=True, blank=True)
    count = models.PositiveIntegerField(default=0)

    class Meta:
        """Newest first."""

        ordering = ("-id",)

    def __str__(self) -> str:
        """Return what is repeated."""
        if self.paths:
            return f"only {', '.join(self.paths)}, outputs kept"
        return "outputs kept" if self.keeps_output else "the target is asked again"


class Attempt(models.Model):
    """An earlier outcome of a result that was retried.

    `retry` is the request that replaced it, None where a worker was lost. `reason` is the error, else
    what decided. The costs are those of this generation alone, None where they are unknown. `content` is the whole
    outcome, packed, where there was one (`runs.models.attempt_contents`). A person may choose which attempt counts,
    by `counted_by` for a `counted_reason`: the row that `is_counted` is then the result's outcome, and the newest
    attempt has a row, too.
    """

    result = models.ForeignKey(Result, on_delete=models.CASCADE, related_name="attempts")
    retry = models.ForeignKey(Retry, on_delete=models.SET_NULL, null=True, related_name="attempts")
    attempt = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    status = models.CharField(max_length=10)
    verdict = models.CharField(max_length=10, blank=True, default="")
    score = models.FloatField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")
    run_cost_usd = money_field(null=True, blank=True)
    evaluation_cost_usd = money_field(null=True, blank=True)
    ended_at = models.DateTimeField()
    content = models.BinaryField(null=True)
    is_counted = models.BooleanField(db_default=False)
    counted_by = models.CharField(max_length=150, blank=True, db_default="")
    counted_reason = models.TextField(blank=True, db_default="")

    class Meta:
        """Oldest first."""

        ordering = ("generation", "attempt", "id")

    def __str__(self) -> str:
        """Return the attempt as pages name it."""
        return f"attempt {self.attempt} of generation {self.generation}"


class ScoreState(models.TextChoices):
    """Whether an evaluator scored."""

    SCORED = "scored", "Scored"
    UNSCORED = "unscored", "Unscored"
    SKIPPED = "skipped", "Not run"


class ScoreQuerySet(models.QuerySet["EvaluatorScore"]):
    """Scores of evaluators."""

    def judged_metrics(self, run_id: int) -> Iterator[tuple[int, str, Sequence[Mapping[str, Any]]]]:
        """Yield position, path and metrics of every score of a metrics judge in a run; one query."""
        yield from self._parts(run_id, METRICS_KIND, "details__metrics")

    def judged_dimensions(
        self, run_id: int
    ) -> Iterator[tuple[int, str, Sequence[Mapping[str, Any]]]]:
        """Yield position, path and dimensions of every score of a hybrid judge in a run; one query."""
        yield from self._parts(run_id, HYBRID_KIND, "details__dimensions")

    def _parts(
        self, run_id: int, kind: str, column: str
    ) -> Iterator[tuple[int, str, Sequence[Mapping[str, Any]]]]:
        rows = self.filter(result__run_id=run_id, kind=kind, state=ScoreState.SCORED).order_by()
        yield from rows.values_list("position", "path", column).iterator(chunk_size=CHUNK)


class EvaluatorScore(models.Model):
    """The outcome of one evaluator for one result. Leaves are facts; composites can be recomputed."""

    result = models.ForeignKey(
        Result, on_delete=models.CASCADE, related_name="scores", db_index=False
    )
    path = models.CharField(max_length=MAX_PATH_LENGTH)
    position = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=50)
    state = models.CharField(max_length=10, choices=ScoreState.choices, default=ScoreState.SCORED)
    score = models.FloatField(null=True, blank=True)
    raw_score = models.FloatField(null=True, blank=True)
    scale = models.FloatField(default=1.0)
    weight = models.FloatField(default=1.0)
    stage = models.CharField(max_length=30, blank=True, default="")
    input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    cost_usd = money_field(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    reasoning = models.TextField(blank=True, default="")
    findings = models.JSONField(default=list, blank=True)
    failed_required = models.JSONField(default=list, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    details = models.JSONField(default=dict, blank=True)

    objects = ScoreQuerySet.as_manager()

    class Meta:
        db_table = "runs_score"
        """In tree order."""

        ordering = ("position", "id")
        constraints = (models.UniqueConstraint(fields=("result", "path"), name="score_one_a_path"),)

    def __str__(self) -> str:
        """Return the path in the tree."""
        return self.path


class ExternalScore(models.Model):
    """A score that another tool gave a result, named by its source; it never counts in the verdict.

    `value` is on the scale from `low` to `high`, None for a label alone, and `score` is the same on 0 to 1.
    """

    result = models.ForeignKey(
        Result, on_delete=models.CASCADE, related_name="external_scores", db_index=False
    )
    source = models.CharField(max_length=MAX_SOURCE_LENGTH)
    name = models.CharField(max_length=MAX_SCORE_NAME_LENGTH)
    score = models.FloatField(null=True, blank=True)
    value = models.FloatField(null=True, blank=True)
    low = models.FloatField(default=0.0)
    high = models.FloatField(default=1.0)
    label = models.CharField(max_length=MAX_LABEL_LENGTH, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    pushed_at = models.DateTimeField()

    class Meta:
        """By source and name."""

        ordering = ("source", "name")
        constraints = (
            models.UniqueConstraint(
                fields=("result", "source", "name"), name="external_score_one_a_name"
            ),
        )

    def __str__(self) -> str:
        """Return source and name, as filters and columns name it."""
        return f"{self.source}/{self.name}"


class CallPurpose(models.TextChoices):
    """What a call is for: an answer of the target, its evaluation, a measurement of the judge, or a job."""

    TARGET = "target", "Target"
    EVALUATION = "evaluation", "Evaluation"
    MEASUREMENT = "measurement", "Measurement of the judge"
    ALIGNMENT = "alignment", "Alignment of the judge"
    DRAFTING = "drafting", "Drafted cases"


JUDGE_PURPOSES = tuple(purpose for purpose in CallPurpose if purpose != CallPurpose.TARGET)


def cost_purpose(purpose: str) -> CallPurpose:
    """Return whether a call counts as target cost or as judge cost."""
    return CallPurpose.EVALUATION if purpose in JUDGE_PURPOSES else CallPurpose.TARGET


class CallStatus(models.TextChoices):
    """How a call ended."""

    OK = "ok", "Answered"
    UNREADABLE = "unreadable", "Answered, not readable"
    RATE_LIMITED = "rate_limited", "Rate limited"
    TIMEOUT = "timeout", "Timed out"
    REFUSED = "refused", "Refused"
    SERVER_ERROR = "server_error", "Server error"
    CONNECTION = "connection", "No connection"


# Only answers are billed; refused, rate limited and failed calls cost nothing.
ANSWERED = (CallStatus.OK, CallStatus.UNREADABLE)


# No request has this hash, so no call is taken for the answer to an equal one.
REMOVED_HASH = ""


class ModelCall(models.Model):
    """One call of a model: for one result of a run, or for a job.

    The key of a reply is (result or job, generation, purpose, evaluator_path, sample, round, repair); the generation
    of a job's call is its step. After a lost lease, the successful reply with the same key and request hash is
    reused. A failed try that was repeated has its own row. `version` is that of the model as the reply names it
    (`reply_version`). When the texts are removed, the figures stay.
    """

    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, null=True, blank=True, related_name="model_calls"
    )
    result = models.ForeignKey(
        Result,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="model_calls",
        db_index=False,
    )
    job = models.ForeignKey(
        "runs.ModelJob",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="calls",
        db_index=False,
    )
    generation = models.PositiveIntegerField(default=1)
    attempt = models.PositiveIntegerField(default=1)
    purpose = models.CharField(max_length=12, choices=CallPurpose.choices)
    evaluator_path = models.CharField(max_length=MAX_PATH_LENGTH, blank=True, default="")
    sample = models.PositiveIntegerField(default=0)
    round = models.PositiveIntegerField(default=0)
    repair = models.PositiveIntegerField(default=0)
    model = models.ForeignKey(
        LanguageModel, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    model_name = models.CharField(max_length=200)
    status = models.CharField(max_length=20, choices=CallStatus.choices)
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    request_hash = models.CharField(max_length=64)
    input_tokens = models.PositiveIntegerField(null=True, blank=True)
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(null=True, blank=True)
    price_version = models.CharField(max_length=60, blank=True, default="")
    cost_usd = money_field(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    is_cached = models.BooleanField(default=False)
    version = models.CharField(max_length=MAX_VERSION_LENGTH, blank=True, default="")
    created_at = models.DateTimeField()
    request = models.JSONField()
    reply = models.JSONField(null=True, blank=True)

    class Meta:
        """In the order of the calls."""

        ordering = ("created_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=models.Q(run__isnull=False, result__isnull=False, job=None)
                | models.Q(run=None, result=None, job__isnull=False),
                name="call_of_a_result_or_a_job",
            ),
        )
        indexes = (
            models.Index(
                fields=("result", "generation", "purpose", "evaluator_path"),
                name="call_by_ledger_key",
            ),
            models.Index(fields=("created_at",), name="call_by_time"),
            models.Index(
                fields=("job", "generation"),
                condition=models.Q(job__isnull=False),
                name="call_of_job",
            ),
            models.Index(
                fields=("run", "purpose", "status"),
                condition=models.Q(cost_usd=None),
                name="call_without_price",
            ),
        )

    def __str__(self) -> str:
        """Return purpose and path."""
        return f"{self.purpose} {self.evaluator_path}"

    @property
    def is_removed(self) -> bool:
        """Tell whether request and reply were removed."""
        return self.request_hash == REMOVED_HASH

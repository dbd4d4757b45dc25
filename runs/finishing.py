"""End a run: set its status once, compute its figures and fill the review queue.

The first half ends runs and stores their figures. The second half applies the run's review rules:
`review_entries` picks the results that people should review, `enter_queue` adds them to the queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, Q, Sum

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError, Verdict
from evaluators.templatetags.figures import counted
from runs.costs import OUTPUT_COUNTS, count_outputs
from runs.engine.plan import DELIBERATION_KIND, case_tree, read_plan
from runs.engine.review_rules import (
    FinishedExecution,
    MissedRequirement,
    QueueEntry,
    ReviewReason,
    queue_entries,
    sort_reasons,
    verdict_like,
)
from runs.models.database import among, database_now, insert_rows, read_ids
from runs.models.judgings import (
    RUBRIC_KIND,
    read_judge_spread,
    read_pairwise,
    sample_shares,
)
from runs.models.results import (
    CHUNK,
    JUDGE_PURPOSES,
    OPEN_RESULT_STATUSES,
    EvaluatorScore,
    ModelCall,
    Result,
    ResultOutput,
    ResultStatus,
    ScoreState,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.run_cases import CaseStateChoice
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunEvent, RunStatus
from runs.models.stored import pack_leaf_scores, read_executions
from runs.models.suites import Case
from runs.queue import SUMMARISE_RUN, queue
from runs.summary.judge_spread import JUDGE_SPREAD
from runs.summary.metrics import dimension_means, finals_by_key, means_by_key, metric_means
from runs.summary.pairwise import PAIRWISE
from runs.summary.run import summarise

# Where the summary of a run has the versions of its judges.
JUDGE_VERSIONS = "judge_versions"
# Rubric criteria are graded in tenths.
RUBRIC_STEP = 0.1
ITEM_COLUMNS = (
    *("result_id", "run_id", "reasons", "rank", "distance", "sampling_rate", "wanted"),
    "created_at",
)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run: the columns that store it, and its entries for the review queue."""

    columns: Mapping[str, Any]
    entries: Sequence[QueueEntry] | None
    reviewers: int

    @classmethod
    def compute(cls, run: Run, status: RunStatus, *, with_entries: bool = True) -> RunOutcome:
        """Compute the outcome from the results of a run."""
        entries = review_entries(run) if with_entries else None
        return cls(_figures(run, status), entries, run.readable_policy().review_reviewers)

    def write(self, run: Run) -> None:
        """Store it; the caller holds the run."""
        Run.objects.filter(id=run.pk).update(**self.columns)
        if self.entries is not None:
            enter_queue(run, self.entries, wanted=self.reviewers)


def finish_run(
    run_id: int,
    status: RunStatus,
    *,
    reason: str = "",
    finished_at: datetime | None = None,
    outcome: RunOutcome | None = None,
    in_background: bool = True,
) -> bool:
    """End an active run; False when it is over already. Every run ends here.

    Open results are cancelled, finished ones are kept, and later records are refused. The log of the
    run gets the reason. Without an `outcome`, a worker computes the figures after the commit, or this
    process before it returns if not `in_background`.
    """
    with transaction.atomic():
        run = Run.objects.hold(run_id)
        if not run.is_active:
            return False
        run.results.filter(status__in=OPEN_RESULT_STATUSES).update(
            status=ResultStatus.CANCELLED, lease_token="", lease_until=None
        )
        waiting = run.cases.filter(state=CaseStateChoice.WAITING)
        run.cases.refresh(run_id, list(waiting.values_list("case_id", flat=True)))
        Run.objects.filter(id=run_id).update(
            status=status, status_reason=reason, finished_at=finished_at or database_now()
        )
        if reason:
            RunEvent.objects.create(run=run, kind=status.value, text=reason[:500])
        if outcome is not None:
            outcome.write(run)
        elif in_background:
            transaction.on_commit(partial(queue, SUMMARISE_RUN, run_id))
    if outcome is None and not in_background:
        summarise_run(run_id)
    return True


def is_overdue(run: Run, *, now: datetime) -> bool:
    """Tell whether workers have worked on an active run for longer than it may take."""
    if not run.is_active or run.max_minutes is None or run.started_at is None:
        return False
    return now >= run.started_at + timedelta(minutes=run.max_minutes)


def end_overdue_run(run: Run) -> bool:
    """End a run that takes longer than it may; its results are kept, and it can be resumed."""
    took = counted(run.max_minutes or 0, "minute")
    reason = f"It reached its longest time, {took}. Resume it to continue."
    return finish_run(run.pk, RunStatus.STOPPED, reason=reason, in_background=False)


def complete_run(run_id: int) -> bool:
    """End a run without open results and store its figures; False when some are open or it is over.

    A run that ended early before and still has cancelled results is stopped again, not completed: a
    retry in a stopped run does not execute the rest of it.
    """
    run = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES).first()
    if run is None or not _is_done(run_id):
        return False
    version = _version(run)
    left = run.results.filter(status=ResultStatus.CANCELLED).count()
    status, reason = RunStatus.COMPLETED, ""
    if left:
        verb = "results are" if left > 1 else "result is"
        status, reason = (
            RunStatus.STOPPED,
            f"The rerun is done. {left} {verb} still missing. Resume the run to get them.",
        )
    outcome = RunOutcome.compute(run, status)
    with transaction.atomic():
        held = Run.objects.hold(run_id)
        # A retry or a late call made the figures outdated; its own end computes them again.
        if not _is_done(run_id) or _version(held) != version:
            return False
        return finish_run(run_id, status, reason=reason, outcome=outcome)


def summarise_run(run_id: int) -> bool:
    """Store the figures of a run that is over; False when it has them, is active again, or is deleted."""
    ended = Run.objects.exclude(status__in=ACTIVE_RUN_STATUSES)
    run = ended.filter(id=run_id, summary__isnull=True).first()
    if run is None:
        return False
    version = _ended_version(run)
    # A run that has its leaf scores has entered the review queue already.
    is_first = run.leaf_scores is None
    outcome = RunOutcome.compute(run, RunStatus(run.status), with_entries=is_first)
    with transaction.atomic():
        held = Run.objects.hold_if_there(run_id)
        is_waiting = ended.filter(id=run_id, summary__isnull=True).exists()
        # A call, a review or another attempt made the figures outdated in the meantime; they are computed again.
        if held is None or not is_waiting or _ended_version(held) != version:
            return False
        outcome.write(held)
    return True


def renew_figures(run_id: int) -> None:
    """Discard the figures of a run that is over and queue their computation after the commit."""
    Run.objects.filter(pk=run_id).update(summary=None)
    transaction.on_commit(partial(queue, SUMMARISE_RUN, run_id))


def _is_done(run_id: int) -> bool:
    return not Result.objects.filter(run_id=run_id, status__in=OPEN_RESULT_STATUSES).exists()


def _version(run: Run) -> tuple[Any, ...]:
    """Return numbers that grow with every retry, attempt, call and review: equal means unchanged."""
    sums = run.results.order_by().aggregate(Sum("generation"), Sum("attempt"))
    return run.run_cost_usd, run.evaluation_cost_usd, sums, _decisions(run)


def _ended_version(run: Run) -> tuple[Any, ...]:
    """Return values that change with every result, every call and every decision of a reviewer."""
    costs = run.run_cost_usd, run.evaluation_cost_usd
    return run.finished_at, run.results_version, costs, _decisions(run)


def _decisions(run: Run) -> Mapping[str, Any]:
    reviews = Review.objects.filter(result__run=run).order_by()
    return reviews.aggregate(Max("id"), Count("withdrawn_at"), Count("stale_at"))


def _figures(run: Run, status: RunStatus) -> dict[str, Any]:
    """Return the columns of a run that store its figures."""
    # A measurement says something about the judge, nothing about the target: its gates are never judged.
    is_completed = status == RunStatus.COMPLETED and not run.measures_judge
    summary = summarise(
        read_executions(run), run.readable_policy(), is_completed=is_completed, seed=run.pk
    )
    metrics = metric_means(EvaluatorScore.objects.judged_metrics(run.pk))
    dimensions = dimension_means(EvaluatorScore.objects.judged_dimensions(run.pk))
    means = replace(
        summary.means, metrics=means_by_key(metrics), dimensions=finals_by_key(dimensions)
    )
    written = replace(summary, means=means).as_json()
    written["metrics"] = [metric.as_json() for metric in metrics]
    written["dimensions"] = [dimension.as_json() for dimension in dimensions]
    if (spread := read_judge_spread(run)) is not None:
        written[JUDGE_SPREAD] = spread.as_json()
    if pairs := read_pairwise(run):
        written[PAIRWISE] = [figures.as_json() for figures in pairs]
    written[JUDGE_VERSIONS] = count_judge_versions(run)
    written[OUTPUT_COUNTS] = count_outputs([run.pk]).get(run.pk, {})
    return {"summary": written, "leaf_scores": pack_leaf_scores(run.pk)}


def count_judge_versions(run: Run) -> dict[str, dict[str, int]]:
    """Return by name of a judge's model the versions that its replies named, with how many replies did."""
    calls = ModelCall.objects.filter(run=run, purpose__in=JUDGE_PURPOSES).exclude(version="")
    versions: dict[str, dict[str, int]] = {}
    rows = calls.order_by("model_name", "version").values_list("model_name", "version")
    for model, version, count in rows.annotate(count=Count("pk")):
        versions.setdefault(model, {})[version] = count
    return versions


def review_entries(run: Run) -> list[QueueEntry]:
    """Return the entries of a run for the review queue by its frozen rules; none if they are unreadable.

    Results that reviewers have decided are left out. A rescored run has the outputs of its source, so
    it draws no random audit and leaves out what waits in the source's queue. A run that measures the judge asks
    nobody: its source did.
    """
    if run.measures_judge:
        return []
    try:
        plan = read_plan(run.snapshot)
    except (DomainError, KeyError, TypeError):
        return []
    reviewed = run.results.exclude(reviewed_verdict="").order_by()
    left_out = {*reviewed.values_list("id", flat=True), *_waiting_at_source(run)}
    finished = finished_executions(run, plan.policy, plan.root)
    entries = queue_entries(finished, plan.policy, run=run.pk, draws=run.source_run_id is None)
    return [entry for entry in entries if entry.result not in left_out]


def _waiting_at_source(run: Run) -> Iterator[int]:
    """Yield the results that are copies of a result that waits for a person."""
    if run.source_run_id is None:
        return
    same = ReviewItem.objects.waiting().filter(
        run=run.source_run_id,
        result__case=OuterRef("case"),
        result__repetition=OuterRef("repetition"),
    )
    yield from run.results.filter(Exists(same)).order_by().values_list("id", flat=True)


def finished_executions(
    run: Run, policy: PolicySpec, root: EvaluatorSpec
) -> Iterator[FinishedExecution]:
    """Yield the results of a run that have a verdict, with the evidence that the rules need."""
    evidence: dict[int, _Evidence] = defaultdict(_Evidence)
    if policy.review_split_panel or policy.review_samples:
        _read_judges(run, evidence)
    if policy.review_required:
        _read_missed(run, root, evidence)
        _read_criteria(run, evidence)
    if policy.review_verdict_like:
        _read_texts(run, evidence)
    rows = run.results.filter(status=ResultStatus.SCORED).exclude(verdict="").order_by("id")
    columns = ("id", "case_id", "verdict", "score", "is_forced", "outcome_marks")
    for pk, case, verdict, score, is_forced, marks in rows.values_list(*columns).iterator(CHUNK):
        seen = evidence.get(pk, NO_EVIDENCE)
        yield FinishedExecution(
            result=pk,
            case=case,
            verdict=Verdict(verdict),
            score=score,
            is_forced=is_forced,
            outcome_marks=marks,
            samples=tuple(seen.samples),
            votes=tuple(seen.votes),
            missed=tuple(seen.missed),
            says=seen.text,
        )


@dataclass(slots=True)
class _Evidence:
    """What the evaluators of one result reported, as far as review rules use it."""

    samples: list[tuple[float, ...]] = field(default_factory=list)
    votes: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[MissedRequirement] = field(default_factory=list)
    text: str = ""


NO_EVIDENCE = _Evidence()


def _read_judges(run: Run, evidence: Mapping[int, _Evidence]) -> None:
    """Collect the scores of judges with several samples, and the last votes of panels."""
    several = Q(details__has_key="sample_scores") | Q(details__has_key="overall_scores")
    scores = EvaluatorScore.objects.filter(result__run=run, state=ScoreState.SCORED).order_by()
    rows = scores.filter(several | Q(kind=DELIBERATION_KIND)).values_list(
        "result_id",
        "scale",
        "details__sample_scores",
        "details__overall_scores",
        "details__rounds",
    )
    for result, scale, samples, overall, rounds in rows.iterator(CHUNK):
        shares = sample_shares(scale, samples, overall)
        if len(shares) > 1:
            evidence[result].samples.append(tuple(shares))
        if rounds:
            votes = (vote.get("bracket") for vote in rounds[-1].get("votes") or ())
            evidence[result].votes.append(tuple(vote for vote in votes if vote))


def _read_missed(run: Run, root: EvaluatorSpec, evidence: Mapping[int, _Evidence]) -> None:
    """Collect the required evaluators that stayed below their minimum."""
    usual = _required(root)
    own = {
        case.pk: _required(case_tree(root, case.evaluators, append=case.evaluators_append))
        for case in Case.objects.filter(results__run=run, evaluators__isnull=False).distinct()
    }
    paths = {path for required in (usual, *own.values()) for path in required}
    if not paths:
        return
    rows = EvaluatorScore.objects.filter(
        result__run=run, result__is_forced=True, path__in=paths, score__isnull=False
    ).order_by("position")
    for result, case, path, score in rows.values_list(
        "result_id", "result__case_id", "path", "score"
    ).iterator(CHUNK):
        required = own.get(case, usual).get(path)
        if required is None or score is None:
            continue
        reached, minimum = required.counted_score(score), required.required_below
        if minimum is not None and reached < minimum:
            evidence[result].missed.append(MissedRequirement(reached, minimum))


def _read_criteria(run: Run, evidence: Mapping[int, _Evidence]) -> None:
    """Collect the criteria of rubrics that stayed below their own minimum."""
    rows = EvaluatorScore.objects.filter(
        result__run=run, result__is_forced=True, kind=RUBRIC_KIND, state=ScoreState.SCORED
    ).order_by("position")
    for result, criteria in rows.values_list("result_id", "details__criteria").iterator(CHUNK):
        for part in criteria or ():
            if part.get("failed_required") and part.get("min_score") is not None:
                missed = MissedRequirement(
                    float(part["score"]), float(part["min_score"]), RUBRIC_STEP
                )
                evidence[result].missed.append(missed)


def _required(root: EvaluatorSpec) -> dict[str, EvaluatorSpec]:
    """Return the evaluators with a minimum by path."""
    return {path: node for path, node in walk(root) if node.required_below is not None}


def _read_texts(run: Run, evidence: Mapping[int, _Evidence]) -> None:
    """Collect the words of outputs that look like a verdict or address the judge."""
    scored = Result.objects.filter(run=run, status=ResultStatus.SCORED).order_by()
    for some in ResultOutput.objects.batches(read_ids(scored), "text"):
        outputs = ResultOutput.objects.filter(pk__in=among(some)).order_by()
        for result, text in outputs.values_list("pk", "text"):
            if phrase := verdict_like(text):
                evidence[result].text = phrase


def enter_queue(run: Run, entries: Sequence[QueueEntry], *, wanted: int) -> None:
    """Add entries to the review queue; the caller holds the run.

    Repeating it changes nothing. Existing items get the present reasons. Items that no rule picks any
    more leave, unless somebody has touched them.
    """
    items = {item.result_id: item for item in ReviewItem.objects.filter(run=run)}
    now = database_now()
    rows = (
        (
            *(entry.result, run.pk, _reason_names(entry.reasons), entry.reasons[0].rank),
            *(entry.distance, entry.sampling_rate, wanted, now),
        )
        for entry in entries
        if entry.result not in items
    )
    insert_rows(ReviewItem, ITEM_COLUMNS, rows)
    changed = [
        items[entry.result]
        for entry in entries
        if entry.result in items and _renew(items[entry.result], entry)
    ]
    fields = ("reasons", "rank", "distance", "sampling_rate")
    ReviewItem.objects.bulk_update(changed, fields, batch_size=200)
    # Items that a person added, opened or decided stay in any case.
    untouched = (
        ReviewItem.objects.waiting()
        .filter(run=run, added_by=None, assigned_to=None, result__reviews=None)
        .exclude(reserved_until__gt=database_now())
    )
    entered = {entry.result for entry in entries}
    gone = [pk for pk, result in untouched.values_list("id", "result_id") if result not in entered]
    for start in range(0, len(gone), CHUNK):
        ReviewItem.objects.filter(pk__in=gone[start : start + CHUNK]).delete()


def _reason_names(reasons: Sequence[ReviewReason]) -> str:
    return f" {' '.join(reason.value for reason in reasons)} "


def _renew(item: ReviewItem, entry: QueueEntry) -> bool:
    """Give a waiting item its present reasons; False when nothing changes."""
    if item.closed_at is not None:
        return False
    by_hand = (ReviewReason.ASKED_FOR,) if ReviewReason.ASKED_FOR in item.why else ()
    reasons = sort_reasons((*by_hand, *entry.reasons))
    facts = (_reason_names(reasons), reasons[0].rank, entry.distance, entry.sampling_rate)
    if facts == (item.reasons, item.rank, item.distance, item.sampling_rate):
        return False
    item.reasons, item.rank, item.distance, item.sampling_rate = facts
    return True

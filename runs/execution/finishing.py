"""Bring a run to its end once, whoever gets there first: its figures, its gates, and its review items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, Q, Sum

from evaluators.models import ZERO_USD
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError, Verdict
from runs.engine.plan import DELIBERATION_KIND, read_plan, tree_of_case
from runs.engine.review_rules import (
    Entry,
    Finished,
    Missed,
    Reason,
    entries_of,
    in_order,
    verdict_like,
)
from runs.models.bulk import insert_rows
from runs.models.clock import database_now
from runs.models.results import (
    CHUNK,
    OPEN_RESULT_STATUSES,
    EvaluatorScore,
    Result,
    ResultOutput,
    ResultStatus,
    ScoreState,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunEvent, RunStatus
from runs.models.stored import executions_of, pack_leaf_scores
from runs.models.suites import Case
from runs.summary.metrics import dimension_means, finals_by_key, means_by_key, metric_means
from runs.summary.run import summarise

RUBRIC_KIND = "rubric"
GRADE = 0.1
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Required:
    """The least score of an evaluator whose own score forces a fail below it."""

    minimum: float
    is_negated: bool


@dataclass(slots=True)
class _Said:
    """What evaluators said of one result, as far as rules look at it."""

    samples: list[Numbers] = field(default_factory=list)
    votes: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    text: str = ""


def finished_of(run: Run, policy: PolicySpec, root: EvaluatorSpec) -> Iterator[Finished]:
    """Yield the executions of a run that have a verdict; what no rule of the policy asks for is not read."""
    said: dict[int, _Said] = defaultdict(_Said)
    if policy.review_split_panel or policy.review_samples:
        _read_judges(run, said)
    if policy.review_required:
        _read_missed(run, root, said)
        _read_criteria(run, said)
    if policy.review_verdict_like:
        _read_texts(run, said)
    rows = run.results.filter(status=ResultStatus.SCORED).exclude(verdict="").order_by("id")
    columns = ("id", "case_id", "verdict", "score", "is_forced", "outcome_marks")
    for pk, case, verdict, score, is_forced, marks in rows.values_list(*columns).iterator(CHUNK):
        found = said.get(pk) or _Said()
        yield Finished(
            result=pk,
            case=case,
            verdict=Verdict(verdict),
            score=score,
            is_forced=is_forced,
            outcome_marks=marks,
            samples=tuple(found.samples),
            votes=tuple(found.votes),
            missed=tuple(found.missed),
            says=found.text,
        )


def _read_judges(run: Run, said: Mapping[int, _Said]) -> None:
    """Note what judges that were asked several times said, and how the panels voted last."""
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
        scores_of = samples or [score / scale for score in overall or ()]
        if len(scores_of) > 1:
            said[result].samples.append(tuple(scores_of))
        if rounds:
            votes = (vote.get("bracket") for vote in rounds[-1].get("votes") or ())
            said[result].votes.append(tuple(vote for vote in votes if vote))


def _read_missed(run: Run, root: EvaluatorSpec, said: Mapping[int, _Said]) -> None:
    """Note the required evaluators with a minimum that stayed below it."""
    usual = _required(root)
    own = {
        case.pk: _required(tree_of_case(root, case.evaluators, append=case.evaluators_append))
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
        reached = 1 - score if required.is_negated else score
        if reached < required.minimum:
            said[result].missed.append(Missed(reached, required.minimum))


def _read_criteria(run: Run, said: Mapping[int, _Said]) -> None:
    """Note the criteria of rubrics that stayed below their own minimum; their grades are whole tenths."""
    rows = EvaluatorScore.objects.filter(
        result__run=run, result__is_forced=True, kind=RUBRIC_KIND, state=ScoreState.SCORED
    ).order_by("position")
    for result, criteria in rows.values_list("result_id", "details__criteria").iterator(CHUNK):
        for part in criteria or ():
            if part.get("failed_required") and part.get("min_score") is not None:
                missed = Missed(float(part["score"]), float(part["min_score"]), GRADE)
                said[result].missed.append(missed)


def _required(root: EvaluatorSpec) -> dict[str, _Required]:
    """Return by path the evaluators with a minimum; the row of a composite has its score after negation."""
    return {
        path: _Required(node.required_below, node.negate and not node.is_composite)
        for path, node in walk(root)
        if node.required_below is not None
    }


def _read_texts(run: Run, said: Mapping[int, _Said]) -> None:
    scored = Result.objects.filter(run=run, status=ResultStatus.SCORED).order_by()
    outputs = ResultOutput.objects.filter(result__in=scored.values("pk"))
    for result, text in outputs.values_list("pk", "text").iterator(CHUNK):
        if found := verdict_like(text):
            said[result].text = found


COLUMNS = (*("result_id", "reasons", "rank", "distance", "sampling_rate", "wanted", "created_at"),)


def review_entries(run: Run) -> list[Entry]:
    """Return what of a run enters the review queue by the rules frozen in it; nothing where they cannot be read.

    What people have decided already is left out. A run of another's stored scores draws no audit, and leaves
    out what waits in its source's queue: the outputs are the same.
    """
    try:
        plan = read_plan(run.snapshot)
    except (DomainError, KeyError, TypeError):
        return []
    settled = set(
        run.results.exclude(reviewed_verdict="").order_by().values_list("id", flat=True)
    ) | set(_waiting_at_source(run))
    finished = finished_of(run, plan.policy, plan.root)
    entries = entries_of(finished, plan.policy, run=run.pk, draws=run.source_run_id is None)
    return [entry for entry in entries if entry.result not in settled]


def enter(run: Run, entries: Sequence[Entry], *, wanted: int) -> None:
    """Bring entries into the queue; the caller holds the run.

    Doing it again changes nothing: what is there stays, with the reasons of now. What nobody has touched and
    no rule brings in any more leaves.
    """
    there = {item.result_id: item for item in ReviewItem.objects.filter(result__run=run)}
    now = database_now()
    rows = (
        (
            one.result,
            _words(one.reasons),
            one.reasons[0].rank,
            one.distance,
            one.sampling_rate,
            wanted,
            now,
        )
        for one in entries
        if one.result not in there
    )
    insert_rows(ReviewItem, COLUMNS, rows)
    changed = [one for one in entries if one.result in there and _renew(there[one.result], one)]
    fields = ("reasons", "rank", "distance", "sampling_rate")
    ReviewItem.objects.bulk_update([there[one.result] for one in changed], fields, batch_size=200)
    _leave(run, {one.result for one in entries})


def _words(reasons: Sequence[Reason]) -> str:
    return f" {' '.join(reason.value for reason in reasons)} "


def _renew(item: ReviewItem, entry: Entry) -> bool:
    """Give an item that waits the reasons of now; False when nothing of it changes."""
    if item.closed_at is not None:
        return False
    by_hand = (Reason.ASKED_FOR,) if Reason.ASKED_FOR in item.why else ()
    reasons = in_order((*by_hand, *entry.reasons))
    facts = (_words(reasons), reasons[0].rank, entry.distance, entry.sampling_rate)
    if facts == (item.reasons, item.rank, item.distance, item.sampling_rate):
        return False
    item.reasons, item.rank, item.distance, item.sampling_rate = facts
    return True


def _leave(run: Run, entered: set[int]) -> None:
    """Take out what waits though no rule brings it in; what a person added, opened or decided on stays."""
    waiting = ReviewItem.objects.waiting().filter(
        result__run=run, added_by=None, assigned_to=None, result__reviews=None
    )
    untouched = waiting.exclude(reserved_until__gt=database_now())
    gone = [pk for pk, result in untouched.values_list("id", "result_id") if result not in entered]
    for start in range(0, len(gone), CHUNK):
        ReviewItem.objects.filter(pk__in=gone[start : start + CHUNK]).delete()


def _waiting_at_source(run: Run) -> Iterator[int]:
    """Yield the results whose source, of which they are a copy, waits for a person."""
    if run.source_run_id is None:
        return
    same = ReviewItem.objects.waiting().filter(
        result__run=run.source_run_id,
        result__case=OuterRef("case"),
        result__repetition=OuterRef("repetition"),
    )
    yield from run.results.filter(Exists(same)).order_by().values_list("id", flat=True)


def finish_run(run_id: int) -> bool:
    """End a run that has no open results; False when some are open or it is over already.

    It is completed, but stopped again where some were left out when it ended early: a retry in a
    stopped run does not carry out the rest of it.
    """
    run = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES).first()
    if run is None or not _is_done(run_id):
        return False
    mark = _mark(run)
    left = Result.objects.filter(run_id=run_id, status=ResultStatus.CANCELLED).count()
    status = RunStatus.STOPPED if left else RunStatus.COMPLETED
    figures, entries = _figures(run, status), review_entries(run)
    with transaction.atomic():
        held = Run.objects.hold(run_id)
        # A retry, or a call booked late, has made the figures old; whoever ends it makes them anew.
        if not held.is_active or not _is_done(run_id) or _mark(held) != mark:
            return False
        Run.objects.filter(id=run_id).update(
            status=status, status_reason=_left_words(left), finished_at=database_now(), **figures
        )
        enter(held, entries, wanted=_policy(run).review_reviewers)
    return True


def _left_words(left: int) -> str:
    if not left:
        return ""
    return f"What was retried is done; {left} execution{'s are' if left > 1 else ' is'} left"


def end_run(run_id: int, status: RunStatus, reason: str) -> bool:
    """End an active run early with the figures it has so far; False when it is over already."""
    if not Run.objects.end(run_id, status=status, reason=reason, now=database_now()):
        return False
    RunEvent.objects.create(run_id=run_id, kind=status.value, text=reason[:500])
    summarise_ended(run_id)
    return True


def summarise_ended(run_id: int) -> bool:
    """Give a run that ended its figures if it has none; False when it has, or when it is on again."""
    ended = Run.objects.exclude(status__in=ACTIVE_RUN_STATUSES)
    run = ended.filter(id=run_id, summary__isnull=True).first()
    if run is None:
        return False
    mark = _end_mark(run)
    figures = _figures(run, RunStatus(run.status))
    # With the leaf scores of its results an end has been told to the reviewers too.
    entries = review_entries(run) if run.leaf_scores is None else None
    with transaction.atomic():
        # A call or a review that came meanwhile has made the figures old; they are computed anew.
        held = Run.objects.hold(run_id)
        still = ended.filter(id=run_id, summary__isnull=True)
        if _end_mark(held) != mark or not still.update(**figures):
            return False
        if entries is not None:
            enter(held, entries, wanted=_policy(run).review_reviewers)
    return True


def _end_mark(run: Run) -> tuple[Any, ...]:
    """Return what changes with every call and every decision of a reviewer."""
    return run.finished_at, run.run_cost_usd, run.evaluation_cost_usd, _decided(run)


def _decided(run: Run) -> Mapping[str, Any]:
    reviews = Review.objects.filter(result__run=run).order_by()
    return reviews.aggregate(Max("id"), Count("withdrawn_at"), Count("stale_at"))


def is_budget_spent(run_id: int, *, replays: bool) -> bool:
    """Tell whether a run's cap, as it is now, is spent; what a replayed output once cost is not."""
    run = Run.objects.only("budget_usd", "run_cost_usd", "evaluation_cost_usd").get(id=run_id)
    target_usd = ZERO_USD if replays else run.run_cost_usd
    return run.budget_usd is not None and run.evaluation_cost_usd + target_usd >= run.budget_usd


def _is_done(run_id: int) -> bool:
    return not Result.objects.filter(run_id=run_id, status__in=OPEN_RESULT_STATUSES).exists()


def _mark(run: Run) -> tuple[Any, ...]:
    """Return what grows with every retry, attempt, call and review: equal means unchanged."""
    results = Result.objects.filter(run=run).order_by()
    sums = results.aggregate(Sum("generation"), Sum("attempt"))
    return run.run_cost_usd, run.evaluation_cost_usd, sums, _decided(run)


def _figures(run: Run, status: RunStatus) -> dict[str, Any]:
    """Return the columns that hold what came out of a run."""
    summary = summarise(
        executions_of(run),
        _policy(run),
        is_completed=status == RunStatus.COMPLETED,
        seed=run.pk,
    )
    metrics = metric_means(EvaluatorScore.objects.judged_metrics(run.pk))
    dimensions = dimension_means(EvaluatorScore.objects.judged_dimensions(run.pk))
    means = replace(
        summary.means, metrics=means_by_key(metrics), dimensions=finals_by_key(dimensions)
    )
    written = replace(summary, means=means).as_json()
    written["metrics"] = [metric.as_json() for metric in metrics]
    written["dimensions"] = [dimension.as_json() for dimension in dimensions]
    return {"summary": written, "leaf_scores": pack_leaf_scores(run.pk)}


def _policy(run: Run) -> PolicySpec:
    """Return the frozen policy; the suite's where a run ended because its snapshot cannot be read."""
    try:
        return read_plan(run.snapshot).policy
    except (DomainError, KeyError, TypeError):
        return run.suite.policy()

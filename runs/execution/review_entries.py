"""What of a run that ended people are to look at, and how it comes into their queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef, Q

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import DomainError, Verdict
from runs.models import Case, Result, ResultOutput, ResultStatus, ReviewItem, Run, Score, ScoreState
from runs.models.clock import database_now
from runs.models.results import CHUNK
from runs.models.rows import insert_rows
from runs.plan import DELIBERATION_KIND, read_plan, tree_of_case
from runs.reviewing import Entry, Finished, Reason, entries_of, in_order, verdict_like

COLUMNS = (*("result_id", "reasons", "rank", "distance", "sampling_rate", "wanted", "created_at"),)
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
    missed: list[tuple[float, float]] = field(default_factory=list)
    text: str = ""


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
    finished = _finished(run, plan.policy, plan.root)
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


def _finished(run: Run, policy: Policy, root: Node) -> Iterator[Finished]:
    said: dict[int, _Said] = defaultdict(_Said)
    if policy.review_split_panel or policy.review_samples:
        _read_judges(run, said)
    if policy.review_required:
        _read_missed(run, root, said)
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
    scores = Score.objects.filter(result__run=run, state=ScoreState.SCORED).order_by()
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


def _read_missed(run: Run, root: Node, said: Mapping[int, _Said]) -> None:
    """Note the required evaluators with a minimum that stayed below it."""
    usual = _required(root)
    own = {
        case.pk: _required(tree_of_case(root, case.evaluators, append=case.evaluators_append))
        for case in Case.objects.filter(results__run=run, evaluators__isnull=False).distinct()
    }
    paths = {path for required in (usual, *own.values()) for path in required}
    if not paths:
        return
    rows = Score.objects.filter(
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
            said[result].missed.append((reached, required.minimum))


def _required(root: Node) -> dict[str, _Required]:
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

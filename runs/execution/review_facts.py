"""What is stored of the executions of a run, as the rules of the review queue look at it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.db.models import Q

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import Verdict
from runs.models import Case, Result, ResultOutput, ResultStatus, Run, Score, ScoreState
from runs.models.results import CHUNK
from runs.plan import DELIBERATION_KIND, tree_of_case
from runs.reviewing import Finished, Missed, verdict_like

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


def finished_of(run: Run, policy: Policy, root: Node) -> Iterator[Finished]:
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
            said[result].missed.append(Missed(reached, required.minimum))


def _read_criteria(run: Run, said: Mapping[int, _Said]) -> None:
    """Note the criteria of rubrics that stayed below their own minimum; their grades are whole tenths."""
    rows = Score.objects.filter(
        result__run=run, result__is_forced=True, kind=RUBRIC_KIND, state=ScoreState.SCORED
    ).order_by("position")
    for result, criteria in rows.values_list("result_id", "details__criteria").iterator(CHUNK):
        for part in criteria or ():
            if part.get("failed_required") and part.get("min_score") is not None:
                missed = Missed(float(part["score"]), float(part["min_score"]), GRADE)
                said[result].missed.append(missed)


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

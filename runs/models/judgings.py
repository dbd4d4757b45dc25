"""Several judgings of the same outputs in the database: those of a measurement, and the samples of evaluators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Q

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from runs.engine.plan import (
    MEASURES_JUDGE,
    OUTCOMES_PATH,
    asked_judges,
    outcome_samples,
    read_plan,
)
from runs.models.database import among
from runs.models.results import CHUNK, EvaluatorScore, Result, ResultStatus, ScoreState
from runs.models.runs import Run
from runs.summary.judge_spread import (
    MEASUREMENT,
    SAMPLES,
    JudgeSpread,
    Judgings,
    SpreadFigures,
    measure_spread,
)

WHOLE = ""
# An output of the source: its case and its repetition.
Place = tuple[int, int]
HAS_SAMPLES = Q(details__has_key="sample_scores") | Q(details__has_key="overall_scores")


def read_judge_spread(run: Run) -> JudgeSpread | None:
    """Return how far judgings of the same outputs differ in a run; None for one that judged each output once."""
    try:
        root = read_plan(run.snapshot).root
    except (DomainError, KeyError, TypeError):
        return None
    own = {pk: tree for pk, _, tree in run.own_trees(root)}
    if run.measures_judge:
        return _measured(run, root, own)
    return _sampled(run, root, own)


def sample_shares(
    scale: float, samples: Sequence[float] | None, overall: Sequence[float] | None
) -> Sequence[float]:
    """Return the scores, 0 to 1, of an evaluator's samples as its details have them; none without any."""
    return samples or [score / scale for score in overall or ()]


def _measured(run: Run, root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]) -> JudgeSpread:
    """Return the spread of a measurement with the scores that stood in its source, unless they were replaced."""
    facts = run.snapshot[MEASURES_JUDGE]
    times = facts["times"]
    columns = ("pk", "case_id", "repetition", "score", "verdict")
    scored = Result.objects.filter(status=ResultStatus.SCORED, score__isnull=False).exclude(
        verdict=""
    )
    places: dict[int, Place] = {}
    whole: dict[Place, list[tuple[float, str]]] = defaultdict(list)
    for pk, case, repetition, score, verdict in scored.filter(run=run).values_list(*columns):
        place = places[pk] = (case, (repetition - 1) // times)
        whole[place].append((score, verdict))
    stood = scored.filter(run=run.source_run_id or 0, finished_at__lte=run.created_at)
    cases = {case for case, _ in whole}
    for pk, case, repetition, score, verdict in stood.filter(case__in=cases).values_list(*columns):
        place = (case, repetition - 1)
        if place in whole:
            places[pk] = place
            whole[place].append((score, verdict))
    figures = _figures(run, root, own, _asked_scores(places, root, own))
    return JudgeSpread(
        MEASUREMENT,
        drawn=facts["results"],
        eligible=facts["of"],
        times=times,
        whole=measure_spread(
            WHOLE,
            (
                Judgings(str(case), *zip(*pairs, strict=True))
                for (case, _), pairs in sorted(whole.items())
            ),
            seed=run.pk,
        ),
        evaluators=figures,
    )


def _sampled(run: Run, root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]) -> JudgeSpread | None:
    """Return the spread of the samples of each evaluator; None where every evaluator takes one."""
    if max(map(outcome_samples, (root, *own.values()))) < 2:
        return None
    rows = EvaluatorScore.objects.filter(HAS_SAMPLES, result__run=run, state=ScoreState.SCORED)
    columns = (
        *("result__case_id", "result__repetition", "position", "path", "scale"),
        *("details__sample_scores", "details__overall_scores"),
    )
    figures = _figures(
        run,
        root,
        own,
        (
            (position, path, (case, repetition), score)
            for case, repetition, position, path, scale, *samples in rows.order_by()
            .values_list(*columns)
            .iterator(CHUNK)
            for score in sample_shares(scale, *samples)
        ),
    )
    if not figures:
        return None
    return JudgeSpread(SAMPLES, run.execution_count, run.execution_count, evaluators=figures)


def _asked_scores(
    places: Mapping[int, Place], root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]
) -> Iterator[tuple[int, str, Place, float]]:
    """Yield the scores of evaluators that ask a judge, with their position, path and output."""
    kinds = all_kinds()
    asked = {
        path
        for tree in (root, *own.values())
        for path, node in walk(tree)
        if asked_judges(node, kinds)
    }
    rows = EvaluatorScore.objects.filter(
        result__in=among(places), path__in=[*asked, OUTCOMES_PATH], state=ScoreState.SCORED
    )
    for pk, position, path, score in rows.order_by().values_list(
        "result_id", "position", "path", "score"
    ):
        if score is not None:
            yield position, path, places[pk], score


def _figures(
    run: Run,
    root: EvaluatorSpec,
    own: Mapping[int, EvaluatorSpec],
    scores: Iterator[tuple[int, str, Place, float]],
) -> tuple[SpreadFigures, ...]:
    """Return the figures of each evaluator in tree order; its verdicts are those of its counted scores."""
    policy = run.readable_policy()
    nodes: dict[Any, Mapping[str, EvaluatorSpec]] = {None: dict(walk(root))}
    nodes |= {pk: dict(walk(tree)) for pk, tree in own.items()}
    positions: dict[str, int] = {}
    by_path: dict[str, dict[Place, list[float]]] = defaultdict(lambda: defaultdict(list))
    for position, path, place, score in scores:
        positions[path] = min(position, positions.get(path, position))
        node = nodes[place[0] if place[0] in nodes else None].get(path)
        by_path[path][place].append(score if node is None else node.counted_score(score))
    found = (
        measure_spread(
            path,
            (
                Judgings(str(case), given, [str(policy.verdict_for(score)) for score in given])
                for (case, _), given in sorted(by_path[path].items())
            ),
            seed=run.pk,
        )
        for path in sorted(by_path, key=lambda path: (positions[path], path))
    )
    return tuple(figures for figures in found if figures is not None)

"""Several judgings of the same outputs: by other runs, by a measurement, by samples, and in both orders of a pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db.models import Q

from evaluators.kinds import all_kinds, get_kind, read_config
from evaluators.scoring.samples import MEDIAN, combine_samples
from evaluators.scoring.score_tree import Rules, rules_for
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError, Outcome, Score
from runs.engine.plan import (
    BASELINE,
    JUDGED_AGAIN,
    MEASURES_JUDGE,
    OUTCOMES_PATH,
    PAIRWISE_KIND,
    asked_judges,
    outcome_samples,
    read_plan,
)
from runs.models.database import among
from runs.models.results import CHUNK, EvaluatorScore, Result, ResultStatus, ScoreState
from runs.models.runs import HEAVY_RUN_COLUMNS, Run
from runs.models.stored import read_outcome
from runs.models.suites import HEAVY_CASE_COLUMNS, Suite
from runs.summary.judge_spread import (
    DRAWINGS,
    MEASUREMENT,
    SAMPLES,
    JudgeSpread,
    Judgings,
    Opinion,
    Picks,
    SpreadFigures,
    draw_again,
    measure_drawings,
    measure_spread,
)
from runs.summary.pairwise import OutputPair, PairwiseFigures, measure_pairs

WHOLE = ""
RUBRIC_KIND = "rubric"
# Where the details of a score have what each sample said, for kinds that can score again.
SAMPLES_IN = ("samples", "iterations")
# Their rows are read whole.
RESULTS_AT_ONCE = 200
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


def read_pairwise(run: Run) -> list[PairwiseFigures]:
    """Return what the evaluators found that compare the outputs of a run with its baseline's, in tree order.

    No query for a run without a baseline.
    """
    if BASELINE not in run.snapshot:
        return []
    rows = EvaluatorScore.objects.filter(result__run=run, kind=PAIRWISE_KIND)
    found: dict[str, list[OutputPair]] = defaultdict(list)
    for path, case, verdict, orders in (
        rows.exclude(state=ScoreState.SKIPPED)
        .order_by("position", "result__position", "result__repetition")
        .values_list("path", "result__case_id", "details__verdict", "details__orders")
        .iterator(CHUNK)
    ):
        better = tuple(order["better"] for order in orders or ())
        found[path].append(OutputPair(str(case), verdict or "", better))
    return [measure_pairs(path, pairs, seed=run.pk) for path, pairs in found.items()]


def sample_shares(
    scale: float, samples: Sequence[float] | None, overall: Sequence[float] | None
) -> Sequence[float]:
    """Return the scores, 0 to 1, of an evaluator's samples as its details have them; none without any."""
    return samples or [score / scale for score in overall or ()]


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """The outputs that a measurement judged again.

    `again` has the place of each of its results by id, `stood` that of each result of the source whose score counts
    as a judging too: it was not replaced since. `judgings` are scores and verdicts.
    """

    again: Mapping[int, Place]
    stood: Mapping[int, Place]
    judgings: Mapping[Place, Sequence[tuple[float, str]]]

    def of_place(self, place: Place) -> Judgings:
        """Return the judgings of one output."""
        scores, verdicts = zip(*self.judgings[place], strict=True)
        return Judgings(str(place[0]), scores, verdicts)


def read_judged_again(run: Run) -> JudgedAgain:
    """Return what a measurement judged again; two queries."""
    times = run.snapshot[MEASURES_JUDGE]["times"]
    columns = ("pk", "case_id", "repetition", "score", "verdict")
    scored = Result.objects.filter(status=ResultStatus.SCORED, score__isnull=False).exclude(
        verdict=""
    )
    again: dict[int, Place] = {}
    stood: dict[int, Place] = {}
    judgings: dict[Place, list[tuple[float, str]]] = defaultdict(list)
    for pk, case, repetition, score, verdict in scored.filter(run=run).values_list(*columns):
        place = again[pk] = (case, (repetition - 1) // times)
        judgings[place].append((score, verdict))
    source = scored.filter(run=run.source_run_id or 0, finished_at__lte=run.created_at)
    cases = {case for case, _ in judgings}
    for pk, case, repetition, score, verdict in source.filter(case__in=cases).values_list(*columns):
        place = (case, repetition - 1)
        if place in judgings:
            stood[pk] = place
            judgings[place].append((score, verdict))
    return JudgedAgain(again, stood, judgings)


def _measured(run: Run, root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]) -> JudgeSpread:
    """Return the spread of a measurement with the scores that stood in its source."""
    facts = run.snapshot[MEASURES_JUDGE]
    found = read_judged_again(run)
    places = {**found.again, **found.stood}
    return JudgeSpread(
        MEASUREMENT,
        drawn=facts["results"],
        eligible=facts["of"],
        times=facts["times"],
        whole=measure_spread(WHOLE, map(found.of_place, sorted(found.judgings)), seed=run.pk),
        evaluators=_figures(run, root, own, _asked_scores(places, root, own)),
    )


def _sampled(run: Run, root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]) -> JudgeSpread | None:
    """Return the spread of the samples of each evaluator; None where every evaluator takes one."""
    if max(map(outcome_samples, (root, *own.values()))) < 2:
        return None
    rows = EvaluatorScore.objects.filter(HAS_SAMPLES, result__run=run, state=ScoreState.SCORED)
    columns = (
        *("result_id", "result__case_id", "result__repetition", "position", "path", "kind"),
        *("scale", "details__sample_scores", "details__overall_scores"),
    )
    # By result the number of samples of each evaluator, and the results whose samples differ.
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    varied: set[int] = set()
    scores = []
    found = rows.order_by().values_list(*columns).iterator(CHUNK)
    for pk, case, repetition, position, path, kind, scale, *samples in found:
        given = sample_shares(scale, *samples)
        scores += [(position, path, (case, repetition), score) for score in given]
        if path != OUTCOMES_PATH and len(given) > 1:
            counts[pk][path] = len(given)
            # Criteria can differ between equal scores.
            if kind == RUBRIC_KIND or min(given) != max(given):
                varied.add(pk)
    figures = _figures(run, root, own, iter(scores))
    if not figures:
        return None
    return JudgeSpread(
        SAMPLES,
        run.execution_count,
        run.execution_count,
        whole=_drawn_again(run, root, own, counts, varied),
        evaluators=figures,
    )


def _drawn_again(
    run: Run,
    root: EvaluatorSpec,
    own: Mapping[int, EvaluatorSpec],
    counts: Mapping[int, Mapping[str, int]],
    varied: Set[int],
) -> SpreadFigures | None:
    """Return the spread of whole results by drawing their samples again.

    None where expected outcomes decide: their samples are not kept by outcome.
    """
    policy = run.readable_policy()
    if policy.outcomes_decide:
        return None
    scored = run.results.filter(
        pk__in=among(counts), status=ResultStatus.SCORED, score__isnull=False
    ).exclude(verdict="")
    rows: Any = scored.order_by("position", "repetition", "id")
    stood = {pk: facts for pk, *facts in rows.values_list("pk", "case_id", "score", "verdict")}
    judgings = {}
    for pk, (case, score, verdict) in stood.items():
        if pk not in varied:
            judgings[pk] = Judgings(str(case), [score] * DRAWINGS, [verdict] * DRAWINGS)
    drawn = [pk for pk in stood if pk in varied]
    for start in range(0, len(drawn), RESULTS_AT_ONCE):
        some = drawn[start : start + RESULTS_AT_ONCE]
        by_result: dict[int, dict[str, Outcome]] = defaultdict(dict)
        for row in EvaluatorScore.objects.filter(result__in=among(some)).order_by():
            by_result[row.result_id][row.path] = read_outcome(row, None)
        for pk in some:
            case = stood[pk][0]
            tree = own.get(case, root)
            judge = partial(_judge, rules_for(tree, policy), dict(walk(tree)), by_result[pk])
            try:
                found = draw_again(str(case), counts[pk], judge, seed=pk)
            except DomainError:
                # Another tool's samples, or ones that these settings cannot combine.
                continue
            if found is not None:
                judgings[pk] = found
    samples = sum(sum(counts[pk].values()) for pk in judgings)
    in_order = (judgings[pk] for pk in stood if pk in judgings)
    return measure_drawings(in_order, samples=samples, seed=run.pk)


def _judge(
    rules: Rules,
    nodes: Mapping[str, EvaluatorSpec],
    outcomes: Mapping[str, Outcome],
    picks: Picks,
) -> Opinion:
    """Return score and verdict of a result with other samples of its evaluators."""
    picked = {path: _pick(nodes[path], outcomes[path], some) for path, some in picks.items()}
    decided = rules.decide_verdict({**outcomes, **picked})
    return decided.score, decided.verdict and decided.verdict.value


def _pick(node: EvaluatorSpec, outcome: Outcome, some: Sequence[int]) -> Outcome:
    """Return the score of an evaluator from some of its samples, combined as its kind combines them."""
    if not isinstance(outcome, Score):
        return outcome
    details, kind = outcome.details, get_kind(node.kind)
    parts = {
        name: [details[name][place] for place in some] for name in SAMPLES_IN if details.get(name)
    }
    if kind.rescore is not None and parts:
        return kind.rescore(read_config(node.kind, node.config), {**details, **parts})
    given = sample_shares(
        outcome.scale, details.get("sample_scores"), details.get("overall_scores")
    )
    way = details.get("samples_by", MEDIAN)
    return replace(outcome, score=combine_samples([given[place] for place in some], way).score)


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


# A run that judged stored outputs again, and not only to measure the judge.
IS_JUDGING = Q(snapshot__has_key=JUDGED_AGAIN) & ~Q(snapshot__has_key=MEASURES_JUDGE)
OutputPlace = tuple[str, int]
# As many judgings of the same outputs are shown.
MAX_JUDGINGS = 6


def first_and_newest(judgings: Sequence[Run]) -> list[Run]:
    """Return the judgings that are shown: the first, which the others are compared with, and the newest."""
    first, *others = judgings
    return [first, *others[-(MAX_JUDGINGS - 1) :]]


def judged_sources(suite: Suite) -> dict[int, list[Run]]:
    """Return the runs that judged the same outputs by the number of the run that has them first, the newest last."""
    light = Run.objects.filter(suite=suite).defer(*HEAVY_RUN_COLUMNS)
    again = light.filter(IS_JUDGING).exclude(source_run=None)
    by_id = {run.pk: run for run in again.order_by("number")}
    others = light.in_bulk({run.source_run_id for run in by_id.values()} - set(by_id))
    families: dict[int, list[Run]] = defaultdict(list)
    for run in by_id.values():
        first: Run | None = run
        while first is not None and first.pk in by_id:
            source = first.source_run_id or 0
            first = by_id.get(source) or others.get(source)
        if first is not None:
            family = families[first.number]
            family += [run] if family else [first, run]
    return dict(families)


def same_outputs(source: Run, runs: Sequence[Run]) -> Iterator[Result]:
    """Yield the results of the runs, without those that judged an output which the source replaced since.

    The source must be among the runs, for its results say when.
    """
    created = {run.pk: run.created_at for run in runs}
    rows = Result.objects.filter(run__in=runs).select_related("case", "review_item", "run")
    heavy = [f"run__{column}" for column in HEAVY_RUN_COLUMNS]
    heavy += [f"case__{column}" for column in HEAVY_CASE_COLUMNS]
    every = list(rows.defer(*heavy).order_by("id"))
    answered = {
        (row.case.key, row.repetition): row.finished_at
        for row in every
        if row.run_id == source.pk and not row.keeps_output
    }
    for row in every:
        at = answered.get((row.case.key, row.repetition))
        if row.run_id == source.pk or at is None or at <= created[row.run_id]:
            yield row


def people_verdicts(rows: Sequence[Result], source: Run) -> Mapping[OutputPlace, str]:
    """Return people's verdict by case and repetition: that on the result of the source, else the latest one."""
    decided = [
        row
        for row in rows
        if row.reviewed_verdict and (item := getattr(row, "review_item", None)) and item.closed_at
    ]
    decided.sort(key=lambda row: (row.run_id == source.pk, row.pk))
    return {(row.case.key, row.repetition): row.reviewed_verdict for row in decided}

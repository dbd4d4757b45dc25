"""What evaluators measured of a run, case by case: metrics, dimensions and top-level evaluators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.tree import ROOT_PATH, Node, walk
from runs.comparison import DIMENSION, EVALUATOR, FEWEST_CASES, METRIC, Figure, Measured
from runs.models import Run, Score, ScoreState
from runs.models.leaf_scores import unpack_leaf_scores
from runs.plan import METRICS_KIND, OUTCOMES_PATH, read_plan
from runs.reports.comparison_sides import Side
from runs.reports.turned_scores import turned_paths, turned_paths_of_cases

CHUNK = 5000
# By the kind of an evaluator: what its parts are, where they stand, and which number of theirs counts.
PARTS = {
    METRICS_KIND: (METRIC, "details__metrics", "score"),
    HYBRID_KIND: (DIMENSION, "details__dimensions", "final"),
}

# What stands beside the tree has no name that anybody gave it.
NAMES = {OUTCOMES_PATH: "Expected outcomes"}


def measured_of(side: Side) -> Mapping[Figure, Measured]:
    """Return what the evaluators of a run gave each case, in tree order; four queries at most.

    An evaluator that could not score gives nothing, never 0; one that is negated gives what counts, more
    being better. One that only cases of their own have
    follows those of the tree, and is left out where fewer than ten cases have it.
    """
    root = read_plan(side.run.snapshot).root
    turned, of_cases = turned_paths(root), turned_paths_of_cases(side.run, root)
    found: dict[Figure, Measured] = {}
    for kind in _kinds(side.run, root):
        for result, path, parts in _parts(side.run, kind):
            _take(found, side.keys.get(result, ""), (kind, path), parts)
    for result, path, score in _top_level(side.run):
        if key := side.keys.get(result):
            score = 1.0 - score if path in of_cases.get(key, turned) else score
            measured = found.setdefault(Figure(EVALUATOR, path), Measured(NAMES.get(path, path)))
            measured.scores.setdefault(key, []).append(score)
    places = {path: place for place, (path, _) in enumerate(walk(root))}
    known = [
        figure
        for figure, measured in found.items()
        if figure.path in places or len(measured.scores) >= FEWEST_CASES
    ]
    known.sort(key=lambda one: (one.kind == EVALUATOR, places.get(one.path, len(places))))
    return {figure: found[figure] for figure in known}


def _kinds(run: Run, root: Node) -> list[str]:
    """Return which kinds of judges with parts there are to ask for; a summary tells of those of cases too."""
    told = run.summary or {}
    kinds = {node.kind for _, node in walk(root)}
    return [kind for kind, (part, *_) in PARTS.items() if kind in kinds or told.get(f"{part}s")]


def _take(
    found: dict[Figure, Measured], case: str, judge: tuple[str, str], parts: list[dict[str, Any]]
) -> None:
    """Add the parts that one judge gave of one execution; of a case that is not compared nothing."""
    kind, path = judge
    name, _, number = PARTS[kind]
    for part in parts or () if case else ():
        if part.get(number) is not None:
            figure = Figure(name, path, part["key"])
            measured = found.setdefault(figure, Measured(part["name"]))
            measured.scores.setdefault(case, []).append(part[number])


def _parts(run: Run, kind: str) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    rows = Score.objects.filter(result__run=run, kind=kind, state=ScoreState.SCORED).order_by()
    yield from rows.values_list("result_id", "path", PARTS[kind][1]).iterator(chunk_size=CHUNK)


def _top_level(run: Run) -> Iterator[tuple[int, str, float]]:
    """Yield what the evaluators right under the root gave, from one piece where an ended run has it."""
    packed = unpack_leaf_scores(bytes(run.leaf_scores)) if run.leaf_scores else None
    if packed is None:
        rows = Score.objects.filter(result__run=run, state=ScoreState.SCORED)
        rows = rows.exclude(path=ROOT_PATH).exclude(path__contains="/").order_by()
        columns = rows.values_list("result_id", "path", "score")
        for result, path, score in columns.iterator(chunk_size=CHUNK):
            if score is not None:
                yield result, path, score
        return
    places = [(path, at) for path, at in packed.columns.items() if path and "/" not in path]
    for result, scores in packed.scores.items():
        for path, place in places:
            said = scores[place][0] if isinstance(scores[place], list) else scores[place]
            if said is not None and said is not False:
                yield result, path, said

"""What evaluators measured of a run, case by case: metrics, dimensions and top-level evaluators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.tree import walk
from runs.comparison import DIMENSION, EVALUATOR, METRIC, Figure, Measured
from runs.models import Run, Score, ScoreState
from runs.models.leaf_scores import unpack_leaf_scores
from runs.plan import METRICS_KIND, read_plan
from runs.reports.comparison_sides import Side

CHUNK = 5000
# By the kind of an evaluator: what its parts are, where they stand, and which number of theirs counts.
PARTS = {
    METRICS_KIND: (METRIC, "details__metrics", "score"),
    HYBRID_KIND: (DIMENSION, "details__dimensions", "final"),
}


def measured_of(side: Side) -> Mapping[Figure, Measured]:
    """Return what the evaluators of a run gave each case, in tree order; three queries at most.

    An evaluator that could not score gives nothing, never 0; so does one that a case alone has.
    """
    root = read_plan(side.run.snapshot).root
    top = [child.name for child in root.children]
    found: dict[Figure, Measured] = {
        Figure(EVALUATOR, path): Measured(path) for path in top if side.keys
    }
    for kind in {node.kind for _, node in walk(root)} & {*PARTS}:
        for result, path, parts in _parts(side.run, kind):
            _take(found, side.keys.get(result, ""), (kind, path), parts)
    for result, path, score in _top_level(side.run, top):
        if key := side.keys.get(result):
            found[Figure(EVALUATOR, path)].scores.setdefault(key, []).append(score)
    places = {path: place for place, (path, _) in enumerate(walk(root))}
    known = (figure for figure in found if found[figure].scores and figure.path in places)
    order = sorted(known, key=lambda figure: (figure.kind == EVALUATOR, places[figure.path]))
    return {figure: found[figure] for figure in order}


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


def _top_level(run: Run, paths: list[str]) -> Iterator[tuple[int, str, float]]:
    """Yield what the evaluators right under the root gave, from one piece where an ended run has it."""
    packed = unpack_leaf_scores(bytes(run.leaf_scores)) if paths and run.leaf_scores else None
    if packed is None:
        rows = Score.objects.filter(result__run=run, path__in=paths, state=ScoreState.SCORED)
        columns = ("result_id", "path", "score")
        yield from rows.order_by().values_list(*columns).iterator(chunk_size=CHUNK)
        return
    places = [(path, packed.columns[path]) for path in paths if path in packed.columns]
    for result, scores in packed.scores.items():
        for path, place in places:
            said = scores[place][0] if isinstance(scores[place], list) else scores[place]
            if said is not None and said is not False:
                yield result, path, said

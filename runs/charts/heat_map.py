"""The heat map of a run: its cases by its evaluators, the worst case first, a page of cases at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Avg, Count
from django.urls import reverse

from evaluators.scoring.tree import EvaluatorSpec, negated_paths, walk
from evaluators.templatetags.figures import score as score_text
from evaluators.templatetags.figures import strip
from runs import lists
from runs.charts.pictures import listed
from runs.engine.plan import read_plan
from runs.filters.fields import BUILT_IN
from runs.filters.language import Words
from runs.formats.tables import csv_text
from runs.lists import ListQuery
from runs.models.results import EvaluatorScore, ScoreState
from runs.models.run_cases import sorted_cases
from runs.models.runs import Run
from runs.results.result_state import result_url

ROWS = 100
LEVELS = 10
# Below this the column of an evaluator lists its cases.
LOW = "0.5"
FIELDS = frozenset(field.name for field in BUILT_IN)


@dataclass(frozen=True, slots=True)
class HeatMapQuery(ListQuery):
    """Which page of cases is shown."""

    page: int = lists.page_number()


@dataclass(frozen=True, slots=True)
class HeatColumn:
    """An evaluator: its path, its name, and the address of the cases that it scores low."""

    path: str
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The mean score of an evaluator for a case; `level` is 0 for the lowest to 9, None without a score.

    `state` is scored, unscored or skipped, "" where the case does not have the evaluator.
    """

    score: float | None
    text: str
    level: int | None
    state: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A case with a cell for each column; `url` is its result."""

    key: str
    title: str
    state: str
    score: float | None
    text: str
    url: str
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A page of the heat map; `next_page` is 0 on the last one."""

    columns: Sequence[HeatColumn]
    rows: Sequence[HeatRow]
    cases: int
    first: int
    next_page: int
    repetitions: int

    @property
    def last(self) -> int:
        """Return the number of the last case that is shown."""
        return self.first + len(self.rows) - 1


def heat_map(run: Run, *, page: int = 1, rows: int | None = ROWS) -> HeatMap:
    """Return a page of cases, the worst first, or with no number of rows all of them; four queries."""
    root = read_plan(run.snapshot).root
    own = {pk: tree for pk, _, tree in run.own_trees(root)}
    columns = _columns(run, [root, *own.values()])
    cases = sorted_cases(run.cases.live(run), "attention").order_by("sort_value", "position")
    names = ("case_id", "case__key", "case__title", "live_state", "score")
    start = (page - 1) * rows if rows else 0
    end = start + rows if rows else run.case_count
    found = [*cases.values_list(*names)[start:end]]
    cells = _cells(run, [pk for pk, *_ in found], root, own)
    return HeatMap(
        columns=columns,
        rows=[
            HeatRow(
                key=key,
                title=title,
                state=state,
                score=score,
                text=score_text(score, run.scale),
                url=result_url(run, key, 1),
                cells=[cells[pk].get(column.path, NO_CELL) for column in columns],
            )
            for pk, key, title, state, score in found
        ],
        cases=run.case_count,
        first=start + 1,
        next_page=page + 1 if end < run.case_count else 0,
        repetitions=run.repetitions,
    )


NO_CELL = HeatCell(None, "", None, "")
# What stands in a cell without a score.
TEXTS = {ScoreState.UNSCORED: "!", ScoreState.SKIPPED: "–"}


def _columns(run: Run, trees: Iterable[EvaluatorSpec]) -> list[HeatColumn]:
    """Return the evaluators at the leaves of the trees, those of the suite first."""
    paths = {
        path: node for tree in trees for path, node in walk(tree) if path and not node.children
    }
    address = listed(run)
    return [
        HeatColumn(
            path,
            node.name,
            address(f"{Words(f'evaluator.{path}' if path in FIELDS else path)} < {LOW}"),
        )
        for path, node in paths.items()
    ]


def _cells(
    run: Run, ids: Sequence[int], root: EvaluatorSpec, own: Mapping[int, EvaluatorSpec]
) -> Mapping[int, Mapping[str, HeatCell]]:
    """Return the cells of cases by id and path; one query."""
    rows = EvaluatorScore.objects.filter(result__run=run, result__case__in=ids).order_by()
    groups = rows.values_list("result__case", "path", "state").annotate(
        mean=Avg("score"), count=Count("id")
    )
    turned = negated_paths(root)
    turned_by_case = {pk: negated_paths(tree) for pk, tree in own.items()}
    cells: dict[int, dict[str, HeatCell]] = defaultdict(dict)
    for pk, path, state, mean, _ in groups:
        known = cells[pk].get(path)
        if mean is not None:
            score = 1 - mean if path in turned_by_case.get(pk, turned) else mean
            level = min(int(score * LEVELS), LEVELS - 1)
            cells[pk][path] = HeatCell(score, strip(score, run.scale), level, state)
        # Where some repetitions have a score, it counts; a failure shows more than a skip.
        elif known is None or (known.score is None and state == ScoreState.UNSCORED):
            cells[pk][path] = HeatCell(None, TEXTS.get(state, ""), None, state)
    return cells


def heat_map_csv(run: Run) -> str:
    """Return every case with the score of each evaluator, the worst case first."""
    whole = heat_map(run, rows=None)
    names = ["case", "verdict", "score", *(column.path for column in whole.columns)]
    lines = (
        [row.key, row.state, row.score, *(cell.score for cell in row.cells)] for row in whole.rows
    )
    return csv_text(names, lines)


def next_url(run: Run, page: int) -> str:
    """Return the address of another page."""
    address = reverse("runs:run-heat-map", args=[run.suite.slug, run.number])
    return HeatMapQuery().at(address, page=page)

"""Heat maps: the cases of one run, or of two side by side, by evaluators, the worst first, a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from django.db.models import Avg, Count

from evaluators.scoring.tree import EvaluatorSpec, negated_paths, walk
from evaluators.templatetags.figures import score as score_text
from evaluators.templatetags.figures import strip
from runs import lists
from runs.charts.pictures import case_links, compared_case, comparison_case_links
from runs.engine.plan import read_plan
from runs.filters.fields import BUILT_IN
from runs.filters.language import Words
from runs.formats.tables import csv_text
from runs.lists import ListQuery
from runs.models.results import EvaluatorScore, ScoreState
from runs.models.run_cases import sorted_cases
from runs.models.runs import Run
from runs.results.result_state import result_url

# So many cases of one run, and of two, have as many cells.
ROWS, PAIRS = 100, 50
# As many as a suite can have; cases with evaluators of their own may have far more together.
MAX_COLUMNS = 500
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

    `state` is scored, unscored or skipped, "" where the case does not have the evaluator. `url` is its result.
    """

    score: float | None
    text: str
    level: int | None
    state: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A case with its scores and cells, for each run one; `url` is its result, or its comparison."""

    key: str
    title: str
    state: str
    scores: Sequence[float | None]
    texts: Sequence[str]
    url: str
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A page of the heat map; `next_page` is 0 on the last one. `runs` are the names of two runs, () for one.

    Of `evaluators` only the first have columns.
    """

    columns: Sequence[HeatColumn]
    evaluators: int
    rows: Sequence[HeatRow]
    cases: int
    first: int
    next_page: int
    repetitions: int
    runs: Sequence[str] = ()

    @property
    def last(self) -> int:
        """Return the number of the last case that is shown."""
        return self.first + len(self.rows) - 1


def heat_map(run: Run, *, page: int = 1, rows: int | None = ROWS) -> HeatMap:
    """Return a page of cases, the worst first, or with no number of rows all of them; four queries."""
    root, own = _trees(run)
    columns, evaluators = _columns([root, *own.values()], case_links(run), f"< {LOW}")
    cases = sorted_cases(run.cases.live(run), "attention").order_by("sort_value", "position")
    names = ("case_id", "case__key", "case__title", "live_state", "score")
    start = (page - 1) * rows if rows else 0
    end = start + rows if rows else run.case_count
    found = [*cases.values_list(*names)[start:end]]
    cells = _cells(run, [pk for pk, *_ in found], root, own)
    return HeatMap(
        columns=columns,
        evaluators=evaluators,
        rows=[
            HeatRow(
                key=key,
                title=title,
                state=state,
                scores=[score],
                texts=[score_text(score, run.scale)],
                url=result_url(run, key, 1),
                cells=_row(cells[pk], columns, run, key),
            )
            for pk, key, title, state, score in found
        ],
        cases=run.case_count,
        first=start + 1,
        next_page=page + 1 if end < run.case_count else 0,
        repetitions=run.repetitions,
    )


def compared_heat_map(
    baseline: Run, candidate: Run, *, page: int = 1, rows: int | None = PAIRS
) -> HeatMap:
    """Return the cases of both runs, those that fell most first; each evaluator has a column for either run."""
    runs = (baseline, candidate)
    sides = [_case_scores(run) for run in runs]
    before, after = sides
    keys = sorted(before.keys() & after.keys(), key=lambda key: _rank(before[key], after[key]))
    start = (page - 1) * rows if rows else 0
    end = start + rows if rows else len(keys)
    shown = keys[start:end]
    trees = [_trees(run) for run in runs]
    every = [tree for root, own in trees[::-1] for tree in (root, *own.values())]
    columns, evaluators = _columns(every, comparison_case_links(baseline, candidate), "fell")
    cells = [
        _cells(run, [side[key].pk for key in shown], *tree)
        for run, side, tree in zip(runs, sides, trees, strict=True)
    ]
    ids = [after[key].pk for key in shown]
    titles = dict(candidate.cases.filter(case__in=ids).values_list("case__key", "case__title"))
    case_address = compared_case(baseline, candidate)
    rows_shown = []
    for key in shown:
        pair = [
            _row(cells_of[side[key].pk], columns, run, key)
            for run, side, cells_of in zip(runs, sides, cells, strict=True)
        ]
        rows_shown.append(
            HeatRow(
                key=key,
                title=titles[key],
                state=after[key].state,
                scores=[side[key].score for side in sides],
                texts=[score_text(side[key].score, candidate.scale) for side in sides],
                url=case_address(key),
                cells=[cell for both in zip(*pair, strict=True) for cell in both],
            )
        )
    return HeatMap(
        columns=columns,
        evaluators=evaluators,
        rows=rows_shown,
        cases=len(keys),
        first=start + 1,
        next_page=page + 1 if end < len(keys) else 0,
        repetitions=max(run.repetitions for run in runs),
        runs=[f"#{run.number}" for run in runs],
    )


@dataclass(frozen=True, slots=True)
class CaseScore:
    """A case of a run: its id, its verdict or why it has none, and its score."""

    pk: int
    state: str
    score: float | None


def _case_scores(run: Run) -> Mapping[str, CaseScore]:
    rows = run.cases.live(run).order_by("position", "case_id")
    columns = ("case__key", "case_id", "live_state", "score")
    return {key: CaseScore(*row) for key, *row in rows.values_list(*columns)}


def _rank(before: CaseScore, after: CaseScore) -> tuple[int, float]:
    """Sort what lost its score first, then by the change of the score, then what never had one."""
    if before.score is None:
        return 2, 0.0
    if after.score is None:
        return 0, 0.0
    return 1, after.score - before.score


def _trees(run: Run) -> tuple[EvaluatorSpec, Mapping[int, EvaluatorSpec]]:
    """Return the tree of a run, and by the id of their cases the trees of cases with evaluators of their own."""
    root = read_plan(run.snapshot).root
    return root, {pk: tree for pk, _, tree in run.own_trees(root)}


def _row(
    cells: Mapping[str, HeatCell], columns: Sequence[HeatColumn], run: Run, key: str
) -> list[HeatCell]:
    """Return the cells of a case in the order of the columns, each with its link."""
    url = f"{result_url(run, key, 1)}#evaluators"
    found = (cells.get(column.path) for column in columns)
    return [replace(cell, url=url) if cell else NO_CELL for cell in found]


NO_CELL = HeatCell(None, "", None, "")
# What stands in a cell without a score.
TEXTS = {ScoreState.UNSCORED: "!", ScoreState.SKIPPED: "–"}


def _columns(
    trees: Iterable[EvaluatorSpec], address: Callable[[str], str], condition: str
) -> tuple[list[HeatColumn], int]:
    """Return the first evaluators at the leaves of the trees, those of the suite first, and how many there are.

    Their links list cases.
    """
    paths = {
        path: node for tree in trees for path, node in walk(tree) if path and not node.children
    }
    columns = [
        HeatColumn(
            path,
            node.name,
            address(f"{Words(f'evaluator.{path}' if path in FIELDS else path)} {condition}"),
        )
        for path, node in islice(paths.items(), MAX_COLUMNS)
    ]
    return columns, len(paths)


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


def heat_map_csv(whole: HeatMap) -> str:
    """Return the rows of a map as a file, with a column for each evaluator and run.

    Where not all evaluators have columns, the last column says how many more there are.
    """
    runs = [f" in {name}" for name in whole.runs] or [""]
    scores = [f"score{run}" for run in runs]
    paths = [f"{column.path}{run}" for column in whole.columns for run in runs]
    left = whole.evaluators - len(whole.columns)
    end = {"further evaluators": left} if left else {}
    lines = (
        [row.key, row.state, *row.scores, *(cell.score for cell in row.cells), *end.values()]
        for row in whole.rows
    )
    return csv_text(["case", "verdict", *scores, *paths, *end], lines)

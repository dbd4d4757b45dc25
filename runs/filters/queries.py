"""The cases of a run that a list, a retry or a new run is about, and their values that filters ask about."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.utils.safestring import SafeString, mark_safe

from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, pass_marks, walk
from runs import lists
from runs.engine.plan import PAIRWISE_KIND, read_plan
from runs.filters.fields import OWN_SOURCES, Source, Vocabulary, find_field, read_checked
from runs.filters.language import (
    MAX_LENGTH,
    All,
    FieldComparison,
    FilterError,
    Operator,
    read_filter,
    wanted_words,
)
from runs.filters.matching import ANY_ERROR, PARTS, ResultRows, condition
from runs.lists import (
    MAX_PLACE_LENGTH,
    Chip,
    Key,
    Keyset,
    ListQuery,
    Sort,
    UnreadablePlaceError,
    with_tag,
)
from runs.models.database import OneOf, among
from runs.models.results import EvaluatorScore, ResultOutput, ScoreState
from runs.models.run_cases import LiveCases, RunCase, sorted_cases
from runs.models.runs import RecentValues, Run
from runs.models.search import conversation_text, exact_lookups
from runs.models.suites import Case
from runs.summary.cases import STATES
from runs.words import AFTER, MAX_SEARCHED, Piece, mark_hits, snippet

FROM_LIST, FROM_COMPARISON = "from", "comparison"
SORTS = (
    *("attention", "verdict", "case", "score", "spread", "metrics", "outcomes"),
    *("latency", "cost", "target_cost", "judge_cost", "tokens"),
)
DENSITIES = ("comfortable", "compact")
# What cases can be grouped by, beside a key of their metadata.
GROUPINGS = ("tag", "verdict", "error", "tool", "review")
# The database has no column to sort by these: their values are read, and sorted here.
FAMILIES = tuple(f"{source}." for source in OWN_SOURCES)
BY_VALUE = ("tokens",)
IN_ORDER = Keyset(
    Key("is_missing", int), Key("sort_value", float), Key("position", int), Key("case_id", int)
)


@dataclass(frozen=True, slots=True)
class ResultsQuery(ListQuery):
    """Which cases of a run are listed: `text` is a filter, `flaky` lists those whose repetitions differ.

    `group` lists groups in place of cases: by one of GROUPINGS, or by metadata as in `meta.channel`. `view` is the
    number of a saved view, which says where the rest came from.
    """

    state: str = lists.choice(STATES, name="verdict")
    flaky: bool = lists.flag()
    tag: str = lists.text()
    text: str = lists.search(max_length=MAX_LENGTH + 1)
    sort: Sort = lists.sort(SORTS, "attention", families=FAMILIES)
    columns: tuple[str, ...] = lists.names()
    density: str = lists.option(DENSITIES, DENSITIES[0])
    group: str = lists.setting(max_length=MAX_PLACE_LENGTH)
    view: str = lists.setting()
    after: str = lists.after()

    @property
    def only_filters(self) -> ResultsQuery:
        """Return the query without what only changes how its cases are displayed."""
        return ResultsQuery(state=self.state, flaky=self.flaky, tag=self.tag, text=self.text)

    @property
    def beside_text(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the filters that have a control of their own as conditions, each with what leaves it out."""
        return [
            *([(condition_text("verdict", self.state), {"state": ""})] if self.state else ()),
            *([("flaky", {"flaky": False})] if self.flaky else ()),
            *([(condition_text("tag", self.tag), {"tag": ""})] if self.tag else ()),
        ]

    @property
    def list_query(self) -> str:
        """Return what links to results carry, so that the list can be stepped through from them."""
        return f"?{FROM_LIST}=run&{self.address(after='').lstrip('?')}".rstrip("&")


def is_read(sort: Sort) -> bool:
    """Tell whether the values that cases are sorted by must be read: those of an evaluator, say."""
    return sort.name in BY_VALUE or sort.name.startswith(FAMILIES)


CaseRow = Mapping[str, Any]


def ordered_cases(run: Run, cases: LiveCases, sort: Sort) -> Sequence[CaseRow]:
    """Return the place of each case in an order by `IN_ORDER`, those without a value last; at most three queries.

    The values are those that filters compare, over all repetitions of a case.
    """
    columns = ("pk", "case_id", "position", "live_state")
    if not is_read(sort):
        found = sorted_cases(cases, sort.name).order_by().values(*columns, "sort_value")
        rows = [{**row, "is_missing": 0} for row in found]
    else:
        field = find_field(sort.name)
        known = ResultRows([run]).values(field) if field else {}
        rows = [
            {
                **row,
                "is_missing": int(row["pk"] not in known),
                "sort_value": known.get(row["pk"], 0.0),
            }
            for row in cases.order_by().values(*columns)
        ]
    return sorted(rows, key=lambda row: rank(row, sort))


def rank(row: CaseRow, sort: Sort) -> tuple[int, float, int, int]:
    """Return what the rows of `ordered_cases` are sorted by."""
    value = row["sort_value"]
    return (
        row["is_missing"],
        -value if sort.is_descending else value,
        row["position"],
        row["case_id"],
    )


def behind(rows: Sequence[CaseRow], place: str, sort: Sort) -> Sequence[CaseRow]:
    """Return the rows of `ordered_cases` after a place, all for "" or an invalid one."""
    try:
        values = IN_ORDER.read(place)
    except UnreadablePlaceError:
        return rows
    names = [key.column for key in IN_ORDER.keys]
    last = rank(dict(zip(names, values, strict=True)), sort)
    return rows[bisect_right(rows, last, key=lambda row: rank(row, sort)) :]


def matching_cases(run: Run, query: ResultsQuery) -> LiveCases:
    """Return the cases that match filter and tag, in any state; raises FilterError."""
    cases = run.cases.live(run)
    if query.tag:
        cases = cases.filter(case__in=with_tag(Case.objects.all(), query.tag))
    if not query.text:
        return cases
    checked = read_checked(query.text, run_vocabulary(run))
    found = run.cases.filter(condition(checked, ResultRows([run]))).order_by()
    # A page asks several questions about these cases; the filter is answered once.
    with exact_lookups():
        return cases.filter(OneOf("pk", found.values_list("pk", flat=True)))


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a text of a case has what a filter looks for: its name, a line of it, and the repetition (1 for an input)."""

    place: str
    pieces: Sequence[Piece]
    repetition: int = 1


def first_hits(text: str, cases: QuerySet[RunCase, Any]) -> Mapping[tuple[int, int], Hit]:
    """Return by run and case the first text with words of a filter that is correct, in at most three queries.

    Titles are left out: a list shows them anyway.
    """
    wanted = wanted_words(read_filter(text))
    found: dict[tuple[int, int], Hit] = {}
    for place, rows in _texts_by_place(cases.order_by()):
        phrases = [*wanted.get("", ()), *wanted.get(place, ())]
        if not phrases:
            continue
        for run, case, repetition, content in rows():
            if (run, case) not in found and (pieces := snippet(content, phrases)):
                found[run, case] = Hit(place, pieces, repetition)
    return found


def hits_by_key(text: str, runs: Sequence[Run], keys: Sequence[str]) -> Mapping[str, Hit]:
    """Return by case key the text with words of a correct filter, of the last run that has any; four queries."""
    order = {run.pk: place for place, run in enumerate(runs)}
    cases = RunCase.objects.filter(run__in=list(order), case__key__in=keys)
    found = first_hits(text, cases)
    rows = cases.order_by().values_list("run_id", "case_id", "case__key")
    ordered = sorted(rows, key=lambda row: order[row[0]])
    return {key: found[run, case] for run, case, key in ordered if (run, case) in found}


@dataclass(frozen=True, slots=True)
class Marks:
    """The words of the filter that a page was opened from, to mark in the texts of a result."""

    wanted: Mapping[str, Sequence[Sequence[str]]]

    @property
    def conversation(self) -> HitMarker:
        """Return what marks input and output."""
        return self._marker("input", "output")

    @property
    def reasoning(self) -> HitMarker:
        """Return what marks the reasons of evaluators."""
        return self._marker("reasoning")

    @property
    def expected(self) -> HitMarker:
        """Return what marks the expected output."""
        return self._marker("expected")

    @property
    def outcomes(self) -> HitMarker:
        """Return what marks expected outcomes."""
        return self._marker("expected", "met", "missed")

    @property
    def diff(self) -> HitMarker:
        """Return what marks output and expected output where they stand in one text."""
        return self._marker("output", "expected")

    def _marker(self, *places: str) -> HitMarker:
        wanted = [words for place in ("", *places) for words in self.wanted.get(place, ()) if words]
        return HitMarker(wanted)


@dataclass(frozen=True, slots=True)
class HitMarker:
    """Marks words in HTML, as lists mark them in a line."""

    wanted: Sequence[Sequence[str]]

    def html(self, html: SafeString) -> SafeString:
        """Return clean HTML with the hits marked; none goes across a tag or an entity."""
        if not self.wanted:
            return html
        parts = OUTSIDE_TEXT.split(html)
        for place in range(0, len(parts), 2):
            pieces = mark_hits(parts[place], self.wanted)
            parts[place] = "".join(
                f'<mark class="found">{piece.text}</mark>' if piece.is_hit else piece.text
                for piece in pieces
            )
        return mark_safe("".join(parts))  # noqa: S308 - the HTML is clean, and a word has no sign of HTML


OUTSIDE_TEXT = re.compile(r"(<[^>]*>|&[#\w]+;)")


def hit_marks(text: str) -> Marks:
    """Return what a filter marks; nothing for one that cannot be read."""
    try:
        return Marks(wanted_words(read_filter(text)) if text else {})
    except FilterError:
        return Marks({})


def _texts_by_place(
    cases: QuerySet[RunCase, Any],
) -> Iterable[tuple[str, Callable[[], Iterable[tuple[int, int, int, str]]]]]:
    # Their ids, not their condition: PostgreSQL would guess their number too high, and read whole tables.
    ids = list(cases.values_list("pk", flat=True))
    outputs = ResultOutput.objects.filter(result__run_case__pk__in=ids).order_by(
        "result__repetition"
    )
    scores = EvaluatorScore.objects.filter(result__run_case__pk__in=ids).exclude(reasoning="")
    reasons = scores.order_by("result__repetition", "position")
    inputs = RunCase.objects.filter(pk__in=ids).order_by()
    place = "result__run_id", "result__case_id", "result__repetition"
    return (
        ("output", lambda: outputs.values_list(*place, _searched("text"))),
        ("reasoning", lambda: reasons.values_list(*place, _searched("reasoning"))),
        (
            "input",
            lambda: (
                (run, case, 1, conversation_text(messages))
                for run, case, messages in inputs.values_list("run_id", "case_id", "case__input")
            ),
        ),
    )


def _searched(column: str) -> Left:
    """Return what is searched of a text, and enough to see that it goes on."""
    return Left(column, MAX_SEARCHED + AFTER)


def condition_chips(query: Any) -> tuple[Chip, ...]:
    """Return the conditions of the `text` of a list, each with the address without it; raises FilterError."""
    parts = _with_rests(query.text)
    # One alone is what the field shows.
    if len(parts) == 1:
        return ()
    return tuple(Chip(label, query.address(text=rest), is_on=True) for label, rest in parts)


def _with_rests(text: str) -> Sequence[tuple[str, str]]:
    """Return the conditions of a filter, each with the filter without it."""
    conditions = read_filter(text).conditions
    return [
        (str(condition), str(All((*conditions[:place], *conditions[place + 1 :]))))
        for place, condition in enumerate(conditions)
    ]


MAX_COUNTED = 6
Listed = TypeVar("Listed", bound=ListQuery)


def lists_without(
    query: Listed,
    count: Callable[[Listed], int | None],
    others: Iterable[tuple[str, Mapping[str, Any]]] = (),
) -> tuple[Chip, ...]:
    """Return, for a list in which nothing matches, each condition without which something does, and how much.

    `others` are its conditions beside the text, with what leaves them out; `count` counts a list, None for more than it counts.
    At most MAX_COUNTED lists are counted.
    """
    rests = ((label, {"text": rest}) for label, rest in _with_rests(getattr(query, "text", "")))
    found = []
    for label, changes in [*others, *rests][:MAX_COUNTED]:
        wider = query.changed(**changes)
        if (matching := count(wider)) != 0:
            found.append(Chip(label, wider.address(), is_on=False, count=matching))
    return tuple(found)


def condition_text(field: str, value: str) -> str:
    """Return a condition on a field as a filter has it, in quotes where it needs them."""
    return str(FieldComparison(field, Operator.EQUAL, (value,)))


def matching_keys(candidates: Sequence[Run], baseline: Run, text: str) -> Set[str]:
    """Return the keys of the cases that match a filter in any candidate, compared with a baseline.

    Cases that only the baseline has count with its figures. Raises FilterError.
    """
    runs = [*candidates, baseline]
    checked = read_checked(text, run_vocabulary(*runs, compares=True))
    rows = RunCase.objects.filter(run__in=[run.pk for run in runs]).order_by()
    matching = rows.filter(condition(checked, ResultRows(runs, baseline=baseline)))
    with exact_lookups():
        found = list(matching.values_list("run_id", "case__key"))
    keys = {key for run, key in found if run != baseline.pk}
    alone = {key for _, key in found} - keys
    if alone:
        others = rows.exclude(run=baseline).filter(case__key__in=among(alone, "text"))
        keys |= alone.difference(others.values_list("case__key", flat=True))
    return keys


def in_state(cases: LiveCases, query: ResultsQuery) -> LiveCases:
    """Return the cases in the state of the filter; only flaky ones if it asks for them."""
    if query.state:
        cases = cases.filter(live_state=query.state)
    return cases.filter(is_flaky=True) if query.flaky else cases


def run_vocabulary(*runs: Run, compares: bool = False) -> Vocabulary:
    """Return what a filter can ask about the cases of runs; with `compares`, also how they changed."""
    stored = Run.objects.filter(pk__in=[run.pk for run in runs]).order_by()
    rows = stored.values_list("pk", "snapshot", "external_names")
    snapshots = {pk: snapshot for pk, snapshot, _ in rows}
    external = sorted({name for _, _, names in rows for name in names})
    own = Case.objects.filter(
        pk__in=RunCase.objects.filter(run__in=runs).values("case_id"), evaluators__isnull=False
    )
    trees = [read_plan(snapshots[run.pk]).root for run in runs]
    trees += map(EvaluatorSpec.model_validate, own.values_list("evaluators", flat=True))
    # The suite's mark of the first run that has one: in a comparison that of a candidate.
    marks = {path: mark for tree in reversed(trees) for path, mark in pass_marks(tree).items()}
    return Vocabulary(
        evaluators=tree_paths(trees),
        pass_marks=marks,
        metrics=part_keys(runs, Source.METRIC),
        dimensions=part_keys(runs, Source.DIMENSION),
        external=external,
        pairwise=pairwise_paths(trees),
        compares=compares,
    )


def tree_paths(trees: Iterable[EvaluatorSpec]) -> tuple[str, ...]:
    """Return the paths of all evaluators of trees, without their roots."""
    paths = {path: None for tree in trees for path, _ in walk(tree) if path != ROOT_PATH}
    return tuple(paths)


def pairwise_paths(trees: Iterable[EvaluatorSpec]) -> tuple[str, ...]:
    """Return the paths of the evaluators of trees that compare outputs with a baseline's."""
    nodes = (pair for tree in trees for pair in walk(tree))
    return tuple(dict.fromkeys(path for path, node in nodes if node.kind == PAIRWISE_KIND))


# Every page of a run offers the tags of its cases.
TAGS: RecentValues[Sequence[str]] = RecentValues(50)


def run_tags(run: Run) -> Sequence[str]:
    """Return the tags of a run's cases in order; one query, none for an ended run whose page was just shown."""

    def read() -> Sequence[str]:
        ran = Case.objects.filter(pk__in=run.cases.order_by().values("case_id")).order_by()
        # Few lists differ, so this reads little.
        return sorted(
            {tag for tags in ran.values_list("tags", flat=True).distinct() for tag in tags}
        )

    return read() if run.is_active else TAGS.get((run.pk, run.results_version), read)


def run_suggestions(run: Run) -> Mapping[str, Sequence[str]]:
    """Return the values to suggest for the cases of a run: tags and stages of errors."""
    stages = run.results.exclude(error_stage="").order_by().values_list("error_stage", flat=True)
    return {
        "tag": run_tags(run),
        "error": (ANY_ERROR, *sorted(stages.distinct())),
    }


def part_keys(runs: Sequence[Run], source: Source) -> tuple[str, ...]:
    """Return the metrics or dimensions of runs: those of the summary, or without one, those scored so far."""
    kind, detail, _ = PARTS[source]
    summarized = [run for run in runs if run.summary and detail in run.summary]
    parts = [part for run in summarized for part in (run.summary or {})[detail]]
    if others := [run.pk for run in runs if run not in summarized]:
        scores = EvaluatorScore.objects.filter(
            result__run__in=others, kind=kind, state=ScoreState.SCORED
        )
        rows = scores.order_by().values_list(f"details__{detail}", flat=True)
        parts += [part for scored in rows.iterator(chunk_size=5000) for part in scored or ()]
    return tuple(dict.fromkeys(part["key"] for part in parts))

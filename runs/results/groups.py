"""The cases of a run's table in groups: by tag, verdict, stage of error, tool, review, or a key of their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, Sum

from runs.filters.fields import NOTHING, Field, Source, ValueKind, find_field
from runs.filters.language import (
    All,
    FieldComparison,
    FilterError,
    Operator,
    QuotedValue,
    read_filter,
)
from runs.filters.matching import ResultRows
from runs.filters.queries import GROUPINGS, ResultsQuery
from runs.models.results import ResultStatus
from runs.models.run_cases import LiveCases
from runs.models.runs import Run, RunStatus
from runs.summary.groups import (
    GroupedCase,
    GroupFigures,
    group_cases,
    group_figures,
    sorted_groups,
)

GROUP_LABELS = {
    "tag": "Tag",
    "verdict": "Verdict",
    "error": "Error stage",
    "tool": "Tool",
    "review": "Review",
}
# What the cases are called that are in no group.
REST = {"tag": "No tag", "error": "No error", "tool": "No tool called", "review": "Not in review"}
# Figures of every group by the orders of the table; others are those of a column.
OWN_FIGURES: Mapping[str, Callable[[GroupFigures], Any]] = {
    "attention": lambda group: group.pass_rate,
    "verdict": lambda group: group.pass_rate,
    "case": lambda group: group.cases,
    "score": lambda group: group.mean_score,
    "latency": lambda group: group.latency_ms,
    "cost": lambda group: group.cost_usd,
    "target_cost": lambda group: group.target_usd,
    "judge_cost": lambda group: group.judge_usd,
}
COUNTS = ("case_id", "live_state", "executions", "ended", "scored", "passed")
MEANS = ("score", "latency_ms")
COSTS = ("run_cost_usd", "evaluation_cost_usd")


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups of the cases of a list, in its order; `several` cases are in more than one.

    `columns` are the names of the figures that the list shows or is sorted by, beside those of every group.
    """

    field: Field
    groups: Sequence[GroupFigures]
    cases: int
    several: int
    columns: Sequence[str]

    @property
    def label(self) -> str:
        """Return what the cases are grouped by."""
        return GROUP_LABELS.get(self.field.name, self.field.key)

    def group_label(self, name: str | None) -> str:
        """Return what a group is called."""
        if name is None:
            return REST.get(self.field.name, f"No {self.field.key}")
        if self.field.kind == ValueKind.CHOICE:
            return "Errored" if name == "error" else name.capitalize()
        return name

    @property
    def is_without(self) -> bool:
        """Tell whether no case has the key of metadata, which may be gone since the address was kept."""
        is_metadata = self.field.source == Source.METADATA
        return is_metadata and all(group.name is None for group in self.groups)


def grouping_field(name: str) -> Field | None:
    """Return what a list is grouped by: one of GROUPINGS or a key of metadata, None for anything else."""
    field = find_field(name)
    is_metadata = field is not None and field.source == Source.METADATA
    return field if name in GROUPINGS or is_metadata else None


def group_list(
    run: Run, query: ResultsQuery, cases: LiveCases, unknown: Sequence[str] = ()
) -> Grouping | None:
    """Return these cases in groups, None where the list has none; a query for each source of a figure."""
    field = grouping_field(query.group)
    if field is None:
        return None
    read = ResultRows([run])
    names = {} if field.key == "state" else read.names(field)
    columns = _columns(query, unknown)
    values = {name: read.values(column) for name, column in columns.items()}
    sums = _sums(run) if run.repetitions > 1 else {}
    is_completed = run.status == RunStatus.COMPLETED
    by_state = field.key == "state"
    rows = cases.order_by("position", "pk").values_list("pk", *COUNTS, *MEANS, *COSTS)
    grouped = [
        GroupedCase(
            names=(state,) if by_state else names.get(pk, ()),
            state=state,
            executions=executions,
            counted=executions if is_completed else ended,
            passed=passed,
            errors=ended - scored,
            scores=sums[case][0] if sums else _single_sum(score),
            latencies=sums[case][1] if sums else _single_sum(latency_ms),
            target_usd=target_usd,
            judge_usd=judge_usd,
            values={name: found.get(pk) for name, found in values.items()},
        )
        for pk, case, state, executions, ended, scored, passed, score, latency_ms, target_usd, judge_usd in rows
    ]
    summed = [
        name
        for name, column in columns.items()
        if column.kind in (ValueKind.MONEY, ValueKind.COUNT)
    ]
    figures = (
        group_figures(name, members, sums=summed, seed=run.pk)
        for name, members in group_cases(grouped).items()
    )
    figure = OWN_FIGURES.get(query.sort.name) or (
        lambda group: group.values[query.sort.name].value if query.sort.name in columns else None
    )
    return Grouping(
        field=field,
        groups=sorted_groups(figures, figure, is_descending=query.sort.is_descending),
        cases=len(grouped),
        several=sum(len(case.names) > 1 for case in grouped),
        columns=list(columns),
    )


def _columns(query: ResultsQuery, unknown: Sequence[str]) -> Mapping[str, Field]:
    """Return the figures that are chosen as columns, or sort the list, and are not those of every group."""
    names = dict.fromkeys((*query.columns, query.sort.name))
    return {
        name: field
        for name in names
        if name not in OWN_FIGURES
        and name not in unknown
        and (field := find_field(name))
        and field.is_number
    }


def _single_sum(value: float | None) -> tuple[float, int]:
    """Return the sum and the count of a figure of a case with one result, from its mean."""
    return (0.0, 0) if value is None else (value, 1)


def _sums(run: Run) -> Mapping[int, tuple[tuple[float, int], tuple[float, int]]]:
    """Return the sums of scores and of latencies by case, each with the number of results that have one."""
    is_scored = Q(status=ResultStatus.SCORED)
    rows: Any = run.results.order_by().values_list("case_id")
    found = rows.annotate(
        score_sum=Sum("score", filter=is_scored),
        score_count=Count("score", filter=is_scored),
        latency_sum=Sum("latency_ms"),
        latency_count=Count("latency_ms"),
    )
    return {
        case: ((score_sum or 0.0, score_count), (latency_sum or 0.0, latency_count))
        for case, score_sum, score_count, latency_sum, latency_count in found
    }


def group_filter(field: str, name: str | None, *, within: str = "") -> str:
    """Return the filter for the cases of a group `within` another filter, "" where no filter can be so long."""
    # A tag may have the name that stands for no tag.
    value = NOTHING if name is None else QuotedValue(name) if name.lower() == NOTHING else name
    condition = FieldComparison(field, Operator.EQUAL, (value,))
    try:
        text = str(All((*read_filter(within).conditions, condition)))
        read_filter(text)
    except FilterError:
        return ""
    return text


def group_address(query: ResultsQuery, field: Field, name: str | None) -> str:
    """Return the query part of the address that lists the cases of a group, "" where it would be no filter."""
    if field.key == "state":
        return query.address(group="", state=name)
    text = group_filter(field.name, name, within=query.text)
    return query.address(group="", text=text) if text else ""


GROUP_COLUMNS = (
    *("cases", "passed", "counted", "pass_rate", "pass_rate_low", "pass_rate_high"),
    *("mean_score", "scored", "results", "errors", "latency_ms", "timed"),
    *("target_cost_usd", "judge_cost_usd", "total_cost_usd"),
)


def group_rows(grouping: Grouping) -> Iterator[Sequence[Any]]:
    """Yield the head and the rows of a file with all groups; the units are those of other files."""
    names = [part for name in grouping.columns for part in (name, f"{name}:cases")]
    yield (grouping.label.lower().replace(" ", "_"), *GROUP_COLUMNS, *names)
    for group in grouping.groups:
        low, high = group.interval or (None, None)
        yield (
            *(group.name, group.cases, group.passed, group.counted, group.pass_rate, low, high),
            *(group.mean_score, group.scored, group.executions, group.errors),
            *(group.latency_ms, group.timed, group.target_usd, group.judge_usd, group.cost_usd),
            *(part for value in group.values.values() for part in (value.value, value.known)),
        )

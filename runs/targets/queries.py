"""The list of targets and the page of one target: its settings and its runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber
from django.urls import reverse

from runs import lists
from runs.charts.figures import Trend
from runs.charts.trends import LEAST_TREND
from runs.costs import best_value_text
from runs.lists import Control, HeadCell, ListQuery, Sort, head_cell
from runs.models.runs import Run, RunStatus
from runs.models.suites import Target
from runs.results.runs import RunRow, run_row, with_list_columns
from runs.target_kinds import target_kinds

RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as its page shows it; a long value stands below its name."""

    name: str
    value: str
    is_long: bool


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """How a target did on a suite: its newest completed run, and how many runs it had there.

    The cost is that of target and judge together, None where a price is missing. `latency_ms` is the mean.
    """

    run: RunRow
    runs: int
    passed: int
    latency_ms: float | None

    @property
    def cost_usd(self) -> Decimal | None:
        """Return what the run cost, None where that is not known in full."""
        return None if self.run.costs.is_partial else self.run.costs.total_usd

    @property
    def passed_result_usd(self) -> Decimal | None:
        """Return the cost of a passed result, None when none passed."""
        return self.cost_usd / self.passed if self.cost_usd is not None and self.passed else None


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row of the list of targets: a target and its record on one suite, None if it never completed a run."""

    pk: int
    name: str
    description: str
    kind_label: str
    model: str
    record: TargetRecord | None


@dataclass(frozen=True, slots=True)
class SuiteHistory:
    """The completed runs of a target on one suite: its record, its best run and its trend from three runs on."""

    record: TargetRecord
    best: RunRow
    trend: Trend | None
    charts_url: str

    @property
    def trend_state(self) -> str:
        """Return the mark at the end of the trend."""
        return "pass" if self.record.run.metrics.state == "passed" else "fail"


@dataclass(frozen=True, slots=True)
class TargetPage:
    """Everything a target's page shows; one that `replays` its outputs is tried without a request."""

    kind_label: str
    manual: str
    replays: bool
    can_be_tried: bool
    settings: tuple[Setting, ...]
    recorded: int
    examples: tuple[str, ...]
    runs: tuple[RunRow, ...]
    total_runs: int
    history: tuple[SuiteHistory, ...]


# Columns to sort by, each with its label and whether the best is the highest.
COLUMNS: Mapping[str, tuple[str, bool]] = {
    "last": ("Last run", True),
    "rate": ("Pass rate", True),
    "score": ("Mean score", True),
    "cost": ("Cost per pass", False),
    "latency": ("Mean latency", False),
    "runs": ("Runs", True),
}


@dataclass(frozen=True, slots=True)
class TargetsQuery(ListQuery):
    """Which targets are listed: all, or those that ran on the suite with this slug."""

    suite: str = lists.text()
    sort: Sort = lists.sort(("name", *COLUMNS), "name")


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The targets that match, a row for each suite that they ran on; `best_value` compares those of one suite."""

    query: TargetsQuery
    rows: Sequence[TargetRow]
    controls: Sequence[Control]
    heads: Sequence[HeadCell]
    best_value: str


def target_table(query: TargetsQuery) -> TargetTable:
    """Return the targets with how they did on each suite, in a constant number of queries."""
    runs = Run.objects.filter(target__archived_at=None, suite__archived_at=None, source_run=None)
    if query.suite:
        runs = runs.filter(suite__slug=query.suite)
    suites = dict(
        Run.objects.filter(suite__archived_at=None, target__archived_at=None)
        .order_by("suite__title")
        .values_list("suite__slug", "suite__title")
        .distinct()
    )
    records = _records(runs)
    targets = Target.objects.filter(archived_at=None).select_related("model").order_by("name", "pk")
    rows = [
        TargetRow(
            target.pk,
            target.name,
            target.description,
            _kind_label(target),
            target.model.name if target.model else "",
            record,
        )
        for target in targets
        for record in records.get(target.pk, () if query.suite else (None,))
    ]
    costs = {
        f"{record.run.target} #{record.run.number}": record.passed_result_usd
        for row in _sorted(rows, Sort("rate", is_descending=True))
        if (record := row.record)
    }
    return TargetTable(
        query=query,
        rows=_sorted(rows, query.sort),
        controls=[query.select("suite", "Suite", suites.items(), "All suites")] if suites else [],
        heads=[
            head_cell(query, "name", "Target"),
            *(
                head_cell(query, name, label, is_number=name != "last", best_first=is_high)
                for name, (label, is_high) in COLUMNS.items()
            ),
        ],
        best_value=best_value_text(costs) if query.suite or len(suites) == 1 else "",
    )


def _records(runs: QuerySet[Run]) -> Mapping[int, Sequence[TargetRecord]]:
    """Return the records of targets by their id, the newest first; two queries."""
    place = Window(RowNumber(), partition_by=("target_id", "suite_id"), order_by=F("number").desc())
    completed = runs.filter(status=RunStatus.COMPLETED).annotate(place=place)
    newest = Run.objects.filter(pk__in=completed.filter(place=1).values("pk"))
    totals = runs.order_by().values_list("target", "suite").annotate(total=Count("pk"))
    counts = {(target, suite): total for target, suite, total in totals}
    records: dict[int, list[TargetRecord]] = defaultdict(list)
    for run in with_list_columns(newest):
        if run.target_id is not None:
            records[run.target_id].append(_record(run, counts[run.target_id, run.suite_id]))
    return records


def _record(run: Run, runs: int) -> TargetRecord:
    summary = run.summary or {}
    return TargetRecord(
        run_row(run),
        runs,
        summary.get("passed", run.pass_count),
        summary.get("means", {}).get("latency_ms"),
    )


def _sorted(rows: Sequence[TargetRow], sort: Sort) -> Sequence[TargetRow]:
    """Return the rows in an order; rows without the figure come last in both directions."""
    if sort.name == "name":
        return list(reversed(rows)) if sort.is_descending else rows
    figures = {id(row): _figure(row.record, sort.name) for row in rows if row.record}
    known = [row for row in rows if figures.get(id(row)) is not None]
    known.sort(key=lambda row: figures[id(row)], reverse=sort.is_descending)
    return [*known, *(row for row in rows if figures.get(id(row)) is None)]


def _figure(record: TargetRecord, column: str) -> Any:
    """Return the figure of a column that rows are sorted by."""
    return {
        "last": record.run.created_at,
        "rate": record.run.cases.share,
        "score": record.run.metrics.share,
        "cost": record.passed_result_usd,
        "latency": record.latency_ms,
        "runs": record.runs,
    }[column]


# How many completed runs of a target its history reads.
HISTORY = 200
TREND = 12


def _history(target: Target) -> tuple[SuiteHistory, ...]:
    """Return the last completed runs of a target, suite by suite, the one that ran last first; one query."""
    ended = target.runs.filter(status=RunStatus.COMPLETED, source_run=None)
    by_suite: dict[int, list[Run]] = defaultdict(list)
    for run in with_list_columns(ended)[:HISTORY]:
        by_suite[run.suite_id].append(run)
    return tuple(_suite_history(target, runs) for runs in by_suite.values())


def _suite_history(target: Target, runs: Sequence[Run]) -> SuiteHistory:
    """Return the history from the runs on one suite, newest first."""
    rows = [run_row(run) for run in runs]
    scores = [row.metrics.share for row in rows[:TREND] if row.metrics.share is not None]
    charts = reverse("runs:suite-charts", args=[runs[0].suite.slug])
    return SuiteHistory(
        record=_record(runs[0], len(runs)),
        best=max(rows, key=lambda row: (row.cases.share or 0.0, row.metrics.share or 0.0)),
        trend=Trend(target.name, scores[::-1]) if len(scores) >= LEAST_TREND else None,
        charts_url=f"{charts}?{urlencode({'target': target.name})}",
    )


def target_page(target: Target) -> TargetPage:
    """Return the page of one target."""
    kind = target_kinds().get(target.kind)
    recorded = target.recorded_outputs.order_by("pk")
    runs = with_list_columns(target.runs.all())
    return TargetPage(
        kind_label=_kind_label(target),
        manual=kind.manual if kind else "",
        replays=bool(kind and kind.replays),
        can_be_tried=bool(kind and not kind.awaits),
        settings=tuple(_setting(target, name, target.config[name]) for name in _in_order(target)),
        recorded=recorded.count(),
        examples=tuple(recorded.values_list("case_key", flat=True)[:5]),
        runs=tuple(run_row(run) for run in runs[:RUNS_SHOWN]),
        total_runs=target.runs.count(),
        history=_history(target),
    )


def _kind_label(target: Target) -> str:
    kind = target_kinds().get(target.kind)
    return kind.label if kind else target.kind


def _in_order(target: Target) -> list[str]:
    """Return the names of the settings in the order of the form: by section, then as the kind lists them."""
    kind = target_kinds().get(target.kind)
    if kind is None:
        return list(target.config)
    fields, sections = kind.config.model_fields, kind.config.sections
    extras = {name: fields[name].json_schema_extra for name in fields}

    def place(name: str) -> tuple[int, int]:
        extra = extras.get(name)
        section = extra.get("section") if isinstance(extra, dict) else None
        at = sections.index(str(section)) if section in sections else -1
        return at, list(fields).index(name) if name in fields else len(fields)

    return sorted(target.config, key=place)


def _setting(target: Target, name: str, value: Any) -> Setting:
    if name == "headers":
        text = "\n".join(_header(header) for header in value)
        return Setting(_label(target, name), text, is_long=bool(text))
    if isinstance(value, bool):
        return Setting(_label(target, name), "yes" if value else "no", is_long=False)
    if value is None or value == {} or value == []:
        return Setting(_label(target, name), "", is_long=False)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return Setting(_label(target, name), text, len(text) > 60 or "\n" in text)


def _header(header: Mapping[str, Any]) -> str:
    value = "secret, stored encrypted" if header.get("secret") else header.get("value", "")
    return f"{header.get('name', '')}: {value}"


def _label(target: Target, name: str) -> str:
    """Return the label of a setting in the form of the target's kind."""
    kind = target_kinds().get(target.kind)
    setting = kind.config.model_fields.get(name) if kind else None
    return (setting.title if setting else None) or name.replace("_", " ").capitalize()

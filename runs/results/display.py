"""How the table of a run's results is displayed: what can order it, and its columns, chosen and offered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max
from django.urls import reverse

from runs.filters.fields import METADATA, Source
from runs.filters.queries import DENSITIES, ResultsQuery, run_vocabulary
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.case_rows import (
    COLUMNS,
    Column,
    find_column,
    own_column,
    unknown_names,
    usual_columns,
)
from runs.results.groups import GROUP_LABELS

MAX_KEYS = 30
HEADINGS: Mapping[Source, str] = {
    Source.CASE: "Result",
    Source.EVALUATOR: "Evaluators",
    Source.METRIC: "Metrics",
    Source.DIMENSION: "Dimensions",
    Source.METADATA: "Metadata",
}
# What the order is called where no column has its name.
ATTENTION = ("attention", "Needs attention first")
UNSORTABLE = ("why", "repetitions", "tag", "tool", "error", "review", "attempts")


@dataclass(frozen=True, slots=True)
class TableDisplay:
    """The choices for a table: `chosen` columns in their order, and the others under headings.

    `sorts` are the names and labels that can order it, `groupings` those it can be grouped by, under headings. `usual` are the names of the columns
    that are shown unless others are chosen; `hidden` are the filters that stay.
    """

    query: ResultsQuery
    chosen: Sequence[Column]
    others: Sequence[tuple[str, Sequence[Column]]]
    sorts: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    groupings: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    usual: str
    unknown: Sequence[str]
    hidden: Sequence[tuple[str, str]]
    page_url: str
    url: str
    densities: Sequence[str] = DENSITIES

    @property
    def reset_url(self) -> str:
        """Return the address of the table as it is displayed unless something is chosen."""
        return self.query.only_filters.at(self.page_url)


def table_display(run: Run, query: ResultsQuery, *, up: str = "", down: str = "") -> TableDisplay:
    """Return the choices for the table of a run, after a column was moved up or down."""
    unknown = unknown_names(run, query)
    has = run.cases.aggregate(metrics=Max("metrics_score"), outcomes=Max("outcome_share"))
    usual = [name for name in usual_columns(run) if has.get(name, 0) is not None]
    names = [name for name in query.columns or usual if name not in unknown]
    if "case" not in names:
        names.insert(0, "case")
    _move(names, up, -1)
    _move(names, down, 1)
    offered = _offered(run)
    chosen = [column for name in names if (column := find_column(name))]
    place = (run.suite.slug, run.number)
    return TableDisplay(
        query=query,
        chosen=chosen,
        others=[
            (heading, rest)
            for heading, columns in offered
            if (rest := [column for column in columns if column.name not in names])
        ],
        sorts=[
            (heading, [*([ATTENTION] if heading == HEADINGS[Source.CASE] else []), *options])
            for heading, columns in offered
            if heading != HEADINGS[Source.METADATA]
            and (
                options := [
                    (column.name, column.label)
                    for column in columns
                    if column.name not in UNSORTABLE
                ]
            )
        ],
        groupings=[
            (HEADINGS[Source.CASE], tuple(GROUP_LABELS.items())),
            *(
                (heading, [(column.name, column.label) for column in columns])
                for heading, columns in offered
                if heading == HEADINGS[Source.METADATA]
            ),
        ],
        usual=",".join(usual),
        unknown=unknown,
        hidden=query.hidden("sort", "columns", "density", "group"),
        page_url=reverse("runs:run", args=place),
        url=reverse("runs:run-results", args=place),
    )


def _move(names: list[str], name: str, by: int) -> None:
    if name in names and 0 <= names.index(name) + by < len(names):
        at = names.index(name)
        names[at], names[at + by] = names[at + by], names[at]


def _offered(run: Run) -> Sequence[tuple[str, Sequence[Column]]]:
    """Return the columns that a run can show, under headings."""
    found: dict[Source, list[Column]] = {source: [] for source in HEADINGS}
    usual = usual_columns(run)
    found[Source.CASE] = [
        column
        for column in COLUMNS.values()
        if column.name in usual or column.name not in ("spread", "repetitions")
    ]
    for field in run_vocabulary(run).own_fields:
        found[field.source].append(own_column(f"{field.source}.{field.key}", field))
    found[Source.METADATA] = [
        column for key in metadata_keys(run) if (column := find_column(METADATA + key))
    ]
    return [(HEADINGS[source], columns) for source, columns in found.items() if columns]


def metadata_keys(run: Run) -> Sequence[str]:
    """Return the keys that the metadata of a run's cases have values for, in order, at most 30."""
    cases = Case.objects.filter(pk__in=run.cases.order_by().values("case_id")).order_by()
    lists = cases.values_list("metadata", flat=True)
    keys = {key for metadata in lists for key in plain_keys(metadata)}
    return sorted(keys)[:MAX_KEYS]


def plain_keys(metadata: Any) -> Iterator[str]:
    """Yield the keys of metadata, without those that hold nothing, objects, or lists of such."""
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if isinstance(value, str) or _is_plain(value):
            yield key


def plain_texts(value: Any) -> Sequence[str]:
    """Return the values under a key of metadata as texts, none for a key that `plain_keys` leaves out."""
    if isinstance(value, str):
        return (value,)
    if not _is_plain(value):
        return ()
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else json.dumps(one) for one in values]


def _is_plain(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return not any(isinstance(one, (dict, list)) or one is None for one in values)

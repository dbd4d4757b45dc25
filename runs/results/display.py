"""How a table of cases is displayed: what can order it, and its columns, chosen and offered."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max
from django.urls import reverse

from runs.filters.fields import METADATA, OWN_SOURCES, Source
from runs.filters.queries import DENSITIES, FAMILIES, ResultsQuery, run_vocabulary
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.case_rows import (
    COLUMNS,
    OF_REPETITIONS,
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
    Source.EXTERNAL: "External scores",
    Source.METADATA: "Metadata",
}
# What the order is called where no column has its name.
ATTENTION = ("attention", "Needs attention first")
UNSORTABLE = ("why", "repetitions", "tag", "tool", "error", "review", "attempts")


# What the form of the choices sets.
DISPLAYED = ("sort", "columns", "density", "group")
Named = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TableDisplay:
    """The choices for a table: `chosen` columns in their order, and the others under headings.

    `sorts` are the names and labels that can order it, `groupings` those it can be grouped by, under headings.
    `usual` are the names of the columns that are shown unless others are chosen; `hidden` are the filters that stay.
    The table is on the page at `page_url` in the element `target`, which `url` returns; `here` is the page of the
    choices.
    """

    query: Any
    chosen: Sequence[Column]
    others: Sequence[tuple[str, Sequence[Column]]]
    sorts: Sequence[tuple[str, Named]]
    groupings: Sequence[tuple[str, Named]]
    usual: str
    unknown: Sequence[str]
    page_url: str
    url: str
    here: str
    target: str
    densities: Sequence[str] = DENSITIES

    @property
    def hidden(self) -> Named:
        """Return the fields that go with the form: the filters, and what else the address names."""
        fields: Named = self.query.hidden(*DISPLAYED)
        return fields

    @property
    def reset_url(self) -> str:
        """Return the address of the table as it is displayed unless something is chosen."""
        usual = type(self.query)()
        kept = {name: getattr(usual, name) for name in DISPLAYED if hasattr(usual, name)}
        return f"{self.query.at(self.page_url, **kept)}#{self.target}"


def run_display(run: Run, query: ResultsQuery, *, up: str = "", down: str = "") -> TableDisplay:
    """Return the choices for the table of a run, after a column was moved up or down."""
    has = run.cases.aggregate(metrics=Max("metrics_score"), outcomes=Max("outcome_share"))
    usual = usual_columns(run)
    own = own_columns(run)
    of_result = [
        column
        for column in COLUMNS.values()
        if column.name in usual or column.name not in OF_REPETITIONS
    ]
    place = (run.suite.slug, run.number)
    return table_display(
        query,
        [name for name in usual if has.get(name, 0) is not None],
        [(HEADINGS[Source.CASE], of_result), *own],
        unknown=unknown_names(run, query),
        sorts=[name for name in COLUMNS if name not in UNSORTABLE],
        moves=(up, down),
        first=[ATTENTION],
        groupings=[
            (HEADINGS[Source.CASE], tuple(GROUP_LABELS.items())),
            *(
                (heading, [(column.name, column.label) for column in columns])
                for heading, columns in own
                if heading == HEADINGS[Source.METADATA]
            ),
        ],
        page_url=reverse("runs:run", args=place),
        url=reverse("runs:run-results", args=place),
        here=reverse("runs:run-display", args=place),
        target="run-results",
    )


def table_display(
    query: Any,
    usual: Sequence[str],
    offered: Sequence[tuple[str, Sequence[Column]]],
    *,
    unknown: Sequence[str],
    sorts: Collection[str],
    moves: tuple[str, str],
    columns: Mapping[str, Column] = COLUMNS,
    first: Named = (),
    groupings: Sequence[tuple[str, Named]] = (),
    **places: str,
) -> TableDisplay:
    """Return the choices for a table that offers columns under headings, after one was moved up or another down.

    The `columns` of every such table sort where `sorts` names them, those of evaluators, metrics and dimensions
    always; `first` are orders that no column has the name of.
    """
    names = [name for name in query.columns or usual if name not in unknown]
    if "case" not in names:
        names.insert(0, "case")
    up, down = moves
    _move(names, up, -1)
    _move(names, down, 1)
    orders = [
        (
            heading,
            [
                (column.name, column.label)
                for column in listed
                if column.name in sorts or column.name.startswith(FAMILIES)
            ],
        )
        for heading, listed in offered
    ]
    orders[0] = (orders[0][0], [*first, *orders[0][1]])
    return TableDisplay(
        query=query,
        chosen=[column for name in names if (column := find_column(name, columns))],
        others=[
            (heading, rest)
            for heading, listed in offered
            if (rest := [column for column in listed if column.name not in names])
        ],
        sorts=[(heading, options) for heading, options in orders if options],
        groupings=groupings,
        usual=",".join(usual),
        unknown=unknown,
        **places,
    )


def _move(names: list[str], name: str, by: int) -> None:
    if name in names and 0 <= names.index(name) + by < len(names):
        at = names.index(name)
        names[at], names[at + by] = names[at + by], names[at]


def own_columns(*runs: Run) -> Sequence[tuple[str, Sequence[Column]]]:
    """Return under headings the columns that only some runs can show: evaluators, their parts, and metadata."""
    found: dict[Source, list[Column]] = {source: [] for source in HEADINGS}
    for field in run_vocabulary(*runs).own_fields:
        if field.source in OWN_SOURCES:
            found[field.source].append(own_column(f"{field.source}.{field.key}", field))
    found[Source.METADATA] = [
        column for key in metadata_keys(*runs) if (column := find_column(METADATA + key))
    ]
    return [(HEADINGS[source], columns) for source, columns in found.items() if columns]


def metadata_keys(*runs: Run) -> Sequence[str]:
    """Return the keys that the metadata of the runs' cases have values for, in order, at most 30."""
    of_runs = RunCase.objects.filter(run__in=runs).order_by()
    cases = Case.objects.filter(pk__in=of_runs.values("case_id")).order_by()
    lists = cases.values_list("metadata", flat=True)
    return sorted(plain_keys(lists))[:MAX_KEYS]


def plain_keys(cases: Iterable[Any]) -> set[str]:
    """Return the keys of cases' metadata, without those that hold nothing, objects, or lists of such everywhere."""
    found: set[str] = set()
    for metadata in cases:
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            if key not in found and (isinstance(value, str) or _is_plain(value)):
                found.add(key)
    return found


def plain_texts(value: Any) -> Sequence[str]:
    """Return the values under a key of metadata as texts, none for a key that `plain_keys` leaves out."""
    if isinstance(value, str):
        return (value,)
    if not _is_plain(value):
        return ()
    values = value if isinstance(value, list) else [value]
    return [entry if isinstance(entry, str) else json.dumps(entry) for entry in values]


def _is_plain(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return not any(isinstance(entry, (dict, list)) or entry is None for entry in values)

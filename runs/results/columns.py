"""The columns that a table of a run's results can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runs.filters.fields import Field, Kind, Source, find_field
from runs.lists import HeadCell


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `shape` says how its cells are drawn, `head` is None where it cannot sort."""

    name: str
    label: str
    shape: str
    title: str = ""
    head: HeadCell | None = None

    @property
    def is_number(self) -> bool:
        """Tell whether its cells are numbers."""
        return self.shape in NUMBERS


NUMBERS = ("score", "spread", "share", "points", "percent", "duration", "money", "count")
COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column("verdict", "Verdict", "verdict"),
        Column("case", "Case", "case"),
        Column("score", "Score", "score"),
        Column("spread", "Spread", "spread", "Highest − lowest score of the repetitions"),
        Column("metrics", "Metrics", "percent", "Weighted score of the 0–5 metrics"),
        Column("outcomes", "Outcomes", "outcomes", "Expected outcomes that were met"),
        Column("why", "Why", "why", "What decided the verdict"),
        Column("repetitions", "Repetitions", "repetitions"),
        Column("tag", "Tags", "tags"),
        Column("latency", "Latency", "duration", "Time of the target"),
        Column("cost", "Cost", "money", "Target cost + judge cost"),
        Column("target_cost", "Target cost", "money"),
        Column("judge_cost", "Judge cost", "money"),
        Column("tokens", "Tokens", "count", "Input and output tokens of the target"),
        Column("tool", "Tools", "names", "Tools that were called"),
        Column("error", "Error stage", "names", "Stage in which a repetition had an error"),
        Column("review", "Review", "names"),
        Column("attempts", "Attempts", "count"),
    )
}
USUAL = (
    *("verdict", "case", "score", "spread", "metrics", "outcomes", "why", "repetitions", "tag"),
    *("latency", "cost"),
)
OF_REPETITIONS = ("spread", "repetitions")


def find_column(name: str) -> Column | None:
    """Return the column of a name: one of every run, or that of an evaluator, metric, dimension or metadata key."""
    if name in COLUMNS:
        return COLUMNS[name]
    field = find_field(name)
    return None if field is None or field.source == Source.CASE else own_column(name, field)


def own_column(name: str, field: Field) -> Column:
    """Return the column of an evaluator, metric, dimension or metadata key."""
    shape = {Kind.SHARE: "share", Kind.POINTS: "points"}.get(field.kind, "names")
    return Column(
        name, field.key.rpartition("/")[2], shape, f"{str(field.source).capitalize()} {field.key}"
    )

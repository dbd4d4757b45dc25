"""What a filter can ask about: the fields of every case, and the evaluators, metrics and dimensions of a run.

`check` reads the values of a filter and refuses what no case could have: unknown fields, values of another type,
changes where nothing is compared.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from evaluators.kinds.pairwise import INCONCLUSIVE, SCORES
from runs.filters.language import (
    All,
    Condition,
    Direction,
    FieldChange,
    FieldComparison,
    FilterError,
    Not,
    Operator,
    QuotedValue,
    Some,
    Tree,
    Words,
    read_filter,
)
from runs.summary.cases import STATES
from runs.words import words

# A text may be searched in all texts of a run.
MAX_TEXTS = 20
# A longer name is compared with others character by character for too long.
MAX_GUESSED_LENGTH = 60
NOTHING, MARK = "none", "mark"
METADATA = "meta."
EQUALITY = (Operator.EQUAL, Operator.UNEQUAL)


class ValueKind(StrEnum):
    """What the values of a field are."""

    SHARE = "share"
    POINTS = "points"
    MONEY = "money"
    DURATION = "duration"
    COUNT = "count"
    CHOICE = "choice"
    NAME = "name"
    TEXT = "text"


class Source(StrEnum):
    """Where the figures of a field come from."""

    CASE = "case"
    METADATA = "metadata"
    EVALUATOR = "evaluator"
    METRIC = "metric"
    DIMENSION = "dimension"
    EXTERNAL = "external"
    PAIRWISE = "pairwise"


OWN_SOURCES = (Source.EVALUATOR, Source.METRIC, Source.DIMENSION, Source.EXTERNAL)
SHARES = (Source.EVALUATOR, Source.EXTERNAL)


@dataclass(frozen=True, slots=True)
class Field:
    """Something that a filter can ask about.

    `key` is its column, the path of an evaluator, or the key of a metric, a dimension or metadata. A field that
    `can_change` has a figure, or a verdict, in both of two runs that are compared. `mark` stands for the `pass_mark`
    of an evaluator that has one.
    """

    name: str
    kind: ValueKind
    help: str = ""
    source: Source = Source.CASE
    key: str = ""
    choices: tuple[str, ...] = ()
    can_change: bool = False
    # A field with another mark is the same field.
    pass_mark: float | None = field(default=None, compare=False)

    @property
    def is_number(self) -> bool:
        """Tell whether its values are numbers."""
        return self.kind in FORMS

    @property
    def values(self) -> str:
        """Return what it can be compared with, in words."""
        written = ", ".join(self.choices) or EXAMPLES[self.kind]
        if self.pass_mark is not None:
            written = f"{written}, {MARK} ({self.pass_mark:g})"
        return f"{written}, {NOTHING}" if self.has_none else written

    @property
    def has_none(self) -> bool:
        """Tell whether a case can be without a value, which `none` asks for."""
        return self.is_number or (self.kind == ValueKind.NAME and self.key != "key")


@dataclass(frozen=True, slots=True)
class Test:
    """A field compared with values of its kind; None stands for no value."""

    __test__ = False

    field: Field
    operator: Operator
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """A field that fell, rose or changed by at least `by`; None for any change."""

    field: Field
    direction: Direction
    by: float | None = None


# A filter after `check`: conditions with these in place of comparisons and changes.
Checked: TypeAlias = "Tree[Words | Test | ChangeTest]"

# How a value is written.
EXAMPLES: Mapping[ValueKind, str] = {
    ValueKind.SHARE: "0.5 or 50%",
    ValueKind.POINTS: "3.5",
    ValueKind.MONEY: "$0.01",
    ValueKind.DURATION: "3s, 300ms or 2min",
    ValueKind.COUNT: "1000 or 1k",
    ValueKind.NAME: "a name",
    ValueKind.TEXT: "words, or the beginnings of words",
}
NUMBER = r"(?P<number>-?(?:\d+\.?\d*|\.\d+))"
FORMS: Mapping[ValueKind, tuple[re.Pattern[str], Mapping[str, str]]] = {
    ValueKind.SHARE: (re.compile(NUMBER + "(?P<unit>%?)"), {"": "1", "%": "0.01"}),
    ValueKind.POINTS: (re.compile(NUMBER + "(?P<unit>)"), {"": "1"}),
    ValueKind.MONEY: (re.compile(r"\$?" + NUMBER + "(?P<unit>)"), {"": "1"}),
    # In milliseconds; without a unit seconds, as pages show them.
    ValueKind.DURATION: (
        re.compile(NUMBER + "(?P<unit>ms|s|min|)"),
        {"ms": "1", "s": "1000", "min": "60000", "": "1000"},
    ),
    ValueKind.COUNT: (re.compile(NUMBER + "(?P<unit>k?)"), {"": "1", "k": "1000"}),
}
REVIEWS = ("waiting", "decided", "changed", "none")
BUILT_IN = (
    Field("verdict", ValueKind.CHOICE, "verdict of the case, or why it has none", key="state", choices=STATES, can_change=True),
    Field("score", ValueKind.SHARE, "final score; mean of the repetitions", key="score", can_change=True),
    Field("tag", ValueKind.NAME, "tag of the case", key="tags"),
    Field("case", ValueKind.NAME, "ID of the case", key="key"),
    Field("spread", ValueKind.SHARE, "highest − lowest score of the repetitions", key="spread"),
    Field("metrics", ValueKind.SHARE, "weighted score of the 0–5 metrics", key="metrics_score", can_change=True),
    Field("outcomes", ValueKind.SHARE, "share of the expected outcomes that were met", key="outcome_share", can_change=True),
    Field("met", ValueKind.TEXT, "an expected outcome that was met", key="met"),
    Field("missed", ValueKind.TEXT, "an expected outcome that was missed", key="missed"),
    Field("passes", ValueKind.COUNT, "number of repetitions that passed", key="passed"),
    Field("flaky", ValueKind.CHOICE, "whether repetitions got different verdicts", key="is_flaky", choices=("yes", "no")),
    Field("latency", ValueKind.DURATION, "time of the target; mean of the repetitions", key="latency_ms", can_change=True),
    Field("cost", ValueKind.MONEY, "target cost + judge cost of all repetitions", key="cost", can_change=True),
    Field("target_cost", ValueKind.MONEY, "cost of the target", key="run_cost_usd", can_change=True),
    Field("judge_cost", ValueKind.MONEY, "cost of the judges", key="evaluation_cost_usd", can_change=True),
    Field("tokens", ValueKind.COUNT, "input and output tokens of the target", key="tokens", can_change=True),
    Field("error", ValueKind.NAME, "stage in which a repetition had an error, or any", key="error_stage"),
    Field("tool", ValueKind.NAME, "tool that was called", key="tool"),
    Field("review", ValueKind.CHOICE, "in the review queue, decided, or decided differently", key="review", choices=REVIEWS),
    Field("title", ValueKind.TEXT, "title of the case", key="title"),
    Field("input", ValueKind.TEXT, "input of the case", key="input"),
    Field("expected", ValueKind.TEXT, "expected output or an expected outcome of the case", key="expected"),
    Field("output", ValueKind.TEXT, "answer of the target", key="output"),
    Field("reasoning", ValueKind.TEXT, "reasoning of the evaluators", key="reasoning"),
)  # fmt: skip

LAST_VERDICTS = ("pass", "borderline", "fail", "error", NOTHING)
# What can be asked about a case that is not part of a run.
CASE_FIELDS = (
    Field("verdict", ValueKind.CHOICE, "verdict in the latest completed run", key="state", choices=LAST_VERDICTS),
    *(field for field in BUILT_IN if field.key in ("tags", "key", "title", "input", "expected")),
)  # fmt: skip


BY_NAME: Mapping[str, Field] = {field.name: field for field in BUILT_IN}


def find_field(name: str) -> Field | None:
    """Return the field of a column or an order, which names the source: `evaluator.safety/tone`, `metric.tone`.

    Whether a run has it is for the caller to find out. Fields of every case are named as in filters.
    """
    source, _, key = name.partition(".")
    if key and source in OWN_SOURCES:
        kind = ValueKind.SHARE if source in SHARES else ValueKind.POINTS
        return _own(key, Source(source), kind)
    if name.startswith(METADATA) and len(name) > len(METADATA):
        return Field(name, ValueKind.NAME, source=Source.METADATA, key=name.removeprefix(METADATA))
    return BY_NAME.get(name)


def _plain(name: str) -> str:
    """Return a name as it is compared: capitals, spaces and dashes make no difference."""
    return re.sub(r"[\s_-]+", "_", name.casefold())


@dataclass(frozen=True)
class Vocabulary:
    """The fields that can be asked about: those of every case, and those of a suite.

    `evaluators` are paths in the tree, without the root; of these `pairwise` compare outputs with a baseline's, and
    `pass_marks` are the marks of those that have one. `compares` tells whether there is a second run. `hint` ends the
    refusal of a name: what can be asked, where that is not everything.
    """

    fields: Sequence[Field] = BUILT_IN
    hint: str = ""
    evaluators: Sequence[str] = ()
    pass_marks: Mapping[str, float] = field(default_factory=dict)
    metrics: Sequence[str] = ()
    dimensions: Sequence[str] = ()
    external: Sequence[str] = ()
    pairwise: Sequence[str] = ()
    compares: bool = False
    suggested: Mapping[str, Collection[str]] = field(default_factory=dict)

    @cached_property
    def own_fields(self) -> tuple[Field, ...]:
        """Return the fields of the suite; an evaluator is named by its path."""
        return (
            *(
                _own(path, Source.EVALUATOR, ValueKind.SHARE, self.pass_marks.get(path))
                for path in self.evaluators
            ),
            *(_own(key, Source.METRIC, ValueKind.POINTS) for key in self.metrics),
            *(_own(key, Source.DIMENSION, ValueKind.POINTS) for key in self.dimensions),
            *(_own(name, Source.EXTERNAL, ValueKind.SHARE) for name in self.external),
            *(_pair(path) for path in self.pairwise),
        )

    def find(self, name: str) -> Field | str:
        """Return the field of a name, or why there is none.

        Fields of every case come first, then evaluators by path or, where only one has it, by name, then metrics
        and dimensions, and external scores by source/name. `evaluator.`, `metric.`, `dimension.` or `external.`
        before a name leaves the others out; only `pairwise.` asks who won.
        """
        plain = _plain(name)
        for shared in self.fields:
            if _plain(shared.name) == plain:
                return shared
        if name.lower().startswith(METADATA) and len(name) > len(METADATA):
            key = name[len(METADATA) :]
            return Field(name, ValueKind.NAME, source=Source.METADATA, key=key)
        source, _, rest = plain.partition(".")
        own: Iterable[Field] = self.own_fields
        if rest and source in [*Source]:
            own, plain = [field for field in own if field.source == source], rest
        return self._own_field(name, plain, tuple(own))

    def _own_field(self, name: str, plain: str, own: Sequence[Field]) -> Field | str:
        exact = [field for field in own if _plain(field.key) == plain]
        if exact:
            return exact[0]
        named = [field for field in own if _plain(field.key.rpartition("/")[2]) == plain]
        # A score that another tool pushes must not change what a filter means.
        less = [field for field in named if field.source not in (Source.EXTERNAL, Source.PAIRWISE)]
        last = less or [field for field in named if field.source != Source.PAIRWISE] or named
        if len(last) > 1:
            paths = " or ".join(field.key for field in last)
            what = "external scores" if last[0].source == Source.EXTERNAL else "evaluators"
            return f"{len(last)} {what} are named “{name}”. Write {paths}."
        if last:
            return last[0]
        known = {_plain(field.name): field.name for field in (*self.fields, *own)}
        known |= {_plain(field.key.rpartition("/")[2]): field.name for field in own}
        near: list[str] = []
        if len(plain) <= MAX_GUESSED_LENGTH:
            guesses = [guess for guess in known if len(guess) <= MAX_GUESSED_LENGTH]
            near = difflib.get_close_matches(plain, guesses, n=1, cutoff=0.6)
        meant = f" Did you mean {known[near[0]]}?" if near else ""
        if self.hint:
            return f"“{name}” cannot be used here.{meant} {self.hint}"
        return f"There is no field, evaluator, metric or dimension “{name}” here.{meant}"


CASE_VOCABULARY = Vocabulary(
    fields=CASE_FIELDS,
    hint=f"Of a case ask for {', '.join(field.name for field in CASE_FIELDS)} or meta.…; "
    "filter a run by scores, costs and answers.",
)


@lru_cache(maxsize=1024)
def field_filter(source: Source, name: str, operator: Operator, value: float) -> str:
    """Return the filter that compares an evaluator, metric or dimension, as it is typed: `tone < 0.8`."""
    is_taken = any(_plain(built_in.name) == _plain(name) for built_in in BUILT_IN)
    is_taken = is_taken or name.lower().startswith(METADATA)
    own = f"{source}.{name}" if is_taken or source != Source.EVALUATOR else name
    return str(FieldComparison(own, operator, (f"{value:.12g}",)))


def _own(key: str, source: Source, kind: ValueKind, pass_mark: float | None = None) -> Field:
    description = "external score" if source == Source.EXTERNAL else f"score of the {source}"
    return Field(key, kind, description, source, key, can_change=True, pass_mark=pass_mark)


def _pair(path: str) -> Field:
    """Return the field that asks who won by an evaluator."""
    won = "against the baseline, in any repetition"
    verdicts = (*SCORES, INCONCLUSIVE)
    return Field(f"pairwise.{path}", ValueKind.CHOICE, won, Source.PAIRWISE, path, verdicts)


def read_checked(text: str, vocabulary: Vocabulary) -> Checked:
    """Read a filter and check it; raises FilterError, which then has the text."""
    try:
        checked = check(read_filter(text), vocabulary)
        if _count_texts(checked) > MAX_TEXTS:
            raise FilterError(f"A filter searches for at most {MAX_TEXTS} texts.", 0, len(text))
    except FilterError as error:
        error.text = text
        raise
    return checked


def _count_texts(condition: Checked) -> int:
    if isinstance(condition, Not):
        return _count_texts(condition.condition)
    if isinstance(condition, All | Some):
        return sum(map(_count_texts, condition.conditions))
    if isinstance(condition, Test):
        return len(condition.values) if condition.field.kind == ValueKind.TEXT else 0
    return int(isinstance(condition, Words))


def check(condition: Condition, vocabulary: Vocabulary) -> Checked:
    """Return a filter with its fields found and its values read; raises FilterError at the first that cannot be."""
    if isinstance(condition, Not):
        return Not(check(condition.condition, vocabulary))
    if isinstance(condition, All):
        return All(tuple(check(part, vocabulary) for part in condition.conditions))
    if isinstance(condition, Some):
        return Some(tuple(check(part, vocabulary) for part in condition.conditions))
    if isinstance(condition, Words):
        if not words(condition.text):
            message = f"“{condition.text}” has no letter or digit to look for."
            raise FilterError(message, condition.start, condition.end)
        return condition
    found = vocabulary.find(condition.field)
    if isinstance(found, str):
        raise FilterError(found, condition.start, condition.start + len(condition.field))
    try:
        if isinstance(condition, FieldChange):
            return _change(condition, found, vocabulary)
        return _test(condition, found)
    except ValueError as error:
        raise FilterError(str(error), condition.start, condition.end) from error


def _test(condition: FieldComparison, found: Field) -> Test:
    if not found.is_number and condition.operator not in EQUALITY:
        raise ValueError(
            f"{found.name} is not a number. Write {found.name} = … or {found.name} != …."
        )
    read = _reader(found)
    values = tuple(
        None
        if found.has_none and value.lower() == NOTHING and not isinstance(value, QuotedValue)
        else read(value)
        for value in condition.values
    )
    if None in values and condition.operator not in EQUALITY:
        raise ValueError(f"“{NOTHING}” is not a number. Write {found.name} = {NOTHING}.")
    return Test(found, condition.operator, values)


def _change(condition: FieldChange, found: Field, vocabulary: Vocabulary) -> ChangeTest:
    if not vocabulary.compares:
        raise ValueError(f"“{condition}” needs two runs: use it in a comparison.")
    if not found.can_change:
        raise ValueError(f"{found.name} is the same in both runs, or has no order.")
    by = None
    if condition.by:
        if not found.is_number:
            raise ValueError(f"{found.name} is not a number, so it cannot change by an amount.")
        by = _reader(found)(condition.by)
        if by <= 0:
            raise ValueError("Write a number above 0 after “by”.")
    return ChangeTest(found, condition.direction, by)


def _reader(found: Field) -> Callable[[str], Any]:
    if found.is_number:
        return lambda value: _number(found, value)
    if found.kind == ValueKind.CHOICE:
        return lambda value: _choice(found, value)
    return lambda value: _text(found, value)


def _number(found: Field, value: str) -> float:
    if value.lower() == MARK and found.source == Source.EVALUATOR:
        if found.pass_mark is None:
            raise ValueError(f"{found.name} has no pass mark here. Write a score, such as 0.5.")
        return found.pass_mark
    pattern, units = FORMS[found.kind]
    match = pattern.fullmatch(value.lower())
    # Exactly, so that 70% is the same as 0.7.
    exact = Decimal(match["number"]) * Decimal(units[match["unit"]]) if match else Decimal("nan")
    number = float(exact)
    if not math.isfinite(number):
        raise ValueError(
            f"“{value}” is not a value of {found.name}. Write it as {EXAMPLES[found.kind]}."
        )
    return number


def _choice(found: Field, value: str) -> str:
    if value.lower() not in found.choices:
        raise ValueError(f"{found.name} is one of {', '.join(found.choices)}, not “{value}”.")
    return value.lower()


def _text(found: Field, value: str) -> str:
    if found.kind == ValueKind.TEXT and not words(value):
        raise ValueError(f"“{value}” has no letter or digit that {found.name} could contain.")
    return value

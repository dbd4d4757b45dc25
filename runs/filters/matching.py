"""Which cases match a filter: sets of cases in, a set of cases out.

A condition is about a case over its repetitions: figures are their means, costs and tokens their sums; a text, a tool or
an error counts if any repetition has it. Numbers compare only where there is one: `score != 0.5` leaves out the cases
without a score, which `not score = 0.5` lists. Of names and texts `!=` is the opposite of `=`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Set
from typing import Any, Protocol

from runs.filters.fields import ChangeTest, Checked, Field, Kind, Test
from runs.filters.language import All, Direction, Not, Operator, Some, Words

# Figures are stored and shown with fewer digits; a difference below is no change.
TOLERANCE = 1e-9
COMPARE: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: lambda value, wanted: abs(value - wanted) <= TOLERANCE,
    Operator.UNEQUAL: lambda value, wanted: abs(value - wanted) > TOLERANCE,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.MORE: operator.gt,
    Operator.AT_LEAST: operator.ge,
}
VERDICTS = {"fail": 0.0, "borderline": 1.0, "pass": 2.0}


class Cases(Protocol):
    """The cases of a run by any key of theirs, with their values."""

    @property
    def keys(self) -> Set[int]:
        """Return all cases."""

    def values(self, field: Field) -> Mapping[int, Any]:
        """Return the value of each case that has one: a number, a choice, or the names that it has."""

    def before(self, field: Field) -> Mapping[int, Any]:
        """Return the values of the same cases in the run that changes are against."""

    def containing(self, text: str, field: Field | None) -> Set[int]:
        """Return the cases with a text in a field; None stands for all texts of a case."""


def matching(condition: Checked, cases: Cases) -> Set[int]:
    """Return the cases that match a filter."""
    match condition:
        case All(conditions):
            found = cases.keys
            for part in conditions:
                found = found & matching(part, cases)
            return found
        case Some(conditions):
            return frozenset().union(*(matching(part, cases) for part in conditions))
        case Not(opposite):
            return cases.keys - matching(opposite, cases)
        case Words(text):
            return cases.containing(text, None)
        case Test():
            return _tested(condition, cases)
        case ChangeTest():
            return _changed(condition, cases)


def _tested(test: Test, cases: Cases) -> Set[int]:
    is_unequal = test.operator == Operator.UNEQUAL
    found: Set[int]
    if test.field.kind == Kind.TEXT:
        found = frozenset().union(*(cases.containing(text, test.field) for text in test.values))
        return cases.keys - found if is_unequal else found
    values = cases.values(test.field)
    wanted = [value for value in test.values if value is not None]
    missing = cases.keys - values.keys() if None in test.values else frozenset()
    if not test.field.is_number:
        found = {key for key, names in values.items() if not names.isdisjoint(wanted)} | missing
        return cases.keys - found if is_unequal else found
    holds, every = COMPARE[test.operator], all if is_unequal else any
    found = {key for key, value in values.items() if every(holds(value, one) for one in wanted)}
    return found if is_unequal else found | missing


def _changed(test: ChangeTest, cases: Cases) -> Set[int]:
    before, after = cases.before(test.field), cases.values(test.field)
    least = TOLERANCE if test.by is None else test.by - TOLERANCE
    found = set()
    for key in before.keys() & after.keys():
        change = _change(before[key], after[key])
        if test.direction == Direction.CHANGED:
            holds = abs(change) > TOLERANCE and abs(change) >= least
        else:
            holds = (change if test.direction == Direction.ROSE else -change) >= least
        if holds and abs(change) > TOLERANCE:
            found.add(key)
    return found


def _change(before: Any, after: Any) -> float:
    """Return the difference of two numbers, or of two verdicts by their order; 0 where one is no verdict."""
    if isinstance(before, float | int):
        return float(after - before)
    [earlier], [later] = before, after
    if earlier in VERDICTS and later in VERDICTS:
        return VERDICTS[later] - VERDICTS[earlier]
    return 0.0

"""Figures of groups of cases, such as those with a tag: each as the summary of a run has it (SCORING §8)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from typing import Any

from evaluators.scoring.numbers import mean, rounded, sum_known
from runs.summary.run import pass_interval


# Not frozen, as ExecutionRecord.
@dataclass(slots=True)
class GroupedCase:
    """A case of a run over its repetitions, with the `names` of its groups, none for those without.

    `passed` of `counted` executions passed, and `errors` ended without a verdict. `scores` and `latencies` are
    sums with the number of executions that have one. `values` are the case's own figures by column.
    """

    names: Sequence[str]
    state: str
    executions: int
    counted: int
    passed: int
    errors: int
    scores: tuple[float, int] = (0.0, 0)
    latencies: tuple[float, int] = (0.0, 0)
    target_usd: Decimal | None = None
    judge_usd: Decimal | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A column over a group: the mean or the sum of the `known` cases that have a value, None without any."""

    value: Any
    known: int


@dataclass
class GroupFigures:
    """The cases of one group; its `name` is None for those that have none.

    `passed` of `counted` executions passed: the `pass_rate` is None while nothing has ended, and an error has not
    passed. Of all executions, `scored` decide the mean score. The other figures are computed when they are asked
    for: of ten thousand groups a page shows a hundred. `sums` are the columns that are added up, others are
    averaged. `seed` fixes the bootstrap.
    """

    name: str | None
    members: Sequence[GroupedCase]
    passed: int
    counted: int
    pass_rate: float | None
    mean_score: float | None
    scored: int
    sums: Sequence[str]
    seed: int

    @property
    def cases(self) -> int:
        """Return how many cases are in the group."""
        return len(self.members)

    @cached_property
    def states(self) -> Mapping[str, int]:
        """Return the number of cases by state."""
        return Counter(case.state for case in self.members)

    @cached_property
    def executions(self) -> int:
        """Return how many executions the cases have."""
        return sum(case.executions for case in self.members)

    @property
    def errors(self) -> int:
        """Return how many ended without a verdict."""
        return sum(case.errors for case in self.members)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval of the pass rate."""
        return pass_interval([(case.passed, case.counted) for case in self.members], self.seed)

    @property
    def latency_ms(self) -> float | None:
        """Return the mean latency of the `timed` executions."""
        return _mean(*_total([case.latencies for case in self.members]))

    @cached_property
    def timed(self) -> int:
        """Return how many executions have a latency."""
        return sum(count for _, count in (case.latencies for case in self.members))

    @cached_property
    def target_usd(self) -> Decimal | None:
        """Return the sum of the known target costs."""
        return sum_known(case.target_usd for case in self.members)

    @cached_property
    def judge_usd(self) -> Decimal | None:
        """Return the sum of the known judge costs."""
        return sum_known(case.judge_usd for case in self.members)

    @property
    def cost_usd(self) -> Decimal | None:
        """Return target cost + judge cost, None when neither is known."""
        return sum_known((self.target_usd, self.judge_usd))

    @property
    def values(self) -> Mapping[str, GroupValue]:
        """Return the columns."""
        return {
            name: _value([case.values[name] for case in self.members], is_sum=name in self.sums)
            for name in self.members[0].values
        }


def group_cases(cases: Iterable[GroupedCase]) -> Mapping[str | None, Sequence[GroupedCase]]:
    """Return the cases of each group; a case counts in each of its groups."""
    groups: dict[str | None, list[GroupedCase]] = defaultdict(list)
    for case in cases:
        for name in dict.fromkeys(case.names) or (None,):
            groups[name].append(case)
    return groups


def group_figures(
    name: str | None, cases: Sequence[GroupedCase], *, sums: Sequence[str], seed: int
) -> GroupFigures:
    """Return the figures of one group of at least one case; columns in `sums` are added up, others averaged."""
    passed, counted = sum([case.passed for case in cases]), sum([case.counted for case in cases])
    total, scored = _total([case.scores for case in cases])
    return GroupFigures(
        name=name,
        members=cases,
        passed=passed,
        counted=counted,
        pass_rate=_mean(passed, counted),
        mean_score=_mean(total, scored),
        scored=scored,
        sums=sums,
        seed=seed,
    )


def _total(parts: Sequence[tuple[float, int]]) -> tuple[float, int]:
    return math.fsum(total for total, _ in parts), sum(count for _, count in parts)


def _mean(total: float, count: int) -> float | None:
    return rounded(total / count) if count else None


def _value(values: Sequence[Any], *, is_sum: bool) -> GroupValue:
    known = [value for value in values if value is not None]
    if not known:
        return GroupValue(None, 0)
    return GroupValue(sum(known) if is_sum else mean(known), len(known))


def sorted_groups(
    groups: Iterable[GroupFigures],
    figure: Callable[[GroupFigures], Any],
    *,
    is_descending: bool = False,
) -> Sequence[GroupFigures]:
    """Return groups by a figure, those without it last. Equal ones begin with the worst: see `_worst_first`."""
    found = [(figure(group), group) for group in sorted(groups, key=_worst_first)]
    known = [pair for pair in found if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=is_descending)
    rest = (group for value, group in found if value is None)
    return [*(group for _, group in known), *rest]


def _worst_first(group: GroupFigures) -> tuple[float, float, int, str]:
    """Return the place of a group: the lowest pass rate, then the lowest mean score, then the most cases."""
    return (
        math.inf if group.pass_rate is None else group.pass_rate,
        -1.0 if group.mean_score is None else group.mean_score,
        -group.cases,
        group.name or "",
    )

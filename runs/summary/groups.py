"""Figures of groups of cases, such as those with a tag: each as the summary of a run has it (SCORING §8)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import mean, rounded, sum_known
from runs.summary.run import pass_interval


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The cases of one group; its `name` is None for those that have none.

    `rates` has for each case how many executions passed, and of how many. Of all `executions`, `scored` decide the
    mean score and `timed` the mean latency. Costs are sums of the known ones. `seed` fixes the bootstrap.
    """

    name: str | None
    cases: int
    states: Mapping[str, int]
    executions: int
    rates: Sequence[tuple[int, int]]
    errors: int
    mean_score: float | None
    scored: int
    latency_ms: float | None
    timed: int
    target_usd: Decimal | None
    judge_usd: Decimal | None
    values: Mapping[str, GroupValue]
    seed: int

    @property
    def passed(self) -> int:
        """Return how many executions passed."""
        return sum(passed for passed, _ in self.rates)

    @property
    def counted(self) -> int:
        """Return of how many executions."""
        return sum(counted for _, counted in self.rates)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval of the pass rate; it takes too long to be asked of thousands of groups at once."""
        return pass_interval(self.rates, self.seed)

    @property
    def pass_rate(self) -> float | None:
        """Return the share that passed; an error has not passed. None while nothing has ended."""
        return rounded(self.passed / self.counted) if self.counted else None

    @property
    def cost_usd(self) -> Decimal | None:
        """Return target cost + judge cost, None when neither is known."""
        return sum_known((self.target_usd, self.judge_usd))


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
    scores, latencies = [_total([getattr(c, n) for c in cases]) for n in ("scores", "latencies")]
    return GroupFigures(
        name=name,
        cases=len(cases),
        states=Counter(case.state for case in cases),
        executions=sum(case.executions for case in cases),
        rates=[(case.passed, case.counted) for case in cases],
        errors=sum(case.errors for case in cases),
        mean_score=_mean(*scores),
        scored=scores[1],
        latency_ms=_mean(*latencies),
        timed=latencies[1],
        target_usd=sum_known(case.target_usd for case in cases),
        judge_usd=sum_known(case.judge_usd for case in cases),
        values={
            column: _value([case.values[column] for case in cases], is_sum=column in sums)
            for column in cases[0].values
        },
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
    worst = sorted(groups, key=_worst_first)
    known = [group for group in worst if figure(group) is not None]
    rest = [group for group in worst if figure(group) is None]
    return [*sorted(known, key=figure, reverse=is_descending), *rest]


def _worst_first(group: GroupFigures) -> tuple[float, float, int, str]:
    """Return the place of a group: the lowest pass rate, then the lowest mean score, then the most cases."""
    return (
        math.inf if group.pass_rate is None else group.pass_rate,
        -1.0 if group.mean_score is None else group.mean_score,
        -group.cases,
        group.name or "",
    )

"""Sums of what was consumed."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import TypeVar

from evaluators.scoring.types import Usage

Number = TypeVar("Number", int, Decimal)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum; a figure only one side knows stays, one that neither knows is None."""
    return Usage(
        input_tokens=_sum(first.input_tokens, second.input_tokens),
        output_tokens=_sum(first.output_tokens, second.output_tokens),
        cost_usd=_sum(first.cost_usd, second.cost_usd),
        latency_ms=_sum(first.latency_ms, second.latency_ms),
        calls=first.calls + second.calls,
    )


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of all; nothing is known of none."""
    return reduce(add_usage, usages, Usage())


def _sum(first: Number | None, second: Number | None) -> Number | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second

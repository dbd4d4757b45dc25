"""A run's cap on spending, looked at before each call and never counted as a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.judging.limits import Limiter
from evaluators.judging.specs import ModelSpec


@dataclass(slots=True)
class Budget:
    """What the run may spend and what it has.

    `booked` is the ledger's sum over all hands as last read, `unbooked` what this hand has spent
    since and not yet written.
    """

    cap: Decimal | None
    booked: Decimal = Decimal(0)
    unbooked: Decimal = Decimal(0)
    was_reached: bool = False

    def is_spent(self) -> bool:
        """Tell whether nothing is left, and remember it."""
        if self.cap is not None and self.booked + self.unbooked >= self.cap:
            self.was_reached = True
        return self.was_reached

    def in_words(self) -> str:
        """Return cap and spending for a reader."""
        cap = f"${self.cap.normalize():f}" if self.cap is not None else "no limit"
        spent = (self.booked + self.unbooked).normalize()
        return f"${spent:f} of {cap} is spent."


class CountingLimiter(Limiter):
    """A limiter that counts in `in_use`, by model, the calls in flight."""

    def __init__(self, in_use: Counter[str], **ports: Any) -> None:
        """Count here."""
        super().__init__(**ports)
        self._in_use = in_use

    @asynccontextmanager
    async def slot(self, spec: ModelSpec) -> AsyncIterator[float]:
        """Wait for a slot as the limiter does."""
        async with super().slot(spec) as started_at:
            self._in_use[spec.slug] += 1
            try:
                yield started_at
            finally:
                self._in_use[spec.slug] -= 1

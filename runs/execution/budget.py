"""A run's cap on spending, looked at before each call and never counted as a failure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


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

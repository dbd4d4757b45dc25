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

    @property
    def is_used_up(self) -> bool:
        """Tell whether nothing is left for another call."""
        return self.cap is not None and self.booked + self.unbooked >= self.cap

    def is_spent(self) -> bool:
        """Tell a call that nothing is left for it, and remember that one was refused."""
        self.was_reached = self.was_reached or self.is_used_up
        return self.was_reached

    def in_words(self) -> str:
        """Return cap and spending for a reader."""
        cap = f"${self.cap.normalize():f}" if self.cap is not None else "no limit"
        spent = (self.booked + self.unbooked).normalize()
        return f"${spent:f} of {cap} is spent."

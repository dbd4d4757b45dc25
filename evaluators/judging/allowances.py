"""What one process was granted of a model's minute, and what it made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluators.judging.minutes import LET_IN_S
from evaluators.judging.sharing import Starts

NEVER = float("-inf")
# Starts that others give back come free before the time they were promised for.
LOOK_AGAIN_S = 10.0


@dataclass(slots=True)
class Allowance:
    """The starts this process was granted in a model's minute.

    `used` are grants of which something is left over, with the calls that were started.
    """

    left: int = 0
    again_at: float = NEVER
    used: dict[int, int] = field(default_factory=dict)
    _grant: int = 0
    _started: int = 0
    _asked_at: float = NEVER
    _until: float = NEVER

    def has_left(self, now: float) -> bool:
        """Tell whether a call may start."""
        return self.left > 0 and now < self._until

    def start(self) -> None:
        """Use one."""
        self.left -= 1
        self._started += 1

    def undo(self, *, started_at: float) -> None:
        """Take back a start of which no call came; one of an earlier grant is let go."""
        if started_at >= self._asked_at and self._started:
            self.left += 1
            self._started -= 1

    def settle(self, now: float) -> None:
        """Note what is left over of a grant that is void."""
        if self.left > 0 and now >= self._until:
            self.used[self._grant] = self._started
            self.left = 0

    def taken_used(self, now: float) -> dict[int, int]:
        """Return what is to be given back, once."""
        self.settle(now)
        used, self.used = self.used, {}
        return used

    def wanted(self, could_start: int, now: float) -> int:
        """Return how many starts to ask for: those of now, or twice the block that was used up soon."""
        is_soon = now < self._asked_at + LET_IN_S / 2 and not self.left
        return max(could_start, 2 * self._started if is_soon else 0)

    def take(self, starts: Starts, *, asked_at: float, now: float) -> None:
        """Take what was granted, valid from when it was asked for."""
        self.left, self._started, self._grant = starts.calls, 0, starts.grant
        self._asked_at, self._until = asked_at, asked_at + LET_IN_S
        self.again_at = now + min(starts.wait_s, LOOK_AGAIN_S) if not starts.calls else NEVER
        if starts.calls:
            self.settle(now)

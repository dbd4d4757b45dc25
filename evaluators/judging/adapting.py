"""A limit that falls when the server says so and rises with success."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("-inf")
PROBE = 10


@dataclass(slots=True)
class AdaptiveLimit:
    """How many calls of a model all processes together may have in flight, as this one knows it.

    A 429 halves it, at most once for the calls that were in flight together. A whole window of
    answers earns one more, and PROBE windows what was refused the last time.
    """

    most: int
    now: int
    _cut_at: float = NEVER
    _answers: int = 0
    _refused: int = 0

    def cut(self, *, started_at: float, at: float) -> bool:
        """Halve for a refused call; False when a call started before the last cut says nothing new."""
        if started_at <= self._cut_at or self.now == 1:
            return False
        self.was_cut(at=at)
        self.now = max(1, self.now // 2)
        return True

    def was_cut(self, *, at: float) -> None:
        """Forget what was earned: the limit was lowered, here or by others."""
        self._cut_at, self._answers, self._refused = at, 0, self.now

    def answered(self, *, started_at: float) -> bool:
        """Count an answer; True when a window of them, all begun under this limit, has earned a raise."""
        if self.now >= self.most or started_at <= self._cut_at:
            return False
        self._answers += 1
        windows = PROBE if self.now + 1 == self._refused else 1
        if self._answers < self.now * windows:
            return False
        self._answers = 0
        return True

"""When the decisions of several people on one output are settled, and on what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.scoring.types import Verdict

# From the most to the least severe.
FEWEST_THAT_DIFFER = 3
SEVERITY = (Verdict.FAIL, Verdict.BORDERLINE, Verdict.PASS)
RULE = (
    "When all agree, their verdict counts. When they differ, one more reviewer is asked; then the most "
    "frequent verdict counts, and where none is, the middle one, of two middle ones the more severe."
)


@dataclass(frozen=True, slots=True)
class Settled:
    """What people came to: their verdict, None while `wanted` decisions are not there yet.

    `how` says in a few words how several came to it, "" where one decided.
    """

    verdict: Verdict | None
    wanted: int
    how: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether somebody more is to decide."""
        return self.verdict is None


def settle(decisions: Sequence[Verdict], reviewers: int) -> Settled:
    """Return what the decisions on one output come to when so many reviewers were to look at it.

    All of them agree: their verdict; a single reviewer settles alone. Otherwise one further reviewer is asked,
    at least a third, and the verdict that most of them gave counts; where no single one is most frequent, the
    middle one in the order fail, borderline, pass, and of two middle ones the more severe. Decisions of people
    who were not asked count in the same way.
    """
    count = len(decisions)
    if count < reviewers:
        return Settled(None, reviewers)
    if len(set(decisions)) == 1:
        return Settled(decisions[0], reviewers, f"all {count} agree" if count > 1 else "")
    wanted = max(reviewers + 1, FEWEST_THAT_DIFFER)
    if count < wanted:
        return Settled(None, wanted)
    (most, times), (_, second) = Counter(decisions).most_common(2)
    if times > second:
        return Settled(most, count, f"{times} of {count} say {most.value}")
    middle = sorted(decisions, key=SEVERITY.index)[(count - 1) // 2]
    return Settled(middle, count, f"{count} differ, {middle.value} is the middle one")

"""Who may start how many calls of a model now, so that no minute ever holds more than its limit.

Starts are granted in blocks. A grant is good for `VALID_S`, then what is left of it is void: its calls
are let in at first and sent in the rest of that time. It counts for a minute and that time on
top: whenever its calls were sent, they are out of every window of 60 s that a call granted later
could share with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MINUTE_S = 60.0
LET_IN_S = 1.5
SEND_S = 0.5
VALID_S = LET_IN_S + SEND_S
COUNTS_S = MINUTE_S + VALID_S
# When the minute is used up, starts are handed on by so many seconds' worth: one transaction each.
BLOCK_S = 1.0
# What came free is another's: it has been told so and takes it in a moment.
BEHIND_OTHERS_S = 0.5
# So that what is waited for has surely come free.
LATER_S = 0.01


@dataclass(frozen=True, slots=True)
class Granted:
    """Calls that a holder was allowed to start so many seconds ago."""

    holder: str
    age_s: float
    calls: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another holder that waits for starts, in the order of `since`."""

    holder: str
    calls: int
    since: float


def share_of(
    holder: str,
    wanted: int,
    *,
    per_minute: int,
    granted: Sequence[Granted],
    others: Sequence[Waiting] = (),
    since: float = float("inf"),
) -> tuple[int, float]:
    """Return how many calls a holder may start now, and in how many seconds to ask again when none.

    `granted` are the grants younger than COUNTS_S, `others` who else waits; `since` is when this
    holder began to. Each has a claim to an even share of the minute: what is left of the claims of
    those who wait longer is kept for them, and nobody takes more than its share while another is
    owed some of its own. The longest waiting is kept from nothing, so nobody starves.
    """
    taken = Counter[str]()
    for grant in granted:
        taken[grant.holder] += grant.calls
    free = per_minute - taken.total()
    share = max(1, per_minute // len({holder, *taken, *(one.holder for one in others)}))
    owed = {one: min(one.calls, max(0, share - taken[one.holder])) for one in others}
    before = sum(calls for one, calls in owed.items() if (one.since, one.holder) < (since, holder))
    most = max(share - taken[holder], free - sum(owed.values()))
    calls = max(0, min(wanted, free - before, most))
    least = max(1, min(wanted, most, int(per_minute * BLOCK_S / MINUTE_S)))
    if calls >= least:
        return calls, 0.0
    if free >= least:
        return 0, BEHIND_OTHERS_S
    return 0, _until_free(granted, least - free)


def _until_free(granted: Sequence[Granted], missing: int) -> float:
    """Return in how many seconds so many calls more will have left the minute."""
    for grant in sorted(granted, key=lambda one: -one.age_s):
        missing -= grant.calls
        if missing <= 0:
            return max(0.0, COUNTS_S - grant.age_s) + LATER_S
    return COUNTS_S

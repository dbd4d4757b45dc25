"""People beside the machine: what they review, what their decisions settle, how far they agree with judges."""

from __future__ import annotations

from runs.reviewing.agreement import (
    LABELS,
    MARKS,
    VERDICTS,
    Agreement,
    Pair,
    Rate,
    agreement_of,
)
from runs.reviewing.bands import Bands, Reviewed, Suggestion, suggest_bands
from runs.reviewing.reasons import Reason, in_order, named
from runs.reviewing.rules import (
    Entry,
    Finished,
    Missed,
    distance_of,
    entries_of,
    is_drawn,
    reasons_of,
)
from runs.reviewing.settling import RULE, Settled, settle
from runs.reviewing.verdict_like import verdict_like

__all__ = [
    "LABELS",
    "MARKS",
    "RULE",
    "VERDICTS",
    "Agreement",
    "Bands",
    "Entry",
    "Finished",
    "Missed",
    "Pair",
    "Rate",
    "Reason",
    "Reviewed",
    "Settled",
    "Suggestion",
    "agreement_of",
    "distance_of",
    "entries_of",
    "in_order",
    "is_drawn",
    "named",
    "reasons_of",
    "settle",
    "suggest_bands",
    "verdict_like",
]

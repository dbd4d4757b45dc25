"""What would become of a finished run under other rules, from its stored scores alone (SCORING §2 to §4, §8).

Pure: values in, values out. A caller makes a question of both rules (`Asked`), has the scores whose parts
it needs made anew (`rescore_parts`), and asks `what_if`.
"""

from __future__ import annotations

from runs.what_if.asking import Asked, told_of, what_if
from runs.what_if.changes import LeafChange, Reach
from runs.what_if.figures import (
    Agreement,
    Band,
    Bin,
    CaseFlip,
    ExecutionFlip,
    Histogram,
    Side,
    Stale,
    Stand,
    WhatIf,
)
from runs.what_if.rescoring import PartsRead, overall_of, rescore_parts, rescored
from runs.what_if.rules import Origins, RuleSet, origins_of
from runs.what_if.stored import StoredCase, StoredResult, StoredRun

__all__ = [
    "Agreement",
    "Asked",
    "Band",
    "Bin",
    "CaseFlip",
    "ExecutionFlip",
    "Histogram",
    "LeafChange",
    "Origins",
    "PartsRead",
    "Reach",
    "RuleSet",
    "Side",
    "Stale",
    "Stand",
    "StoredCase",
    "StoredResult",
    "StoredRun",
    "WhatIf",
    "origins_of",
    "overall_of",
    "rescore_parts",
    "rescored",
    "told_of",
    "what_if",
]

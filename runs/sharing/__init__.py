"""Frozen documents behind share links: what each depth lets through, and what in them looks secret."""

from __future__ import annotations

from runs.sharing._cutting import LONGEST_TEXT, Allowance
from runs.sharing._depths import Depth, Shape, digest_of, filled_out, let_through
from runs.sharing._places import texts_of
from runs.sharing._scan import Found, Scan, scan
from runs.sharing._shapes import COMPARISON, RESULT, RUN, SHAPES

__all__ = [
    "COMPARISON",
    "LONGEST_TEXT",
    "RESULT",
    "RUN",
    "SHAPES",
    "Allowance",
    "Depth",
    "Found",
    "Scan",
    "Shape",
    "digest_of",
    "filled_out",
    "let_through",
    "scan",
    "texts_of",
]

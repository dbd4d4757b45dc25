"""What a run did otherwise than its suite, in the words of the suite's pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.scoring.policy import Policy
from runs.plan import CHANGED
from runs.reports.version_words import name_of, spelt

NOTHING = "none"


def run_changes(snapshot: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one text for each value that differs: "Pass from 0.80 → 0.75", "tone: Weight ×2 → ×3"."""
    scale = Policy.from_json(snapshot["policy"]).scale
    found = []
    for one in snapshot.get(CHANGED) or ():
        old, new = (spelt(one["name"], one[side], scale) or NOTHING for side in ("old", "new"))
        path = one["evaluator"]
        owner = "" if path is None else f"{path or 'The whole suite'}: "
        found.append(f"{owner}{name_of(one['name'])} {old} → {new}")
    return tuple(found)

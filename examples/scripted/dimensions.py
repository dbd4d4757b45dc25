"""The reply of a hybrid judge: expectations, dimensions of 0 to 10 and the whole, after the checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scripted.asking import Asked
from scripted.marking import Marked, draw

FAILED = re.compile(r"failed: ([^(\n:]+?) \(([^)]*)\)")
BEST, CHECK_COSTS, HARD_COSTS = 9.5, 4.0, 3.0
WELL: Mapping[str, str] = {
    "task": "The files hold what was asked for.",
    "process": "Looked before it wrote, and checked after.",
    "autonomy": "Went on by itself where the task left room.",
    "closeness": "Changed what was named and nothing else.",
    "efficiency": "No step that could have been left out.",
    "spark": "Says in a line what a colleague would want to know next.",
}


def dimensions(asked: Asked, marked: Marked) -> dict[str, Any]:
    """Return reasoning, expectations, dimensions and the overall score."""
    keys = asked.schema["properties"]["dimensions"]["properties"]
    failed = FAILED.findall(asked.quoted.get("check_results", ""))
    expected = asked.listed("expectations")
    met = [bool(quote) for _, quote in marked.points][: len(expected)]
    rows = {key: _dimension(key, asked, marked, failed) for key in keys}
    said: dict[str, Any] = {"reasoning": _reasoning(marked, [name for name, _ in failed])}
    if "expectations" in asked.parts():
        said["expectations"] = [
            {"number": number, "evidence": quote or point.missed, "met": bool(quote)}
            for number, (point, quote) in enumerate(marked.points[: len(expected)], 1)
        ]
    hard_missed = sum(
        text.startswith("hard") and not ok for text, ok in zip(expected, met, strict=False)
    )
    mean = sum(row["score"] for row in rows.values()) / len(rows)
    overall = max(0.0, round((mean - HARD_COSTS * hard_missed) * 2) / 2)
    evidence = [*marked.misses(), *marked.hits()][:3] or ["Everything that was asked is there."]
    return {**said, "dimensions": rows, "overall": {"evidence": evidence, "score": overall}}


def _dimension(
    key: str, asked: Asked, marked: Marked, failed: list[tuple[str, str]]
) -> dict[str, Any]:
    cost, why = marked.against(key)
    broken = [name for name, told in failed if key in told.split(", ")]
    why += [f"The check “{name}” failed." for name in broken]
    best = BEST - draw(asked.case, key, among=4) / 2
    score = max(0.0, round((best - cost - CHECK_COSTS * len(broken)) * 2) / 2)
    return {"evidence": " ".join(why) or WELL.get(key, "Nothing to correct."), "score": score}


def _reasoning(marked: Marked, failed: list[str]) -> str:
    misses = marked.misses()
    if not misses and not failed:
        return "The agent did what was asked, left it where it belongs, and said so."
    checks = f" The checks say so too: {', '.join(failed)}." if failed else ""
    return f"{misses[0] if misses else 'The answer reads well.'}{checks}"

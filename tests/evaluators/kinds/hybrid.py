"""A hybrid judge at work in tests: replies that add up, scores of them, suites that hold one."""

from __future__ import annotations

from typing import Any

from evaluators.kinds._base import Step
from evaluators.scoring.types import Score
from runs.formats import suite_files
from runs.specs.suites import SuiteWithCases
from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of

KIND = "hybrid_judge"
SIX = {"task": 8.5, "process": 9, "autonomy": 8, "closeness": 8.5, "efficiency": 7.5, "spark": 6}
PRESENT = {"type": "final_response_present"}


def reply(
    overall: Any = 8.5,
    scores: dict[str, Any] | None = None,
    met: tuple[bool, ...] | None = None,
    **more: Any,
) -> dict[str, Any]:
    scores = SIX if scores is None else scores
    found: dict[str, Any] = {"reasoning": f"Looked at all of it for {overall}."}
    if met is not None:
        found["expectations"] = [
            {"number": n, "evidence": f"on {n}", "met": one} for n, one in enumerate(met, 1)
        ]
    found["dimensions"] = {key: {"evidence": f"{key} {v}", "score": v} for key, v in scores.items()}
    found["overall"] = {"evidence": [f"It is {overall}."], "score": overall}
    return found | more


def hybrid(*replies: Any, text: str = "It comes today.", **config: Any) -> Score:
    facts = {name: config.pop(name) for name in ("trace", "left", "sandbox") if name in config}
    return score_of(KIND, config, context_of(text, judge=ListedJudge(*replies), **facts))


TRACE = (Step("tool", "find"), Step("model", "big-model-9"), Step("tool", "find"))
LEFT = {"out/report.md": b"Total: 12 EUR", "raw.bin": b"\xff\x00"}


def suite_with(lines: str, files: dict[str, bytes] | None = None) -> SuiteWithCases:
    text = f"name: s\nevaluators:\n  - name: h\n    type: hybrid\n{lines}"
    return suite_files.read_suite(
        f"{text}tests:\n  - {{id: a, input: hi}}\n".encode(), files=files or {}
    )

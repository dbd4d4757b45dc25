"""What every frozen document says alike: its policy, its texts and the rows of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import Policy
from evaluators.templatetags.figures import bound, plain, points, threshold
from evaluators.templatetags.marks import VERDICT_WORDS
from evaluators.templatetags.steps import spelled
from runs.models import Run
from runs.sharing import Allowance

VERSION = 1
# As many rows as a page draws at once, and as many of them with what was asked and answered.
MOST_CASES, MOST_WITH_TEXTS = 500, 100
MOST_STEPS, MOST_TURNS, MOST_REMARKS, MOST_RULES = 100, 50, 50, 50
LONGEST_NAME, LONGEST_IN_TITLE = 200, 80
STATES = {"not_run": "cancelled", "pending": "waiting"}
GATES = {"score": "its score alone", "expected_outcomes": "every expected outcome met"}


def head(kind: str, depth: str, now: datetime, heading: str) -> dict[str, Any]:
    """Return what every document begins with."""
    return {
        "version": VERSION,
        "kind": kind,
        "depth": depth,
        "made_at": now.isoformat(timespec="seconds"),
        "heading": heading,
    }


def counts_of(found: Mapping[str, int]) -> dict[str, int]:
    """Return how many cases are in each state, 0 for none."""
    return {state: found.get(state, 0) for state in VERDICT_WORDS}


def policy_rows(policy: Policy) -> list[dict[str, str]]:
    """Return the rules that made the verdicts, a name and a value each."""
    scale = policy.scale
    rows = {
        "Pass from": bound(policy.pass_threshold, scale),
        "Borderline from": bound(policy.borderline_threshold, scale),
        "A case passes by": GATES.get(policy.case_gate, str(policy.case_gate).replace("_", " ")),
        "Metrics gate": threshold(policy.metrics_pass_threshold),
        "Cases gate": threshold(policy.cases_pass_threshold),
        "Reviews count": "yes" if policy.count_reviews else "no",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def tolerance_rows(rate: float, score: float, latency: float) -> list[dict[str, str]]:
    """Return how much worse the candidate was allowed to be."""
    rows = {
        "Pass rate may fall by": points(rate) if rate else "nothing",
        "Mean score may fall by": points(score) if score else "nothing",
        "Mean latency may grow by": f"{plain(latency)}%",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def judge_word(run: Run) -> str:
    """Return who judged a run; one whose replies were written for it is no model."""
    if not run.judge_name:
        return "no judge"
    is_told = not run.is_scripted or "scripted" in run.judge_name.lower()
    return f"judge {run.judge_name}{'' if is_told else ', a scripted judge'}"


def question(messages: Sequence[Mapping[str, Any]], allowance: Allowance) -> dict[str, Any]:
    """Return the messages of a conversation, their texts cut, and how many there were."""
    return {
        "question": [
            {
                "role": str(one.get("role", "user"))[:LONGEST_NAME],
                "content": allowance.cut(spelled(one.get("content")), one.get("size")),
            }
            for one in messages[:MOST_TURNS]
        ],
        "question_count": len(messages),
    }


def remarks(found: Sequence[Mapping[str, Any]], allowance: Allowance) -> dict[str, Any]:
    """Return what evaluators found, the misses first, and how many findings there were."""
    ordered = sorted(found, key=lambda one: bool(one.get("passed")))
    return {
        "remarks": [
            {
                "passed": bool(one.get("passed")),
                "text": allowance.brief(one.get("text")),
                "evidence": allowance.brief(one.get("evidence")),
            }
            for one in ordered[:MOST_REMARKS]
        ],
        "remark_count": len(found),
    }


def rules(decision: Decision | None, allowance: Allowance) -> dict[str, Any]:
    """Return the steps by which a verdict was decided, and the smallest change to another (SCORING §4)."""
    if decision is None or decision.verdict is None:
        return {}
    flip = decision.flip
    text = allowance.brief(flip.text if flip else "")
    return {
        "smallest_change": {
            "text": text[:1].upper() + text[1:],
            "is_small": flip is not None and (flip.path is not None or bool(flip.outcomes)),
        },
        "rules": [
            {"text": allowance.brief(one.text), "path": one.path, "passed": one.passed}
            for one in decision.trace[:MOST_RULES]
        ],
        "rule_count": len(decision.trace),
    }


def steps(trace: Sequence[Mapping[str, Any]] | None, allowance: Allowance) -> dict[str, Any]:
    """Return the steps a target took, their texts cut."""
    found = trace or ()
    return {
        "steps": [_step(one, allowance) for one in found[:MOST_STEPS]],
        "step_count": len(found),
    }


def _step(step: Mapping[str, Any], allowance: Allowance) -> dict[str, Any]:
    plain_values = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
    texts = {name: step[name] for name in ("input", "output", "error") if step.get(name)}
    return {
        "type": str(step.get("type") or "")[:LONGEST_NAME],
        "name": str(step.get("name") or "")[:LONGEST_NAME],
        **{name: step.get(name) for name in plain_values},
        **{name: allowance.cut(spelled(value)) for name, value in texts.items()},
    }


def outcomes(
    found: Iterable[Mapping[str, Any]] | None, allowance: Allowance
) -> list[dict[str, Any]]:
    """Return the expected outcomes with what was judged of each."""
    return [
        {
            "passed": bool(one.get("passed")),
            "text": allowance.brief(one.get("text")),
            "justification": allowance.brief(one.get("justification")),
        }
        for one in found or ()
    ]


def against(runs: Sequence[Run]) -> str:
    """Return two runs by their targets, as `agent 1.4 against 1.5`; by their numbers where those are called alike."""
    before, after = (run.target_name[:LONGEST_IN_TITLE] for run in runs)
    numbers = " against ".join(f"#{run.number}" for run in runs)
    if before == after:
        return f"{after}, {numbers}" if after else numbers
    was, now = before.split(), after.split()
    while len(was) > 1 and len(now) > 1 and was[0] == now[0]:
        was, now = was[1:], now[1:]
    return f"{before} against {' '.join(now)}"

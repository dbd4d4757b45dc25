"""One result as a share link freezes it: its verdict and, as deep as was chosen, the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from evaluators.templatetags.figures import (
    counted,
    duration,
    execution_money,
    plain,
    score,
    thousands,
)
from evaluators.templatetags.marks import VERDICT_WORDS, known
from runs.models import Run
from runs.plan import METRICS_KIND
from runs.reports.result_page import ResultPage, result_page
from runs.reports.result_tree import TreeNode
from runs.reports.shared_answers import findings_of
from runs.reports.shared_words import (
    head,
    judge_word,
    outcomes,
    policy_rows,
    question,
    remarks,
    rules,
    steps,
)
from runs.sharing import Allowance, Depth

TONES = {"pass": "good", "borderline": "warn", "fail": "bad", "error": "error"}


def shared_result(
    run: Run, key: str, repetition: int, *, depth: Depth, now: datetime
) -> dict[str, Any]:
    """Return the document; what may leave of it at a depth, `let_through` says.

    Raises Result.DoesNotExist for a result the run does not have.
    """
    page = result_page(run, key, repetition)
    allowance = Allowance()
    findings = findings_of([page.result.pk]).get(page.result.pk, [])
    return {
        **head("result", depth, now, f"One result of run #{run.number}"),
        "verdict": _verdict(page),
        "facts": _facts(page),
        "suites": [run.suite.title],
        "policy": policy_rows(page.policy),
        "key": page.case.key,
        "title": page.case.title,
        "decided_by": page.result.decided_by,
        "stage": page.stage,
        "error": allowance.brief(page.result.error),
        "warnings": [allowance.brief(one) for one in page.result.warnings],
        "measures": _measures(page),
        "metrics": [
            {
                "name": one["name"],
                "tier": one.get("tier") or "",
                "mean": one["score"],
                "binary": bool(one.get("binary")),
                "judged": 1,
            }
            for _, node in _walk(page.tree, 0)
            if node.kind == METRICS_KIND
            for one in node.details.get("metrics") or ()
        ],
        "evaluators": [
            _evaluator(depth_of, node, run.scale, allowance)
            for depth_of, node in _walk(page.tree, 0)
        ],
        **rules(page.decision, allowance),
        "outcomes_met": page.outcomes_met,
        "outcomes": outcomes(page.outcomes, allowance),
        **question(page.turns.messages, allowance),
        "expected": allowance.cut(page.case.expected_output),
        **remarks(findings, allowance),
        **steps(page.steps, allowance),
    }


def _verdict(page: ResultPage) -> dict[str, str]:
    state = known(page.state)
    given = (
        "" if page.result.score is None else f", score {score(page.result.score, page.run.scale)}"
    )
    word = VERDICT_WORDS[state]
    sentence = f"{page.stage}. It counts as not passed, never as 0." if page.stage else ""
    reviewed = page.override
    if not sentence:
        sentence = f"The verdict is {word.lower()}{given}."
    if reviewed:
        # Of people it is told what they decided, never who they are or what they noted.
        sentence += f" People reviewed it as {reviewed.people}."
    return {"state": state, "word": word, "tone": TONES.get(state, ""), "sentence": sentence}


def _facts(page: ResultPage) -> list[str]:
    run = page.run
    return [
        run.target_name,
        f"suite v{run.suite_version}",
        judge_word(run),
        f"repetition {page.result.repetition} of {run.repetitions}",
    ]


def _measures(page: ResultPage) -> list[dict[str, Any]]:
    result, spent = page.result, page.purses
    outcome_count = len(page.outcomes)
    tokens = [
        f"{thousands(count)} tokens {word}"
        for count, word in ((result.input_tokens, "in"), (result.output_tokens, "out"))
        if count is not None
    ]
    return [
        {
            "name": "Score",
            "value": score(result.score, page.run.scale),
            "notes": [f"{counted(page.scored_count, 'evaluator')} scored"],
        },
        {
            "name": "Outcomes met",
            "value": f"{page.outcomes_met} of {outcome_count}" if outcome_count else "–",
            "notes": [] if outcome_count else ["None were judged"],
        },
        {"name": "Latency", "value": duration(result.latency_ms), "notes": tokens},
        {
            "name": "Total cost",
            "value": execution_money(spent.total_usd),
            "notes": [
                f"Run {execution_money(result.run_cost_usd)} + "
                f"evaluation {execution_money(result.evaluation_cost_usd)}"
            ],
        },
    ]


def _walk(node: TreeNode, depth: int) -> Iterator[tuple[int, TreeNode]]:
    yield depth, node
    for child in node.children:
        yield from _walk(child, depth + 1)


def _evaluator(depth: int, node: TreeNode, scale: int, allowance: Allowance) -> dict[str, Any]:
    return {
        "depth": min(depth, 3),
        "name": node.name,
        "kind": node.label,
        "icon": node.icon,
        "weight": "" if node.is_root else plain(node.weight),
        "state": node.state,
        "score": score(node.score, scale),
        "verdict": node.verdict,
        "is_decisive": node.is_decisive,
        "note": allowance.brief(node.note),
        "reasoning": allowance.brief(node.row.reasoning if node.row else ""),
    }

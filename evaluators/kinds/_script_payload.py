"""What a script is told of the case and the output: variables, and one JSON object on stdin.

The keys of the object are those that code judges of the AgentV family read, old names and new, each in
snake_case and in camelCase.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.kinds._base import ChildResult, Context, Message, Step
from evaluators.kinds._variables import question_of
from evaluators.scoring.types import Finding, Outcome, Score, Skipped, Unscored

# The longest variable that a program can be started with, its name and the closing NUL included.
LONGEST_VARIABLE = 128 * 1024


def environment(context: Context) -> dict[str, str]:
    """Return the variables of a script; each is cut where no program could be started with more."""
    case = context.case
    told = {
        "EVAL_OUTPUT": context.output.text,
        "EVAL_CASE_ID": case.key,
        "EVAL_INPUT": question_of(context),
        "EVAL_EXPECTED_OUTPUT": case.expected_output,
        "EVAL_CRITERIA": case.criteria,
        "EVAL_EXPECTED_OUTCOMES": _json(list(case.expected_outcomes)),
        "EVAL_METADATA": _json(dict(case.metadata)),
        "EVAL_EVALUATOR": context.path,
    }
    return {name: _fitting(name, value) for name, value in told.items()}


def payload(context: Context, config: Mapping[str, Any]) -> bytes:
    """Return the JSON object of the stdin protocol."""
    case, output = context.case, context.output
    question = question_of(context)
    expected = [{"role": "assistant", "content": case.expected_output}]
    answered = _output_messages(context)
    asked = [{"role": turn.role, "content": turn.content} for turn in case.input]
    summary = _trace_summary(context)
    told = {
        **{"eval_id": case.key, "case_id": case.key, "evaluator": context.path},
        **{"question": question, "input_text": question, "task": question},
        **{"input": asked, "input_messages": asked},
        **{"criteria": case.criteria, "expected_outcome": case.criteria, "outcome": case.criteria},
        "expected_outcomes": list(case.expected_outcomes),
        **{"expected_output": case.expected_output, "expected": case.expected_output},
        **{"reference_answer": case.expected_output, "expected_output_text": case.expected_output},
        "expected_messages": expected if case.expected_output else [],
        **{"output": output.text, "output_text": output.text},
        **{"candidate_answer": output.text, "answer": output.text},
        **{"output_messages": answered, "messages": answered},
        **{"guideline_files": [], "input_files": [], "output_files": sorted(output.files)},
        **{"trace": summary, "trace_summary": summary},
        **{"token_usage": summary["token_usage"], "cost_usd": summary["cost_usd"]},
        "duration_ms": summary["duration_ms"],
        **{"metadata": case.metadata, "config": config},
    }
    if context.results:
        found = [_result(one) for one in context.results]
        told["evaluator_results"] = found
        told["results"] = {str(one["name"]): one for one in found}
    return _json(_both(told)).encode()


def _both(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of ours with each key in camelCase beside its snake_case."""
    camel = {re.sub(r"_([a-z])", lambda m: m.group(1).upper(), key): values[key] for key in values}
    return {**values, **camel}


def _output_messages(context: Context) -> list[dict[str, Any]]:
    """Return what the target said, its calls of tools with the last turn of it."""
    turns = context.output.messages or (Message("assistant", context.output.text),)
    written: list[dict[str, Any]] = [{"role": t.role, "content": t.content} for t in turns]
    calls = [_both(_call(step)) for step in context.output.trace or () if step.type == "tool"]
    last = next((turn for turn in reversed(written) if turn["role"] == "assistant"), None)
    if calls and last is not None:
        last |= {"tool_calls": calls, "toolCalls": calls}
    return written


def _call(step: Step) -> dict[str, Any]:
    facts = {
        **{"tool": step.name, "input": step.input, "output": step.output},
        **{"duration_ms": step.duration_ms, "error": step.error or None},
    }
    return {name: value for name, value in facts.items() if value is not None}


def _trace_summary(context: Context) -> dict[str, Any]:
    output = context.output
    steps = output.trace or ()
    calls = Counter(step.name for step in steps if step.type == "tool")
    tokens = {"input": output.usage.input_tokens, "output": output.usage.output_tokens}
    cost = output.usage.cost_usd
    return _both(
        {
            "event_count": len(steps),
            "tool_names": sorted(calls),
            "tool_calls_by_name": dict(calls),
            "tool_calls": dict(calls),
            "error_count": sum(1 for step in steps if step.error),
            "token_usage": tokens if any(n is not None for n in tokens.values()) else None,
            "cost_usd": None if cost is None else float(cost),
            "duration_ms": output.usage.latency_ms,
        }
    )


def told_of(child: ChildResult) -> dict[str, Any]:
    """Return what a child came to, with what lies under it, as plain JSON values."""
    outcome = child.outcome
    facts: dict[str, Any] = {
        **{"name": child.name, "type": child.kind, "weight": child.weight, "score": child.score},
        **{"verdict": child.verdict or None, "status": _status(outcome)},
        "hits": [found.text for found in _findings(outcome) if found.passed],
        "misses": [found.text for found in _findings(outcome) if not found.passed],
        "reasoning": outcome.reasoning if isinstance(outcome, Score) else "",
        "error": outcome.reason if isinstance(outcome, Unscored | Skipped) else None,
    }
    if child.results:
        facts["evaluator_results"] = [told_of(one) for one in child.results]
    return facts


def _result(child: ChildResult) -> dict[str, Any]:
    """Return what a child came to as results are written everywhere."""
    facts = told_of(child)
    if child.results:
        facts["evaluator_results"] = [_result(one) for one in child.results]
    return _both(facts)


def _findings(outcome: Outcome | None) -> Sequence[Finding]:
    return outcome.findings if isinstance(outcome, Score) else ()


def _status(outcome: Outcome | None) -> str:
    if isinstance(outcome, Score):
        return "scored"
    return "skipped" if isinstance(outcome, Skipped) else "unscored"


def _fitting(name: str, value: str) -> str:
    """Return a value that a variable can hold: without NUL, and cut between characters."""
    room = LONGEST_VARIABLE - len(name) - 2
    encoded = value.replace("\0", "").encode("utf-8", "replace")
    return encoded[:room].decode("utf-8", "ignore")


def _json(value: Any) -> str:
    return json.dumps(value, default=str)

"""Write down the steps that led to a verdict, in the order in which they were taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evaluators.scoring.decision import TraceStep
from evaluators.scoring.evaluation import Values, is_forced, is_held
from evaluators.scoring.frames import NO_INDEX, Frame, Layout
from evaluators.scoring.numbers import is_at_least, spelt
from evaluators.scoring.ruling import CaseGate, Ruling
from evaluators.scoring.types import Verdict
from evaluators.scoring.wording import (
    arithmetic,
    compare,
    decided_by,
    error_text,
    own_failure,
    requirement,
)


def trace_of(
    layout: Layout,
    values: Values,
    gate: CaseGate,
    ruling: Ruling,
    reasons: Mapping[str, str],
) -> tuple[TraceStep, ...]:
    """Return the steps: who scored, gates, required, the final score, the case gate (SCORING §4)."""
    steps = [*_scored(layout, values, ruling, reasons), *_own_rules(layout, values)]
    steps += _required(layout, values)
    if ruling.is_error:
        return (*steps, TraceStep(error_text(layout, gate, ruling, reasons), None, passed=False))
    return (*steps, *_final(layout, values, ruling), *_gate(layout, values, gate, ruling))


def _scored(
    layout: Layout, values: Values, ruling: Ruling, reasons: Mapping[str, str]
) -> Iterator[TraceStep]:
    held = [frame for frame in layout.leaves if is_held(layout, frame, values)]
    tried = [frame for frame in layout.leaves if not is_held(layout, frame, values)]
    count = sum(values.scores[frame.index] is not None for frame in tried)
    noun = "evaluator" if len(tried) == 1 else "evaluators"
    passed = False if ruling.unscored else True if count == len(tried) else None
    yield TraceStep(f"{count} of {len(tried)} {noun} scored", None, passed)
    for frame in tried:
        if values.scores[frame.index] is None:
            text = f"{frame.node.name} could not be scored: {reasons.get(frame.path, '')}"
            passed = False if frame.index in ruling.unscored else None
            yield TraceStep(text, frame.path, passed)
    if held:
        names = ", ".join(frame.node.name for frame in held)
        yield TraceStep(f"Not run, held back by a gate: {names}")


def _own_rules(layout: Layout, values: Values) -> Iterator[TraceStep]:
    """Yield every gate, and every other composite that failed by its own rule."""
    scale = layout.policy.scale
    for frame in layout.frames:
        if is_held(layout, frame, values):
            continue
        for gate in frame.gates:
            score = values.scores[gate]
            if score is not None:
                passed = is_at_least(score, frame.limit)
                found = layout.frames[gate]
                text = f"Gate {found.node.name} of {frame.node.name}: "
                yield TraceStep(
                    text + compare(score, frame.limit, passed, scale=scale), found.path, passed
                )
        if not frame.gates and values.failures[frame.index] != NO_INDEX:
            failure = own_failure(layout, frame, values)
            yield TraceStep(
                f"{frame.node.name} failed by its own rule: {failure}", frame.path, False
            )


def _required(layout: Layout, values: Values) -> Iterator[TraceStep]:
    for frame in layout.frames:
        is_tested = frame.is_required and values.scores[frame.index] is not None
        if (is_tested or frame.index in values.parts) and not is_held(layout, frame, values):
            text = f"Required: {requirement(layout, frame, values)}"
            yield TraceStep(text, frame.path, not is_forced(frame, values))


def _final(layout: Layout, values: Values, ruling: Ruling) -> Iterator[TraceStep]:
    if ruling.score is None:
        yield TraceStep("No final score: an evaluator it needs could not be scored")
        return
    score = spelt(ruling.score, scale=layout.policy.scale)
    source: Frame = layout.frames[ruling.source]
    is_judged = layout.policy.final_score == "judge_overall"
    if is_judged and values.failures[source.index] == NO_INDEX:
        yield TraceStep(f"Final score, the judge's own overall score: {score}")
    else:
        how = arithmetic(layout, source, values) or score
        yield TraceStep(f"Final score: {how}", source.path)


def _gate(layout: Layout, values: Values, gate: CaseGate, ruling: Ruling) -> Iterator[TraceStep]:
    is_by_outcomes = gate.rule == "expected_outcomes"
    for outcome in gate.outcomes if is_by_outcomes else ():
        yield TraceStep(
            f"Outcome {'met' if outcome.passed else 'missed'}: {outcome.text}", None, outcome.passed
        )
    passed = ruling.verdict is Verdict.PASS
    verdict = ruling.verdict.value if ruling.verdict else ""
    text = f"{verdict.capitalize()}: {decided_by(layout, values, gate, ruling)}"
    path = (
        layout.frames[ruling.index].path
        if ruling.rule not in ("score", "fallback", "expected_outcomes")
        else None
    )
    yield TraceStep(text, path, passed)

"""Explain a ruling node by node: score, verdict, share of the final score, deciding path."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from evaluators.scoring.decision import NodeResult
from evaluators.scoring.evaluation import Values, is_forced, is_held, members, passes
from evaluators.scoring.frames import LEAF, NO_INDEX, Frame, Layout
from evaluators.scoring.numbers import rounded
from evaluators.scoring.ruling import ROOT, Ruling
from evaluators.scoring.types import Outcome, Skipped, Unscored, Verdict
from evaluators.scoring.wording import arithmetic, own_failure, requirement

NOTHING_RECORDED = "nothing was recorded for it"


def node_results(
    layout: Layout,
    outcomes: Mapping[str, Outcome],
    values: Values,
    *,
    shares: Mapping[int, float],
    deciding: frozenset[int],
) -> dict[str, NodeResult]:
    """Return every node by path, in tree order."""
    found: dict[str, NodeResult] = {}
    for frame in layout.frames:
        state, note = _state(layout, frame, values, outcomes)
        is_scored = state == "scored"
        score = values.scores[frame.index] if is_scored else None
        found[frame.path] = NodeResult(
            path=frame.path,
            name=frame.node.name,
            kind=frame.node.kind,
            state=state,
            score=score,
            verdict=_verdict(layout, frame, values, score),
            weight=frame.weight,
            share=shares.get(frame.index, 0.0),
            forced_fail=_forced_fail(layout, frame, values) if is_scored else None,
            arithmetic=arithmetic(layout, frame, values) if is_scored else "",
            note=note,
            on_deciding_path=frame.index in deciding,
        )
    return found


def shares_of(layout: Layout, values: Values, judged: Frame | None) -> dict[int, float]:
    """Return by index the part of the final score that each node decides, 0 to 1."""
    if layout.policy.final_score == "judge_overall":
        if judged is None or is_held(layout, judged, values):
            return {}
        return {ROOT: 1.0, judged.index: 1.0}
    shares = {ROOT: 1.0}
    for frame in layout.frames:
        share = shares.get(frame.index, 0.0)
        if share <= 0 or values.failures[frame.index] != NO_INDEX:
            continue
        for index, part in _parts(layout, frame, values):
            shares[index] = share * part
    return shares


def deciding_path(layout: Layout, values: Values, ruling: Ruling) -> frozenset[int]:
    """Return the nodes on the way from the root to what decided, and on to what weighed it down most."""
    if ruling.index == NO_INDEX or ruling.rule == "expected_outcomes":
        return frozenset()
    path = {ruling.index}
    index = ruling.index
    while index != ROOT:
        index = layout.frames[index].parent
        path.add(index)
    if ruling.verdict in (Verdict.BORDERLINE, Verdict.FAIL):
        heaviest = _heaviest(layout, layout.frames[ruling.index], values)
        while heaviest != NO_INDEX:
            path.add(heaviest)
            heaviest = _heaviest(layout, layout.frames[heaviest], values)
    return frozenset(path)


def _heaviest(layout: Layout, frame: Frame, values: Values) -> int:
    """Return the child that cost a composite most of its score, the first of equals."""
    if values.failures[frame.index] != NO_INDEX:
        return values.failures[frame.index]
    lost = [
        (index, part * (1.0 - (values.scores[index] or 0.0)))
        for index, part in _parts(layout, frame, values)
    ]
    index, most = max(lost, key=itemgetter(1), default=(NO_INDEX, 0.0))
    return index if rounded(most) > 0 else NO_INDEX


def _parts(layout: Layout, frame: Frame, values: Values) -> list[tuple[int, float]]:
    """Return the children with the part each has in the composite's score; the parts sum to 1."""
    indexes, weights = members(layout, frame, values) or ((), ())
    if not indexes or frame.rule == LEAF:
        return []
    if frame.rule in ("minimum", "maximum"):
        pick = min if frame.rule == "minimum" else max
        scores = {index: values.scores[index] or 0.0 for index in indexes}
        return [(pick(scores, key=lambda index: scores[index]), 1.0)]
    if frame.rule == "threshold":
        return [(index, 1.0 / len(indexes)) for index in indexes]
    total = sum(weights)
    return [(index, weight / total) for index, weight in zip(indexes, weights, strict=True)]


def _state(
    layout: Layout, frame: Frame, values: Values, outcomes: Mapping[str, Outcome]
) -> tuple[str, str]:
    """Return how far a node came, and the reason why it has no score."""
    outcome = outcomes.get(frame.path)
    if is_held(layout, frame, values):
        return "skipped", outcome.reason if isinstance(outcome, Skipped) else Skipped().reason
    if values.scores[frame.index] is not None:
        return "scored", _policy_note(layout, frame, values)
    if frame.rule != LEAF:
        return "unscored", _missing_children(layout, frame, values)
    if isinstance(outcome, Unscored | Skipped):
        return "unscored", outcome.reason
    return "unscored", NOTHING_RECORDED


def _policy_note(layout: Layout, frame: Frame, values: Values) -> str:
    missing = [i for i in frame.counted if values.scores[i] is None]
    if not missing or values.failures[frame.index] != NO_INDEX:
        return ""
    names = ", ".join(layout.frames[index].node.name for index in missing)
    how = "left out" if layout.policy.on_unscored == "exclude" else "counted as 0"
    return f"{names} could not be scored and {'is' if len(missing) == 1 else 'are'} {how}"


def _missing_children(layout: Layout, frame: Frame, values: Values) -> str:
    missing = [
        layout.frames[index].node.name
        for index in frame.children
        if values.scores[index] is None and not is_held(layout, layout.frames[index], values)
    ]
    return f"no score from {', '.join(missing)}" if missing else "nothing to aggregate"


def _verdict(layout: Layout, frame: Frame, values: Values, score: float | None) -> Verdict | None:
    if score is None:
        return None
    if values.failures[frame.index] != NO_INDEX or is_forced(frame, values):
        return Verdict.FAIL
    if passes(layout, frame.index, values):
        return Verdict.PASS
    return layout.policy.verdict_of(score)


def _forced_fail(layout: Layout, frame: Frame, values: Values) -> str | None:
    if is_forced(frame, values):
        return f"required: {requirement(layout, frame, values)}"
    return own_failure(layout, frame, values) or None

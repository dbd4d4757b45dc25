"""What-if in figures as a page lists them: each before and after with its difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import SCALE_DIGITS, rounded
from evaluators.templatetags import figures
from runs.summary import GateResult
from runs.what_if import Side, Stale, WhatIf

ALWAYS = ("pass", "fail")
STATES = ("pass", "borderline", "fail", "error", "waiting")
SHOWN_AS = {"not_run": "cancelled"}
ASKS = {"judge": "new model calls", "script": "its script to run again", "": "to be scored again"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure on both sides. `state` is the verdict it counts, `note` what it was measured over."""

    name: str
    before: str
    after: str
    delta: str
    tone: str
    state: str = ""
    note: str = ""

    @property
    def is_changed(self) -> bool:
        """Tell whether the two sides differ at all."""
        return bool(self.delta)


@dataclass(frozen=True, slots=True)
class GateChange:
    """One gate on both sides: passed, failed or open, and its figure against its threshold in words."""

    name: str
    before: str
    after: str
    note: str

    @property
    def is_changed(self) -> bool:
        """Tell whether the gate is decided otherwise."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An evaluator whose change the stored scores cannot follow, what it needs, and what stands in."""

    name: str
    why: str
    needs: str
    instead: str


def state_shown(state: str) -> str:
    """Return the mark a state of an execution or case is drawn with."""
    return SHOWN_AS.get(state, state)


def distribution(side: Side) -> dict[str, int]:
    """Return the cases of one side by the mark they are drawn with."""
    found: dict[str, int] = {}
    for state, count in side.distribution.items():
        found[state_shown(state)] = found.get(state_shown(state), 0) + count
    return found


def figures_of(found: WhatIf, scale: int) -> list[Figure]:
    """Return cases by verdict, the mean score, the executions that pass, and agreement with reviews."""
    return [*_verdicts(found), _mean(found, scale), _passed(found), *_agreement(found)]


def gates_of(found: WhatIf) -> list[GateChange]:
    """Return both gates of the run before and after (SCORING §8)."""
    before, after = found.before, found.after
    return [
        _gate("Metrics gate", before.metrics_gate, after.metrics_gate),
        _gate("Cases gate", before.cases_gate, after.cases_gate),
    ]


def unanswered(stale: Sequence[Stale]) -> list[Unanswered]:
    """Return what the stored scores leave open, by evaluator."""
    return [
        Unanswered(one.path or one.name, one.why, ASKS[one.asks], _instead(one)) for one in stale
    ]


def _instead(one: Stale) -> str:
    count = f"{figures.thousands(one.results)} of {figures.counted(one.total, 'execution')}"
    if one.instead == "kept":
        return f"the score it had stands in for {count}"
    return f"{count} {'waits' if one.results == 1 else 'wait'} for it"


def _verdicts(found: WhatIf) -> Iterator[Figure]:
    before, after = distribution(found.before), distribution(found.after)
    for state in (*STATES, "cancelled"):
        old, new = before.get(state, 0), after.get(state, 0)
        if old or new or state in ALWAYS:
            is_good = (new > old) == (state == "pass")
            tone = "" if new == old or state == "waiting" else "good" if is_good else "bad"
            delta = "" if new == old else figures.delta(new - old, "count")
            texts = figures.thousands(old), figures.thousands(new)
            yield Figure(state, *texts, delta, tone, state=state)


def _mean(found: WhatIf, scale: int) -> Figure:
    old, new = found.before, found.after
    # One digit more than a score has, as the mean of many moves by less.
    digits = SCALE_DIGITS[scale] + 1
    texts = [_score(one.mean_score, scale, digits) for one in (old, new)]
    note = _over(old.with_score, new.with_score, old.executions)
    if old.mean_score is None or new.mean_score is None:
        delta, tone = ("", "") if texts[0] == texts[1] else (figures.MISSING, "")
    else:
        moved = rounded(new.mean_score - old.mean_score)
        size = figures.nearest(abs(moved) * scale, digits)
        delta = "" if moved == 0 else figures.sign(moved, f"{size:f}")
        tone = "" if moved == 0 else "good" if moved > 0 else "bad"
    return Figure("Mean score", texts[0], texts[1], delta, tone, note=note)


def _score(value: float | None, scale: int, digits: int) -> str:
    return figures.MISSING if value is None else figures.down(value * scale, digits)


def _over(before: int, after: int, total: int) -> str:
    counts = figures.thousands(after)
    if before != after:
        counts = f"{figures.thousands(before)} → {counts}"
    return f"{counts} of {figures.thousands(total)}"


def _passed(found: WhatIf) -> Figure:
    old, new = found.before, found.after
    moved = new.passed - old.passed
    return Figure(
        "Executions passed",
        figures.thousands(old.passed),
        figures.thousands(new.passed),
        figures.delta(moved, "count") if moved else "",
        ("good" if moved > 0 else "bad") if moved else "",
        note=f"of {figures.thousands(new.executions)}",
    )


def _agreement(found: WhatIf) -> Iterator[Figure]:
    old, new = found.before.agreement, found.after.agreement
    if not (old.reviewed or new.reviewed):
        return
    shares = [one.agreed / one.reviewed if one.reviewed else None for one in (old, new)]
    before, after = shares
    moved = rounded(after - before) if before is not None and after is not None else 0
    yield Figure(
        "Agrees with reviews",
        figures.pct(before),
        figures.pct(after),
        figures.delta(moved, "pts") if moved else "",
        ("good" if moved > 0 else "bad") if moved else "",
        note=f"{old.agreed} of {old.reviewed} → {new.agreed} of {new.reviewed}"
        if old != new
        else f"{new.agreed} of {new.reviewed}",
    )


def _gate(name: str, before: GateResult, after: GateResult) -> GateChange:
    shares = figures.pct(before.so_far), figures.pct(after.so_far)
    limits = figures.threshold(before.threshold), figures.threshold(after.threshold)
    share, limit = (one if one == other else f"{one} → {other}" for one, other in (shares, limits))
    counts = f"{figures.thousands(after.counted)} of {figures.thousands(after.total)}"
    note = f"{share}, needs {limit}; {counts}"
    return GateChange(name, _gate_state(before), _gate_state(after), note)


def _gate_state(gate: GateResult) -> str:
    return "open" if gate.passed is None else "passed" if gate.passed else "failed"

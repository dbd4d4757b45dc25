"""The gates of two runs that are compared: a comparison is about the change, a gate about being good enough."""

from __future__ import annotations

from evaluators.templatetags.figures import pct, threshold
from runs.models import Run, RunStatus
from runs.reports.case_groups import policy_of
from runs.reports.gates import RunGate, cases_gate, metrics_gate


def gates_of(run: Run) -> tuple[RunGate, RunGate]:
    """Return the Metrics and the Cases gate as the run's own page shows them, over all its cases."""
    policy = policy_of(run)
    return metrics_gate(run, policy), cases_gate(run, policy)


def gates_missed(run: Run) -> str:
    """Say which gates an ended run failed or left open, each with figure and threshold.

    "" where both passed, and where the run is still on.
    """
    if run.is_active:
        return ""
    gates = gates_of(run)
    if run.status != RunStatus.COMPLETED:
        return f"the gates of {run} are not judged: the run was not completed"
    failed = [one for one in gates if one.state == "failed"]
    if len(failed) == len(gates):
        told = ", ".join(f"{one.name} {_figure(one)}" for one in failed)
        return f"both gates of {run} failed: {told}"
    parts = [f"the {one.name} gate of {run} failed: {_figure(one)}" for one in failed]
    parts += [
        f"the {one.name} gate of {run} is not judged: {one.note}"
        for one in gates
        if one.state == "open"
    ]
    return "; ".join(parts)


def gates_in_short(run: Run) -> str:
    """Say in two or three words that gates of a completed run failed or are open, "" where both passed."""
    if run.status != RunStatus.COMPLETED:
        return ""
    states = [gate.state for gate in gates_of(run)]
    if failed := states.count("failed"):
        return "gate failed" if failed == 1 else "gates failed"
    return "gate not judged" if "open" in states else ""


def _figure(gate: RunGate) -> str:
    told = f"{pct(gate.share)} of {threshold(gate.limit)} needed"
    return f"{told}, {gate.with_reviews}" if gate.reviews else told

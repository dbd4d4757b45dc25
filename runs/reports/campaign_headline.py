"""A campaign in one or two sentences: who leads, by how much, at what cost, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.templatetags.figures import counted, execution_money, pct
from runs.reports.campaign_board import BoardRow, leaders


def headline(rows: Sequence[BoardRow]) -> str:
    """Return what somebody who leads reads in ten seconds; `rows` are by rank."""
    if not rows:
        return "No run of this campaign is left."
    first, active = leaders(rows), [row for row in rows if row.run.is_active]
    if not first:
        if active:
            return f"{_still_on(active, rows)}; no run has a final figure yet."
        return "No run was completed, so none has a final figure and nobody leads."
    ranked = [row for row in rows if row.rank is not None]
    if all(_has_only_errors(row) for row in ranked):
        of_which = "" if len(ranked) == len(rows) else " of the completed runs"
        nobody = f"obody leads: all executions{of_which} errored."
        return f"{_still_on(active, rows)}; n{nobody}" if active else f"N{nobody}"
    said = _lead(first, "so far " if active else "")
    if active:
        return f"{_still_on(active, rows)}; {said}."
    doubts = [row for row in rows if row.against is not None and not row.against.is_clear]
    return f"{said}{_for_its_cost(first)}.{_gates(first)}{_doubt(doubts, first)}"


def _has_only_errors(row: BoardRow) -> bool:
    return not row.scored and {state for state, count in row.counts.items() if count} == {"error"}


def _lead(first: Sequence[BoardRow], when: str) -> str:
    row = first[0]
    rate = f"{pct(row.run.cases.share)} ({row.passed} of {counted(row.counted, 'execution')})"
    if len(first) > 1:
        names = " and ".join(one.run.target for one in first)
        return f"{when}{names} share the lead with {rate}"
    cost = row.passed_case_usd
    at = f" at {execution_money(cost)} a passed case" if cost is not None else ""
    return f"{when}{row.run.target} leads with {rate}{at}"


def _for_its_cost(first: Sequence[BoardRow]) -> str:
    if len(first) > 1:
        return ""
    row = first[0]
    if not row.is_offer:
        return "; its cost is not known in full" if row.passed_case_usd is None else ""
    if row.beaten_by:
        return f"; {row.beaten_by.name} scores no less for no more"
    return "; nothing dominates it"


def _gates(first: Sequence[BoardRow]) -> str:
    """Say whether the leader passed its gates: the first of several may still be no good."""
    if len(first) > 1:
        passed = sum(not _missed(row) for row in first)
        return f" {passed} of these {len(first)} passed both gates."
    missed = _missed(first[0])
    if not missed:
        return " It passed both gates."
    return f" It did not pass its {' and '.join(missed)} gate{'s' if len(missed) > 1 else ''}."


def _missed(row: BoardRow) -> list[str]:
    gates = (row.run.metrics, row.run.cases)
    return [gate.name for gate in gates if gate.state != "passed"]


def _doubt(doubts: Sequence[BoardRow], first: Sequence[BoardRow]) -> str:
    """Say which runs could as well be the first for all that the cases tell."""
    if not doubts:
        return ""
    names = ", ".join(row.run.target for row in doubts)
    few = all(row.against is not None and row.against.is_too_little for row in doubts)
    why = "too few cases are shared" if few else "the difference is within the noise"
    return f" {names} cannot be told apart from {'it' if len(first) == 1 else 'them'}: {why}."


def _still_on(active: Sequence[BoardRow], rows: Sequence[BoardRow]) -> str:
    verb = "is" if len(active) == 1 else "are"
    return f"{len(active)} of {counted(len(rows), 'run')} {verb} still on"

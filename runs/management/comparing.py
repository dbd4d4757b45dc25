"""What a comparison means for whoever asked at a command line: an exit code, and how it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluators.templatetags.figures import counted, delta, duration, money, pct, score
from runs.comparison import ERROR, REGRESSION, CaseChange, CaseSide, by_harm
from runs.management.concluding import Conclusion
from runs.management.telling import GAPS
from runs.models import RunStatus
from runs.reports.comparison import Compared, Side

NO_REGRESSION, REGRESSED, INCONCLUSIVE = 0, 1, 2
MOST_ROWS = 20
LONGEST_CASE = 48
# Figures are rounded down (SCORING §1): the difference of two may be a tenth off the change.
EXACT = "Figures are rounded down, changes are those of the exact values."


def conclude_comparison(found: Compared, *, is_forced: bool, least_cases: int) -> Conclusion:
    """Return what came out: a regression counts only where the runs can be compared at all.

    Exceeded tolerances of the whole runs make a regression (SCORING §9); cases alone do not.
    """
    reason = _in_the_way(found, is_forced=is_forced, least_cases=least_cases)
    if reason:
        return Conclusion(INCONCLUSIVE, f"Inconclusive: {reason}")
    if found.runs.regression_detected:
        reasons = "; ".join(one.text for one in found.runs.reasons)
        return Conclusion(REGRESSED, f"Regression: {reasons}.")
    return Conclusion(NO_REGRESSION, "No regression: every tolerance is kept.")


def _in_the_way(found: Compared, *, is_forced: bool, least_cases: int) -> str:
    """Return what keeps the comparison from meaning anything, "" when nothing does."""
    for side in (found.baseline, found.candidate):
        run = side.run
        if run.is_active:
            return f"{_name(side)} is still on. Compare it when it is over."
        if run.status != RunStatus.COMPLETED and not is_forced:
            ended = RunStatus(run.status).label.lower()
            return f"{_name(side)} was not completed ({ended}). Resume it, or add --force."
    if not is_forced and not found.is_comparable:
        spoilt = ", ".join(one.what for one in found.differences if one.spoils)
        return f"the runs differ in {spoilt}, not in their targets alone. Add --force to compare."
    if found.shared < least_cases:
        cases = counted(found.shared, "shared case")
        return f"{cases} with a verdict on both sides, {least_cases} are needed (--min-cases)."
    return ""


def comparison_table(found: Compared) -> str:
    """Return both runs, what differs, their figures, and the cases that got worse, the worst first."""
    return "\n".join(line.translate(GAPS) for line in _lines(found))


def _lines(found: Compared) -> Iterator[str]:
    yield f"Baseline   {_about(found.baseline)}"
    yield f"Candidate  {_about(found.candidate)}"
    for one in found.differences:
        yield f"Differs    {one.what}: {one.text}"
    yield ""
    yield from _table(("", "Baseline", "Candidate", "Change"), list(_figures(found)))
    yield EXACT
    cases = by_harm(found.cases)
    yield from _case_table("Got worse", [one for one in cases if one.status == REGRESSION])
    yield from _case_table("Verdict lost", [one for one in cases if _lost_its_verdict(one)])
    yield ""
    yield f"Cases: {_counts(found.cases)}"


def _case_table(head: str, changes: Sequence[CaseChange]) -> Iterator[str]:
    if not changes:
        return
    yield ""
    rows = [_case_row(change) for change in changes[:MOST_ROWS]]
    yield from _table((head, "Baseline", "Candidate", "Change"), rows)
    if len(changes) > MOST_ROWS:
        yield f"and {len(changes) - MOST_ROWS} more; --json FILE holds every case"


def _lost_its_verdict(change: CaseChange) -> bool:
    had = change.baseline is not None and change.baseline.verdict is not None
    lost = change.candidate is not None and change.candidate.verdict is None
    return change.status == ERROR and had and lost


def _about(side: Side) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"{_name(side)} against {side.run.target_name}, {status}"


def _name(side: Side) -> str:
    return f"{side.run.suite.slug}{side.run}"


def _figures(found: Compared) -> Iterator[Sequence[str]]:
    (before, after), runs = (found.baseline, found.candidate), found.runs
    was, now = before.figures, after.figures
    yield "Pass rate", _rate(before), _rate(after), delta(runs.pass_rate_change, "pts")
    means = (
        _over(pct(was.mean_score), before.scored, before),
        _over(pct(now.mean_score), after.scored, after),
    )
    yield "Mean score", *means, delta(runs.score_change, "pts")
    took = (
        _over(duration(was.mean_latency_ms), before.timed, before),
        _over(duration(now.mean_latency_ms), after.timed, after),
    )
    change = runs.latency_change_pct
    yield "Mean latency", *took, delta(None if change is None else change / 100, "pct")
    yield (
        "Errors",
        str(before.errors),
        str(after.errors),
        delta(after.errors - before.errors, "count"),
    )
    yield "Cost", money(before.cost_usd), money(after.cost_usd), ""


def _rate(side: Side) -> str:
    return _over(pct(side.figures.pass_rate), side.figures.passed, side)


def _over(figure: str, count: int, side: Side) -> str:
    return f"{figure} ({count} of {side.figures.total})"


def _case_row(change: CaseChange) -> Sequence[str]:
    name = change.case
    if len(name) > LONGEST_CASE:
        name = f"{name[: LONGEST_CASE - 1]}…"
    sides = _side(change.baseline), _side(change.candidate)
    return name, *sides, delta(change.score_change, "pts")


def _side(side: CaseSide | None) -> str:
    if side is None:
        return ""
    word = "no verdict" if side.verdict is None else side.verdict.value
    return word if side.mean_score is None else f"{word} {score(side.mean_score)}"


def _counts(changes: Sequence[CaseChange]) -> str:
    words = ("regression", "improvement", "unchanged", "error", "added", "removed")
    counts = {word: sum(change.status == word for change in changes) for word in words}
    told = {"regression": "worse", "improvement": "better", "error": "without a verdict"}
    return ", ".join(f"{count} {told.get(word, word)}" for word, count in counts.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()

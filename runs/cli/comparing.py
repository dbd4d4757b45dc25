"""A comparison at the command line: its exit code and its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluators.templatetags.figures import delta, duration, money, pct, score, threshold
from runs.cli.evaluating import ExitConclusion
from runs.cli.printing import GAPS
from runs.compare import comparison as conclusions
from runs.compare.comparison import Comparison, ComparisonSide, format_p
from runs.compare.measures import format_mean, format_mean_change
from runs.compare.rules import ERROR, REGRESSION, CaseChange, CaseSide, by_harm
from runs.models.runs import RunStatus
from runs.results.runs import RunGate

NO_REGRESSION, REGRESSED, INCONCLUSIVE = 0, 1, 2
CODES = {
    conclusions.NO_REGRESSION: NO_REGRESSION,
    conclusions.REGRESSION: REGRESSED,
    conclusions.INCONCLUSIVE: INCONCLUSIVE,
}
HINTS = {
    conclusions.STILL_ON: "Compare it when it is over.",
    conclusions.NOT_COMPLETED: "Resume it, or add --force.",
    conclusions.NOT_COMPARABLE: "Add --force to compare, or --shared where cases alone differ.",
    conclusions.TOO_FEW_SHARED: "--min-cases says how many.",
}
MAX_ROWS = 20
MAX_CASE_LENGTH = 48
# Figures are rounded down (SCORING §1): the difference of two may be a tenth off the change.
EXACT = "Figures are rounded down, changes are those of the exact values."


def conclude_comparison(conclusion: conclusions.Conclusion) -> ExitConclusion:
    """Return the exit code of what came out, and its sentence with a way on where it is inconclusive."""
    hint = HINTS.get(conclusion.kind, "")
    sentence = f"{conclusion.title}: {conclusion.sentence[:1].lower()}{conclusion.sentence[1:]}"
    if conclusion.headline != conclusion.title:
        sentence = f"{conclusion.headline}. {conclusion.sentence}"
    return ExitConclusion(CODES[conclusion.state], f"{sentence} {hint}".rstrip())


def comparison_table(found: Comparison) -> str:
    """Return both runs, what differs, their figures, and the cases that got worse, the worst first."""
    return "\n".join(line.translate(GAPS) for line in _lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield f"Baseline   {_about(found.baseline)}"
    yield f"Candidate  {_about(found.candidate)}"
    for one in found.differences:
        yield f"Differs    {one.what}: {one.text}"
    yield ""
    yield from _table(("", "Baseline", "Candidate", "Change"), list(_figures(found)))
    yield EXACT
    yield from _measured(found)
    cases = by_harm(found.cases)
    yield from _case_table("Got worse", [one for one in cases if one.status == REGRESSION])
    yield from _case_table("Verdict lost", [one for one in cases if _lost_its_verdict(one)])
    yield ""
    yield f"Cases: {_counts(found.cases)}"


def _case_table(head: str, changes: Sequence[CaseChange]) -> Iterator[str]:
    if not changes:
        return
    yield ""
    rows = [_case_row(change) for change in changes[:MAX_ROWS]]
    yield from _table((head, "Baseline", "Candidate", "Change"), rows)
    if len(changes) > MAX_ROWS:
        yield f"and {len(changes) - MAX_ROWS} more; --json FILE holds every case"


def _lost_its_verdict(change: CaseChange) -> bool:
    had = change.baseline is not None and change.baseline.verdict is not None
    lost = change.candidate is not None and change.candidate.verdict is None
    return change.status == ERROR and had and lost


def _about(side: ComparisonSide) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"{_name(side)} against {side.run.target_name}, {status}"


def _name(side: ComparisonSide) -> str:
    return f"{side.run.suite.slug}{side.run}"


def _figures(found: Comparison) -> Iterator[Sequence[str]]:
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
    slow = duration(before.p95_ms), duration(after.p95_ms)
    yield "p95 latency", *slow, ""
    yield "Run cost", money(before.run_cost_usd), money(after.run_cost_usd), ""
    yield "Evaluation cost", money(before.evaluation_cost_usd), money(after.evaluation_cost_usd), ""
    yield "Total cost", money(before.cost_usd), money(after.cost_usd), _dearer(before, after)
    for was_gate, now_gate in zip(before.gates, after.gates, strict=True):
        yield f"{was_gate.name} gate", _gate(was_gate), _gate(now_gate), ""


def _gate(gate: RunGate) -> str:
    word = "not judged" if gate.state not in ("passed", "failed") else gate.state
    return f"{word}, {pct(gate.share)} of {threshold(gate.limit)} needed"


def _dearer(before: ComparisonSide, after: ComparisonSide) -> str:
    was, now = before.cost_usd, after.cost_usd
    return delta(now / was - 1, "pct") if was and now is not None else ""


def _measured(found: Comparison) -> Iterator[str]:
    """Yield what evaluators measured over the shared cases, on each figure's own scale."""
    rows = []
    for one in found.evidence.measured:
        said = one.paired
        if said.mean is None or said.low is None or said.high is None:
            continue
        interval = f"{format_mean_change(said.low)} to {format_mean_change(said.high)}"
        means = format_mean(one.before), format_mean(one.after)
        name = f"{one.name} ({one.figure.kind}, of {one.scale})"
        rows.append(
            (
                name,
                *means,
                format_mean_change(said.mean),
                interval,
                format_p(said.p),
                f"{said.cases}",
            )
        )
    if rows:
        yield ""
        head = ("Measured", "Baseline", "Candidate", "Change", "95% interval", "p", "Cases")
        yield from _table(head, rows)


def _rate(side: ComparisonSide) -> str:
    return _over(pct(side.figures.pass_rate), side.figures.passed, side)


def _over(figure: str, count: int, side: ComparisonSide) -> str:
    return f"{figure} ({count} of {side.figures.total})"


def _case_row(change: CaseChange) -> Sequence[str]:
    name = change.case
    if len(name) > MAX_CASE_LENGTH:
        name = f"{name[: MAX_CASE_LENGTH - 1]}…"
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

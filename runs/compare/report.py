"""A comparison as text: the report of the command line, and the comment of a pull request in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evaluators.templatetags.figures import (
    GAPS,
    delta,
    duration,
    money,
    p_value,
    pct,
    score,
    threshold,
)
from runs.compare import conclusion as conclusions
from runs.compare.comparison import Comparison
from runs.compare.conclusion import judge_noise
from runs.compare.measures import cost_change, format_cost, format_mean, format_mean_change
from runs.compare.rules import ERROR, REGRESSION, CaseChange, CaseSide, by_harm
from runs.compare.sides import ComparisonSide
from runs.models.runs import RunStatus
from runs.results.pairwise import run_pairwise
from runs.results.runs import ExitConclusion, RunGate, run_word

NO_REGRESSION, REGRESSED, INCONCLUSIVE = 0, 1, 2
CODES = {
    conclusions.NO_REGRESSION: NO_REGRESSION,
    conclusions.REGRESSION: REGRESSED,
    conclusions.INCONCLUSIVE: INCONCLUSIVE,
}
HINTS = {
    conclusions.STILL_RUNNING: "Compare it when it has finished.",
    conclusions.NOT_COMPLETED: "Resume it, or add --force.",
    conclusions.NOT_COMPARABLE: "Add --force to compare, or --shared if only the cases differ.",
    conclusions.TOO_FEW_SHARED: "--min-cases sets the minimum.",
}
MAX_ROWS = 20
MAX_CASE_LENGTH = 48
# The difference of two rounded figures may be a tenth off the exact change.
ROUNDING_NOTE = "Figures are rounded down; changes are exact."


def conclude_comparison(conclusion: conclusions.Conclusion) -> ExitConclusion:
    """Return the exit code and the sentence, with a hint if the comparison is inconclusive."""
    hint = HINTS.get(conclusion.kind, "")
    title = conclusion.title if conclusion.kind == conclusions.ONLY_JUDGING else conclusion.state
    sentence = f"{title.capitalize()}: {conclusion.sentence[:1].lower()}{conclusion.sentence[1:]}"
    if conclusion.headline != conclusion.title:
        sentence = f"{conclusion.headline}. {conclusion.sentence}"
    return ExitConclusion(CODES[conclusion.state], f"{sentence} {hint}".rstrip())


def comparison_report(comparison: Comparison, conclusion: conclusions.Conclusion) -> str:
    """Return both runs, their differences and figures, the cases that got worse, worst first, and the conclusion."""
    lines = [line.translate(GAPS) for line in _lines(comparison)]
    sentence = conclude_comparison(conclusion).sentence
    return "\n".join([*lines, sentence, f"Evidence: {conclusion.evidence}"])


def _lines(comparison: Comparison) -> Iterator[str]:
    if comparison.is_of_same_outputs:
        yield f"{conclusions.ONLY_JUDGING.capitalize()}. {conclusions.judging_text(comparison)}"
    yield f"Baseline   {_title(comparison.baseline)}"
    yield f"Candidate  {_title(comparison.candidate)}"
    for difference in comparison.differences:
        yield f"Differs    {difference.what}: {difference.text}"
    yield ""
    yield from _table(("", "Baseline", "Candidate", "Change"), list(_figures(comparison)))
    yield ROUNDING_NOTE
    for noise in judge_noise(comparison):
        yield noise.text
    baseline, candidate = comparison.baseline.run, comparison.candidate.run
    found = run_pairwise(candidate) if candidate.is_compared_with(baseline) else None
    for row in found.rows if found is not None else ():
        yield f"Pair by pair, {row.text}."
    yield from _measured(comparison)
    cases = by_harm(comparison.cases)
    yield from _case_table("Got worse", [case for case in cases if case.status == REGRESSION])
    yield from _case_table("Verdict lost", [case for case in cases if _lost_its_verdict(case)])
    yield ""
    yield f"Cases: {_counts(comparison.cases)}"


def _case_table(head: str, changes: Sequence[CaseChange]) -> Iterator[str]:
    if not changes:
        return
    yield ""
    rows = [_case_row(change) for change in changes[:MAX_ROWS]]
    yield from _table((head, "Baseline", "Candidate", "Change"), rows)
    if len(changes) > MAX_ROWS:
        yield f"and {len(changes) - MAX_ROWS} more; --json FILE writes every case"


def _lost_its_verdict(change: CaseChange) -> bool:
    had = change.baseline is not None and change.baseline.verdict is not None
    lost = change.candidate is not None and change.candidate.verdict is None
    return change.status == ERROR and had and lost


def _title(side: ComparisonSide) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"{_name(side)} against {side.run.target_name}, {status}"


def _name(side: ComparisonSide) -> str:
    return f"{side.run.suite.slug}{side.run}"


def _figures(comparison: Comparison) -> Iterator[Sequence[str]]:
    (before, after), runs = (comparison.baseline, comparison.candidate), comparison.runs
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
    yield "Target cost", money(before.run_cost_usd), money(after.run_cost_usd), ""
    yield "Judge cost", money(before.evaluation_cost_usd), money(after.evaluation_cost_usd), ""
    yield "Total cost", format_cost(before), format_cost(after), _cost_change(before, after)
    for was_gate, now_gate in zip(before.gates, after.gates, strict=True):
        yield f"{was_gate.name} gate", _gate(was_gate), _gate(now_gate), ""


def _gate(gate: RunGate) -> str:
    word = "not evaluated" if gate.state not in ("passed", "failed") else gate.state
    return f"{word}, {pct(gate.share)} of {threshold(gate.limit)} needed"


def _cost_change(before: ComparisonSide, after: ComparisonSide) -> str:
    change = cost_change(before, after)
    return "" if change is None else delta(change, "pct")


def _measured(comparison: Comparison) -> Iterator[str]:
    """Yield the table of evaluator figures over the shared cases, each on its own scale."""
    rows = []
    for measure in comparison.evidence.measured:
        paired = measure.paired
        if paired.mean is None or paired.low is None or paired.high is None:
            continue
        interval = f"{format_mean_change(paired.low)} to {format_mean_change(paired.high)}"
        means = format_mean(measure.before), format_mean(measure.after)
        name = f"{measure.name} ({measure.figure.kind}, of {measure.scale})"
        rows.append(
            (
                name,
                *means,
                format_mean_change(paired.mean),
                interval,
                p_value(paired.p),
                f"{paired.cases}",
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
    labels = {"regression": "worse", "improvement": "better", "error": "without a verdict"}
    return ", ".join(f"{count} {labels.get(word, word)}" for word, count in counts.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def pull_request_comment(comparison: Comparison, conclusion: ExitConclusion, *, url: str) -> str:
    """Return the comment; `url` leads to the page of the comparison."""
    worse = [case for case in by_harm(comparison.cases) if case.status == REGRESSION]
    return comparison_comment(
        passed=conclusion.code == NO_REGRESSION,
        sentence=conclusion.sentence,
        figures=list(_figures(comparison)),
        worse=[_case_row(case) for case in worse[:MAX_ROWS]],
        left=max(0, len(worse) - MAX_ROWS),
        url=url,
    ).translate(GAPS)


def comparison_path(comparison: Comparison) -> str:
    """Return the path of the page of the comparison."""
    baseline, candidate = (
        run_word(side.run) for side in (comparison.baseline, comparison.candidate)
    )
    return f"/compare/?baseline={baseline}&candidate={candidate}"


# Names of cases come from files of anybody: they must neither format the comment nor call people or issues.
FORMATS = re.compile(r"([\\`*_\[\]<>|~])")
CALLS = re.compile(r"([@#])")
Row = Sequence[str]


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line; @ and # refer to nobody and nothing."""
    return CALLS.sub("\\1\u200b", FORMATS.sub(r"\\\1", " ".join(text.split())))


def markdown_table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table; the first column is text, the others are figures."""
    yield _line(head)
    yield _line([":--", *("--:" for _ in head[1:])], raw=True)
    yield from map(_line, rows)


def comparison_comment(
    *,
    passed: bool,
    sentence: str,
    figures: Sequence[Row],
    worse: Sequence[Row],
    left: int,
    url: str,
) -> str:
    """Return the comment; `left` is how many cases that got worse are not among the rows `worse`."""
    lines = [f"### {'✅' if passed else '❌'} {escaped(sentence)}", ""]
    lines += [*markdown_table(("", "Baseline", "Candidate", "Change"), figures), ""]
    if worse:
        lines += [*markdown_table(("Got worse", "Baseline", "Candidate", "Change"), worse), ""]
    if left:
        lines += [f"and {left} more", ""]
    return "\n".join([*lines, f"[Open the comparison]({url})", ""])


def _line(cells: Row, *, raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else escaped(cell) for cell in cells)} |"

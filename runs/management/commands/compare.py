"""Compare two runs at the command line; the exit code says whether the second is worse."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluators.templatetags.figures import delta, duration, money, pct, score, threshold
from runs.cli.command import FAILED, SiteCommand, full_url, get_run
from runs.cli.files import STANDARD_OUTPUT, check_writable, write_file
from runs.cli.markdown import comparison_comment
from runs.cli.printing import GAPS, print_line
from runs.compare import comparison as conclusions
from runs.compare.comparison import Comparison, ComparisonSide, build_comparison, conclude, format_p
from runs.compare.documents import comparison_document
from runs.compare.measures import format_mean, format_mean_change
from runs.compare.rules import ERROR, REGRESSION, CaseChange, CaseSide, Tolerances, by_harm
from runs.engine.plan import read_plan
from runs.models.runs import RunStatus
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
JSON, MARKDOWN = "--json", "--markdown"
# For each option: the divisor from its unit to the stored value, its maximum, and its description.
UNITS = {
    "max_pass_rate_drop": (1.0, 1.0, "a share from 0 to 1, such as 0.02 for two points"),
    "max_avg_score_drop": (100.0, 100.0, "points of 100, such as 5"),
    "max_latency_increase_pct": (1.0, sys.float_info.max, "percent of 0 or more, such as 20"),
}
EPILOG = """\
BASELINE and CANDIDATE each name a run:
  SUITE#N         the run of that number, as pages show it
  SUITE:latest    the newest finished run of the suite, except rescored runs
  SUITE:baseline  the baseline run of the suite

A regression is a change of the whole runs beyond a limit. Without options the limits
are those of the candidate's suite at the time of the run. Runs whose cases, evaluators, files, policy
or judge differ, and runs that were not completed, are compared only with --force.

exit codes:
  0  no regression
  1  a regression
  2  inconclusive: not comparable, not completed, or too few shared cases
  3  not compared: wrong usage, a run that does not exist, a file that cannot be written

examples:
  evalsite compare support-agent#12 support-agent#13
  evalsite compare support-agent:baseline support-agent:latest --max-pass-rate-drop 0.02
  evalsite compare support-agent:baseline support-agent:latest --markdown comment.md
"""


class Command(SiteCommand):
    """Print what changed from one run to another."""

    help = """\
Compare two runs: pass rate, mean score and latency against regression limits, and every shared case. The
exit code says whether the candidate is worse than the baseline."""
    epilog = EPILOG
    action = "The comparison"
    # 2 means inconclusive, so a wrong option must not exit with it.
    misuse_code = FAILED

    def add_arguments(self, parser: CommandParser) -> None:
        """Take both runs and the regression limits."""
        parser.add_argument("baseline", metavar="BASELINE", help="The run to compare with.")
        parser.add_argument("candidate", metavar="CANDIDATE", help="The candidate.")
        parser.add_argument(
            "--max-pass-rate-drop",
            type=float,
            metavar="SHARE",
            help="How far the pass rate may fall, a share from 0 to 1.",
        )
        parser.add_argument(
            "--max-avg-score-drop",
            type=float,
            metavar="POINTS",
            help="How far the mean score may fall, in points of 100.",
        )
        parser.add_argument(
            "--max-latency-increase-pct",
            type=float,
            metavar="PERCENT",
            help="How far the mean latency may grow, in percent.",
        )
        parser.add_argument(
            "--min-cases",
            type=int,
            default=1,
            metavar="N",
            help="Minimum number of shared cases with a verdict on both sides (1).",
        )
        parser.add_argument(
            "--force", action="store_true", help="Compare runs that differ in more than the target."
        )
        parser.add_argument(
            "--shared",
            action="store_true",
            help="Compare only the cases that both runs have.",
        )
        parser.add_argument(
            JSON,
            type=Path,
            metavar="FILE",
            help="Write figures, reasons and every case as JSON; - is standard output.",
        )
        parser.add_argument(
            MARKDOWN,
            type=Path,
            metavar="FILE",
            help="Write a comment for a pull request: headline, figures, the cases that got worse, and a link; "
            "- is standard output.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Compare the runs, print the comparison and exit with its code."""
        written = [(name, options[name.strip("-")]) for name in (JSON, MARKDOWN)]
        check_writable(written)
        baseline, candidate = get_run(options["baseline"]), get_run(options["candidate"])
        tolerances = _tolerances(
            Tolerances.from_policy(read_plan(candidate.snapshot).policy), options
        )
        comparison = build_comparison(
            baseline, candidate, tolerances, only_shared=options["shared"]
        )
        result = conclude(comparison, is_forced=options["force"], least_cases=options["min_cases"])
        conclusion = conclude_comparison(result)
        is_piped = any(path == STANDARD_OUTPUT for _, path in written)
        stream = sys.stderr if is_piped else self.stdout
        print_line(stream, comparison_table(comparison))
        print_line(stream, conclusion.sentence)
        print_line(stream, f"Evidence: {result.evidence}")
        if options["json"]:
            outcome = {"exit_code": conclusion.code, "conclusion": conclusion.sentence}
            document = json.dumps(
                {**comparison_document(comparison, result).as_json(), **outcome}, indent=2
            )
            write_file(JSON, options["json"], [document, "\n"])
        if options["markdown"]:
            write_file(MARKDOWN, options["markdown"], [_comment(comparison, conclusion)])
        if conclusion.code != NO_REGRESSION:
            sys.exit(conclusion.code)


def _comment(comparison: Comparison, conclusion: ExitConclusion) -> str:
    runs = [run_word(side.run) for side in (comparison.baseline, comparison.candidate)]
    worse = [case for case in by_harm(comparison.cases) if case.status == REGRESSION]
    return comparison_comment(
        passed=conclusion.code == NO_REGRESSION,
        sentence=conclusion.sentence,
        figures=list(_figures(comparison)),
        worse=[_case_row(case) for case in worse[:MAX_ROWS]],
        left=max(0, len(worse) - MAX_ROWS),
        url=full_url(f"/compare/?baseline={runs[0]}&candidate={runs[1]}"),
    ).translate(GAPS)


def _tolerances(usual: Tolerances, options: dict[str, Any]) -> Tolerances:
    """Return the suite's regression limits, overridden by the options."""
    overrides = {}
    for name, (unit, maximum, description) in UNITS.items():
        value = options[name]
        if value is None:
            continue
        if not 0 <= value <= maximum:
            option = f"--{name.replace('_', '-')}"
            raise CommandError(
                f"{option} is {value:g}; it must be {description}.", returncode=FAILED
            )
        overrides[name] = value / unit
    return replace(usual, **overrides)


def conclude_comparison(conclusion: conclusions.Conclusion) -> ExitConclusion:
    """Return the exit code and the sentence, with a hint if the comparison is inconclusive."""
    hint = HINTS.get(conclusion.kind, "")
    sentence = f"{conclusion.state.capitalize()}: {conclusion.sentence[:1].lower()}{conclusion.sentence[1:]}"
    if conclusion.headline != conclusion.title:
        sentence = f"{conclusion.headline}. {conclusion.sentence}"
    return ExitConclusion(CODES[conclusion.state], f"{sentence} {hint}".rstrip())


def comparison_table(comparison: Comparison) -> str:
    """Return the report: both runs, their differences and figures, and the cases that got worse, worst first."""
    return "\n".join(line.translate(GAPS) for line in _lines(comparison))


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"Baseline   {_title(comparison.baseline)}"
    yield f"Candidate  {_title(comparison.candidate)}"
    for difference in comparison.differences:
        yield f"Differs    {difference.what}: {difference.text}"
    yield ""
    yield from _table(("", "Baseline", "Candidate", "Change"), list(_figures(comparison)))
    yield ROUNDING_NOTE
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
    yield "Total cost", money(before.cost_usd), money(after.cost_usd), _cost_change(before, after)
    for was_gate, now_gate in zip(before.gates, after.gates, strict=True):
        yield f"{was_gate.name} gate", _gate(was_gate), _gate(now_gate), ""


def _gate(gate: RunGate) -> str:
    word = "not evaluated" if gate.state not in ("passed", "failed") else gate.state
    return f"{word}, {pct(gate.share)} of {threshold(gate.limit)} needed"


def _cost_change(before: ComparisonSide, after: ComparisonSide) -> str:
    was, now = before.cost_usd, after.cost_usd
    return delta(now / was - 1, "pct") if was and now is not None else ""


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
                format_p(paired.p),
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

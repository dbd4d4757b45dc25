"""Compare two runs at the command line; the exit code says whether the second is worse."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.command import FAILED, SiteCommand, full_url, get_run
from runs.cli.files import STANDARD_OUTPUT, check_writable, write_file
from runs.cli.options import JSON, MARKDOWN, add_compare_options
from runs.cli.terminal import print_line
from runs.compare.comparison import build_comparison
from runs.compare.conclusion import conclude
from runs.compare.documents import comparison_document
from runs.compare.report import (
    NO_REGRESSION,
    comparison_path,
    comparison_report,
    conclude_comparison,
    pull_request_comment,
)
from runs.compare.rules import Tolerances
from runs.engine.plan import read_plan

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
        add_compare_options(parser)

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
        print_line(stream, comparison_report(comparison, result))
        if options["json"]:
            outcome = {"exit_code": conclusion.code, "conclusion": conclusion.sentence}
            document = json.dumps(
                {**comparison_document(comparison, result).as_json(), **outcome}, indent=2
            )
            write_file(JSON, options["json"], [document, "\n"])
        if options["markdown"]:
            url = full_url(comparison_path(comparison))
            comment = pull_request_comment(comparison, conclusion, url=url)
            write_file(MARKDOWN, options["markdown"], [comment])
        if conclusion.code != NO_REGRESSION:
            sys.exit(conclusion.code)


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

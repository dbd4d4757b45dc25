"""Compare two runs at the command line; the exit code says whether the second is worse."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.answering import AnsweringCommand
from runs.cli.comparing import NO_REGRESSION, comparison_table, conclude_comparison
from runs.cli.files import STANDARD_OUTPUT, check_writable, write_file
from runs.cli.names import COULD_NOT, run_named
from runs.cli.printing import tell
from runs.compare.comparison import build_comparison, conclude
from runs.compare.documents import comparison_document
from runs.compare.rules import Tolerances
from runs.engine.plan import read_plan

JSON = "--json"
# What one of the option's unit is divided by to be stored, how much it takes at most, and its words.
UNITS = {
    "max_pass_rate_drop": (1.0, 1.0, "a share from 0 to 1, such as 0.02 for two points"),
    "max_avg_score_drop": (100.0, 100.0, "points of 100, such as 5"),
    "max_latency_increase_pct": (1.0, sys.float_info.max, "percent of 0 or more, such as 20"),
}
EPILOG = """\
BASELINE and CANDIDATE each name a run:
  SUITE#N         the run of that number, as pages show it
  SUITE:latest    the newest run of the suite that is over, those scored again left out
  SUITE:baseline  the run that was made the suite's baseline

A regression is a tolerance of the whole runs that is exceeded; reaching one is allowed. Without the
options the tolerances are those of the candidate's suite as it was run. Runs whose cases, evaluators,
files, policy or judge differ, and runs that were not completed, are compared with --force alone.

exit codes:
  0  no regression
  1  a regression
  2  inconclusive: not comparable, not completed, or too few shared cases
  3  not compared: a command line that was not understood, a run that does not exist, a file that
     cannot be written

examples:
  evalsite compare support-agent#12 support-agent#13
  evalsite compare support-agent:baseline support-agent:latest --max-pass-rate-drop 0.02
"""


class Command(AnsweringCommand):
    """Print what changed from one run to another."""

    help = """\
Compare two runs: pass rate, mean score and latency within tolerances, and every shared case. Says
by exit code whether the candidate is worse than the baseline."""
    epilog = EPILOG
    action = "The comparison"
    # 2 means inconclusive, so a wrong option must not exit with it.
    misuse_code = COULD_NOT

    def add_arguments(self, parser: CommandParser) -> None:
        """Take both runs and how much worse the second may be."""
        parser.add_argument("baseline", metavar="BASELINE", help="The run to compare with.")
        parser.add_argument("candidate", metavar="CANDIDATE", help="The run that may be worse.")
        parser.add_argument(
            "--max-pass-rate-drop",
            type=float,
            metavar="SHARE",
            help="By how much the pass rate may fall, a share from 0 to 1.",
        )
        parser.add_argument(
            "--max-avg-score-drop",
            type=float,
            metavar="POINTS",
            help="By how much the mean score may fall, in points of 100.",
        )
        parser.add_argument(
            "--max-latency-increase-pct",
            type=float,
            metavar="PERCENT",
            help="By how much the mean latency may grow, in percent.",
        )
        parser.add_argument(
            "--min-cases",
            type=int,
            default=1,
            metavar="N",
            help="Shared cases with a verdict on both sides that are needed (1).",
        )
        parser.add_argument(
            "--force", action="store_true", help="Compare what differs in more than its target."
        )
        parser.add_argument(
            "--shared",
            action="store_true",
            help="Compare by the cases alone that both runs have.",
        )
        parser.add_argument(
            JSON,
            type=Path,
            metavar="FILE",
            help="Write figures, reasons and every case as JSON; - is standard output.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Compare the runs, print the result and exit by it."""
        check_writable([(JSON, options["json"])])
        baseline, candidate = run_named(options["baseline"]), run_named(options["candidate"])
        tolerances = _tolerances(
            Tolerances.from_policy(read_plan(candidate.snapshot).policy), options
        )
        found = build_comparison(baseline, candidate, tolerances, only_shared=options["shared"])
        came_to = conclude(found, is_forced=options["force"], least_cases=options["min_cases"])
        conclusion = conclude_comparison(came_to)
        stream = sys.stderr if options["json"] == STANDARD_OUTPUT else self.stdout
        tell(stream, comparison_table(found))
        tell(stream, conclusion.sentence)
        tell(stream, f"Evidence: {came_to.evidence}")
        if options["json"]:
            told = {"exit_code": conclusion.code, "conclusion": conclusion.sentence}
            document = json.dumps(
                {**comparison_document(found, came_to).as_json(), **told}, indent=2
            )
            write_file(JSON, options["json"], [document, "\n"])
        if conclusion.code != NO_REGRESSION:
            sys.exit(conclusion.code)


def _tolerances(usual: Tolerances, options: dict[str, Any]) -> Tolerances:
    """Return the suite's tolerances with those of the options in their place."""
    given = {}
    for name, (unit, most, words) in UNITS.items():
        value = options[name]
        if value is None:
            continue
        if not 0 <= value <= most:
            option = f"--{name.replace('_', '-')}"
            raise CommandError(f"{option} is {value:g}; it takes {words}.", returncode=COULD_NOT)
        given[name] = value / unit
    return replace(usual, **given)

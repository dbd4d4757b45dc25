"""The options that a command has both on the site's own machine and against a site elsewhere."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from evaluators.scoring.types import DomainError

JSON, MARKDOWN = "--json", "--markdown"
FORMATS = EVALSITE, PROMPTFOO = ("evalsite", "promptfoo")


class ContradictoryOptionsError(DomainError):
    """The options contradict each other, or what is stored."""

    code = "cannot_ask"


def add_suite_file_options(parser: ArgumentParser) -> None:
    """Add how a suite is read from a file."""
    parser.add_argument(
        "--slug", metavar="NAME", help="Short name of the suite; default: the one in its file."
    )
    parser.add_argument(
        "--profile",
        default="",
        metavar="NAME",
        help="Defaults for files that name no profile: verdicts, metrics, tasks or hybrid.",
    )


def add_run_options(parser: ArgumentParser) -> None:
    """Add what a run is started with: its cases and limits."""
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="Only cases with this tag; repeatable."
    )
    parser.add_argument(
        "--case", action="append", metavar="KEY", help="Only the case with this key; repeatable."
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="Judge calls for each score in this run; default: as in the suite. Evaluators that cases define keep "
        "their own.",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="Run whose outputs pairwise evaluators compare the new ones with; default: the suite's baseline.",
    )
    parser.add_argument(
        "--repetitions", type=int, default=1, metavar="N", help="How many times each case runs (1)."
    )
    parser.add_argument(
        "--budget",
        metavar="USD",
        help="Budget in US dollars: no result starts that could exceed it.",
    )
    parser.add_argument(
        "--max-minutes",
        type=int,
        metavar="N",
        help="End each run after this many minutes and keep its results; default: as in the suite.",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="KEY[=WEIGHT]",
        help="Only this metric of the metrics judge counts in this run; repeatable.",
    )
    parser.add_argument(
        "--metric-weight",
        action="append",
        metavar="KEY=WEIGHT",
        help="Weight of a metric in this run; the others stay as in the suite. Repeatable.",
    )


def add_judging_options(parser: ArgumentParser) -> None:
    """Add which stored outputs are judged again, and by what."""
    parser.add_argument(
        "--outputs-of",
        action="append",
        metavar="RUN",
        help="Judge the outputs of this run again, without asking its target; repeatable.",
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="With --outputs-of: judge by this version."
    )
    parser.add_argument(
        "--filter",
        default="",
        metavar="FILTER",
        help="With --outputs-of: only results of cases that match this.",
    )
    parser.add_argument(
        "--ask-again",
        action="store_true",
        help="With --outputs-of: ask judges also where their question is the same.",
    )


def add_compare_options(parser: ArgumentParser) -> None:
    """Add both runs, the regression limits, and the files."""
    parser.add_argument("baseline", metavar="BASELINE", help="The run to compare with.")
    parser.add_argument("candidate", metavar="CANDIDATE", help="The candidate.")
    for option, metavar, text in (
        ("--max-pass-rate-drop", "SHARE", "How far the pass rate may fall, a share from 0 to 1."),
        ("--max-avg-score-drop", "POINTS", "How far the mean score may fall, in points of 100."),
        (
            "--max-latency-increase-pct",
            "PERCENT",
            "How far the mean latency may grow, in percent.",
        ),
    ):
        parser.add_argument(option, type=float, metavar=metavar, help=text)
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
        "--shared", action="store_true", help="Compare only the cases that both runs have."
    )
    for option, text in (
        (JSON, "Write figures, reasons and every case as JSON"),
        (
            MARKDOWN,
            "Write a comment for a pull request: headline, figures, the cases that got worse, and a link",
        ),
    ):
        parser.add_argument(
            option, type=Path, metavar="FILE", help=f"{text}; - is standard output."
        )


def add_export_options(parser: ArgumentParser) -> None:
    """Add the suite, its version, and where it is written as what."""
    parser.add_argument("suite", metavar="SUITE", help="Short name of the suite.")
    parser.add_argument(
        "--out", default="", metavar="PATH", help="Path to write to; - is standard output."
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=EVALSITE,
        help="evalsite (default), or promptfoo: a promptfooconfig.yaml.",
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="Version to write; default: the current one."
    )

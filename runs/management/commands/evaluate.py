"""Run a suite against a target from the command line, and answer by exit code whether it passed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser, OutputWrapper
from django.db import transaction

from evaluators.sandbox.processes import process_name
from runs.cli.answering import AnsweringCommand
from runs.cli.campaigns import (
    ConcludedRun,
    campaign_url,
    check_targets,
    execute_all,
    leaderboard,
    worst_code,
    write_files,
)
from runs.cli.evaluating import (
    NOT_EVALUATED,
    PASSED,
    ExitConclusion,
    check_against_what,
    check_tags,
    conclude,
    find_suite,
    find_target,
    options_as_remedies,
    output_warnings,
)
from runs.cli.files import FileOptions
from runs.cli.names import model_named, run_url
from runs.cli.printing import ProgressLine, summary_table, tell, worst_cases
from runs.cli.watching import carry_out, stop_wanted
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.models.runs import Run
from runs.requests import MoneyField
from runs.running.rules import RunRules
from runs.running.services import start_campaign

EPILOG = """\
SUITE is the short name of a suite of this site, or a path: a suite file, a folder or a zip. What
is at a path is imported first, as a new version where it changed. Where a folder has the name of a
suite, write ./NAME for the folder.

against what:
  --target NAME                     a target of this site
  --target recorded                 the outputs that are recorded in the cases
  --outputs FILE                    the outputs of this file (JSON Lines: {"id": …, "output": …}),
                                    stored as a recorded target of the file's name, or of --target's
  --model SLUG                      a language model, asked with the messages of the case alone
  --target NAME --model SLUG        a chat target as it is, with another model
  --target NAME --target NAME       several: a campaign, one run after the other, ranked at the end

Of several targets --out and --junit hold every run, --summary a list of them under "campaign", and
the exit code is the worst of all.

Costs in --out and --summary are numbers of US dollars to a billionth, null where no price is known.

exit codes:
  0  both gates passed
  1  a gate failed
  2  the command line was not understood
  3  not evaluated: a name that does not exist, no judge, files that cannot be read or written, a
     run that failed, was stopped or reached its budget, or a gate that fails by errors alone

Ctrl-C stops the run and keeps what is done; it can be resumed on its page. Progress goes to
standard error, the table at the end to standard output, or to standard error where a file is -.

examples:
  evalsite evaluate support-agent --target "agent 1.5.0" --budget 5 --summary summary.json
  evalsite evaluate support-agent --target "agent 1.4.0" --target "agent 1.5.0"
  evalsite evaluate ./evals --model gpt-4.1-mini --judge my-judge --tag smoke --out results.jsonl
  evalsite evaluate suite.yaml --outputs agent-1.5.0.jsonl --junit report.xml
  evalsite evaluate cases.jsonl --profile metrics --model gpt-4.1-mini --judge my-judge
"""


class Command(AnsweringCommand):
    """Start a run that this process alone carries out, beside a running site or without one."""

    help = """\
Run a suite against a target, in this process, and say by exit code whether it passed. Works beside
a running site and without one; the run is on the site's pages like any other."""
    epilog = EPILOG
    action = "The run"
    begins_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what the start form takes, and where to write what came of it."""
        parser.add_argument("suite", metavar="SUITE", help="Short name of a suite, or a path.")
        parser.add_argument(
            "--target",
            action="append",
            metavar="NAME",
            help="Name of a target, or: recorded; repeatable: several are a campaign.",
        )
        parser.add_argument(
            "--outputs", type=Path, metavar="FILE", help="Outputs that were recorded before."
        )
        parser.add_argument(
            "--model", metavar="SLUG", help="Language model to evaluate, or for the chat target."
        )
        parser.add_argument(
            "--judge", metavar="SLUG", help="Language model that judges; default: the suite's."
        )
        parser.add_argument(
            "--profile",
            default="",
            metavar="NAME",
            help="What a file at a path starts from: verdicts, metrics, tasks or hybrid.",
        )
        parser.add_argument(
            "--tag", action="append", metavar="TAG", help="Only cases with this tag; repeatable."
        )
        parser.add_argument(
            "--case", action="append", metavar="KEY", help="Only the case of this key; repeatable."
        )
        parser.add_argument(
            "--samples",
            type=int,
            metavar="N",
            help="Judge calls for each score in this run; default: as in the suite.",
        )
        parser.add_argument(
            "--repetitions", type=int, default=1, metavar="N", help="Executions of every case (1)."
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            metavar="N",
            help="Executions at the same time; default: what the language models allow.",
        )
        parser.add_argument(
            "--budget", metavar="USD", help="Stop before the call that would follow this sum."
        )
        FileOptions.add_to(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the run, carry it out, tell what came of it."""
        names = options["target"] or [""]
        check_targets(names, options["outputs"])
        for name in names:
            check_against_what(name, options["outputs"], options["model"])
        files = FileOptions.read(options)
        with stop_wanted() as stop:
            progress = ProgressLine(sys.stderr)
            runs = _start(options, names, progress)
            if len(runs) > 1:
                self._conclude_all(files, runs, execute_all(runs, progress, stop))
                return
            [run] = runs
            url = run_url(run)
            progress.say(f"{run.suite.title} {run} against {run.target_name}: {url}")
            problem = carry_out(run, progress, stop)
        if problem:
            raise CommandError(
                f"The run could not be carried out to its end: {problem}. It is at {url}",
                returncode=NOT_EVALUATED,
            )
        run.refresh_from_db()
        conclusion = conclude(run)
        self._tell(run, conclusion, url, sys.stderr if files.take_standard_output else self.stdout)
        files.write(run, conclusion, url=url)
        if conclusion.code != PASSED:
            sys.exit(conclusion.code)

    def _conclude_all(
        self, files: FileOptions, runs: Sequence[Run], concluded: Sequence[ConcludedRun]
    ) -> None:
        """Tell what came of a campaign, and end with the worst of its exit codes."""
        stream = sys.stderr if files.take_standard_output else self.stdout
        campaign = runs[0].campaign
        if campaign is None:
            raise CommandError("The campaign of these runs was deleted.", returncode=NOT_EVALUATED)
        table, headline = leaderboard(campaign)
        tell(stream, f"\n{table}\n")
        tell(stream, headline)
        for one in concluded:
            tell(stream, f"{one.run.target_name}: {one.conclusion.sentence}")
        tell(stream, f"Leaderboard: {campaign_url(campaign)}")
        write_files(files, campaign, concluded)
        if (code := worst_code(concluded)) != PASSED:
            sys.exit(code)

    def _tell(
        self, run: Run, conclusion: ExitConclusion, url: str, stream: TextIO | OutputWrapper
    ) -> None:
        tell(stream, f"\n{summary_table(run)}\n")
        if cases := worst_cases(run):
            tell(stream, f"{cases}\n")
        tell(stream, conclusion.sentence)
        if conclusion.code == NOT_EVALUATED and not run.is_active:
            tell(self.stderr, f"Resume it, or try its errors again, at {url}")


def _start(options: dict[str, Any], names: Sequence[str], progress: ProgressLine) -> list[Run]:
    """Start a run for each target, after ending those whose command lines are gone.

    A refusal leaves nothing behind.
    """
    budget_usd = _dollars(options["budget"])
    judge = model_named(options["judge"]) if options["judge"] else None
    model = model_named(options["model"]) if options["model"] else None
    notes: list[str] = []
    reap(now=database_now())
    with transaction.atomic(), options_as_remedies():
        suite = find_suite(
            options["suite"],
            judge=options["judge"] or "",
            profile=options["profile"],
            note=notes.append,
        )
        check_tags(suite, options["tag"] or ())
        targets = [find_target(name, options["outputs"], model) for name in names]
        for target in targets:
            notes += output_warnings(suite, target, options["tag"], options["case"])
        runs = start_campaign(
            suite=suite,
            targets=targets,
            started_by=None,
            judge=judge,
            tags=options["tag"],
            case_keys=options["case"],
            rules=RunRules(samples=options["samples"]),
            repetitions=options["repetitions"],
            concurrency=options["concurrency"],
            budget_usd=budget_usd,
            owner_id=process_name(),
        )
    for note in notes:
        progress.say(note)
    return runs


def _dollars(text: str | None) -> Decimal | None:
    try:
        amount: Decimal | None = MoneyField(required=False).clean(text)
    except ValidationError as error:
        raise CommandError(
            f"--budget is {text!r}, which is no amount; write US dollars, such as 5 or 0.50.",
            returncode=NOT_EVALUATED,
        ) from error
    return amount

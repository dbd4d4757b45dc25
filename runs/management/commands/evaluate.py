"""Run a suite against a target from the command line; the exit code says whether it passed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from evaluators.sandbox.processes import process_name
from runs.cli.campaigns import (
    ConcludedRun,
    check_targets,
    execute_all,
    leaderboard,
    worst_code,
    write_files,
)
from runs.cli.command import SiteCommand, campaign_url, get_model, get_run, read_file
from runs.cli.evaluating import (
    check_judging_options,
    check_tags,
    check_target_options,
    find_sources,
    find_suite,
    find_target,
    options_as_remedies,
    output_warnings,
    read_suite_at,
)
from runs.cli.files import FileOptions
from runs.cli.metric_options import metric_choices
from runs.cli.options import add_judging_options, add_run_options, add_suite_file_options
from runs.cli.single_run import execute_and_conclude, offer_to_resume, read_budget
from runs.cli.terminal import ProgressLine, print_line
from runs.cli.watching import stop_wanted
from runs.execution.reaper import reap
from runs.filters.queries import ResultsQuery
from runs.models.database import database_now
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.results.runs import NOT_EVALUATED, PASSED
from runs.running.judging_again import judge_again
from runs.running.judging_estimate import estimate_judging
from runs.running.judging_plan import JudgingRequest, plan_judging
from runs.running.rules import RunRules
from runs.running.services import start_campaign

EPILOG = """\
SUITE is the short name of a suite of this site, or a path: a suite file, a folder or a zip. A suite
at a path is imported first, as a new version if it changed. If a folder has the name of a suite,
write ./NAME for the folder.

what to evaluate:
  --target NAME                     a target of this site
  --target recorded                 the outputs that are recorded in the cases
  --outputs FILE                    the outputs in this file (JSON Lines: {"id": …, "output": …}),
                                    stored as a recorded target named after --target or the file
  --model SLUG                      a language model, which gets only the messages of the case
  --target NAME --model SLUG        a chat target with another model
  --target NAME --target NAME       several: a campaign, one run after the other, ranked at the end
  --outputs-of RUN                  the outputs of a finished run: they are judged again, and no target is
                                    asked. Evaluators whose question is the same keep their scores at no
                                    cost; repeat it for several runs
  --ask-again                       with --outputs-of: judges are asked also where their question is the
                                    same, to see whether they changed

With several targets, --out and --junit contain every run, --summary lists them under "campaign", and
the exit code is the worst of all runs.

The weights of the metrics that count are scaled to a sum of 1. A metric that the judge lacks is added if
every metrics judge knows it. With several metrics judges, write EVALUATOR/KEY for KEY.

Costs in --out and --summary are US dollars to a billionth, null if no price is known.

exit codes:
  0  both gates passed
  1  a gate failed
  2  wrong usage
  3  not evaluated: a name that does not exist, no judge, files that cannot be read or written, a
     run that failed, was stopped or reached its budget, or a gate that fails by errors alone

Ctrl-C stops the run and keeps its results; evalsite resume continues it, as does its page. Progress
goes to standard error, the table at the end to standard output, or to standard error if a file is -.

examples:
  evalsite evaluate support-agent --target "agent 1.5.0" --budget 5 --summary summary.json
  evalsite evaluate support-agent --target "agent 1.4.0" --target "agent 1.5.0"
  evalsite evaluate ./evals --model gpt-4.1-mini --judge my-judge --tag smoke --out results.jsonl
  evalsite evaluate suite.yaml --outputs agent-1.5.0.jsonl --junit report.xml
  evalsite evaluate cases.jsonl --profile metrics --model gpt-4.1-mini --judge my-judge
  evalsite evaluate support-agent --outputs-of support-agent#12 --judge other-judge
  evalsite evaluate ./evals --outputs-of support-agent:latest --filter 'tone < 0.5'
  evalsite evaluate support-agent --target "agent 1.5.0" --baseline support-agent#12
  evalsite evaluate travel-desk --target "agent 1.5.0" --metric tool_routing --metric task_completion=2
"""


class Command(SiteCommand):
    """Start a run and execute it in this process, with or without a running site."""

    help = """\
Run a suite against a target, in this process; the exit code says whether it passed. Works with and
without a running site; the run appears on the site's pages like any other."""
    epilog = EPILOG
    action = "The run"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options of the start form, and the files to write."""
        parser.add_argument("suite", metavar="SUITE", help="Short name of a suite, or a path.")
        parser.add_argument(
            "--target",
            action="append",
            metavar="NAME",
            help="Name of a target, or: recorded; repeat it for a campaign.",
        )
        parser.add_argument(
            "--outputs", type=Path, metavar="FILE", help="Recorded outputs to evaluate."
        )
        parser.add_argument(
            "--model", metavar="SLUG", help="Language model to evaluate, or for the chat target."
        )
        parser.add_argument(
            "--judge", metavar="SLUG", help="Language model that judges; default: the suite's."
        )
        add_judging_options(parser)
        add_suite_file_options(parser)
        add_run_options(parser)
        parser.add_argument(
            "--concurrency",
            type=int,
            metavar="N",
            help="How many cases run in parallel; default: what the language models allow.",
        )
        FileOptions.add_to(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the run, execute it, and print the conclusion."""
        names = options["target"] or [""]
        check_judging_options(options)
        if not options["outputs_of"]:
            check_targets(names, options["outputs"])
            for name in names:
                check_target_options(name, options["outputs"], options["model"])
        files = FileOptions.read(options)
        with stop_wanted() as stop:
            progress = ProgressLine(sys.stderr)
            runs = _start(options, names, progress)
            if len(runs) > 1:
                self._conclude_all(files, runs, execute_all(runs, progress, stop))
                return
            [run] = runs
            execute_and_conclude(self, run, files, progress, stop)

    def _conclude_all(
        self, files: FileOptions, runs: Sequence[Run], concluded: Sequence[ConcludedRun]
    ) -> None:
        """Print the leaderboard of a campaign, and exit with the worst code of its runs."""
        stream = sys.stderr if files.use_standard_output else self.stdout
        campaign = runs[0].campaign
        if campaign is None:
            raise CommandError("The campaign of these runs was deleted.", returncode=NOT_EVALUATED)
        table, headline = leaderboard(campaign)
        print_line(stream, f"\n{table}\n")
        print_line(stream, headline)
        for ended in concluded:
            print_line(stream, f"{ended.run.target_name}: {ended.conclusion.sentence}")
        print_line(stream, f"Leaderboard: {campaign_url(campaign)}")
        write_files(files, campaign, concluded)
        if (code := worst_code(concluded)) != PASSED:
            sys.exit(code)


def _start(options: dict[str, Any], names: Sequence[str], progress: ProgressLine) -> list[Run]:
    """Start a run for each target, or for each run whose outputs are judged again.

    Runs of command lines that are gone are ended first. Either all runs are started or nothing is stored.
    """
    notes: list[str] = []
    reap(now=database_now())
    # A pipe may be slow and a suite long, and on SQLite nobody else could write meanwhile.
    outputs: Path | None = options["outputs"]
    lines = None if outputs is None else read_file(outputs, option="--outputs")
    with options_as_remedies():
        reading = read_suite_at(options["suite"], profile=options["profile"])
    with transaction.atomic(), options_as_remedies():
        suite = find_suite(
            options["suite"],
            reading,
            judge=options["judge"] or "",
            profile=options["profile"],
            slug=options["slug"],
            note=notes.append,
        )
        choices = {
            "judge": get_model(options["judge"]) if options["judge"] else None,
            "baseline": get_run(options["baseline"]) if options["baseline"] else None,
            "rules": RunRules(
                samples=options["samples"],
                metrics=metric_choices(
                    suite.slug,
                    suite.spec.evaluators,
                    options["metric"] or (),
                    options["metric_weight"] or (),
                ),
            ),
            "concurrency": options["concurrency"],
            "budget_usd": read_budget(options["budget"]),
            "max_minutes": options["max_minutes"],
        }
        if options["outputs_of"]:
            runs = _judge_again(suite, options, choices, notes)
        else:
            runs = _ask_targets(suite, options, names, choices, notes, lines)
    for note in notes:
        progress.say(note)
    return runs


def _ask_targets(
    suite: Suite,
    options: dict[str, Any],
    names: Sequence[str],
    choices: dict[str, Any],
    notes: list[str],
    lines: bytes | None,
) -> list[Run]:
    model = get_model(options["model"]) if options["model"] else None
    check_tags(suite, options["tag"] or ())
    outputs = options["outputs"]
    targets = [find_target(name, outputs, model, lines=lines, note=notes.append) for name in names]
    for target in targets:
        notes += output_warnings(suite, target, options["tag"], options["case"])
        notes += filter(None, [offer_to_resume(suite, target)])
    return start_campaign(
        suite=suite,
        targets=targets,
        started_by=None,
        tags=options["tag"],
        case_keys=options["case"],
        repetitions=options["repetitions"],
        owner_id=process_name(),
        **choices,
    )


def _judge_again(
    suite: Suite, options: dict[str, Any], choices: dict[str, Any], notes: list[str]
) -> list[Run]:
    request = JudgingRequest(
        version=options["version"],
        keys=options["case"],
        query=ResultsQuery(text=options["filter"]) if options["filter"] else None,
        asks_again=options["ask_again"],
        **choices,
    )
    sources = find_sources(suite, options["outputs_of"])
    for source in sources:
        judging = plan_judging(source, request, None)
        notes += [*judging.left_out_texts, *judging.warnings, estimate_judging(judging).text]
    return judge_again(sources, request, by=None, owner_id=process_name())

"""Execute one run from the command line, report on it, and end with its exit code."""

from __future__ import annotations

import sys
import threading
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from evaluators.templatetags.figures import counted
from runs.cli.command import SiteCommand, run_url
from runs.cli.files import CASES, JUNIT, OUT, SUMMARY, FileOptions, write_file
from runs.cli.terminal import ProgressLine, print_line
from runs.cli.watching import execute_run
from runs.costs import ZERO_BUDGET
from runs.formats.junit import write_junit
from runs.formats.results_writing import write_results
from runs.models.runs import RESUMABLE_RUN_STATUSES, Run, RunOwner, RunStatus
from runs.models.suites import Suite, Target
from runs.requests import BudgetField
from runs.results.documents import case_lines, run_file_document
from runs.results.files import junit_run, result_lines
from runs.results.report import run_report
from runs.results.runs import NOT_EVALUATED, PASSED, ExitConclusion, conclude
from runs.running.retrying import cancelled_results


def execute_and_conclude(
    command: SiteCommand,
    run: Run,
    files: FileOptions,
    progress: ProgressLine,
    stop: threading.Event,
) -> None:
    """Execute the run, print its figures and the conclusion, and write the files.

    Raises CommandError if it cannot be finished, and SystemExit unless it passed both gates.
    """
    url = run_url(run)
    progress.say(f"{run.suite.title} {run} against {run.target_name}: {url}")
    if problem := execute_run(run, progress, stop):
        raise CommandError(
            f"The run could not be finished: {problem}. It is at {url}", returncode=NOT_EVALUATED
        )
    run.refresh_from_db()
    conclusion = conclude(run)
    stream = sys.stderr if files.use_standard_output else command.stdout
    print_line(stream, f"\n{run_report(run, conclusion.sentence)}")
    if conclusion.code == NOT_EVALUATED and not run.is_active:
        print_line(command.stderr, f"{remedy(run)} at {url}")
    _write_files(files, run, conclusion, url=url)
    if conclusion.code != PASSED:
        sys.exit(conclusion.code)


def _write_files(files: FileOptions, run: Run, conclusion: ExitConclusion, *, url: str) -> None:
    """Write the files of a finished run; raises UnwritableFileError."""
    if files.summary:
        document = run_file_document(run, url=url).model_dump_json(indent=2)
        write_file(SUMMARY, files.summary, [document, "\n"])
    if files.out:
        write_file(OUT, files.out, write_results(result_lines(run), is_camel=files.is_camel))
    if files.cases:
        write_file(CASES, files.cases, case_lines([run]))
    if files.junit:
        suite = junit_run(run, conclusion, url=url)
        write_file(JUNIT, files.junit, write_junit(suite, result_lines(run)))


def remedy(run: Run) -> str:
    """Return how to continue a run that was not evaluated; the address of its page is to follow."""
    if run.status not in RESUMABLE_RUN_STATUSES:
        return "Rerun its errors"
    budget = " --budget USD" if run.status == RunStatus.BUDGET_REACHED else ""
    return f"Resume it: {_resume(run)}{budget}, or"


def offer_to_resume(suite: Suite, target: Target) -> str:
    """Return a sentence if the last run of suite and target at a command line was interrupted, else "".

    After a change of the suite the run would not be the same.
    """
    runs = Run.objects.select_related("suite").filter(suite=suite, target=target, source_run=None)
    last = runs.order_by("-number").defer("snapshot", "summary", "leaf_scores").first()
    if (
        last is None
        or (last.owner, last.status) != (RunOwner.COMMAND_LINE, RunStatus.STOPPED)
        or last.suite_version != suite.version
    ):
        return ""
    left = len(cancelled_results(last))
    if not left:
        return ""
    return (
        f"{suite.slug}{last} against {target.name} was interrupted with {left} of "
        f"{counted(last.execution_count, 'result')} to go. This is a new run. {_resume(last)} would pay only for "
        "the rest of the interrupted one."
    )


def _resume(run: Run) -> str:
    return f"evalsite resume {run.suite.slug}{run}"


def read_budget(text: str | None, *, misused: int = NOT_EVALUATED) -> Decimal | None:
    """Return the amount of the option --budget; raises CommandError for anything else, with the code for it."""
    try:
        amount: Decimal | None = BudgetField().clean(text)
    except ValidationError as error:
        message = (
            f"--budget is {text!r}, which is not an amount; write US dollars, such as 5 or 0.50."
        )
        if error.error_list[0].code == "min_value":
            message = ZERO_BUDGET
        raise CommandError(message, returncode=misused) from error
    return amount

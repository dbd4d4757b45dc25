"""Run a suite against a target from the command line, and answer by exit code whether it passed."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.urls import reverse

from runs import services
from runs.execution.processes import process_name
from runs.execution.sweeping import sweep
from runs.forms.money import MoneyField
from runs.management.answering import AnsweringCommand
from runs.management.concluding import (
    NOT_EVALUATED,
    PASSED,
    Conclusion,
    conclude,
    summary_document,
)
from runs.management.names import model_named, suite_named, target_named
from runs.management.telling import Progress, summary_table, written_for
from runs.management.watching import carry_out, stop_wanted
from runs.models import Run
from runs.models.clock import database_now

EPILOG = """\
exit codes:
  0  both gates passed
  1  a gate failed
  2  the command line was not understood
  3  not evaluated: a name that does not exist, no judge, a run that failed, was stopped or
     reached its budget, or a gate that fails by errors alone

Ctrl-C stops the run and keeps what is done; it can be resumed on its page. Progress goes to
standard error, the table at the end to standard output.

example:
  evalsite evaluate support-agent --target "agent 1.5.0" --budget 5 --summary summary.json
"""


class Command(AnsweringCommand):
    """Start a run that this process alone carries out, beside a running site or without one."""

    help = """\
Run a suite of this site against one of its targets, in this process, and say by exit code
whether it passed. Works beside a running site and without one."""
    epilog = EPILOG
    deed = "The run"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what the start form takes."""
        parser.add_argument("suite", metavar="SUITE", help="Short name of the suite.")
        parser.add_argument("--target", required=True, metavar="NAME", help="Name of the target.")
        parser.add_argument(
            "--judge", metavar="SLUG", help="Language model that judges; default: the suite's."
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
        parser.add_argument(
            "--summary", type=Path, metavar="FILE", help="Write every figure to this file as JSON."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the run, carry it out, tell what came of it."""
        summary_file = _writable(options["summary"])
        with stop_wanted() as stop:
            run = _start(options)
            url = _url_of(run)
            progress = Progress(sys.stderr)
            progress.say(f"{run.suite.title} {run} against {run.target_name}: {url}")
            problem = carry_out(run, progress, stop)
        if problem:
            raise CommandError(
                f"The run could not be carried out to its end: {problem}. It is at {url}",
                returncode=NOT_EVALUATED,
            )
        run.refresh_from_db()
        conclusion = conclude(run)
        self._tell(run, conclusion, url)
        if summary_file:
            _write(summary_document(run, conclusion, url=url), summary_file)
        if conclusion.code != PASSED:
            sys.exit(conclusion.code)

    def _tell(self, run: Run, conclusion: Conclusion, url: str) -> None:
        self.stdout.write(written_for(sys.stdout, f"\n{summary_table(run)}\n"))
        self.stdout.write(written_for(sys.stdout, conclusion.sentence))
        if conclusion.code == NOT_EVALUATED and not run.is_active:
            self.stderr.write(f"Resume it, or try its errors again, at {url}")


def _start(options: dict[str, Any]) -> Run:
    """Start the run, after ending those whose command lines are gone."""
    budget_usd = _dollars(options["budget"])
    suite, target = suite_named(options["suite"]), target_named(options["target"])
    judge = model_named(options["judge"]) if options["judge"] else None
    sweep(now=database_now())
    return services.start_run(
        suite=suite,
        target=target,
        started_by=None,
        judge=judge,
        repetitions=options["repetitions"],
        concurrency=options["concurrency"],
        budget_usd=budget_usd,
        owner_id=process_name(),
    )


def _dollars(text: str | None) -> Decimal | None:
    try:
        amount: Decimal | None = MoneyField(required=False).clean(text)
    except ValidationError as error:
        raise CommandError(
            f"--budget is {text!r}, which is no amount; write US dollars, such as 5 or 0.50.",
            returncode=NOT_EVALUATED,
        ) from error
    return amount


def _writable(path: Path | None) -> Path | None:
    """Return the path if a file can be written there: after the run it would be too late to say so."""
    if path is None:
        return None
    try:
        with path.open("a", encoding="utf-8"):
            return path
    except OSError as error:
        raise CommandError(
            f"--summary {path} cannot be written: {error.strerror}. Name a file in a folder that "
            "exists and that you may write to.",
            returncode=NOT_EVALUATED,
        ) from error


def _write(document: dict[str, Any], path: Path) -> None:
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(
            f"The run is over, but --summary {path} could not be written: {error.strerror}.",
            returncode=NOT_EVALUATED,
        ) from error


def _url_of(run: Run) -> str:
    site = settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
    path = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number})
    return f"{site.rstrip('/')}{path}"

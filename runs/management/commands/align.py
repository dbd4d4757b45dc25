"""Align a judge with people: let a model write other instructions, and test them on decisions it never saw."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandParser
from django.urls import reverse

from evaluators.templatetags.figures import counted, money
from runs.cli.command import MISUSED, SiteCommand, full_url, get_model, get_suite
from runs.cli.single_run import read_budget
from runs.cli.terminal import print_line
from runs.models.jobs import JobState, ModelJob
from runs.reviews.alignment.documents import AlignmentDoc, AlignmentEstimateDoc
from runs.reviews.alignment.planning import (
    MAX_CANDIDATES,
    USUAL_CANDIDATES,
    AlignmentRequest,
    plan_alignment,
)
from runs.reviews.alignment.rules import CandidateFinding
from runs.reviews.alignment.services import (
    alignments,
    price_text,
    start_alignment,
    stop_alignment,
)

NOT_BETTER, UNFINISHED = 1, 3
EPILOG = """\
A model reads where the judge and people disagree in one half of the decisions, and writes other instructions. The judge
scores the other half by each of them. A candidate counts only if it agrees with people more often there than chance
explains: exact McNemar test over cases, corrected for all candidates. Nothing changes in the suite: the page of the
alignment, whose address is printed, takes a candidate into your draft.

exit codes:
  0  a candidate agrees better
  1  none does, as far as the held-out half can tell
  2  wrong usage
  3  it could not begin or ended early: the message says why

examples:
  evalsite align support-agent communication/tone --writer gpt --estimate
  evalsite align support-agent communication/tone --writer gpt --budget 1
"""


class Command(SiteCommand):
    """Do an alignment in this process."""

    help = "Let a model write instructions with which a judge agrees better with people."
    epilog = EPILOG
    action = "The alignment"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the evaluator, the writer and the limits."""
        parser.add_argument("suite", metavar="SUITE", help="The short name of the suite.")
        parser.add_argument("evaluator", metavar="EVALUATOR", help="Its path, such as safety/tone.")
        parser.add_argument(
            "--writer", metavar="MODEL", required=True, help="The language model that writes."
        )
        parser.add_argument(
            "--candidates",
            type=int,
            default=USUAL_CANDIDATES,
            metavar="N",
            help=f"How many it writes, 1 to {MAX_CANDIDATES}; default: {USUAL_CANDIDATES}.",
        )
        parser.add_argument(
            "--budget", metavar="USD", help="What it may cost; default: twice the estimate."
        )
        parser.add_argument(
            "--estimate", action="store_true", help="Only say what it would ask and cost."
        )
        parser.add_argument("--json", action="store_true", help="As JSON, as in the API.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Say the price, do it, and print the conclusion."""
        suite = get_suite(options["suite"])
        request = AlignmentRequest(
            options["evaluator"],
            get_model(options["writer"]),
            options["candidates"],
            read_budget(options["budget"], misused=MISUSED),
        )
        plan = plan_alignment(suite, request)
        estimate = AlignmentEstimateDoc.make(plan, request.budget_usd)
        price = price_text(plan.estimate, estimate.budget_usd)
        if options["estimate"]:
            self._print(estimate, options, price, estimate.power)
            return
        self.stderr.write(f"{price}\n{estimate.power}")
        job = start_alignment(suite, request, by=None, in_background=False)
        _work(job)
        done = AlignmentDoc.make(alignments(suite).get(pk=job.pk))
        url = full_url(reverse("runs:alignment", args=(suite.slug, job.pk)))
        cost = f"{counted(done.calls, 'call')}, {money(done.cost_usd)}."
        texts = [done.conclusion, done.reason, cost, url]
        self._print(done, options, *filter(None, texts))
        if done.state != JobState.DONE:
            sys.exit(UNFINISHED)
        if not any(each.finding == CandidateFinding.BETTER for each in done.candidates):
            sys.exit(NOT_BETTER)

    def _print(
        self, document: AlignmentDoc | AlignmentEstimateDoc, options: Any, *texts: str
    ) -> None:
        if options["json"]:
            print_line(self.stdout, json.dumps(document.as_json(), indent=2, ensure_ascii=False))
            return
        for text in texts:
            print_line(self.stdout, text)


def _work(job: ModelJob) -> None:
    """Do the job; Ctrl-C stops it."""
    # Only a command that works loads what asks models.
    from runs.execution.jobs import finish_job
    from runs.reviews.alignment.worker import read_alignment

    try:
        finish_job(job.pk, {job.purpose: read_alignment})
    except KeyboardInterrupt:
        stop_alignment(job, by=None)

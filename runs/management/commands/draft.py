"""Have a language model draft cases for a suite, and write them to a file or store them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluators.templatetags.figures import counted, money
from runs.cases.preview import PreviewRow
from runs.cli.command import FAILED, MISUSED, SiteCommand, get_model, get_run, get_suite
from runs.cli.files import OUT, STANDARD_OUTPUT, check_writable, write_file
from runs.cli.single_run import read_budget
from runs.cli.terminal import print_line
from runs.costs import CAP_TIMES
from runs.drafting.material import SourceText, document_text
from runs.drafting.preview import Proposal
from runs.drafting.services import (
    CASES,
    DESCRIPTION,
    DOCUMENTS,
    MAX_COUNT,
    RESULTS,
    USUAL_COUNT,
    DraftingPlan,
    DraftingRequest,
    plan_drafting,
    start_drafting,
    store_drafted,
)
from runs.drafting.writer import read_drafting
from runs.execution.jobs import finish_job
from runs.filters.queries import ResultsQuery
from runs.formats.suite_files import case_values
from runs.formats.tables import csv_parts
from runs.models.jobs import ModelJob
from runs.specs.suites import CaseSpec

EPILOG = """\
One of --documents, --cases and --from-run says what the model reads; --description counts with each, and
alone without them. The price is printed before anything is asked, and --budget ends the drafting: what was
drafted before is kept. Nothing is stored in the suite without --yes.

Each drafted case is listed with the cases that it repeats, exactly or nearly. --out and --yes leave out
those that cannot be stored, or repeat a case exactly. A file of --out can be edited and stored by
  evalsite import FILE --suite SUITE

exit codes:
  0  cases were drafted, and written or stored if that was asked for
  2  wrong usage
  3  no case was drafted, or nothing was stored, with the reason

examples:
  evalsite draft cases support-agent --model gpt --description "An agent that sells tents."
  evalsite draft cases support-agent --model gpt --documents handbook.md faq.html --count 40 --out cases.csv
  evalsite draft cases support-agent --model gpt --from-run support-agent#12 --failed --budget 0.50 --yes
"""
CSV, LINES = ".csv", ".jsonl"
COLUMNS = ("key", "title", "input", "expected_output", "expected_outcomes", "tags", "metadata")


class Command(SiteCommand):
    """Ask the model in this process, and print what it drafted."""

    help = "Have a language model draft cases for a suite."
    epilog = EPILOG
    action = "The drafting"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the suite, the material and what becomes of the cases."""
        parser.add_argument("what", choices=("cases",), metavar="cases", help="What is drafted.")
        parser.add_argument("suite", metavar="SUITE", help="The suite that the cases are for.")
        parser.add_argument("--model", required=True, metavar="SLUG", help="The language model.")
        parser.add_argument(
            "--description",
            default="",
            metavar="TEXT",
            help="What the agent does, and what to test.",
        )
        parser.add_argument(
            "--documents", nargs="+", type=Path, metavar="FILE", help="Texts that the model reads."
        )
        parser.add_argument(
            "--cases", nargs="*", metavar="KEY", help="Existing cases; without keys the first 60."
        )
        parser.add_argument("--from-run", metavar="RUN", help="A run whose results it reads.")
        parser.add_argument(
            "--failed", action="store_true", help="Of the run, only failed results."
        )
        parser.add_argument(
            "--filter", default="", metavar="FILTER", help="Only results of cases that match this."
        )
        parser.add_argument(
            "--count",
            type=int,
            default=USUAL_COUNT,
            help=f"How many cases, up to {MAX_COUNT} (20).",
        )
        parser.add_argument(
            "--budget",
            metavar="USD",
            help=f"What the calls may cost, US dollars; {CAP_TIMES} times the estimate by default.",
        )
        parser.add_argument(
            OUT,
            type=Path,
            metavar="FILE",
            help="Write the cases to this .csv or .jsonl; - prints them.",
        )
        parser.add_argument("--yes", action="store_true", help="Store the cases in the suite.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Draft them."""
        out: Path | None = options["out"]
        if out and out != STANDARD_OUTPUT and out.suffix not in (CSV, LINES):
            raise CommandError(
                f"The ending of {out} names no format. End it in {CSV} or {LINES}.",
                returncode=FAILED,
            )
        check_writable([(OUT, out)])
        suite, request = get_suite(options["suite"]), _request(options)
        print_line(self.stderr, _price(plan_drafting(suite, request)))
        job = start_drafting(suite, request, by=None, in_background=False)
        try:
            finish_job(job.pk, {job.purpose: read_drafting})
        except KeyboardInterrupt:
            ModelJob.objects.filter(pk=job.pk).forget_texts()
            raise
        proposal = Proposal(ModelJob.objects.select_related("suite").get(pk=job.pk))
        self._report(proposal)
        cases = proposal.chosen_cases()
        if out is not None:
            write_file(OUT, out, _table(cases) if out.suffix == CSV else _lines(cases))
        if options["yes"]:
            stored = store_drafted(proposal.job, seen="", by=None)
            added = counted(stored["added"], "case")
            print_line(self.stderr, f"{suite.slug}: version {stored['version']}. {added} added.")
        elif out is None:
            print_line(
                self.stderr, "Nothing is stored: --yes stores the cases, --out FILE writes them."
            )

    def _report(self, proposal: Proposal) -> None:
        job = proposal.job
        reason = job.reason or str(proposal.outcome.get("problem", ""))
        if not proposal.rows:
            raise CommandError(reason or "The model drafted no case.", returncode=FAILED)
        for row in proposal.rows:
            print_line(self.stderr, _row_text(row))
        drafted = counted(len(proposal.rows), "case")
        print_line(
            self.stderr, f"{drafted} drafted by {job.model_name} for {money(job.spent_usd())}."
        )
        if reason:
            print_line(self.stderr, f"Ended early: {reason}")


def _request(options: dict[str, Any]) -> DraftingRequest:
    """Return what the options ask for; raises CommandError where they contradict each other."""
    chosen = {
        DOCUMENTS: options["documents"],
        CASES: options["cases"] is not None,
        RESULTS: options["from_run"],
    }
    named = [source for source, is_named in chosen.items() if is_named]
    if len(named) > 1:
        raise CommandError(
            "--documents, --cases and --from-run exclude each other.", returncode=MISUSED
        )
    source = named[0] if named else DESCRIPTION
    if source != RESULTS and (options["failed"] or options["filter"]):
        raise CommandError("--failed and --filter need --from-run.", returncode=MISUSED)
    return DraftingRequest(
        model=get_model(options["model"]),
        source=source,
        description=options["description"],
        count=options["count"],
        documents=_documents(options["documents"] or ()),
        keys=options["cases"] or (),
        run=get_run(options["from_run"]) if options["from_run"] else None,
        query=ResultsQuery(text=options["filter"]) if options["filter"] else None,
        only_failed=options["failed"],
        budget_usd=read_budget(options["budget"], misused=MISUSED),
    )


def _documents(paths: Sequence[Path]) -> list[SourceText]:
    try:
        return [document_text(path.read_bytes(), path.name) for path in paths]
    except OSError as error:
        reason = f"{error.filename} cannot be read: {error.strerror}."
        raise CommandError(reason, returncode=FAILED) from error


def _price(plan: DraftingPlan) -> str:
    price = "at an unknown price" if plan.cost_usd is None else f"for about {money(plan.cost_usd)}"
    return f"{counted(plan.calls, 'call')} of {plan.model.name} {price}, from {plan.asked['from']}."


def _row_text(row: PreviewRow) -> str:
    mark = "+" if row.is_taken else "-"
    repeated = (
        f"{'repeats' if each.is_exact else f'{each.ratio:.0f} of 100 like'} {each.key}"
        for each in (*row.duplicates, *row.repeats)
    )
    notes = "; ".join([*row.problems, *repeated])
    title = str(row.cells.get("title") or "")
    return f"{mark} {row.key}  {title}{f'  ({notes})' if notes else ''}"


def _lines(cases: Sequence[CaseSpec]) -> Iterator[str]:
    for case in cases:
        yield f"{json.dumps(case_values(case), ensure_ascii=False, allow_nan=False)}\n"


def _table(cases: Sequence[CaseSpec]) -> Iterator[str]:
    """Yield the cases as a table that `import --suite` reads as the same cases."""
    return csv_parts(COLUMNS, (_cells(case) for case in cases))


def _cells(case: CaseSpec) -> list[str]:
    def as_json(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    is_text = len(case.input) == 1 and case.input[0]["role"] == "user"
    return [
        *(case.key, case.title),
        str(case.input[0]["content"]) if is_text else as_json(list(case.input)),
        case.expected_output,
        *(
            as_json(list(values)) if values else ""
            for values in (case.expected_outcomes, case.tags)
        ),
        as_json(case.metadata),
    ]

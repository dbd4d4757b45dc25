"""Run a suite against several targets from the command line: execute the runs in turn and report on all."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from evaluators.templatetags.figures import GAPS, money, pct
from runs.cli.command import MISUSED, campaign_url, run_url
from runs.cli.files import CASES, JUNIT, OUT, SUMMARY, FileOptions, write_file
from runs.cli.terminal import ProgressLine
from runs.cli.watching import STOPPED, execute_run
from runs.finishing import finish_run
from runs.formats.junit import MAX_OUTPUT_LENGTH, write_combined_junit
from runs.formats.results_writing import write_results
from runs.models.runs import Campaign, Run, RunStatus
from runs.results.documents import case_lines, run_file_document
from runs.results.files import junit_run, result_lines
from runs.results.runs import NOT_EVALUATED, ExitConclusion, conclude

if TYPE_CHECKING:
    from runs.campaigns.board import BoardRow
    from runs.campaigns.page import CampaignPage

HEADS = (
    "Rank",
    "Target",
    "Run",
    "Status",
    "Pass rate",
    "Mean score",
    "Target cost",
    "Judge cost",
    "Total cost",
)


@dataclass(frozen=True, slots=True)
class ConcludedRun:
    """A finished run with its exit code and sentence."""

    run: Run
    conclusion: ExitConclusion
    url: str


def check_targets(names: Sequence[str], outputs: Path | None) -> None:
    """Raise CommandError for a repeated target, or for several targets with one file of outputs."""
    if len(names) > 1 and outputs is not None:
        raise CommandError(
            "--outputs belong to one target; name at most one --target with them.",
            returncode=MISUSED,
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise CommandError(f"--target {repeated[0]!r} is repeated.", returncode=MISUSED)


def execute_all(
    runs: Sequence[Run], progress: ProgressLine, stop: threading.Event
) -> Sequence[ConcludedRun]:
    """Execute the runs one after the other and show their progress; `stop` ends them all.

    Raises CommandError if one cannot be finished; the runs after it are then stopped.
    """
    for index, run in enumerate(runs):
        waiting = [later.pk for later in runs[index + 1 :]]
        title = f"{run.suite.title} {run} against {run.target_name}"
        progress.say(f"{index + 1} of {len(runs)}: {title}: {run_url(run)}")
        problem = execute_run(run, progress, stop, waiting=waiting)
        if stop.is_set():
            end_all(waiting)
            break
        if problem:
            raise CommandError(
                f"The run could not be finished: {problem}. It is at {run_url(run)}",
                returncode=NOT_EVALUATED,
            )
        run.refresh_from_db()
        progress.say(f"{run.target_name}: {conclude(run).sentence}")
    for run in runs:
        run.refresh_from_db()
    return [ConcludedRun(run, conclude(run), run_url(run)) for run in runs]


def end_all(waiting: Sequence[int]) -> None:
    """Stop runs that have not started; they can be resumed on their pages."""
    for run in waiting:
        finish_run(run, RunStatus.STOPPED, reason=STOPPED, in_background=False)


def worst_code(concluded: Sequence[ConcludedRun]) -> int:
    """Return the exit code of a campaign: the worst of its runs."""
    return max(run.conclusion.code for run in concluded)


def leaderboard(campaign: Campaign) -> tuple[str, str]:
    """Return the leaderboard as a plain-text table, and the headline of the campaign."""
    page = _page(campaign)
    rows = [HEADS, *(_cells(row) for row in page.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines), page.headline.translate(GAPS)


def write_files(files: FileOptions, campaign: Campaign, concluded: Sequence[ConcludedRun]) -> None:
    """Write the files with the results of all runs; raises UnwritableFileError."""
    if files.summary:
        document = json.dumps(_document(campaign, concluded), indent=2)
        write_file(SUMMARY, files.summary, [document, "\n"])
    if files.out:
        lines = chain.from_iterable(result_lines(ended.run) for ended in concluded)
        write_file(OUT, files.out, write_results(lines, is_camel=files.is_camel))
    if files.cases:
        write_file(CASES, files.cases, case_lines(ended.run for ended in concluded))
    if files.junit:
        suites = [
            (
                junit_run(ended.run, ended.conclusion, url=ended.url),
                result_lines(ended.run, longest=MAX_OUTPUT_LENGTH),
            )
            for ended in concluded
        ]
        write_file(JUNIT, files.junit, write_combined_junit(suites))


def _document(campaign: Campaign, concluded: Sequence[ConcludedRun]) -> dict[str, Any]:
    """Return the campaign as JSON values, with a list of the documents of its runs."""
    page = _page(campaign)
    ranks = {row.pk: row.rank for row in page.rows}
    return {
        "suite": campaign.suite.slug,
        "url": campaign_url(campaign),
        "exit_code": worst_code(concluded),
        "headline": page.headline.translate(GAPS),
        "campaign": [
            {
                "rank": ranks.get(ended.run.pk),
                **run_file_document(ended.run, url=ended.url).as_json(),
            }
            for ended in concluded
        ],
    }


def _page(campaign: Campaign) -> CampaignPage:
    # Imported here: the evaluation of one target needs none of it.
    from runs.campaigns.board import CampaignQuery
    from runs.campaigns.page import CampaignPage

    return CampaignPage(campaign, CampaignQuery())


def _cells(row: BoardRow) -> tuple[str, ...]:
    run = row.run
    cells = (
        str(row.rank or "-"),
        run.target,
        f"#{run.number}",
        RunStatus(run.status).label,
        f"{pct(run.cases.share)} ({row.passed} of {row.counted})",
        f"{pct(run.metrics.share)} ({row.scored} of {row.counted})",
        _cost(run.costs.run.usd, is_partial=run.costs.run.is_partial),
        _cost(run.costs.evaluation.usd, is_partial=run.costs.evaluation.is_partial),
        _cost(run.costs.total_usd, is_partial=run.costs.is_partial),
    )
    return tuple(cell.translate(GAPS) for cell in cells)


def _cost(usd: Decimal | None, *, is_partial: bool) -> str:
    if usd is None:
        return "not known"
    return f"{'at least ' if is_partial else ''}{money(usd)}"

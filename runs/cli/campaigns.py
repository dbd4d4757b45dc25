"""Several targets at a command line: their runs one after the other, and what came of all of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.urls import reverse

from evaluators.templatetags.figures import money, pct
from runs.campaigns.board import BoardRow, CampaignQuery
from runs.campaigns.page import CampaignPage
from runs.cli.evaluating import (
    NOT_EVALUATED,
    NOT_UNDERSTOOD,
    ExitConclusion,
    conclude,
    summary_document,
)
from runs.cli.files import JUNIT, OUT, SUMMARY, FileOptions, junit_run, write_file
from runs.cli.names import run_url
from runs.cli.printing import GAPS, ProgressLine
from runs.cli.watching import STOPPED, carry_out
from runs.costs import Cost
from runs.finishing import finish_run
from runs.formats.junit import write_junit_of_several
from runs.formats.results_writing import write_results
from runs.models.runs import Campaign, Run, RunStatus
from runs.results.files import result_lines

HEADS = (
    "Rank",
    "Target",
    "Run",
    "Status",
    "Pass rate",
    "Mean score",
    "Run cost",
    "Evaluation cost",
)


@dataclass(frozen=True, slots=True)
class ConcludedRun:
    """One run that is over, with its exit code and sentence."""

    run: Run
    conclusion: ExitConclusion
    url: str


def check_targets(names: Sequence[str], outputs: Path | None) -> None:
    """Raise CommandError unless several targets are several, and no file of outputs stands for one."""
    if len(names) > 1 and outputs is not None:
        raise CommandError(
            "--outputs are those of one target; name one --target beside them, or none.",
            returncode=NOT_UNDERSTOOD,
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CommandError(f"--target {twice[0]!r} stands twice.", returncode=NOT_UNDERSTOOD)


def execute_all(
    runs: Sequence[Run], progress: ProgressLine, stop: threading.Event
) -> Sequence[ConcludedRun]:
    """Carry out the runs one after the other and tell how each goes; `stop` ends them all.

    Raises CommandError when one cannot be carried out to its end; those after it are ended.
    """
    for place, run in enumerate(runs):
        waiting = [other.pk for other in runs[place + 1 :]]
        about = f"{run.suite.title} {run} against {run.target_name}"
        progress.say(f"{place + 1} of {len(runs)}: {about}: {run_url(run)}")
        problem = carry_out(run, progress, stop, waiting=waiting)
        if stop.is_set():
            end_all(waiting)
            break
        if problem:
            raise CommandError(
                f"The run could not be carried out to its end: {problem}. It is at {run_url(run)}",
                returncode=NOT_EVALUATED,
            )
        run.refresh_from_db()
        progress.say(f"{run.target_name}: {conclude(run).sentence}")
    for run in runs:
        run.refresh_from_db()
    return [ConcludedRun(run, conclude(run), run_url(run)) for run in runs]


def end_all(waiting: Sequence[int]) -> None:
    """End runs whose turn does not come any more; they can be resumed on their pages."""
    for run in waiting:
        finish_run(run, RunStatus.STOPPED, reason=STOPPED, in_background=False)


def worst_code(concluded: Sequence[ConcludedRun]) -> int:
    """Return the exit code of all: not evaluated before a gate that failed before passed."""
    return max(one.conclusion.code for one in concluded)


def campaign_url(campaign: Campaign) -> str:
    """Return where the campaign is looked at."""
    site = settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
    return f"{site.rstrip('/')}{reverse('runs:campaign', args=[campaign.pk])}"


def leaderboard(campaign: Campaign) -> tuple[str, str]:
    """Return the leaderboard as a table of plain text, and the campaign in a sentence or two."""
    page = CampaignPage(campaign, CampaignQuery())
    rows = [HEADS, *(_cells(row) for row in page.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADS))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines), page.headline.translate(GAPS)


def write_files(files: FileOptions, campaign: Campaign, concluded: Sequence[ConcludedRun]) -> None:
    """Write what came of all runs into one file each; raises UnwritableFileError."""
    if files.summary:
        document = json.dumps(_document(campaign, concluded), indent=2)
        write_file(SUMMARY, files.summary, [document, "\n"])
    if files.out:
        lines = chain.from_iterable(result_lines(one.run) for one in concluded)
        write_file(OUT, files.out, write_results(lines, is_camel=files.is_camel))
    if files.junit:
        suites = [
            (junit_run(one.run, one.conclusion, url=one.url), result_lines(one.run))
            for one in concluded
        ]
        write_file(JUNIT, files.junit, write_junit_of_several(suites))


def _document(campaign: Campaign, concluded: Sequence[ConcludedRun]) -> dict[str, Any]:
    """Return the campaign in plain JSON values: every run as it would stand alone, in a list."""
    page = CampaignPage(campaign, CampaignQuery())
    placed = {row.pk: row.rank for row in page.rows}
    return {
        "suite": campaign.suite.slug,
        "url": campaign_url(campaign),
        "exit_code": worst_code(concluded),
        "headline": page.headline.translate(GAPS),
        "campaign": [
            {
                "rank": placed.get(one.run.pk),
                **summary_document(one.run, one.conclusion, url=one.url).as_json(),
            }
            for one in concluded
        ],
    }


def _cells(row: BoardRow) -> tuple[str, ...]:
    run = row.run
    cells = (
        str(row.rank or "-"),
        run.target,
        f"#{run.number}",
        RunStatus(run.status).label,
        f"{pct(run.cases.share)} ({row.passed} of {row.counted})",
        f"{pct(run.metrics.share)} ({row.scored} of {row.counted})",
        _cost(run.costs.run),
        _cost(run.costs.evaluation),
    )
    return tuple(cell.translate(GAPS) for cell in cells)


def _cost(cost: Cost) -> str:
    if cost.usd is None:
        return "not known"
    return f"{'at least ' if cost.is_partial else ''}{money(cost.usd)}"

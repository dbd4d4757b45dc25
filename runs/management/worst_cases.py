"""Name at a command line the cases of a run that nobody may overlook: those that failed or have no score."""

from __future__ import annotations

from evaluators.templatetags.figures import score
from runs.management.telling import GAPS
from runs.models import Run
from runs.reports.run_document import case_summaries

MOST = 20
WORDS = {"fail": "failed", "error": "errored"}


def worst_cases(run: Run) -> str:
    """Return a line a case that failed or errored, failed ones first, at most 20; "" where none did."""
    found = [one for one in case_summaries(run) if one.state in WORDS]
    if not found:
        return ""
    found.sort(key=lambda one: [*WORDS].index(one.state))
    shown = found[:MOST]
    width = max(len(one.case) for one in shown)
    lines = [
        f"  {one.case:<{width}}  {WORDS[one.state]}"
        + (f" {score(one.means.score, run.scale)}" if one.means.score is not None else "")
        for one in shown
    ]
    more = [f"  and {len(found) - MOST} more"] if len(found) > MOST else []
    return "\n".join(["Cases that failed or errored", *lines, *more]).translate(GAPS)

"""Whether the model of a judge changed behind its name, as its replies tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.templatetags.figures import counted
from runs.finishing import JUDGE_VERSIONS
from runs.models.runs import Run

Versions = Mapping[str, Mapping[str, int]]


def run_versions(run: Run) -> Versions:
    """Return the versions of a run's judges by name, with their replies; none before the run has its figures."""
    return _versions((run.summary or {}).get(JUDGE_VERSIONS))


def version_warnings(run: Run) -> list[str]:
    """Say which judges of a run answered by several versions, and which by others than in the run before.

    That is the last earlier run of the suite with this judge; one query.
    """
    now = run_versions(run)
    warnings = [
        f"{name} answered by {counted(len(versions), 'version')} of its model: "
        + ", ".join(
            f"{version} ({counted(count, 'reply,replies')})" for version, count in versions.items()
        )
        + "."
        for name, versions in now.items()
        if len(versions) > 1
    ]
    if not now:
        return warnings
    earlier = Run.objects.filter(
        suite=run.suite_id,
        number__lt=run.number,
        judge_name=run.judge_name,
        summary__has_key=JUDGE_VERSIONS,
    )
    rows = earlier.order_by("-number").values_list("number", f"summary__{JUDGE_VERSIONS}")
    for number, versions in rows[:1]:
        warnings += change_warnings(_versions(versions), now, f"since run #{number}")
    return warnings


def change_warnings(before: Versions, after: Versions, since: str) -> list[str]:
    """Say which judges answered by a version that they did not answer by before."""
    return [
        f"The model behind {name} changed {since}: {', '.join(new)} in place of "
        f"{', '.join(before[name])}. Scores may differ for this alone."
        for name, versions in after.items()
        if before.get(name) and (new := [one for one in versions if one not in before[name]])
    ]


def _versions(stored: Any) -> Versions:
    return stored if isinstance(stored, dict) else {}

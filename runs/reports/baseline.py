"""The run that others of a suite are held against."""

from __future__ import annotations

from runs.models import Run, Suite


def baseline_number(suite: Suite) -> int | None:
    """Return the number of the suite's baseline, None without one; its long columns are not read."""
    if suite.baseline_run_id is None:
        return None
    return Run.objects.filter(pk=suite.baseline_run_id).values_list("number", flat=True).first()

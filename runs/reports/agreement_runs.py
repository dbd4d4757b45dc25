"""Which runs the figures of agreement are over, and what is counted together in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.templatetags.figures import counted
from runs.models import Run, Suite


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A run with decisions: what one may ask for."""

    pk: int
    number: int
    version: int
    judge: str


def counted_runs(suite: Suite) -> list[CountedRun]:
    """Return the runs with a decision that is settled, the newest first."""
    runs = Run.objects.filter(suite=suite, results__review_item__closed_at__isnull=False)
    rows = runs.order_by("-number").values_list("pk", "number", "suite_version", "judge_name")
    return [CountedRun(*row) for row in rows.distinct()]


def over_words(executions: int, runs: Sequence[CountedRun]) -> str:
    """Say over how many decisions, runs and versions the figures are."""
    versions = sorted({run.version for run in runs})
    if not versions:
        return "No decision"
    which = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
    decisions = counted(executions, "execution decided,executions decided")
    return f"{decisions}, {counted(len(runs), 'run')}, {which}"


def mixed_words(runs: Sequence[CountedRun]) -> str:
    """Say what is counted together though it may be different judges, "" where nothing is."""
    versions, judges = {run.version for run in runs}, {run.judge for run in runs}
    if len(judges) > 1:
        return f"{counted(len(judges), 'judge')} are counted together. Another model judges otherwise: choose one."
    if len(versions) > 1:
        return (
            f"{counted(len(versions), 'version')} of the suite are counted together. Where a judge's prompt was "
            "changed in between, older decisions are about another judge: choose since which version."
        )
    return ""

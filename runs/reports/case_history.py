"""How one case went in the last runs of its suite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from evaluators.scoring.policy import Policy
from runs.models import Result, Run, RunStatus
from runs.reports.case_groups import execution_of, state_of_rows
from runs.reports.overrides import Override, override_of_case
from runs.reports.repetition_marks import passed_words
from runs.summary import summarise_case

RUNS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run in which the case took part; `passed` says how many repetitions did, "" of one."""

    number: int
    url: str
    state: str
    score: float | None
    target: str
    is_this: bool
    passed: str
    override: Override | None


def case_history(run: Run, key: str) -> tuple[PastRun, ...]:
    """Return the case in up to twelve completed runs, oldest first, this run among them."""
    runs = Run.objects.filter(suite=run.suite, results__case__key=key, number__lte=run.number)
    wanted = runs.filter(status=RunStatus.COMPLETED) | runs.filter(pk=run.pk)
    numbers = wanted.order_by("-number").values_list("number", flat=True).distinct()[:RUNS_SHOWN]
    rows = (
        Result.objects.filter(run__suite=run.suite, run__number__in=list(numbers), case__key=key)
        .order_by("run__number", "repetition")
        .values(
            *("run__number", "run__target_name", "run__snapshot__policy"),
            *("repetition", "status", "verdict", "score", "is_forced", "reviewed_verdict"),
        )
    )
    by_run: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_run[row["run__number"]].append(row)
    return tuple(_past(run, number, results) for number, results in by_run.items())


def _past(run: Run, number: int, results: Sequence[Mapping[str, Any]]) -> PastRun:
    policy = Policy.from_json(results[0]["run__snapshot__policy"])
    found = summarise_case("", [execution_of(row) for row in results], policy)
    place = {"slug": run.suite.slug, "number": number}
    return PastRun(
        number=number,
        url=reverse("runs:run", kwargs=place),
        state=state_of_rows(results, policy),
        score=found.means.score,
        target=results[0]["run__target_name"],
        is_this=number == run.number,
        passed=passed_words(found),
        override=override_of_case(results, policy),
    )

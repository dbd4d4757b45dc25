"""The runs that judged the same outputs: which ones, what each gave them, and what people decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from runs.engine.plan import JUDGED_AGAIN, MEASURES_JUDGE
from runs.models.results import Result
from runs.models.runs import HEAVY_RUN_COLUMNS, Run
from runs.models.suites import HEAVY_CASE_COLUMNS, Suite

OutputPlace = tuple[str, int]


def judged_sources(suite: Suite) -> dict[int, list[Run]]:
    """Return the runs that judged the same outputs by the number of the run that has them first, the newest last."""
    light = Run.objects.filter(suite=suite).defer(*HEAVY_RUN_COLUMNS)
    again = light.filter(snapshot__has_key=JUDGED_AGAIN).exclude(snapshot__has_key=MEASURES_JUDGE)
    by_id = {run.pk: run for run in again.exclude(source_run=None).order_by("number")}
    others = light.in_bulk({run.source_run_id for run in by_id.values()} - set(by_id))
    families: dict[int, list[Run]] = defaultdict(list)
    for run in by_id.values():
        first: Run | None = run
        while first is not None and first.pk in by_id:
            source = first.source_run_id or 0
            first = by_id.get(source) or others.get(source)
        if first is not None:
            family = families[first.number]
            family += [run] if family else [first, run]
    return dict(families)


def same_outputs(source: Run, runs: Sequence[Run]) -> Iterator[Result]:
    """Yield the results of the runs, without those that judged an output which the source replaced since.

    The source must be among the runs, for its results say when.
    """
    created = {run.pk: run.created_at for run in runs}
    rows = Result.objects.filter(run__in=runs).select_related("case", "review_item", "run")
    heavy = [f"run__{column}" for column in HEAVY_RUN_COLUMNS]
    heavy += [f"case__{column}" for column in HEAVY_CASE_COLUMNS]
    every = list(rows.defer(*heavy).order_by("id"))
    answered = {
        (row.case.key, row.repetition): row.finished_at
        for row in every
        if row.run_id == source.pk and not row.keeps_output
    }
    for row in every:
        at = answered.get((row.case.key, row.repetition))
        if row.run_id == source.pk or at is None or at <= created[row.run_id]:
            yield row


def people_verdicts(rows: Sequence[Result], source: Run) -> Mapping[OutputPlace, str]:
    """Return people's verdict by case and repetition: that on the result of the source, else the latest one."""
    decided = [
        row
        for row in rows
        if row.reviewed_verdict and (item := getattr(row, "review_item", None)) and item.closed_at
    ]
    decided.sort(key=lambda row: (row.run_id == source.pk, row.pk))
    return {(row.case.key, row.repetition): row.reviewed_verdict for row in decided}

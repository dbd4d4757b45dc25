"""Judge the stored outputs of a finished run again, by other rules or another judge, as a new run.

It does what `plan_judging` decided, as the estimate shows it. Outputs, traces, files and scores of other tools are
copied inside the database when the run starts, so that reruns and removals of the source never reach them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import ZERO_USD
from evaluators.templatetags.figures import counted, thousands
from runs.engine.plan import BASELINE, CHANGED, JUDGED_AGAIN
from runs.models.database import copy_rows, database_now, insert_rows
from runs.models.results import (
    Artifact,
    ComparedOutput,
    EvaluatorScore,
    ExternalScore,
    ResultOutput,
)
from runs.models.runs import Campaign, Run, RunEvent
from runs.models.stored import SCORE_COLUMNS
from runs.models.suites import Case
from runs.queue import queue_workers
from runs.running.baselines import copy_baseline_outputs
from runs.running.judging_plan import (
    CannotJudgeAgainError,
    JudgingRequest,
    ResultToJudge,
    plan_judging,
)
from runs.running.retrying import user_name
from runs.running.services import (
    MAX_NAME_LENGTH,
    Limits,
    audit_start,
    check_budget,
    check_size,
    create_results,
    create_run,
    started_before,
)
from runs.specs.external_scores import COLUMNS as EXTERNAL_COLUMNS
from runs.suites.services import lock_suite

BATCH = 200
RESULT = "result_id"
OUTPUT_COLUMNS = ("text", "messages", "trace", "usage", "outcomes")
# Columns of a score that say what it cost: a score that is kept costs nothing.
PAID = ("input_tokens", "output_tokens", "cost_usd", "latency_ms")
KEPT = "kept"


def judge_again(
    sources: Sequence[Run],
    request: JudgingRequest,
    *,
    by: User | None,
    owner_id: str = "",
    form_key: str = "",
) -> list[Run]:
    """Judge the outputs of runs of one suite again, each as a new run that names its source; all or none.

    Several runs are a campaign. A form that is sent twice with the same `form_key` makes them once. `owner_id` is
    the name of a process that executes the runs alone. Raises DomainError with the reason.
    """
    if not sources:
        raise CannotJudgeAgainError("No run is named whose outputs are to be judged again.")
    if len({source.suite_id for source in sources}) > 1:
        raise CannotJudgeAgainError(
            "Runs of several suites cannot be judged again together. Name runs of one suite."
        )
    ids = list(dict.fromkeys(source.pk for source in sources))
    with transaction.atomic():
        suite = lock_suite(sources[0].suite)
        if earlier := started_before(form_key, by):
            return earlier
        campaign = None
        if len(ids) > 1:
            name = request.note.strip()[:MAX_NAME_LENGTH]
            campaign = Campaign.objects.create(suite=suite, name=name, created_by=by)
        runs = []
        for pk in ids:
            run = _start(hold_source(pk), request, by=by, owner_id=owner_id)
            run.campaign = campaign
            run.save()
            source = f"{suite.slug} #{run.snapshot[JUDGED_AGAIN]['run']}"
            audit_start(run, suite, by, form_key, outputs_of=source)
            if not owner_id:
                transaction.on_commit(partial(queue_workers, run))
            runs.append(run)
            check_size(sum(run.execution_count for run in runs))
    return runs


def hold_source(pk: int) -> Run:
    """Return a run that cannot change until the transaction ends: reruns and removals hold it, too."""
    if Run.objects.hold_if_there(pk) is None:
        raise CannotJudgeAgainError("A run whose outputs were to be judged again was deleted.")
    return Run.objects.select_related("suite__judge").get(pk=pk)


def _start(source: Run, request: JudgingRequest, *, by: User | None, owner_id: str) -> Run:
    judging = plan_judging(source, request, by)
    plan, count = judging.plan, len(judging.results)
    check_budget(plan, request.budget_usd)
    snapshot = plan.as_json() | {
        JUDGED_AGAIN: {
            "run": source.number,
            "results": judging.total,
            "left_out": judging.left_out_texts,
        }
    }
    if judging.changed:
        snapshot[CHANGED] = list(judging.changed)
    limits = Limits(
        source.repetitions, judging.concurrency, request.budget_usd, request.max_minutes
    )
    run = create_run(source.suite, source.target, plan, limits, len(judging.cases), count, snapshot)
    run.source_run, run.created_by, run.external_names = source, by, source.external_names
    draft = f"by draft of v{judging.rules.number}" if request.draft is not None else ""
    run.note = ", ".join(filter(None, (draft, request.note)))[:300]
    run.run_cost_usd = sum((row.run_cost_usd or ZERO_USD for row in judging.results), ZERO_USD)
    if owner_id:
        run.assign_to(owner_id, now=database_now())
    is_same_baseline = plan.baseline == source.snapshot.get(BASELINE)
    write_results(run, judging.cases, judging.results, copies_baseline=is_same_baseline)
    copy_baseline_outputs(run, plan)
    who = f" by {user_name(by)}" if by is not None else ""
    text = f"{thousands(count)} of {counted(judging.total, 'result')} of run {source} judged again{who}"
    RunEvent.objects.create(
        run=run, kind=JUDGED_AGAIN, text=" ".join([f"{text}.", *judging.left_out_texts])[:500]
    )
    return run


def write_results(
    run: Run,
    cases: Sequence[Case],
    results: Sequence[ResultToJudge],
    *,
    copies_baseline: bool = True,
) -> None:
    """Create the waiting results with the outputs of their sources and the scores that are kept.

    A source may have several, one after the other. With `copies_baseline` they are compared with the same outputs.
    """
    create_results(
        run,
        cases,
        ("case_id", "position", "repetition", "keeps_output", "retry_paths", "run_cost_usd"),
        ((row.case, row.position, row.repetition, True, [], row.run_cost_usd) for row in results),
    )
    places = run.results.order_by().values_list("case_id", "repetition", "pk")
    ids = {(case, repetition): pk for case, repetition, pk in places}
    copies: list[dict[int, int]] = []
    made: Counter[int] = Counter()
    for row in results:
        if made[row.source] == len(copies):
            copies.append({})
        copies[made[row.source]][row.source] = ids[row.case, row.repetition]
        made[row.source] += 1
    columns = ("source", "name", *EXTERNAL_COLUMNS, "pushed_at")
    for new_ids in copies:
        copy_rows(ResultOutput, OUTPUT_COLUMNS, new_ids, key=RESULT)
        copy_rows(Artifact, ("path", "content_id"), new_ids, key=RESULT)
        if copies_baseline:
            copy_rows(ComparedOutput, ("repetition", "text", "problem"), new_ids, key=RESULT)
        copy_rows(ExternalScore, columns, new_ids, key=RESULT)
    for start in range(0, len(results), BATCH):
        batch = results[start : start + BATCH]
        insert_rows(EvaluatorScore, SCORE_COLUMNS, _kept_rows(batch, ids))
    # What the target cost is known already.
    run.cases.refresh(run.pk, [case.pk for case in cases])


def _kept_rows(
    results: Sequence[ResultToJudge], ids: Mapping[tuple[int, int], int]
) -> Iterator[Sequence[Any]]:
    """Yield the rows of the scores that are kept, which cost nothing here; `ids` are by case and repetition."""
    places: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    for result in results:
        for path, old in result.kept.items():
            places[result.source, old].append((ids[result.case, result.repetition], path))
    rows = EvaluatorScore.objects.filter(result__in=[result.source for result in results])
    for values in rows.order_by("result_id", "position").values_list(*SCORE_COLUMNS):
        row = dict(zip(SCORE_COLUMNS, values, strict=True))
        for pk, path in places[row[RESULT], row["path"]]:
            taken = {RESULT: pk, "path": path, **dict.fromkeys(PAID)}
            taken["details"] = {**row["details"], KEPT: True}
            yield tuple((row | taken).values())

"""Suites to measure with, stored without the importer. To be loaded once Django is set up."""

from __future__ import annotations

from typing import Any

from evaluators.models import LanguageModel
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.models.suites import Case, Suite, Target
from runs.running.judging_again import judge_again as start_judging_again
from runs.running.judging_plan import JudgingRequest
from runs.running.services import start_run
from runs.specs.suites import SuiteSpec

LEAF: dict[str, Any] = {"weight": 1.0, "required": False, "required_below": None, "negate": False}
CONTAINS = {"kind": "text_check", "config": {"operator": "contains", "value": "refund"}}
JUDGE = {"kind": "llm_judge", "config": {"prompt": "Is the answer right and kind?"}}


def store(
    name: str,
    *,
    cases: int,
    at_once: int,
    base_url: str = "",
    asks_target: bool = True,
    model_at_once: int = 0,
) -> dict[str, Any]:
    """Store a suite with this many cases, and return the arguments that start a run of it.

    With `base_url` the model there judges, and answers the cases too unless their outputs are to be
    recorded; it allows as many calls as a run keeps in flight, or `model_at_once`.
    """
    model = None
    if base_url:
        limit = model_at_once or at_once
        facts = {"model_id": "mock", "base_url": base_url, "concurrency": limit}
        model = LanguageModel.objects.create(slug=name, name=name, **facts)
    leaf = {"name": "check", **LEAF, **(JUDGE if model else CONTAINS)}
    root = {"name": "all", "kind": "composite", "children": [leaf]}
    judge = model.slug if model else ""
    suite = Suite(slug=name)
    suite.write(SuiteSpec.model_validate({"title": name, "judge": judge, "evaluators": root}))
    is_recorded = model is None or not asks_target
    Case.objects.bulk_create(
        Case(
            suite=suite,
            key=f"C-{number:05}",
            position=number,
            input=[{"role": "user", "content": f"Question {number}: where is my refund?"}],
            content_hash=f"{number:064}",
            recorded_output={"output": f"Your refund {number} is on its way."}
            if is_recorded
            else None,
        )
        for number in range(cases)
    )
    kind = {"kind": "recorded"} if is_recorded else {"kind": "chat", "model": model}
    target = Target.objects.create(name=name, **kind)
    return {"suite": suite, "target": target, "started_by": None, "concurrency": at_once}


def start(name: str, *, at_once: int) -> int:
    """Start a run of a stored suite, for workers, and return its id."""
    suite, target = Suite.objects.get(slug=name), Target.objects.get(name=name)
    run = start_run(suite=suite, target=target, started_by=None, concurrency=at_once)
    return run.pk


def execute_run(order: dict[str, Any]) -> None:
    """Start a run and execute it here; raises SystemExit unless every case passes."""
    _execute(start_run(**order))


def judge_again(order: dict[str, Any]) -> None:
    """Change the prompt of the suite's judge and judge the outputs of its run again; each takes one call."""
    suite = order["suite"]
    spec = suite.spec
    [leaf] = spec.evaluators.children
    changed = leaf.replace(config={"prompt": "Is the answer right, kind and short?"})
    suite.write(spec.replace(evaluators=spec.evaluators.replace(children=(changed,))))
    request = JudgingRequest(concurrency=order["concurrency"])
    [run] = start_judging_again([suite.runs.get()], request, by=None)
    _execute(run)
    calls = run.model_calls.count()
    if calls != run.execution_count:
        raise SystemExit(f"{run.execution_count} outputs took {calls} calls.")


def _execute(run: Run) -> None:
    work_on_run(run.pk)
    ended = Run.objects.only("status", "pass_count", "execution_count").get(pk=run.pk)
    if ended.status != "completed" or ended.pass_count != ended.execution_count:
        raise SystemExit(f"{ended.pass_count} of {ended.execution_count} passed: {ended.status}")

"""Rows for tests: keyword-only functions that each return one valid, saved row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.utils import timezone

from evaluators.model_calls.limit_policy import Throttle
from evaluators.models import LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.models.results import Artifact, EvaluatorScore, ModelCall, Result, ResultOutput
from runs.models.run_cases import RunCase
from runs.models.runs import Campaign, Run
from runs.models.search import CaseText, ResultText
from runs.models.suites import Case, FileContent, Suite, SuiteVersion, Target
from runs.models.temporary import TargetTrial
from runs.specs.suites import SuiteSpec

AnyRow = TypeVar("AnyRow", bound=Model)
NUMBERS = count(1)
STARTED = datetime(2026, 5, 12, 9, 2, 11, tzinfo=UTC)
TREE: Mapping[str, Any] = {
    "name": "all",
    "kind": "composite",
    "weight": 1.0,
    "required": False,
    "required_below": None,
    "negate": False,
    "config": {"aggregator": {"type": "weighted_average"}},
    "children": [
        {
            "name": "tone",
            "kind": "llm_judge",
            "weight": 2.0,
            "required": False,
            "required_below": None,
            "negate": False,
            "config": {"prompt": "Is the answer kind?"},
            "children": [],
        },
        {
            "name": "refund",
            "kind": "text_check",
            "weight": 1.0,
            "required": False,
            "required_below": None,
            "negate": False,
            "config": {"operator": "contains", "value": "refund"},
            "children": [],
        },
    ],
}


def make_user(*, role: str = "editor", name: str = "", password: str = "tent-pole-42") -> User:
    user = User.objects.create_user(name or f"{role}-{next(NUMBERS)}", password=password)
    user.groups.add(Group.objects.get(name=role))
    return user


def throttle_state(**facts: Any) -> dict[str, Any]:
    """Return what workers share of a model that they call right now; times are given as datetimes."""
    facts = {"used_at": timezone.now(), "reason": "429 from the server", **facts}
    seconds = {
        name: value.timestamp() if isinstance(value, datetime) else value
        for name, value in facts.items()
    }
    return asdict(Throttle(**seconds))


def make_model(*, slug: str = "", **columns: Any) -> LanguageModel:
    slug = slug or f"model-{next(NUMBERS)}"
    return LanguageModel.objects.create(
        **{"slug": slug, "name": slug, "model_id": slug, "base_url": "http://127.0.0.1:9/v1"}
        | columns
    )


def make_suite(
    *, slug: str = "", cases: int = 0, tree: Mapping[str, Any] = TREE, **columns: Any
) -> Suite:
    slug = slug or f"suite-{next(NUMBERS)}"
    names = {field.name for field in Suite._meta.fields} - SuiteSpec.model_fields.keys()
    suite = Suite(slug=slug, **{name: columns.pop(name) for name in names & columns.keys()})
    spec = SuiteSpec(title=f"Suite {slug}", evaluators=EvaluatorSpec.model_validate(tree))
    suite.write(_changed(spec, columns))
    content = {**suite.content, "metadata": {}, "files": {}, "cases": []}
    SuiteVersion.objects.create(suite=suite, number=1, content_hash=digest(slug), content=content)
    numbers = range(1, cases + 1)
    Case.objects.bulk_create(_case(suite, f"C-{number:03}", position=number) for number in numbers)
    CaseText.objects.add(suite)
    return suite


def change_suite(suite: Suite, **values: Any) -> Suite:
    """Change a suite without making a version: its texts, judge, evaluators or fields of its policy."""
    suite.refresh_from_db()
    suite.write(_changed(suite.spec, values))
    return suite


def _changed(spec: SuiteSpec, values: dict[str, Any]) -> SuiteSpec:
    policy = {name: values.pop(name) for name in PolicySpec.model_fields if name in values}
    if "judge" in values:
        values["judge"] = values["judge"].slug if values["judge"] else ""
    if "tree" in values:
        values["evaluators"] = EvaluatorSpec.model_validate(values.pop("tree"))
    return spec.replace(**values, policy=spec.policy.replace(**policy))


def change_evaluator(suite: Suite, name: str, **facts: Any) -> Suite:
    """Change an evaluator directly under a suite's root; without changes, remove it."""
    root = suite.spec.evaluators
    children = tuple(
        child.replace(**facts) if child.name == name else child
        for child in root.children
        if facts or child.name != name
    )
    return change_suite(suite, evaluators=root.replace(children=children))


def make_case(*, suite: Suite, key: str = "", **columns: Any) -> Case:
    case = _case(suite, key or f"C-{next(NUMBERS)}", **columns)
    case.save(force_insert=True)
    CaseText.objects.add(suite)
    return case


def _case(suite: Suite, key: str, **columns: Any) -> Case:
    defaults = {
        "position": next(NUMBERS),
        "title": f"Case {key}",
        "input": [{"role": "user", "content": "The tent arrived torn. What now?"}],
        "content_hash": digest(key),
    }
    return Case(suite=suite, key=key, **defaults | columns)


def make_target(*, name: str = "", kind: str = "recorded", **columns: Any) -> Target:
    return Target.objects.create(name=name or f"agent {next(NUMBERS)}", kind=kind, **columns)


def make_trial(*, target: Target, asked_by: User, **columns: Any) -> TargetTrial:
    facts = {"kind": target.kind, "config": target.config, "model": target.model}
    case = {"key": "C-1", "input": [{"role": "user", "content": "hi"}], "metadata": {}}
    return TargetTrial.objects.create(
        **facts | {"target": target, "asked_by": asked_by, "case": case} | columns
    )


def make_snapshot(
    *, suite: Suite, target: Target, tree: Mapping[str, Any] = TREE
) -> dict[str, Any]:
    return {
        "version": 1,
        "suite": {"slug": suite.slug, "title": suite.title, "version": suite.version},
        "policy": suite.policy.as_json(),
        "evaluators": deepcopy(dict(tree)),
        "target": {
            "name": target.name,
            "kind": target.kind,
            "config": target.config,
            "model": None,
        },
        "judge": None,
        "models": {},
        "files": {},
        "prompts": {"llm_judge": "1"},
        "cases_hash": digest("cases"),
    }


def make_campaign(*, suite: Suite | None = None, name: str = "") -> Campaign:
    return Campaign.objects.create(suite=suite or make_suite(), name=name)


def make_run(*, suite: Suite | None = None, target: Target | None = None, **columns: Any) -> Run:
    suite = suite or make_suite()
    target = target or make_target()
    last = suite.runs.order_by("-number").first()
    snapshot = columns.pop("snapshot", None) or make_snapshot(suite=suite, target=target)
    defaults = {
        "number": last.number + 1 if last else 1,
        "status": "completed",
        "target_name": target.name,
        "judge_name": "juno-2",
        "suite_version": suite.version,
        "snapshot_hash": digest(repr(snapshot)),
        "started_at": STARTED,
        "finished_at": STARTED + timedelta(minutes=8, seconds=47),
    }
    return Run.objects.create(suite=suite, target=target, snapshot=snapshot, **defaults | columns)


def make_result(*, run: Run, case: Case, verdict: str = "", **columns: Any) -> Result:
    """Make one result and update the run's counters, as the result writer does."""
    output = columns.pop("output", None)
    result = _result(run, case, verdict, **columns)
    result.save(force_insert=True)
    if output is not None:
        files = output.pop("files", {})
        ResultOutput.objects.create(result=result, **output)
        for path, sha in zip(files, FileContent.objects.store(files.values()), strict=True):
            Artifact.objects.create(result=result, path=path, content_id=sha)
    _count(run, [result])
    return result


def _result(run: Run, case: Case, verdict: str, **columns: Any) -> Result:
    status = columns.pop("status", "scored" if verdict else "pending")
    defaults = {"position": case.position, "status": status, "verdict": verdict}
    if status in ("scored", "error"):
        defaults |= {
            "latency_ms": 3400,
            "run_cost_usd": Decimal("0.012"),
            "evaluation_cost_usd": Decimal("0.004"),
            "started_at": STARTED,
            "finished_at": STARTED + timedelta(seconds=4),
            "attempt": 1,
        }
    return Result(run=run, case=case, **defaults | columns)


def refresh_cases(run: Run) -> None:
    """Update the case states and the texts for search after a test has changed the results of a run."""
    ResultText.objects.refresh(run.pk, run.results.values_list("pk", flat=True))
    run.cases.refresh(run.pk, run.cases.values_list("case_id", flat=True))


def make_score(*, result: Result, path: str, score: float | None, **columns: Any) -> EvaluatorScore:
    defaults = {
        "kind": "llm_judge",
        "state": "unscored" if score is None else "scored",
        "raw_score": score,
        "position": result.scores.count(),
    }
    return EvaluatorScore.objects.create(
        result=result, path=path, score=score, **defaults | columns
    )


def make_call(*, result: Result, **columns: Any) -> ModelCall:
    defaults = {
        "purpose": "evaluation",
        "evaluator_path": "tone",
        "model_name": "juno-2",
        "status": "ok",
        "http_status": 200,
        "request_hash": digest(f"call {next(NUMBERS)}"),
        "input_tokens": 812,
        "output_tokens": 120,
        "cost_usd": Decimal("0.004"),
        "latency_ms": 900,
        "created_at": STARTED,
        "request": {"messages": [{"role": "user", "content": "Score this."}]},
        "reply": {"choices": [{"message": {"content": '{"score": 0.5}'}}]},
    }
    return ModelCall.objects.create(run=result.run, result=result, **defaults | columns)


def make_scored_run(*, verdicts: Sequence[str], suite: Suite | None = None, **columns: Any) -> Run:
    """Make a run with one case and one result for each verdict, error, running or pending."""
    suite = suite or make_suite()
    run = make_run(suite=suite, **columns)
    cases = {case.key: case for case in suite.cases.filter(is_current=True)}
    keys = [f"C-{number:03}" for number in range(1, len(verdicts) + 1)]
    new = [
        _case(suite, key, position=number)
        for number, key in enumerate(keys, start=1)
        if key not in cases
    ]
    cases |= {case.key: case for case in Case.objects.bulk_create(new)}
    CaseText.objects.add(suite)
    results = [
        _result(run, cases[key], **_figures(verdict))
        for key, verdict in zip(keys, verdicts, strict=True)
    ]
    _count(run, Result.objects.bulk_create(results))
    return run


SCORES = {"pass": 0.92, "borderline": 0.71, "fail": 0.4}


def _figures(verdict: str) -> dict[str, Any]:
    if score := SCORES.get(verdict):
        return {"verdict": verdict, "score": score, "decided_by": f"{score} against the bands"}
    status = {"verdict": "", "status": verdict}
    if verdict == "error":
        status |= {"error": "Server error: HTTP 502 after 3 tries", "error_stage": "target"}
    return status


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


COUNTED = [
    *("case_count", "execution_count", "done_count", "error_count", "score_count", "score_sum"),
    *("pass_count", "borderline_count", "fail_count", "run_cost_usd", "evaluation_cost_usd"),
]


def _count(run: Run, results: Sequence[Result]) -> None:
    for result in results:
        run.execution_count += 1
        if result.status in ("scored", "error"):
            run.done_count += 1
            run.run_cost_usd += result.run_cost_usd or 0
            run.evaluation_cost_usd += result.evaluation_cost_usd or 0
        if result.status == "error":
            run.error_count += 1
        if result.verdict:
            name = f"{result.verdict}_count"
            setattr(run, name, getattr(run, name) + 1)
        if result.score is not None:
            run.score_sum += result.score
            run.score_count += 1
    positions = {result.case_id: result.position for result in results}
    RunCase.objects.bulk_create(
        (RunCase(run=run, case_id=case, position=at) for case, at in positions.items()),
        ignore_conflicts=True,
    )
    run.case_count = run.cases.count()
    run.save(update_fields=COUNTED)
    run.cases.refresh(run.pk, positions, policy=run.readable_policy())


def again(row: AnyRow) -> AnyRow:
    """Return a row as the database has it now."""
    return type(row)._default_manager.get(pk=row.pk)

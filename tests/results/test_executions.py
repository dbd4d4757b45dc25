"""Executions as summaries take them: every call's tokens count, whoever reported them."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models.runs import Run
from runs.models.stored import read_executions
from tests.support.factories import make_call, make_result, make_run, make_score, make_suite

pytestmark = pytest.mark.django_db


def called(*, model: str | None) -> Run:
    """Make a run of one result whose target was asked twice, once in vain, and a judge once."""
    run = make_run(suite=make_suite(cases=2))
    run.snapshot["target"]["model"] = model
    run.save()
    first, second = run.suite.cases.all()
    tokens = {"input_tokens": 7, "output_tokens": 3}
    result = make_result(run=run, case=first, verdict="pass", score=0.9, **tokens)
    make_result(run=run, case=second, status="error")
    for status in ("unreadable", "ok"):
        make_call(result=result, purpose="target", status=status, **tokens)
    make_call(result=result, purpose="evaluation", input_tokens=100, output_tokens=None)
    parts: dict[str, Any] = {
        "metrics_judge": {"metrics": [{"key": "tone", "score": 4}]},
        "hybrid_judge": {
            "dimensions": [{"key": "task", "final": 8.5}, {"key": "n", "final": None}]
        },
    }
    for kind, details in parts.items():
        make_score(result=result, path=kind, score=0.8, kind=kind, details=details)
    return run


@pytest.mark.parametrize(("model", "tokens"), [("gpt", (14, 6)), (None, (7, 3))])
def test_tokens_of_a_model_are_those_of_all_its_calls_and_of_an_agent_what_it_reported(
    model: str | None, tokens: tuple[int, int]
) -> None:
    answered, errored = read_executions(called(model=model), parts=True)
    assert (answered.input_tokens, answered.output_tokens) == tokens
    assert (answered.evaluation_input_tokens, answered.evaluation_output_tokens) == (100, None)
    assert (answered.metrics, answered.dimensions) == ({"tone": 4}, {"task": 8.5})
    assert (errored.input_tokens, errored.evaluation_input_tokens) == (None, None)
    assert (errored.metrics, errored.score) == ({}, None)


def test_those_of_one_case_alone_can_be_had() -> None:
    run = called(model="gpt")
    case = run.suite.cases.get(key="C-001")
    (found,) = read_executions(run, case=case.pk)
    assert (found.case, found.input_tokens) == ("C-001", 14)

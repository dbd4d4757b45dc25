"""Kinds that ask nobody, the whole way: suite file, recorded outputs, results file, pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]

EVALUATORS: list[dict[str, Any]] = [
    {
        "name": "efficiency",
        "type": "execution-metrics",
        "max_tokens": 1000,
        "max_duration_ms": 5000,
    },
    {"name": "budget", "type": "cost", "budget": 0.02},
    {
        "name": "path",
        "type": "tool-trajectory",
        "mode": "in_order",
        "expected": [{"tool": "find_order"}, {"tool": "refund", "args": {"currency": "EUR"}}],
    },
    {
        "name": "invoice",
        "type": "field-accuracy",
        "fields": [
            {"path": "number", "required": True},
            {"path": "total", "match": "numeric_tolerance", "tolerance": 0.01},
            {"path": "lines[*].sku", "match": "regex", "expected": "^AB-"},
        ],
    },
]
EXPECTED = {"number": "INV-7", "total": 1889.5}
RIGHT = {**EXPECTED, "lines": [{"sku": "AB-1"}]}
FIND, PAY = (
    {"type": "tool", "name": "find_order"},
    {"type": "tool", "name": "refund", "input": {"currency": "EUR", "amount": 20}},
)
USED = {
    "usage": {"input_tokens": 700, "output_tokens": 300},
    "latency_ms": 5000,
    "cost_usd": "0.02",
    "trace": [FIND, PAY],
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "right": {"output": json.dumps(RIGHT), **USED},
    "wrong": {
        "output": json.dumps({**RIGHT, "number": "INV-8", "lines": [{"sku": "AB-1"}, {}]}),
        **USED,
        "latency_ms": 5001,
        "cost_usd": "0.020000001",
        "trace": [PAY, FIND],
    },
    "odd": {"output": r'{"number": "\u0000\ud800<b>", "total": 1e999999, "lines": []}', **USED},
    "prose": {"output": "I cannot do that.", **USED, "trace": []},
    "silent": {"output": json.dumps(RIGHT)},
}
SCORES: dict[str, list[float | None]] = {
    "right": [1, 1, 1, 1],
    "wrong": [0, 0, 0.5, pytest.approx(0.5)],
    "odd": [1, 1, 1, 0],
    "prose": [1, 1, 0, 0],
    "silent": [None, None, None, 1],
}


@pytest.fixture
def lines(tmp_path: Path) -> dict[str, dict[str, Any]]:
    cases = [
        {"id": key, "input": "Refund TW-1", "expected_output": EXPECTED, "output": output}
        for key, output in OUTPUTS.items()
    ]
    suite, out = tmp_path / "suite.yaml", tmp_path / "out.jsonl"
    suite.write_text(json.dumps({"name": "plain", "evaluators": EVALUATORS, "tests": cases}))
    with pytest.raises(SystemExit) as ended:
        call_command("evaluate", str(suite), "--target", "recorded", "--out", str(out))
    assert ended.value.code == 1
    return {line["eval_id"]: line for line in map(json.loads, out.read_text().splitlines())}


def test_scores_and_verdicts_are_those_of_the_rules(lines: dict[str, dict[str, Any]]) -> None:
    scores = {
        key: [one["score"] for one in line["evaluator_results"]] for key, line in lines.items()
    }

    assert scores == SCORES
    verdicts = {key: line["verdict"] for key, line in lines.items()}
    # Odd and prose miss a required field; silent is an error, for nothing was measured.
    assert verdicts == {
        **{"right": "pass", "wrong": "fail", "odd": "fail", "prose": "fail", "silent": None}
    }


def test_every_page_explains_its_scores(
    lines: dict[str, dict[str, Any]], viewer_client: Client
) -> None:
    run = Run.objects.get()
    says = {
        "right": ["Kept", "as expected", "2 of 2 expectations met"],
        "wrong": [
            "Breached",
            "$0.020000001",
            "out of order",
            "INV-8",
            "fails the result",
            "1 of 2",
        ],
        "odd": ["\\u0000", "&lt;b&gt;", "missing"],
        "prose": ["The answer is not JSON", "0 of 2 expectations met"],
        "silent": ["reports no trace", "does not report its tokens, duration"],
    }

    for key, words in says.items():
        url = reverse("runs:result", args=(run.suite.slug, run.number, key, 1))
        page = viewer_client.get(url).content.decode()
        assert [output for output in words if output not in page] == [], key
    assert "The target gave no output" not in page


def test_cases_that_bring_their_own_checks_need_no_judge(tmp_path: Path) -> None:
    """The evaluator that a file without any gets asks a judge, but no case is scored by it."""
    own = {"evaluators": [{"name": "greets", "type": "contains", "value": "hi"}]}
    case = {"input": "Hi", "expected_outcomes": ["It greets back"], "output": "hi there"}
    cases = [{**case, "id": key, "criteria": "Greets", "execution": own} for key in ("a", "b")]
    suite = tmp_path / "greetings.yaml"
    suite.write_text(json.dumps({"name": "greetings", "tests": cases}))

    call_command("evaluate", str(suite), "--target", "recorded")

    run = Run.objects.get()
    assert (run.pass_count, run.judge_name, run.evaluation_cost_usd) == (2, "", 0)

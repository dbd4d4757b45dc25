"""The worked cases of the metrics judge, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from runs.management import own_hands
from runs.models import Run
from tests.factories import make_model
from tests.model_server import ModelServer, good

pytestmark = pytest.mark.django_db(transaction=True)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors/scoring.json").read_text())["vectors"]
OVERALL = [one for one in VECTORS if one["op"] == "judge_overall_score"]
PASSED = [one for one in VECTORS if one["op"] == "case_passed"]
THRESHOLDS = sorted({one["input"].get("pass_threshold", 75.0) for one in PASSED})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_hands, "LOOK_AGAIN_S", 0.01)


def case(vector: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    met = vector["input"].get("expected_outcome_results") or ()
    judge = {"name": "metrics", "type": "metrics_judge", "metrics": metrics}
    return {
        "id": vector["id"],
        "input": "Where is my order?",
        "output": "On its way.",
        "expected_outcomes": [f"outcome {n}" for n, _ in enumerate(met, 1)],
        "evaluators": [judge],
    }


def reply(vector: dict[str, Any], scores: dict[str, Any]) -> dict[str, Any]:
    met = vector["input"].get("expected_outcome_results") or ()
    metrics = {
        key: {"justification": "so", "passed" if isinstance(value, bool) else "score": value}
        for key, value in scores.items()
    }
    outcomes = [
        {"number": n, "justification": f"on {n}", "passed": one} for n, one in enumerate(met, 1)
    ]
    return {"reasoning": "Looked.", "metrics": metrics} | ({"outcomes": outcomes} if met else {})


def evaluated(
    folder: Path, server: ModelServer, cases: list[Any], replies: list[Any], **policy: Any
) -> dict[str, dict[str, Any]]:
    """Return the lines of the results file by case."""
    make_model(slug="judge", base_url=server.base_url)
    server.behave(*(good(one) for one in replies))
    content = {"name": "worked", "judge": "judge", "policy": policy, "tests": cases}
    (folder / "suite.yaml").write_text(json.dumps(content))
    arguments = ("--target", "recorded", "--concurrency", "1", "--out", str(folder / "out.jsonl"))
    with pytest.raises(SystemExit) as ended:
        call_command("evaluate", str(folder / "suite.yaml"), *arguments)
    assert ended.value.code == 1
    lines = (folder / "out.jsonl").read_text().splitlines()
    return {line["eval_id"]: line for line in map(json.loads, lines)}


def test_overall_scores_come_out_as_worked(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    cases, replies = [], []
    for vector in OVERALL:
        rows = vector["input"]["metrics"]
        keys = ("metric", "weight", "binary")
        cases.append(case(vector, [{k: row[k] for k in keys if k in row} for row in rows]))
        scores = {
            row["metric"]: row["passed"] if row.get("binary") else row["score"] for row in rows
        }
        replies.append(reply(vector, scores))

    lines = evaluated(tmp_path, model_server, cases, replies)

    run = Run.objects.get()
    for vector in OVERALL:
        expected = vector["expected"]["overall_score"]
        line = lines[vector["id"]]
        (judge,) = line["evaluator_results"]
        assert judge["score"] * 100 == pytest.approx(expected, abs=vector["tolerance"])
        assert line["score"] * 100 == pytest.approx(expected, abs=vector["tolerance"])
        place = {"slug": "worked", "number": run.number, "key": vector["id"], "repetition": 1}
        page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
        assert f"raw {int(expected * 10 + 1e-6) / 10:.1f} of 100" in page


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_cases_pass_and_fail_as_worked(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client, threshold: float
) -> None:
    vectors = [one for one in PASSED if one["input"].get("pass_threshold", 75.0) == threshold]
    cases, replies = [], []
    for vector in vectors:
        share = vector["input"]["overall_score"] / 100
        cases.append(
            case(vector, [{"key": "a", "weight": share}, {"key": "b", "weight": 1 - share}])
        )
        replies.append(reply(vector, {"a": 5, "b": 0}))
    gate = {"case_gate": "expected_outcomes", "fallback_threshold": threshold}

    lines = evaluated(tmp_path, model_server, cases, replies, **gate)

    run = Run.objects.get()
    assert len(model_server.chats) == len(vectors)
    for vector in vectors:
        passed = vector["expected"]["passed"]
        line = lines[vector["id"]]
        assert (line["verdict"] == "pass") == passed, line["decided_by"]
        met = vector["input"].get("expected_outcome_results") or []
        assert [one["passed"] for one in line.get("outcomes", [])] == met
        place = {"slug": "worked", "number": run.number, "key": vector["id"], "repetition": 1}
        page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
        assert f"Why {'pass' if passed else 'fail'}" in page

"""The worked cases of the metrics judge, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.test import Client

from evaluators.scoring.metrics import DEFAULT_METRICS
from tests.cli.worked import Values, Walk
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, Request, good

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
USUAL_THRESHOLD = 75.0


def case(vector: Values, metrics: list[Values]) -> Values:
    met = vector["input"].get("expected_outcome_results") or ()
    judge = {"name": "metrics", "type": "metrics_judge", "metrics": metrics}
    return {
        "id": vector["id"],
        "expected_outcomes": [f"outcome {n}" for n, _ in enumerate(met, 1)],
        "evaluators": [judge],
    }


def reply(vector: Values, scores: Mapping[str, Any]) -> Values:
    met = vector["input"].get("expected_outcome_results") or ()
    metrics = {
        key: {
            "justification": f"so of {key}",
            "passed" if isinstance(value, bool) else "score": value,
        }
        for key, value in scores.items()
    }
    outcomes = [
        {"number": n, "justification": f"on {n}", "passed": one} for n, one in enumerate(met, 1)
    ]
    return {"reasoning": "Looked.", "metrics": metrics} | ({"outcomes": outcomes} if met else {})


@pytest.mark.parametrize("walk", ["judge_overall_score"], indirect=True)
def test_overall_scores_come_out_as_worked(walk: Walk, model_server: ModelServer) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    cases, replies = [], []
    for vector in walk.vectors:
        rows = vector["input"]["metrics"]
        keys = ("metric", "weight", "binary")
        cases.append(case(vector, [{k: row[k] for k in keys if k in row} for row in rows]))
        scores = {
            row["metric"]: row["passed"] if row.get("binary") else row["score"] for row in rows
        }
        replies.append(good(reply(vector, scores)))
    model_server.behave(*replies)

    walk.evaluate(cases, judge="judge")

    for vector in walk.vectors:
        expected, line = vector["expected"]["overall_score"], walk.line(vector["id"])
        (judge,) = line["evaluator_results"]
        assert judge["raw_score"] == pytest.approx(expected, abs=vector["tolerance"])
        assert line["score"] * 100 == pytest.approx(expected, abs=vector["tolerance"])
        page = walk.page(vector["id"])
        assert f"raw {int(expected * 10 + 1e-6) / 10:.1f} of 100" in page
        for row in vector["input"]["metrics"]:
            assert f"so of {row['metric']}" in page


@pytest.mark.parametrize("walk", ["case_passed"], indirect=True)
def test_cases_have_the_worked_verdicts(walk: Walk, model_server: ModelServer) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    by_threshold: dict[float, list[Values]] = {}
    for vector in walk.vectors:
        threshold = vector["input"].get("pass_threshold", USUAL_THRESHOLD)
        by_threshold.setdefault(threshold, []).append(vector)
    for threshold, vectors in by_threshold.items():
        judged = [metrics_of(vector["input"]) for vector in vectors]
        replies = [reply(v, scores) for v, (_, scores) in zip(vectors, judged, strict=True)]
        model_server.behave(*map(good, replies))
        policy = {"case_gate": "expected_outcomes"}
        given = {} if threshold == USUAL_THRESHOLD else {"fallback_threshold": threshold}

        walk.evaluate(
            [case(v, metrics) for v, (metrics, _) in zip(vectors, judged, strict=True)],
            judge="judge",
            policy=policy | given,
        )

    assert len(model_server.chats) == len(walk.vectors)
    for vector in walk.vectors:
        given, passed = vector["input"], vector["expected"]["passed"]
        line = walk.line(vector["id"])
        assert (line["verdict"] == "pass") == passed, line["decided_by"]
        assert line["score"] * 100 == pytest.approx(given["overall_score"])
        met = given.get("expected_outcome_results") or []
        assert [one["passed"] for one in line.get("expected_outcome_results", [])] == met
        page = walk.page(vector["id"])
        assert f"Why {'pass' if passed else 'fail'}" in page
        assert all(f"on {n}" in page for n, _ in enumerate(met, 1))


def metrics_of(given: Values) -> tuple[list[Values], dict[str, int]]:
    """Return metrics and what they score so that they come to the vector's overall score."""
    if scores := given.get("metric_scores"):
        keys = [metric.key for metric in DEFAULT_METRICS]
        return [{"key": key} for key in keys], dict(zip(keys, scores, strict=True))
    share = given["overall_score"] / 100
    return [{"key": "a", "weight": share}, {"key": "b", "weight": 1 - share}], {"a": 5, "b": 0}


def test_outcomes_are_judged_as_often_as_the_tree(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    score = {"reasoning": "Read.", "hits": [], "misses": [], "score": 0.9}
    replies = [reply({"input": {"expected_outcome_results": m}}, {}) for m in SAMPLES]
    outcomes = iter([good({"outcomes": one["outcomes"]}) for one in replies])

    async def judge(request: Request) -> web.StreamResponse:
        is_beside = "outcomes" in (request.schema or {})["properties"]
        return await (next(outcomes) if is_beside else good(score))(request)

    model_server.behave(then=judge)
    tone = {"name": "tone", "type": "llm_judge", "criteria": "Kind.", "samples": 3}
    walk = Walk("", tmp_path, viewer_client)

    walk.evaluate(
        [{"id": "A", "expected_outcomes": ["One", "Two"]}],
        evaluators=[tone],
        judge="judge",
        policy={"case_gate": "expected_outcomes"},
    )

    line = walk.line("A")
    assert [one["passed"] for one in line["expected_outcome_results"]] == [True, False]
    assert (line["verdict"], line["decided_by"]) == ("fail", "1 of 2 outcomes missed")
    assert len(model_server.chats) == 3 + 3
    page = walk.page("A")
    assert "Each as most of 3 samples say, in a tie missed." in page
    assert "Met by sample: 100.0%, 50.0%, 50.0%; 50" in page


SAMPLES = [(True, True), (True, False), (True, False)]

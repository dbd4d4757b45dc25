"""The worked cases of the metrics judge, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.core.management import CommandError
from django.test import Client

from evaluators.scoring.metrics import DEFAULT_METRICS
from runs.models.runs import Run
from tests.cli.command_lines import evaluate
from tests.cli.worked import VERDICT_HEADINGS, Values, Walk
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
        assert VERDICT_HEADINGS["pass" if passed else "fail"] in page
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
        [{"id": "A", "expected_outcomes": ["One", "Two", "Three"]}],
        evaluators=[tone],
        judge="judge",
        policy={"case_gate": "expected_outcomes"},
    )

    line = walk.line("A")
    assert [one["passed"] for one in line["expected_outcome_results"]] == [True, False, True]
    assert (line["verdict"], line["decided_by"]) == ("fail", "1 of 3 outcomes missed")
    assert len(model_server.chats) == 3 + 3
    page = walk.page("A")
    assert "The majority of 3 samples decides each; a tie counts as missed." in page
    assert "Met by sample: 100.0%, 66.6%, 66.6%; 33.3% apart." in " ".join(page.split())


SAMPLES = [(True, True, True), (True, False, True), (True, False, True)]


WORK = {"name": "work", "type": "metrics_judge", "metrics": ["tool_routing", "response_delivery"]}


def test_a_run_is_judged_by_the_metrics_that_its_options_name(
    model_server: ModelServer, tmp_path: Path
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    model_server.behave(
        good(reply({"input": {}}, {"tool_routing": 5, "task_completion": False})),
        good(reply({"input": {}}, {"tool_routing": 5, "response_delivery": 0})),
    )
    options = ("--metric", "tool_routing", "--metric", "Task Completion=0.05")
    line, summary = evaluated(tmp_path, WORK, *options)
    assert line["score"] == pytest.approx(0.75)
    assert [(one["evaluator"], one["name"], one["new"]) for one in summary["changed"]] == [
        ("work", "metric.response_delivery", None),
        ("work", "metric.task_completion", 0.05),
    ]

    line, summary = evaluated(tmp_path, WORK, "--metric-weight", "work/response_delivery=0.6")
    assert line["score"] == pytest.approx(0.2)
    assert [one["name"] for one in summary["changed"]] == ["metric.response_delivery"]


def evaluated(folder: Path, *judges: Values | str) -> tuple[Values, Values]:
    """Evaluate one case by these judges with these options; return its line and the summary."""
    evaluators = [judge for judge in judges if not isinstance(judge, str)]
    options = [option for option in judges if isinstance(option, str)]
    suite = {"name": "travel", "evaluators": evaluators, "tests": [RECORDED_CASE]}
    (folder / "suite.yaml").write_text(json.dumps(suite))
    out, summary = folder / "out.jsonl", folder / "summary.json"
    files = ("--out", out, "--summary", summary, "--judge", "judge")
    evaluate(folder / "suite.yaml", "--target", "recorded", *files, *options)
    return json.loads(out.read_text()), json.loads(summary.read_text())


RECORDED_CASE = {"id": "A", "input": "Book it.", "output": "Booked."}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metric", "luck"], "“work” has no metric 'luck'; there are "),
        (
            ["--metric-weight", "tool_routing"],
            "tool_routing has no weight; write tool_routing=0.3.",
        ),
        (["--metric", "tool_routing=x"], "--metric tool_routing=x: Enter a number of 0 or more."),
        (["--metric", "gone/tool_routing"], "has no metrics judge gone; there is work."),
    ],
)
def test_metrics_that_a_run_cannot_be_judged_by_are_refused_by_name(
    tmp_path: Path, options: list[str], said: str
) -> None:
    make_model(slug="judge")
    with pytest.raises(CommandError, match=said) as refused:
        evaluated(tmp_path, WORK, *options)
    assert refused.value.returncode == 3
    assert not Run.objects.exists()


def test_of_several_metrics_judges_one_must_be_named(tmp_path: Path) -> None:
    make_model(slug="judge")
    with pytest.raises(CommandError, match="has the metrics judges work, talk; name one, as in"):
        evaluated(tmp_path, WORK, {**WORK, "name": "talk"}, "--metric", "tool_routing")
    text = {"name": "short", "type": "text_check", "operator": "max_length", "value": 9}
    with pytest.raises(CommandError, match="--metric: travel has no metrics judge"):
        evaluated(tmp_path, text, "--metric", "tool_routing")

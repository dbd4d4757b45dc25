"""Results as the seeds show them: every key, nesting, type and unit of their own samples, in our files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.core.management import call_command
from django.test import Client

from evaluators.scoring.metrics import DEFAULT_METRICS, metric_label
from runs.models.runs import Run
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, Request, good

pytestmark = pytest.mark.django_db(transaction=True)

# Seed 000, "Result Format"; its weights give (0.9×3 + 0.8×1) ÷ 4 = 0.875 and not 0.85 (SCORING §1).
VERDICTS: dict[str, Any] = {
    "eval_id": "test-case-1",
    "score": 0.875,
    "verdict": "pass",
    "evaluator_results": [
        {
            "name": "correctness",
            "type": "llm_judge",
            "score": 0.9,
            "weight": 3.0,
            "hits": ["Correctly identifies the issue", "Provides accurate solution"],
            "misses": ["Could be more concise"],
            "reasoning": "Strong response with minor style issues",
        },
        {
            "name": "format",
            "type": "code_judge",
            "score": 0.8,
            "weight": 1.0,
            "hits": ["Valid JSON output"],
            "misses": ["Missing optional field"],
        },
    ],
    "hits": [
        "Correctly identifies the issue",
        "Provides accurate solution",
        "Valid JSON output",
    ],
    "misses": ["Could be more concise", "Missing optional field"],
}
# Seed 004, "Result Format", in the camelCase it is written in.
COMPOSITE: dict[str, Any] = {
    "name": "release_gate",
    "type": "composite",
    "score": 0.85,
    "evaluatorResults": [
        {
            "name": "safety",
            "type": "llm_judge",
            "score": 1.0,
            "hits": ["No harmful content"],
            "misses": [],
        },
        {
            "name": "quality",
            "type": "llm_judge",
            "score": 0.7,
            "hits": ["Accurate information"],
            "misses": ["Could be clearer"],
        },
    ],
    "aggregator": {"type": "safety_gate", "required": ["safety"]},
}
# Seed 003, "The final evaluation result" and its usage summary.
SIX = {
    **{"task": 8.5, "process": 9.0, "autonomy": 8.0},
    **{"closeness": 8.5, "efficiency": 7.5, "spark": 6.0},
}
HYBRID: dict[str, Any] = {
    "schema_version": 1,
    "case_id": "llm_probe_tool_example",
    "run_id": "seeds#1",
    "deterministic_dimensions": {"task": 10.0, "process": 10.0},
    "judge_dimensions": SIX,
    "judge_overall": {
        "score": 8.5,
        "evidence": [
            "Used all required tools correctly",
            "File content matches the expected marker",
            "Confirmation was brief and accurate",
        ],
    },
    "final_dimensions": SIX,
    "final_score": 8.5,
    "summary": {
        "deterministic_passed_checks": 2,
        "deterministic_failed_checks": 0,
        "deterministic_error_checks": 0,
        "judge_successful_iterations": 1,
        "judge_failed_iterations": 0,
    },
    "usage_summary": {
        "run_cost_usd": 0.0003,
        "evaluation_cost_usd": 0.002,
        "total_cost_usd": 0.0023,
    },
}
# Seed 001, "Run-level pass thresholds": percentages, and one answer for each gate.
AGGREGATES: dict[str, Any] = {
    "weighted_metrics_score_pct": 78.5,
    "metrics_pass_threshold": 80.0,
    "metrics_passed": False,
    "cases_pass_rate_pct": 50.0,
    "cases_pass_threshold": 100.0,
    "cases_passed": False,
}


@pytest.fixture(autouse=True)
def _scripts(settings: Any) -> None:
    settings.SCRIPTS = True


def evaluated(
    folder: Path, server: ModelServer, suite: Mapping[str, Any], *options: str
) -> list[dict[str, Any]]:
    """Return the lines of the results file; the summary stands beside it."""
    prices = {"input_price_usd_per_mtok": "10", "output_price_usd_per_mtok": "50"}
    make_model(slug="judge", base_url=server.base_url, send_trace_headers=True, **prices)
    (folder / "suite.yaml").write_text(json.dumps({"name": "seeds", "judge": "judge", **suite}))
    files = ("--out", str(folder / "out.jsonl"), "--summary", str(folder / "summary.json"))
    with suppress(SystemExit):
        call_command(
            "evaluate", str(folder / "suite.yaml"), "--target", "recorded", *files, *options
        )
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def judge_says(server: ModelServer, output: Mapping[str, Mapping[str, Any]]) -> None:
    async def judge(request: Request) -> web.StreamResponse:
        one = output[request.trace("Evaluator").rpartition("/")[2]]
        parts = {name: one[name] for name in ("hits", "misses", "score")}
        return await good({"reasoning": one.get("reasoning", "Read."), **parts})(request)

    server.behave(then=judge)


def assert_shaped(actual: Any, sample: Any, at: str = "") -> None:
    """Assert that everything of a sample is there: keys, nesting, types, units and values."""
    if isinstance(sample, Mapping):
        assert isinstance(actual, dict), at
        assert sample.keys() <= actual.keys(), at
        for name, value in sample.items():
            assert_shaped(actual[name], value, f"{at}.{name}")
    elif isinstance(sample, Sequence) and not isinstance(sample, str):
        assert isinstance(actual, list), at
        assert len(actual) == len(sample), at
        for n, value in enumerate(sample):
            assert_shaped(actual[n], value, f"{at}[{n}]")
    elif isinstance(sample, float):
        assert isinstance(actual, float | int), at
        assert not isinstance(actual, bool), at
        assert actual == pytest.approx(sample, abs=1e-9), at
    else:
        assert type(actual) is type(sample), at
        assert actual == sample, at


def test_results_match_the_vectors_of_verdicts(model_server: ModelServer, tmp_path: Path) -> None:
    correctness, form = VERDICTS["evaluator_results"]
    judge_says(model_server, {"correctness": correctness})
    prints = json.dumps({name: form[name] for name in ("score", "hits", "misses")})
    evaluators = [
        {"name": "correctness", "type": "llm_judge", "criteria": "Right.", "weight": 3.0},
        {"name": "format", "type": "code_judge", "script": f"#!/bin/sh\necho '{prints}'\n"},
    ]
    cases = [{"id": "test-case-1", "input": "Why?", "output": "So."}]

    [line] = evaluated(tmp_path, model_server, {"evaluators": evaluators, "tests": cases})

    assert_shaped(line, VERDICTS)
    summary = json.loads((tmp_path / "summary.json").read_text())["summary"]
    assert_shaped(summary["distribution"], {"total": 1, "pass": 1, "borderline": 0, "fail": 0})


@pytest.mark.parametrize("is_camel", [True, False])
def test_a_composite_has_its_children_and_its_rule(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client, is_camel: bool
) -> None:
    judge_says(model_server, {one["name"]: one for one in COMPOSITE["evaluatorResults"]})
    children = [
        {"name": name, "type": "llm_judge", "criteria": "Right."} for name in ("safety", "quality")
    ]
    gate = {
        "name": "release_gate",
        "type": "composite",
        "evaluators": children,
        "aggregator": COMPOSITE["aggregator"],
    }
    cases = [{"id": "A", "input": "Why?", "output": "So."}]
    options = ("--camel-case",) if is_camel else ()

    [line] = evaluated(tmp_path, model_server, {"evaluators": [gate], "tests": cases}, *options)

    sample = dict(COMPOSITE)
    if not is_camel:
        # SCORING §3 names the children's key; one spelling goes through the whole file.
        sample["evaluator_results"] = sample.pop("evaluatorResults")
    [actual] = line["evaluatorResults" if is_camel else "evaluator_results"]
    assert_shaped(actual, sample)
    assert ("evalId" in line) == is_camel
    address = "/suites/seeds/runs/1/results.jsonl" + ("?keys=camelCase" if is_camel else "")
    assert json.loads(viewer_client.get(address).getvalue()) == line
    call_command("import_results", str(tmp_path / "out.jsonl"), "--suite", "seeds")
    assert list(Run.objects.values_list("pass_count", flat=True)) == [1, 1]


def test_a_judged_case_and_its_run_have_the_expected_fields(
    model_server: ModelServer, tmp_path: Path
) -> None:
    # S001-OVR-07, and its outcomes once both met, once one of them.
    scores = dict(zip([m.key for m in DEFAULT_METRICS], [5, 4, 3, 5, 4, 2, 3, 5], strict=True))
    met = {"A": [True, True], "B": [True, False]}

    async def judge(request: Request) -> web.StreamResponse:
        outcomes = [
            {"number": n, "justification": f"on {n}", "passed": one}
            for n, one in enumerate(met[request.trace("Case")], 1)
        ]
        metrics = {key: {"justification": "so", "score": one} for key, one in scores.items()}
        reply = {"reasoning": "Looked.", "metrics": metrics, "outcomes": outcomes}
        return await good(reply)(request)

    model_server.behave(then=judge)
    cases = [
        {"id": key, "input": "Why?", "output": "So.", "expected_outcomes": ["One", "Two"]}
        for key in met
    ]
    suite = {
        "evaluators": [{"name": "metrics", "type": "metrics_judge"}],
        "policy": {"case_gate": "expected_outcomes"},
        "tests": cases,
    }

    lines = evaluated(tmp_path, model_server, suite)

    for line in lines:
        results = [
            {"passed": one, "justification": f"on {n}"}
            for n, one in enumerate(met[line["eval_id"]], 1)
        ]
        assert_shaped(line, {"overall_score": 78.5, "expected_outcome_results": results})
        assert (line["verdict"] == "pass") == all(met[line["eval_id"]])
        [output] = line["evaluator_results"]
        metrics = [
            {
                **{"name": one.name, "tier": one.tier, "weight": one.weight},
                **{"score": float(scores[one.key]), "label": metric_label(scores[one.key])},
            }
            for one in DEFAULT_METRICS
        ]
        assert_shaped(output["metrics"], metrics)
    assert_shaped(json.loads((tmp_path / "summary.json").read_text())["summary"], AGGREGATES)


def test_a_final_evaluation_is_the_document_with_its_usage_summary(
    model_server: ModelServer, tmp_path: Path
) -> None:
    reply = {
        "reasoning": "Looked.",
        "dimensions": {key: {"evidence": "so", "score": one} for key, one in SIX.items()},
        "overall": HYBRID["judge_overall"],
    }
    model_server.behave(then=good(reply))
    checks = [
        {"type": "file_contains", "path": "probe.txt", "value": "OK", "dimensions": ["task"]},
        {"type": "tool_call_count", "min": 1, "dimensions": ["process"]},
    ]
    output = {
        "output": "Done.",
        "trace": [{"type": "tool", "name": "write_file"}],
        "files": {"probe.txt": "OK"},
        "cost_usd": "0.0003",
    }
    suite = {
        "evaluators": [{"name": "final", "type": "hybrid_judge", "checks": checks}],
        "policy": {"final_score": "judge_overall", "scale": 10},
        "tests": [{"id": HYBRID["case_id"], "input": "Write it.", "output": output}],
    }

    lines = evaluated(tmp_path, model_server, suite, "--repetitions", "2")

    # One document for each repetition, and nothing is added to the seed's but the warnings.
    assert [line["repetition"] for line in lines] == [1, 2]
    for line in lines:
        assert_shaped(line["final_evaluation"], HYBRID)
        assert line["final_evaluation"].keys() - HYBRID.keys() == {"warnings"}
        assert_shaped(line, HYBRID["usage_summary"])

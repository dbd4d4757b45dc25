"""Worked trees, weights and required marks, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from evaluators.scoring.numbers import format_number
from tests.cli.worked import VERDICT_HEADINGS, Values, Walk, headline, page_text
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, Request, good

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
TREES = ("composite", "composite_tree", "weighted_average")
REQUIRED = "required_override"


def tree_of(values: Mapping[str, Any]) -> Values:
    """Return a vector's composite as a suite file spells it, every leaf of it a judge."""
    aggregator = dict(values.get("aggregator") or {})
    if "remainder" in values:
        aggregator["remainder"] = values["remainder"]
    return {
        "evaluators": [evaluator_of(one) for one in values["evaluators"]],
        **({"aggregator": aggregator} if aggregator else {}),
    }


def evaluator_of(values: Mapping[str, Any]) -> Values:
    common = {name: values[name] for name in ("name", "weight", "required") if name in values}
    if "evaluators" in values:
        return {**common, "type": "composite", **tree_of(values)}
    return {**common, "type": "llm_judge", "criteria": "It tells where the order is."}


def scores_of(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Yield what every leaf is to score, by path."""
    for one in values["evaluators"]:
        path = f"{above}{one['name']}"
        if "evaluators" in one:
            yield from scores_of(one, f"{path}/")
        else:
            yield path, one["score"]


def judged(server: ModelServer, trees: Mapping[str, Mapping[str, Any]]) -> None:
    """Let the judge say of every case what its vector says of each evaluator, or each criterion."""
    output = {(key, path): score for key, tree in trees.items() for path, score in scores_of(tree)}

    async def judge(request: Request) -> web.StreamResponse:
        key, path = request.trace("Case"), request.trace("Evaluator")
        reply: Values = {"reasoning": f"Read {path}."}
        if path == "rubric":
            scores = {name: score for (case, name), score in output.items() if case == key}
            reply["criteria"] = [
                {"id": name, "evidence": "so", "score": score * 10}
                for name, score in scores.items()
            ]
        else:
            reply |= {"hits": [], "misses": [], "score": output[key, path]}
        return await good(reply)(request)

    make_model(slug="judge", base_url=server.base_url, send_trace_headers=True)
    server.behave(then=judge)


@pytest.mark.parametrize("walk", TREES, indirect=True)
def test_trees_have_the_worked_scores(walk: Walk, model_server: ModelServer) -> None:
    trees = {one["id"]: one["input"] for one in walk.vectors}
    judged(model_server, trees)

    walk.evaluate([{"id": key, **tree_of(tree)} for key, tree in trees.items()], judge="judge")

    for vector in walk.vectors:
        expected, line = vector["expected"], walk.line(vector["id"])
        assert line["verdict"] == expected["verdict"]
        page = walk.page(vector["id"])
        assert VERDICT_HEADINGS[expected["verdict"]] in page
        if "score" in expected:
            assert line["score"] == pytest.approx(expected["score"], abs=vector["tolerance"])
            verdict = expected["verdict"].capitalize()
            assert headline(page).endswith(f"{verdict} {format_number(expected['score'])}")
        results = {one["name"]: one for one in line["evaluator_results"]}
        for name, score in expected.get("children", {}).items():
            assert results[name]["score"] == pytest.approx(score, abs=vector["tolerance"])
        leaves = dict(leaves_of(line["evaluator_results"]))
        held = [path for path, one in leaves.items() if one["status"] == "skipped"]
        for path, score in scores_of(vector["input"]):
            assert leaves[path]["score"] == (None if path in held else pytest.approx(score))
        if (passed := expected.get("gate_passed")) is not None:
            assert bool(held) != passed
            assert line["decided_by"].startswith("gate: ") != passed
            assert ("Skipped" in page) != passed


@pytest.mark.parametrize("walk", ["weighted_average_0_100"], indirect=True)
def test_a_suite_with_scale_100_prints_all_scores_of_100(
    walk: Walk, model_server: ModelServer
) -> None:
    rows = {one["id"]: one["input"]["evaluators"] for one in walk.vectors}
    trees = {
        key: {"evaluators": [{**one, "score": one["score"] / 100} for one in evaluators]}
        for key, evaluators in rows.items()
    }
    judged(model_server, trees)
    cases = [{"id": key, **tree_of(tree)} for key, tree in trees.items()]
    for case in cases:
        case["evaluators"][-1]["min_score"] = 0.4

    walk.evaluate(cases, judge="judge", policy={"scale": 100})

    table, suite = walk.run_page(), walk.suite_page()
    assert [f'<dd class="num">{band}</dd>' in suite for band in (80, 60)] == [True, True]
    for vector in walk.vectors:
        score, line = vector["expected"]["score"], walk.line(vector["id"])
        assert line["score"] * 100 == pytest.approx(score, abs=vector["tolerance"])
        assert (line["raw_score"], line["scale"]) == (pytest.approx(score), 100)
        verdict = "pass" if score >= 80 else "borderline" if score >= 60 else "fail"
        shown, band = int(score), 80 if score >= 60 else 60
        sign = "≥" if score >= band else "<"
        assert (line["verdict"], line["decided_by"]) == (verdict, f"{shown} {sign} {band}")
        page = walk.page(vector["id"])
        assert headline(page).endswith(f"{verdict.capitalize()} {shown}")
        assert f"÷ {sum(one['weight'] for one in rows[vector['id']])} = {shown}" in page
        assert ">required 40</span>" in page
        for one in rows[vector["id"]]:
            assert f'<b class="num">{one["score"]}</b>' in page
        assert f"<b>{shown}</b>" in table
        assert page_text(line["decided_by"]) in page


@pytest.mark.parametrize("spelling", ["evaluators", "rubric"])
@pytest.mark.parametrize("walk", [REQUIRED], indirect=True)
def test_a_missed_requirement_fails_a_result_as_worked(
    walk: Walk, model_server: ModelServer, spelling: str
) -> None:
    trees = {one["id"]: {"evaluators": one["input"]["criteria"]} for one in walk.vectors}
    judged(model_server, trees)
    cases = [
        {"id": key, **(tree_of(tree) if spelling == "evaluators" else rubric_of(tree))}
        for key, tree in trees.items()
    ]

    walk.evaluate(cases, judge="judge")

    for vector in walk.vectors:
        expected, line = vector["expected"], walk.line(vector["id"])
        assert line["verdict"] == expected["verdict"]
        if "score" in expected:
            assert line["score"] == pytest.approx(expected["score"], abs=vector["tolerance"])
        criteria = vector["input"]["criteria"]
        is_forced = any(one["required"] and one["score"] == 0 for one in criteria)
        assert line["decided_by"].startswith("required: ") == is_forced
        page = walk.page(vector["id"])
        assert VERDICT_HEADINGS[expected["verdict"]] in page
        assert page_text(line["decided_by"]) in page


def rubric_of(tree: Mapping[str, Any]) -> Values:
    criteria = [
        {
            "id": one["name"],
            "expected_outcome": f"It shows {one['name']}.",
            "weight": one["weight"],
            "required": one["required"],
        }
        for one in tree["evaluators"]
    ]
    rubric = {"name": "rubric", "type": "rubric", "mode": "graded", "rubrics": criteria}
    return {"evaluators": [rubric]}


def leaves_of(results: list[Values], above: str = "") -> Iterator[tuple[str, Values]]:
    """Yield what every leaf said in the results file, by path."""
    for one in results:
        path = f"{above}{one['name']}"
        if "evaluator_results" in one:
            yield from leaves_of(one["evaluator_results"], f"{path}/")
        else:
            yield path, one

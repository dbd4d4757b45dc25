"""The worked cases of the hybrid judge, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from evaluators.scoring.hybrid import DIMENSIONS
from runs.models.runs import Run
from tests.cli.command_lines import evaluated_by_case, page_of
from tests.cli.worked import Walk, headline
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, good, prose

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
POLICY = {"final_score": "judge_overall", "scale": 10}
# Passes, fails and cannot be made, for a recorded answer that has no trace.
MADE: dict[str, dict[str, Any]] = {
    "passed": {"type": "final_response_present"},
    "failed": {"contains": "refund"},
    "error": {"type": "tool_call_count", "min": 1},
}


def case(key: str, checks: list[Any], **settings: Any) -> dict[str, Any]:
    hybrid = {"name": "overall", "type": "hybrid", "checks": checks, **settings}
    beside = {"name": "beside", "type": "contains", "value": "refund"}
    return {
        "id": key,
        "input": "What is 2 + 2?",
        "output": "It is five.",
        "evaluators": [beside, hybrid],
    }


def reply(dimensions: dict[str, float], overall: float, met: list[bool]) -> dict[str, Any]:
    expectations = [{"number": n, "evidence": "so", "met": one} for n, one in enumerate(met, 1)]
    return {
        "reasoning": "Looked.",
        **({"expectations": expectations} if met else {}),
        "dimensions": {
            key: {"evidence": f"on {key}", "score": score} for key, score in dimensions.items()
        },
        "overall": {"evidence": ["It is what it is."], "score": overall},
    }


def checks_with_score(dimensions: dict[str, float]) -> list[dict[str, Any]]:
    """Return ten checks a dimension, as many of them passed as it scores of 10."""
    return [
        {**MADE["passed" if number < score else "failed"], "dimensions": [name]}
        for name, score in dimensions.items()
        for number in range(1 if score in (0, 10) else 10)
    ]


def columns(page: str) -> dict[str, tuple[str, ...]]:
    """Return what the table of dimensions shows of each by its key: checks, judge, final."""
    [table] = re.findall(r"<caption>Dimensions, each 0 to 10</caption>(.*?)</table>", page, re.S)
    rows = re.findall(r'<th scope="row">(\w+).*?</th>(.*?)</tr>', table, re.S)
    return {
        name.lower(): tuple(re.findall(r"<td[^>]*>(?:<b>)?([^<]+?)\s*<", cells))
        for name, cells in rows
    }


def shown(score: float | None) -> str:
    return "–" if score is None else f"{int(score * 10 + 1e-6) / 10:.1f}"


def evaluated(
    folder: Path, server: ModelServer, cases: list[Any], *, policy: dict[str, Any] = POLICY
) -> dict[str, dict[str, Any]]:
    """Return the lines of the results file by case."""
    make_model(slug="judge", base_url=server.base_url)
    content = {"name": "worked", "judge": "judge", "policy": policy, "tests": cases}
    return evaluated_by_case(folder, content)


@pytest.mark.parametrize("walk", ["final_evaluation"], indirect=True)
def test_the_judges_overall_score_is_the_final_one_as_worked(
    walk: Walk, model_server: ModelServer
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    cases, replies = [], []
    for vector in walk.vectors:
        given = vector["input"]
        hard = given.get("hard_expectations") or []
        checks = checks_with_score(given.get("deterministic_dimensions") or {})
        texts = [one["text"] for one in hard]
        cases.append(case(vector["id"], checks, hard_expectations=texts))
        met = [one["met"] for one in hard]
        replies.append(reply(given["judge_dimensions"], given["judge_overall"]["score"], met))
    model_server.behave(*(good(one) for one in replies))

    walk.evaluate(cases, judge="judge", policy=POLICY)

    for vector in walk.vectors:
        given, final = vector["input"], vector["expected"]["final_score"]
        line = walk.line(vector["id"])
        assert line["verdict"] == ("pass" if final >= 8 else "borderline" if final >= 6 else "fail")
        assert line["score"] * 10 == pytest.approx(final, abs=vector["tolerance"])
        evaluation = line["final_evaluation"]
        assert evaluation["final_score"] == pytest.approx(final, abs=vector["tolerance"])
        dimensions = vector["expected"].get("final_dimensions", given["judge_dimensions"])
        assert evaluation["final_dimensions"] == evaluation["judge_dimensions"] == dimensions
        assert evaluation["deterministic_dimensions"] == given.get("deterministic_dimensions", {})
        page = walk.page(vector["id"])
        assert f"raw {final:.1f} of 10" in page
        assert line["decided_by"].startswith(f"{shown(final)} ")
        assert headline(page).endswith(f" {shown(final)}")
        hard = given.get("hard_expectations") or []
        assert ("hard, not met" in page) == any(not one["met"] for one in hard)
        for name, score in dimensions.items():
            checked = given.get("deterministic_dimensions", {}).get(name)
            assert columns(page)[name] == (shown(checked), shown(score), shown(score))


@pytest.mark.parametrize("walk", ["deterministic_dimensions"], indirect=True)
def test_checks_make_the_worked_dimensions(walk: Walk, model_server: ModelServer) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    model_server.behave(then=good(reply(dict.fromkeys(DIMENSIONS, 7), 9, [])))

    walk.evaluate(
        (
            case(
                vector["id"],
                [
                    {**MADE[one["outcome"]], "dimensions": one["dimensions"]}
                    for one in vector["input"]["checks"]
                ],
            )
            for vector in walk.vectors
        ),
        judge="judge",
        policy=POLICY,
    )

    for vector in walk.vectors:
        line, expected = walk.line(vector["id"]), vector["expected"]
        evaluation = line["final_evaluation"]
        known = {name: one for name, one in expected["dimensions"].items() if one is not None}
        assert evaluation["deterministic_dimensions"] == pytest.approx(
            known, abs=vector["tolerance"]
        )
        for outcome in ("passed", "failed", "error"):
            assert evaluation["summary"][f"deterministic_{outcome}_checks"] == expected[outcome]
        assert len(evaluation["warnings"]) == len(line["warnings"]) == expected["warnings"]
        assert (line["score"], line["verdict"]) == (0.9, "pass")
        page = walk.page(vector["id"])
        for name in DIMENSIONS:
            assert columns(page)[name] == (shown(known.get(name)), "7.0", "7.0")
        assert page.count("No result</span>") == expected["error"]


def test_an_unreadable_judge_is_an_error_even_with_checks(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    model_server.behave(then=prose())

    lines = evaluated(tmp_path, model_server, [case("A", [MADE["passed"]])])

    assert lines["A"]["score"] is None
    page = page_of(viewer_client, "A")
    assert "Could not be scored" in page
    assert "A final response of 11 characters" in page
    assert "Exact text that the judge saw" in page


def test_a_script_among_the_checks_needs_scripts_to_be_allowed(
    model_server: ModelServer, tmp_path: Path, settings: Any
) -> None:
    settings.SCRIPTS = False
    make_model(slug="judge", base_url=model_server.base_url)
    cases = [case("A", [{"type": "script", "script": "echo"}])]
    (tmp_path / "suite.yaml").write_text(
        json.dumps({"name": "s", "judge": "judge", "tests": cases})
    )

    with pytest.raises(CommandError, match="EVALSITE_SCRIPTS=1"):
        call_command("evaluate", str(tmp_path / "suite.yaml"), "--target", "recorded")

    assert model_server.chats == []
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ({"type": "script", "script": "./checks/marker.py"}, "environment"),
        ({"type": "code_judge", "command": ["python", "./checks/marker.py"]}, "stdin"),
    ],
)
def test_a_script_among_the_checks_may_be_a_file_of_the_suite(
    model_server: ModelServer,
    tmp_path: Path,
    viewer_client: Client,
    settings: Any,
    script: dict[str, Any],
    reads: str,
) -> None:
    settings.SCRIPTS = True
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/words.py").write_text("WANTED = 'five'\n")
    (tmp_path / "checks/marker.py").write_text(MARKER)
    model_server.behave(then=good(reply(dict.fromkeys(DIMENSIONS, 7), 9, [])))
    other = {**script, "config": {"wanted": "six"}, "dimensions": ["process"], "name": "six"}
    checks = [{**script, "dimensions": ["task"]}, *([other] if reads == "stdin" else [])]

    lines = evaluated(tmp_path, model_server, [case("A", checks)])

    dimensions = lines["A"]["final_evaluation"]["deterministic_dimensions"]
    assert dimensions == ({"task": 10.0, "process": 0.0} if reads == "stdin" else {"task": 10.0})
    assert lines["A"]["final_evaluation"]["warnings"] == []
    page = page_of(viewer_client, "A")
    assert f"five looked for, by {reads}" in page
    assert ("six looked for" in page) == (reads == "stdin")


MARKER = """\
import json, os, sys
from words import WANTED

raw = sys.stdin.read()
if raw:
    asked = json.loads(raw)
    wanted = asked["config"].get("wanted", WANTED)
    print(json.dumps({"score": float(wanted in asked["output"]), "reasoning": f"{wanted} looked for, by stdin"}))
else:
    holds = WANTED in os.environ["EVAL_OUTPUT"]
    print(json.dumps({"score": 100 * holds, "reasoning": f"{WANTED} looked for, by environment"}))
"""
# Of task half the checks pass, of process none, of spark there is no check: what each policy makes of
# a judge's 8, 6 and 4, and what the score is by weights of 3, 1 and 1.
POLICIES: list[tuple[dict[str, Any], dict[str, tuple[str, ...]], float]] = [
    ({}, {"task": ("5.0", "8.0", "8.0"), "process": ("0.0", "6.0", "6.0")}, 6.8),
    (
        {"task": "deterministic_only", "process": {"policy": "weighted", "judge_weight": 0.75}},
        {"task": ("5.0", "8.0", "5.0"), "process": ("0.0", "6.0", "4.5")},
        4.7,
    ),
    (
        # A side that has no score leaves the other one, with a warning.
        {"spark": "deterministic_only", "task": {"policy": "weighted", "judge_weight": 0.5}},
        {"task": ("5.0", "8.0", "6.5"), "spark": ("–", "4.0", "4.0")},
        5.9,
    ),
]


@pytest.mark.parametrize("score_from", ["judge_overall", "dimension_weights"])
def test_dimensions_are_shown_with_policies_and_weights(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client, score_from: str
) -> None:
    judged = {"task": 8, "process": 6, "spark": 4}
    model_server.behave(then=good(reply(judged, 9, [])))
    checks = [
        *({**MADE[outcome], "dimensions": ["task"]} for outcome in ("passed", "failed")),
        {**MADE["failed"], "dimensions": ["process"]},
    ]
    weights = {"task": 3, "process": 1, "spark": 1}
    cases = [
        case(
            f"C-{n}",
            checks,
            score_from=score_from,
            dimensions=[
                {"key": key, "weight": weights[key], **facts_of(policies.get(key, {}))}
                for key in judged
            ],
        )
        for n, (policies, _, _) in enumerate(POLICIES)
    ]

    is_weighed = score_from == "dimension_weights"
    policy = {**POLICY, "final_score": "aggregate"} if is_weighed else POLICY

    lines = evaluated(tmp_path, model_server, cases, policy=policy)

    for n, (policies, table, by_weights) in enumerate(POLICIES):
        final = lines[f"C-{n}"]["final_evaluation"]
        assert final["final_score"] == pytest.approx(by_weights if is_weighed else 9)
        # The judge's own score is that of the suite; weighted dimensions are averaged with the 0 beside.
        assert lines[f"C-{n}"]["score"] == pytest.approx(by_weights / 20 if is_weighed else 0.9)
        overall = lines[f"C-{n}"]["evaluator_results"][1]
        assert overall["raw_score"] == pytest.approx(by_weights if is_weighed else 9)
        page = html.unescape(page_of(viewer_client, f"C-{n}"))
        rows = columns(page)
        for key, row in table.items():
            assert rows[key] == row
            assert shown(final["final_dimensions"][key]) == row[2]
        shown_policies = [facts_of(policies.get(key, {})).get("policy") for key in judged]
        assert page.count(">checks only</span>") == shown_policies.count("deterministic_only")
        assert page.count(">weighted</span>") == shown_policies.count("weighted")
        assert ("×3</small>" in page) == is_weighed
        sentence = "own overall score is 9.0."
        assert (sentence in page) == is_weighed
        missing = [warning for warning in lines[f"C-{n}"]["warnings"] if "spark" in warning]
        assert len(missing) == ("spark" in policies)
        assert all(warning in page for warning in missing)


def facts_of(policy: Any) -> dict[str, Any]:
    return {"policy": policy} if isinstance(policy, str) else policy

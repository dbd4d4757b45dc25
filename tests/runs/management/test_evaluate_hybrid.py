"""The worked cases of the hybrid judge, the whole way: suite file, judge over HTTP, results file, pages."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from evaluators.scoring.hybrid import DIMENSIONS
from runs.management import own_hands
from runs.models import Run, Score
from tests.factories import make_model
from tests.model_server import ModelServer, good, prose

pytestmark = pytest.mark.django_db(transaction=True)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors/scoring.json").read_text())["vectors"]
FINAL = [one for one in VECTORS if one["op"] == "final_evaluation"]
CHECKED = [one for one in VECTORS if one["op"] == "deterministic_dimensions"]
# Passes, fails and cannot be made, for a recorded answer that has no trace.
MADE: dict[str, dict[str, Any]] = {
    "passed": {"type": "final_response_present"},
    "failed": {"contains": "refund"},
    "error": {"type": "tool_call_count", "min": 1},
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_hands, "LOOK_AGAIN_S", 0.01)


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


def evaluated(folder: Path, server: ModelServer, cases: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the lines of the results file by case."""
    make_model(slug="judge", base_url=server.base_url)
    policy = {"final_score": "judge_overall", "scale": 10}
    content = {"name": "worked", "judge": "judge", "policy": policy, "tests": cases}
    (folder / "suite.yaml").write_text(json.dumps(content))
    arguments = ("--target", "recorded", "--concurrency", "1", "--out", str(folder / "out.jsonl"))
    with suppress(SystemExit):
        call_command("evaluate", str(folder / "suite.yaml"), *arguments)
    lines = (folder / "out.jsonl").read_text().splitlines()
    return {line["eval_id"]: line for line in map(json.loads, lines)}


def page_of(viewer: Client, key: str) -> str:
    place = {"slug": "worked", "number": Run.objects.get().number, "key": key, "repetition": 1}
    return viewer.get(reverse("runs:result", kwargs=place)).content.decode()


def test_the_judges_overall_score_is_the_final_one_as_worked(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    cases, replies = [], []
    for vector in FINAL:
        given = vector["input"]
        checks = [
            {**MADE["passed" if score else "failed"], "dimensions": [name]}
            for name, score in given["deterministic_dimensions"].items()
        ]
        hard = given.get("hard_expectations") or []
        texts = [one["text"] for one in hard]
        cases.append(case(vector["id"], checks, hard_expectations=texts))
        met = [one["met"] for one in hard]
        replies.append(reply(given["judge_dimensions"], given["judge_overall"]["score"], met))
    model_server.behave(*(good(one) for one in replies))

    lines = evaluated(tmp_path, model_server, cases)

    for vector in FINAL:
        final = vector["expected"]["final_score"]
        line = lines[vector["id"]]
        assert line["score"] * 10 == pytest.approx(final, abs=vector["tolerance"])
        details = Score.objects.get(result__case__key=vector["id"], path="overall").details
        found = details["final_evaluation"]
        assert found["final_score"] == pytest.approx(final, abs=vector["tolerance"])
        dimensions = vector["expected"].get("final_dimensions", found["final_dimensions"])
        assert found["final_dimensions"] == dimensions
        page = page_of(viewer_client, vector["id"])
        assert f"raw {final:.1f} of 10" in page
        assert ("hard, not met" in page) == ("hard_expectations" in vector["input"])
    assert {line["verdict"] for line in lines.values()} == {"pass"}


def test_checks_make_dimensions_as_worked(model_server: ModelServer, tmp_path: Path) -> None:
    cases = [
        case(
            vector["id"],
            [
                {**MADE[one["outcome"]], "dimensions": one["dimensions"]}
                for one in vector["input"]["checks"]
            ],
        )
        for vector in CHECKED
    ]
    model_server.behave(then=good(reply(dict.fromkeys(DIMENSIONS, 7), 9, [])))

    lines = evaluated(tmp_path, model_server, cases)

    for vector in CHECKED:
        details = Score.objects.get(result__case__key=vector["id"], path="overall").details
        found, expected = details["final_evaluation"], vector["expected"]
        known = {name: one for name, one in expected["dimensions"].items() if one is not None}
        assert found["deterministic_dimensions"] == known
        for outcome in ("passed", "failed", "error"):
            assert found["summary"][f"deterministic_{outcome}_checks"] == expected[outcome]
        assert len(found["warnings"]) == expected["warnings"]
        assert (lines[vector["id"]]["score"], lines[vector["id"]]["verdict"]) == (0.9, "pass")


def test_a_judge_that_cannot_be_read_is_an_error_and_never_the_checks_alone(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    model_server.behave(then=prose())

    lines = evaluated(tmp_path, model_server, [case("A", [MADE["passed"]])])

    assert lines["A"]["score"] is None
    page = page_of(viewer_client, "A")
    assert "never as 0" in page
    assert "A final response of 11 characters" in page
    assert "What the judge was shown" in page


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

"""The expected output, worked cases and meaning, the whole way: suite file, results file, pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.cli.command_lines import evaluated_by_case, page_of
from tests.cli.worked import Walk
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, good, prose

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]


def evaluated(folder: Path, cases: list[dict[str, Any]], **suite: Any) -> dict[str, Any]:
    """Return the lines of the results file by case."""
    content = {
        "name": "worked",
        "evaluators": [{"name": "said", "type": "expected_output"}],
        "tests": [{"input": "Say it.", **case} for case in cases],
        **suite,
    }
    return evaluated_by_case(folder, content)


@pytest.mark.parametrize("walk", ["expected_output_match"], indirect=True)
def test_answers_have_the_worked_matches(walk: Walk) -> None:
    walk.evaluate(
        {
            "id": one["id"],
            "output": one["input"]["output"],
            "expected_output": one["input"]["expected"],
            "evaluators": [
                {"name": "it", "type": "expected_output", "match_mode": one["input"]["match_mode"]}
            ],
        }
        for one in walk.vectors
    )

    for vector in walk.vectors:
        score, line = vector["expected"]["score"], walk.line(vector["id"])
        assert line["score"] * 100 == score
        assert line["evaluator_results"][0]["raw_score"] == score
        assert f"raw {score:.1f} of 100" in walk.page(vector["id"])


@pytest.mark.parametrize(
    ("written", "calls"), [({"type": "semantic"}, 1), ({"match_mode": "semantic", "samples": 3}, 3)]
)
def test_a_judge_scores_how_much_of_the_meaning_matches(
    model_server: ModelServer,
    tmp_path: Path,
    viewer_client: Client,
    written: dict[str, Any],
    calls: int,
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    output = {"reasoning": "The day is there.", "hits": ["Day"], "misses": ["Hour"], "score": 57}
    model_server.behave(then=good(output))
    evaluator = {"name": "said", "type": "expected_output", **written}
    case = {"id": "A", "output": "On Monday.", "expected_output": "On Monday at nine."}

    lines = evaluated(tmp_path, [case], evaluators=[evaluator], judge="judge")

    assert lines["A"]["score"] == 0.57
    assert lines["A"]["evaluator_results"][0]["misses"] == ["Hour"]
    assert len(model_server.chats) == calls
    page = page_of(viewer_client, "A")
    assert "raw 57.0 of 100" in page
    assert "The day is there." in page
    assert ("Median of 3 samples" in page) == (calls == 3)


def test_an_unreadable_judge_gives_no_score(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    model_server.behave(then=prose())
    case = {"id": "A", "output": "On Monday.", "expected_output": "On Monday at nine."}

    lines = evaluated(
        tmp_path, [case], evaluators=[{"name": "said", "type": "semantic"}], judge="judge"
    )

    assert lines["A"]["score"] is None
    assert "Could not be scored" in page_of(viewer_client, "A")

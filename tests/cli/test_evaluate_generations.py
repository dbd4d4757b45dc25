"""Suite files of each generation at the command line: scripts really run, judges really answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.core.management import call_command

from runs.models.runs import Run
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, Request, good

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
FOLDER = Path(__file__).parents[1] / "formats" / "generations"

# What the judge finds less than perfect, by case and evaluator: a score, or the criteria it misses.
FLAWS: dict[tuple[str, str], Any] = {
    ("parcel", "release_gate/quality"): 0.5,
    ("parcel", "facts"): {"tone"},
    ("parcel", "quality"): 5,
    ("parcel", "llm_rubric"): 0.5,
    ("alone", "llm_grader"): 0.0,
    ("refund", "graded"): {"c1"},
}
VERDICTS = [
    # (2 × (1 × 1 + 3 × 0.5) ÷ 4 + 1 × 3 ÷ 4 + 1) ÷ 4: the gate weighs 2 and holds.
    ("first", "parcel", 0.75, "borderline", "0.75 < 0.80"),
    ("first", "refund", 0.0, "fail", "0.00 < 0.60"),
    # (1 + 1 + 0.5 + 1) ÷ 4 under bands of 0.9 and 0.5.
    ("second", "parcel", 0.875, "borderline", "0.87 < 0.90"),
    ("second", "refund", 1.0, "pass", "1.00 ≥ 0.90"),
    # (1 + 0.5 + 0.6 + 1 + 1 + 1 + 1) ÷ 7: of the words one is missing, worth 0.4 of its set.
    ("third", "parcel", 6.1 / 7, "pass", "0.87 ≥ 0.80"),
    ("third", "alone", 0.0, "fail", "0.00 < 0.60"),
    ("third", "refund", (1 + 1 + 0.6 + 0.5 + 1) / 5, "fail", "required: graded, c1 missed"),
]


async def judge(request: Request) -> web.StreamResponse:
    """Answer in the form that was asked for, without flaws but those above."""
    flaw = FLAWS.get((request.trace("Case"), request.trace("Evaluator")))
    parts = (request.schema or {})["properties"]
    if "criteria" not in parts:
        score = 1.0 if flaw is None else flaw
        reply = {"reasoning": "Read.", "hits": [], "misses": [], "score": score}
        return await good(reply)(request)
    entry = parts["criteria"]["items"]["properties"]
    graded = "score" in entry
    criteria = [
        {"id": name, "evidence": "-", "score": 10 if flaw is None else flaw}
        if graded
        else {"id": name, "evidence": "-", "satisfied": name not in (flaw or ())}
        for name in entry["id"]["enum"]
    ]
    return await good({"reasoning": "Read.", "criteria": criteria})(request)


@pytest.mark.parametrize("generation", ["first", "second", "third"])
def test_files_of_each_generation_give_the_right_verdicts(
    generation: str, model_server: ModelServer, settings: Any, tmp_path: Path
) -> None:
    settings.SCRIPTS = True
    make_model(slug="judge", base_url=model_server.base_url, send_trace_headers=True)
    model_server.behave(then=judge)
    out = tmp_path / "results.jsonl"
    suite = str(FOLDER / f"{generation}.yaml")

    with pytest.raises(SystemExit) as ended:
        call_command(
            "evaluate", suite, "--target", "recorded", "--judge", "judge", "--out", str(out)
        )

    assert ended.value.code == 1
    run = Run.objects.get()
    assert (run.suite.slug, run.status, run.error_count) == (f"desk-{generation}", "completed", 0)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    expected = [row[1:] for row in VERDICTS if row[0] == generation]
    results = [(one["eval_id"], one["score"], one["verdict"], one["decided_by"]) for one in lines]
    assert [(key, verdict, decided) for key, _, verdict, decided in results] == [
        (key, verdict, decided) for key, _, verdict, decided in expected
    ]
    assert [one[1] for one in results] == pytest.approx([one[1] for one in expected])

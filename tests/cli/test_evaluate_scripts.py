"""Suites with scripts at the command line: refused, carried out, and what the worked ones print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from runs.models.runs import Run
from tests.cli.worked import Values, Walk
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer, good
from tests.support.trees import LEAF, tree

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
ECHO = "#!/bin/sh\necho '{\"score\": 100}'"
SCRIPT = {**LEAF, "name": "fine", "kind": "script", "config": {"script": ECHO}}


@pytest.fixture
def _suite() -> None:
    """Make a suite that a script scores."""
    made = make_suite(slug="scripted", tree=tree(SCRIPT))
    make_case(suite=made, key="A", recorded_output={"output": "hi"})
    make_target(name="agent")


@pytest.mark.usefixtures("_suite")
def test_without_the_scripts_switch_the_refusal_names_the_remedy(settings: Any) -> None:
    settings.SCRIPTS = False

    with pytest.raises(CommandError, match="EVALSITE_SCRIPTS=1") as refused:
        call_command("evaluate", "scripted", "--target", "agent")

    assert refused.value.returncode == 3
    assert "For this command: EVALSITE_SCRIPTS=1 evalsite evaluate …" in str(refused.value)
    assert "on this site" not in str(refused.value)
    assert not Run.objects.exists()


@pytest.mark.usefixtures("_suite")
def test_the_command_line_may_run_scripts(settings: Any) -> None:
    settings.SCRIPTS = True

    call_command("evaluate", "scripted", "--target", "agent")

    run = Run.objects.get()
    assert (run.status, run.pass_count, run.error_count) == ("completed", 1, 0)


@pytest.mark.parametrize("walk", ["script_evaluator"], indirect=True)
def test_script_outputs_have_the_worked_scores(walk: Walk, settings: Any) -> None:
    settings.SCRIPTS = True

    walk.evaluate(case(vector) for vector in walk.vectors)

    for vector in walk.vectors:
        expected, line = vector["expected"], walk.line(vector["id"])
        (script,) = line["evaluator_results"]
        assert (script["raw_score"], script["scale"]) == (expected["score"], 100)
        assert script["reasoning"] == expected["reasoning"]
        assert line["score"] * 100 == pytest.approx(expected["score"])
        page = walk.page(vector["id"])
        assert f"raw {expected['score']:.1f} of 100" in page
        assert expected["reasoning"] in page


def case(vector: Values) -> Values:
    """Return a case whose script prints what the vector says it prints, or is the vector's own."""
    given = vector["input"]
    script = given.get("script") or f"cat <<'PRINTED'\n{given['stdout'].strip()}\nPRINTED"
    evaluator = {"name": "it", "type": "script", "script": f"#!/bin/bash\n{script}\n"}
    output = given.get("EVAL_OUTPUT", "On its way.")
    return {"id": vector["id"], "output": output, "evaluators": [evaluator]}


def test_scores_of_a_judge_a_rubric_and_a_script_are_shown_as_they_were_given(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client, settings: Any
) -> None:
    settings.SCRIPTS = True
    make_model(slug="judge", base_url=model_server.base_url)
    met = [{"id": key, "evidence": "", "satisfied": key == "kind"} for key in ("kind", "short")]
    model_server.behave(
        good({"reasoning": "Read.", "hits": [], "misses": [], "score": 0.74}),
        good({"reasoning": "Read.", "criteria": met}),
    )
    criteria = [
        {"id": "kind", "expected_outcome": "Kind", "weight": 2.5},
        {"id": "short", "expected_outcome": "Short"},
    ]
    printed = "#!/bin/bash\nprintf '{\"score\": 0.25}'\n"
    walk = Walk("", tmp_path, viewer_client)
    walk.evaluate(
        [{"id": "A"}],
        judge="judge",
        evaluators=[
            {"name": "tone", "type": "llm_judge", "criteria": "Kind.", "negate": True},
            {"name": "list", "type": "rubric", "rubrics": criteria},
            {"name": "own", "type": "script", "script": printed, "protocol": "stdin"},
        ],
    )
    judged = walk.line("A")["evaluator_results"]
    assert [(one["raw_score"], one["scale"]) for one in judged] == [
        (0.74, 1),
        (2.5, 3.5),
        (0.25, 1),
    ]
    assert judged[0]["score"] == pytest.approx(0.26)
    page = walk.page("A")
    assert all(f"raw {shown}" in page for shown in ("0.74 of 1", "2.5 of 3.5", "0.25 of 1"))


JUDGE = """
import json, sys
case = json.load(sys.stdin)
[path] = case["input_files"]
right = json.load(open(path))[case["config"]["fields"][0]["path"]]
hit = case["candidate_answer"] == right
print(json.dumps({"score": float(hit), "hits": [right] if hit else []}))
"""
EXTRACTION = """
name: extraction
evalcases:
  - id: A
    input_messages:
      - role: user
        content:
          - {type: file, value: ./fixtures/invoice.json}
          - {type: text, value: Who sends it?}
    output: Acme
    execution:
      evaluators:
        - {name: found, type: code_judge, script: [python, ./judges/j.py], fields: [{path: supplier}]}
"""


def test_a_script_reads_the_files_of_the_input_and_its_own_settings(
    settings: Any, tmp_path: Path
) -> None:
    settings.SCRIPTS = True
    for name, text in {
        "suite.yaml": EXTRACTION, "judges/j.py": JUDGE, "fixtures/invoice.json": '{"supplier": "Acme"}'
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    call_command("evaluate", str(tmp_path / "suite.yaml"), "--target", "recorded")

    score = Run.objects.get().results.get().scores.get(path="found")
    assert (score.state, score.score) == ("scored", 1.0)
    assert [finding["text"] for finding in score.findings] == ["Acme"]

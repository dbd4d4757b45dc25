"""Suites with scripts, from their file through a run to what the result's page says."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.execution.run_worker import work_on_run
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.formats.suite_files import pack_suite
from runs.models.results import Result
from runs.models.runs import Run
from runs.running.services import start_run
from runs.suites.files import suite_with_cases
from tests.support.factories import make_target

pytestmark = pytest.mark.django_db(transaction=True)

JUDGE = b"""\
import json, sys
from words import RUDE
data = json.load(sys.stdin)
found = [word for word in RUDE if word in data["candidate_answer"].lower()]
print(json.dumps({"score": 0 if found else 1, "misses": [f"says {word}" for word in found]}))
"""
GATE = b"""\
import json, sys
data = json.load(sys.stdin)
scores = {entry["name"]: entry["score"] for entry in data["evaluator_results"]}
print("looked at " + ", ".join(scores), file=sys.stderr)
print(json.dumps({"score": min(scores.values()), "reasoning": "the weakest link", "hits": ["read all"]}))
"""
FILES = {
    "judges/rude.py": JUDGE,
    "judges/words.py": b"RUDE = ('stupid',)",
    "judges/gate.py": GATE,
}
SUITE = """\
name: manners
evaluators:
  - name: gate
    type: composite
    aggregator: {type: code-judge, path: ./judges/gate.py}
    evaluators:
      - name: polite
        type: code_judge
        script: [python, ./judges/rude.py]
      - name: not_long
        type: script
        weight: 2
        negate: true
        script: |
          #!/bin/sh
          if [ "${#EVAL_OUTPUT}" -gt 40 ]; then score=100; else score=0; fi
          echo "{\\"score\\": $score, \\"reasoning\\": \\"$EVAL_CASE_ID\\"}"
tests:
  - {id: kind, input: Hi, output: Good to hear from you.}
  - {id: rude, input: Hi, output: That is a stupid question.}
  - id: broken
    input: Hi
    output: Hm.
    evaluators:
      - {name: crash, type: script, script: "echo sorry >&2; exit 3"}
"""


@pytest.fixture
def run(settings: Any) -> Run:
    """Execute the suite."""
    settings.SCRIPTS = True
    content = suite_files.read_suite(SUITE.encode(), files=FILES)
    assert set(content.files) == set(FILES)
    suite = import_suite(content, imported_by=None)
    started = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(started.pk)
    return started


def results_of(run: Run) -> Mapping[str, Result]:
    return {result.case.key: result for result in run.results.select_related("case")}


def test_scripts_decide_and_say_why(run: Run, viewer_client: Client) -> None:
    results = results_of(run)
    kind, rude, broken = results["kind"], results["rude"], results["broken"]

    assert (kind.verdict, kind.score, rude.verdict, rude.score) == ("pass", 1.0, "fail", 0.0)
    assert (broken.status, broken.score, broken.verdict) == ("error", None, "")
    assert "exit code 3; stderr ends: sorry" in broken.error
    scores = {score.path: score for score in rude.scores.all()}
    assert scores["gate"].reasoning == "the weakest link"
    assert scores["gate/polite"].findings[0]["text"] == "says stupid"
    assert (scores["gate/not_long"].score, scores["gate/not_long"].raw_score) == (0.0, 0.0)

    address = reverse("runs:result", args=(run.suite.slug, run.number, "rude", 1))
    text = viewer_client.get(address).content.decode()
    for fragment in ("the weakest link", "read all", "looked at polite, not_long", "says stupid"):
        assert fragment in text


def test_a_worker_whose_switch_is_off_gives_no_score_and_says_so(settings: Any) -> None:
    settings.SCRIPTS = True
    suite = import_suite(suite_files.read_suite(SUITE.encode(), files=FILES), imported_by=None)
    run = start_run(suite=suite, target=make_target(), started_by=None)
    settings.SCRIPTS = False

    work_on_run(run.pk)

    results = results_of(run)
    assert {result.status for result in results.values()} == {"error"}
    assert {result.score for result in results.values()} == {None}
    assert all(
        "switched off on the machine that executes this run" in r.error for r in results.values()
    )


OTHER_FILES = {
    "w/data/cities.yaml": b"evaluators:\n"
    b"  - {name: exact, type: code_judge, script: [python3, ../scripts/exact.py]}\n",
    "w/data/cities.jsonl": b'{"id": "fr", "input": "Capital?", "output": "Paris"}\n',
    "w/scripts/exact.py": b"""\
import json, sys
print(json.dumps({"score": 1.0 if json.load(sys.stdin)["candidate_answer"] == "Paris" else 0.0}))
""",
}


def test_a_script_beside_the_folder_of_its_suite_runs_and_comes_out_and_in_again(
    settings: Any,
) -> None:
    settings.SCRIPTS = True
    files = [(path, BytesIO(content)) for path, content in OTHER_FILES.items()]
    [archive_suite] = read_suites(read_uploads(files)).suites
    suite = import_suite(archive_suite.content, imported_by=None)
    taken_out = BytesIO(b"".join(pack_suite(suite_with_cases(suite), "cities").parts))
    [again] = read_suites(read_uploads([("cities.zip", taken_out)])).suites
    assert import_suite(again.content, imported_by=None).version == 1

    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)

    result = results_of(run)["fr"]
    assert (result.status, result.error, result.score) == ("scored", "", 1.0)

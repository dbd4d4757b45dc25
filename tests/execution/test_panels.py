"""Panels of judges and judges over evaluators, from the suite file through a run to the result's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.types import DomainError
from runs.execution.run_worker import work_on_run
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.results import ModelCall
from runs.models.runs import Run
from runs.running.services import start_run
from tests.support.factories import make_model, make_target
from tests.support.model_server import ModelServer, good, prose

pytestmark = pytest.mark.django_db(transaction=True)

SUITE = """\
name: manners
evaluators:
  - {name: panel, type: deliberation, judges: [big, small, odd], rounds: 2}
  - name: overall
    type: composite
    aggregator: {type: llm_judge, samples: 3}
    evaluators:
      - {name: same, type: semantic}
      - {name: kind, type: contains, value: Good}
tests:
  - {id: kind, input: Hi, expected_output: Good day., output: Good to hear from you.}
"""


def vote(bracket: str, score: float) -> Mapping[str, Any]:
    return {"reasons": f"{bracket} because of the greeting", "score": score, "bracket": bracket}


def opinion(score: float) -> Mapping[str, Any]:
    return {"reasoning": "Weighed both.", "hits": ["Greets"], "misses": [], "score": score}


@pytest.fixture
def started(model_server: ModelServer) -> Run:
    """Start the suite with three judges of their own and the suite's."""
    models = {
        slug: make_model(slug=slug, base_url=model_server.base_url, send_trace_headers=True)
        for slug in ("big", "small", "odd", "usual")
    }
    model_server.on_model("big", good(vote("Good", 60)))
    model_server.on_model("small", good(vote("Good", 70)))
    model_server.on_model("odd", prose())
    model_server.on_evaluator("overall/same", good(opinion(80)))
    model_server.on_evaluator("overall", good(opinion(0.4)))
    suite = import_suite(suite_files.read_suite(SUITE.encode()), imported_by=None)
    return start_run(suite=suite, target=make_target(), judge=models["usual"], started_by=None)


def test_every_judge_is_asked_counted_and_shown(started: Run, viewer_client: Client) -> None:
    work_on_run(started.pk)

    (result,) = started.results.all()
    scores = {score.path: score for score in result.scores.all()}
    assert (scores["panel"].score, scores["panel"].raw_score) == (0.63, 63)
    assert (scores["overall"].score, scores["overall/same"].score) == (0.4, 0.8)
    assert (result.status, result.score) == ("scored", pytest.approx((0.63 + 0.4) / 2))
    calls = ModelCall.objects.filter(run=started, evaluator_path="panel")
    places = {(call.sample, call.round, call.repair) for call in calls}
    assert len(places) == len(calls) == 2 + 2 + 4  # the third is asked for a repair in each round
    assert {call.model_name for call in calls} == {"big", "small", "odd"}
    assert ModelCall.objects.filter(run=started, evaluator_path="overall").count() == 3
    assert set(started.snapshot["models"]) == {"big", "small", "odd", "usual"}

    address = reverse("runs:result", args=(started.suite.slug, started.number, "kind", 1))
    text = viewer_client.get(address).content.decode()
    for part in (
        "3 judges, 2 rounds: Good won with 2 of 2 votes.",
        "Good because of the greeting",
        "No readable vote, left out",
        "Median of 3 samples: 0.40, 0.40, 0.40; 0.00 apart.",
        "raw 80.0 of 100",
    ):
        assert part in text


def test_a_judge_of_the_panel_that_does_not_exist_keeps_the_run_from_starting() -> None:
    judge, *_, odd = (make_model(slug=slug) for slug in ("usual", "big", "small", "odd"))
    suite = import_suite(suite_files.read_suite(SUITE.encode()), imported_by=None)
    suite.model_uses.all().delete()
    odd.delete()

    with pytest.raises(DomainError, match="asks the language model 'odd', which does not exist"):
        start_run(suite=suite, target=make_target(), judge=judge, started_by=None)

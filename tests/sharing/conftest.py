"""Two runs full of texts that tell where they came from, and an editor who shares them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
    make_target,
)
from tests.support.members import make_client, make_member


@pytest.fixture
def runs(db: None) -> tuple[Run, Run]:
    """Make two runs in which everything that holds a text holds one of its own."""
    suite = make_suite(slug="suite-mark-slug", title="SUITE-mark")
    case = make_case(
        suite=suite,
        key="KEY-mark",
        title="TITLE-mark",
        input=[{"role": "user", "content": "INPUT-mark"}],
        expected_output="EXPECTED-mark",
        expected_outcomes=["OUTCOME-mark"],
        criteria="PROMPT-mark",
        metadata={"note": "METADATA-mark"},
        tags=["TAG-mark"],
    )
    found = []
    for verdict, score in (("pass", 0.92), ("fail", 0.4)):
        run = make_run(
            suite=suite, target=make_target(name=f"TARGET-mark {verdict}"), note="NOTE-mark"
        )
        result = make_result(
            run=run,
            case=case,
            verdict=verdict,
            score=score,
            decided_by="the score",
            outcome_marks="1",
            output={
                "text": f"OUTPUT-mark {verdict}",
                "messages": [
                    {"role": "tool", "content": "STEP-OUT-mark"},
                    {"role": "assistant", "content": f"OUTPUT-mark {verdict}"},
                ],
                "trace": [
                    {
                        "type": "tool",
                        "name": "TOOL-mark",
                        "input": {"q": "STEP-IN-mark"},
                        "output": "STEP-OUT-mark",
                        "cost_usd": "0.777",
                    }
                ],
                "outcomes": [{"text": "OUTCOME-mark", "passed": True, "justification": "WHY-mark"}],
            },
        )
        finding = {"text": "FINDING-mark", "passed": False, "evidence": "EVIDENCE-mark"}
        make_score(result=result, path="tone", score=score, findings=[finding])
        found.append(run)
    return found[0], found[1]


@pytest.fixture
def editor(db: None) -> User:
    return make_member("editor", "mia-mark")


@pytest.fixture
def editor_client(editor: User) -> Client:
    return make_client(editor)

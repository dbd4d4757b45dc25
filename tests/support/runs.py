"""Suites that are ready to run, and a run against the scriptable model server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from runs.cli import watching
from runs.execution import reaper
from runs.models.runs import Run
from runs.running.services import start_run
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer
from tests.support.trees import CHECK, JUDGED, tree

StartRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def long_running_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend the database started long ago: the reaper ignores missing heartbeats shortly after its start."""
    long_ago = datetime.min.replace(tzinfo=UTC)
    monkeypatch.setattr(reaper, "database_answers_since", lambda: long_ago)


@pytest.fixture
def quick_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command notice at once that its run has ended."""
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", 0.01)


@pytest.fixture
def start_recorded() -> StartRun:
    """Start a run over recorded outputs, one for each text, scored by a text check."""

    def start(*texts: str, **choices: Any) -> Run:
        suite = make_suite(tree=tree(CHECK))
        for number, text in enumerate(texts):
            make_case(
                suite=suite,
                key=f"C-{number}",
                position=number,
                recorded_output={"output": text, "cost_usd": "0.25"},
            )
        choices = {"started_by": None, **choices}
        return start_run(suite=suite, target=make_target(), **choices)

    return start


@pytest.fixture
def start_chat(model_server: ModelServer) -> StartRun:
    """Start a run of this many cases with the server as target (model agent) and judge.

    `hanging` names the model that times out after a second; all others have a minute to answer.
    """

    def start(cases: int = 3, *, hanging: str = "", **choices: Any) -> Run:
        timeouts = {"judge": 60, "agent": 60} | ({hanging: 1} if hanging else {})
        prices = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
        facts = {"base_url": model_server.base_url, **prices}
        judge = make_model(
            slug="judge", send_trace_headers=True, timeout_s=timeouts["judge"], **facts
        )
        agent = make_model(slug="agent", timeout_s=timeouts["agent"], **facts)
        suite = make_suite(tree=tree(JUDGED), judge=judge)
        for number in range(cases):
            make_case(suite=suite, key=f"C-{number}", position=number)
        target = make_target(name="agent", kind="chat", model=agent)
        choices = {"started_by": None, **choices}
        return start_run(suite=suite, target=target, **choices)

    return start

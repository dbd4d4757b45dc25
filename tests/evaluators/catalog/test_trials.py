"""The test button of a language model: real calls by a worker, and everything that can be in its way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from kombu.exceptions import OperationalError

from evalsite.celery import app
from evaluators.catalog.views import TEST_TASK
from evaluators.model_calls.models import encrypt
from evaluators.models import LanguageModel
from evaluators.tasks import test_language_model as run_test
from tests.evaluators.catalog.model_forms import SECRET
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, only_modes, prose, status

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Collect what is queued in place of a broker."""
    sent: list[Mapping[str, Any]] = []

    def send(name: str, kwargs: Mapping[str, Any], **options: Any) -> None:
        assert name == run_test.name
        sent.append(kwargs)

    monkeypatch.setattr("evalsite.celery.app.send_task", send)
    return sent


def after_test(client: Client, model: LanguageModel, queued: list[Mapping[str, Any]]) -> str:
    """Press the test button, let the worker do it, and return the page."""
    assert client.post(f"/models/{model.slug}/test/start/").status_code == 302
    run_test(**queued.pop())
    return client.get(f"/models/{model.slug}/").content.decode()


def test_the_test_button_makes_real_calls_and_tells_all_modes(
    admin_client: Client, model_server: ModelServer, queued: list[Mapping[str, Any]]
) -> None:
    model = make_model(
        slug="m", base_url=model_server.base_url, model_id="mock", encrypted_key=encrypt(SECRET),
        input_price_usd_per_mtok=2, output_price_usd_per_mtok=10,
    )  # fmt: skip

    page = after_test(admin_client, model, queued)

    assert [request.mode for request in model_server.chats] == [
        "json_schema",
        "json_object",
        "text",
    ]
    assert page.count("Supported") == 3
    assert "300 in, 60 out" in page
    assert "$0.001" in page
    assert "mock-mini" in page
    assert "Set the reply mode" not in page
    assert SECRET not in page
    model.refresh_from_db()
    assert model.last_tested_at is not None
    assert SECRET not in json.dumps(model.last_test)
    assert "Answers" in admin_client.get("/models/").content.decode()


def test_a_mode_the_server_refuses_is_told_with_the_best_one(
    admin_client: Client, model_server: ModelServer, queued: list[Mapping[str, Any]]
) -> None:
    model_server.behave(then=only_modes("json_object", "text"))
    model_server.models = None
    model = make_model(slug="m", base_url=model_server.base_url, model_id="mock")

    page = after_test(admin_client, model, queued)

    assert page.count("Supported") == 2
    assert "Not supported" in page
    assert "Set the reply mode to JSON mode" in page
    assert "Models of the server" not in page


def test_a_server_that_answers_prose_is_told(
    admin_client: Client, model_server: ModelServer, queued: list[Mapping[str, Any]]
) -> None:
    model_server.behave(then=prose())
    model = make_model(slug="m", base_url=model_server.base_url)

    page = after_test(admin_client, model, queued)

    assert page.count("reply not readable") == 3
    assert "m is not among them" in page


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (
            status(401, "no such key"),
            "The server does not accept the key (401): no such key. Check the key.",
        ),
        (status(404, "no such model"), "Check base URL and model id."),
        (status(500, "boom"), "Server error."),
        (status(429, "slow down"), "Rate limited."),
    ],
    ids=["401", "404", "500", "429"],
)
def test_a_failed_test_names_the_error_and_the_next_step(
    admin_client: Client,
    model_server: ModelServer,
    queued: list[Mapping[str, Any]],
    behaviour: Any,
    words: str,
) -> None:
    model_server.behave(then=behaviour)
    model = make_model(slug="m", base_url=model_server.base_url)

    page = after_test(admin_client, model, queued)

    assert words in page
    assert len(model_server.chats) == 1


def test_no_server_at_all_is_told(admin_client: Client, queued: list[Mapping[str, Any]]) -> None:
    model = make_model(slug="m", base_url="http://127.0.0.1:1/v1")

    assert "No connection." in after_test(admin_client, model, queued)


def test_an_awaited_test_polls_and_a_finished_one_stops(
    admin_client: Client, queued: list[Mapping[str, Any]], model_server: ModelServer
) -> None:
    model = make_model(slug="m", base_url=model_server.base_url)
    admin_client.post("/models/m/test/start/")

    waiting = admin_client.get("/models/m/test/").content.decode()
    run_test(**queued.pop())
    finished = admin_client.get("/models/m/test/").content.decode()

    assert 'id="language-model-test"' in waiting
    assert 'hx-trigger="every 1s"' in waiting
    assert 'id="language-model-test"' in finished
    assert "hx-trigger" not in finished
    assert model.slug in finished


@pytest.mark.parametrize(
    ("state", "seconds", "words", "polls"),
    [
        ("waiting", 2, "Waiting for a worker", True),
        ("waiting", 30, "No worker has taken the test yet", True),
        ("running", 30, "Calling the model", True),
        ("waiting", 400, "The test did not finish", False),
        ("running", 400, "The test did not finish", False),
    ],
    ids=["waiting", "untaken", "running", "never-taken", "lost"],
)
def test_a_missing_worker_is_told_clearly(
    admin_client: Client, state: str, seconds: int, words: str, polls: bool
) -> None:
    asked = timezone.now() - timedelta(seconds=seconds)
    make_model(slug="m", last_test={"state": state, "asked_at": asked.isoformat()})

    page = admin_client.get("/models/m/test/").content.decode()

    assert words in page
    assert ("hx-trigger" in page) is polls


def test_a_broker_that_does_not_answer_is_told_and_nothing_waits(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr("evalsite.celery.app.send_task", refuse)
    model = make_model(slug="m")

    response = admin_client.post("/models/m/test/start/")

    model.refresh_from_db()
    assert response.status_code == 503
    assert "message broker does not answer" in response.content.decode()
    assert model.last_test is None


def test_a_test_of_a_model_that_was_changed_meanwhile_is_left(
    admin_client: Client, queued: list[Mapping[str, Any]], model_server: ModelServer
) -> None:
    model = make_model(slug="m", base_url=model_server.base_url)
    admin_client.post("/models/m/test/start/")
    LanguageModel.objects.update(last_test=None)

    run_test(**queued.pop())

    model.refresh_from_db()
    assert model.last_test is None
    assert model_server.requests == []


def test_importing_the_pages_loads_no_openai() -> None:
    code = (
        "import os; os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'evalsite.settings'); "
        "import django, sys; django.setup(); import evaluators.catalog.urls; "
        "sys.exit('openai' in sys.modules or 'genai_prices' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_worker_knows_the_task_that_pages_queue() -> None:
    app.loader.import_default_modules()

    assert TEST_TASK in app.tasks

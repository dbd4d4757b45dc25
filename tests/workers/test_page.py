"""The workers page: what a viewer reads there, and what nobody may."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries, Settings

from runs.models.runs import RunEvent
from tests.services.processes import free_port
from tests.support.factories import make_model, throttle_state
from tests.support.worker_lines import ago, ahead, make_open_run, make_run_worker, make_worker

PAGE = "/workers/"
LIVE = "/workers/live/"


def read(client: Client, address: str = PAGE) -> str:
    response = client.get(address, headers={"HX-Request": str(address == LIVE).lower()})
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_the_sidebar_links_the_page(viewer_client: Client) -> None:
    assert f'href="{PAGE}"' in read(viewer_client, "/runs/")
    assert f'href="{PAGE}" aria-current="page"' in read(viewer_client)


def test_it_asks_for_itself_again_and_is_never_kept(viewer_client: Client) -> None:
    polled = f'id="workers-live" hx-get="{LIVE}" hx-trigger="every 5s"'
    assert polled in read(viewer_client)
    assert polled in read(viewer_client, LIVE)
    assert "<html" not in read(viewer_client, LIVE)
    assert "no-store" in viewer_client.get(LIVE)["Cache-Control"]


def test_a_site_without_a_worker_says_what_to_do(viewer_client: Client) -> None:
    page = read(viewer_client)
    assert "<strong>No worker is running.</strong> Runs started now wait until one starts." in page
    assert "<code>evalsite up</code>" in page
    assert "No worker has registered" in page
    assert "No run is queued or running." in page
    assert "No model was called in the last hour." in page
    assert "No worker errors and no failed runs." in page


def test_a_broker_that_is_away_breaks_nothing(viewer_client: Client, settings: Settings) -> None:
    settings.IS_EMBEDDED = False
    settings.CELERY_BROKER_URL = f"redis://:hush@127.0.0.1:{free_port()}/0"
    make_worker()
    page = read(viewer_client)
    assert "<strong>The broker does not answer.</strong> Workers continue with their runs." in page
    assert "1 worker is ready; nothing waits." in page
    assert "the broker does not answer" in page
    assert "hush" not in page


def test_workers_runs_queue_models_and_errors_are_all_there(viewer_client: Client) -> None:
    worker = make_worker(
        sandbox="limits only: bubblewrap is not allowed here (no)",
        last_error="OperationalError: postgres://me:hush@db/evals",
        last_error_at=ago(90),
    )
    run = make_open_run(cases=12)
    make_run_worker(run=run, worker=worker, token="a", holds=5, in_flight=3)
    state = throttle_state(paused_until=ahead(50), rate=0.25, slow_since=ago(70))
    model = make_model(name="Juno 2", throttle_state=state, concurrency=4)
    model.slot_leases.create(holder="a", slots=1, wanted=3, expires_at=ahead(9))
    RunEvent.objects.create(run=run, kind="worker_lost", text="A worker was lost")
    page = read(viewer_client)
    assert "1 worker executes 1 run; 7 results wait." in page
    assert "eval-1 <code>4121</code>" in page
    assert "Busy" in page
    assert "limits only: bubblewrap is not allowed here (no)" in page
    assert "Scripts are switched off on this site;" in page
    assert "3 <small>of 5 results assigned</small>" in page
    assert "Juno 2 is paused for" in page
    assert "1 of 4 slots in use" in page
    assert "0.3 calls a second, slowed" in page
    assert ": 429 from the server" in page
    assert "(1 of 3 wanted)" in page
    assert "postgres://…@db/evals" in page
    assert "A worker was lost." in page
    url = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number})
    assert read(viewer_client, LIVE).count(f'href="{url}"') == 3


def test_a_model_that_does_not_answer_is_said_to_be(viewer_client: Client) -> None:
    make_worker()
    make_run_worker(run=make_open_run(cases=1), worker="w/x/1/1", token="a", holds=1)
    state = throttle_state(silent_since=ago(70), reason="503 from the server")
    model = make_model(name="Juno 2", throttle_state=state)
    model.slot_leases.create(holder="a", slots=1, wanted=1, expires_at=ahead(9))
    page = read(viewer_client)
    assert "Does not answer (503 from the server), noticed" in page
    assert "retried with one call at a time" in page


def test_a_silent_worker_is_said_to_be(viewer_client: Client) -> None:
    make_worker()
    make_worker(host="eval-2", pid=9, seen=1300)
    page = read(viewer_client)
    assert "0 busy · 1 silent" in page
    assert "Silent" in page
    assert "22 min ago" in page


def test_a_model_tells_neither_its_address_nor_its_key(viewer_client: Client) -> None:
    make_worker()
    make_run_worker(run=make_open_run(cases=1), worker="w/x/1/1", token="a", holds=1)
    address = "https://secret.example/v1"
    model = make_model(base_url=address, encrypted_key="hush", key_variable="HUSH_KEY")
    model.slot_leases.create(holder="a", slots=1, wanted=1, expires_at=ahead(9))
    page = read(viewer_client)
    assert model.name in page
    for secret in ("secret.example", "hush", "HUSH_KEY"):
        assert secret not in page


def test_the_page_says_when_scripts_are_switched_on(
    viewer_client: Client, settings: Settings
) -> None:
    settings.SCRIPTS = True
    make_worker(sandbox="bubblewrap 0.11.0")
    page = read(viewer_client)
    assert "Scripts are switched on" in page
    assert "bubblewrap 0.11.0" in page


def test_a_poll_lists_so_much_and_says_how_much_more_there_is(
    viewer_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    suite = make_open_run(cases=1).suite
    for number in range(30):
        worker = make_worker(pid=number)
        make_run_worker(run=make_open_run(suite=suite), worker=worker, token=str(number))
    with django_assert_max_num_queries(17):
        page = read(viewer_client, LIVE)
    assert "5 more workers" in page
    assert "6 more runs" in page

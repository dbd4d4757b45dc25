"""The command line in a process of its own, and the ways in which it is made to stop."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.database import SQLITE, Database
from tests.services.processes import Process, scratch_folder, wait_until
from tests.services.site import Site
from tests.support.model_server import ModelServer, good, hang

CASES = 200

STORE = """
from evaluators.models import LanguageModel
from runs.models.suites import Case, Suite
from runs.models.suites import Target
from runs.specs.suites import SuiteSpec
model = LanguageModel.objects.create(
    slug="mock", name="mock", model_id="mock", base_url="http://127.0.0.1:9/v1", concurrency=4,
    input_price_usd_per_mtok=1, output_price_usd_per_mtok=2,
)
suite = Suite(slug="stop")
suite.write(SuiteSpec.model_validate({"title": "Stop", "judge": "mock", "evaluators": {
    "name": "all", "kind": "composite", "children": [
        {"name": "right", "kind": "llm_judge", "config": {"prompt": "Is it right?"}}
    ]}}))
for n in range(200):
    Case.objects.create(
        suite=suite, key=f"C-{n}", position=n, content_hash=str(n),
        input=[{"role": "user", "content": f"Question {n}"}],
    )
Target.objects.create(name="agent", kind="chat", model=model)
"""
STOP = """
from runs.models.runs import Run
from runs.running import retrying
retrying.stop_run(Run.objects.get(), stopped_by=None)
"""

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture(scope="module")
def stored() -> Iterator[Path]:
    with scratch_folder("stored") as folder:
        site = Site(folder)
        site.migrate()
        site.manage("shell", "--verbosity", "0", "-c", STORE)
        yield folder


@pytest.fixture
def site(stored: Path, model_server: ModelServer) -> Iterator[Site]:
    model_server.behave(then=good(seconds=0.05))
    with scratch_folder("stop") as folder:
        shutil.copytree(stored, folder, dirs_exist_ok=True)
        site = Site(folder)
        yield site
        site.kill()


@pytest.fixture
def database(site: Site, model_server: ModelServer) -> Iterator[Database]:
    database = Database(f"{SQLITE}{site.data_dir / 'evalsite.sqlite3'}")
    database.execute(f"UPDATE evaluators_languagemodel SET base_url = '{model_server.base_url}'")
    yield database
    database.close()


def begin(site: Site, database: Database) -> Process:
    command = site.begin_command("evaluate", "stop", "--target", "agent")
    wait_until(lambda: database.says("SELECT max(done_count) >= 5 FROM runs_run"))
    return command


def assert_stopped(database: Database, reason: str) -> None:
    assert database.row("SELECT status, status_reason FROM runs_run") == ("stopped", reason)
    counted = "SELECT status, count(*) FROM runs_result GROUP BY status"
    counts = dict(database.rows(counted))
    done = database.value("SELECT done_count FROM runs_run")
    assert counts == {"scored": done, "cancelled": CASES - done}
    assert 5 <= done < CASES
    assert database.value("SELECT count(*) FROM runs_runworker") == 0
    costs = database.money("SELECT run_cost_usd + evaluation_cost_usd FROM runs_run")
    assert costs == database.money("SELECT cost_usd FROM runs_modelcall") > 0
    assert database.says("SELECT summary IS NOT NULL FROM runs_run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_and_keeps_its_results(
    site: Site, database: Database, model_server: ModelServer, number: signal.Signals
):
    command = begin(site, database)
    command.signal(number)

    assert command.wait() == 3
    assert_stopped(database, "Stopped at the command line.")
    assert database.value("SELECT count(*) FROM runs_modelcall") == len(model_server.chats)
    output = command.tail(4000)
    assert "Stopping: calls in flight have a few seconds to answer." in output
    assert "Not evaluated: Stopped at the command line." in output
    page = f"{site.url}/suites/stop/runs/1/"
    assert f"Resume it: evalsite resume stop#1, or at {page}" in output
    assert "Traceback" not in output


def test_a_second_signal_ends_the_process_at_once(
    site: Site, database: Database, model_server: ModelServer
):
    command = begin(site, database)
    model_server.behave(then=hang())
    sent = len(model_server.chats)
    model_server.wait_for_chats(sent + 4)
    command.signal(signal.SIGINT)
    wait_until(lambda: database.says("SELECT status = 'stopped' FROM runs_run"))
    assert command.is_running
    command.signal(signal.SIGINT)
    assert command.wait() == 3


def test_a_stop_in_the_browser_ends_the_command(site: Site, database: Database):
    command = begin(site, database)
    site.manage("shell", "--verbosity", "0", "-c", STOP)

    assert command.wait() == 3
    assert_stopped(database, "Cancelled")
    assert "Not evaluated: Cancelled." in command.tail()


def test_a_signal_during_the_start_stops_the_run(site: Site, database: Database):
    command = site.begin_command("evaluate", "stop", "--target", "agent")
    wait_until(lambda: database.says("SELECT count(*) = 1 FROM runs_run"))
    command.signal(signal.SIGTERM)
    assert command.wait() == 3
    assert database.value("SELECT status FROM runs_run") == "stopped"


def test_the_next_command_ends_the_run_of_a_killed_one(site: Site, database: Database):
    command = begin(site, database)
    command.kill()
    assert database.value("SELECT status FROM runs_run") == "running"

    second = site.begin_command("evaluate", "stop", "--target", "agent", "--concurrency", "50")
    wait_until(lambda: database.says("SELECT count(*) = 2 FROM runs_run"))
    first = "SELECT status, status_reason FROM runs_run WHERE number = 1"
    assert database.row(first) == (
        "stopped",
        "The command line that executed this run has ended.",
    )
    second.signal(signal.SIGTERM)
    assert second.wait() == 3
    assert database.value("SELECT status FROM runs_run WHERE number = 2") == "stopped"
    assert "stop#1 against agent was interrupted with " in second.tail()
    assert (
        "evalsite resume stop#1 would pay only for the rest of the interrupted one."
        in second.tail()
    )


def test_a_killed_run_is_resumed_by_a_command_that_pays_only_for_what_was_not_answered(
    site: Site, database: Database, model_server: ModelServer
):
    first = begin(site, database)
    model_server.wait_for_chats(CASES)
    first.kill()
    wait_until(lambda: model_server.in_flight == 0)
    answered = len(model_server.answered)
    written = database.value("SELECT count(*) FROM runs_modelcall")
    assert 0 < written <= answered < 2 * CASES

    second = site.begin_command("resume", "stop#1")
    assert second.wait() == 0, second.tail()

    status = "SELECT status, done_count, pass_count, error_count FROM runs_run"
    assert database.row(status) == ("completed", CASES, CASES, 0)
    assert len(model_server.answered) - answered == 2 * CASES - written
    owner, owner_id = database.row("SELECT owner, owner_id FROM runs_run")
    assert (owner, f"/{second.pid}/" in owner_id) == ("command_line", True)
    assert "Passed: both gates met." in second.tail()


def test_a_run_that_a_living_command_executes_is_left_to_it(site: Site, database: Database):
    first = begin(site, database)
    second = site.begin_command("resume", "stop#1")
    assert second.wait() == 3
    assert "already running" in second.tail()
    assert first.is_running
    first.signal(signal.SIGTERM)
    assert first.wait() == 3

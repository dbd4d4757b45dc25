"""Evaluate an agent in pytest: each case of a suite becomes a test, and the site gives its verdict.

    import pytest

    @pytest.mark.evalsite("support-agent")
    def test_agent(evalsite_case):
        evalsite_case.answer(my_agent(evalsite_case.text))

A test fails unless its case passes; the message says why, with the address of the result. All tests of a function are
one run of the suite, also those of several pytest-xdist workers. EVALSITE_SERVER and EVALSITE_TOKEN name the site.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalsite.client import Answer, Case, Evalsite, EvalsiteError, answer_as_json
from runs.cli.terminal import printable

MARK, FIXTURE, TARGET = "evalsite", "evalsite_case", "pytest"
# One for all processes of a session: workers of pytest-xdist inherit the environment.
SESSION = "EVALSITE_PYTEST_SESSION"
OPEN = ("pending", "running")
POLL_EVERY_S = 0.2
NOT_FOUND = 404
NO_ANSWER = "The test ended without an answer."


@dataclass(slots=True)
class Runs:
    """The runs of this process: by test function, the name and the cases of its run."""

    names: dict[str, str] = field(default_factory=dict)
    cases: dict[tuple[str, str, int], Case] = field(default_factory=dict)
    site: Evalsite | None = None

    def connect(self) -> Evalsite:
        """Return the site; raises EvalsiteError where it is not named."""
        if self.site is None:
            self.site = Evalsite()
        return self.site


RUNS = pytest.StashKey[Runs]()


class EvaluatedCase:
    """The case of a test: what the agent is asked, and where its answer goes."""

    def __init__(self, case: Case, site: Evalsite, run: str) -> None:
        """Wait for an answer; the time until then counts as its latency."""
        self.case, self.is_answered = case, False
        self._began_at = time.perf_counter()
        self._site, self._run = site, run

    @property
    def text(self) -> str:
        """Return the last message of the user."""
        return self.case.text

    def answer(self, answer: Answer) -> None:
        """Send what the agent answered, and fail the test unless it passes."""
        took_ms = round((time.perf_counter() - self._began_at) * 1000)
        self._push(answer_as_json(answer, took_ms=took_ms))
        result = self._result()
        if result["verdict"] == "pass":
            return
        detail = self._site.get(f"results/{result['id']}")
        reason = detail["cause"] or detail["error"] or detail["verdict"] or detail["status"]
        url = f"{self._site.server}{result['url']}"
        # What an agent or a judge wrote may be commands to a terminal.
        text = printable(sys.stdout, f"{self.case.key}: {reason}\n{url}")
        pytest.fail(text, pytrace=False)

    def give_up(self) -> None:
        """Tell the site that there is no answer, so that its run does not wait for it."""
        if not self.is_answered:
            self._push({"error": NO_ANSWER})

    def _push(self, output: dict[str, Any]) -> None:
        place = {"case": self.case.key, "repetition": self.case.repetition}
        self._site.push(self._run, [{**place, **output}])
        self.is_answered = True

    def _result(self) -> Any:
        while True:
            rows = self._site.rows(f"runs/{self._run}/results", case=self.case.key)
            result = next(row for row in rows if row["repetition"] == self.case.repetition)
            if result["status"] not in OPEN:
                return result
            time.sleep(POLL_EVERY_S)


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark, and begin a session unless this process is a worker of one."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(suite, target={TARGET!r}, cases=None, repetitions=1): make each case of a suite a test",
    )
    config.stash[RUNS] = Runs()
    if not hasattr(config, "workerinput"):
        os.environ[SESSION] = os.urandom(16).hex()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case and repetition."""
    if FIXTURE not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or not mark.args:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid} uses {FIXTURE}: name the suite, @pytest.mark.{MARK}('support-agent')."
        )
    keys = mark.kwargs.get("cases")
    if keys is None:
        try:
            keys = _read_keys(metafunc.config.stash[RUNS].connect(), mark.args[0])
        except EvalsiteError as error:
            raise pytest.Collector.CollectError(f"evalsite: {error}") from error
    places = [(key, n) for key in keys for n in range(1, mark.kwargs.get("repetitions", 1) + 1)]
    names = [key if n == 1 else f"{key}-{n}" for key, n in places]
    metafunc.parametrize(FIXTURE, places, indirect=True, ids=names)


def _read_keys(site: Evalsite, suite: str) -> list[str]:
    try:
        return [row["key"] for row in site.rows(f"suites/{suite}/cases")]
    except EvalsiteError as error:
        if error.status != NOT_FOUND:
            raise
        raise EvalsiteError(f"There is no suite {suite!r} at {site.server}.") from error


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start one run for each function, of the cases that are selected."""
    if session.config.option.collectonly:
        return
    try:
        _start_runs(session)
    except EvalsiteError as error:
        raise pytest.UsageError(f"evalsite: {error}") from error


def _start_runs(session: pytest.Session) -> None:
    runs = session.config.stash[RUNS]
    items: dict[str, list[pytest.Function]] = {}
    marks: dict[str, pytest.Mark] = {}
    for item in session.items:
        mark = item.get_closest_marker(MARK)
        if mark and isinstance(item, pytest.Function) and FIXTURE in item.fixturenames:
            marks[_function(item)] = mark
            items.setdefault(_function(item), []).append(item)
    for name, mark in marks.items():
        site, target = runs.connect(), mark.kwargs.get("target", TARGET)
        site.add_target(target)
        choices = {
            "suite": mark.args[0],
            "targets": [target],
            "repetitions": mark.kwargs.get("repetitions", 1),
            "baseline": mark.kwargs.get("baseline"),
            "cases": list(dict.fromkeys(_key(item) for item in items[name])),
            "note": name[:300],
        }
        started = site.post("runs", choices, key=f"{os.environ[SESSION]} {name}"[:200])
        run = runs.names[name] = started["runs"][0]["name"]
        for case in site.awaited(run):
            runs.cases[name, case.key, case.repetition] = case


@pytest.fixture
def evalsite_case(request: pytest.FixtureRequest) -> Iterator[EvaluatedCase]:
    """Return the case of this test; give the agent's answer to its `answer`."""
    runs, name = request.config.stash[RUNS], _function(request.node)
    key, repetition = request.param
    case = EvaluatedCase(runs.cases[name, key, repetition], runs.connect(), runs.names[name])
    yield case
    case.give_up()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the waiting for tests that were not run, such as after -x; workers leave that to the others."""
    runs = session.config.stash[RUNS]
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput[MARK] = runs.names  # type: ignore[attr-defined]  # pytest-xdist sets it
        return
    for run in dict.fromkeys(runs.names.values()):
        try:
            runs.connect().post(f"runs/{run}/close")
        except EvalsiteError as error:
            # Most have completed by their last test.
            if error.code != "run_not_active":
                raise


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name each run with its conclusion."""
    runs = config.stash[RUNS]
    for name, run in runs.names.items():
        report = runs.connect().wait(run)
        terminalreporter.write_line(f"evalsite: {name}: {report.conclusion} {report.url}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the runs of a pytest-xdist worker that has ended, to end and name them once."""
    node.config.stash[RUNS].names |= getattr(node, "workeroutput", {}).get(MARK, {})


def _key(item: Any) -> str:
    """Return the key of the case of a test."""
    return str(item.callspec.params[FIXTURE][0])


def _function(item: Any) -> str:
    """Return the id of a test without its case."""
    return str(item.nodeid).partition("[")[0]

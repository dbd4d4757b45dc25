"""The pytest plugin against a real site: a suite fails a build, and the run on the site says the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.site import Site, running_site

pytestmark = pytest.mark.processes
PREPARE = """
from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from tests.support.factories import make_case, make_suite, make_user
from tests.support.trees import CHECK, tree

suite = make_suite(slug="support", tree=tree(CHECK))
for number in range(3):
    make_case(suite=suite, key=f"C-{number}", position=number, metadata={"number": number})
print(make_token(owner=make_user(role="editor"), name="t", scopes=[Scope.RUN, Scope.EDIT], expires_at=None)[1])
"""
TESTS = """
import pytest
from evalsite.client import Output

@pytest.mark.evalsite("support", target="my agent")
def test_agent(evalsite_case):
    number = evalsite_case.case.metadata["number"]
    if number == 2:
        raise ValueError("no such order")
    evalsite_case.answer(Output("A refund.", input_tokens=5) if number == 0 else "No.")
"""


# Without the plugins that only this project has installed: loading them takes longer than the tests.
OTHERS = ("anyio", "django", "hypothesispytest", "platformdirs", "valkey")
PYTEST = [sys.executable, "-m", "pytest", *(f"-pno:{name}" for name in OTHERS)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run a site with a suite of three cases."""
    with running_site() as site:
        site.env["EVALSITE_TOKEN"] = site.manage("shell", "--verbosity", "0", "-c", PREPARE)
        yield site


def run_pytest(site: Site, folder: Path, *arguments: str, text: str = TESTS) -> tuple[int, str]:
    """Run pytest on a file of tests, as a team would in its own repository."""
    (folder / "test_agent.py").write_text(text)
    env = {**os.environ, "EVALSITE_TOKEN": site.env["EVALSITE_TOKEN"], "EVALSITE_SERVER": site.url}
    command = [*PYTEST, "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def read(site: Site, path: str) -> Any:
    headers = {"Authorization": f"Bearer {site.env['EVALSITE_TOKEN']}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{site.url}/api/{path}", headers=headers)
    ) as answer:
        return json.load(answer)


def test_each_case_is_a_test_that_fails_with_its_reason(site: Site, tmp_path: Path) -> None:
    code, output = run_pytest(site, tmp_path, "--junitxml=report.xml")

    assert code == 1, output
    assert "1 passed, 2 failed" in output.replace("2 failed, 1 passed", "1 passed, 2 failed")
    assert "C-1: Failed: mentions_refund scored 0 (does not contain “refund”)" in output
    assert f"{site.url}/suites/support/runs/1/" in output
    assert "ValueError: no such order" in output
    run = read(site, "runs/support:1")
    assert (run["status"], run["target"], run["exit_code"]) == ("completed", "my agent", 1)
    assert (run["counts"]["pass"], run["counts"]["fail"], run["counts"]["error"]) == (1, 1, 1)
    assert f"evalsite: test_agent.py::test_agent: {run['conclusion']}" in output
    assert "test_agent[C-1]" in (tmp_path / "report.xml").read_text()


def test_workers_share_one_run(site: Site, tmp_path: Path) -> None:
    runs = len(read(site, "runs?suite=support")["results"])
    code, output = run_pytest(site, tmp_path, "-n", "2", "--junitxml=report.xml")

    assert code == 1, output
    assert "created: 2/2 workers" in output
    after = read(site, "runs?suite=support")["results"]
    assert len(after) == runs + 1
    counts = after[0]["counts"]
    assert (counts["pass"], counts["fail"], counts["error"]) == (1, 1, 1)
    assert output.count("evalsite: test_agent.py::test_agent: ") == 1
    assert (tmp_path / "report.xml").read_text().count("<testcase ") == 3


def test_only_selected_cases_are_run_and_those_that_are_not_reached_end_with_the_session(
    site: Site, tmp_path: Path
) -> None:
    code, output = run_pytest(site, tmp_path, "-k", "C-0")
    assert code == 0, output
    last = read(site, "runs?suite=support")["results"][0]
    assert (last["case_count"], last["counts"]["pass"]) == (1, 1)

    code, output = run_pytest(site, tmp_path, "-x", "-k", "C-1 or C-2")
    assert code == 1, output
    last = read(site, "runs?suite=support")["results"][0]
    assert (last["status"], last["counts"]["fail"], last["counts"]["error"]) == ("completed", 1, 1)


def test_what_is_wrong_with_the_site_or_the_mark_is_said_in_one_line(
    site: Site, tmp_path: Path
) -> None:
    code, output = run_pytest(site, tmp_path, text=TESTS.replace('"support", ', '"nobody", '))
    assert code != 0
    assert f"evalsite: There is no suite 'nobody' at {site.url}." in output
    assert "Error" not in output
    code, output = run_pytest(
        site, tmp_path, text=TESTS.replace('target="my agent"', 'cases=["nobody"]')
    )
    assert code != 0
    assert "ERROR: evalsite: " in output
    assert "Traceback" not in output
    code, output = run_pytest(
        site,
        tmp_path,
        text=TESTS.replace('@pytest.mark.evalsite("support", target="my agent")', ""),
    )
    assert code != 0
    assert "name the suite, @pytest.mark.evalsite('support-agent')" in output
    site_of_nobody = {**os.environ, "EVALSITE_SERVER": "", "EVALSITE_TOKEN": ""}
    done = subprocess.run(
        [*PYTEST, "test_agent.py"],
        cwd=tmp_path,
        env=site_of_nobody,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0

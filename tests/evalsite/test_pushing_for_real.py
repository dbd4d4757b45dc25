"""Pushed outputs against a real site with its worker: whatever a program does, each has one answer, none is lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from evalsite.client import Case, Evalsite, EvalsiteError
from tests.services.site import running_site

pytestmark = pytest.mark.processes
MEMBERS = """
from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from tests.support.factories import make_user

for name, scopes in (("ada", [Scope.RUN, Scope.EDIT]), ("ben", [Scope.RUN]), ("eve", [Scope.EDIT])):
    print(make_token(owner=make_user(role="editor", name=name), name="t", scopes=scopes, expires_at=None)[1])
"""
BIG = 5_000_000
CASES = 400


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Evalsite, Evalsite, Evalsite]]:
    """Run a site, and give clients with the tokens of three members."""
    with running_site() as site, ExitStack() as clients:
        tokens = site.manage("shell", "--verbosity", "0", "-c", MEMBERS).split()
        ada, ben, eve = (clients.enter_context(Evalsite(site.url, token=token)) for token in tokens)
        yield ada, ben, eve


def store(site: Evalsite, name: str, cases: int) -> None:
    check = {"name": "has", "type": "contains", "value": "refund"}
    tests = [{"id": f"C-{number}", "input": f"Question {number}"} for number in range(cases)]
    suite = json.dumps({"name": name, "evaluators": [check], "tests": tests}).encode()
    site.put_file(f"suites/{name}", suite, "application/json")


def refusal(site: Evalsite, run: str, *outputs: Any) -> EvalsiteError:
    with pytest.raises(EvalsiteError) as refusal:
        site.push(run, outputs)
    return refusal.value


def test_outputs_of_megabytes_arrive_whole_and_one_that_is_too_long_is_an_error(
    sites: tuple[Evalsite, ...],
) -> None:
    site = sites[0]
    store(site, "big", 4)

    # Two bytes a letter, as it is sent.
    answers = {"C-2": "я" * (BIG // 2), "C-3": "x" * 9_000_000}

    def agent(case: Case) -> str:
        return "refund " + answers.get(case.key, "x" * BIG)

    report = site.evaluate("big", agent)
    assert (report.document["counts"]["pass"], report.document["counts"]["error"]) == (3, 1)
    rows = {row["case"]: row for row in site.rows(f"runs/{report.name}/results")}
    whole = site.get(f"results/{rows['C-0']['id']}/output")
    assert (whole["characters"], len(whole["text"])) == (BIG + 7, BIG + 7)
    assert "The output has 9 MB; 8 is the limit." in rows["C-3"]["error"]
    too_long = refusal(site, report.name, {"case": "C-0", "output": "x" * 9_000_000})
    assert (too_long.status, "more than 8 MB" in str(too_long)) == (413, True)


def test_outputs_come_in_any_order_from_any_member_twice_and_too_late(
    sites: tuple[Evalsite, ...],
) -> None:
    ada, ben, eve = sites
    store(ada, "many", CASES)
    ada.add_target("python")
    run = ada.start("many", "python")
    outputs: list[Any] = [
        {"case": f"C-{number}", "output": "A refund." if number % 4 else "No."}
        for number in range(CASES)
    ]
    random.Random(7).shuffle(outputs)
    late = outputs.pop()

    # Any member who may run pushes into a run of another; a token without that scope does not.
    assert ben.push(run, outputs[:300])["accepted"] == 300
    assert refusal(eve, run, *outputs[300:]).status == 403
    assert ada.push(run, outputs[200:])["repeated"] == 100
    unknown = refusal(ada, run, late, {"case": "C-x", "output": "A refund."})
    assert (unknown.status, list(unknown.errors)) == (400, ["/outputs/1"])
    assert ada.push(run, [late])["awaited"] == 0
    report = ada.wait(run)
    counts = report.document["counts"]
    assert (counts["pass"], counts["fail"], counts["error"]) == (300, 100, 0)

    assert ada.push(run, outputs[:10])["repeated"] == 10
    changed = ada.push(run, [{"case": "C-1", "output": "No."}])
    assert "Rerun the result first" in changed["refused"][0]["reason"]
    second = ada.start("many", "python")
    ada.post(f"runs/{second}/stop")
    stopped = refusal(ada, second, late)
    assert (stopped.status, stopped.code) == (409, "run_not_active")
    ada.post(f"runs/{second}/resume")
    assert ada.push(second, [late])["accepted"] == 1

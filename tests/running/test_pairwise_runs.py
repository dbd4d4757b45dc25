"""Outputs compared with a baseline's: which run it is, what is copied, what is paid, and what becomes of all later."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from aiohttp import web
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse

from evalsite.access.roles import Scope
from runs import tasks
from runs.compare.comparison import build_comparison
from runs.compare.conclusion import conclude
from runs.compare.documents import comparison_document
from runs.compare.report import comparison_report
from runs.compare.rules import Tolerances
from runs.execution.run_worker import work_on_run
from runs.files.importing_results import import_results
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.formats.results_writing import write_results
from runs.models.results import ComparedOutput, EvaluatorScore
from runs.models.runs import Run
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.models.temporary import EvaluatorTrial
from runs.results.documents import run_detail_document
from runs.results.files import result_lines, results_csv
from runs.results.report import run_report
from runs.results.runs import with_list_columns
from runs.running.checks import CannotStartError
from runs.running.judging_again import judge_again
from runs.running.judging_plan import JudgingRequest, plan_judging
from runs.running.measuring import MeasuringRequest, measure_judge, plan_measuring
from runs.running.retrying import retry_results
from runs.running.services import start_run
from runs.suites.drafts import get_draft
from runs.suites.services import drop_baseline, make_baseline
from runs.summary.pairwise import PairwiseFigures
from tests.api.site import assert_described, assert_refused, token_of
from tests.cli.command_lines import evaluate
from tests.support.factories import (
    change_suite,
    make_case,
    make_model,
    make_suite,
    make_target,
    make_user,
)
from tests.support.members import make_client
from tests.support.model_server import ModelServer, Request, completion
from tests.support.trees import CHECK, LEAF, tree
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db(transaction=True)
BETTER = {**LEAF, "name": "better", "kind": "pairwise", "weight": 0.0, "config": {}}
PRICES = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
CALL_USD = Decimal("0.2")
PAIRS = """\
name: pairs
evaluators:
  - name: better
    type: pairwise-comparison
    criteria: |
      Better is what names a date.
    model: judge
tests:
  - {id: A, input: When?}
"""
ANSWERS = re.compile(r"^<<<(\w+) (?:first|second) answer\n(.*?)\n\1>>>$", re.M | re.S)
# By case: what the baseline and what the candidate answers. The judge prefers more stars, and the first of equal ones.
OUTPUTS = {
    "WIN": ("refund *", "refund ***"),
    "LOSS": ("refund **", "refund *"),
    "TIE": ("refund", "refund"),
    "BIAS": ("refund **", "refund ** again"),
}


async def starry(request: Request) -> web.StreamResponse:
    """Prefer the answer with more stars, and of equal ones the first."""
    first, second = (answer.count("*") for _, answer in ANSWERS.findall(request.text))
    better = "second" if second > first else "first"
    return completion('{"reasoning": "Stars.", "better": "' + better + '"}')


def answer_with(target: Target, outputs: Mapping[str, str | None]) -> None:
    for key, text in outputs.items():
        facts = {"output": {"output": text, "cost_usd": "0.25"}}
        if text is not None:
            RecordedOutput.objects.create(target=target, case_key=key, **facts)


@pytest.fixture
def suite(model_server: ModelServer) -> Suite:
    """Return a suite with two recorded targets, a check that counts, and an evaluator that compares with a baseline."""
    model_server.behave(then=starry)
    judge = make_model(slug="judge", base_url=model_server.base_url, **PRICES)
    suite = make_suite(tree=tree(CHECK, BETTER), judge=judge)
    for number, key in enumerate(OUTPUTS):
        make_case(suite=suite, key=key, position=number)
    for place, name in enumerate(("old", "new")):
        target = make_target(name=name)
        answer_with(target, {key: pair[place] for key, pair in OUTPUTS.items()})
    return suite


def run_against(suite: Suite, name: str, **choices: Any) -> Run:
    run = start_run(suite=suite, target=Target.objects.get(name=name), started_by=None, **choices)
    return worked(run)


def worked(run: Run) -> Run:
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.status == "completed"
    return run


def retry_all(run: Run, **choices: Any) -> None:
    ids = list(run.results.values_list("pk", flat=True))
    retry_results(run, asked_by=None, result_ids=ids, **choices)


def found(run: Run) -> dict[str, tuple[str, float | None, str]]:
    rows = EvaluatorScore.objects.filter(result__run=run, path="better").order_by("result")
    columns = ("result__case__key", "details__verdict", "score", "state")
    return {
        key: (verdict, score, state) for key, verdict, score, state in rows.values_list(*columns)
    }


def figures_of(run: Run) -> PairwiseFigures:
    [stored] = run.summary["pairwise"]
    return PairwiseFigures.from_json(stored)


@pytest.mark.each_database
def test_a_run_is_compared_with_the_baseline_as_it_was_when_the_run_started_rows(
    suite: Suite, model_server: ModelServer
) -> None:
    old = run_against(suite, "old")
    # There was no baseline yet: nobody was asked, nothing is a 0, and the results have their verdicts.
    assert {row[1:] for row in found(old).values()} == {(None, "unscored")}
    reason = EvaluatorScore.objects.filter(result__run=old, path="better").first()
    assert reason is not None
    assert "make a completed run the baseline of the suite" in reason.reasoning
    assert (old.pass_count, old.error_count, len(model_server.requests)) == (4, 0, 0)
    assert "baseline" not in old.snapshot
    make_baseline(old, by=None)

    new = run_against(suite, "new")

    assert found(new) == {
        "WIN": ("win", 1.0, "scored"),
        "LOSS": ("loss", 0.0, "scored"),
        "TIE": ("tie", 0.5, "scored"),
        "BIAS": ("inconclusive", None, "unscored"),
    }
    assert new.snapshot["baseline"] == {"run": old.number, "target": "old"}
    # Two calls a result, none for equal outputs.
    assert (len(model_server.requests), new.evaluation_cost_usd) == (6, 6 * CALL_USD)
    assert (new.pass_count, new.error_count) == (4, 0)
    figures = figures_of(new)
    assert (figures.results, figures.decided, figures.win_rate) == (4, 3, 0.5)
    assert (figures.ordered, figures.first, figures.second) == (3, 1, 0)

    check_pages(new, old)

    # Another baseline, other outputs there, no such run any more: nothing changes, and a rescore asks the same.
    make_baseline(new, by=None)
    RecordedOutput.objects.filter(target__name="old").update(output={"output": "other *****"})
    retry_all(old)
    worked(old)
    old.delete()
    retry_all(new, keep_output=True)
    worked(new)
    assert {key: row[0] for key, row in found(new).items()} == {
        **{"WIN": "win", "LOSS": "loss", "TIE": "tie", "BIAS": "inconclusive"}
    }


def check_pages(new: Run, old: Run) -> None:
    """Both pages, the filter, the API and the command line say the same."""
    client, place = make_client(make_user()), (new.suite.slug, new.number)
    page = client.get(reverse("runs:run", args=place)).content.decode()
    assert "Against run #1" in page
    assert 'aria-label="1 win, 1 tie, 1 loss, 1 inconclusive"' in page
    assert "Win rate 50.0%" in " ".join(page.split())
    assert "3 decided of 4 results" in " ".join(page.split())
    for verdict, key in (
        ("win", "WIN"),
        ("loss", "LOSS"),
        ("tie", "TIE"),
        ("inconclusive", "BIAS"),
    ):
        query = f"pairwise.better = {verdict}"
        assert f"?q={quote(query, safe='')}#results-title" in page
        rows = client.get(reverse("runs:run", args=place, query={"q": query})).content.decode()
        assert [
            other for other in OUTPUTS if f">{other}<" in rows.partition("results-title")[2]
        ] == [key]
    refused = client.get(reverse("runs:run", args=place, query={"q": "pairwise.better = lost"}))
    assert "is one of win, tie, loss, inconclusive" in refused.content.decode()
    result = client.get(reverse("runs:result", args=(*place, "WIN", 1))).content.decode()
    assert "refund ***" in result
    assert ">refund *<" in result
    assert reverse("runs:result", args=(old.suite.slug, old.number, "WIN", 1)) in result
    new = Run.objects.select_related("suite").get(pk=new.pk)
    document = run_detail_document(with_list_columns(Run.objects.filter(pk=new.pk)).get())
    assert (document.baseline_run, [row.win_rate for row in document.pairwise]) == (1, [0.5])
    line = "better: win rate 50.0% (12.5% to 87.4%), of 3 decided of 4 results; 1 win, 1 tie, 1 loss, 1 inconclusive"
    assert f"Against #1   {line}" in run_report(new, "")
    comparison = build_comparison(old, new, Tolerances())
    assert f"Pair by pair, {line}." in comparison_report(comparison, conclude(comparison))
    assert comparison_document(comparison).pairwise == document.pairwise
    sides = {"baseline": f"{new.suite.slug}:1", "candidate": f"{new.suite.slug}:2"}
    for query, count in (
        (sides, 1),
        (dict(zip(sides, list(sides.values())[::-1], strict=True)), 0),
    ):
        compared = client.get(reverse("runs:compare", query=query)).content.decode()
        assert compared.count('id="run-pairwise"') == count
    for display in (
        reverse("runs:run-display", args=place),
        reverse("runs:compare-display", query=sides),
    ):
        assert client.get(display).status_code == 200


def test_files_of_results_name_the_outcome_and_bring_it_back(suite: Suite) -> None:
    old = run_against(suite, "old")
    assert (
        "pairwise" not in json.loads(next(write_results(result_lines(old))))["evaluator_results"][1]
    )
    new = run_against(suite, "new", baseline=old)
    named = {"WIN": "win", "LOSS": "loss", "TIE": "tie", "BIAS": "inconclusive"}
    written = list(write_results(result_lines(new)))
    lines = {line["eval_id"]: line["evaluator_results"][1] for line in map(json.loads, written)}
    assert {key: line["pairwise"] for key, line in lines.items()} == named
    rows = list(csv.DictReader(io.StringIO("".join(results_csv(new)))))
    assert {row["case"]: row["pairwise:better"] for row in rows} == named

    content = "".join(written).encode()
    [back] = import_results(content, file="new.jsonl", suite=suite, imported_by=make_user()).runs
    assert found(back) == found(new)
    client, place = make_client(make_user()), (suite.slug, back.number)
    query = {"q": "pairwise.better = loss"}
    [listed] = client.get(reverse("runs:run", args=place, query=query)).context["table"].rows
    assert listed.key == "LOSS"
    for key, texts in (
        ("TIE", ("Tie Neither output is better.", "Both answers are the same.")),
        ("LOSS", ("Loss", "output is better.", "Stars.")),
    ):
        page = text_of(client.get(reverse("runs:result", args=(*place, key, 1))))
        assert [text for text in texts if text not in page] == []


def test_what_the_baseline_did_not_answer_is_unscored_with_the_reason(suite: Suite) -> None:
    RecordedOutput.objects.filter(target__name="old", case_key="WIN").delete()
    old = run_against(suite, "old")
    assert old.error_count == 1
    make_case(suite=suite, key="LATER", position=9)
    RecordedOutput.objects.create(
        target=Target.objects.get(name="new"), case_key="LATER", output={"output": "refund"}
    )
    Case.objects.filter(suite=suite, key="LOSS").update(is_current=False)
    make_case(
        suite=suite, key="LOSS", revision=2, input=[{"role": "user", "content": "Another question"}]
    )
    new = run_against(suite, "new", baseline=old)

    rows = EvaluatorScore.objects.filter(result__run=new, path="better", state="unscored")
    reasons = dict(rows.values_list("result__case__key", "reasoning"))
    assert reasons.pop("BIAS").startswith("inconclusive")
    assert reasons == {
        "WIN": "the baseline, run #1, has no output for the case",
        "LATER": "the baseline, run #1, has no such case",
        "LOSS": "the input of the case is another now, so the output of the baseline, run #1, answers another question",
    }
    figures = figures_of(new)
    assert (figures.results, figures.unscored, figures.inconclusive) == (5, 3, 1)

    # What asks nobody is not counted before: both orders of TIE and BIAS are.
    client, place = make_client(make_user()), (suite.slug, new.number)
    ask = reverse("runs:run-retry-ask", args=place)
    assert "up to 4 calls of judge" in text_of(client.post(ask, {"everything": "on"}))
    filled = {"target": new.target_id, "cases": "all", "repetitions": 1, "judge": suite.judge_id}
    form = reverse("runs:run-new", args=(suite.slug,))
    page = text_of(client.post(form, {**filled, "baseline": old.number, "preview": "1"}))
    assert "Judge calls up to 4 judge 4" in page
    # The last run asked for as many, and paid for two: nobody is asked about equal outputs.
    assert f"+ judge ${2 * CALL_USD:.2f}" in page
    for reason in reasons.values():
        assert f"better gets no score in 1 of 5 cases: {reason}." in page
    assert plan_measuring(new, MeasuringRequest(times=1), None).calls.total() == 4
    plan = plan_judging(new, JudgingRequest(asks_again=True), None)
    assert plan.calls.total() == 4
    assert plan.evaluators[1].reasons.count("1 not scored: ") == 3
    # Its one score is kept, and BIAS had none.
    assert plan_judging(new, JudgingRequest(), None).calls.total() == 2


def test_repetitions_are_compared_with_those_of_the_baseline_in_turn(suite: Suite) -> None:
    old = run_against(suite, "old", repetitions=2)
    new = run_against(suite, "new", repetitions=3, baseline=old)
    held = ComparedOutput.objects.filter(result__run=new, result__case__key="WIN").order_by(
        "result__repetition"
    )
    assert list(held.values_list("result__repetition", "repetition", "text")) == [
        (1, 1, "refund *"),
        (2, 2, "refund *"),
        (3, 1, "refund *"),
    ]
    figures = figures_of(new)
    assert (figures.wins, figures.decided, figures.cases, figures.p) == (3, 9, 3, None)


@pytest.mark.parametrize("spoil", ["other", "running", "removed", "unneeded"])
def test_a_run_that_cannot_be_the_baseline_is_refused_with_the_reason(
    suite: Suite, spoil: str
) -> None:
    old = run_against(suite, "old")
    words = {
        "other": "it is a run of other. Name a run of",
        "running": "it is still running",
        "removed": "its outputs were removed",
        "unneeded": "no evaluator compares outputs with another",
    }[spoil]
    if spoil == "other":
        old.suite = make_suite(slug="other")
    elif spoil == "running":
        old.status = "running"
    elif spoil == "removed":
        old.outputs_removed_at = old.finished_at
    else:
        change_suite(suite, tree=tree(CHECK))
    target = Target.objects.get(name="new")
    with pytest.raises(CannotStartError, match=f"Run #1 cannot be the baseline: {words}"):
        start_run(suite=suite, target=target, started_by=None, baseline=old)


def test_a_draft_is_tried_on_a_result_with_its_baseline_or_with_a_pasted_one(
    suite: Suite, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run_against(suite, "old")
    make_baseline(old, by=None)
    new = run_against(suite, "new")
    monkeypatch.setattr("evalsite.celery.app.send_task", lambda *a, **k: 0)
    mira = make_user(name="mira", role="editor")
    client = make_client(mira)
    [node] = [
        one["id"]
        for one in get_draft(suite, mira).content["evaluators"]["children"]
        if one["name"] == "better"
    ]
    place = reverse("runs:evaluator-try", args=(suite.slug, node))
    assert "up to 2 calls of judge" in " ".join(client.get(place).content.decode().split())

    def tried(key: str, run: Run, **more: str) -> tuple[str, str]:
        filled = {"source": "stored", "run": run.number, "case": key, "repetition": 1, **more}
        data = {f"try-{name}": value for name, value in filled.items()}
        answer = client.post(place, {**data, "try-once": str(uuid4()), "try": "1"})
        assert answer.status_code == 302
        trial = EvaluatorTrial.objects.latest("pk")
        tasks.try_evaluator(trial_id=trial.pk)
        trial.refresh_from_db()
        [row] = [row for row in trial.outcome["scores"] if row["path"] == "better"]
        return str(row["details"].get("verdict", "")), row["reasoning"]

    assert tried("LOSS", new)[0] == "loss"
    assert tried("LOSS", new, baseline="refund")[0] == "win"
    assert "there is no baseline" in tried("LOSS", old)[1]
    page = client.get(place).content.decode()
    assert "Output of the baseline" in page


def test_page_program_and_command_line_name_the_baseline(
    suite: Suite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    member = make_user()
    client, new = make_client(member), Target.objects.get(name="new")
    form_url = reverse("runs:run-new", args=(suite.slug,))
    filled = {
        "target": new.pk,
        "cases": "all",
        "repetitions": 1,
        "concurrency": 4,
        "judge": suite.judge_id,
    }
    page = text_of(client.post(form_url, {**filled, "preview": "1"}))
    assert "None yet" in page
    assert "better has no baseline to compare outputs with, so it gets no score" in page
    assert "Judge calls none" in page
    old, again = run_against(suite, "old"), run_against(suite, "old")
    make_baseline(old, by=None)
    page = text_of(client.post(form_url, {**filled, "preview": "1"}))
    assert "no baseline" not in page
    assert "Judge calls up to 8 judge 8" in page
    # Runs without a baseline asked nobody, so their cost says nothing about that of these calls.
    assert "no finished run with this judge yet" in page
    assert "The suite&#x27;s, #1" in client.get(form_url).content.decode()

    # The page, and the forms that repeat the run or its results.
    assert client.post(form_url, {**filled, "baseline": again.number}).status_code == 302
    started = Run.objects.latest("pk")
    assert started.snapshot["baseline"]["run"] == again.number
    work_on_run(started.pk)
    for number, is_asked in ((old.number, False), (started.number, True)):
        ask = reverse("runs:run-retry-ask", args=(suite.slug, number))
        asked = text_of(client.post(ask, {"everything": "on"}))
        assert ("up to 8 calls of judge" in asked, "4 of 4 results" in asked) == (is_asked, True)
    repeated = client.get(form_url, {"again": started.number}).content.decode()
    assert re.search(r'<option value="2"\s+selected', repeated)
    assert client.post(form_url, {**filled, "baseline": 99}).status_code == 422

    # A program.
    program = Client(headers={"Authorization": f"Bearer {token_of(member, scopes=[Scope.RUN])}"})
    body = {"suite": suite.slug, "targets": ["new"], "baseline": f"{suite.slug}:2"}
    post = partial(program.post, content_type="application/json")
    assert post("/api/runs/estimate", body).json()["warnings"] == []
    answer = assert_described(post("/api/runs", body), "/api/runs", method="post")
    assert Run.objects.latest("pk").snapshot["baseline"]["run"] == 2
    refused = assert_refused(post("/api/runs", {**body, "baseline": "other:7"}), 400)
    assert "/baseline" in refused["errors"]
    work_on_run(Run.objects.latest("pk").pk)
    name = answer["runs"][0]["name"]
    detail = assert_described(program.get(f"/api/runs/{name}"), "/api/runs/{run}")
    assert (detail["baseline_run"], detail["pairwise"][0]["wins"]) == (2, 1)
    judging = {"outputs_of": [name], "baseline": f"{suite.slug}:1"}
    planned = post("/api/runs/judge-again/estimate", judging).json()["runs"][0]["evaluators"]
    assert planned[1]["judged"] == {"it is compared with another run": 4}

    # The command line.
    file = tmp_path / "summary.json"
    options = ("--target", "new", "--baseline", f"{suite.slug}#2", "--summary", file)
    assert evaluate(suite.slug, *options) == 0
    assert "Against #2" in capsys.readouterr().out
    assert json.loads(file.read_text())["pairwise"][0]["win_rate"] == 0.5
    with pytest.raises(CommandError, match="has no run #77"):
        evaluate(suite.slug, "--target", "new", "--baseline", f"{suite.slug}#77")
    assert (
        evaluate(
            suite.slug, "--outputs-of", f"{suite.slug}:latest", "--baseline", f"{suite.slug}#1"
        )
        == 0
    )
    assert Run.objects.latest("pk").snapshot["baseline"]["run"] == 1


def test_a_suite_file_keeps_the_evaluator(suite: Suite, tmp_path: Path) -> None:
    written, exported = tmp_path / "written", tmp_path / "exported"
    written.mkdir()
    (written / "pairs.yaml").write_text(PAIRS)
    call_command("import", str(written), verbosity=0)
    call_command("export", "pairs", "--out", f"{exported}/", verbosity=0)
    first, second = (
        read_suites(bundles_at([folder])).suites[0].content for folder in (written, exported)
    )
    assert first.evaluators.as_json() == second.evaluators.as_json()
    [node] = first.evaluators.children
    assert (node.kind, node.config) == (
        "pairwise",
        {"prompt": "Better is what names a date.\n", "model": "judge", "timeout_s": None},
    )


def test_judging_again_keeps_the_baseline_unless_another_is_named(
    suite: Suite, model_server: ModelServer, judged_again: Callable[..., Run]
) -> None:
    old = run_against(suite, "old")
    other = run_against(suite, "old")
    new = run_against(suite, "new", baseline=old)
    make_baseline(other, by=None)
    requests = len(model_server.requests)

    # The same question: only what has no score is asked again.
    same = judged_again(new)
    assert (same.snapshot["baseline"]["run"], found(same)) == (old.number, found(new))
    assert len(model_server.requests) == requests + 2
    plan = plan_judging(new, JudgingRequest(baseline=other), None)
    assert plan.warnings == []
    assert {row.path: row.reasons for row in plan.evaluators} == {
        "mentions_refund": "",
        "better": "4 judged: it is compared with another run",
    }
    assert sum(plan.calls.values()) == 8
    changed = judged_again(new, baseline=other)
    assert (changed.snapshot["baseline"]["run"], found(changed)) == (other.number, found(new))

    # Its own outputs say nothing; a run without a baseline takes the suite's.
    plan = plan_judging(other, JudgingRequest(), None)
    assert (plan.calls.total(), plan.evaluators[1].reasons) == (
        0,
        "4 not scored: the run is the baseline itself",
    )
    assert plan.warnings == [
        "better has no baseline other than the run itself to compare outputs with, so it gets no score. Name another run."
    ]
    itself = judged_again(other)
    assert {row[2] for row in found(itself).values()} == {"unscored"}
    row = EvaluatorScore.objects.filter(result__run=itself, path="better").first()
    assert row is not None
    assert row.reasoning == f"the output is that of the baseline, run #{other.number}, itself"
    drop_baseline(other, by=None)
    form = reverse("runs:run-judge-again", args=(suite.slug, old.number))
    page = text_of(make_client(make_user()).get(form))
    assert "Baseline optional None yet" in page
    assert "better has no baseline to compare outputs with, so it gets no score." in page
    assert "Judge calls none" in page
    assert "4 not scored: no baseline to compare with" in page
    requests = len(model_server.requests)
    assert "baseline" not in judged_again(old).snapshot
    assert len(model_server.requests) == requests

    measured = worked(measure_judge(new, MeasuringRequest(results=4, times=2), by=None))
    assert ComparedOutput.objects.filter(result__run=measured).count() == 8
    assert figures_of(measured).wins == 2


@pytest.fixture
def judged_again() -> Callable[..., Run]:
    def judge(source: Run, **choices: Any) -> Run:
        [run] = judge_again([source], JudgingRequest(**choices), by=None)
        return worked(run)

    return judge

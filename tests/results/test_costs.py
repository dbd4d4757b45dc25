"""Both costs on every page, against the sum of the ledger: exact, and honest about what has no price."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.templatetags.figures import money
from runs.costs import result_costs, run_costs
from runs.execution.run_worker import work_on_run
from runs.finishing import summarise_run
from runs.home.queries import dashboard
from runs.models.results import ModelCall, Result
from runs.models.runs import Run
from runs.results.result_page import result_attempts
from runs.results.runs import run_row, with_list_columns
from runs.running.retrying import retry_results
from runs.running.services import start_run
from tests.support.agent_server import AgentServer, refuses, says
from tests.support.factories import (
    make_call,
    make_case,
    make_model,
    make_result,
    make_run,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.model_server import ModelServer, good, status
from tests.support.trees import CHECK, tree

StartRun = Callable[..., Run]


def ledger(**narrow: Any) -> Decimal:
    found = ModelCall.objects.filter(**narrow).aggregate(usd=Sum("cost_usd"))["usd"]
    return found or Decimal(0)


def chat_run(results: int = 3, **columns: Any) -> Run:
    """Make a run of a chat target of ours with results that cost nothing yet."""
    suite, target = make_suite(cases=results), make_target(kind="chat", model=make_model())
    snapshot = make_snapshot(suite=suite, target=target)
    snapshot["target"]["model"] = "agent"
    run = make_run(suite=suite, target=target, snapshot=snapshot, **columns)
    nothing = {"run_cost_usd": None, "evaluation_cost_usd": None}
    for case in suite.cases.all():
        make_result(run=run, case=case, verdict="pass", score=0.9, output={"text": "x"}, **nothing)
    return run


def book(result: Result, purpose: str, usd: str | None, **columns: Any) -> None:
    """Write a call into the ledger as execution does, and add its cost to the run."""
    cost = Decimal(usd) if usd is not None else None
    make_call(result=result, purpose=purpose, cost_usd=cost, created_at=timezone.now(), **columns)
    column = "run_cost_usd" if purpose == "target" else "evaluation_cost_usd"
    for row in (result, result.run):
        if cost is not None:
            setattr(row, column, (getattr(row, column) or 0) + cost)
            row.save()


def run_page(client: Client, run: Run) -> str:
    place = {"slug": run.suite.slug, "number": run.number}
    page = client.get(reverse("runs:run", kwargs=place)).content.decode()
    cell = page.partition("<h2>Cost")[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", cell).split())


@pytest.mark.django_db(transaction=True)
def test_every_page_says_what_the_ledger_sums_to(
    start_chat: StartRun, model_server: ModelServer, viewer_client: Client
) -> None:
    model_server.behave(status(500), good("not json"), status(429), then=good())
    run = start_chat(4, repetitions=2)
    work_on_run(run.pk)
    for keep_output in (True, False):
        some = list(run.results.values_list("pk", flat=True)[:3])
        retry_results(run, asked_by=None, result_ids=some, keep_output=keep_output)
        work_on_run(run.pk)
    run = Run.objects.get(pk=run.pk)

    spent = {purpose: ledger(run=run, purpose=purpose) for purpose in ("target", "evaluation")}
    found = run_costs(run)
    assert (found.run.usd, found.evaluation.usd) == (spent["target"], spent["evaluation"])
    assert not found.is_partial
    row = run_row(with_list_columns(Run.objects.filter(pk=run.pk)).get())
    assert (row.costs.run.usd, row.costs.evaluation.usd) == (found.run.usd, found.evaluation.usd)
    assert not row.costs.is_partial
    cells = dashboard([], now=timezone.localtime())
    assert (cells.run_usd, cells.evaluation_usd, cells.unpriced) == (*spent.values(), 0)
    assert money(sum(spent.values(), Decimal(0))) in run_page(viewer_client, run)
    for result in run.results.select_related("output"):
        own = result_costs(run, result)
        assert own.run.usd == ledger(result=result, purpose="target")
        assert own.evaluation.usd == ledger(result=result, purpose="evaluation")
        attempts = result_attempts(result)
        if attempts:
            assert sum(one.cost_usd or 0 for one in attempts) == ledger(result=result)
            assert sum(one.calls for one in attempts) == result.model_calls.count()
        place = {"slug": run.suite.slug, "number": run.number, "key": result.case.key}
        page = viewer_client.get(
            reverse("runs:result", kwargs=place | {"repetition": result.repetition})
        ).content.decode()
        assert money(ledger(result=result)) in page


@pytest.mark.django_db
def test_calls_that_were_refused_leave_no_price_unknown(viewer_client: Client) -> None:
    run = chat_run()
    Result.objects.update(status="error", error="Refused: no key", error_stage="target")
    for result in run.results.all():
        for code, word in ((401, "refused"), (429, "rate_limited"), (None, "timeout")):
            book(result, "target", None, status=word, http_status=code, input_tokens=None)
    cell = run_page(viewer_client, run)
    assert "$0" in cell
    assert "price" not in cell
    assert "–" not in cell
    assert "≥" not in viewer_client.get(reverse("runs:run-list")).content.decode()
    assert dashboard([], now=timezone.localtime()).unpriced == 0
    first = run.results.select_related("output").first()
    assert first is not None
    assert result_costs(run, first).total_usd == 0
    assert not result_costs(run, first).is_partial


@pytest.mark.django_db
def test_a_model_without_prices_shows_its_tokens(viewer_client: Client) -> None:
    run = chat_run()
    for result in run.results.all():
        book(result, "target", None, input_tokens=1000, output_tokens=100)
        book(result, "evaluation", "0.004")
    cell = run_page(viewer_client, run)
    assert "≥ $0.012" in cell
    assert "Target unknown + judge $0.012" in cell
    assert "Target: no price known, 3 000 tokens in, 300 out" in cell
    rows = viewer_client.get(reverse("runs:run-list")).content.decode()
    assert "≥ $0.012" in rows
    assert dashboard([], now=timezone.localtime()).unpriced == 3


@pytest.mark.django_db
def test_a_cost_of_which_a_part_has_prices_says_how_many(viewer_client: Client) -> None:
    run = chat_run()
    for number, result in enumerate(run.results.all()):
        book(result, "target", "0.5")
        book(result, "evaluation", "0.25" if number else None, output_tokens=120)
        book(result, "evaluation", None, status="rate_limited", http_status=429)
    found = run_costs(Run.objects.get(pk=run.pk))
    assert (found.evaluation.usd, found.evaluation.priced, found.evaluation.answers) == (0.5, 2, 3)
    cell = run_page(viewer_client, run)
    assert "≥ $2.00" in cell
    assert "Judge: 2 of 3 calls priced" in cell
    assert "Run:" not in cell
    first = run.results.select_related("output").first()
    assert first is not None
    own = result_costs(run, first)
    assert (own.run.usd, own.evaluation.usd, own.evaluation.is_partial) == (0.5, None, True)


@pytest.mark.django_db
def test_a_target_that_says_itself_what_it_cost_counts_its_outputs(viewer_client: Client) -> None:
    suite = make_suite(cases=3)
    run = make_run(suite=suite)
    for number, case in enumerate(suite.cases.all()):
        cost = Decimal("0.5") if number else None
        make_result(
            run=run,
            case=case,
            verdict="pass",
            output={"text": "x"},
            run_cost_usd=cost,
            evaluation_cost_usd=None,
            input_tokens=10,
            output_tokens=2,
        )
    cell = run_page(viewer_client, run)
    assert "≥ $1.00" in cell
    assert "Target: 2 of 3 results priced, 30 tokens in, 6 out" in cell
    assert "judge $0" in cell
    assert summarise_run(run.pk)
    row = run_row(with_list_columns(Run.objects.filter(pk=run.pk)).get())
    assert (row.costs.run.usd, row.costs.is_partial) == (Decimal(1), True)
    assert "≥ $1.00" in viewer_client.get(reverse("runs:run-list")).content.decode()


@pytest.mark.django_db
def test_lists_know_as_well_as_pages_whether_a_cost_lacks_a_part() -> None:
    free, agents = chat_run(), make_scored_run(verdicts=["pass", "fail", "error"])
    agents.results.filter(verdict="pass").update(run_cost_usd=None)
    # An error of a free model has no cost of its own, and every call has a price.
    for place, result in enumerate(free.results.all()):
        book(result, "target", "0")
        if not place:
            Result.objects.filter(pk=result.pk).update(status="error", run_cost_usd=None)
    for run in (free, agents):
        assert summarise_run(run.pk)
    for run in with_list_columns(Run.objects.all()):
        whole = run_costs(Run.objects.get(pk=run.pk))
        listed = run_row(run).costs
        for one, other in ((listed.run, whole.run), (listed.evaluation, whole.evaluation)):
            assert (one.usd, one.is_partial) == (other.usd, other.is_partial), run.suite.slug


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("behaviour", "usd"),
    [(refuses(500), None), (says({"said": "no path"}), None), (refuses(403), Decimal(0))],
    ids=["failed", "unreadable", "refused"],
)
def test_what_a_failed_agent_cost_is_not_known_unless_it_did_nothing(
    behaviour: Any, usd: Decimal | None, agent_server: AgentServer, viewer_client: Client
) -> None:
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="A")
    config = {"url": agent_server.url, "output_path": "output", "cost_path": "cost", "tries": 1}
    agent_server.behave(then=behaviour)
    run = start_run(suite=suite, target=make_target(kind="http", config=config), started_by=None)

    work_on_run(run.pk)

    run = Run.objects.get(pk=run.pk)
    [result] = run.results.all()
    assert (run.error_count, run_costs(run).run.usd, result_costs(run, result).run.usd) == (
        *(1, usd, usd),
    )
    row = run_row(with_list_columns(Run.objects.filter(pk=run.pk)).get())
    assert row.costs.run.usd == usd
    cell = run_page(viewer_client, run)
    assert ("Target unknown" in cell) == (usd is None)
    assert ("Target: no price known" in cell) == (usd is None)


@pytest.mark.django_db
def test_a_free_model_costs_nothing_and_that_is_known(viewer_client: Client) -> None:
    run = chat_run()
    for result in run.results.all():
        book(result, "target", "0")
    assert run_page(viewer_client, run).startswith("$0 Target $0 + judge $0")


@pytest.mark.django_db
def test_the_costs_of_a_list_take_no_more_queries_for_many_runs(
    django_assert_max_num_queries: Any,
) -> None:
    suite = make_suite()
    case = make_case(suite=suite)
    for _ in range(12):
        run = make_run(suite=suite)
        make_call(result=make_result(run=run, case=case, verdict="pass"), cost_usd=None)
    with django_assert_max_num_queries(1):
        assert all(run_row(run).costs.is_partial for run in with_list_columns(Run.objects.all()))

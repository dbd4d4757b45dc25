"""What workers ask the database all the time is found by an index, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model

from runs.costs import with_costs
from runs.execution.claims import claim_results
from runs.execution.loading import earlier_calls
from runs.execution.reaper import reap
from runs.models.database import database_now, insert_rows
from runs.models.runs import Run
from tests.support.factories import make_call, make_case, make_result, make_run
from tests.support.statements import query_plan, statements_reading

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


MANY = 2000


@pytest.fixture
def run() -> Run:
    """Give a run in the middle of its work, beside one that is over."""
    over, run = make_run(), make_run(status="running", execution_count=MANY, done_count=1)
    fill(over, status="scored")
    fill(run, status="pending")
    for status in ("running", "scored"):
        lease = {"lease_token": "t", "lease_until": database_now()} if status == "running" else {}
        result = make_result(run=run, case=make_case(suite=run.suite), status=status, **lease)
        make_call(result=result)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return run


def fill(run: Run, *, status: str) -> None:
    """Give a run very many results of one case, with a call each."""
    first = make_result(run=run, case=make_case(suite=run.suite), status=status)
    copy(first, [{"repetition": n, "position": n} for n in range(2, MANY)])
    others = run.results.exclude(pk=first.pk).values_list("pk", flat=True)
    copy(make_call(result=first), [{"result_id": pk} for pk in others])


def copy(row: Model, changes: Iterable[Mapping[str, Any]]) -> None:
    """Insert the row again with each of the changes."""
    fields = [field.attname for field in row._meta.concrete_fields if not field.primary_key]
    values = {name: getattr(row, name) for name in fields}
    insert_rows(type(row), fields, ({**values, **change}.values() for change in changes))


def claim(run: Run) -> None:
    assert len(claim_results(run.pk, token="u", most=50, now=database_now())) == 50


def reap_later(run: Run) -> None:
    reap(now=database_now() + timedelta(seconds=1))


def recall(run: Run) -> None:
    results = run.results.values_list("pk", flat=True)[:50]
    assert len(earlier_calls(dict.fromkeys(results, 1))) == 50


def list_runs(run: Run) -> None:
    assert list(with_costs(Run.objects.all()))


@pytest.mark.parametrize(
    ("work", "table", "index"),
    [
        (claim, "runs_result", "result_to_claim"),
        (reap_later, "runs_result", "result_lease"),
        (reap_later, "runs_run", "run_without_summary"),
        (recall, "runs_modelcall", "call_by_ledger_key"),
        (list_runs, "runs_result", "result_in_order"),
        (list_runs, "runs_modelcall", "call_without_price"),
    ],
)
def test_a_query_of_all_the_time_reads_an_index(
    run: Run, work: Callable[[Run], None], table: str, index: str
) -> None:
    with statements_reading(table) as found:
        work(run)

    plans = [query_plan(*statement) for statement in found]
    assert any(index in plan for plan in plans), "\n\n".join(plans)


def test_no_statement_of_a_claim_goes_through_all_results(run: Run) -> None:
    with statements_reading("runs_result") as found:
        claim(run)

    plans = "\n\n".join(query_plan(*statement) for statement in found)
    assert "SCAN runs_result" not in plans
    assert "Seq Scan on runs_result" not in plans

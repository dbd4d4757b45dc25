"""Rows written many at once hold what was given, on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from runs.models.database import add_to_rows, insert_rows, update_rows
from runs.models.results import EvaluatorScore, Result, ResultOutput
from tests.support.factories import make_case, make_result, make_run

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]

AWKWARD = (
    "tab\there, line\nbreak, return\r, back\\slash, \\N, \\., quote ' \" , {braces} %s \U0001f600"
)
NESTED = {"text": AWKWARD, "list": [1, 2.5, None, True, []], "empty": {}, "null": None}
NOON = datetime(2026, 5, 12, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def results() -> list[Result]:
    run = make_run()
    return [make_result(run=run, case=make_case(suite=run.suite)) for _ in range(3)]


def test_inserted_rows_hold_what_was_given(results: list[Result]) -> None:
    columns = ("result_id", "text", "messages", "trace", "usage", "decision")
    rows: list[tuple[Any, ...]] = [
        (results[0].pk, AWKWARD, [NESTED], None, {}, NESTED),
        (results[1].pk, "", [], [], {"cost": "0.10"}, None),
    ]

    insert_rows(ResultOutput, columns, rows)

    kept = ResultOutput.objects.order_by("result_id").values_list(*columns)
    assert list(kept) == rows
    assert ResultOutput.objects.filter(trace__isnull=True).count() == 1


def test_inserted_figures_are_exact(results: list[Result]) -> None:
    columns = ("result_id", "path", "kind", "score", "weight", "cost_usd", "latency_ms")
    rows = [
        (results[0].pk, "tone", "llm_judge", 0.1 + 0.2, 1e-300, Decimal("0.000000001"), 17),
        (results[1].pk, "", "composite", None, 2.0, None, None),
    ]
    spare = (0, "scored", 1.0, "", "", [], [], [], {})
    names = ("position", "state", "scale", "stage", "reasoning")

    insert_rows(
        EvaluatorScore,
        (*columns, *names, "findings", "failed_required", "warnings", "details"),
        [(*row, *spare) for row in rows],
    )

    assert list(EvaluatorScore.objects.order_by("result_id").values_list(*columns)) == rows


def test_updated_rows_hold_what_was_given_and_others_stay(results: list[Result]) -> None:
    columns = ("decided_by", "score", "is_forced", "warnings", "retry_paths", "finished_at")
    first = (AWKWARD, 0.1 + 0.2, True, [AWKWARD, ""], None, NOON)
    second = ("", None, False, [], ["a/b"], None)

    update_rows(
        Result,
        columns,
        ((*row, result.pk) for row, result in zip((first, second), results, strict=False)),
        key=("id",),
    )

    kept = list(Result.objects.order_by("id").values_list(*columns))
    assert kept[:2] == [first, second]
    assert kept[2] == (results[2].decided_by, results[2].score, False, [], None, None)


def test_amounts_are_added_exactly_and_to_nothing_as_to_zero(results: list[Result]) -> None:
    Result.objects.filter(pk=results[0].pk).update(run_cost_usd=Decimal("0.100000001"))
    amounts = [(Decimal("0.2"), results[0].pk), (Decimal("0.000000003"), results[1].pk)]

    add_to_rows(Result, "run_cost_usd", amounts)

    kept = Result.objects.order_by("id").values_list("run_cost_usd", flat=True)
    assert list(kept) == [Decimal("0.300000001"), Decimal("0.000000003"), None]


def test_nothing_is_no_statement(results: list[Result]) -> None:
    insert_rows(ResultOutput, ("result_id", "text"), [])
    update_rows(Result, ("error",), [], key=("id",))
    add_to_rows(Result, "run_cost_usd", [])

    assert not ResultOutput.objects.exists()


def test_a_text_that_is_too_long_is_never_cut(results: list[Result]) -> None:
    rows = [("x" * 301, results[0].pk)]
    try:
        with transaction.atomic():
            update_rows(Result, ("decided_by",), rows, key=("id",))
    except DatabaseError:
        kept = {results[0].decided_by}
    else:
        kept = {rows[0][0]}

    assert set(Result.objects.filter(pk=results[0].pk).values_list("decided_by", flat=True)) == kept


@pytest.mark.parametrize("bad", ["nul \x00", "half \ud800"])
def test_a_text_that_cannot_be_stored_is_an_error_of_its_batch_alone(
    results: list[Result], bad: str
) -> None:
    # SQLite keeps NUL. Everything else raises, and nothing of the batch is written.
    rows = [(results[0].pk, "fine", results[0].pk), (results[1].pk, bad, results[1].pk)]
    try:
        with transaction.atomic():
            update_rows(Result, ("error",), [row[1:] for row in rows], key=("id",))
    except (DatabaseError, ValueError):
        assert set(Result.objects.values_list("error", flat=True)) == {""}
    else:
        assert connection.vendor == "sqlite"

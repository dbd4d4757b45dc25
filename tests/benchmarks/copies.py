"""Runs copied inside PostgreSQL, with what pages read of them. To be loaded once Django is set up."""

from __future__ import annotations

from typing import Any

from django.db import connection, models, transaction

from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.search import ResultText
from runs.models.suites import Suite

OF_RESULTS: tuple[type[models.Model], ...] = (ResultOutput, EvaluatorScore, ResultText)
PAIRS = (
    "CREATE TEMPORARY TABLE pairs ON COMMIT DROP AS SELECT old.id AS old_id, new.id AS new_id "
    "FROM runs_result old JOIN runs_result new USING (case_id, repetition) "
    "WHERE old.run_id = %s AND new.run_id = %s"
)


def copy_runs(suite: Suite, copies: int) -> None:
    """Copy the runs of a suite in turn, until there are so many more."""
    originals = list(suite.runs.order_by("number").values_list("pk", flat=True))
    for number in range(len(originals), len(originals) + copies):
        with transaction.atomic(), connection.cursor() as cursor:
            _copy_run(cursor, originals[number % len(originals)], number + 1)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _copy_run(cursor: Any, old: int, number: int) -> None:
    # Packed scores name the results of the other run.
    new = _insert(
        cursor, Run, {"id": old}, {"number": number, "leaf_scores": None}, " RETURNING id"
    )
    for model in (Result, RunCase):
        _insert(cursor, model, {"run_id": old}, {"run_id": new})
    cursor.execute(PAIRS, [old, new])
    for model in OF_RESULTS:
        names = _columns(model, {"result_id", "run_id"})
        own = "run_id, " if hasattr(model, "run_id") else ""
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} (result_id, {own}{names}) "
            f"SELECT new_id, {f'{int(new)}, ' if own else ''}{names} "
            f"FROM pairs JOIN {model._meta.db_table} ON result_id = old_id"
        )


def _insert(
    cursor: Any,
    model: type[models.Model],
    of: dict[str, int],
    changed: dict[str, Any],
    returning: str = "",
) -> int:
    """Insert the rows of one original again with changed columns; return the id where it is asked for."""
    [(key, value)] = of.items()
    names, table = _columns(model, changed.keys()), model._meta.db_table
    cursor.execute(
        f"INSERT INTO {table} ({', '.join(changed)}, {names}) "
        f"SELECT {', '.join(['%s'] * len(changed))}, {names} FROM {table} WHERE {key} = %s{returning}",
        [*changed.values(), value],
    )
    return int(cursor.fetchone()[0]) if returning else 0


def _columns(model: type[models.Model], without: Any) -> str:
    fields = [field.column for field in model._meta.local_concrete_fields]
    return ", ".join(name for name in fields if name not in {"id", *without})

"""A test that commits leaves only roles and permissions behind."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.support.factories import make_call, make_case, make_result, make_run
from tests.support.flushing import KEPT, empty_tables
from tests.support.members import make_client, make_member


def rows() -> dict[str, list[tuple[object, ...]]]:
    found = {}
    with connection.cursor() as cursor:
        # Tables without a model are Django's notes of migrations, and indexes, which follow their tables.
        for table in connection.introspection.django_table_names(only_existing=True):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY 1")
            found[table] = cursor.fetchall()
    return {table: lines for table, lines in found.items() if lines}


@pytest.mark.django_db(transaction=True)
def test_only_roles_and_permissions_remain() -> None:
    before = rows()
    assert set(before) == KEPT
    make_client(make_member("admin"))
    run = make_run()
    make_call(result=make_result(run=run, case=make_case(suite=run.suite)))
    assert {"runs_modelcall", "auth_user", "auth_user_groups", "runs_membersession"} <= set(rows())
    empty_tables()
    assert rows() == before

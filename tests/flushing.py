"""Empty SQLite after a test that commits: in a part of the time that Django takes for it."""

from __future__ import annotations

from functools import cache

from django.db import connection
from django.test import TransactionTestCase

# What migrating fills and no test that commits changes: else all is made anew after each of them.
KEPT = {"auth_group", "auth_group_permissions", "auth_permission", "django_content_type"}


def flush_fast() -> None:
    """Have tests that commit leave empty tables on SQLite, and roles and permissions as they were."""
    as_django_does = TransactionTestCase._fixture_teardown

    def teardown(test: TransactionTestCase) -> None:
        if connection.vendor == "sqlite":
            connection.ops.execute_sql_flush([f'DELETE FROM "{name}"' for name in _tables()])
        else:
            as_django_does(test)

    TransactionTestCase._fixture_teardown = teardown


@cache
def _tables() -> tuple[str, ...]:
    return tuple(sorted({*connection.introspection.django_table_names()} - KEPT))

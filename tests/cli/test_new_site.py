"""The tables of a new site: made from the models, the same that migrations make."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.services.processes import ROOT

BY_MODELS = "from runs.cli.command import migrate; migrate()"
BY_MIGRATIONS = (
    "from django.core.management import call_command; call_command('migrate', verbosity=0)"
)
OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
GRANTED = """
    SELECT auth_group.name, app_label, codename FROM auth_group
    LEFT JOIN auth_group_permissions ON group_id = auth_group.id
    LEFT JOIN auth_permission ON auth_permission.id = permission_id
    LEFT JOIN django_content_type ON django_content_type.id = content_type_id
"""


def made(folder: Path, how: str) -> tuple[Mapping[Any, Any], Mapping[str, int], list[Any]]:
    """Return tables and indexes with the words that define them, the rows of each table, and rights of groups."""
    folder.mkdir()
    env = {**os.environ, "EVALSITE_DATA_DIR": str(folder), "DATABASE_URL": ""}
    script = f"from evalsite import load; load(); {how}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, env=env, check=True)
    [path] = folder.glob("*.sqlite3")
    database = sqlite3.connect(path)
    objects = {
        # Columns may stand in another order.
        (kind, name): Counter(re.findall(r"[^\s,()]+", sql or ""))
        for kind, name, sql in database.execute(OBJECTS)
    }
    tables = [name for kind, name in objects if kind == "table"]
    rows = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    granted = sorted(map(repr, database.execute(GRANTED)))
    database.close()
    return objects, rows, granted


@pytest.mark.slow
def test_a_new_site_has_the_tables_and_rows_that_migrations_make(tmp_path: Path) -> None:
    assert made(tmp_path / "models", BY_MODELS) == made(tmp_path / "migrations", BY_MIGRATIONS)

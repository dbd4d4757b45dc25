"""A worker that is killed while it makes a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import UUID

from tests.faults.installations import Installation
from tests.faults.suite import CASES, SUITE
from tests.services.processes import wait_until
from tests.services.visitor import Visitor

LINES = f"/suites/{SUITE}/runs/1/results.jsonl"
COPIES = 30_000
# Of one result, so that making the file takes seconds. The database gives numbers to the copies.
MULTIPLY = f"""
    INSERT INTO runs_result ({{columns}}, repetition)
    WITH RECURSIVE copies(repetition) AS (
        SELECT 2 UNION ALL SELECT repetition + 1 FROM copies WHERE repetition < {COPIES}
    )
    SELECT {{columns}}, copies.repetition FROM runs_result, copies
    WHERE position = (SELECT min(position) FROM runs_result)
"""
IS_HALF_WRITTEN = "SELECT count(*) = 1 FROM runs_export WHERE state = 'writing' AND done_count BETWEEN 1 AND 20000"
READY = "SELECT count(*) = 1 FROM runs_export WHERE state = 'ready' AND attempts = 2"


def files_of(site: Installation) -> list[Path]:
    return list((site.site.data_dir / "exports").iterdir())


def test_a_file_of_a_worker_that_is_killed_is_made_again_by_the_next(single: Installation):
    single.begin_web()
    single.wait_for_the_end()
    names = (
        "SELECT name FROM pragma_table_info('runs_result') WHERE name NOT IN ('id', 'repetition')"
    )
    columns = ", ".join(f"runs_result.{name}" for (name,) in single.database.rows(names))
    bare = columns.replace("runs_result.", "")
    single.database.execute(MULTIPLY.format(columns=bare))
    single.database.execute(f"UPDATE runs_run SET execution_count = {COPIES + CASES - 1}")
    visitor = Visitor(single.site.url)
    visitor.log_in(single.site.login_link())
    visitor.get(LINES)

    single.wait_for(IS_HALF_WRITTEN)
    (half,) = files_of(single)
    assert half.suffix == ".part"
    (victim,) = single.site.web_workers()
    os.kill(victim, signal.SIGKILL)

    single.wait_for(READY)
    ((key,),) = single.database.rows("SELECT id FROM runs_exportrequest")
    content = visitor.get(f"/exports/{UUID(str(key))}/file/")
    assert len(content.splitlines()) == COPIES + CASES - 1
    wait_until(lambda: half not in files_of(single), what="the half file removed")
    assert len(files_of(single)) == 1

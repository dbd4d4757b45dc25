"""SQL equivalence: the same rows however a query is written, and queries that must do no harm."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluators.kinds import get_kind, read_config, sql_equivalence
from evaluators.kinds._base import Context
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.sql_equivalence import PROGRAM
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

SHOP = """
PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, spent REAL);
INSERT INTO customers VALUES (1, 'Ann', 'Bremen', 0.1), (2, 'Bo', 'Kiel', 2.0), (3, 'Ann', 'Bremen', NULL);
COMMIT;
"""
CONFIG = {"database": "./shop.sql"}
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "


def shop(answer: str, expected: str = "SELECT name FROM customers", **files: bytes) -> Context:
    kept = {
        "shop.sql": SHOP.encode(),
        **{name.replace("_", "."): text for name, text in files.items()},
    }
    return context_of(answer, expected_output=expected, files=kept)


@pytest.mark.parametrize(
    ("config", "answer", "score", "text"),
    [
        (
            {},
            "```sql\nselect c.name from customers c order by 1 desc;\n```",
            1.0,
            "the expected rows, 3 in all",
        ),
        (
            {},
            "SELECT DISTINCT name FROM customers",
            0.0,
            "1 of 3 expected rows are missing, 0 of 2 found are not",
        ),
        (
            {"graded": True},
            "SELECT DISTINCT name FROM customers",
            0.8,
            "1 of 3 expected rows are missing",
        ),
        ({"graded": True}, "SELECT name, city FROM customers", 0.0, "It returns 2 columns, not 1"),
        (
            {"row_order": True},
            "SELECT name FROM customers ORDER BY id",
            1.0,
            "the expected rows, 3 in all",
        ),
        (
            {"row_order": True},
            "SELECT name FROM customers ORDER BY id DESC",
            1.0,
            "the expected rows, 3 in all",
        ),
        ({"row_order": True}, "SELECT name FROM customers ORDER BY 1", 0.0, "in another order"),
        (
            {"column_names": True},
            "SELECT name AS who FROM customers",
            0.0,
            "columns are who, not name",
        ),
        (
            {"query": "SELECT 0.3, 2"},
            "SELECT 0.1 + 0.2, 2.0",
            1.0,
            "It returns the expected rows, 1 in all",
        ),
        (
            {"query": "SELECT 2"},
            "SELECT '2'",
            0.0,
            "1 of 1 expected rows are missing, 1 of 1 found are not",
        ),
        (
            {"query": "SELECT 9e999, x'ff00'"},
            "SELECT 9e999, x'FF00'",
            1.0,
            "the expected rows, 1 in all",
        ),
        (
            {"query": "SELECT 1 WHERE 0"},
            "SELECT 'a' WHERE 0",
            1.0,
            "the expected rows, 0 in all",
        ),
    ],
)
def test_the_same_rows_score_1(
    config: dict[str, Any], answer: str, score: float, text: str
) -> None:
    found = score_of("sql_equivalence", {**CONFIG, **config}, shop(answer))

    assert found.score == pytest.approx(score)
    assert text in found.findings[0].text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "The answer has no query"),
        ("I would count the customers.", "syntax error"),
        ("SELECT nme FROM customers", "no such column: nme"),
        ("SELECT 1; DROP TABLE customers", "one statement at a time"),
        ("DELETE FROM customers", "not authorized"),
        ("CREATE TABLE t (x)", "not authorized"),
        ("ATTACH '/etc/passwd' AS x", "not authorized"),
        ("VACUUM INTO '/tmp/evalsite-stolen.db'", "cannot be run"),
        ("PRAGMA hard_heap_limit=0", "not authorized"),
        ("SELECT * FROM pragma_database_list", "cannot be run"),
        ("SELECT load_extension('/tmp/x.so')", "cannot be run"),
        ("-- nothing", "no query that returns rows"),
        ("SELECT '\ud800'", "cannot be run"),
    ],
)
def test_a_query_that_cannot_be_run_scores_0_and_says_why(answer: str, said: str) -> None:
    score = score_of("sql_equivalence", CONFIG, shop(answer))

    assert score.score == 0
    assert said in score.findings[0].text
    assert not Path("/tmp/evalsite-stolen.db").exists()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"{BOMB} SELECT count(*) FROM n", "it took too long"),
        (f"{BOMB} SELECT i FROM n", "it returns more than 10 rows"),
        (
            f"{BOMB} SELECT DISTINCT hex(randomblob(400000)) FROM n ORDER BY 1",
            "it needs too much memory",
        ),
        ("SELECT 1 --" + "x" * 5_000_000, "more than 100,000 characters"),
    ],
)
def test_a_query_without_end_is_unscored_and_never_0(answer: str, said: str) -> None:
    outcome = unscored_of(
        "sql_equivalence", {**CONFIG, "timeout_s": 1, "max_rows": 10}, shop(answer)
    )

    assert outcome.stage == "limits"
    assert said in outcome.reason


def test_only_so_many_processes_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def recorded(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        assert all(process.returncode is not None for process in started)
        started.append(await create(*command, **options))
        return started[-1]

    monkeypatch.setattr(sql_equivalence, "MAX_PROCESSES", 1)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    kind, context = get_kind("sql_equivalence"), shop("SELECT name FROM customers")
    config = kind.config.model_validate(CONFIG)

    async def score_together() -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(kind.score(config, context)) for _ in range(3)]
        return [task.result().score for task in tasks]

    assert asyncio.run(score_together()) == [1, 1, 1]
    assert len(started) == 3


def test_the_process_that_reads_a_database_can_open_nothing_else() -> None:
    attempts = (
        "open('/etc/passwd')",
        "open('/dev/shm/stolen', 'w')",
        "socket.socket()",
        "subprocess.run(['/bin/true'])",
    )
    taken_over = f"""
import runpy, socket, subprocess
program = runpy.run_path({str(PROGRAM)!r})
program["give_up_rights"]({{"queries": ["", ""], "seconds": 1, "memory_mb": 128}}, 0)
for attempt in {attempts!r}:
    try:
        eval(attempt)
    except OSError as error:
        print(error.strerror)
"""

    done = subprocess.run(
        [sys.executable, "-I", "-c", taken_over], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["Too many open files"] * len(attempts)


def test_a_sqlite_file_is_read_as_it_is_and_a_case_that_cannot_be_compared_is_unscored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(SHOP)
    database.close()
    config = {"database": "./shop.db", "query": "SELECT count(*) FROM customers"}
    read = shop("SELECT 3", shop_db=path.read_bytes())

    assert score_of("sql_equivalence", config, read).score == 1
    for changed, context, said in (
        ({}, shop("SELECT 1", "  "), "has no expected query"),
        ({}, shop("SELECT 1", "SELECT x"), "the expected query failed: no such column: x"),
        ({"database": "./gone.db"}, shop("SELECT 1"), "'./gone.db' is not among the files"),
        ({"database": "x;"}, shop("SELECT 1"), 'the database cannot be used: near "x"'),
        ({}, shop("SELECT 1", shop_sql=b"CREATE"), "./shop.sql cannot be used: "),
        ({}, shop("SELECT 1", shop_sql=b"ATTACH 'x.db' AS x;"), "./shop.sql cannot be used: "),
        (
            {"database": "./shop.db"},
            shop("SELECT 1", shop_db=b"SQLite format 3\0" * 99),
            "cannot be used",
        ),
        ({"database": "./shop.db"}, shop("SELECT 1", shop_db=b"\xff\xfe"), "cannot be used"),
    ):
        outcome = unscored_of("sql_equivalence", {**CONFIG, **changed}, context)
        assert (outcome.stage, said in outcome.reason) == ("config", True), outcome


def test_a_damaged_file_is_no_fault_of_the_query_that_meets_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.executescript(SHOP + "CREATE TABLE notes (text TEXT, größe TEXT);")
        database.execute("INSERT INTO notes VALUES ('kept', '')")
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'notes'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    whole = path.read_bytes()
    start = (root - 1) * size
    config = {"database": "./shop.db", "query": "SELECT count(*) FROM customers"}

    for damaged, said in (
        (whole[:start] + b"\xff" * size + whole[start + size :], "malformed"),
        (whole.replace("größe".encode(), "größe".encode("latin-1") + b"__"), "decode"),
    ):
        read = shop("SELECT * FROM notes", shop_db=damaged)
        outcome = unscored_of("sql_equivalence", config, read)
        assert (outcome.stage, said in outcome.reason) == ("config", True), outcome


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "database: is missing"),
        (
            {"database": "shop"},
            "database: 'shop' is neither SQL that ends with a semicolon nor a file",
        ),
        ({"database": "./gone.db"}, "database: the file './gone.db' is not among the files"),
        ({"database": "./a.db", "timeout_s": 61}, "timeout_s: 61 is refused"),
        ({"database": "./a.db", "max_rows": 0}, "max_rows: 0 is refused"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator rows: ") as refused:
        read_config("sql_equivalence", config, evaluator="rows", files={"a.db": b"\xff"})

    assert said in str(refused.value)

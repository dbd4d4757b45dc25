"""Run the query that the agent wrote and the expected one on a database, and compare what both return.

This is execution accuracy, as the benchmarks Spider (Yu and others, 2018; Zhong and others, 2020) and BIRD (Li and
others, 2023) measure it: how a query is written does not matter, only its rows do. The database is SQL that creates
it, or a file of the suite: one with such SQL (`./shop.sql`), or a SQLite file (`./shop.db`).

The expected query is the expected output of the case, or `query`. The agent's query is its whole answer, or the last
block between lines of three backticks. Both are run on a copy in memory.

- Values are compared as SQLite returns them: 1 equals 1.0, numbers count to 9 digits after the point, and text differs
  from numbers. Columns are compared in their order; `column_names: true` compares their names, too.
- The order of rows counts with `row_order: true`. Rows that occur twice must occur twice.
- With `graded: true` the score is the F1 of the rows that both return, otherwise it is 1 or 0.

Queries can only read: statements that write, ATTACH, PRAGMA, extensions and virtual tables such as FTS5 are refused. A
query of the agent that is refused or that SQLite cannot run scores 0, with the reason. One that takes more than
`timeout_s`, 128 MB or `max_rows` is unscored, and so is a case whose expected query or database cannot be used.

Good: an agent that turns questions into SQL, on a database small enough to read, in which wrong queries return other
rows.

Bad: a database without rows. Every wrong query returns the same nothing.

```yaml
name: same_rows
type: sql_equivalence
database: |
  CREATE TABLE customers (name TEXT, city TEXT);
  INSERT INTO customers VALUES ('Ann', 'Bremen'), ('Bo', 'Kiel');
query: SELECT name FROM customers WHERE city = 'Bremen'
```
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from pydantic import Field, field_validator

from evaluators.kinds._base import CaseFacts, Context, KindConfig, kind
from evaluators.kinds._json import fenced_blocks, format_value, shorten_text
from evaluators.kinds._prompts import is_reference, named_file
from evaluators.scoring.types import SCORE_DIGITS, Finding, Outcome, Score, Unscored

PROGRAM = Path(__file__).with_name("run_queries.py")
MEMORY_MB = 128
MAX_ROWS, MAX_TIMEOUT_S = 100_000, 60
# What the process takes beside the two queries: its start, and building the database.
SPARE_S = 20
MAX_QUERY_LENGTH = 100_000
MAX_SHOWN_ROWS = 10
MAX_KEPT_LENGTH = 4_000
# More would only slow each other down, and each may take a gigabyte.
MAX_PROCESSES = os.cpu_count() or 1
# Those of an event loop, kept while an evaluator waits for one or has one.
_slots = WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()


class SqlEquivalenceConfig(KindConfig):
    """The database, the expected query, and what counts as the same."""

    file_fields: ClassVar[tuple[str, ...]] = ("database",)

    database: str = Field(
        description="SQL that creates it, or a file of the suite: SQL such as ./shop.sql, or a SQLite file such as "
        "./shop.db.",
        json_schema_extra={"widget": "textarea"},
    )
    query: str = Field(
        "",
        description="The expected query. Empty: the expected output of the case.",
        json_schema_extra={"widget": "textarea"},
    )
    row_order: bool = Field(False, description="Compare the rows in their order.")
    column_names: bool = Field(False, description="Compare the names of the columns, too.")
    graded: bool = Field(
        False, description="Score the rows that both return, not only whether all are the same."
    )
    max_rows: int = Field(
        10_000, ge=1, le=MAX_ROWS, description="The most rows that a query may return."
    )
    timeout_s: int = Field(
        5,
        ge=1,
        le=MAX_TIMEOUT_S,
        title="Timeout in seconds",
        description=f"How long each query may take, 1 to {MAX_TIMEOUT_S} seconds.",
    )

    @field_validator("database")
    @classmethod
    def _can_be_opened(cls, database: str) -> str:
        if not is_reference(database) and ";" not in database:
            raise ValueError(
                f"{database!r} is neither SQL that ends with a semicolon nor a file such as ./shop.db"
            )
        return database


def find_missing(config: Mapping[str, Any], case: CaseFacts) -> str:
    """Return what a case lacks if neither it nor the evaluator has a query."""
    has_query = str(config.get("query") or "").strip() or case.expected_output.strip()
    return "" if has_query else "expected output"


@kind(
    label="SQL equivalence",
    icon="e-tool",
    config=SqlEquivalenceConfig,
    needs=("a database among the files of the suite", "an expected query"),
    find_missing=find_missing,
    spellings={"execution_accuracy": {}},
)
async def score(config: SqlEquivalenceConfig, context: Context) -> Outcome:
    """Return 1 if both queries return the same rows, else 0, or by the rows that both return."""
    try:
        is_file = is_reference(config.database)
        database = (
            named_file(config.database, context.files)
            if is_file
            else config.database.encode("utf-8", "replace")
        )
    except ValueError as error:
        return Unscored(str(error), stage="config")
    expected, answer = (
        _query(text) for text in (config.query or context.case.expected_output, context.output.text)
    )
    if not expected:
        return Unscored("the case has no expected query", stage="config")
    if not answer:
        return _wrong("The answer has no query", {"query": answer})
    for whose, query in (("expected", expected), ("agent's", answer)):
        if len(query) > MAX_QUERY_LENGTH:
            reason = f"the {whose} query has more than {MAX_QUERY_LENGTH:,} characters"
            return Unscored(reason, stage="limits")
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_PROCESSES))
    async with slots:
        reply = await _run(config, [expected, answer], database)
    if "problem" in reply:
        name = f"database {config.database}" if is_file else "database"
        reason = f"the {name} cannot be used: {reply['problem']}"
        return Unscored(reason, stage="config")
    wanted, found = reply["results"]
    details = {"query": answer[:MAX_KEPT_LENGTH], "expected_query": expected[:MAX_KEPT_LENGTH]}
    if "error" in wanted:
        return Unscored(f"the expected query failed: {wanted['error']}", stage="config")
    if "error" in found and found["stage"] != "query":
        return Unscored(f"the agent's query failed: {found['error']}", stage=found["stage"])
    if "error" in found:
        return _wrong(f"The query cannot be run: {found['error']}", details)
    # In a thread, as both may have very many rows.
    return await asyncio.to_thread(_compare, config, wanted, found, details)


def _query(text: str) -> str:
    """Return the last fenced block of a text, else the text."""
    blocks = list(fenced_blocks(text))
    return (blocks[-1] if blocks else text).strip()


async def _run(
    config: SqlEquivalenceConfig, queries: Sequence[str], database: bytes
) -> Mapping[str, Any]:
    """Return what both queries give, from a process whose memory can be limited."""
    request = {
        "queries": queries,
        "rows": config.max_rows,
        "seconds": config.timeout_s,
        "memory_mb": MEMORY_MB,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(PROGRAM)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(2 * config.timeout_s + SPARE_S):
            printed, _ = await process.communicate(json.dumps(request).encode() + b"\n" + database)
    except TimeoutError:
        late = {"error": "it took too long", "stage": "limits"}
        return {"results": [{"columns": [], "rows": []}, late]}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        reply: Mapping[str, Any] = await asyncio.to_thread(json.loads, printed)
    except ValueError:
        return {"problem": f"the process that reads it ended with code {process.returncode}"}
    return reply


def _compare(
    config: SqlEquivalenceConfig,
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    details: Mapping[str, Any],
) -> Score:
    expected, rows = ([_comparable(row) for row in side["rows"]] for side in (wanted, found))
    missing, more = Counter(expected) - Counter(rows), Counter(rows) - Counter(expected)
    total = len(expected) + len(rows)
    f1 = 2 * (len(expected) - missing.total()) / total if total else 1.0
    widths = [len(side["columns"]) for side in (wanted, found)]
    names = [[name.lower() for name in side["columns"]] for side in (wanted, found)]
    tables = [_table("Expected", wanted, expected), _table("Found", found, rows)]
    problem = ""
    if widths[0] != widths[1]:
        problem = f"It returns {widths[1]} columns, not {widths[0]}"
    elif config.column_names and names[0] != names[1]:
        problem = f"Its columns are {', '.join(names[1])}, not {', '.join(names[0])}"
    elif f1 == 1 and config.row_order and expected != rows:
        problem = "The rows are in another order"
    share = 0.0 if problem else f1
    if f1 < 1 and not problem:
        problem = (
            f"{missing.total()} of {len(expected)} expected rows are missing, "
            f"{more.total()} of {len(rows)} found are not expected"
        )
        tables = [
            _table("Expected and missing", wanted, list(missing.elements())),
            _table("Found and not expected", found, list(more.elements())),
        ]
    text = problem or f"It returns the expected rows, {len(rows)} in all"
    return Score(
        share if config.graded else float(not problem),
        findings=(Finding(shorten_text(text), not problem),),
        details={**details, "tables": [table for table in tables if table["count"]]},
    )


def _table(title: str, side: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the first rows as the page shows them."""
    return {
        "title": title,
        "columns": [shorten_text(column) for column in side["columns"]],
        "count": len(rows),
        "rows": [[format_value(value) for value in row] for row in rows[:MAX_SHOWN_ROWS]],
    }


def _comparable(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row in which equal numbers are equal, whatever their type."""
    return tuple(
        round(value, SCORE_DIGITS) if isinstance(value, float) and math.isfinite(value) else value
        for value in row
    )


def _wrong(text: str, details: Mapping[str, Any]) -> Score:
    return Score(0.0, findings=(Finding(text, False),), details=details)

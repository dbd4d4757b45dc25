"""A command asks no query for a single case: the number of its queries does not depend on the cases."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db(transaction=True)

FEW, MANY = 150, 300
# Rows are read and written in batches.
BATCHES = 40


def write_suite(folder: Path, count: int) -> Path:
    path = folder / f"suite-{count}.yaml"
    cases = (f"  - {{id: C-{n}, input: Where is {n}?, output: Refund {n}}}" for n in range(count))
    head = (f"name: suite-{count}", "evaluators:", "  - {type: contains, value: Refund}", "tests:")
    path.write_text("\n".join(itertools.chain(head, cases)))
    return path


def count_queries(*words: object) -> int:
    with CaptureQueriesContext(connection) as queries:
        call_command(*map(str, words))
    return len(queries)


EVALUATE = ("evaluate", "suite-{count}", "--target", "recorded")
FILES = ("--out", "{folder}/r.jsonl", "--summary", "{folder}/s.json", "--junit", "{folder}/r.xml")


@pytest.mark.parametrize(
    "words",
    [
        ("import", "{file}"),
        ("export", "suite-{count}", "--out", "{folder}/suite.yaml"),
        EVALUATE,
        (*EVALUATE, *FILES),
    ],
)
def test_queries_do_not_depend_on_the_cases(tmp_path: Path, words: tuple[str, ...]):
    counts = []
    for count in (FEW, MANY):
        file = write_suite(tmp_path, count)
        call_command("import", str(file))
        texts = [word.format(file=file, count=count, folder=tmp_path) for word in words]
        counts.append(count_queries(*texts))
    assert counts[1] - counts[0] < BATCHES

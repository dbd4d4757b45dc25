"""A result that came without its output is told without one, never with an empty text."""

from __future__ import annotations

import json

import pytest

from runs.files.importing_results import import_results
from runs.formats.results_writing import write_results
from runs.results.files import result_lines

pytestmark = pytest.mark.django_db


def test_an_imported_result_without_an_output_is_told_without_one():
    given = [
        {"eval_id": "C-1", "score": 0.9},
        {"eval_id": "C-2", "score": 0.9, "output": "Hello"},
        {"eval_id": "C-3", "error": "gone"},
    ]
    content = "\n".join(map(json.dumps, given)).encode()
    [run] = import_results(content, file="r.jsonl", suite=None, imported_by=None).runs
    lines = [json.loads(line) for line in write_results(result_lines(run))]
    assert [line["output"] for line in lines] == [None, "Hello", None]
    assert lines[0]["score"] == 0.9

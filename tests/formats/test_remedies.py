"""A problem with a file says what to do, so that nobody has to know the format to mend it."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from runs.formats.bundles import bundles_at, read_uploads
from runs.formats.finding import read_suites
from runs.formats.recorded_outputs import read_outputs
from runs.formats.results_reading import read_results
from runs.specs.problems import UnreadableFileError

SUITE = b"tests: [{id: A, input: hi}]\n"
WEIGHTED = b"evaluators: [{type: contains, value: x, weight: heavy}]\n" + SUITE
RESULT = b'{"eval_id": "A", "score": 1}\n'


def import_file(content: bytes, name: str = "s.yaml") -> Any:
    return read_suites(read_uploads([(name, BytesIO(content))]))


def import_named(*names: str) -> Any:
    return read_suites(read_uploads([(name, BytesIO(SUITE)) for name in names]))


@pytest.mark.parametrize(
    ("read", "content", "remedy"),
    [
        (read_outputs, b"[1]", "write {…} on one line"),
        (read_outputs, b"\xff", "save the file as UTF-8"),
        (read_outputs, b"", "write one per line, with id and output"),
        (read_outputs, b'{"output": "hi"}', "add it as id"),
        (read_outputs, b'{"id": "A"}', "add it as output"),
        (read_outputs, b'{"id": "A", "output": "x"}\n' * 2, "keep one of them"),
        (read_results, b"", "write one per line"),
        (read_results, b'{"score": 1}', "add it as eval_id"),
        (read_results, b'{"eval_id": "A"}', "add one of them"),
        (read_results, RESULT.replace(b'"A"', b'"' + b"A" * 999 + b'"'), "shorten it"),
        (import_file, WEIGHTED, "write one, such as 0.8"),
        (import_file, SUITE + b"max-minutes: 1\nmax_minutes: 1\n", "keep one of them"),
        (lambda content: import_file(content, "s.zip"), b"PK broken", "pack it again"),
        (lambda _: import_named("s.yaml", "s.yaml"), b"", "give it once"),
        (lambda _: import_named("../s.yaml"), b"", "give the files below it"),
        (lambda _: import_named("s/" * 300 + "s.yaml"), b"", "shorten its names"),
        (lambda _: read_suites(bundles_at([Path("nowhere")])), b"", "correct it"),
    ],
)
def test_a_problem_names_its_remedy(
    read: Callable[[bytes], Any], content: bytes, remedy: str
) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        read(content)
    assert remedy in str(refusal.value.problems[0])

"""What a process remembers of names and schemas from outside takes no memory for good."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from evaluators.kinds._json import schema_violations
from evaluators.kinds._prompts import MAX_PATH_LENGTH, reference_path
from runs.target_kinds._outputs import read_conversation

LONG, TIMES = 200_000, 10


@pytest.fixture
def kept() -> Iterator[Callable[[], int]]:
    """Return what tells how many bytes are held more than before."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_long_keys_of_replies_are_not_remembered(kept: Callable[[], int]) -> None:
    for number in range(TIMES):
        turn = {"role": "assistant", "content": "Yes", f"{number}{'x' * LONG}": 1}
        assert read_conversation([turn]).answer == "Yes"
    assert kept() < TIMES * LONG / 2


def test_long_schemas_are_not_remembered(kept: Callable[[], int]) -> None:
    for number in range(TIMES):
        assert not schema_violations(number, {"enum": [number, "x" * LONG]})
    assert kept() < TIMES * LONG / 2


def test_a_reference_is_no_longer_than_a_path() -> None:
    assert reference_path("./" + "x" * MAX_PATH_LENGTH) == "x" * MAX_PATH_LENGTH
    assert reference_path("./*" + "x" * MAX_PATH_LENGTH) == ""

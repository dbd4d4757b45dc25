"""JSON of rows that are written many at once reads as the usual encoder would have written it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.types import Verdict
from runs.models.database import _json

TEXTS = st.text(st.characters(), max_size=20)
SINGLE = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    SINGLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def read_back(text: str) -> str:
    """Return what a text of JSON says; as a text, for NaN equals nothing."""
    return repr(json.loads(text))


@given(VALUES)
def test_any_value_is_written_as_the_usual_encoder_writes_it(value: Any) -> None:
    assert read_back(_json(value)) == read_back(json.dumps(value))
    assert _json(value).isascii()


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "value",
    [
        *([], {}, [[]], {"a": {}}, "", 0, False, None, (), (1, (2,))),
        *('\x00\x1f\x7f\b\f\n\r\t"\\/\u2028é\U0001f600', "half \ud800", {"half \udfff": 1}),
        *(0.1 + 0.2, -0.0, 5e-324, 1e-7, 1e16, 1.7976931348623157e308, 1e22, float("inf")),
        *(2**63, -(2**64), 10**300, nested(253), nested(254), nested(400)),
        *(Verdict.PASS, {Verdict.FAIL: [Verdict.PASS]}, {2: 1, True: 3, None: 4}),
    ],
)
def test_what_encoders_differ_in_is_written_the_same(value: Any) -> None:
    assert read_back(_json(value)) == read_back(json.dumps(value))


@pytest.mark.parametrize(
    "value", [object(), Decimal("0.1"), datetime(2026, 1, 2, tzinfo=UTC), UUID(int=1), b"a", {"a"}]
)
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        _json({"cost": [value]})

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import pytest

from runs.filters.fields import Field, Vocabulary, check
from runs.filters.language import read_filter
from runs.filters.matching import matching

VALUES: Mapping[str, Mapping[int, Any]] = {
    "state": {1: {"pass"}, 2: {"fail"}, 3: {"error"}, 4: {"borderline"}},
    "score": {1: 0.9, 2: 0.3, 4: 0.7},
    "tags": {1: {"billing"}, 2: {"billing", "late"}},
    "channel": {1: {"email"}, 2: {"chat"}},
    "tone": {1: 0.30000000001, 2: 0.5},
}
BEFORE: Mapping[str, Mapping[int, Any]] = {
    "state": {1: {"pass"}, 2: {"pass"}, 3: {"pass"}, 4: {"fail"}},
    "score": {1: 0.9, 2: 0.8, 3: 0.5, 4: 0.65},
}
TEXTS: Mapping[tuple[str, str], Set[int]] = {("refund", ""): {1, 2}, ("late", "output"): {2, 3}}


class FourCases:
    """Four cases with the values above."""

    keys = frozenset({1, 2, 3, 4})

    def values(self, field: Field) -> Mapping[int, Any]:
        return VALUES[field.key]

    def before(self, field: Field) -> Mapping[int, Any]:
        return BEFORE[field.key]

    def containing(self, text: str, field: Field | None) -> Set[int]:
        return TEXTS[text, field.key if field else ""]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {1, 2, 3, 4}),
        ("refund", {1, 2}),
        ("-refund", {3, 4}),
        ("output = late", {2, 3}),
        ("output != late", {1, 4}),
        ("refund output = late", {2}),
        ("refund or output = late", {1, 2, 3}),
        ("verdict = fail", {2}),
        ("verdict = fail, error", {2, 3}),
        ("verdict != fail", {1, 3, 4}),
        ("not verdict = fail", {1, 3, 4}),
        ("score < 0.5", {2}),
        ("score <= 0.7", {2, 4}),
        ("score >= 70%", {1, 4}),
        ("score = 0.7", {4}),
        ("score != 0.7", {1, 2}),
        ("score = none", {3}),
        ("score != none", {1, 2, 4}),
        ("score = none, 0.7", {3, 4}),
        ("score != none, 0.7", {1, 2}),
        ("not score < 0.5", {1, 3, 4}),
        ("tone = 0.3", {1}),
        ("tag = billing", {1, 2}),
        ("tag = billing tag = late", {2}),
        ("tag != late", {1, 3, 4}),
        ("meta.channel = email", {1}),
        ("meta.channel != email", {2, 3, 4}),
        ("meta.channel != email, none", {2}),
        ("tag = none", {3, 4}),
        ("tag != none", {1, 2}),
        ("tag = none, late", {2, 3, 4}),
        ("meta.channel = none", {3, 4}),
        ("not (verdict = pass or verdict = fail)", {3, 4}),
        ("score fell", {2}),
        ("score rose", {4}),
        ("score changed", {2, 4}),
        ("score fell by 0.5", {2}),
        ("score rose by 5%", {4}),
        ("score rose by 0.06", set()),
        ("score changed by 0.1", {2}),
        ("verdict fell", {2}),
        ("verdict rose", {4}),
        ("verdict changed", {2, 4}),
    ],
)
def test_which_cases_match(text: str, found: set[int]) -> None:
    vocabulary = Vocabulary(evaluators=("tone",), compares=True)
    assert matching(check(read_filter(text), vocabulary), FourCases()) == found

"""The language of filters: what is read, refused and written."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.filters.language import (
    All,
    Condition,
    Direction,
    FieldChange,
    FieldComparison,
    FilterError,
    Not,
    Operator,
    Some,
    Words,
    read_filter,
)

TONE = FieldComparison("tone", Operator.LESS, ("0.5",))
TAG = FieldComparison("tag", Operator.EQUAL, ("billing",))
FELL = FieldChange("tone", Direction.FELL)


def both(*conditions: Condition) -> Condition:
    """Return conditions that all must hold."""
    return All(conditions)


def either(*conditions: Condition) -> Condition:
    """Return conditions of which one must be true."""
    return Some(conditions)


def without_places(condition: Condition) -> Condition:
    """Return a condition without where it stands in the text."""
    if isinstance(condition, FieldComparison):
        return FieldComparison(condition.field, condition.operator, condition.values)
    if isinstance(condition, FieldChange):
        return FieldChange(condition.field, condition.direction, condition.by)
    if isinstance(condition, Not):
        return Not(without_places(condition.condition))
    if isinstance(condition, All | Some):
        return type(condition)(tuple(map(without_places, condition.conditions)))
    return condition


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("", ()),
        ("   ", ()),
        ("refund", (Words("refund"),)),
        ("refund late", (Words("refund"), Words("late"))),
        ('"card number"', (Words("card number"),)),
        ('("(" ")")', (Words("("), Words(")"))),
        (r'"a \"quoted\" word"', (Words('a "quoted" word'),)),
        ("tone < 0.5", (TONE,)),
        ("tone<0.5", (TONE,)),
        ("tag:billing", (TAG,)),
        ("tag = billing", (TAG,)),
        ("tone < 0.5 tag = billing", (TONE, TAG)),
        ("tone < 0.5 and tag = billing", (TONE, TAG)),
        ("tone < 0.5 AND tag = billing", (TONE, TAG)),
        ("tone < 0.5 or tag = billing", (either(TONE, TAG),)),
        ("tone < 0.5 or tag = billing refund", (either(TONE, both(TAG, Words("refund"))),)),
        ("(tone < 0.5 or tag = billing) refund", (either(TONE, TAG), Words("refund"))),
        ("not tone < 0.5", (Not(TONE),)),
        ("-tag:billing", (Not(TAG),)),
        ("-(tone < 0.5 tag:billing)", (Not(both(TONE, TAG)),)),
        ("tag = a, b", (FieldComparison("tag", Operator.EQUAL, ("a", "b")),)),
        ("case:C:1", (FieldComparison("case", Operator.EQUAL, ("C:1",)),)),
        ("score > -0.5", (FieldComparison("score", Operator.MORE, ("-0.5",)),)),
        ('tag != "two words"', (FieldComparison("tag", Operator.UNEQUAL, ("two words",)),)),
        ('tag = ""', (FieldComparison("tag", Operator.EQUAL, ("",)),)),
        ('"two words" >= 1', (FieldComparison("two words", Operator.AT_LEAST, ("1",)),)),
        ("cost <= $0.01", (FieldComparison("cost", Operator.AT_MOST, ("$0.01",)),)),
        ("tone fell", (FELL,)),
        ("tone Fell BY 0.1", (FieldChange("tone", Direction.FELL, "0.1"),)),
        ("verdict changed refund", (FieldChange("verdict", Direction.CHANGED), Words("refund"))),
        ("fell", (Words("fell"),)),
        ('"tone" "fell"', (Words("tone"), Words("fell"))),
        ('"card number" fell', (FieldChange("card number", Direction.FELL),)),
        ("well-known", (Words("well-known"),)),
    ],
)
def test_what_is_read(text: str, conditions: tuple[Condition, ...]) -> None:
    assert without_places(read_filter(text)) == All(conditions)


@pytest.mark.parametrize(
    ("text", "message", "part"),
    [
        ("tone <", "Write a value after “tone <”", "tone <"),
        ("tag = a,", "Write a value after “tag ,”", "tag = a,"),
        ("< 0.5", "Write the name of a field before", "<"),
        ("tone < 0.5, 0.6", "takes one value, not 2", "tone < 0.5, 0.6"),
        ("(tone < 0.5", "This “(” has no “)”", "("),
        ("tone < 0.5)", "This “)” has no “(”", ")"),
        ("()", "nothing in the parentheses", "("),
        ("a or", "Write a condition after “or”", "or"),
        ("or a", "Write a condition before “or”", "or"),
        ("a and", "Write a condition after “and”", "and"),
        ("and a", "Write a condition before “and”", "and"),
        ("a and and b", "Write a condition before “and”", "and"),
        ("not", "Write a condition after “not”", "not"),
        ("not or a", "Write a condition after “not”", "not"),
        ('"refund', "never closed", '"refund'),
        ('""', "no words between the quotes", '""'),
        ("a ! b", "“Not equal” is written !=", "!"),
        ("tone fell by", "Write a number after “by”", "tone fell by"),
        ("a, b", "Write the name of a field before", ","),
        ("(" * 30 + "a" + ")" * 30, "at most 20 deep", "("),
        ("a " * 21, "at most 20 conditions", "a"),
        ("a" * 1001, "at most 1000 characters", "a"),
    ],
)
def test_what_is_refused(text: str, message: str, part: str) -> None:
    with pytest.raises(FilterError) as refusal:
        read_filter(text)
    assert message in refusal.value.message
    assert text[refusal.value.start : refusal.value.end] == part


NAMES = st.text(min_size=1, max_size=8)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    st.one_of(
        st.builds(Words, NAMES),
        st.builds(
            FieldComparison,
            NAMES,
            st.sampled_from([Operator.EQUAL, Operator.UNEQUAL]),
            st.lists(st.text(max_size=5), min_size=1, max_size=3).map(tuple),
        ),
        st.builds(
            FieldChange,
            NAMES,
            st.sampled_from(Direction),
            st.sampled_from(["", "0.1"]),
        ),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: All(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Some(tuple(parts))),
    ),
    max_leaves=8,
)


@given(CONDITIONS)
def test_what_is_written_is_read_as_it_was(condition: Condition) -> None:
    expected = condition if isinstance(condition, All) else All((condition,))
    assert without_places(read_filter(str(condition))) == expected


@given(st.text(alphabet=' ab"()-<>=!:,.\\0', max_size=30))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    with contextlib.suppress(FilterError):
        read_filter(text)
        return
    with pytest.raises(FilterError) as refusal:
        read_filter(text)
    assert 0 <= refusal.value.start <= refusal.value.end <= len(text)
    assert refusal.value.message

"""What may leave the site at each detail level of a share link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from runs.documents import (
    CASE_NAMES,
    FIGURES,
    OUTPUTS,
    TRACES,
    DetailLevel,
    Document,
    Dollars,
)
from runs.scan import document_texts
from runs.sharing.documents import WHITELISTS
from runs.sharing.parts import TextBudget
from runs.sharing.whitelist import Whitelist, build_whitelist, document_digest, filter_document

LEVELS = list(DetailLevel)


def filled(whitelist: Whitelist, place: str = "") -> Any:
    """Return a document with every value of a whitelist; each text names the lowest level that shows it."""
    if isinstance(whitelist, DetailLevel):
        return f"<{whitelist.value}> {place}"
    if isinstance(whitelist, Mapping):
        return {name: filled(one, f"{place}/{name}") for name, one in whitelist.items()}
    return [filled(whitelist[0], place), filled(whitelist[0], place)]


def add_unknown_fields(value: Any) -> Any:
    """Add unknown fields to every object of a document."""
    if isinstance(value, Mapping):
        grown = {name: add_unknown_fields(one) for name, one in value.items()}
        return grown | {"brand_new": "LEAK", "nested": {"text": "LEAK"}, "new_rows": ["LEAK"]}
    return [add_unknown_fields(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", WHITELISTS)
@pytest.mark.parametrize("detail_level", LEVELS)
def test_a_detail_level_lets_through_all_that_is_named_for_it_and_nothing_deeper(
    kind: str, detail_level: DetailLevel
) -> None:
    whole = filled(WHITELISTS[kind])
    texts = [
        text for _, text in document_texts(filter_document(whole, WHITELISTS[kind], detail_level))
    ]
    told = {text.split(">")[0].strip("<") for text in texts}
    assert told == {one.value for one in LEVELS if detail_level.reaches(one)}
    wanted = [text for _, text in document_texts(whole)]
    assert texts == [
        one for one in wanted if detail_level.reaches(DetailLevel(one.split(">")[0][1:]))
    ]


@pytest.mark.parametrize("kind", WHITELISTS)
def test_what_is_new_in_a_document_is_not_shared_until_it_is_named(kind: str) -> None:
    let = filter_document(
        add_unknown_fields(filled(WHITELISTS[kind])), WHITELISTS[kind], DetailLevel.TRACES
    )
    assert "LEAK" not in repr(let)
    assert let == filter_document(filled(WHITELISTS[kind]), WHITELISTS[kind], DetailLevel.TRACES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
NAMED = st.sampled_from(["title", "cases", "output"])
SHAPED = st.recursive(
    st.sampled_from(LEVELS),
    lambda inner: (
        st.dictionaries(NAMED, inner, max_size=3) | st.lists(inner, min_size=1, max_size=1)
    ),
    max_leaves=8,
)


@given(
    document=st.dictionaries(NAMED | st.text(max_size=3), JSON),
    whitelist=st.dictionaries(NAMED, SHAPED),
    detail_level=st.sampled_from(LEVELS),
)
def test_every_value_that_leaves_stands_where_a_value_is_named(
    document: dict[str, Any], whitelist: dict[str, Whitelist], detail_level: DetailLevel
) -> None:
    def check(value: Any, whitelist: Whitelist) -> None:
        if isinstance(whitelist, DetailLevel):
            assert detail_level.reaches(whitelist)
            assert not isinstance(value, list | dict)
        elif isinstance(whitelist, Mapping):
            assert set(value) <= set(whitelist)
            for name in value:
                check(value[name], whitelist[name])
        else:
            assert isinstance(whitelist, Sequence)
            for one in value:
                check(one, whitelist[0])

    check(filter_document(document, whitelist, detail_level), whitelist)


class Part(Document):
    text: Annotated[str, OUTPUTS]
    unnamed: str


class Whole(Document):
    count: Annotated[int | None, FIGURES]
    passed: Annotated[int, FIGURES] = Field(alias="pass")
    cost: Annotated[Dollars | None, CASE_NAMES]
    interval: Annotated[tuple[float, float] | None, FIGURES]
    parts: Annotated[list[Part], TRACES]
    part: Part | None
    values: Annotated[dict[str, int], FIGURES]
    unnamed: str
    unnamed_parts: list[str]


def test_what_leaves_is_read_from_the_fields_and_a_document_raises_what_it_holds() -> None:
    assert build_whitelist(Whole) == {
        "count": FIGURES,
        "pass": FIGURES,
        "cost": CASE_NAMES,
        "interval": [FIGURES],
        "parts": [{"text": TRACES}],
        "part": {"text": OUTPUTS},
        # An object is never let through where a single value is named.
        "values": FIGURES,
    }


@pytest.mark.parametrize("value", [{"secret": 1}, ["secret"], b"secret", object()])
def test_where_a_text_is_named_nothing_else_is_filter_document(value: object) -> None:
    assert (
        filter_document({"title": value}, {"title": DetailLevel.FIGURES}, DetailLevel.TRACES) == {}
    )


def test_how_much_is_kept_back_is_not_told_either() -> None:
    whitelist: Mapping[str, Whitelist] = {
        "cases": [{"key": DetailLevel.CASE_NAMES}],
        "note": DetailLevel.FIGURES,
    }
    document = {"cases": [{"key": "C-1"}, {"key": "C-2"}], "note": "two"}
    assert filter_document(document, whitelist, DetailLevel.FIGURES) == {"note": "two"}


def test_a_long_text_is_cut_and_says_how_much_of_it_there_is() -> None:
    budget = TextBudget(30_000)
    whole, cut, last = (
        budget.cut("short"),
        budget.cut("x" * 50_000),
        budget.cut("y" * 15_000),
    )
    assert whole == {"text": "short", "size": 5, "shown": 5, "is_cut": False}
    assert (cut["shown"], cut["size"], cut["is_cut"]) == (20_000, 50_000, True)
    assert (last["shown"], len(last["text"]), last["size"]) == (9_995, 9_995, 15_000)
    assert budget.cut("z") == {"text": "", "size": 1, "shown": 0, "is_cut": True}


def test_a_text_of_which_the_beginning_was_read_keeps_its_size() -> None:
    assert TextBudget().cut("begin", 5_000_000) == {
        "text": "begin",
        "size": 5_000_000,
        "shown": 5,
        "is_cut": True,
    }


def test_equal_documents_have_one_digest_and_others_another() -> None:
    assert document_digest({"a": 1, "b": [2]}) == document_digest({"b": [2], "a": 1})
    assert document_digest({"a": 1}) != document_digest({"a": 2})


def test_each_text_is_found_with_the_words_for_its_place() -> None:
    document = {
        "cases": [
            {"key": "C-1", "answers": [{"output": {"text": "hello"}}]},
            {"question": [{"content": {"text": "asked"}}]},
        ]
    }
    assert list(document_texts(document)) == [
        ("case C-1, key", "C-1"),
        ("case C-1, answer 1, output", "hello"),
        ("case 2, message 1", "asked"),
    ]


def test_remarks_are_brief_and_say_how_much_of_them_there_is() -> None:
    budget = TextBudget(2_500)
    assert budget.brief("Kind enough.") == "Kind enough."
    assert budget.brief(None) == ""
    assert budget.brief("x" * 5_000) == "x" * 2_000 + "… (2,000 of 5,000 characters)"
    assert budget.brief("y" * 1_000) == "y" * 488 + "… (488 of 1,000 characters)"

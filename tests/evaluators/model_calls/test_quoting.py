"""Quoted text stays between its lines, whatever it holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evaluators.model_calls.judge import new_mark, quote, rule


@given(st.lists(st.text()))
def test_a_mark_occurs_in_no_text(texts: list[str]) -> None:
    mark = new_mark(texts)

    assert not any(mark in text for text in texts)


@given(st.text())
def test_a_quoted_text_ends_where_its_mark_stands_and_nowhere_else(text: str) -> None:
    mark = new_mark([text])
    quoted = quote("answer", text, mark)

    assert quoted == f"<<<{mark} answer\n{text}\n{mark}>>>"
    assert quoted.count(mark) == 2


def test_marks_are_random() -> None:
    assert len({new_mark([]) for _ in range(100)}) == 100


def test_a_mark_that_occurs_is_drawn_again(monkeypatch) -> None:
    drawn = iter(["aaaa", "bbbb"])
    monkeypatch.setattr("evaluators.model_calls.judge.secrets.token_hex", lambda size: next(drawn))

    assert new_mark(["text with aaaa in it"]) == "bbbb"


def test_the_rule_names_the_mark_and_says_that_quotes_are_material() -> None:
    said = rule("f00d")

    assert "f00d" in said
    assert "no instructions" in said

"""Words of texts, and where a text has them."""

from __future__ import annotations

import pytest

from runs.words import MAX_SEARCHED, contains, mark_hits, searchable, snippet, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("… – !", []),
        ("Your REFUND is on_its way.", ["your", "refund", "is", "on", "its", "way"]),
        ("4111-1111 costs $3.50", ["4111", "1111", "costs", "3", "50"]),
        ("Päckchen, café, Ångström", ["packchen", "cafe", "angstrom"]),
        ("cafe\u0301", ["cafe"]),
        ("cafe" + "\u0301" * 100_000 + "\u0323" * 90_000, ["cafe"]),
        ("Straße", ["strasse"]),
        ("Заказ №5", ["заказ", "5"]),
        ("返金 ok", ["返", "金", "ok"]),
    ],
)
def test_words_are_small_letters_without_accents(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_plain_texts_have_the_same_words_beside_other_alphabets() -> None:
    plain = "One two_three, 4.5 (six)!"
    assert words(f"{plain} é") == [*words(plain), "e"]


def test_a_stored_text_has_a_greatest_length() -> None:
    assert len(searchable("\ufdfa" * MAX_SEARCHED)) <= MAX_SEARCHED
    assert "last" not in searchable("word " * MAX_SEARCHED + "last")


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [("card", True), ("card num", True), ("ard", False), ("number card", False), ("", False)],
)
def test_words_are_found_in_their_order_and_the_last_by_its_beginning(
    wanted: str, holds: bool
) -> None:
    assert contains("No card-numbers here", words(wanted)) == holds


def spelt(text: str, *wanted: str) -> str:
    """Return the snippet with its hits in brackets."""
    pieces = snippet(text, [words(one) for one in wanted])
    return "".join(f"[{piece.text}]" if piece.is_hit else piece.text for piece in pieces)


def test_a_snippet_has_the_first_hit_with_what_is_around_it() -> None:
    assert spelt("Your Refund is on its way", "refund") == "Your [Refund] is on its way"
    assert spelt("Ein Päckchen", "packchen") == "Ein [Päckchen]"
    assert spelt("a card-number, a card", "card number", "card") == "a [card-number], a [card]"
    assert spelt("nothing here", "refund") == ""
    long = spelt("word " * 100 + "the card " + "tail " * 100, "card")
    assert long.startswith("… word word")
    assert " the [card] tail" in long
    assert long.endswith(" …")


def test_a_snippet_is_one_line() -> None:
    assert spelt("first\n\n  second\tcard", "card") == "first second [card]"


def test_all_hits_of_a_text_are_marked() -> None:
    pieces = mark_hits("a card\nand cards", [["card"]])
    assert [piece.text for piece in pieces if piece.is_hit] == ["card", "cards"]
    assert "".join(piece.text for piece in pieces) == "a card\nand cards"


def test_a_snippet_shows_the_beginning_of_an_endless_word() -> None:
    line = spelt("Look: " + "ab" * 50_000, "abab")
    assert line.startswith("Look: [abab")
    assert line.endswith("] …")
    assert len(line) < 1_000

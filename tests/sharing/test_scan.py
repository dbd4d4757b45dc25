"""What looks like a secret in a document to be shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.scan import scan

KEYS = (
    "sk-proj-4fJ2kQ9sLmX7vT1bR8nW",
    "sk_live_51HxY2eZvKYlo2C9",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl",
    "glpat-xYz12345678901234567",
    "xoxb-123456789012-abcdefghijkl",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6",
    "hf_AbCdEfGhIjKlMnOpQrStUv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----",
    "postgres://app:hunter22@localhost/app",
    "Authorization: Bearer abcdef1234567890abcd",
    'api_key = "correcthorsebattery"',
    "password: swordfish99",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
    "Zx9Kq2Lm8Pv4Rt6Wy1Bn3Dg5Hj7",
)
HARMLESS = (
    "The tent arrived torn. What now?",
    "support/refunds/how-to-return-a-torn-tent-within-30-days",
    "a1b2c3d4-e5f6-4711-8899-aabbccddeeff",
    "2026-05-12T09:02:11.123456+00:00",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "weighted_average_of_all_the_evaluators_below",
    "https://evals.example.com/suites/support/",
    "user@ home, or @mention",
    "$8.63 (95% CI −2.6 to −1.1 pts)",
)


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_is_found_once_and_not_repeated(key: str) -> None:
    found = scan([("output", f"It says {key} here.")])
    assert [(match.kind, match.place) for match in found.listed] == [("key-like string", "output")]
    assert found.count == 1
    assert key not in found.listed[0].shown


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_texts_warn_of_nothing(text: str) -> None:
    assert scan([("output", text)]).listed == ()


def test_many_beginnings_of_a_key_are_read_in_time() -> None:
    """With every beginning followed to the end, a text of this length took minutes."""
    assert scan([("output", "-eyJaaaaaaaa" * 50_000)]).listed == ()


def test_an_address_is_found_in_each_place_it_stands_in() -> None:
    texts = [
        ("case C-1, output", "Write to jo.doe+x@mail.example.com!"),
        ("title", "a@b.io a@b.io"),
    ]
    assert [(match.kind, match.place, match.shown) for match in scan(texts).listed] == [
        ("email address", "case C-1, output", "j…@mail.example.com"),
        ("email address", "title", "a…@b.io"),
    ]


def test_of_many_finds_all_are_counted_and_the_first_are_named() -> None:
    found = scan((f"case {n}", f"someone{n}@example.com") for n in range(80))
    assert (len(found.listed), found.count, found.unlisted) == (50, 80, 30)


@given(st.text(alphabet="abzXY019@.-_/+= :\neyJ", max_size=400))
def test_no_text_breaks_the_search(text: str) -> None:
    found = scan([("here", text)])
    assert found.count == len(found.listed) + found.unlisted


@pytest.mark.parametrize("piece", ["eyJ", "a@", "sk-", "a1B", "x:", "password=", "://a:"])
def test_a_long_text_of_beginnings_is_searched_to_its_end(piece: str) -> None:
    scan([("output", piece * 20_000)])

"""A secret is found in what came back however it is spelled, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaluators.model_calls.redaction import redact, redact_bytes, redact_json

VISIBLE = [chr(number) for number in range(32, 127)]
SECRETS = st.text(VISIBLE, min_size=10, max_size=40).map(str.strip).filter(lambda s: len(s) > 9)


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "json": lambda s: json.dumps(s)[1:-1],
    "json in json": lambda s: json.dumps(json.dumps(s)),
    "json with slashes": lambda s: json.dumps(s)[1:-1].replace("/", "\\/"),
    "json by number": lambda s: "".join(f"\\u{ord(sign):04x}" for sign in s),
    "json by number, capitals": lambda s: "".join(f"\\u{ord(sign):04X}" for sign in s),
    "json by number in json": lambda s: "".join(f"\\\\u{ord(sign):04x}" for sign in s),
    "url": lambda s: quote(s, safe=""),
    "url, small": lambda s: "".join(f"%{ord(sign):02x}" for sign in s),
    "url twice": lambda s: quote(quote(s, safe=""), safe=""),
    "form": quote_plus,
    "html": html.escape,
    "html by number": lambda s: "".join(f"&#{ord(sign)};" for sign in s),
    "html by number, hexadecimal": lambda s: "".join(f"&#x{ord(sign):X};" for sign in s),
    "html twice": lambda s: html.escape(html.escape(s)),
    "base64": packed,
    "base64 after one": lambda s: packed(f"u{s}"),
    "base64 after two": lambda s: packed(f"u:{s} and so on"),
    "base64 of user and secret": lambda s: packed(f"user:{s}"),
    "base64 for urls": lambda s: base64.urlsafe_b64encode(f"user:{s}".encode()).decode(),
    "base64 in lines": lambda s: base64.encodebytes(f"{'x' * 50}{s}".encode()).decode(),
    "base64 in json": lambda s: json.dumps(packed(f"user:{s}")).replace("/", "\\/"),
    "hexadecimal": lambda s: s.encode().hex(),
}


@given(SECRETS)
@example("p+q/r=s&t'\"<u>")
@example('\\\\a\\"b\\/c\\u002B')
@example("%25%2B&amp;+ +%")
def test_a_secret_is_found_in_every_spelling(secret: str) -> None:
    for spelling, spell in SPELLINGS.items():
        spelled = spell(secret)

        found = redact(f"before, {spelled}, after", (secret,), "[secret]")

        assert "[secret]" in found, spelling
        assert spelled not in found, spelling
        assert secret not in found, spelling
        assert found.startswith("before, "), spelling
        assert found.endswith(", after"), spelling
        hidden = redact_bytes(f"x{spelled}".encode(), (secret,), "[secret]")
        assert hidden != f"x{spelled}".encode(), spelling


@pytest.mark.parametrize(
    "spell",
    [
        *(str, lambda s: json.dumps(s)[1:-1], lambda s: json.dumps(json.dumps(s))),
        *(lambda s: quote(s, safe=""), packed, lambda s: s.encode().hex()),
        lambda s: "".join(f"&#{ord(sign)};" for sign in s),
    ],
    ids=["as it is", "json", "json in json", "url", "base64", "hexadecimal", "html by number"],
)
def test_a_password_beyond_ascii_is_found(spell: Callable[[str], str]) -> None:
    secret = "user:p\N{LATIN SMALL LETTER O WITH DIAERESIS}\N{EURO SIGN}\N{GRINNING FACE}word"
    spelled = spell(secret)

    found = redact(f"before, {spelled}, after", (secret,), "[secret]")
    content = redact_bytes(f"\0{spelled}".encode(), (secret,), "[secret]")

    assert "[secret]" in found
    assert spelled not in found
    assert b"[secret]" in content


@given(SECRETS, st.sampled_from(["as it is", "json by number", "url", "html", "base64"]))
@example("000000000\\", "json by number")
@example("000000000%", "url")
@example("000000000&", "html")
def test_no_text_name_or_list_of_a_json_value_holds_one(secret: str, spelling: str) -> None:
    spelled = SPELLINGS[spelling](secret)
    value = {"a": [{spelled: 1, "b": f"x {spelled}"}], "c": json.dumps({"d": spelled}), "e": 2.5}

    found = redact_json(value, (secret,), "[secret]")

    assert "[secret]" in found["a"][0]
    assert "[secret]" in found["a"][0]["b"]
    assert "[secret]" in found["c"]
    assert found["e"] == 2.5
    assert secret not in str(found)


def test_a_file_in_base64_stays_one() -> None:
    value = {"file": packed("# Key\nuser:p+q/r=s-tuv\n"), "number": 1234567890}

    found = redact_json(value, ("p+q/r=s-tuv", "1234567890"), "[secret]")

    assert base64.b64decode(found["file"]) == b"# Key\nuser:[secret]\n"
    assert found["number"] == "[secret]"


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_what_holds_no_secret_stays_as_it_is(value: object) -> None:
    assert redact_json(value, ("p+q/r=s-tuv",), "[secret]") == value


def test_without_secrets_there_is_nothing_to_find() -> None:
    assert redact("p+q", ("",), "[secret]") == "p+q"


@pytest.mark.parametrize("secret", ["sk-key_123456", "/a+b c12345", "é≠ 123456", "6afe-012345"])
def test_a_search_skips_what_no_secret_begins_with(
    secret: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A reply of megabytes holds up all others of its worker while each of its characters is tried.
    plain = re.compile
    monkeypatch.setattr(re, "compile", lambda pattern: plain(pattern, re.DEBUG))
    redact("x", (secret,), "[secret]")
    monkeypatch.undo()

    starts = re.findall(r"INFO \d+ (0b\d+)", capsys.readouterr().out)
    assert len(starts) == 5
    assert "0b0" not in starts

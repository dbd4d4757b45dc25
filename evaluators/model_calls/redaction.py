"""Redact secrets in the answers of servers, in every encoding."""

from __future__ import annotations

import base64
import binascii
import html.entities
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

# Shorter base64 and shorter numbers occur by chance.
MIN_FOUND = 6
# Backslashes before a character in JSON, in JSON within JSON, and one level more.
# It begins with a plain one, as every alternative does: then the search skips all other characters at once.
ESCAPE = r"\\\\{0,7}"
BREAK = rf"(?:[\r\n]|{ESCAPE}[rn])*"
NAMED: dict[str, list[str]] = {}
for _name, _meant in html.entities.html5.items():
    if _name.endswith(";"):
        NAMED.setdefault(_meant, []).append(_name)


def redact(text: str, secrets: tuple[str, ...], mark: str) -> str:
    """Return the text with the mark in place of every secret.

    A secret is also found with characters encoded for URLs (%2B), HTML (&#43;) and JSON (\\u002B, also in
    JSON within JSON), in hexadecimal, and inside base64.
    """
    for pattern in _patterns(secrets):
        text = pattern.sub(mark, text)
    return text


def redact_bytes(content: bytes, secrets: tuple[str, ...], mark: str) -> bytes:
    """Return the content of a file with the mark in place of every secret."""
    # A file has the bytes of UTF-8, and each is one character here.
    as_bytes = (secret.encode().decode("latin-1") for secret in secrets)
    return redact(content.decode("latin-1"), (*secrets, *as_bytes), mark).encode("latin-1")


def redact_json(value: Any, secrets: tuple[str, ...], mark: str) -> Any:
    """Return a JSON value with the mark in place of every secret in its texts, names and numbers.

    A text that is base64 stays base64. Raises RecursionError for values nested too deeply.
    """
    text = json.dumps(value, ensure_ascii=False)
    if not any(pattern.search(text) for pattern in _patterns(secrets)):
        return value
    return _within(value, secrets, mark)


def _within(value: Any, secrets: tuple[str, ...], mark: str) -> Any:
    if isinstance(value, str):
        return _recoded(value, secrets, mark) or redact(value, secrets, mark)
    if isinstance(value, Mapping):
        return {
            redact(name, secrets, mark): _within(part, secrets, mark)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [_within(part, secrets, mark) for part in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        digits = json.dumps(value)
        is_secret = len(digits) >= MIN_FOUND and redact(digits, secrets, mark) != digits
        return mark if is_secret else value
    return value


def _recoded(text: str, secrets: tuple[str, ...], mark: str) -> str:
    """Return base64 that contained a secret encoded again without it, "" for anything else."""
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return ""
    without = redact_bytes(content, secrets, mark)
    return "" if without == content else base64.b64encode(without).decode()


@lru_cache(maxsize=64)
def _patterns(secrets: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of the secrets, the longest first, as it may contain a shorter one."""
    ordered = sorted(filter(None, set(secrets)), key=len, reverse=True)
    plain = [_encoded(secret) for secret in ordered]
    packed = [
        way for secret in ordered for way in (*_in_base64(secret), _in_hexadecimal(secret)) if way
    ]
    return tuple(re.compile(pattern) for pattern in (*plain, *packed))


def _encoded(secret: str) -> str:
    return "".join(
        _backslashes(len(list(run))) if sign == "\\" else _sign(sign) * len(list(run))
        for sign, run in groupby(secret)
    )


def _sign(character: str) -> str:
    encodings = list(_numbered(character))
    if character in "\"'/":
        encodings.append(ESCAPE + character)
    if character == " ":
        encodings.append(r"\+")
    # The plain character comes last: in &amp; it would leave a rest.
    return f"(?:{'|'.join([*encodings, re.escape(character)])})"


def _backslashes(count: int) -> str:
    """Return the pattern of several backslashes; JSON doubles each, so match the whole run."""
    runs = "|".join(rf"\\{{{count * times}}}" for times in (8, 4, 2, 1))
    return f"(?:(?:{'|'.join(_numbered(chr(92)))}){{{count}}}|{runs})"


def _numbered(sign: str) -> Iterator[str]:
    """Yield the encodings of a character by its number, or in HTML by its name."""
    number = ord(sign)
    digits = _any_case(f"{number:02x}")
    names = "".join(f"|{name}" for name in NAMED.get(sign, ()))
    yield "".join(f"%(?:25)*{_any_case(f'{byte:02x}')}" for byte in sign.encode())
    yield "".join(f"{ESCAPE}u{_any_case(unit.hex())}" for unit in _units(sign))
    if number < 256:
        yield f"{ESCAPE}x{digits}"
    yield f"&(?:amp;)*(?:#0*{number};?|#[xX]0*{digits};?{names})"


def _units(sign: str) -> Iterator[bytes]:
    """Yield the two bytes of each unit of UTF-16, by which JSON writes a character: some take two units."""
    encoded = sign.encode("utf-16-be")
    for start in range(0, len(encoded), 2):
        yield encoded[start : start + 2]


def _any_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the patterns of the secret inside base64, where it can have three offsets."""
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        content = bytes(before) + secret.encode()
        packed = base64.b64encode(content).decode().rstrip("=")
        # The last character also holds bits of what follows.
        is_shared = len(content) % 3 > 0
        certain = packed[skipped : -1 if is_shared else None]
        rest = f"{BREAK}[A-Za-z0-9+/_-]?={{0,2}}" if is_shared else ""
        if len(certain) >= MIN_FOUND:
            yield BREAK.join(map(_sign_of_base64, certain)) + rest


def _sign_of_base64(sign: str) -> str:
    # The alphabet for URLs has - and _ instead.
    others = {"+": "-", "/": "_"}
    return f"(?:{others[sign]}|{_sign(sign)})" if sign in others else sign


def _in_hexadecimal(secret: str) -> str:
    return _any_case(secret.encode().hex()) if len(secret) >= MIN_FOUND else ""

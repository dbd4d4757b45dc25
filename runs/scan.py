"""Search texts that others will see for strings that look like keys, and for email addresses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# The words for one item of a list; a number or a key follows the word.
ROWS = {
    "answers": "answer",
    "cases": "case",
    "comments": "comment",
    "differences": "difference",
    "evaluators": "evaluator",
    "facts": "fact",
    "measures": "figure",
    "metrics": "metric",
    "outcomes": "outcome",
    "question": "message",
    "remarks": "remark",
    "replies": "reply",
    "rules": "rule",
    "sides": "run",
    "steps": "step",
    "suites": "suite",
    "warnings": "warning",
}
# Field names that a place leaves out, since they tell a reader nothing.
SILENT = ("content", "text", "value")


def document_texts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text of a document, preceded by its place: `case C-012, answer 2, output`."""
    yield from _texts(document, ())


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield ", ".join(place), value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named(str(name), inner, place)


def _named(name: str, value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, list | tuple):
        word = ROWS.get(name, name.replace("_", " "))
        for number, row in enumerate(value, 1):
            yield from _texts(row, (*place, f"{word} {_row_key(row) or number}"))
        return
    yield from _texts(value, place if name in SILENT else (*place, name.replace("_", " ")))


def _row_key(row: Any) -> str:
    key = row.get("key") if isinstance(row, Mapping) else ""
    return str(key or "")


MAX_LISTED = 50
# So many keys in one text show well enough that it is full of them.
MAX_IN_TEXT = 100
KEY, EMAIL = "key-like string", "email address"
# Prefixes that issuers give their keys, so that scanners can find leaked ones.
PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{16,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|gl(?:pat|rt|ptt)-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|AROA|ABIA|ACCA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|dop_v1_[a-f0-9]{32,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}"
    # Its end is not looked for without bounds, since another may begin at each character.
    r"|eyJ[A-Za-z0-9_-]{8,500}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r")"
)
BLOCK = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{1,15}://[^\s/:@]{1,100}:[^\s/@]{3,200}@", re.IGNORECASE)
BEARER = re.compile(r"\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)
NAMED = re.compile(
    r"(?:api[_-]?key|secret|passw(?:or)?d|pwd|access[_-]?token|auth[_-]?token|client[_-]?secret)"
    r"[\"']?\s{0,5}[:=]\s{0,5}[\"']?([^\s\"',;<>]{8,})",
    re.IGNORECASE,
)
LONG = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
HEX = re.compile(r"[0-9a-fA-F]{32,}")
MAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
# Bits per character: English words joined by dashes have fewer, random letters and digits more.
RANDOM_BITS, RANDOM_HEX_BITS, MIN_DIGITS = 3.7, 3.0, 2
SHOWN = 4


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """A string that looks secret: its kind, its place, and its beginning."""

    kind: str
    place: str
    shown: str


@dataclass(frozen=True, slots=True)
class Scan:
    """The strings that look secret, each once per text. Only the first of `count` are listed."""

    listed: tuple[SecretMatch, ...]
    count: int

    @property
    def unlisted(self) -> int:
        """Return the number of strings that are not listed."""
        return self.count - len(self.listed)


def scan(texts: Iterable[tuple[str, str]]) -> Scan:
    """Return the strings that look secret in texts. Each text is preceded by its place."""
    listed: list[SecretMatch] = []
    count = 0
    for place, text in texts:
        for match in sorted({*_keys(text, place), *_mails(text, place)}, key=_order):
            count += 1
            if len(listed) < MAX_LISTED:
                listed.append(match)
    return Scan(tuple(listed), count)


def holds_key(text: str) -> bool:
    """Tell whether any string in a text looks like a key."""
    return any(_keys(text, ""))


def _order(match: SecretMatch) -> tuple[str, str]:
    return match.kind, match.shown


def _mails(text: str, place: str) -> Iterator[SecretMatch]:
    if "@" not in text:
        return
    for match in MAIL.finditer(text):
        name, _, host = match.group().rpartition("@")
        yield SecretMatch(EMAIL, place, f"{name[:1]}…@{host}")


def _keys(text: str, place: str) -> Iterator[SecretMatch]:
    taken: list[tuple[int, int]] = []
    for pattern in (PREFIXED, BLOCK, IN_ADDRESS, BEARER, NAMED, LONG):
        for match in pattern.finditer(text):
            group = 1 if pattern.groups else 0
            start, end = match.span(group)
            if any(start < last and first < end for first, last in taken):
                continue
            if pattern is LONG and not _is_random(match.group()):
                continue
            taken.append((start, end))
            if len(taken) > MAX_IN_TEXT:
                return
            yield SecretMatch(KEY, place, _masked(match.group(group)))


def _is_random(token: str) -> bool:
    if UUID.fullmatch(token):
        return False
    if HEX.fullmatch(token):
        return entropy_bits(token) >= RANDOM_HEX_BITS and any(char.isdigit() for char in token)
    digits = sum(char.isdigit() for char in token)
    is_mixed = any(map(str.isupper, token)) and any(map(str.islower, token))
    return is_mixed and digits >= MIN_DIGITS and entropy_bits(token) >= RANDOM_BITS


def entropy_bits(token: str) -> float:
    """Return the entropy of a text in bits per character."""
    total = len(token)
    return -sum(n / total * math.log2(n / total) for n in Counter(token).values())


def _masked(token: str) -> str:
    return f"{token[:SHOWN]}… ({len(token)} characters)"

"""What only the explanations of scores need: where two texts differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from django import template

register = template.Library()

WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a text that the other text has too, or has not."""

    text: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Two texts, each in the stretches it shares with the other and those it does not."""

    expected: tuple[Part, ...]
    output: tuple[Part, ...]


@register.simple_tag
def difference(details: Mapping[str, Any]) -> Difference:
    """Return where the expected text and the answer of a score differ, word by word."""
    expected, output = details["expected"], details["output"]
    first, second = WORD.findall(expected), WORD.findall(output)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    left: list[Part] = []
    right: list[Part] = []
    for operation, start, end, other_start, other_end in matcher.get_opcodes():
        is_changed = operation != "equal"
        left.append(Part("".join(first[start:end]), is_changed))
        right.append(Part("".join(second[other_start:other_end]), is_changed))
    return Difference(_with_cuts(left, details), _with_cuts(right, details))


def _with_cuts(parts: list[Part], details: Mapping[str, Any]) -> tuple[Part, ...]:
    before = Part("…" if details.get("starts_at") else "", is_changed=False)
    after = Part("…" if details.get("is_cut") else "", is_changed=False)
    return tuple(part for part in (before, *parts, after) if part.text)

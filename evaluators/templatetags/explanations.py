"""What only the explanations of scores need: where two texts differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from django import template

register = template.Library()

WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a text that the other text has too, or has not."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Two texts, each in the stretches it shares with the other and those it does not."""

    expected: tuple[Part, ...]
    output: tuple[Part, ...]


@register.simple_tag
def difference(expected: str, output: str) -> Difference:
    """Return where two texts differ, word by word."""
    first, second = WORD.findall(expected), WORD.findall(output)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    left: list[Part] = []
    right: list[Part] = []
    for operation, start, end, other_start, other_end in matcher.get_opcodes():
        differs = operation != "equal"
        left.append(Part("".join(first[start:end]), differs))
        right.append(Part("".join(second[other_start:other_end]), differs))
    return Difference(_given(left), _given(right))


def _given(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.text)

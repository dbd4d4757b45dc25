"""What the judge of a hybrid evaluation is shown, kept exactly as it is sent (SCORING §6)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds._base import CaseFacts, Context
from evaluators.kinds._spelling import normal_spelling
from evaluators.scoring.hybrid import ERRORED

HARD, SOFT = "hard", "soft"
MOST_FILES = 200
NOTHING = "(none)"
# NUL and halves of surrogate pairs: an agent can write them, no database keeps them.
UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
TEXT_KEYS = ("text", "expectation", "description", "statement")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing expected of the answer. One that is hard shows a badge when it is unmet; it caps nothing."""

    kind: str
    text: str


def expectations_of(
    hard: Sequence[str], soft: Sequence[str], case: CaseFacts
) -> tuple[Expectation, ...]:
    """Return the expectations of the settings, then those of the case's metadata; the hard ones first."""
    metadata = _spelt(case.metadata)
    places = (metadata, _spelt(metadata.get("expectations")))
    found: dict[Expectation, None] = {}
    for kind, own in ((HARD, hard), (SOFT, soft)):
        told = [text for place in places for text in _texts(place.get(f"{kind}_expectations"))]
        found |= dict.fromkeys(Expectation(kind, text) for text in (*own, *told))
    return tuple(found)


def packet_of(
    quoted: Sequence[tuple[str, str]],
    checks: Sequence[Mapping[str, Any]],
    expectations: Sequence[Expectation],
    context: Context,
) -> tuple[tuple[str, str], ...]:
    """Return the evidence by label: what is quoted of task and answer, files, checks and expectations."""
    names = sorted(context.output.files)
    files = "\n".join(names[:MOST_FILES])
    if len(names) > MOST_FILES:
        files += f"\n… and {len(names) - MOST_FILES} more"
    results = "\n".join(f"{n}. {_check(one)}" for n, one in enumerate(checks, 1))
    expected = "\n".join(f"{n}. {one.kind}: {one.text}" for n, one in enumerate(expectations, 1))
    parts = (
        *quoted,
        ("files", files or NOTHING),
        ("check_results", results or NOTHING),
        ("expectations", expected or NOTHING),
    )
    return tuple((label, storable(text)) for label, text in parts)


def storable(text: str) -> str:
    """Return a text as a database keeps it."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _check(one: Mapping[str, Any]) -> str:
    tags = f" ({', '.join(one['dimensions'])})" if one["dimensions"] else ""
    turned = "must not hold: " if one["negate"] else ""
    word = "no result" if one["outcome"] == ERRORED else one["outcome"]
    evidence = f" [{one['evidence']}]" if one["evidence"] else ""
    return f"{word}: {one['name']}{tags}: {turned}{one['said']}{evidence}"


def _spelt(given: Any) -> dict[str, Any]:
    """Return what metadata holds by names in snake_case; nothing where that is no mapping."""
    items = given.items() if isinstance(given, Mapping) else ()
    return {normal_spelling(str(key)): value for key, value in items}


def _texts(given: Any) -> list[str]:
    """Return the texts of a list that metadata holds; what is no text is left out."""
    items = given if isinstance(given, list | tuple) else [given]
    found = []
    for one in items:
        text = one
        if isinstance(one, Mapping):
            text = next((one[key] for key in TEXT_KEYS if isinstance(one.get(key), str)), None)
        if isinstance(text, str) and text.strip():
            found.append(text.strip())
    return found

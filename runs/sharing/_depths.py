"""A whitelist for documents: every value that may leave is named with the least depth it leaves at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Depth(StrEnum):
    """How much a stranger sees, from the least to the most."""

    FIGURES = "figures"
    CASE_NAMES = "case_names"
    OUTPUTS = "outputs"
    TRACES = "traces"

    def reaches(self, other: Depth) -> bool:
        """Tell whether what leaves at another depth leaves at this one too."""
        depths = list(Depth)
        return depths.index(self) >= depths.index(other)


# A single value by its least depth, a row of values of one shape, or values by their names.
Shape = Depth | Sequence["Shape"] | Mapping[str, "Shape"]
ABSENT = object()


def let_through(document: Mapping[str, Any], shape: Mapping[str, Shape], depth: Depth) -> Any:
    """Return of a document what its shape names, as deep as `depth`.

    What the shape does not name is left out, and so is a value that is not of the shape it is named
    with: an object can never stand where a text was expected.
    """
    return _mapping(document, shape, depth)


def _value(value: Any, shape: Shape, depth: Depth) -> Any:
    if isinstance(shape, Depth):
        is_plain = value is None or isinstance(value, str | int | float)
        return value if is_plain and depth.reaches(shape) else ABSENT
    if isinstance(shape, Mapping):
        found = _mapping(value, shape, depth) if isinstance(value, Mapping) else {}
        return found or ABSENT
    rows = value if isinstance(value, list | tuple) else ()
    kept = [one for one in (_value(row, shape[0], depth) for row in rows) if one is not ABSENT]
    # Where everything is kept back, not even how much there was is told.
    return kept or ABSENT


def _mapping(value: Mapping[str, Any], shape: Mapping[str, Shape], depth: Depth) -> dict[str, Any]:
    found = {name: _value(value[name], shape[name], depth) for name in shape if name in value}
    return {name: one for name, one in found.items() if one is not ABSENT}


def filled_out(document: Any, shape: Shape) -> Any:
    """Return a document in which everything that its shape names is there: "" and nothing where it is not.

    So a page draws what was kept back, and what was frozen before a name was known, as absent.
    """
    if isinstance(shape, Depth):
        return "" if document is ABSENT else document
    if isinstance(shape, Mapping):
        known = {} if document is ABSENT else document
        return {name: filled_out(known.get(name, ABSENT), one) for name, one in shape.items()}
    return [] if document is ABSENT else [filled_out(one, shape[0]) for one in document]


def digest_of(document: Any) -> str:
    """Return the same 64 characters for equal documents, whatever the order of their names."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()

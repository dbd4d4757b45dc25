"""What a share link lets out: the values whose fields name a level, from that level on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from runs.documents import DetailLevel, Document

# A single value by its least depth, a row of values of one shape, or values by their names.
Shape = DetailLevel | Sequence["Shape"] | Mapping[str, "Shape"]
ABSENT = object()


def shape(model: type[Document], least: DetailLevel = DetailLevel.FIGURES) -> Mapping[str, Shape]:
    """Return what the fields of a document let out, nothing of it below `least`."""
    fields = {
        field.serialization_alias or field.alias or name: _field_shape(
            field.annotation, _level(field.metadata, least)
        )
        for name, field in model.model_fields.items()
    }
    return {name: inner for name, inner in fields.items() if inner}


def _level(metadata: Sequence[Any], least: DetailLevel) -> tuple[DetailLevel, bool]:
    """Return the level of a field and whether it names one."""
    named = [one for one in metadata if isinstance(one, DetailLevel)]
    return max([least, *named], key=list(DetailLevel).index), bool(named)


def _field_shape(annotation: Any, level: tuple[DetailLevel, bool]) -> Shape:
    """Return the shape of a field: of a document its own, else its level; nothing without one."""
    least, is_named = level
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        return _field_shape(annotation, _level([least, *metadata] if is_named else metadata, least))
    arguments = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) in (list, tuple):
        inner = _field_shape(arguments[0], level)
        return [inner] if inner else {}
    if get_origin(annotation) in (UnionType, Union) and len(arguments) == 1:
        return _field_shape(arguments[0], level)
    if isinstance(annotation, type) and issubclass(annotation, Document):
        return shape(annotation, least)
    return least if is_named else {}


def let_through(
    document: Mapping[str, Any], shape: Mapping[str, Shape], detail_level: DetailLevel
) -> Any:
    """Return of a document what its shape names, as deep as `depth`.

    What the shape does not name is left out, and so is a value that is not of the shape it is named
    with: an object can never stand where a text was expected.
    """
    return _mapping(document, shape, detail_level)


def _value(value: Any, shape: Shape, detail_level: DetailLevel) -> Any:
    if isinstance(shape, DetailLevel):
        is_plain = value is None or isinstance(value, str | int | float)
        return value if is_plain and detail_level.reaches(shape) else ABSENT
    if isinstance(shape, Mapping):
        found = _mapping(value, shape, detail_level) if isinstance(value, Mapping) else {}
        return found or ABSENT
    rows = value if isinstance(value, list | tuple) else ()
    kept = [
        one for one in (_value(row, shape[0], detail_level) for row in rows) if one is not ABSENT
    ]
    # Where everything is kept back, not even how much there was is told.
    return kept or ABSENT


def _mapping(
    value: Mapping[str, Any], shape: Mapping[str, Shape], detail_level: DetailLevel
) -> dict[str, Any]:
    found = {
        name: _value(value[name], shape[name], detail_level) for name in shape if name in value
    }
    return {name: one for name, one in found.items() if one is not ABSENT}


def fill_missing(document: Any, shape: Shape) -> Any:
    """Return a document in which everything that its shape names is there: "" and nothing where it is not.

    So a page draws what was kept back, and what was frozen before a name was known, as absent.
    """
    if isinstance(shape, DetailLevel):
        return "" if document is ABSENT else document
    if isinstance(shape, Mapping):
        known = {} if document is ABSENT else document
        return {name: fill_missing(known.get(name, ABSENT), one) for name, one in shape.items()}
    return [] if document is ABSENT else [fill_missing(one, shape[0]) for one in document]


def document_digest(document: Any) -> str:
    """Return the same 64 characters for equal documents, whatever the order of their names."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


MAX_TEXT_LENGTH = 20_000
# Of what is said about an output: a finding, a justification, a reason.
MAX_REMARK_LENGTH = 2_000
# Of all texts of one document together.
MAX_CHARACTERS = 2_000_000


class Allowance:
    """Characters that the texts of one document may take up, handed out one text after the other."""

    def __init__(self, left: int = MAX_CHARACTERS) -> None:
        """Begin with so many characters."""
        self.left = left

    def brief(self, text: object) -> str:
        """Return a remark; of a long one the beginning, and how much of it that is."""
        whole = str(text or "")
        shown = whole[: min(MAX_REMARK_LENGTH, self.left)]
        self.left -= len(shown)
        if len(shown) == len(whole):
            return shown
        return f"{shown}… ({len(shown):,} of {len(whole):,} characters)"

    def cut(self, text: str, size: int | None = None) -> dict[str, Any]:
        """Return the beginning of a text as `text`, and as `size` how many characters the whole has.

        `size` is given where `text` is but the beginning already.
        """
        shown = text[: min(MAX_TEXT_LENGTH, self.left)]
        self.left -= len(shown)
        whole = len(text) if size is None else size
        return {"text": shown, "size": whole, "shown": len(shown), "is_cut": len(shown) < whole}

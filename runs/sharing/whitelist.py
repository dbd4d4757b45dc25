"""What a share link shows: the values whose fields name a detail level, from that level on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from runs.documents import DetailLevel, Document

# A single value with its least detail level, a list of values of one shape, or values by name.
Shape = DetailLevel | Sequence["Shape"] | Mapping[str, "Shape"]
ABSENT = object()


def shape(model: type[Document], least: DetailLevel = DetailLevel.FIGURES) -> Mapping[str, Shape]:
    """Return the shape of a document's fields, nothing of it below the level `least`."""
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
    """Return the values of a document that its shape names up to a detail level.

    Values that the shape does not name are left out, and so are values of another shape: an object can
    never take the place of a text.
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
    # Where everything is hidden, the number of values is hidden too.
    return kept or ABSENT


def _mapping(
    value: Mapping[str, Any], shape: Mapping[str, Shape], detail_level: DetailLevel
) -> dict[str, Any]:
    found = {
        name: _value(value[name], shape[name], detail_level) for name in shape if name in value
    }
    return {name: one for name, one in found.items() if one is not ABSENT}


def fill_missing(document: Any, shape: Shape) -> Any:
    """Return a document with all names of its shape, "" or nothing for missing values.

    So a page shows values as absent that were hidden, or frozen before the name existed.
    """
    if isinstance(shape, DetailLevel):
        return "" if document is ABSENT else document
    if isinstance(shape, Mapping):
        known = {} if document is ABSENT else document
        return {name: fill_missing(known.get(name, ABSENT), one) for name, one in shape.items()}
    return [] if document is ABSENT else [fill_missing(one, shape[0]) for one in document]


def document_digest(document: Any) -> str:
    """Return a digest that is the same for equal documents in any order of names."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


MAX_TEXT_LENGTH = 20_000
# The maximum of a finding, a justification or a reason.
MAX_REMARK_LENGTH = 2_000
# The maximum of all texts of one document.
MAX_CHARACTERS = 2_000_000


class Allowance:
    """The characters left for the texts of one document."""

    def __init__(self, left: int = MAX_CHARACTERS) -> None:
        """Start with this many characters."""
        self.left = left

    def brief(self, text: object) -> str:
        """Return a remark, cut where it is long, with a note on its length."""
        whole = str(text or "")
        shown = whole[: min(MAX_REMARK_LENGTH, self.left)]
        self.left -= len(shown)
        if len(shown) == len(whole):
            return shown
        return f"{shown}… ({len(shown):,} of {len(whole):,} characters)"

    def cut(self, text: str, size: int | None = None) -> dict[str, Any]:
        """Return the beginning of a text as `text`, and the length of the whole as `size`.

        Pass `size` where `text` is already a beginning.
        """
        shown = text[: min(MAX_TEXT_LENGTH, self.left)]
        self.left -= len(shown)
        whole = len(text) if size is None else size
        return {"text": shown, "size": whole, "shown": len(shown), "is_cut": len(shown) < whole}

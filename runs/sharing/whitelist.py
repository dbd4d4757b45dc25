"""The whitelist of share links: which values of a document each detail level shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from runs.documents import DetailLevel, Document

# The lowest detail level that shows a value, one whitelist for all items of a list, or whitelists by field.
Whitelist = DetailLevel | Sequence["Whitelist"] | Mapping[str, "Whitelist"]
ABSENT = object()


def build_whitelist(
    model: type[Document], lowest: DetailLevel = DetailLevel.FIGURES
) -> Mapping[str, Whitelist]:
    """Return the whitelist of a document's fields; no field is shown below the level `lowest`."""
    fields = {
        field.serialization_alias or field.alias or name: _field_whitelist(
            field.annotation, _level(field.metadata, lowest)
        )
        for name, field in model.model_fields.items()
    }
    return {name: inner for name, inner in fields.items() if inner}


def _level(metadata: Sequence[Any], lowest: DetailLevel) -> tuple[DetailLevel, bool]:
    """Return the level of a field and whether it names one."""
    named = [level for level in metadata if isinstance(level, DetailLevel)]
    return max([lowest, *named], key=list(DetailLevel).index), bool(named)


def _field_whitelist(annotation: Any, level: tuple[DetailLevel, bool]) -> Whitelist:
    """Return the whitelist of a nested document, or the level of a value; empty for a value without a level."""
    lowest, is_named = level
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        metadata = [lowest, *metadata] if is_named else metadata
        return _field_whitelist(annotation, _level(metadata, lowest))
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if get_origin(annotation) in (list, tuple):
        inner = _field_whitelist(arguments[0], level)
        return [inner] if inner else {}
    if get_origin(annotation) in (UnionType, Union) and len(arguments) == 1:
        return _field_whitelist(arguments[0], level)
    if isinstance(annotation, type) and issubclass(annotation, Document):
        return build_whitelist(annotation, lowest)
    return lowest if is_named else {}


def filter_document(
    document: Mapping[str, Any], whitelist: Mapping[str, Whitelist], detail_level: DetailLevel
) -> dict[str, Any]:
    """Return the values of a document that its whitelist shows at a detail level.

    A value that the whitelist does not name is left out. So is a value of another type than the whitelist
    expects: an object can never take the place of a text.
    """
    values = {
        name: _filter_value(document[name], whitelist[name], detail_level)
        for name in whitelist
        if name in document
    }
    return {name: value for name, value in values.items() if value is not ABSENT}


def _filter_value(value: Any, whitelist: Whitelist, detail_level: DetailLevel) -> Any:
    if isinstance(whitelist, DetailLevel):
        is_plain = value is None or isinstance(value, str | int | float)
        return value if is_plain and detail_level.reaches(whitelist) else ABSENT
    if isinstance(whitelist, Mapping):
        is_object = isinstance(value, Mapping)
        return (filter_document(value, whitelist, detail_level) if is_object else {}) or ABSENT
    rows = value if isinstance(value, list | tuple) else ()
    shown = [_filter_value(row, whitelist[0], detail_level) for row in rows]
    # Where everything is hidden, the number of values is hidden too.
    return [row for row in shown if row is not ABSENT] or ABSENT


def fill_missing(document: Any, whitelist: Whitelist) -> Any:
    """Return a document with every field of its whitelist; a missing one is "", or an empty list.

    A page can then read any field, even if it was hidden or added after the document was frozen.
    """
    if isinstance(whitelist, DetailLevel):
        return "" if document is ABSENT else document
    if isinstance(whitelist, Mapping):
        values = {} if document is ABSENT else document
        return {
            name: fill_missing(values.get(name, ABSENT), inner) for name, inner in whitelist.items()
        }
    return [] if document is ABSENT else [fill_missing(row, whitelist[0]) for row in document]


def document_digest(document: Any) -> str:
    """Return a digest that does not depend on the order of a document's fields."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()

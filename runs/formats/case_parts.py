"""Parts of a case as they are written into fields of a page, in the spellings of suite files.

Each is read by the reader of suite files, so that its problems name line and key as those of files do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evaluators.kinds._yaml import yaml_of
from evaluators.scoring.tree import Node
from runs.formats._document import Document, named, read_document
from runs.formats._evaluators import read_evaluators
from runs.formats._fields import Fields
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._reading import Reading
from runs.formats._recorded import read_recorded
from runs.formats._trees import check_composite, read_aggregator, root_of
from runs.formats._writing import own_values

OUTPUT = "output"
LISTED = "evaluators"


def mapping_text(value: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, "" for an empty one."""
    return yaml_of(value) if value else ""


def read_mapping(text: str) -> dict[str, Any]:
    """Return the mapping of a YAML or JSON text; raises UnreadableFileError naming the line."""
    if not text.strip():
        return {}
    value = read_document(text).value
    if value is None:
        return {}
    if not isinstance(value, dict):
        said = f"{named(value)} stands where names with values are expected, such as plan: pro"
        raise UnreadableFileError([Problem(said, line=1)])
    return value


def own_text(own: Node | None) -> str:
    """Return a case's own evaluators as a list, with its aggregator as a mapping of both; "" for none."""
    if own is None:
        return ""
    values = own_values(own)
    return yaml_of(values if "aggregator" in values else values[LISTED])


def read_own(
    text: str, *, root: Node, append: bool, files: Mapping[str, bytes] | None = None
) -> Node | None:
    """Return the evaluators of a list, or of a mapping of `evaluators` and `aggregator`; None for none.

    With `append` they join those of `root`, whose names are taken then. `files` are the suite's, by
    path. Raises UnreadableFileError with every problem, and for keys that nothing uses.
    """
    if not text.strip():
        return None
    document = read_document(text)
    reading = Reading(document, files or {})
    is_list = isinstance(document.value, list)
    fields = Fields(
        reading,
        (),
        aliases={LISTED: ("assertions", "assert")},
        value={} if is_list else document.value,
    )
    key, items = ("", document.value) if is_list else fields.items(LISTED)
    aggregator_key, options = fields.mapping("aggregator")
    for left in fields.rest():
        fields.refuse(left, "is not known here; known are evaluators and aggregator")
    if options and append:
        said = "is taken from the suite; only evaluators in its place have one of their own"
        fields.refuse(aggregator_key, said)
    beside = root.children if append else ()
    listed = read_evaluators(reading, fields.place(key), items, beside=beside)
    aggregator = (
        read_aggregator(reading, fields.place(aggregator_key), options) if options else None
    )
    if not listed and not reading.problems:
        reading.refuse((), "no evaluator is listed; write one, such as - type: contains")
    own = root_of(listed, aggregator)
    check_composite(reading, (), own)
    if found := reading.in_order() or (reading.warnings if reading.kept else []):
        raise UnreadableFileError(found)
    return own


def recorded_text(recorded: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Return a recorded output as a text, and whether that is JSON rather than the answer itself."""
    if recorded is None:
        return "", False
    if recorded.keys() == {OUTPUT} and isinstance(recorded[OUTPUT], str):
        return recorded[OUTPUT], False
    return json.dumps(recorded, ensure_ascii=False, indent=2), True


def read_recorded_json(text: str, files: Mapping[str, bytes] | None = None) -> Mapping[str, Any]:
    """Return the recorded output of a JSON text; raises UnreadableFileError naming line and key."""
    found = read_document(text)
    document = Document(
        value={OUTPUT: found.value},
        lines={(OUTPUT, *path): line for path, line in found.lines.items()},
        written={(OUTPUT, *path): written for path, written in found.written.items()},
    )
    reading = Reading(document, files or {})
    recorded = read_recorded(Fields(reading, (), value=document.value))
    if recorded is None and not reading.problems:
        reading.refuse(
            (OUTPUT,), "nothing stands here; leave the field empty for no recorded output"
        )
    if reading.problems or recorded is None:
        raise UnreadableFileError(reading.in_order())
    return recorded

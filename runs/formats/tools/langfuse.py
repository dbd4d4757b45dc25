"""Langfuse: the items of a dataset. What was answered and scored stands in files that do not name each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runs.formats.tools._base import (
    ToolFile,
    ToolFormat,
    ToolSuite,
    as_data,
    as_text,
    mapping,
    objects,
)
from runs.formats.tools._experiments import case, dataset
from runs.specs.problems import Problem

TOOL = "Langfuse"
OF_AN_ITEM = {"id", "status", "input", "expectedOutput"}
APART = (
    "it names traces, and their answers and scores are in other files; run the suite of its dataset here, or write its "
    "results as JSON Lines"
)


def _listed(file: ToolFile) -> list[Mapping[str, Any]]:
    return objects(file.value.get("data"))[:1] or list(file.head[:1])


def _is_dataset(file: ToolFile) -> bool:
    return any(part.keys() >= OF_AN_ITEM for part in _listed(file))


def _read_dataset(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    rows = [(0, part) for part in objects(file.value.get("data"))] or list(file.rows())
    kept = [(line, part) for line, part in rows if part.get("status") != "ARCHIVED"]
    suite = dataset(
        file, TOOL, as_text(kept[0][1].get("datasetName")) if kept else "", _items(kept)
    )
    for line, part in rows:
        if part.get("status") == "ARCHIVED":
            message = "the item is archived and was left out, as Langfuse leaves it out of its runs"
            suite.notes.append(Problem(message, file.path, line, as_text(part.get("id"))))
    return [suite]


def _items(rows: list[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, part in rows:
        metadata = mapping(as_data(part.get("metadata"), has_texts=True))
        tags = metadata.get("tags")
        asked, expected = (
            as_data(part.get("input"), has_texts=True),
            as_data(part.get("expectedOutput"), has_texts=True),
        )
        yield (
            line,
            case(part.get("id"), asked, expected, metadata, tags if isinstance(tags, list) else ()),
        )


def _is_run(file: ToolFile) -> bool:
    return "datasetRunItems" in file.value


def _is_scores(file: ToolFile) -> bool:
    return any({"traceId", "name", "value", "dataType"} <= part.keys() for part in _listed(file))


FORMATS = (
    ToolFormat(TOOL, "a dataset of Langfuse", _is_dataset, read_suites=_read_dataset),
    ToolFormat(TOOL, "a dataset run of Langfuse", _is_run, refusal=APART),
    ToolFormat(TOOL, "scores of Langfuse", _is_scores, refusal=APART),
)

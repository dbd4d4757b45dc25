"""Phoenix: datasets in all their exports, and experiments in JSON and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runs.formats.tools._base import (
    Row,
    ToolFile,
    ToolFormat,
    ToolResults,
    ToolSuite,
    as_answer,
    as_data,
    as_text,
    as_turns,
    mapping,
    objects,
)
from runs.formats.tools._experiments import NO_OVERALL, case, dataset, row, score

TOOL = "Phoenix"
ANNOTATION = re.compile(
    r"\Aannotation_(?P<name>.+)_(?P<part>score|label|explanation|error|annotator_kind)\Z"
)
PARTS = ("input.", "output.", "metadata.")


def _examples(file: ToolFile) -> list[Mapping[str, Any]]:
    return objects(mapping(file.value.get("data")).get("examples"))


def _is_dataset(file: ToolFile) -> bool:
    if file.table:
        return {"id", "node_id"} <= file.keys and any(key.startswith("input.") for key in file.keys)
    return bool(_examples(file))


def _read_dataset(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    rows = [(0, part) for part in _examples(file)] or [
        (line, _nested(part)) for line, part in file.rows()
    ]
    cases = (
        (
            line,
            case(
                part.get("id"), part.get("input"), part.get("output"), mapping(part.get("metadata"))
            ),
        )
        for line, part in rows
    )
    return [dataset(file, TOOL, "", cases)]


def _nested(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example whose columns name their part, such as `input.question`."""
    example: dict[str, Any] = {"id": cells["id"]}
    for column, cell in cells.items():
        part, dot, name = column.partition(".")
        if f"{part}{dot}" in PARTS and cell not in ("", None):
            example.setdefault(part, {})[name] = as_data(cell, has_texts=True)
    return example


def _is_chat(file: ToolFile) -> bool:
    return bool(file.head) and all(part.keys() == {"messages"} for part in file.head)


def _read_chat(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    return [dataset(file, TOOL, "", _chats(file))]


def _chats(file: ToolFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, part in file.rows():
        turns = objects(part["messages"])
        is_answered = bool(turns) and turns[-1].get("role") == "assistant"
        asked = turns[:-1] if is_answered else turns
        yield line, case(None, asked, as_text(turns[-1].get("content")) if is_answered else "", {})


def _is_experiment(file: ToolFile) -> bool:
    return {"example_id", "repetition_number", "reference_output"} <= file.keys


def _read_experiment(file: ToolFile) -> ToolResults:
    return ToolResults(_rows(file), (NO_OVERALL.format(TOOL),))


def _rows(file: ToolFile) -> Iterator[Row]:
    for line, cells in file.rows():
        part = {
            name: as_data(cell, has_texts=True) if cell != "" else None
            for name, cell in cells.items()
        }
        answer, metadata = part.get("output"), mapping(part.get("metadata"))
        facts = {
            "eval_id": as_text(part.get("example_id")),
            "repetition": _number(part.get("repetition_number")),
            "input": as_turns(part.get("input")),
            "expected_output": as_answer(part.get("reference_output")),
            "output": None if answer is None else as_answer(answer),
            "metadata": dict(metadata),
            "latency_ms": _number(part.get("latency_ms")),
            "usage": {
                "input_tokens": _number(part.get("prompt_token_count")),
                "output_tokens": _number(part.get("completion_token_count")),
            },
            "timestamp": as_text(part.get("end_time")),
        }
        annotations = objects(part.get("annotations")) or _annotations(part)
        yield row(line, facts, list(map(_score, annotations)), as_text(part.get("error")))


def _number(value: Any) -> Any:
    """Return a number, which a table holds as text."""
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?", value) else None
    return value


def _annotations(cells: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the annotations of a row of a table, each of several columns; one without any value is none."""
    found: dict[str, dict[str, Any]] = {}
    for column, cell in cells.items():
        match = ANNOTATION.match(column)
        if match and cell is not None:
            found.setdefault(match["name"], {"name": match["name"]})[match["part"]] = cell
    return list(found.values())


def _score(annotation: Mapping[str, Any]) -> dict[str, Any]:
    kind = "llm_judge" if annotation.get("annotator_kind") == "LLM" else "score"
    label, explanation = as_text(annotation.get("label")), as_text(annotation.get("explanation"))
    reasoning = ": ".join(filter(None, (label, explanation)))
    error = as_text(annotation.get("error"))
    value = None if error else _number(annotation.get("score"))
    return score(
        as_text(annotation.get("name")), value, reasoning=reasoning, kind=kind, error=error
    )


def _is_without_scores(file: ToolFile) -> bool:
    data = file.value.get("data")
    first = next(iter(objects(data)), mapping(data))
    return {"dataset_version_id", "example_count"} <= first.keys() or {
        "dataset_example_id",
        "experiment_id",
    } <= first.keys()


FORMATS = (
    ToolFormat(TOOL, "a dataset of Phoenix", _is_dataset, read_suites=_read_dataset),
    ToolFormat(
        TOOL,
        "chat examples, as Phoenix exports them for fine-tuning",
        _is_chat,
        read_suites=_read_chat,
    ),
    ToolFormat(TOOL, "an experiment of Phoenix", _is_experiment, read_results=_read_experiment),
    ToolFormat(
        TOOL,
        "a part of an experiment of Phoenix",
        _is_without_scores,
        refusal="it contains no scores; download the experiment itself as JSON or CSV",
    ),
)

"""LangSmith: examples of a dataset, and experiments in the form in which they are uploaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runs.formats.tools._base import (
    Row,
    ToolFile,
    ToolFormat,
    ToolResults,
    ToolSuite,
    as_answer,
    as_text,
    as_turns,
    mapping,
    objects,
)
from runs.formats.tools._experiments import NO_OVERALL, case, dataset, duration, row, score

TOOL = "LangSmith"


def _is_dataset(file: ToolFile) -> bool:
    return bool(file.head) and all({"inputs", "outputs"} <= part.keys() for part in file.head)


def _read_dataset(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    return [dataset(file, TOOL, "", ((line, _example(part)) for line, part in file.rows()))]


def _example(part: Mapping[str, Any]) -> dict[str, Any]:
    metadata = mapping(part.get("metadata"))
    splits, tags = metadata.get("dataset_split"), metadata.get("tags")
    listed = [
        *(splits if isinstance(splits, list) else [splits]),
        *(tags if isinstance(tags, list) else []),
    ]
    return case(part.get("id"), part["inputs"], part["outputs"], metadata, listed)


def _is_experiment(file: ToolFile) -> bool:
    rows = objects(file.value.get("results"))
    return bool(rows) and {"row_id", "inputs", "evaluation_scores"} <= rows[0].keys()


def _read_experiment(file: ToolFile) -> ToolResults:
    notes = [NO_OVERALL.format(TOOL)]
    if summary := objects(file.value.get("summary_experiment_scores")):
        names = ", ".join(as_text(each.get("key")) for each in summary)
        notes.append(f"the scores of the whole experiment were left out: {names}")
    return ToolResults(_rows(file.value), tuple(notes))


def _rows(experiment: Mapping[str, Any]) -> Iterator[Row]:
    for part in objects(experiment.get("results")):
        scores = [
            score(
                as_text(one.get("key")),
                one.get("score", one.get("value")),
                reasoning=as_text(one.get("comment")),
            )
            for one in objects(part.get("evaluation_scores"))
        ]
        answer = part.get("actual_outputs")
        facts = {
            "suite": as_text(experiment.get("dataset_name")),
            "target": as_text(experiment.get("experiment_name")),
            "eval_id": as_text(part.get("row_id")),
            "input": as_turns(part.get("inputs")),
            "expected_output": as_answer(part.get("expected_outputs")),
            "output": None if answer is None else as_answer(answer),
            "metadata": dict(mapping(part.get("run_metadata"))),
            "latency_ms": duration(part.get("start_time"), part.get("end_time")),
            "timestamp": as_text(part.get("end_time")),
        }
        yield row(0, facts, scores, as_text(part.get("error")))


FORMATS = (
    ToolFormat(TOOL, "a dataset of LangSmith", _is_dataset, read_suites=_read_dataset),
    ToolFormat(TOOL, "an experiment of LangSmith", _is_experiment, read_results=_read_experiment),
)

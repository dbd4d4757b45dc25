"""Braintrust: datasets and experiments, exported as JSON, JSON Lines or CSV."""

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
    as_data,
    as_text,
    as_turns,
    mapping,
)
from runs.formats.tools._experiments import MILLISECONDS, NO_OVERALL, case, dataset, row, score

TOOL = "Braintrust"
OF_A_CASE, OF_A_RESULT = {"input", "expected"}, {"input", "output", "expected", "scores"}
# A file of cases of ours may have an unknown key, and `expected` is a likely one.
OURS = {"criteria", "expected_output", "expected_outcomes", "assertions", "evaluators"}


def _is_dataset(file: ToolFile) -> bool:
    return (
        bool(file.head) and file.keys >= OF_A_CASE and not file.keys & {"output", "scores", *OURS}
    )


def _read_dataset(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    cases = ((line, _case(_values(part))) for line, part in file.rows())
    return [dataset(file, TOOL, "", cases)]


def _values(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: as_data(cell, has_texts=True) if cell not in ("", "null") else None
        for name, cell in cells.items()
    }


def _case(part: Mapping[str, Any]) -> dict[str, Any]:
    tags = part.get("tags")
    listed = tags if isinstance(tags, list) else ()
    return case(
        part.get("id"),
        part.get("input"),
        part.get("expected"),
        mapping(part.get("metadata")),
        listed,
    )


def _is_experiment(file: ToolFile) -> bool:
    return bool(file.head) and file.keys >= OF_A_RESULT


def _read_experiment(file: ToolFile) -> ToolResults:
    return ToolResults(_rows(file), (NO_OVERALL.format(TOOL),))


def _rows(file: ToolFile) -> Iterator[Row]:
    for line, cells in file.rows():
        part = _values(cells)
        # The steps inside a row are exported as rows of their own.
        if part.get("is_root") is False:
            continue
        metrics, answer = mapping(part.get("metrics")), part.get("output")
        asked = _case(part)
        times = [metrics.get(name) for name in ("start", "end")]
        seconds = [time for time in times if isinstance(time, int | float)]
        facts = {
            "eval_id": as_text(
                mapping(part.get("origin")).get("id")
                or part.get("dataset_record_id")
                or part.get("id")
            ),
            "input": as_turns(part.get("input")),
            "expected_output": asked["expected_output"],
            "metadata": asked["metadata"],
            "tags": asked["tags"],
            "output": None if answer is None else as_answer(answer),
            "latency_ms": (seconds[1] - seconds[0]) * MILLISECONDS if len(seconds) == 2 else None,
            "usage": {
                "input_tokens": metrics.get("prompt_tokens"),
                "output_tokens": metrics.get("completion_tokens"),
            },
            "run_cost_usd": metrics.get("estimated_cost"),
            "timestamp": as_text(part.get("created")),
        }
        scores = [score(name, value) for name, value in mapping(part.get("scores")).items()]
        yield row(line, facts, scores, as_answer(part.get("error")))


FORMATS = (
    ToolFormat(TOOL, "a dataset of Braintrust", _is_dataset, read_suites=_read_dataset),
    ToolFormat(TOOL, "an experiment of Braintrust", _is_experiment, read_results=_read_experiment),
)

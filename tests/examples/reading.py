"""The demo's files as plain values, read the way any YAML or JSON reader would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SUPPORT_AGENT = EXAMPLES / "support-agent"
QUICK_CHECK = EXAMPLES / "quick-check"
RETURNS_DESK = EXAMPLES / "returns-desk"
VERSIONS = ("1.4.0", "1.5.0")
JUDGED_KINDS = ("llm_judge", "rubric")

Entry = Mapping[str, Any]


def read_suite(folder: Path) -> Entry:
    """Return the suite file of an example."""
    suite: Entry = yaml.safe_load((folder / "suite.yaml").read_text(encoding="utf-8"))
    return suite


def read_lines(name: str) -> list[Entry]:
    """Return the lines of one of the support agent's JSONL files."""
    text = (SUPPORT_AGENT / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read_outputs(version: str) -> dict[str, Entry]:
    """Return the recorded lines of a version by case."""
    return {line["id"]: line for line in read_lines(f"outputs-{version}.jsonl")}


def walk(evaluators: list[Entry], above: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield path and mapping of every evaluator of a tree."""
    for evaluator in evaluators:
        path = f"{above}{evaluator['name']}"
        yield path, evaluator
        yield from walk(evaluator.get("evaluators", []), f"{path}/")

"""What was frozen otherwise in one run than in another: target, judge, prompts, policy and evaluators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.templatetags.steps import spelled
from runs.drafting.differences import FileChange, compare_versions
from runs.models import Run
from runs.reports.text_diff import text_diff
from runs.reports.version_comparison import EvaluatorRow, ValueRow, setting_rows

OF_A_JUDGE = ("name", "base_url", "model_id", "reply_mode", "parameters")
LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class ConfigurationComparison:
    """The values that differ, part by part; empty where both runs were set up alike."""

    parts: Sequence[tuple[str, Sequence[ValueRow]]]
    evaluators: Sequence[EvaluatorRow]
    files: Sequence[FileChange]

    @property
    def count(self) -> int:
        """Return how many values, evaluators and files differ."""
        values = sum(len(rows) for _, rows in self.parts)
        return values + len(self.evaluators) + len(self.files)


def configuration_comparison(baseline: Run, candidate: Run) -> ConfigurationComparison:
    """Return what differs between the frozen settings of two runs; no query."""
    before, after = baseline.snapshot, candidate.snapshot
    difference = compare_versions(_frozen(before), _frozen(after))
    policy, evaluators = setting_rows(difference, (baseline.scale, candidate.scale))
    parts = (
        ("Target", _rows(_flat(before["target"]), _flat(after["target"]))),
        ("Judge", _rows(_flat(_judge(before)), _flat(_judge(after)))),
        ("Prompt versions", _rows(_flat(before["prompts"]), _flat(after["prompts"]))),
        ("Policy", policy),
    )
    return ConfigurationComparison(
        parts=[(name, rows) for name, rows in parts if rows],
        evaluators=evaluators,
        files=difference.files,
    )


def _frozen(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as a version of a suite has them; cases are compared one by one elsewhere."""
    kept = {name: snapshot[name] for name in ("policy", "evaluators")}
    return {**kept, "files": snapshot.get("files") or {}, "cases": []}


def _judge(snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    judge = snapshot.get("judge") or {}
    return {name: judge[name] for name in OF_A_JUDGE if name in judge}


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        words = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{words}, ")
        elif value not in (None, ""):
            yield words, spelled(value)[:LONGEST]


def _rows(before: Mapping[str, str], after: Mapping[str, str]) -> list[ValueRow]:
    return [
        ValueRow(name, old, new, text_diff(old, new) if old and new and " " in old else None)
        for name in dict.fromkeys((*before, *after))
        for old, new in ((before.get(name), after.get(name)),)
        if old != new
    ]

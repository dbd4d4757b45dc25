"""Suites written as suite files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds import InvalidConfigError, UnknownKindError, read_config, spelled_as
from evaluators.kinds._yaml import yaml_of
from evaluators.scoring.tree import Aggregator, Node
from runs.formats._content import CaseContent, SuiteContent
from runs.formats._policy import written_policy
from runs.formats._turns import BLOCKS


def written(content: SuiteContent) -> Iterator[bytes]:
    """Yield the suite as YAML, case by case."""
    yield yaml_of(suite_head(content)).encode()
    yield b"tests:\n"
    for case in content.cases:
        yield yaml_of([case_values(case)]).encode()


def suite_head(content: SuiteContent) -> dict[str, Any]:
    """Return what a suite file says before its cases."""
    policy, verdicts = written_policy(content.policy)
    suite = {
        "name": content.slug,
        "title": content.title,
        "description": content.description,
        "tags": list(content.tags),
        "judge": content.judge,
        "metadata": dict(content.metadata),
        "policy": policy,
        "verdicts": verdicts,
        "aggregator": _aggregator(content.root),
        "evaluators": [_evaluator(child) for child in content.root.children],
    }
    return _given(suite)


def case_values(case: CaseContent) -> dict[str, Any]:
    """Return what a suite file says of a case."""
    own = case.evaluators
    listed = [_evaluator(child) for child in own.children] if own else []
    is_one_question = len(case.input) == 1 and _is_question(case.input[0])
    written_case = _given(
        {
            "id": case.key,
            "title": case.title,
            "tags": list(case.tags),
            "criteria": case.criteria,
            "expected_output": case.expected_output,
            "expected_outcomes": list(case.expected_outcomes),
            "metadata": dict(case.metadata),
            "assertions": listed if case.evaluators_append else [],
            "evaluators": [] if case.evaluators_append else listed,
            "aggregator": _aggregator(own) if own and not case.evaluators_append else {},
        }
    )
    turns = [_turn(turn) for turn in case.input]
    asked = case.input[0]["content"] if is_one_question else turns
    written_case["input"] = asked or turns
    if case.recorded_output is not None:
        written_case["output"] = dict(case.recorded_output)
    order = ("id", "title", "tags", "input")
    return {key: written_case[key] for key in (*order, *written_case) if key in written_case}


def own_values(own: Node) -> dict[str, Any]:
    """Return what a suite file says of evaluators that stand in place of the suite's."""
    listed = [_evaluator(child) for child in own.children]
    return {**_given({"aggregator": _aggregator(own)}), "evaluators": listed}


def _is_question(turn: Mapping[str, Any]) -> bool:
    return turn["role"] == "user" and turn.keys() == {"role", "content"}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as it is read: where its content names files, their names and not their text."""
    content = list(turn[BLOCKS]) if BLOCKS in turn else turn["content"]
    rest = {key: value for key, value in turn.items() if key not in ("role", "content", BLOCKS)}
    return {"role": turn["role"], "content": content, **rest}


def _evaluator(node: Node) -> dict[str, Any]:
    spelling, settings = node.kind, dict[str, Any]()
    if not node.is_composite:
        spelling, settings = _settings(node)
    facts = {
        "name": node.name,
        "type": spelling,
        "weight": _number(node.weight) if node.weight != 1 else None,
        "required": True if node.required else None,
        "min_score": node.required_below,
        "negate": True if node.negate else None,
    }
    common = {key: value for key, value in facts.items() if value is not None}
    if not node.is_composite:
        return {**common, **settings}
    children = [_evaluator(child) for child in node.children]
    return {**common, **_given({"aggregator": _aggregator(node)}), "evaluators": children}


def _settings(node: Node) -> tuple[str, dict[str, Any]]:
    """Return the type and the settings that are not as usual; of a kind that changed since, all there are."""
    try:
        config = read_config(node.kind, node.config)
    except (UnknownKindError, InvalidConfigError):
        return node.kind, _given(node.config)
    return spelled_as(node.kind, config.model_dump(mode="json", exclude_defaults=True))


def _aggregator(node: Node) -> dict[str, Any]:
    """Return the options of a composite, those of a script or a judge that aggregates among them."""
    options: dict[str, Any] = dict(node.as_json()["config"].get("aggregator") or {})
    return {} if options == Aggregator().as_json() else options


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in ("", [], {}, None)}


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value

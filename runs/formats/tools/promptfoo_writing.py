"""Suites as configurations of promptfoo; what has no counterpart there is left out by name.

Every case is a test of the one prompt `{{input}}`. A test there passes when all its assertions do, or when its score
reaches its `threshold`: that of the suite, where not every evaluator is required.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from evaluators.scoring.tree import EvaluatorSpec, pass_marks
from runs.formats.suite_files import case_values
from runs.specs.problems import Problem
from runs.specs.suites import CaseSpec, SuiteWithCases

FILE = "promptfooconfig.yaml"
PROMPT = "{{input}}"
PROVIDER = "echo"
TYPES = {
    *("equals", "contains", "contains_any", "contains_all", "starts_with", "regex", "is_json"),
    "json_schema",
}
WITHOUT_CASE = {"contains", "contains_any", "contains_all"}
MATCHES = {"exact": "equals", "contains": "contains", "regex": "regex"}
LIMITS = {"max_duration_ms": "latency", "max_cost_usd": "cost"}
TEMPLATE = ("{{", "{%", "{#")
BINARY = ("text_check", "expected_output", "execution_metrics")
# What a case has besides its input and its evaluators, and a test has not.
NOT_WRITTEN = ("expected_outcomes", "criteria", "tags", "recorded_output")


class NoCounterpartError(ValueError):
    """An evaluator cannot be an assertion; the message says why."""


@dataclass(slots=True)
class PromptfooConfig:
    """A configuration, and a note for everything that is different there."""

    values: dict[str, Any]
    notes: list[Problem] = field(default_factory=list)

    def write(self) -> bytes:
        """Return the file."""
        return yaml.safe_dump(self.values, sort_keys=False, allow_unicode=True, width=100).encode()


def promptfoo_config(content: SuiteWithCases) -> PromptfooConfig:
    """Return the configuration of a suite."""
    config = PromptfooConfig(
        {
            "description": content.slug,
            "prompts": [{"label": "input", "raw": PROMPT}],
            "providers": [PROVIDER],
        }
    )
    config.notes.append(Problem(f"the provider {PROVIDER} stands for your agent; name it", FILE))
    shared = [node for node in content.evaluators.children if not _is_per_case(node)]
    per_case = [node for node in content.evaluators.children if _is_per_case(node)]
    limit = content.policy.pass_threshold
    default: dict[str, Any] = {"assert": list(_assertions(config, shared, None))}
    if not _all_must_pass(content.evaluators.children, limit):
        _note_no_threshold(config, limit)
        default["threshold"] = limit
        for node in content.evaluators.children:
            if node.required or node.required_below is not None:
                _note(config, f"{node.name} is required; with a threshold only its weight counts")
    config.values["defaultTest"] = {name: value for name, value in default.items() if value}
    config.values["tests"] = [_test(config, case, per_case, limit) for case in content.cases]
    return config


def _is_per_case(node: EvaluatorSpec) -> bool:
    """Tell whether an evaluator compares with what its case expects, and so is written in each test."""
    return node.kind == "expected_output"


def _all_must_pass(nodes: Sequence[EvaluatorSpec], limit: float) -> bool:
    """Tell whether a case passes exactly when every evaluator does, so that its score decides nothing more."""
    return all(
        node.weight == 0
        or (node.kind in BINARY and (node.required or bool(node.required_below)))
        or (node.required_below is not None and node.required_below >= limit)
        for node in nodes
    )


def _note(config: PromptfooConfig, message: str, case: str = "") -> None:
    config.notes.append(Problem(message, FILE, case=case))


def _note_no_threshold(config: PromptfooConfig, limit: float, case: str = "") -> None:
    if limit == 0:
        _note(config, "a threshold of 0 is none there, so that every assertion must pass", case)


def _test(
    config: PromptfooConfig, case: CaseSpec, per_case: Sequence[EvaluatorSpec], limit: float
) -> dict[str, Any]:
    text = _input(config, case)
    if any(code in text for code in TEMPLATE):
        _note(config, "its input has {{ or {%, which promptfoo fills in", case.key)
    written = case_values(case)
    if lost := [name for name in NOT_WRITTEN if name in written]:
        _note(config, f"{', '.join(lost)} have no counterpart and were left out", case.key)
    metadata = {name: value for name, value in case.metadata.items() if name != "vars"}
    own = list(case.evaluators.children) if case.evaluators else []
    replaces = case.evaluators is not None and not case.evaluators_append
    nodes = own if replaces else [*per_case, *own]
    test: dict[str, Any] = {
        "description": case.key,
        "vars": {"input": text},
        "metadata": metadata,
        "options": {"disableDefaultAsserts": True} if replaces else {},
        "assert": list(_assertions(config, nodes, case)),
    }
    if replaces and not _all_must_pass(own, limit):
        _note_no_threshold(config, limit, case.key)
        test["threshold"] = limit
    return {name: value for name, value in test.items() if value}


def _input(config: PromptfooConfig, case: CaseSpec) -> str:
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in case.input]
    if any("blocks" in turn for turn in case.input):
        _note(config, "files in its input have no counterpart and were left out", case.key)
    if len(turns) == 1 and turns[0]["role"] == "user":
        return str(turns[0]["content"])
    _note(config, "its conversation is written as JSON, which promptfoo reads as a chat", case.key)
    return json.dumps(turns, ensure_ascii=False)


def _assertions(
    config: PromptfooConfig, nodes: Sequence[EvaluatorSpec], case: CaseSpec | None
) -> Iterator[dict[str, Any]]:
    for node in nodes:
        key = case.key if case else ""
        for path in pass_marks(node):
            name = f"{node.name}/{path}" if path else node.name
            _note(config, f"{name}: its pass mark was left out; a threshold there decides", key)
        try:
            yield _assertion(node, case)
        except NoCounterpartError as error:
            _note(config, f"the evaluator {node.name} ({node.kind}) was left out: {error}", key)


def _assertion(node: EvaluatorSpec, case: CaseSpec | None) -> dict[str, Any]:
    """Return the assertion of an evaluator; raises NoCounterpartError."""
    values = _settings(node, case)
    if node.negate:
        if node.is_composite or node.kind == "execution_metrics":
            raise NoCounterpartError("it is negated, and such an assertion cannot be")
        values["type"] = f"not-{values['type']}"
    named = {} if node.name == values["type"] else {"metric": node.name}
    weight = {} if node.weight == 1 else {"weight": node.weight}
    return {**values, **named, **weight}


def _settings(node: EvaluatorSpec, case: CaseSpec | None) -> dict[str, Any]:
    match node.kind:
        case "text_check":
            return _text_check(node.config)
        case "expected_output":
            kind = MATCHES.get(node.config.get("match", "exact"))
            if kind is None or case is None or not case.expected_output:
                raise NoCounterpartError("it has no text to compare with")
            return {"type": kind, "value": case.expected_output}
        case "rubric":
            return _rubric(node)
        case "execution_metrics":
            given = {
                name: value
                for name, value in node.config.items()
                if value is not None and value is not False
            }
            [name, *others] = given or [""]
            if others or name not in LIMITS:
                raise NoCounterpartError("only a limit of duration or of cost has a counterpart")
            return {"type": LIMITS[name], "threshold": given[name]}
        case "composite":
            return _set(node, case)
        case _:
            raise NoCounterpartError("there is no such assertion")


def _text_check(given: Mapping[str, Any]) -> dict[str, Any]:
    operator = given["operator"]
    if operator not in TYPES:
        raise NoCounterpartError(f"{operator} is not known there")
    if given.get("ignore_case") and operator not in WITHOUT_CASE:
        raise NoCounterpartError(f"{operator} always distinguishes capitals there")
    if operator in ("is_json", "json_schema"):
        schema = {"value": given["json_schema"]} if operator == "json_schema" else {}
        return {"type": "is-json", **schema}
    kind = operator.replace("_", "-")
    value = list(given.get("values") or ()) or given.get("value")
    return {"type": f"i{kind}" if given.get("ignore_case") else kind, "value": value}


def _rubric(node: EvaluatorSpec) -> dict[str, Any]:
    criteria = node.config["rubrics"]
    if len(criteria) > 1:
        raise NoCounterpartError("it has several criteria, and there each is an assertion")
    [criterion] = criteria
    text = criterion if isinstance(criterion, str) else criterion["expected_outcome"]
    least = node.required_below
    if node.config.get("mode") == "graded" and least is None:
        raise NoCounterpartError("it is graded without a score to reach")
    graded = {} if least is None else {"threshold": least}
    return {"type": "llm-rubric", "value": text, **graded}


def _set(node: EvaluatorSpec, case: CaseSpec | None) -> dict[str, Any]:
    aggregator = node.aggregator
    if aggregator is None or aggregator.type != "weighted_average":
        raise NoCounterpartError("there scores of a set are averaged by weight")
    least = node.required_below
    if least is None and not _all_must_pass(node.children, 1.0):
        raise NoCounterpartError("there a set has a score to reach, or all of it must pass")
    if least == 0:
        raise NoCounterpartError("it always passes, and there a set with the threshold 0 may fail")
    inner = [_assertion(child, case) for child in node.children]
    return {"type": "assert-set", "assert": inner, **({"threshold": least} if least else {})}

"""Trajectories as suite files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds._spelling import normal_spelling

# What `value` holds under each of these names; nothing is set by the name alone.
SPELLINGS: Mapping[str, Mapping[str, Any]] = {
    "trajectory:tool_used": {"minimums": None},
    "trajectory:tool_sequence": {"steps": None},
    "trajectory:tool_args_match": {"args": None},
}
VALUE_KEYS = {
    "minimums": {"name", "min"},
    "steps": {"mode", "steps"},
    "args": {"name", "args", "mode"},
}
LISTS = ("expected_tools", "expected_calls", "tools", "steps")
TOOL_NAMES = ("name", "tool_name")
ARGUMENT_NAMES = ("arguments", "input")
ARGUMENT_RULES = {"ignore": "ignored", "any": "ignored", "superset": "partial"}


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of an expected call.

    Raises ValueError for what is asked of a trajectory and cannot be held to here.
    """
    found = _unfolded(mapping)
    for spelling in LISTS:
        if spelling in found and "expected" not in found:
            found["expected"] = found.pop(spelling)
    usual = _rule(found.get("args_match"))
    if isinstance(usual, str):
        found["args_match"] = usual
    elif isinstance(usual, list):
        found["args_match"] = "partial"
    if isinstance(found.get("expected"), list):
        found["expected"] = [_expected(one, usual) for one in found["expected"]]
    return found


def _rule(given: Any) -> Any:
    return ARGUMENT_RULES.get(given, given) if isinstance(given, str) else given


def _expected(one: Any, usual: Any) -> Any:
    """Return an expected call of a file: a list of names under args_match keeps to these arguments."""
    if not isinstance(one, Mapping):
        return one
    found = {normal_spelling(str(key)): value for key, value in one.items()}
    for name, spellings in (("tool", TOOL_NAMES), ("args", ARGUMENT_NAMES)):
        for spelling in spellings:
            if spelling in found and name not in found:
                found[name] = found.pop(spelling)
    if found.get("args") == "any":
        del found["args"]
    rule = _rule(found.get("args_match", usual))
    if isinstance(rule, list):
        if isinstance(args := found.get("args"), Mapping):
            found["args"] = {key: value for key, value in args.items() if key in rule}
        rule = "partial"
    return {**found, "args_match": rule} if "args_match" in found else found


def _unfolded(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping whose `value` is spread over the settings that it means."""
    meant = next((key for key in VALUE_KEYS if key in mapping and mapping[key] is None), "")
    found = {key: value for key, value in mapping.items() if key != meant}
    if not meant or "value" not in found:
        return found
    value = found.pop("value")
    if isinstance(value, Mapping):
        value = {normal_spelling(str(key)): part for key, part in value.items()}
        if unknown := sorted(value.keys() - VALUE_KEYS[meant]):
            known = ", ".join(sorted(VALUE_KEYS[meant]))
            raise ValueError(f"value.{unknown[0]}: cannot be held to here; known are {known}")
    return found | _SPREAD[meant](value)


def _used(value: Any) -> dict[str, Any]:
    least = value.get("min", 1) if isinstance(value, Mapping) else 1
    names = value.get("name") if isinstance(value, Mapping) else value
    listed = names if isinstance(names, list) else [names]
    if not listed or not all(isinstance(name, str) for name in listed):
        raise ValueError("value: minimums of tools are expected: a name, names, or name with min")
    return {"minimums": dict.fromkeys(listed, least)}


def _sequence(value: Any) -> dict[str, Any]:
    told = value if isinstance(value, Mapping) else {"steps": value}
    return {"mode": told.get("mode", "in_order"), "expected": told.get("steps")}


def _with_arguments(value: Any) -> dict[str, Any]:
    told = value if isinstance(value, Mapping) else {"name": value}
    call = {"tool": told.get("name"), "args": told.get("args")}
    return {"expected": [call], "args_match": told.get("mode", "partial")}


_SPREAD = {"minimums": _used, "steps": _sequence, "args": _with_arguments}

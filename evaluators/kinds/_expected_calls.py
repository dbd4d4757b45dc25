"""Calls of tools that are expected: what fits them, and how suite files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evaluators.kinds._base import Step
from evaluators.kinds._json_values import is_json, same, shown_value
from evaluators.kinds._spelling import normal_spelling

ArgumentRule = Literal["exact", "partial", "subset", "ignored"]
LISTS = ("expected_tools", "expected_calls", "tools", "steps")
TOOL_NAMES = ("name", "tool_name")
ARGUMENT_NAMES = ("arguments", "input")
ARGUMENT_RULES = {"ignore": "ignored", "any": "ignored", "superset": "partial"}


class ExpectedCall(BaseModel):
    """One call of a tool that is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tool: str = Field(min_length=1, max_length=200, description="Name of the tool.")
    args: Mapping[str, Any] | None = Field(None, description="Its arguments; left out: any.")
    args_match: ArgumentRule | None = Field(
        None, description="How the arguments are compared; left out: as the evaluator says."
    )
    max_duration_ms: int | None = Field(None, ge=0, description="Longest the call may take.")

    @field_validator("args")
    @classmethod
    def _can_be_compared(cls, args: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if not is_json(args):
            raise ValueError("holds what is no JSON value; put dates and the like in quotes")
        return args

    def rule(self, usual: ArgumentRule) -> ArgumentRule:
        """Return how the arguments are compared; those not given are not looked at."""
        return "ignored" if self.args is None else self.args_match or usual

    def fits(self, step: Step, usual: ArgumentRule) -> bool:
        """Tell whether a call is of this tool and has its arguments."""
        if step.name != self.tool:
            return False
        rule, wanted = self.rule(usual), self.args or {}
        if rule == "ignored":
            return True
        given = {} if step.input is None else step.input
        if not isinstance(given, Mapping):
            return False
        if rule == "exact":
            return same(dict(given), dict(wanted))
        inner, outer = (wanted, given) if rule == "partial" else (given, wanted)
        return all(key in outer and same(inner[key], outer[key]) for key in inner)

    def spelt(self, usual: ArgumentRule) -> str:
        """Return the call as findings name it: `search {"query": "TW-1"}`."""
        return (
            self.tool if self.rule(usual) == "ignored" else f"{self.tool} {shown_value(self.args)}"
        )


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of an expected call."""
    found = dict(mapping)
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

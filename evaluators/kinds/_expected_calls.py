"""Calls of tools that are expected, and what fits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evaluators.kinds._base import Step
from evaluators.kinds._json_values import is_json, same, shown_value

ArgumentRule = Literal["exact", "partial", "subset", "ignored"]


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

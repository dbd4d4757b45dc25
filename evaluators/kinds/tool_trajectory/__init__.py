"""Compare the tools an agent called with the tools it should have called.

The score is the share of the expectations that are met.

| mode | expectations |
|---|---|
| `any_order` | each entry of `expected` has a call of its own, in any order, and each tool in `minimums` was called at least that often. Other calls are allowed |
| `in_order` | each entry of `expected` has a call of its own, in this order. Other calls may come between them |
| `exact` | the calls are exactly those in `expected`, in this order. Each extra call counts as one more missed expectation |
| `superset` | the calls include all of `expected`, in any order. Other calls are allowed |
| `subset` | each call that was made is in `expected`, a list of allowed calls that may each be used again |

An expected call is the name of a tool, or `tool` with its arguments as `args`. `args_match` says how to
compare the arguments, for all calls or for one.

| args_match | the arguments match if |
|---|---|
| `partial` | each argument in `args` has that value; other arguments are allowed |
| `exact` | they are exactly those in `args` |
| `subset` | there are no arguments besides those in `args`, and they have those values |
| `ignored` | always, as for a call without `args` |

`max_duration_ms` of an expected call adds one more expectation: that the call took no longer. A call that was
not made misses both.

The evaluator is unscored if the target reports no trace, or if the trace does not say how long a call with a
limit took. An agent that called no tool is scored: it missed what was expected.

Good: the two calls that every correct answer needs, in any order.

Bad: `exact` for an agent that is free to choose its own way. A better way then counts as a fault.

```yaml
name: looks_before_it_pays
type: tool_trajectory
mode: in_order
expected:
  - find_order
  - tool: refund
    args: {currency: EUR}
    max_duration_ms: 3000
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, PartsMissingError, Step, kind
from evaluators.kinds._json import format_value, is_same
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.tool_trajectory.matching import (
    ArgumentRule,
    ExpectedCall,
    Mode,
    expectation_rows,
    untimed,
)
from evaluators.scoring.types import Outcome, Score, Unscored

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


MAX_EXPECTED = 200
MAX_ERROR_LENGTH = 200


class ToolTrajectoryConfig(KindConfig):
    """The calls that are expected and how the ones made are held to them."""

    mode: Mode = Field("any_order", description="How the calls are held to the expected ones.")
    expected: tuple[ExpectedCall, ...] = Field(
        (),
        max_length=MAX_EXPECTED,
        description="A list: each the name of a tool, or tool with args, args_match, "
        "max_duration_ms.",
    )
    minimums: Mapping[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Least number of calls by tool (search: 2), for any_order.",
    )
    args_match: ArgumentRule = Field(
        "partial", description="How arguments are compared where a call does not say."
    )

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, values: Any) -> Any:
        """Let an expected call be the name of its tool."""
        if not isinstance(values, Mapping) or not isinstance(values.get("expected"), list | tuple):
            return values
        calls = [{"tool": one} if isinstance(one, str) else one for one in values["expected"]]
        return {**values, "expected": calls}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        if self.minimums and self.mode != "any_order":
            raise ValueError(f"{self.mode} takes no minimums; any_order does")
        if self.mode == "subset" and any(one.max_duration_ms is not None for one in self.expected):
            raise ValueError("expected: subset takes no max_duration_ms")
        if self.mode not in ("exact", "subset") and not (self.expected or self.minimums):
            also = " or minimums" if self.mode == "any_order" else ""
            raise ValueError(f"{self.mode} needs expected{also}: the calls to be made")
        return self


def rescore(config: ToolTrajectoryConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored calls under this mode.

    Raises PartsMissingError for expected calls that were not compared, or whose time is not known.
    """
    calls = details.get("calls", ())
    fits = _fits(config, details.get("compared", ()))
    if slow := untimed(config, calls, fits):
        raise PartsMissingError(f"This result does not know how long {slow[0]} took.")
    rows = expectation_rows(config, calls, fits)
    judged = [row for row in rows if row.passed is not None]
    total = sum(row.counts for row in judged)
    met = sum(row.counts for row in judged if row.passed)
    return Score(
        # Nothing called where nothing must be: all of nothing is met.
        met / total if total else 1.0,
        findings=tuple(row.finding for row in judged),
        details={**details, "rows": [row.as_json() for row in rows], "met": met, "total": total},
    )


@kind(
    label="Tool trajectory",
    icon="e-tool",
    config=ToolTrajectoryConfig,
    rescore=rescore,
    spellings=SPELLINGS,
    read=read,
    needs=("a trace",),
)
async def score(config: ToolTrajectoryConfig, context: Context) -> Outcome:
    """Return the share of the expectations that the calls of tools meet."""
    if context.output.trace is None:
        reason = "the target reports no trace, so it is not known which tools were called"
        return Unscored(reason)
    steps = [step for step in context.output.trace if step.type == "tool"]
    compared = _compared(config, steps)
    fits = _fits(config, compared)
    looked_at = {one.tool for one in config.expected if one.rule(config.args_match) != "ignored"}
    calls = [_call(step, is_shown=step.name in looked_at) for step in steps]
    if slow := untimed(config, calls, fits):
        reason = (
            f"the trace does not tell how long {slow[0]} took, which max_duration_ms would need"
        )
        return Unscored(reason, details={"calls": calls})
    return rescore(config, {"calls": calls, "compared": compared})


def _compared(config: ToolTrajectoryConfig, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return each different expectation with the places of the calls that fit it."""
    found: list[dict[str, Any]] = []
    for one in config.expected:
        facts = _facts(one, config)
        if _stored(facts, found) is None:
            fits = [place for place, step in enumerate(steps) if one.fits(step, config.args_match)]
            found.append({**facts, "fits": fits})
    return found


def _fits(
    config: ToolTrajectoryConfig, compared: Sequence[Mapping[str, Any]]
) -> list[Sequence[int]]:
    """Return for each expectation the places that fit it; raises PartsMissingError for one not compared."""
    found: list[Sequence[int]] = []
    for one in config.expected:
        stored = _stored(_facts(one, config), compared)
        if stored is None:
            raise PartsMissingError(f"The calls of {one.tool} were not compared in this result.")
        found.append(stored["fits"])
    return found


def _stored(
    facts: Mapping[str, Any], compared: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return what was stored of an expectation of this tool, these arguments and this comparison."""
    return next(
        (one for one in compared if all(is_same(one.get(key), facts[key]) for key in facts)), None
    )


def _facts(one: ExpectedCall, config: ToolTrajectoryConfig) -> dict[str, Any]:
    facts = one.model_dump(mode="json", include={"tool", "args"})
    return {**facts, "args_match": one.rule(config.args_match)}


def _call(step: Step, *, is_shown: bool) -> dict[str, Any]:
    facts = {
        "tool": step.name,
        "arguments": format_value(step.input) if is_shown else None,
        "duration_ms": step.duration_ms,
        "error": step.error[:MAX_ERROR_LENGTH] or None,
    }
    return {name: value for name, value in facts.items() if value is not None}

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
    tools_without_duration,
)
from evaluators.scoring.types import Outcome, Score, Unscored

# The setting that `value` holds for each of these names; the name alone sets nothing.
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
    """Return the settings of a suite file with the expected calls under our names.

    Raises ValueError for requirements that are not supported here.
    """
    settings = _expand_value(mapping)
    for spelling in LISTS:
        if spelling in settings and "expected" not in settings:
            settings["expected"] = settings.pop(spelling)
    default = _rule(settings.get("args_match"))
    if isinstance(default, str):
        settings["args_match"] = default
    elif isinstance(default, list):
        settings["args_match"] = "partial"
    if isinstance(settings.get("expected"), list):
        settings["expected"] = [_expected(call, default) for call in settings["expected"]]
    return settings


def _rule(rule: Any) -> Any:
    return ARGUMENT_RULES.get(rule, rule) if isinstance(rule, str) else rule


def _expected(call: Any, default: Any) -> Any:
    """Return an expected call of a file; a list in args_match names the only arguments to compare."""
    if not isinstance(call, Mapping):
        return call
    settings = {normal_spelling(str(key)): value for key, value in call.items()}
    for name, spellings in (("tool", TOOL_NAMES), ("args", ARGUMENT_NAMES)):
        for spelling in spellings:
            if spelling in settings and name not in settings:
                settings[name] = settings.pop(spelling)
    if settings.get("args") == "any":
        del settings["args"]
    rule = _rule(settings.get("args_match", default))
    if isinstance(rule, list):
        if isinstance(args := settings.get("args"), Mapping):
            settings["args"] = {key: value for key, value in args.items() if key in rule}
        rule = "partial"
    return {**settings, "args_match": rule} if "args_match" in settings else settings


def _expand_value(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the parts of `value` under their own names."""
    setting = next((key for key in VALUE_KEYS if key in mapping and mapping[key] is None), "")
    settings = {key: value for key, value in mapping.items() if key != setting}
    if not setting or "value" not in settings:
        return settings
    value = settings.pop("value")
    if isinstance(value, Mapping):
        value = {normal_spelling(str(key)): part for key, part in value.items()}
        if unknown := sorted(value.keys() - VALUE_KEYS[setting]):
            known = ", ".join(sorted(VALUE_KEYS[setting]))
            raise ValueError(f"value.{unknown[0]}: is not supported here; there are {known}")
    return settings | _SETTINGS_OF_VALUE[setting](value)


def _minimum_settings(value: Any) -> dict[str, Any]:
    minimum = value.get("min", 1) if isinstance(value, Mapping) else 1
    names = value.get("name") if isinstance(value, Mapping) else value
    tools = names if isinstance(names, list) else [names]
    if not tools or not all(isinstance(name, str) for name in tools):
        raise ValueError("value: write the name of a tool, a list of names, or name with min")
    return {"minimums": dict.fromkeys(tools, minimum)}


def _sequence_settings(value: Any) -> dict[str, Any]:
    settings = value if isinstance(value, Mapping) else {"steps": value}
    return {"mode": settings.get("mode", "in_order"), "expected": settings.get("steps")}


def _argument_settings(value: Any) -> dict[str, Any]:
    settings = value if isinstance(value, Mapping) else {"name": value}
    call = {"tool": settings.get("name"), "args": settings.get("args")}
    return {"expected": [call], "args_match": settings.get("mode", "partial")}


_SETTINGS_OF_VALUE = {
    "minimums": _minimum_settings,
    "steps": _sequence_settings,
    "args": _argument_settings,
}


MAX_EXPECTED = 200
MAX_ERROR_LENGTH = 200


class ToolTrajectoryConfig(KindConfig):
    """The expected calls and how the actual ones are compared with them."""

    mode: Mode = Field(
        "any_order", description="How the calls are compared with the expected ones."
    )
    expected: tuple[ExpectedCall, ...] = Field(
        (),
        max_length=MAX_EXPECTED,
        description="A list of calls: each is the name of a tool, or tool with args, args_match, "
        "max_duration_ms.",
    )
    minimums: Mapping[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="The fewest calls of each tool (search: 2), for any_order.",
    )
    args_match: ArgumentRule = Field(
        "partial", description="How arguments are compared, unless a call says otherwise."
    )

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, values: Any) -> Any:
        """Accept an expected call that is only the name of its tool."""
        if not isinstance(values, Mapping) or not isinstance(values.get("expected"), list | tuple):
            return values
        calls = [{"tool": call} if isinstance(call, str) else call for call in values["expected"]]
        return {**values, "expected": calls}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        if self.minimums and self.mode != "any_order":
            raise ValueError(f"{self.mode} takes no minimums; any_order does")
        if self.mode == "subset" and any(
            call.max_duration_ms is not None for call in self.expected
        ):
            raise ValueError("expected: subset takes no max_duration_ms")
        if self.mode not in ("exact", "subset") and not (self.expected or self.minimums):
            also = " or minimums" if self.mode == "any_order" else ""
            raise ValueError(f"{self.mode} needs expected{also}: the calls to be made")
        return self


def rescore(config: ToolTrajectoryConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored calls in this mode.

    Raises PartsMissingError for expected calls that were not compared, or whose duration is unknown.
    """
    calls = details.get("calls", ())
    fits = _fits(config, details.get("compared", ()))
    if slow := tools_without_duration(config, calls, fits):
        raise PartsMissingError(f"This result does not record how long {slow[0]} took.")
    rows = expectation_rows(config, calls, fits)
    judged = [row for row in rows if row.passed is not None]
    total = sum(row.counts for row in judged)
    met = sum(row.counts for row in judged if row.passed)
    return Score(
        # No call was expected and none was made: everything is met.
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
    """Return the share of expectations that the tool calls meet."""
    if context.output.trace is None:
        reason = "the target reports no trace, so it is not known which tools were called"
        return Unscored(reason)
    steps = [step for step in context.output.trace if step.type == "tool"]
    compared = _compared(config, steps)
    fits = _fits(config, compared)
    compared_tools = {
        call.tool for call in config.expected if call.rule(config.args_match) != "ignored"
    }
    calls = [_call(step, is_shown=step.name in compared_tools) for step in steps]
    if slow := tools_without_duration(config, calls, fits):
        reason = f"the trace does not say how long {slow[0]} took, which max_duration_ms needs"
        return Unscored(reason, details={"calls": calls})
    return rescore(config, {"calls": calls, "compared": compared})


def _compared(config: ToolTrajectoryConfig, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return each distinct expectation with the positions of the calls that match it."""
    comparisons: list[dict[str, Any]] = []
    for call in config.expected:
        facts = _facts(call, config)
        if _stored(facts, comparisons) is None:
            fits = [place for place, step in enumerate(steps) if call.fits(step, config.args_match)]
            comparisons.append({**facts, "fits": fits})
    return comparisons


def _fits(
    config: ToolTrajectoryConfig, compared: Sequence[Mapping[str, Any]]
) -> list[Sequence[int]]:
    """Return the positions that match each expectation; raises PartsMissingError for one not compared."""
    positions: list[Sequence[int]] = []
    for call in config.expected:
        stored = _stored(_facts(call, config), compared)
        if stored is None:
            raise PartsMissingError(f"The calls of {call.tool} were not compared in this result.")
        positions.append(stored["fits"])
    return positions


def _stored(
    facts: Mapping[str, Any], compared: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the stored comparison of an expectation with this tool, arguments and rule."""
    return next(
        (
            comparison
            for comparison in compared
            if all(is_same(comparison.get(key), facts[key]) for key in facts)
        ),
        None,
    )


def _facts(call: ExpectedCall, config: ToolTrajectoryConfig) -> dict[str, Any]:
    facts = call.model_dump(mode="json", include={"tool", "args"})
    return {**facts, "args_match": call.rule(config.args_match)}


def _call(step: Step, *, is_shown: bool) -> dict[str, Any]:
    facts = {
        "tool": step.name,
        "arguments": format_value(step.input) if is_shown else None,
        "duration_ms": step.duration_ms,
        "error": step.error[:MAX_ERROR_LENGTH] or None,
    }
    return {name: value for name, value in facts.items() if value is not None}

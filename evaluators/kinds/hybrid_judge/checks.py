"""The deterministic checks of a hybrid judge: their settings, how files write them, and their results (SCORING §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluators.kinds import text_check
from evaluators.kinds._base import Context
from evaluators.kinds._prompts import MAX_PATH_LENGTH
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.hybrid_judge.opinions import default_dimensions
from evaluators.kinds.metrics_judge import metric_key
from evaluators.kinds.script import judge_by_script
from evaluators.kinds.script.program import (
    MAX_SECONDS,
    Protocol,
    ScriptSettings,
    named_settings,
    normalise_program,
)
from evaluators.reading.json import storable
from evaluators.scoring.hybrid import ERRORED, FAILED, PASSED, Check
from evaluators.scoring.types import Finding, Outcome, Score

MAX_CHECKS = 100
SCRIPT = "script"
CheckType = Literal[
    text_check.Operator,
    "final_response_present",
    "tool_call_count",
    "file_exists",
    "file_contains",
    "status_is",
    "script",
]
TEXT_SETTINGS = ("value", "values", "ignore_case", "max_length", "json_schema")
# The settings of each type besides name, dimensions and negate; text checks have TEXT_SETTINGS.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "final_response_present": (),
    "tool_call_count": ("tool", "min", "max"),
    "file_exists": ("path",),
    "file_contains": ("path", "value", "ignore_case"),
    "status_is": ("status",),
    "script": ("protocol", *ScriptSettings.model_fields),
}
NEEDS = {
    "file_exists": ("path",),
    "file_contains": ("path", "value"),
    "status_is": ("status",),
}
# Settings that do not affect the result of a check.
LABELS = {"name", "dimensions"}


class CheckSetting(BaseModel):
    """One check: its type with its settings, and the dimensions it counts towards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: CheckType = Field(description="What is checked.")
    name: str = Field("", max_length=100, description="Its name on pages.")
    dimensions: tuple[str, ...] = Field((), description="The dimensions it counts towards.")
    negate: bool = Field(False, description="Invert the check.")
    value: str | None = Field(None, description="The text or regular expression to look for.")
    values: tuple[str, ...] = Field((), description="The texts to look for.")
    ignore_case: bool = Field(False, description="Ignore upper and lower case.")
    max_length: int | None = Field(
        None, ge=0, description="The most characters the answer may have."
    )
    json_schema: Mapping[str, Any] | None = Field(None, description="The JSON schema.")
    path: str = Field(
        "",
        max_length=MAX_PATH_LENGTH,
        description="A file the agent left; * matches any part of a name.",
    )
    tool: str = Field("", description="The tool whose calls are counted. Empty: all tools.")
    min: int | None = Field(None, ge=0, description="Fewest calls.")
    max: int | None = Field(None, ge=0, description="Most calls.")
    status: str = Field("", description="The status with which the agent ended.")
    command: tuple[str, ...] = Field(
        (), description="The program; parts such as ./judges/x.py name files of the suite."
    )
    script: str = Field(
        "", description="The text of a script; the check passes with the full score."
    )
    cwd: str = Field("", description="The folder of the suite in which the script starts.")
    network: bool = Field(False, description="Ask for the network.")
    config: Mapping[str, Any] = Field(
        default_factory=dict,
        description="Settings for the script; it reads them as config on stdin.",
    )
    protocol: Protocol = Field("env", description="How the script gets the output: env or stdin.")
    timeout_s: float | None = Field(None, gt=0, le=MAX_SECONDS, description="Its timeout.")

    @model_validator(mode="before")
    @classmethod
    def _program_in_one_form(cls, values: Any) -> Any:
        """Make a list a command and a text a script, whichever of the two settings holds it."""
        is_script = isinstance(values, Mapping) and values.get("type") == SCRIPT
        return normalise_program(values) if is_script else values

    @model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        takes = SETTINGS.get(self.type, TEXT_SETTINGS)
        settings = {*self.model_fields_set} - {"type", "name", "dimensions", "negate"}
        changed = {name for name in settings if getattr(self, name) not in _default(name)}
        if foreign := sorted(changed - set(takes)):
            raise ValueError(f"{self.type} takes no {foreign[0]}")
        for name in NEEDS.get(self.type, ()):
            if not getattr(self, name):
                raise ValueError(f"{self.type} needs {name}")
        if self.type == "tool_call_count":
            self._check_counts()
        if self.type == SCRIPT and (problem := self.script_settings.program_problem):
            raise ValueError(problem)
        if self.type not in SETTINGS or self.type == "file_contains":
            self._check_text()
        return self

    @property
    def text_config(self) -> text_check.TextCheckConfig:
        """Return the text check that decides this check."""
        names = (name for name in TEXT_SETTINGS if getattr(self, name) not in (None, (), False))
        operator = self.type if self.type not in SETTINGS else "contains"
        values = {name: getattr(self, name) for name in names}
        return text_check.TextCheckConfig.model_validate({"operator": operator, **values})

    @property
    def script_settings(self) -> ScriptSettings:
        """Return the program of a check of type script."""
        names = ScriptSettings.model_fields
        return ScriptSettings.model_validate({name: getattr(self, name) for name in names})

    @property
    def comparison(self) -> dict[str, Any]:
        """Return the settings that decide the result of the check."""
        return self.model_dump(mode="json", exclude=LABELS, exclude_defaults=True)

    def _check_counts(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("tool_call_count needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")

    def _check_text(self) -> None:
        try:
            _ = self.text_config
        except ValidationError as error:
            message = str(error.errors()[0]["msg"])
            raise ValueError(message.removeprefix("Value error, ")) from error


def runs_programs(config: Mapping[str, Any]) -> bool:
    """Tell whether a check of these settings runs a program of the suite's author."""
    return any(check["type"] == SCRIPT for check in config.get("checks") or ())


def _default(name: str) -> tuple[Any, ...]:
    return (None, "", (), {}, False, CheckSetting.model_fields[name].default)


# Evaluators only run for answers: a target that failed leaves nothing to judge.
STATUS = "success"
SAME_STATUS = ("success", "completed", "ok")


class UndecidableError(Exception):
    """The check can neither pass nor fail for this output."""


async def run_check(check: CheckSetting, context: Context) -> dict[str, Any]:
    """Run a check and return its result as it is stored: passed, failed or error, with the reason."""
    try:
        passes, reason, evidence = await _RUNNERS.get(check.type, _text)(check, context)
    except UndecidableError as error:
        outcome, reason, evidence = ERRORED, str(error), ""
    else:
        outcome = PASSED if passes != check.negate else FAILED
    texts = {"message": storable(reason), "evidence": storable(evidence)}
    return {"comparison": check.comparison, "outcome": outcome, **texts}


def stored_checks(
    checks: tuple[CheckSetting, ...], stored: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return the stored result of every check under its current name, None if one is missing."""
    results = []
    for number, check in enumerate(checks, 1):
        result = next(
            (result for result in stored if result["comparison"] == check.comparison), None
        )
        if result is None:
            return None
        label = {"name": check.name or f"check {number}", "type": check.type}
        results.append(
            {**result, **label, "dimensions": list(check.dimensions), "negate": check.negate}
        )
    return results


def score_checks(stored: list[dict[str, Any]]) -> list[Check]:
    """Return the checks in the form that scoring uses."""
    return [Check(check["outcome"], tuple(check["dimensions"]), check["name"]) for check in stored]


CheckResult = tuple[bool, str, str]


async def _text(check: CheckSetting, context: Context) -> CheckResult:
    return _check_result(await text_check.score(check.text_config, context))


async def _final_response(_: CheckSetting, context: Context) -> CheckResult:
    length = len(context.output.text.strip())
    return (
        bool(length),
        f"A final response of {length} characters" if length else "No final response",
        "",
    )


async def _tool_calls(check: CheckSetting, context: Context) -> CheckResult:
    if context.output.trace is None:
        raise UndecidableError("the target does not report its tool calls")
    calls = [step.name for step in context.output.trace if step.type == "tool"]
    count = calls.count(check.tool) if check.tool else len(calls)
    low, high = check.min or 0, check.max
    noun = f"calls of {check.tool}" if check.tool else "tool calls"
    expected = f"at least {low}" if high is None else f"{low} to {high}"
    return (
        low <= count and (high is None or count <= high),
        f"{count} {noun}, expected {expected}",
        "",
    )


async def _file_exists(check: CheckSetting, context: Context) -> CheckResult:
    names = _files(check, context)
    if not names:
        return False, f"The agent left no file {check.path}", ""
    return True, f"The agent left {', '.join(names[:3])}", ""


async def _file_contains(check: CheckSetting, context: Context) -> CheckResult:
    names = _files(check, context)
    if not names:
        return False, f"The agent left no file {check.path}", ""
    reason, evidence = "", ""
    for name in names:
        text = context.output.files[name].decode("utf-8", "replace")
        file_context = replace(context, output=replace(context.output, text=text))
        passes, reason, evidence = await _text(check, file_context)
        if passes:
            return True, f"{name}: {reason}", evidence
    return False, f"{', '.join(names[:3])}: {reason}", evidence


async def _status(check: CheckSetting, _: Context) -> CheckResult:
    return check.status.strip().lower() in SAME_STATUS, f"The agent ended with {STATUS}", ""


async def _script(check: CheckSetting, context: Context) -> CheckResult:
    return _check_result(await judge_by_script(check.script_settings, check.protocol, context))


_RUNNERS: Mapping[str, Callable[[CheckSetting, Context], Awaitable[CheckResult]]] = {
    "final_response_present": _final_response,
    "tool_call_count": _tool_calls,
    "file_exists": _file_exists,
    "file_contains": _file_contains,
    "status_is": _status,
    "script": _script,
}


def _check_result(outcome: Outcome) -> CheckResult:
    if not isinstance(outcome, Score):
        raise UndecidableError(outcome.reason)
    first = next(iter(outcome.findings), Finding("", True))
    reason = outcome.reasoning or "; ".join(finding.text for finding in outcome.findings)
    return outcome.score == 1.0, reason or f"Scored {outcome.score:g}", first.evidence


def _files(check: CheckSetting, context: Context) -> list[str]:
    path = check.path.removeprefix("./")
    return sorted(name for name in context.output.files if fnmatchcase(name, path))


RENAMED = {
    **{"iterations": "samples", "judge_iterations": "samples", "repetitions": "samples"},
    **{"deterministic_checks": "checks", "policies": "dimension_policies"},
}
EXPECTATIONS = ("hard_expectations", "soft_expectations")
CHECK_NAMES = {
    **{"check_id": "name", "id": "name", "kind": "type", "operator": "type"},
    **{"file": "path", "artifact": "path", "tool_name": "tool", "dimension": "dimensions"},
    **{"min_calls": "min", "max_calls": "max", "pattern": "value", "text": "value"},
    **{"contains": "value", "schema": "json_schema", "expected": "value"},
}
# The types of scripts that read JSON on stdin.
STDIN_SCRIPTS = ("code_judge", "code_grader")
CHECK_TYPES = {
    **{"final_response": "final_response_present", "tool_calls": "tool_call_count"},
    **{"path_exists": "file_exists", "artifact_exists": "file_exists"},
    **{"output_artifact_present": "file_exists", "file_present": "file_exists"},
    **{"artifact_contains": "file_contains", "status": "status_is"},
    **dict.fromkeys(STDIN_SCRIPTS, SCRIPT),
}
SCRIPT_NAMES = {
    name: own for name, own in CHECK_NAMES.items() if own in ("name", "type", "dimensions")
}
NESTED = ("declarative", "python", "with", "config")
EXACT_COUNT = ("count", "exactly", "equals")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a hybrid judge in a suite file under their own names.

    Raises ValueError for duplicate settings and unknown dimensions.
    """
    settings: dict[str, Any] = {}
    for key, value in mapping.items():
        name = RENAMED.get(key, key)
        if name in settings:
            raise ValueError(f"{key} says the same as {name}; keep one of them")
        settings[name] = value
    settings = _with_expectations(settings)
    if isinstance(settings.get("checks"), list):
        settings["checks"] = [_check(check) for check in settings["checks"]]
    if "dimensions" in settings:
        settings["dimensions"] = _dimensions(settings["dimensions"])
    if (policies := settings.pop("dimension_policies", None)) is not None:
        settings["dimensions"] = _change_dimensions(settings.get("dimensions"), policies, "policy")
    if (weights := settings.pop("dimension_weights", None)) is not None:
        settings["dimensions"] = _change_dimensions(settings.get("dimensions"), weights, "weight")
        settings.setdefault("score_from", "dimension_weights")
    return settings


def _with_expectations(settings: dict[str, Any]) -> dict[str, Any]:
    expectations = settings.pop("expectations", None)
    if expectations is None:
        return settings
    if not isinstance(expectations, Mapping):
        raise ValueError(
            "expectations: is not a mapping; write hard_expectations and soft_expectations"
        )
    for key, value in expectations.items():
        name = normal_spelling(str(key))
        name = name if name in EXPECTATIONS else f"{name}_expectations"
        if name in settings:
            raise ValueError(f"expectations: {key} says the same as {name}; keep one of them")
        settings[name] = value
    return settings


def _check(check: Any) -> Any:
    if isinstance(check, str):
        return {"type": _type(check)}
    if not isinstance(check, Mapping):
        return check
    settings = _flat(_snake_case_keys(check))
    if "type" not in settings and not {"kind", "operator"} & settings.keys():
        settings = _long_form(settings)
    named: dict[str, Any] = {}
    # The path of a script is its program, and its config is for the script alone.
    names = CHECK_NAMES if _type(str(settings.get("type", ""))) != SCRIPT else SCRIPT_NAMES
    for key, value in settings.items():
        name = names.get(key, key)
        if name in named:
            raise ValueError(f"checks: {key} says the same as {name}; keep one of them")
        named[name] = value
    return _complete(named)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a check with its nested settings at the top level."""
    is_script = _type(str(settings.get("type", ""))) == SCRIPT
    for name in () if is_script else NESTED:
        inner = settings.get(name)
        if isinstance(inner, Mapping):
            del settings[name]
            settings |= _snake_case_keys(inner)
    return settings


def _snake_case_keys(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {normal_spelling(str(key)): value for key, value in mapping.items()}


def _long_form(check: dict[str, Any]) -> dict[str, Any]:
    """Return a check in the long form if its type is the key of its value (`contains: refund`)."""
    known = {*SETTINGS, *CHECK_TYPES, *text_check.NEEDS, "equals", "contains", "regex"}
    named = [key for key in check if key in known | {"starts_with", "ends_with"}]
    if len(named) != 1:
        return check
    value = check.pop(named[0])
    kind = _type(named[0])
    if isinstance(value, Mapping) and kind != "json_schema":
        return {"type": kind, **_snake_case_keys(value), **check}
    settings = {"script": "script", "status_is": "status", "tool_call_count": "count"}
    setting = "path" if kind == "file_exists" else settings.get(kind, "value")
    return {"type": kind, **({} if value in (True, None) else {setting: value}), **check}


def _complete(check: dict[str, Any]) -> dict[str, Any]:
    kind = _type(str(check.get("type", "")))
    exact = [name for name in EXACT_COUNT if name in check]
    if kind == "tool_call_count" and exact:
        check |= {"min": check[exact[0]], "max": check.pop(exact[0])}
    if isinstance(check.get("name"), int):
        check["name"] = str(check["name"])
    if isinstance(check.get("dimensions"), str):
        check["dimensions"] = [check["dimensions"]]
    if isinstance(check.get("dimensions"), list):
        check["dimensions"] = [metric_key(str(name)) for name in check["dimensions"]]
    if kind == SCRIPT:
        is_stdin = normal_spelling(str(check["type"])) in STDIN_SCRIPTS
        protocol = {"protocol": "stdin"} if is_stdin else {}
        return {**protocol, **named_settings(check), "type": kind}
    if kind in SETTINGS or "type" not in check:
        return {**check, "type": kind} if "type" in check else check
    spellings = text_check.score.kind_facts["spellings"]  # type: ignore[attr-defined]  # set by its mark
    preset = {"operator": kind, **spellings.get(kind, {})}
    read_as = text_check.read({**check, **preset})
    operator = read_as.pop("operator")
    return {**read_as, "type": operator}


def _type(name: str) -> str:
    spelling = normal_spelling(name)
    return CHECK_TYPES.get(spelling, spelling)


def _dimensions(dimensions: Any) -> Any:
    """Return dimensions as a list; a mapping holds policy, weight or settings by key."""
    if isinstance(dimensions, Mapping):
        return [
            {"key": str(key), **_facts(facts, "policy" if isinstance(facts, str) else "weight")}
            for key, facts in dimensions.items()
        ]
    if not isinstance(dimensions, list):
        return dimensions
    return [
        _facts(dimension, "") if isinstance(dimension, Mapping) else dimension
        for dimension in dimensions
    ]


def _change_dimensions(dimensions: Any, facts: Any, name: str) -> Any:
    """Return the dimensions with other policies or weights."""
    if not isinstance(facts, Mapping):
        raise ValueError(
            f"dimension {name}: is not a mapping; write it by the key of its dimension"
        )
    listed = (
        [dimension.key for dimension in default_dimensions()] if dimensions is None else dimensions
    )
    if not isinstance(listed, list):
        return dimensions
    rows = [{"key": dimension} if isinstance(dimension, str) else dimension for dimension in listed]
    known = {metric_key(str(row.get("key"))) for row in rows if isinstance(row, Mapping)}
    changes = {metric_key(str(key)): _facts(value, name) for key, value in facts.items()}
    if unknown := sorted(changes.keys() - known):
        raise ValueError(f"{unknown[0]!r} is not one of the dimensions {', '.join(sorted(known))}")
    return [
        {**row, **changes.get(metric_key(str(row.get("key"))), {})}
        if isinstance(row, Mapping)
        else row
        for row in rows
    ]


def _facts(facts: Any, name: str) -> dict[str, Any]:
    if not isinstance(facts, Mapping):
        return {name: facts}
    settings = _snake_case_keys(facts)
    for other in ("name", "id", "dimension"):
        if other in settings and "key" not in settings:
            settings["key"] = settings.pop(other)
    return settings

"""The deterministic checks of a hybrid evaluation: how files write them, their settings, and what they come to (SCORING §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluators.kinds import text_check
from evaluators.kinds._base import Context
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.hybrid_judge.opinions import default_dimensions, storable
from evaluators.kinds.metrics_judge import metric_key
from evaluators.kinds.script import judge_by_script
from evaluators.kinds.script.program import (
    MAX_SECONDS,
    Protocol,
    ScriptSettings,
    in_one_form,
    named_settings,
)
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
# What each type takes besides name, dimensions and negate; the types of text checks take TEXT_SETTINGS.
TAKES: Mapping[str, tuple[str, ...]] = {
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
# What decides a check; the rest says what it is called and what it tells of.
DECIDES_NOTHING = {"name", "dimensions"}


class CheckSetting(BaseModel):
    """One check: its type, what that needs, and the dimensions it tells of."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: CheckType = Field(description="What is checked.")
    name: str = Field("", max_length=100, description="How it is called on pages.")
    dimensions: tuple[str, ...] = Field((), description="The dimensions it tells of.")
    negate: bool = Field(False, description="Passed when it does not hold.")
    value: str | None = Field(None, description="The text or expression looked for.")
    values: tuple[str, ...] = Field((), description="The texts looked for.")
    ignore_case: bool = Field(False, description="Take upper and lower case for the same.")
    max_length: int | None = Field(None, ge=0, description="Most characters of the answer.")
    json_schema: Mapping[str, Any] | None = Field(None, description="The JSON schema.")
    path: str = Field("", description="A file the agent left; * stands for any part of a name.")
    tool: str = Field("", description="The tool whose calls are counted; empty: all tools.")
    min: int | None = Field(None, ge=0, description="Fewest calls.")
    max: int | None = Field(None, ge=0, description="Most calls.")
    status: str = Field("", description="How the agent ended.")
    command: tuple[str, ...] = Field(
        (), description="The program; parts such as ./judges/x.py name files of the suite."
    )
    script: str = Field("", description="The script itself; it passes with the full score.")
    cwd: str = Field("", description="Folder of the suite's files the script starts in.")
    network: bool = Field(False, description="Ask for the network.")
    config: Mapping[str, Any] = Field(
        default_factory=dict, description="Whatever the script wants to be told."
    )
    protocol: Protocol = Field("env", description="How the script is told of the output.")
    timeout_s: float | None = Field(None, gt=0, le=MAX_SECONDS, description="Its time-out.")

    @model_validator(mode="before")
    @classmethod
    def _program_in_one_form(cls, values: Any) -> Any:
        """Take a command for a list and a script for a text, under whichever name they stand."""
        is_script = isinstance(values, Mapping) and values.get("type") == SCRIPT
        return in_one_form(values) if is_script else values

    @model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        takes = TAKES.get(self.type, TEXT_SETTINGS)
        settings = {*self.model_fields_set} - {"type", "name", "dimensions", "negate"}
        given = {name for name in settings if getattr(self, name) not in _default(name)}
        if foreign := sorted(given - set(takes)):
            raise ValueError(f"{self.type} takes no {foreign[0]}")
        for name in NEEDS.get(self.type, ()):
            if not getattr(self, name):
                raise ValueError(f"{self.type} needs {name}")
        if self.type == "tool_call_count":
            self._check_counts()
        if self.type == SCRIPT and (problem := self.script_settings.program_problem):
            raise ValueError(problem)
        if self.type not in TAKES or self.type == "file_contains":
            self._check_text()
        return self

    @property
    def text_config(self) -> text_check.TextCheckConfig:
        """Return the text check that this check is, or makes of a file."""
        names = (name for name in TEXT_SETTINGS if getattr(self, name) not in (None, (), False))
        operator = self.type if self.type not in TAKES else "contains"
        values = {name: getattr(self, name) for name in names}
        return text_check.TextCheckConfig.model_validate({"operator": operator, **values})

    @property
    def script_settings(self) -> ScriptSettings:
        """Return the program that decides a check of type script."""
        names = ScriptSettings.model_fields
        return ScriptSettings.model_validate({name: getattr(self, name) for name in names})

    @property
    def comparison(self) -> dict[str, Any]:
        """Return what makes two checks decide alike."""
        return self.model_dump(mode="json", exclude=DECIDES_NOTHING, exclude_defaults=True)

    def _check_counts(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("tool_call_count needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")

    def _check_text(self) -> None:
        try:
            _ = self.text_config
        except ValidationError as error:
            said = str(error.errors()[0]["msg"])
            raise ValueError(said.removeprefix("Value error, ")) from error


def runs_programs(config: Mapping[str, Any]) -> bool:
    """Tell whether a check of these settings runs a program of the suite's author."""
    return any(check["type"] == SCRIPT for check in config.get("checks") or ())


def _default(name: str) -> tuple[Any, ...]:
    return (None, "", (), {}, False, CheckSetting.model_fields[name].default)


# An evaluator is only asked about an answer that came: a target that failed leaves nothing to judge.
STATUS = "success"
SAME_STATUS = ("success", "completed", "ok")


class UndecidableError(Exception):
    """The check can be neither passed nor failed for this output."""


async def carried_out(check: CheckSetting, context: Context) -> dict[str, Any]:
    """Return what a check came to, as it is stored: passed, failed or error, and in words why."""
    try:
        holds, said, evidence = await _DECIDED.get(check.type, _text)(check, context)
    except UndecidableError as error:
        outcome, said, evidence = ERRORED, str(error), ""
    else:
        outcome = PASSED if holds != check.negate else FAILED
    words = {"said": storable(said), "evidence": storable(evidence)}
    return {"comparison": check.comparison, "outcome": outcome, **words}


def stored_checks(
    checks: tuple[CheckSetting, ...], stored: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return of every check what is stored of it, under its present name; None when one is not there."""
    found = []
    for number, check in enumerate(checks, 1):
        said = next((one for one in stored if one["comparison"] == check.comparison), None)
        if said is None:
            return None
        own = {"name": check.name or f"check {number}", "type": check.type}
        found.append({**said, **own, "dimensions": list(check.dimensions), "negate": check.negate})
    return found


def score_checks(stored: list[dict[str, Any]]) -> list[Check]:
    """Return the checks as the arithmetic knows them."""
    return [Check(one["outcome"], tuple(one["dimensions"]), one["name"]) for one in stored]


CheckResult = tuple[bool, str, str]


async def _text(check: CheckSetting, context: Context) -> CheckResult:
    return _of_outcome(await text_check.score(check.text_config, context))


async def _final_response(_: CheckSetting, context: Context) -> CheckResult:
    length = len(context.output.text.strip())
    return bool(length), f"A final response of {length} characters" if length else "None came", ""


async def _tool_calls(check: CheckSetting, context: Context) -> CheckResult:
    if context.output.trace is None:
        raise UndecidableError("the target does not report its tool calls")
    calls = [step.name for step in context.output.trace if step.type == "tool"]
    count = calls.count(check.tool) if check.tool else len(calls)
    low, high = check.min or 0, check.max
    what = f"calls of {check.tool}" if check.tool else "tool calls"
    wanted = f"at least {low}" if high is None else f"{low} to {high}"
    return (
        low <= count and (high is None or count <= high),
        f"{count} {what}, expected {wanted}",
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
    said, evidence = "", ""
    for name in names:
        text = context.output.files[name].decode("utf-8", "replace")
        read = replace(context, output=replace(context.output, text=text))
        holds, said, evidence = await _text(check, read)
        if holds:
            return True, f"{name}: {said}", evidence
    return False, f"{', '.join(names[:3])}: {said}", evidence


async def _status(check: CheckSetting, _: Context) -> CheckResult:
    return check.status.strip().lower() in SAME_STATUS, f"The agent ended with {STATUS}", ""


async def _script(check: CheckSetting, context: Context) -> CheckResult:
    return _of_outcome(await judge_by_script(check.script_settings, check.protocol, context))


_DECIDED: Mapping[str, Callable[[CheckSetting, Context], Awaitable[CheckResult]]] = {
    "final_response_present": _final_response,
    "tool_call_count": _tool_calls,
    "file_exists": _file_exists,
    "file_contains": _file_contains,
    "status_is": _status,
    "script": _script,
}


def _of_outcome(outcome: Outcome) -> CheckResult:
    if not isinstance(outcome, Score):
        raise UndecidableError(outcome.reason)
    first = next(iter(outcome.findings), Finding("", True))
    said = outcome.reasoning or "; ".join(found.text for found in outcome.findings)
    return outcome.score == 1.0, said or f"Scored {outcome.score:g}", first.evidence


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
# Scripts that read JSON, as evaluators of these types do.
STDIN_SCRIPTS = ("code_judge", "code_grader")
CHECK_TYPES = {
    **{"final_response": "final_response_present", "tool_calls": "tool_call_count"},
    **{"path_exists": "file_exists", "artifact_exists": "file_exists"},
    **{"output_artifact_present": "file_exists", "file_present": "file_exists"},
    **{"artifact_contains": "file_contains", "status": "status_is"},
    **dict.fromkeys(STDIN_SCRIPTS, SCRIPT),
}
SCRIPT_NAMES = {
    name: meant for name, meant in CHECK_NAMES.items() if meant in ("name", "type", "dimensions")
}
NESTED = ("declarative", "python", "with", "config")
EXACT_COUNT = ("count", "exactly", "equals")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of a hybrid judge.

    Raises ValueError for what stands twice and for a dimension that is not among those judged.
    """
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        name = RENAMED.get(key, key)
        if name in found:
            raise ValueError(f"{key} says the same as {name}; keep one of them")
        found[name] = value
    found = _with_expectations(found)
    if isinstance(found.get("checks"), list):
        found["checks"] = [_check(one) for one in found["checks"]]
    if "dimensions" in found:
        found["dimensions"] = _dimensions(found["dimensions"])
    if (policies := found.pop("dimension_policies", None)) is not None:
        found["dimensions"] = _changed(found.get("dimensions"), policies, "policy")
    if (weights := found.pop("dimension_weights", None)) is not None:
        found["dimensions"] = _changed(found.get("dimensions"), weights, "weight")
        found.setdefault("score_from", "dimension_weights")
    return found


def _with_expectations(found: dict[str, Any]) -> dict[str, Any]:
    given = found.pop("expectations", None)
    if given is None:
        return found
    if not isinstance(given, Mapping):
        raise ValueError(
            "expectations: is no mapping; write hard_expectations and soft_expectations"
        )
    for key, value in given.items():
        name = normal_spelling(str(key))
        name = name if name in EXPECTATIONS else f"{name}_expectations"
        if name in found:
            raise ValueError(f"expectations: {key} stands beside {name}; keep one of them")
        found[name] = value
    return found


def _check(one: Any) -> Any:
    if isinstance(one, str):
        return {"type": _type(one)}
    if not isinstance(one, Mapping):
        return one
    spelt = _flat(_spelt(one))
    if "type" not in spelt and not {"kind", "operator"} & spelt.keys():
        spelt = _named_by_type(spelt)
    found: dict[str, Any] = {}
    # The path of a script is its program, and what it is told under config is for it alone.
    names = CHECK_NAMES if _type(str(spelt.get("type", ""))) != SCRIPT else SCRIPT_NAMES
    for key, value in spelt.items():
        name = names.get(key, key)
        if name in found:
            raise ValueError(f"checks: {key} says the same as {name}; keep one of them")
        found[name] = value
    return _meant(found)


def _flat(spelt: dict[str, Any]) -> dict[str, Any]:
    """Return a check with what it nests under a word of its own beside the rest."""
    is_script = _type(str(spelt.get("type", ""))) == SCRIPT
    for name in () if is_script else NESTED:
        inner = spelt.get(name)
        if isinstance(inner, Mapping):
            del spelt[name]
            spelt |= _spelt(inner)
    return spelt


def _spelt(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {normal_spelling(str(key)): value for key, value in mapping.items()}


def _named_by_type(spelt: dict[str, Any]) -> dict[str, Any]:
    """Return a check whose type is the key of its value (`contains: refund`) in the long form."""
    known = {*TAKES, *CHECK_TYPES, *text_check.NEEDS, "equals", "contains", "regex"}
    named = [key for key in spelt if key in known | {"starts_with", "ends_with"}]
    if len(named) != 1:
        return spelt
    value = spelt.pop(named[0])
    kind = _type(named[0])
    if isinstance(value, Mapping) and kind != "json_schema":
        return {"type": kind, **_spelt(value), **spelt}
    settings = {"script": "script", "status_is": "status", "tool_call_count": "count"}
    at = "path" if kind == "file_exists" else settings.get(kind, "value")
    return {"type": kind, **({} if value in (True, None) else {at: value}), **spelt}


def _meant(found: dict[str, Any]) -> dict[str, Any]:
    kind = _type(str(found.get("type", "")))
    exact = [name for name in EXACT_COUNT if name in found]
    if kind == "tool_call_count" and exact:
        found |= {"min": found[exact[0]], "max": found.pop(exact[0])}
    if isinstance(found.get("name"), int):
        found["name"] = str(found["name"])
    if isinstance(found.get("dimensions"), str):
        found["dimensions"] = [found["dimensions"]]
    if isinstance(found.get("dimensions"), list):
        found["dimensions"] = [metric_key(str(name)) for name in found["dimensions"]]
    if kind == SCRIPT:
        is_stdin = normal_spelling(str(found["type"])) in STDIN_SCRIPTS
        protocol = {"protocol": "stdin"} if is_stdin else {}
        return {**protocol, **named_settings(found), "type": kind}
    if kind in TAKES or "type" not in found:
        return {**found, "type": kind} if "type" in found else found
    spellings = text_check.score.kind_facts["spellings"]  # type: ignore[attr-defined]  # set by its mark
    preset = {"operator": kind, **spellings.get(kind, {})}
    read_as = text_check.read({**found, **preset})
    operator = read_as.pop("operator")
    return {**read_as, "type": operator}


def _type(name: str) -> str:
    spelt = normal_spelling(name)
    return CHECK_TYPES.get(spelt, spelt)


def _dimensions(given: Any) -> Any:
    """Return dimensions as a list: a mapping gives each its policy, weight or facts by its key."""
    if isinstance(given, Mapping):
        return [
            {"key": str(key), **_facts(facts, "policy" if isinstance(facts, str) else "weight")}
            for key, facts in given.items()
        ]
    if not isinstance(given, list):
        return given
    return [_facts(one, "") if isinstance(one, Mapping) else one for one in given]


def _changed(given: Any, facts: Any, name: str) -> Any:
    """Return the dimensions with a policy or weight of some of them changed."""
    if not isinstance(facts, Mapping):
        raise ValueError(f"dimension {name}: is no mapping; write it by the key of its dimension")
    listed = [one.key for one in default_dimensions()] if given is None else given
    if not isinstance(listed, list):
        return given
    rows = [{"key": one} if isinstance(one, str) else one for one in listed]
    known = {metric_key(str(row.get("key"))) for row in rows if isinstance(row, Mapping)}
    told = {metric_key(str(key)): _facts(value, name) for key, value in facts.items()}
    if unknown := sorted(told.keys() - known):
        raise ValueError(f"{unknown[0]!r} is not one of the dimensions {', '.join(sorted(known))}")
    return [
        {**row, **told.get(metric_key(str(row.get("key"))), {})}
        if isinstance(row, Mapping)
        else row
        for row in rows
    ]


def _facts(facts: Any, name: str) -> dict[str, Any]:
    if not isinstance(facts, Mapping):
        return {name: facts}
    spelt = _spelt(facts)
    for other in ("name", "id", "dimension"):
        if other in spelt and "key" not in spelt:
            spelt["key"] = spelt.pop(other)
    return spelt

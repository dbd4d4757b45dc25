"""The settings of checks that a program decides, each tagged with the dimensions it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluators.kinds import text_check
from evaluators.kinds._scripts import MOST_SECONDS, Protocol, ScriptSettings, in_one_form

MOST_CHECKS = 100
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
    timeout_s: float | None = Field(None, gt=0, le=MOST_SECONDS, description="Its time-out.")

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
    def text_config(self) -> text_check.Config:
        """Return the text check that this check is, or makes of a file."""
        names = (name for name in TEXT_SETTINGS if getattr(self, name) not in (None, (), False))
        operator = self.type if self.type not in TAKES else "contains"
        values = {name: getattr(self, name) for name in names}
        return text_check.Config.model_validate({"operator": operator, **values})

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

"""Check the text of an answer with a rule: contains, equals, regex, JSON and more. No model is called.

The score is 1 if the check passes and 0 if it does not.

| operator | passes if the answer |
|---|---|
| `equals` | is identical to the text |
| `contains` | contains the text |
| `contains_any`, `contains_all` | contains at least one of the texts, contains all of them |
| `starts_with`, `ends_with` | begins or ends with the text |
| `regex` | matches the regular expression anywhere (time limit 2 s) |
| `is_json` | is one JSON value and nothing else |
| `json_schema` | is JSON that satisfies the schema |
| `max_length` | has at most that many characters |

`ignore_case` lets the operators that compare texts ignore upper and lower case; `trim` lets `equals`,
`starts_with` and `ends_with` ignore white space at the ends of the answer and of the text. `negate: true` on the
evaluator inverts a check: "must not contain". In suite files the operator is the type.

Good: a fact that every correct answer contains, such as an order number, or a number it must never contain.

Bad: `equals` for an answer in prose. One different word and it fails; ask a judge instead. Also bad: a
variable such as `{{expected_output}}`. It is searched for literally; use the type `expected_output` to compare
with the expected output of each case.

```yaml
name: no_prompt_leak
type: contains_any
values: ["my system prompt", "rule 4: goodwill"]
ignore_case: true
negate: true
required: true
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds._json import UnresolvableReferenceError, schema_problem, schema_violations
from evaluators.kinds._text import SlowPatternError, compile_pattern, find_pattern
from evaluators.reading.json import read_json
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

Findings = tuple[Finding, ...]
Rule = Callable[["TextCheckConfig", str], Awaitable[Findings]]

AROUND = 40
LONGEST = 160


class UncheckableError(Exception):
    """The settings of the check cannot be applied to this answer."""


def quote_text(text: str) -> str:
    """Return a text in quotes, without its middle if it is long."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return f"“{text}”"


def passage(text: str, start: int, end: int) -> str:
    """Return a part of a text with a little context."""
    before, after = max(0, start - AROUND), min(len(text), end + AROUND)
    part = text[before:after].strip()
    return f"{'…' if before else ''}{part}{'…' if after < len(text) else ''}"


def parsed_json(text: str) -> Any:
    """Return the JSON value of a text; raises ValueError saying why it is not JSON."""
    return read_json(text, number=float, keeps_last=True, unstorable="keep")


def _position(config: TextCheckConfig, wanted: str, text: str) -> tuple[int, int] | None:
    """Return the position of a text in another, None if it does not occur."""
    if config.ignore_case:
        # Case folding may change the length ("ß" becomes "ss"), so search the original text for the position.
        match = compile_pattern(_escaped(wanted), ignore_case=True).search(text)
        if match is not None:
            return int(match.start()), int(match.end())
        return (0, len(text)) if wanted.casefold() in text.casefold() else None
    start = text.find(wanted)
    return None if start < 0 else (start, start + len(wanted))


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char.isascii() and not char.isalnum() else char for char in text)


def _presence(config: TextCheckConfig, wanted: str, text: str) -> Finding:
    place = _position(config, wanted, text)
    if place is None:
        return Finding(f"Does not contain {quote_text(wanted)}", False)
    return Finding(f"Contains {quote_text(wanted)}", True, passage(text, *place))


async def _contains(config: TextCheckConfig, text: str) -> Findings:
    return (_presence(config, config.value or "", text),)


async def _contains_all(config: TextCheckConfig, text: str) -> Findings:
    return tuple(_presence(config, wanted, text) for wanted in config.values)


async def _contains_any(config: TextCheckConfig, text: str) -> Findings:
    findings = [_presence(config, wanted, text) for wanted in config.values]
    present = tuple(finding for finding in findings if finding.passed)
    if present:
        return present
    listed = ", ".join(quote_text(wanted) for wanted in config.values)
    return (Finding(f"Contains none of {listed}", False),)


def _trimmed(config: TextCheckConfig, text: str) -> tuple[str, str]:
    """Return the expected text and the answer, without white space at their ends if that is ignored."""
    wanted = config.value or ""
    return (wanted.strip(), text.strip()) if config.trim else (wanted, text)


def _same(config: TextCheckConfig, first: str, second: str) -> bool:
    return first.casefold() == second.casefold() if config.ignore_case else first == second


async def _equals(config: TextCheckConfig, text: str) -> Findings:
    wanted, text = _trimmed(config, text)
    if _same(config, text, wanted):
        return (Finding(f"Is {quote_text(wanted)}", True),)
    if _same(config, text.strip(), wanted.strip()):
        return (
            Finding(f"Differs from {quote_text(wanted)} only by white space at its ends", False),
        )
    return (Finding(f"Is not {quote_text(wanted)}", False, quote_text(text)),)


async def _starts_with(config: TextCheckConfig, text: str) -> Findings:
    wanted, text = _trimmed(config, text)
    start = text[: len(wanted)]
    if _same(config, start, wanted):
        return (Finding(f"Starts with {quote_text(wanted)}", True),)
    return (
        Finding(f"Does not start with {quote_text(wanted)}", False, passage(text, 0, len(start))),
    )


async def _ends_with(config: TextCheckConfig, text: str) -> Findings:
    wanted, text = _trimmed(config, text)
    end = text[max(0, len(text) - len(wanted)) :]
    if _same(config, end, wanted):
        return (Finding(f"Ends with {quote_text(wanted)}", True),)
    rest = len(text) - len(end)
    return (
        Finding(f"Does not end with {quote_text(wanted)}", False, passage(text, rest, len(text))),
    )


async def _regex(config: TextCheckConfig, text: str) -> Findings:
    pattern = compile_pattern(config.value or "", ignore_case=config.ignore_case)
    match = await find_pattern(pattern, text)
    if match is None:
        return (Finding(f"Has no match of {quote_text(pattern.pattern)}", False),)
    return (Finding(f"Matches {quote_text(pattern.pattern)}", True, quote_text(match)),)


async def _is_json(config: TextCheckConfig, text: str) -> Findings:
    try:
        value = parsed_json(text)
    except ValueError as error:
        return (Finding("Is not JSON", False, str(error)),)
    return (Finding(f"Is JSON: {_value_kind(value)}", True),)


async def _json_schema(config: TextCheckConfig, text: str) -> Findings:
    try:
        value = parsed_json(text)
    except ValueError as error:
        return (Finding("Is not JSON", False, str(error)),)
    schema: Mapping[str, Any] = config.json_schema or {}
    try:
        problems = await asyncio.to_thread(schema_violations, value, schema)
    except UnresolvableReferenceError as error:
        raise UncheckableError(str(error)) from error
    if not problems:
        return (Finding("Satisfies the JSON schema", True),)
    return tuple(
        Finding("Does not satisfy the JSON schema", False, problem) for problem in problems
    )


async def _max_length(config: TextCheckConfig, text: str) -> Findings:
    limit, length = config.max_length or 0, len(text)
    if length <= limit:
        return (Finding(f"{length} characters, at most {limit}", True),)
    return (Finding(f"{length} characters, over the limit of {limit}", False),)


def _value_kind(value: Any) -> str:
    match value:
        case dict():
            return f"an object with {len(value)} keys"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "a single value"


RULES: Mapping[str, Rule] = {
    "equals": _equals,
    "contains": _contains,
    "contains_any": _contains_any,
    "contains_all": _contains_all,
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "regex": _regex,
    "is_json": _is_json,
    "json_schema": _json_schema,
    "max_length": _max_length,
}


Operator = Literal[
    "equals",
    "contains",
    "contains_any",
    "contains_all",
    "starts_with",
    "ends_with",
    "regex",
    "is_json",
    "json_schema",
    "max_length",
]
NEEDS = {
    "contains_any": "values",
    "contains_all": "values",
    "is_json": "",
    "json_schema": "json_schema",
    "max_length": "max_length",
}
# Flags of regular expressions; g, u and y have no effect here.
KNOWN_FLAGS = set("imsguy")
WITHOUT_CASE = ("is_json", "json_schema", "max_length")
TRIMMABLE = ("equals", "starts_with", "ends_with")


class TextCheckConfig(KindConfig):
    """The rule that the text of the answer must satisfy."""

    operator: Operator = Field(description="The rule that the answer must satisfy.")
    value: str | None = Field(
        None,
        description="The text or regular expression of equals, contains, starts_with, ends_with "
        "and regex.",
        json_schema_extra={"widget": "textarea"},
    )
    values: tuple[str, ...] = Field(
        (), description="The texts of contains_any and contains_all, one per line."
    )
    ignore_case: bool = Field(False, description="Ignore upper and lower case.")
    trim: bool = Field(
        False,
        description="Ignore white space at both ends, for equals, starts_with and ends_with.",
    )
    max_length: int | None = Field(
        None, ge=0, description="The most characters the answer may have, for max_length."
    )
    json_schema: Mapping[str, Any] | None = Field(
        None, description="The JSON schema (draft 2020-12) of json_schema."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        needed = NEEDS.get(self.operator, "value")
        for name in ("value", "values", "max_length", "json_schema"):
            is_set = getattr(self, name) not in (None, ())
            if name == needed and not is_set:
                raise ValueError(f"{self.operator} needs {name}")
            if name != needed and is_set:
                raise ValueError(f"{self.operator} takes no {name}")
        if self.ignore_case and self.operator in WITHOUT_CASE:
            raise ValueError(f"{self.operator} takes no ignore_case")
        if self.trim and self.operator not in TRIMMABLE:
            raise ValueError(f"{self.operator} takes no trim")
        self._check_texts()
        return self

    def _check_texts(self) -> None:
        value = self.value.strip() if self.trim and self.value else self.value
        empty = "" in self.values or (value == "" and self.operator != "equals")
        if empty:
            raise ValueError(f"every answer satisfies {self.operator} with an empty text")
        if self.operator == "regex" and self.value is not None:
            compile_pattern(self.value, ignore_case=self.ignore_case)
        if self.json_schema is not None and (problem := schema_problem(self.json_schema)):
            raise ValueError(problem)


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a suite file, in which `value` may hold a list, a number or a schema.

    Raises ValueError for unknown flags of a regular expression.
    """
    settings = dict(mapping)
    if "pattern" in settings and settings.get("operator") == "regex":
        settings.setdefault("value", settings.pop("pattern"))
    if "flags" in settings:
        settings |= _flagged(str(settings.pop("flags") or ""), settings.get("value"))
    if "schema" in settings:
        settings.setdefault("json_schema", settings.pop("schema"))
    needed = NEEDS.get(str(settings.get("operator")), "value")
    value = settings.get("value")
    is_elsewhere = needed in ("values", "max_length", "json_schema")
    if is_elsewhere and value is not None and needed not in settings:
        settings[needed] = [value] if needed == "values" and isinstance(value, str) else value
        del settings["value"]
    return settings


def _flagged(flags: str, pattern: Any) -> dict[str, Any]:
    """Return the settings for the flags of a regular expression."""
    if unknown := set(flags.lower()) - KNOWN_FLAGS:
        raise ValueError(f"flags: {sorted(unknown)[0]!r} is not known; there are i, m and s")
    settings: dict[str, Any] = {"ignore_case": True} if "i" in flags.lower() else {}
    inline = "".join(flag for flag in "ms" if flag in flags.lower())
    return settings | ({"value": f"(?{inline}){pattern}"} if inline and pattern else {})


def _spellings() -> dict[str, dict[str, Any]]:
    names = [*NEEDS, "equals", "contains", "starts_with", "ends_with", "regex"]
    plain = {name: {"operator": name} for name in names}
    without_case = {
        f"i{name}": {"operator": name, "ignore_case": True}
        for name in names
        if name not in WITHOUT_CASE
    }
    return {**plain, **without_case}


@kind(label="Text check", icon="e-code", config=TextCheckConfig, spellings=_spellings(), read=read)
async def score(config: TextCheckConfig, context: Context) -> Outcome:
    """Return 1 if the check passes, else 0."""
    try:
        findings = await RULES[config.operator](config, context.output.text)
    except SlowPatternError as error:
        return Unscored(str(error), stage="limits")
    except UncheckableError as error:
        return Unscored(str(error), stage="config")
    passes = all(finding.passed for finding in findings)
    if config.operator == "contains_any":
        passes = any(finding.passed for finding in findings)
    return Score(
        1.0 if passes else 0.0,
        findings=findings,
        details={"operator": config.operator, "length": len(context.output.text)},
    )

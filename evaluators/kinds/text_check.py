"""Check the text of an answer by rule: no model is asked, the same answer always scores the same.

The score is 1 when the check holds and 0 when it does not.

| operator | holds when the answer |
|---|---|
| `equals` | is the text, character for character |
| `contains` | has the text in it |
| `contains_any`, `contains_all` | has one of the texts, has each of them |
| `starts_with`, `ends_with` | begins or ends with the text |
| `regex` | has a match of the regular expression anywhere (time limit 2 s) |
| `is_json` | is one JSON value and nothing else |
| `json_schema` | is JSON that satisfies the schema |
| `max_length` | has at most that many characters |

`ignore_case` makes the comparing operators blind to upper and lower case. `negate: true` on the
evaluator turns a check round: "must not contain". In suite files the operator is the type.

Good: a fact the answer cannot be right without, such as an order number or a refusal to print one.

Bad: `equals` on an answer in prose. One other word and it fails; ask a judge instead. A variable such as
`{{expected_output}}`: it is looked for by the letter; type `expected_output` compares with each case's own.

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

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds._patterns import SlowPatternError, compiled
from evaluators.kinds._schemas import schema_problem
from evaluators.kinds._text_rules import RULES, UncheckableError
from evaluators.scoring.types import Outcome, Score, Unscored

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
# How a search looks; g, u and y say nothing where any match will do.
KNOWN_FLAGS = set("imsguy")
BLIND_TO_CASE = ("is_json", "json_schema", "max_length")


class Config(KindConfig):
    """What the text of the answer must satisfy."""

    operator: Operator = Field(description="The rule the answer is held to.")
    value: str | None = Field(
        None,
        description="The text or regular expression that equals, contains, starts_with, ends_with "
        "and regex look for.",
        json_schema_extra={"widget": "textarea"},
    )
    values: tuple[str, ...] = Field(
        (), description="The texts of contains_any and contains_all, one a line."
    )
    ignore_case: bool = Field(False, description="Take upper and lower case for the same.")
    max_length: int | None = Field(
        None, ge=0, description="Most characters the answer may have, for max_length."
    )
    json_schema: Mapping[str, Any] | None = Field(
        None, description="The JSON schema (draft 2020-12) of json_schema."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        needed = NEEDS.get(self.operator, "value")
        for name in ("value", "values", "max_length", "json_schema"):
            given = getattr(self, name) not in (None, ())
            if name == needed and not given:
                raise ValueError(f"{self.operator} needs {name}")
            if name != needed and given:
                raise ValueError(f"{self.operator} takes no {name}")
        if self.ignore_case and self.operator in BLIND_TO_CASE:
            raise ValueError(f"{self.operator} takes no ignore_case")
        self._check_texts()
        return self

    def _check_texts(self) -> None:
        empty = "" in self.values or (self.value == "" and self.operator != "equals")
        if empty:
            raise ValueError(f"every answer satisfies {self.operator} with an empty text")
        if self.operator == "regex" and self.value is not None:
            compiled(self.value, ignore_case=self.ignore_case)
        if self.json_schema is not None and (problem := schema_problem(self.json_schema)):
            raise ValueError(problem)


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means: there `value` may hold a list, a number or a schema.

    Raises ValueError for flags of a regular expression that mean nothing here.
    """
    found = dict(mapping)
    if "pattern" in found and found.get("operator") == "regex":
        found.setdefault("value", found.pop("pattern"))
    if "flags" in found:
        found |= _flagged(str(found.pop("flags") or ""), found.get("value"))
    if "schema" in found:
        found.setdefault("json_schema", found.pop("schema"))
    needed = NEEDS.get(str(found.get("operator")), "value")
    given = found.get("value")
    is_elsewhere = needed in ("values", "max_length", "json_schema")
    if is_elsewhere and given is not None and needed not in found:
        found[needed] = [given] if needed == "values" and isinstance(given, str) else given
        del found["value"]
    return found


def _flagged(flags: str, pattern: Any) -> dict[str, Any]:
    """Return the settings that the flags of a regular expression stand for."""
    if unknown := set(flags.lower()) - KNOWN_FLAGS:
        raise ValueError(f"flags: {sorted(unknown)[0]!r} is not known; there are i, m and s")
    found: dict[str, Any] = {"ignore_case": True} if "i" in flags.lower() else {}
    within = "".join(flag for flag in "ms" if flag in flags.lower())
    return found | ({"value": f"(?{within}){pattern}"} if within and pattern else {})


def _spellings() -> dict[str, dict[str, Any]]:
    names = [*NEEDS, "equals", "contains", "starts_with", "ends_with", "regex"]
    plain = {name: {"operator": name} for name in names}
    blind = {
        f"i{name}": {"operator": name, "ignore_case": True}
        for name in names
        if name not in BLIND_TO_CASE
    }
    return {**plain, **blind}


@kind(label="Text check", icon="e-code", config=Config, spellings=_spellings(), read=read)
async def score(config: Config, context: Context) -> Outcome:
    """Return 1 when the check holds and 0 when it does not."""
    try:
        findings = await RULES[config.operator](config, context.output.text)
    except SlowPatternError as error:
        return Unscored(str(error), stage="limits")
    except UncheckableError as error:
        return Unscored(str(error), stage="config")
    held = all(finding.passed for finding in findings)
    if config.operator == "contains_any":
        held = any(finding.passed for finding in findings)
    return Score(
        1.0 if held else 0.0,
        findings=findings,
        details={"operator": config.operator, "length": len(context.output.text)},
    )

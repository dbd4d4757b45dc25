r"""Compare the answer with the expected output of its case: 100 when it matches, else 0.

| match | the answer matches when |
|---|---|
| `exact` | it is the expected output, character for character |
| `contains` | it has the expected output in it |
| `regex` | the expected output, read as a regular expression, is found in it (time limit 2 s) |

`trim: true` takes off white space at both ends of the two texts first. Without it a miss by outer
white space alone says so. A case without expected output leaves the evaluator unscored.

Good: a structured answer, an invoice number, a list in a fixed order.

Bad: prose. Two right answers hardly ever agree letter for letter; use a judge.

```yaml
name: answer_match
type: expected_output
match: contains
trim: true
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from evaluators.kinds._base import Context, KindConfig, PartsMissingError, kind
from evaluators.kinds._patterns import SlowPatternError, compiled, found
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

SCALE = 100.0
LONGEST_KEPT = 2_000
LEAD = 200
Match = Literal["exact", "contains", "regex"]

HIT = {
    "exact": "Is the expected output",
    "contains": "Contains the expected output",
    "regex": "Matches the expected expression",
}
MISS = {
    "exact": "Is not the expected output",
    "contains": "Does not contain the expected output",
    "regex": "Does not match the expected expression",
}
NEAR = "Differs from the expected output only by white space at the ends; trim would let it pass"


class Config(KindConfig):
    """How the answer is compared."""

    match: Match = Field("exact", description="How the two texts are compared.")
    trim: bool = Field(False, description="Take off white space at both ends first.")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several names for the match."""
    found_keys = dict(mapping)
    for spelling in ("match_mode", "mode"):
        if spelling in found_keys and "match" not in found_keys:
            found_keys["match"] = found_keys.pop(spelling)
    return found_keys


def rescore(config: Config, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored comparison; raises PartsMissingError for one not made."""
    matches = details.get("matches", {})
    name = _comparison(config)
    if name not in matches:
        raise PartsMissingError(f"The answer was not compared by {config.match} in this result.")
    matched = bool(matches[name])
    is_near = not matched and not config.trim and matches.get(f"{config.match}_trimmed", False)
    text = HIT[config.match] if matched else NEAR if is_near else MISS[config.match]
    evidence = str(details.get("match", "")) if matched else ""
    return Score(
        1.0 if matched else 0.0,
        raw_score=SCALE if matched else 0.0,
        scale=SCALE,
        findings=(Finding(text, matched, evidence),),
        details={**details, "is_near": is_near},
    )


@kind(
    label="Expected output",
    icon="e-expected",
    config=Config,
    rescore=rescore,
    spellings={"expected": {}},
    read=read,
)
async def score(config: Config, context: Context) -> Outcome:
    """Return 1 (raw 100) when the answer matches the expected output of its case, else 0."""
    expected, text = context.case.expected_output, context.output.text
    if not expected.strip():
        return Unscored("the case has no expected output", stage="config")
    details: dict[str, Any] = {"matches": _compared(expected, text)}
    if config.match == "regex":
        try:
            details |= await _matched(config, expected, text)
        except ValueError as error:
            reason = f"the expected output of the case is no regular expression: {error}"
            return Unscored(reason, stage="config")
        except SlowPatternError as error:
            return Unscored(str(error), stage="limits")
    outcome = rescore(config, details)
    if outcome.score == 1:
        return outcome
    return rescore(config, details | _excerpts(expected, text))


def _comparison(config: Config) -> str:
    return f"{config.match}_trimmed" if config.trim else config.match


def _compared(expected: str, text: str) -> dict[str, bool]:
    return {
        "exact": text == expected,
        "exact_trimmed": text.strip() == expected.strip(),
        "contains": expected in text,
        "contains_trimmed": expected.strip() in text,
    }


async def _matched(config: Config, expected: str, text: str) -> dict[str, Any]:
    pattern = compiled(expected.strip() if config.trim else expected)
    match = await found(pattern, text.strip() if config.trim else text)
    compared = {**_compared(expected, text), _comparison(config): match is not None}
    return {"matches": compared, "match": (match or "")[:LONGEST_KEPT]}


def _excerpts(expected: str, text: str) -> dict[str, Any]:
    """Return both texts from shortly before they part, for the page to show the difference."""
    pairs = enumerate(zip(expected, text, strict=False))
    parted = next((n for n, (one, other) in pairs if one != other), min(len(expected), len(text)))
    start = max(0, parted - LEAD) if max(len(expected), len(text)) > LONGEST_KEPT else 0
    return {
        "expected": expected[start : start + LONGEST_KEPT],
        "output": text[start : start + LONGEST_KEPT],
        "starts_at": start,
        "is_cut": max(len(expected), len(text)) > start + LONGEST_KEPT,
    }

"""Judge an answer against a list of criteria, each met or missed, with evidence.

The score is the weight of the criteria that are met, divided by the weight of all criteria. The judge answers
for every criterion by its id and quotes the evidence from the answer. If its reply omits or invents a
criterion, it is asked once more; after that the rubric is unscored, never 0.

- `required: true`: the whole result fails if this criterion is missed, at any total score.
- `min_score: 0.7`: the whole result fails if the criterion scores below that (0 to 1).
- `mode: graded`: each criterion gets a grade from 0 to 10 instead of met or missed. A grade of 6 or more
  (or of the criterion's own minimum or more) counts as a hit.
- `score_ranges: {0: …, 5: …, 10: …}` says what the grades mean and makes the rubric graded.
- `samples: 3`: the judge is asked three times. The score is the median, the mean or the most frequent of the
  samples, and the page shows how far apart they are. A criterion is met if more than half of the samples say
  so; grades are combined like the score.

A criterion may be a plain sentence. `required` and `weight` need the long form.

Good: "Gives the refund time of 4 to 6 working days". One fact, and two people would agree on it.

Bad: "Is helpful and correct". Two questions in one, and neither says what to look for.

```yaml
name: facts
type: rubric
rubrics:
  - id: grounded
    expected_outcome: Every price and date in the answer is in the reference or in a tool result.
    weight: 3
    required: true
  - id: next_step
    expected_outcome: The customer knows what happens next and who does it.
```
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import (
    Context,
    JudgeQuestion,
    JudgeReply,
    KindConfig,
    PartsMissingError,
    kind,
)
from evaluators.kinds._judging import (
    JUDGE_RULES,
    Joining,
    ask_samples,
    judge_model,
    judge_samples,
    judge_timeout,
    sample_combination,
)
from evaluators.kinds._prompts import fill
from evaluators.kinds._refusals import normal_spelling
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import SCORE_DIGITS, Finding, Outcome, Score, Unscored

TOP_GRADE = 10
LIST_SPELLINGS = ("criteria", "value")
RANGES = ("score_ranges", "score_range")
MEANINGS = ("expected_outcome", "outcome", "description")
TEXT_SPELLINGS = ("outcome", "description", "criteria", "text")


class Criterion(BaseModel):
    """One thing a good answer does."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    id: str = Field(min_length=1, max_length=100, description="Short name, unique in the rubric.")
    expected_outcome: str = Field(min_length=1, description="What must be true of the answer.")
    weight: float = Field(1.0, ge=0, description="Weight among the criteria.")
    required: bool = Field(False, description="The result fails if it is missed.")
    min_score: float | None = Field(
        None, ge=0, le=1, description="The result fails if it scores below this, 0 to 1."
    )

    def is_failed_by(self, share: float) -> bool:
        """Tell whether a score of 0 to 1 fails the whole result (SCORING §4.2)."""
        rounded = round(share, SCORE_DIGITS)
        below = self.min_score is not None and rounded < round(self.min_score, SCORE_DIGITS)
        return below or (self.required and rounded == 0)


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a rubric in a suite file under their own names.

    Criteria with meanings of grades make the rubric graded. Raises ValueError for unreadable grades.
    """
    settings = dict(mapping)
    for spelling in LIST_SPELLINGS:
        if spelling in settings:
            settings.setdefault("rubrics", settings.pop(spelling))
    if isinstance(settings.get("rubrics"), list):
        items = settings["rubrics"]
        settings["rubrics"] = [_criterion(n, item) for n, item in enumerate(items, 1)]
        if any(isinstance(item, Mapping) and _ranges(item) for item in items):
            settings.setdefault("mode", "graded")
    return settings


def _criterion(number: int, item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    criterion = {"id": f"c{number}", **{normal_spelling(str(key)): item[key] for key in item}}
    for spelling in TEXT_SPELLINGS:
        if spelling in criterion and "expected_outcome" not in criterion:
            criterion["expected_outcome"] = criterion.pop(spelling)
    if isinstance(criterion["id"], int) and not isinstance(criterion["id"], bool):
        criterion["id"] = str(criterion["id"])
    minimum = criterion.pop("required_min_score", None)
    if minimum is not None and "min_score" not in criterion:
        is_number = isinstance(minimum, int | float) and not isinstance(minimum, bool)
        criterion["min_score"] = minimum / TOP_GRADE if is_number else minimum
    required = criterion.get("required")
    if isinstance(required, int | float) and not isinstance(required, bool):
        criterion["min_score"] = criterion.pop("required")
    return _with_meaning(criterion)


def _with_meaning(criterion: dict[str, Any]) -> dict[str, Any]:
    """Return a criterion with its operator and the meanings of its grades in its text."""
    text, ranges = criterion.get("expected_outcome"), _ranges(criterion)
    operator = criterion.pop("operator", None)
    for name in RANGES:
        criterion.pop(name, None)
    if operator == "contradiction" and isinstance(text, str):
        text = f"Nothing in the answer contradicts this, which it need not mention: {text}"
    elif operator not in (None, "correctness", "contradiction"):
        raise ValueError(f"operator: {operator!r} is not one of correctness, contradiction")
    if ranges:
        grades = "\n".join(f"{grade}: {meaning}" for grade, meaning in ranges)
        text = f"{text if isinstance(text, str) else criterion['id']}\n{grades}"
    return criterion if text is None else {**criterion, "expected_outcome": text}


def _ranges(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the grades of a criterion with their meanings, [] for none."""
    values = {normal_spelling(str(key)): value for key, value in item.items()}
    ranges = next((values[name] for name in RANGES if values.get(name) is not None), None)
    if ranges is None:
        return []
    if isinstance(ranges, Mapping):
        return [(_grade(grade), _meaning(text)) for grade, text in ranges.items()]
    if isinstance(ranges, list) and all(isinstance(entry, Mapping) for entry in ranges):
        entries = [{normal_spelling(str(key)): entry[key] for key in entry} for entry in ranges]
        return [
            (
                _span(entry.get("score_range")),
                _meaning(next((entry[name] for name in MEANINGS if name in entry), None)),
            )
            for entry in entries
        ]
    raise ValueError(
        "score_ranges: is neither a mapping of grades to meanings nor a list of score ranges"
    )


def _span(span: Any) -> str:
    if not isinstance(span, list) or len(span) != 2:
        raise ValueError("score_ranges: score_range takes two grades, such as [3, 5]")
    low, high = (_grade(grade) for grade in span)
    return low if low == high else f"{low} to {high}"


def _grade(grade: Any) -> str:
    text = str(grade).strip()
    if not text.isdecimal() or int(text) > TOP_GRADE:
        raise ValueError(f"score_ranges: {text[:40]!r} is not a grade from 0 to {TOP_GRADE}")
    return str(int(text))


def _meaning(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("score_ranges: a grade has no text that says what it means")
    return text.strip()


PROMPT_VERSION = 1
HIT_FROM = 0.6

TASK = """\
You check one answer of an AI agent against a list of criteria.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
What its tools were asked and returned: {{tool_calls}}
A reference answer written by people, one way of being right among others: {{reference_answer}}
What its authors expect of a good answer, as background: {{criteria}}

The criteria, each by its id:

"""

SATISFIED_REPLY = """\
What to reply, in this order:
- reasoning: one to four sentences on the answer as a whole.
- criteria: one entry for each criterion above, by its id, none left out and none added:
  - evidence: the words of the answer or of a tool result that settle it, or what is missing.
  - satisfied: true only when the evidence shows the whole criterion to be met. In doubt it is false. \
A criterion about something that does not arise in this task is satisfied."""

GRADED_REPLY = """\
What to reply, in this order:
- reasoning: one to four sentences on the answer as a whole.
- criteria: one entry for each criterion above, by its id, none left out and none added:
  - evidence: the words of the answer or of a tool result that settle it, or what is missing.
  - score: a number from 0 to 10. 10: met in full. 7: met but for a detail. 5: half of it. 2: touched \
on. 0: not met. A criterion about something that does not arise in this task scores 10."""


class RubricConfig(KindConfig):
    """The criteria and how they are judged."""

    rubrics: tuple[Criterion, ...] = Field(
        min_length=1,
        description="The criteria: sentences, or id, expected_outcome, weight, required, min_score.",
    )
    mode: Literal["satisfied", "graded"] = Field(
        "satisfied", description="Whether each criterion is met or missed, or graded from 0 to 10."
    )
    model: str = judge_model()
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = judge_timeout()

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, values: Any) -> Any:
        """Give criteria without an id one by their position: c1, c2 and so on."""
        if not isinstance(values, Mapping) or not isinstance(values.get("rubrics"), list | tuple):
            return values
        rubrics = [
            {"id": f"c{n}", "expected_outcome": item} if isinstance(item, str) else item
            for n, item in enumerate(values["rubrics"], 1)
        ]
        return {**values, "rubrics": rubrics}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        ids = [criterion.id for criterion in self.rubrics]
        twice = sorted(name for name, count in Counter(ids).items() if count > 1)
        if twice:
            raise ValueError(f"rubrics: the id {twice[0]!r} is repeated")
        if not any(criterion.weight > 0 for criterion in self.rubrics):
            raise ValueError("rubrics: the weights add up to 0, so there is nothing to score")
        return self

    def judged_settings(self) -> Mapping[str, object]:
        """Return the text of each criterion, the mode and the number of samples."""
        texts = {
            f"criterion {criterion.id}": criterion.expected_outcome for criterion in self.rubrics
        }
        return {"mode": self.mode, "samples": self.samples, **texts}


def rescore(config: RubricConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored criteria with these weights.

    Raises PartsMissingError if a criterion was not judged.
    """
    judged = {str(part["id"]): part for part in details.get("criteria", ())}
    unjudged = [criterion.id for criterion in config.rubrics if criterion.id not in judged]
    if unjudged:
        raise PartsMissingError(f"The criterion {unjudged[0]!r} was not judged in this result.")
    graded = details.get("mode") == "graded"
    samples = details.get("samples") or [
        {criterion.id: judged[criterion.id]["score"] for criterion in config.rubrics}
    ]
    overall = combine_samples([_met(config, sample) for sample in samples], config.samples_by)
    # More than half of the samples must say that a criterion is met; a tie is missed.
    way = config.samples_by if graded else "majority"
    parts = [
        _part(criterion, _combine_samples(judged[criterion.id], samples, way), graded=graded)
        for criterion in config.rubrics
    ]
    several = {
        "samples_by": config.samples_by,
        "sample_scores": list(overall.samples),
        "spread": overall.spread,
    }
    weights = math.fsum(criterion.weight for criterion in config.rubrics)
    return Score(
        overall.score,
        raw_score=overall.score * weights,
        scale=weights,
        reasoning=str(details.get("reasoning", "")),
        findings=tuple(_finding(part, graded=graded) for part in parts),
        details={**details, "criteria": parts, **(several if len(samples) > 1 else {})},
        failed_required=tuple(part["id"] for part in parts if part["failed_required"]),
    )


@kind(
    label="Rubric",
    icon="e-rubric",
    config=RubricConfig,
    rescore=rescore,
    uses_judge=True,
    spellings={"rubrics": {}},
    read=read,
)
async def score(config: RubricConfig, context: Context) -> Outcome:
    """Return the weighted share of the criteria that the judge finds met."""
    filled = fill(TASK, context)
    graded = config.mode == "graded"
    listed = "\n".join(
        f"- {criterion.id}: {criterion.expected_outcome}" for criterion in config.rubrics
    )
    rules = GRADED_REPLY if graded else SATISFIED_REPLY
    sampled = await ask_samples(
        context,
        JudgeQuestion(
            purpose="rubric",
            instructions=f"{filled.instructions}{listed}\n\n{JUDGE_RULES}\n\n{rules}",
            quoted=filled.quoted,
            schema=_schema(config),
            check=lambda content: rubric_problem(config, content),
            model=config.model,
            timeout_s=config.timeout_s,
        ),
        config.samples,
    )
    if isinstance(sampled, Unscored):
        return sampled
    result = rescore(config, _details(sampled.replies, config))
    return replace(result, usage=sampled.usage, warnings=sampled.warnings)


def rubric_problem(config: RubricConfig, reply: Mapping[str, Any]) -> str:
    """Return which criteria a reply omits, invents, repeats or grades outside the scale, or ""."""
    wanted = [criterion.id for criterion in config.rubrics]
    ids = [str(entry["id"]) for entry in reply["criteria"]]
    if missing := [name for name in wanted if name not in ids]:
        return f"criteria leaves out {', '.join(missing)}"
    if invented := [name for name in ids if name not in wanted]:
        return f"criteria holds {', '.join(invented)}, which was not asked for"
    if len(ids) > len(wanted):
        return "criteria answers for one criterion more than once"
    off = [entry for entry in reply["criteria"] if not 0 <= entry.get("score", 0) <= TOP_GRADE]
    if off:
        return f"score of {off[0]['id']} is {off[0]['score']}, not a number from 0 to {TOP_GRADE}"
    return ""


def _schema(config: RubricConfig) -> dict[str, Any]:
    answer = {"score": {"type": "number"}}
    if config.mode == "satisfied":
        answer = {"satisfied": {"type": "boolean"}}
    ids = [criterion.id for criterion in config.rubrics]
    entry = {"id": {"type": "string", "enum": ids}, "evidence": {"type": "string"}, **answer}
    item = {"type": "object", "properties": entry, "required": list(entry)}
    return {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "criteria": {"type": "array", "items": {**item, "additionalProperties": False}},
        },
        "required": ["reasoning", "criteria"],
        "additionalProperties": False,
    }


def _details(replies: Sequence[JudgeReply], config: RubricConfig) -> dict[str, Any]:
    """Return the details of a score from the replies; the reasoning is that of the first."""
    samples = [_judged(reply, graded=config.mode == "graded") for reply in replies]
    first = replies[0]
    details: dict[str, Any] = {
        "mode": config.mode,
        "model": first.model,
        "reasoning": str(first.content["reasoning"]),
        "criteria": [{"id": name, **part} for name, part in samples[0].items()],
    }
    if len(samples) > 1:
        details["samples"] = [
            {name: part["score"] for name, part in sample.items()} for sample in samples
        ]
        for part in details["criteria"]:
            part["evidences"] = [sample[part["id"]]["evidence"] for sample in samples]
    return details


def _judged(reply: JudgeReply, *, graded: bool) -> dict[str, dict[str, Any]]:
    return {
        str(entry["id"]): {
            "score": float(entry["score"]) / TOP_GRADE
            if graded
            else float(bool(entry["satisfied"])),
            "evidence": str(entry["evidence"]),
        }
        for entry in reply.content["criteria"]
    }


def _met(config: RubricConfig, shares: Mapping[str, float]) -> float:
    total = math.fsum(criterion.weight for criterion in config.rubrics)
    met = math.fsum(criterion.weight * float(shares[criterion.id]) for criterion in config.rubrics)
    return min(1.0, met / total)


def _combine_samples(
    judged: Mapping[str, Any], samples: Sequence[Mapping[str, float]], way: str
) -> Mapping[str, Any]:
    """Combine the samples of a criterion, with the evidence of the sample nearest to the result."""
    if len(samples) == 1:
        return judged
    shares = [float(sample[str(judged["id"])]) for sample in samples]
    combined = combine_samples(shares, way).score
    nearest = min(range(len(shares)), key=lambda n: abs(shares[n] - combined))
    return {**judged, "score": combined, "evidence": judged["evidences"][nearest]}


def _part(criterion: Criterion, judged: Mapping[str, Any], *, graded: bool) -> dict[str, Any]:
    share = round(float(judged["score"]), SCORE_DIGITS)
    hit_from = HIT_FROM if criterion.min_score is None else criterion.min_score
    return {
        "id": criterion.id,
        "text": criterion.expected_outcome,
        "weight": criterion.weight,
        "required": criterion.required,
        "min_score": criterion.min_score,
        "score": judged["score"],
        "grade": share * TOP_GRADE,
        "passed": share >= hit_from if graded else share == 1,
        "failed_required": criterion.is_failed_by(share),
        "evidence": judged["evidence"],
        **({"evidences": judged["evidences"]} if "evidences" in judged else {}),
    }


def _finding(part: Mapping[str, Any], *, graded: bool) -> Finding:
    grade = f" ({part['grade']:g} of {TOP_GRADE})" if graded else ""
    return Finding(f"{part['text']}{grade}", part["passed"], part["evidence"])

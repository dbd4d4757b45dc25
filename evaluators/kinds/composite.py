"""Combine several evaluators into one score, and gate one behind another.

A composite holds evaluators and an aggregator. Composites nest to any depth; the suite itself is the
outermost one.

| aggregator | score |
|---|---|
| `weighted_average` | sum of score × weight, divided by the sum of the weights |
| `minimum`, `maximum` | the lowest, the highest score |
| `safety_gate` | the `required` ones run first; one below `gate_threshold` (0.6) ends it with 0 and fail, and the others are not run. Else the average of `all`, or of the `remaining` ones |
| `all_or_nothing` | the average when each is at least `threshold` (0.7), else 0 and fail |
| `threshold` | the share of evaluators that pass; below `share` (0.5) it fails |
| `code_judge` | what a script of yours makes of them: `script` or `command` as in the kind Script, protocol `stdin`. Beside case and output it reads `evaluator_results`, a list of name, type, weight, score, verdict, hits, misses and reasoning, nested, and the same by name in `results` |

`weights` by name go before the evaluators' own weights. An evaluator of weight 0 is recorded, can
still gate, and counts in no score.

A composite that its own rule fails counts as 0 in the one around it. Mark it `required` to fail the
whole result with it.

Good: a safety gate before costly judges. When it fails, no judge is paid.

Bad: five levels of nesting. Nobody can say any more what a weight does.

```yaml
name: release_ready
type: composite
aggregator:
  type: safety_gate
  required: [no_card_numbers]
evaluators:
  - name: no_card_numbers
    type: regex
    value: '\\b(?:\\d[ -]?){12,18}\\d\\b'
    negate: true
  - name: quality
    type: llm_judge
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds._script_runs import judged_by_script
from evaluators.kinds._scripts import ScriptSettings, named_settings
from evaluators.scoring.aggregation import aggregate
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import COMPOSITE, Aggregator, Node
from evaluators.scoring.types import Outcome

OPTIONS = {
    "safety_gate": {"required", "gate_threshold", "remainder"},
    "all_or_nothing": {"threshold"},
    "threshold": {"share"},
    "code_judge": set(ScriptSettings.model_fields),
}
SCRIPT_TYPES = {"code_judge": "code_judge", "code_grader": "code_judge", "script": "code_judge"}
ALWAYS = {"type", "weights"}


class AggregatorOptions(ScriptSettings):
    """How the scores of the children become one; the settings of a script are code_judge's."""

    type: Literal[
        "weighted_average",
        "minimum",
        "maximum",
        "safety_gate",
        "all_or_nothing",
        "threshold",
        "code_judge",
    ] = Field("weighted_average", description="The rule.")
    weights: Mapping[str, float] = Field(
        default_factory=dict, description="Weights by name, before the evaluators' own."
    )
    required: tuple[str, ...] = Field((), description="Who guards a safety_gate.")
    gate_threshold: float = Field(0.6, ge=0, le=1, description="What the guards must reach.")
    remainder: Literal["all", "remaining"] = Field(
        "all", description="Whether the guards of a safety_gate count in its average."
    )
    threshold: float = Field(
        0.7, ge=0, le=1, description="What each must reach under all_or_nothing."
    )
    share: float = Field(0.5, ge=0, le=1, description="The share that must pass under threshold.")

    @model_validator(mode="after")
    def _options_belong(self) -> Self:
        foreign = self.model_fields_set - ALWAYS - OPTIONS.get(self.type, set())
        meant = {name for name in foreign if getattr(self, name) != _default(name)}
        if meant:
            raise ValueError(f"{self.type} takes no {', '.join(sorted(meant))}")
        if self.type == "safety_gate" and not self.required:
            raise ValueError(
                "safety_gate needs required: the names of the evaluators that guard it"
            )
        if self.type == "code_judge" and self.program_problem:
            raise ValueError(f"code_judge {self.program_problem}")
        return self


def read_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's options of an aggregator under their own names."""
    options = dict(values)
    if options.get("type") == "threshold" and "threshold" in options and "share" not in options:
        options["share"] = options.pop("threshold")
    kind_of_rule = SCRIPT_TYPES.get(str(options.get("type")))
    return named_settings({**options, "type": kind_of_rule}) if kind_of_rule else options


def runs_script(options: Mapping[str, Any]) -> bool:
    """Tell whether a script makes the score."""
    return options.get("type") == "code_judge"


def _default(name: str) -> object:
    return AggregatorOptions.model_fields[name].get_default(call_default_factory=True)


class Config(KindConfig):
    """The aggregator; the evaluators stand under the composite."""

    aggregator: AggregatorOptions = Field(
        default_factory=lambda: AggregatorOptions.model_validate({}),
        description="How the scores of the children become one.",
    )


@kind(label="Composite", icon="e-composite", config=Config, spellings={"assert_set": {}})
async def score(config: Config, context: Context) -> Outcome:
    """Return what the aggregator makes of the children, each of weight 1 unless it says otherwise.

    In a tree the children's own weights count too; that is left to the rules of the tree. A script
    is run and may leave it Unscored.
    """
    if config.aggregator.type == "code_judge":
        return await judged_by_script(config.aggregator, "stdin", context)
    aggregator = Aggregator.from_json(config.aggregator.model_dump(mode="json"))
    children = tuple(Node(name=name, kind="") for name in context.children)
    node = Node(name=context.path, kind=COMPOSITE, aggregator=aggregator, children=children)
    return aggregate(node, context.children, Policy())

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
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.scoring.aggregation import aggregate
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import COMPOSITE, Aggregator, Node
from evaluators.scoring.types import Outcome

OPTIONS = {
    "safety_gate": {"required", "gate_threshold", "remainder"},
    "all_or_nothing": {"threshold"},
    "threshold": {"share"},
}
ALWAYS = {"type", "weights"}


class AggregatorOptions(BaseModel):
    """How the scores of the children become one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: Literal[
        "weighted_average", "minimum", "maximum", "safety_gate", "all_or_nothing", "threshold"
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
        return self


def _default(name: str) -> object:
    return AggregatorOptions.model_fields[name].default


class Config(KindConfig):
    """The aggregator; the evaluators stand under the composite."""

    aggregator: AggregatorOptions = Field(
        default_factory=lambda: AggregatorOptions.model_validate({}),
        description="How the scores of the children become one.",
    )


@kind(label="Composite", icon="e-composite", config=Config)
async def score(config: Config, context: Context) -> Outcome:
    """Return what the aggregator makes of the children, each of weight 1 unless it says otherwise.

    In a tree the children's own weights count too; that is left to the rules of the tree.
    """
    aggregator = Aggregator.from_json(config.aggregator.model_dump(mode="json"))
    children = tuple(Node(name=name, kind="") for name in context.children)
    node = Node(name=context.path, kind=COMPOSITE, aggregator=aggregator, children=children)
    return aggregate(node, context.children, Policy())

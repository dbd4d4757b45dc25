"""Set limits on the tokens, calls, time and money that an answer took.

The score is 1 if every limit is kept and 0 if one is exceeded. A figure exactly at its limit keeps it.

| limit | what it limits |
|---|---|
| `max_tokens` | input and output tokens together |
| `max_input_tokens`, `max_output_tokens` | input tokens, output tokens |
| `max_tool_calls` | the tool calls in the trace |
| `max_model_calls` | the model calls in the trace; if it has none, the turns of the agent |
| `max_duration_ms` | how long the agent took, in milliseconds |
| `max_cost_usd` | what the agent cost, in US dollars |

With `proportional: true` each limit scores limit ÷ actual, at most 1, and the score is the mean of the
limits: twice the allowed tokens score 0.5. A limit of 0 allows nothing at all. With `share_kept: true` the score is the
share of the limits that are kept: two of three score 0.667. With `zero_at: 3` a figure scores 1 up to its limit and then
falls evenly to 0 at three times it; the score is the mean of the limits: `type: latency`, `max: 2000`, `zero_at: 3`
scores 4,000 ms 0.5, and `type: cost` does the same for money.

If the target does not report a figure, the evaluator is unscored and names the figure, because the limit
cannot be checked. The cost of judges never counts.

Good: a limit well above what the agent takes today, so that a loop or a doubled prompt stands out.

Bad: a time limit close to the usual time. It measures how fast the network is today.

```yaml
name: efficiency
type: execution_metrics
max_tokens: 1000
max_duration_ms: 5000
max_cost_usd: 0.02
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainSerializer, model_validator

from evaluators.kinds._base import Context, KindConfig, Output, PartsMissingError, Step, kind
from evaluators.scoring.numbers import mean
from evaluators.scoring.types import SCORE_DIGITS, Finding, Outcome, Score, Unscored

COST = "cost_usd"
NARROW = "\u202f"
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class Limit:
    """One figure that can be limited: its key, its names and its unit, "" for a count."""

    figure: str
    label: str
    noun: str
    unit: str = ""


LIMITS = {
    "max_tokens": Limit("tokens", "Tokens", "tokens"),
    "max_input_tokens": Limit("input_tokens", "Input tokens", "input tokens"),
    "max_output_tokens": Limit("output_tokens", "Output tokens", "output tokens"),
    "max_tool_calls": Limit("tool_calls", "Tool calls", "tool calls"),
    "max_model_calls": Limit("model_calls", "Model calls", "model calls"),
    "max_duration_ms": Limit("duration_ms", "Duration", "duration", "ms"),
    "max_cost_usd": Limit(COST, "Cost", "cost", "usd"),
}


def measure(output: Output) -> dict[str, Any]:
    """Return the known figures of an output by name; unknown ones are left out, never 0.

    Money is text, so that JSON keeps all its digits.
    """
    input_tokens, output_tokens = _tokens(output, "input_tokens"), _tokens(output, "output_tokens")
    known = input_tokens is not None and output_tokens is not None
    cost = output.usage.cost_usd
    figures = {
        "tokens": (input_tokens or 0) + (output_tokens or 0) if known else None,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "tool_calls": None if output.trace is None else len(_steps(output, "tool")),
        "model_calls": _model_calls(output),
        "duration_ms": output.usage.latency_ms,
        COST: None if cost is None else f"{cost:f}",
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def format_figure(figure: str | int, unit: str) -> str:
    """Return a figure with its unit: `1 200`, `5 001 ms`, `$0.0123`."""
    if unit == "usd":
        whole, _, cents = str(figure).partition(".")
        return f"${whole}.{cents}" if cents else f"${whole}"
    count = f"{figure:,}".replace(",", NARROW)
    return f"{count}{NO_BREAK}{unit}" if unit else count


def _tokens(output: Output, name: Literal["input_tokens", "output_tokens"]) -> int | None:
    """Return the tokens that the target reports, else the sum over its model calls if all report them."""
    whole: int | None = getattr(output.usage, name)
    if whole is not None:
        return whole
    counts = [getattr(step, name) for step in _steps(output, "model")]
    return sum(int(count) for count in counts) if counts and None not in counts else None


def _model_calls(output: Output) -> int | None:
    """Return the number of model calls; a trace with tools only does not mean that there were none."""
    in_trace = len(_steps(output, "model"))
    turns = sum(turn.role == "assistant" for turn in output.messages)
    return in_trace or turns or None


def _steps(output: Output, kind: str) -> Sequence[Step]:
    return [step for step in output.trace or () if step.type == kind]


MAX_DIGITS = 15
# Up to 15 digits, an amount survives as the number that files and forms write.
AS_NUMBER = PlainSerializer(lambda usd: None if usd is None else float(usd), when_used="json")
SPELLINGS = {
    **{"max_total": "max_tokens", "max_total_tokens": "max_tokens"},
    **{"max_input": "max_input_tokens", "max_output": "max_output_tokens"},
    **{"max_llm_calls": "max_model_calls", "max_ms": "max_duration_ms"},
    **{"max_latency_ms": "max_duration_ms", "max_usd": "max_cost_usd", "budget": "max_cost_usd"},
}


def _limit(meaning: str) -> Any:
    return Field(None, ge=0, description=f"{meaning} Empty: not limited.")


class ExecutionMetricsConfig(KindConfig):
    """The limits; at least one must be set."""

    max_tokens: int | None = _limit("The most tokens, input and output together.")
    max_input_tokens: int | None = _limit("The most input tokens.")
    max_output_tokens: int | None = _limit("The most output tokens.")
    max_tool_calls: int | None = _limit("The most tool calls.")
    max_model_calls: int | None = _limit("The most model calls.")
    max_duration_ms: int | None = _limit("The longest time, in milliseconds.")
    max_cost_usd: Annotated[Decimal | None, AS_NUMBER] = Field(
        None,
        ge=0,
        max_digits=MAX_DIGITS,
        decimal_places=SCORE_DIGITS,
        description="The highest cost, in US dollars. Empty: not limited.",
    )
    proportional: bool = Field(
        False, description="Score by how far a limit is exceeded, not only whether it is."
    )
    share_kept: bool = Field(
        False, description="Score the share of the limits that are kept, not 0 for any breach."
    )
    zero_at: float | None = Field(
        None,
        gt=1,
        description="Above a limit the score falls evenly, to 0 at this many times the limit. Empty: it does not.",
    )

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not self.limits:
            raise ValueError(f"execution_metrics needs a limit: one of {', '.join(LIMITS)}")
        ways = [name for name in ("proportional", "share_kept", "zero_at") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} score in two ways; keep one of them")
        return self

    @property
    def limits(self) -> dict[str, int | Decimal]:
        """Return the limits that are set, by the names of their settings."""
        values = {name: getattr(self, name) for name in LIMITS}
        return {name: limit for name, limit in values.items() if limit is not None}


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the limits in a suite file under their own names; `latency` and `cost` may use `threshold` or `max`.

    Raises ValueError for a limit that is set twice.
    """
    settings = dict(mapping)
    empty = [name for name in LIMITS if name in settings and settings[name] is None]
    renamed = SPELLINGS | dict.fromkeys(("threshold", "max"), empty[0] if empty else "")
    for spelling in renamed.keys() & settings.keys():
        name = renamed[spelling]
        if name and settings.get(name) is not None:
            raise ValueError(f"{spelling} says the same as {name}; keep one of them")
        if name:
            settings[name] = settings.pop(spelling)
    return settings


def rescore(config: ExecutionMetricsConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored figures under these limits.

    Raises PartsMissingError for a limit whose figure was not stored.
    """
    figures = details.get("figures", {})
    unknown = [name for name in config.limits if LIMITS[name].figure not in figures]
    if unknown:
        noun = LIMITS[unknown[0]].noun
        raise PartsMissingError(
            f"This result does not record its {noun}, so {unknown[0]} cannot be checked."
        )
    rows = [
        _row(name, limit, Decimal(str(figures[LIMITS[name].figure])), config.zero_at)
        for name, limit in config.limits.items()
    ]
    is_graded = config.proportional or config.zero_at is not None
    shares = [row["share"] if is_graded else float(row["kept"]) for row in rows]
    is_mean = is_graded or config.share_kept
    return Score(
        min(1.0, mean(shares) or 0.0) if is_mean else min(shares),
        findings=tuple(_finding(row) for row in rows),
        details={"figures": figures, "limits": rows},
    )


@kind(
    label="Execution metrics",
    icon="e-gauge",
    config=ExecutionMetricsConfig,
    rescore=rescore,
    needs=("a trace, or the figures that a stored result has",),
    # The limit that `threshold` sets for each of these names; the name alone sets none.
    spellings={
        "latency": {"max_duration_ms": None},
        "cost": {"max_cost_usd": None},
        "token_usage": {"max_tokens": None},
    },
    read=read,
)
async def score(config: ExecutionMetricsConfig, context: Context) -> Outcome:
    """Return 1 if every limit is kept, else 0, or by the excess, or by the share of limits kept."""
    figures = measure(context.output)
    missing = [name for name in config.limits if LIMITS[name].figure not in figures]
    if missing:
        nouns = ", ".join(LIMITS[name].noun for name in missing)
        reason = f"the target does not report its {nouns}, needed for {', '.join(missing)}"
        return Unscored(reason, details={"figures": figures})
    return rescore(config, {"figures": figures})


def _row(name: str, limit: int | Decimal, actual: Decimal, zero_at: float | None) -> dict[str, Any]:
    allowed = Decimal(limit)
    # Counts are whole numbers; money is compared to 9 decimals, like everything.
    kept = round(actual, SCORE_DIGITS) <= round(allowed, SCORE_DIGITS)
    is_money = LIMITS[name].figure == COST
    share = 1.0
    if not kept and zero_at is None:
        share = float(allowed / actual)
    elif not kept:
        # By how much the limit is exceeded, as a share of the way to where the score is 0.
        excess = (actual - allowed) / (allowed * (Decimal(repr(zero_at)) - 1)) if allowed else 1
        share = max(0.0, 1 - float(excess))
    return {
        "setting": name,
        "label": LIMITS[name].label,
        "unit": LIMITS[name].unit,
        "limit": str(allowed) if is_money else int(allowed),
        "actual": str(actual) if is_money else int(actual),
        "kept": kept,
        "share": round(share, SCORE_DIGITS),
    }


def _finding(row: Mapping[str, Any]) -> Finding:
    limit, actual = (format_figure(row[key], row["unit"]) for key in ("limit", "actual"))
    relation = "at most" if row["kept"] else "over the limit of"
    return Finding(f"{row['label']}: {actual}, {relation} {limit}", row["kept"])

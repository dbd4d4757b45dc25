"""Write results as JSON Lines: one object per execution, with the results of its evaluators nested in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import combined_cost, percent, rounded
from evaluators.scoring.tree import ROOT_PATH, below
from evaluators.scoring.types import Finding, OutcomeResult, Usage

# The keys inside these are names of evaluators and dimensions, which must not be changed.
OWN_NAMES = {"weights", "deterministic_dimensions", "judge_dimensions", "final_dimensions"}


def in_camel_case(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with their keys in camelCase; names that users gave stay as they are."""
    return {
        _camel(key): value if key in OWN_NAMES else _parts_in_camel_case(value)
        for key, value in values.items()
    }


def _parts_in_camel_case(value: Any) -> Any:
    if isinstance(value, Mapping):
        return in_camel_case(value)
    return [_parts_in_camel_case(item) for item in value] if isinstance(value, list) else value


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


# A document names its case and run before the findings.
FIRST = ("schema_version",)


def results_document(
    evaluation: Mapping[str, Any],
    *,
    case: str,
    run: str,
    costs: tuple[Decimal | None, Decimal | None],
) -> dict[str, Any]:
    """Return the document of a case; scores are 0 to 10, costs are dollars of the target and the judges.

    `evaluation` is what the hybrid judge stores. A cost is None if no price is known.
    """
    head = {name: evaluation[name] for name in FIRST if name in evaluation}
    return {
        **head,
        "case_id": case,
        "run_id": run,
        **{name: value for name, value in evaluation.items() if name not in head},
        "usage_summary": usage_summary(*costs),
    }


def usage_summary(run: Decimal | None, evaluation: Decimal | None) -> dict[str, float | None]:
    """Return both costs and their sum in dollars, each None if unknown.

    The sum is that of the known costs, unless these are 0 and the other is unknown.
    """
    total = combined_cost(run, evaluation)
    return {
        "run_cost_usd": None if run is None else float(run),
        "evaluation_cost_usd": None if evaluation is None else float(evaluation),
        "total_cost_usd": None if total is None else float(total),
    }


NO_USAGE = Usage()
OUTCOMES = "expected_outcome_results"
# Some readers split lines at these Unicode line ends, so they are escaped.
LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


# Lines are not frozen, because a file has tens of thousands, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class EvaluatorLine:
    """The result of one evaluator, with those of its children (seeds 000 and 004).

    `status` is scored, unscored or skipped; `score` is 0 to 1 after negation, None without one.
    `weight` is what it weighs in its parent. Findings are as they count, those of a negated
    evaluator turned round already. `raw_score` of `scale` is what it gave on its own scale, before
    negation. `metrics` are those of a metrics judge, each 0 to 5 with its label, weight and
    justification; `final_evaluation` is that of a hybrid judge, scores 0 to 10; `rounds` holds every
    vote of a deliberation, also of one that came to no score. `spelling` is the type as suite files
    spell it where that says more than the kind: `code_judge` for a script. With `is_kept` the score is that of the
    run whose outputs were judged again. `pair_verdict` is what a pairwise evaluator found: win, tie, loss or
    inconclusive. `reaches_mark` compares the score with the pass mark. `samples` are the scores
    of its samples, 0 to 1 after negation, where it took several. These two are only written.
    """

    name: str
    type: str
    status: str
    score: float | None = None
    weight: float = 1.0
    is_negated: bool = False
    findings: tuple[Finding, ...] = ()
    reasoning: str = ""
    usage: Usage = NO_USAGE
    aggregator: Mapping[str, Any] | None = None
    children: tuple[EvaluatorLine, ...] = ()
    raw_score: float | None = None
    scale: float = 1.0
    metrics: tuple[Mapping[str, Any], ...] = ()
    final_evaluation: Mapping[str, Any] | None = None
    rounds: tuple[Mapping[str, Any], ...] = ()
    spelling: str = ""
    is_kept: bool = False
    pass_mark: float | None = None
    reaches_mark: bool | None = None
    samples: tuple[float, ...] = ()
    pair_verdict: str = ""

    @property
    def sample_spread(self) -> float | None:
        """Return the highest sample minus the lowest; None without several."""
        return rounded(max(self.samples) - min(self.samples)) if self.samples else None

    def found(self, *, passed: bool) -> list[str]:
        """Return its hits, or its misses."""
        return [finding.text for finding in self.findings if finding.passed == passed]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; a composite holds its children and its aggregator."""
        written: dict[str, Any] = {
            "name": self.name,
            "type": self.spelling or self.type,
            "status": self.status,
            "score": self.score,
            **self._on_its_scale(),
            "weight": self.weight,
            **({"negate": True} if self.is_negated else {}),
            **({"kept": True} if self.is_kept else {}),
            **({} if self.pass_mark is None else {"pass_mark": self.pass_mark}),
            **({} if self.reaches_mark is None else {"reaches_mark": self.reaches_mark}),
            **self._samples(),
            **({"pairwise": self.pair_verdict} if self.pair_verdict else {}),
            "hits": self.found(passed=True),
            "misses": self.found(passed=False),
            "reasoning": self.reasoning,
            **_usage(self.usage),
        }
        if self.usage.cost_usd is not None:
            written["cost_usd"] = _dollars(self.usage.cost_usd)
        if self.metrics:
            written["metrics"] = [dict(metric) for metric in self.metrics]
        if self.final_evaluation:
            written["final_evaluation"] = dict(self.final_evaluation)
        if self.rounds:
            written["rounds"] = [dict(held) for held in self.rounds]
        if self.aggregator is not None:
            written["evaluator_results"] = [child.as_json() for child in self.children]
            written["aggregator"] = dict(self.aggregator)
        return written

    def _samples(self) -> dict[str, Any]:
        if not self.samples:
            return {}
        return {"samples": list(self.samples), "sample_spread": self.sample_spread}

    def _on_its_scale(self) -> dict[str, float]:
        if self.raw_score is None:
            return {}
        return {"raw_score": rounded(self.raw_score), "scale": rounded(self.scale)}


def review_sentence(verdict: str, *, is_counted: bool) -> str:
    """Say after a cause what reviewers decided; "" where nobody did."""
    if not verdict:
        return ""
    how = "counts instead" if is_counted else "is shown but does not count"
    return f"Reviewers decided {verdict}, which {how}."


EXTERNAL = "external_scores"


@dataclass(slots=True)
class ResultLine:
    """One execution of a case.

    Without a verdict an execution has no score: None, never 0. `status` is that of the result;
    `error_stage` tells where an error occurred. `usage` is the target's without its cost; both costs are
    None if no price is known. `score` is written unchanged, as `overall_score` from 0 to 100 (SCORING §4.4),
    and as `raw_score` on the suite's `scale` if that is not 1. `cause` is written with the decision of
    reviewers and read without it. `outcomes_judge` is the judge of the outcomes
    outside the tree; it is only read, never written. `judge_spread` says how far the judgings of a measurement differ;
    it is only written.
    """

    suite: str
    run: int
    target: str
    eval_id: str
    repetition: int
    status: str
    score: float | None = None
    verdict: str = ""
    reviewed_verdict: str = ""
    decided_by: str = ""
    cause: str = ""
    evaluators: tuple[EvaluatorLine, ...] = ()
    outcomes: tuple[OutcomeResult, ...] = ()
    error: str = ""
    error_stage: str = ""
    warnings: tuple[str, ...] = ()
    output: str | None = None
    output_removed_at: str | None = None
    output_removed_by: str = ""
    details_removed_at: str | None = None
    usage: Usage = NO_USAGE
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    finished_at: str | None = None
    scale: int = 1
    outcomes_judge: EvaluatorLine | None = None
    external_scores: tuple[Mapping[str, Any], ...] = ()
    judge_spread: Mapping[str, Any] | None = None

    def found(self, *, passed: bool) -> list[str]:
        """Return the hits, or the misses, of all its evaluators in tree order (SCORING §2)."""
        return [
            text
            for _, evaluator in walk_lines(self.evaluators)
            for text in evaluator.found(passed=passed)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values under the names of the file."""
        return {
            "eval_id": self.eval_id,
            "repetition": self.repetition,
            "status": self.status,
            "score": self.score,
            "overall_score": None if self.score is None else percent(self.score),
            **self._on_its_scale(),
            "verdict": self.verdict or None,
            **({"reviewed_verdict": self.reviewed_verdict} if self.reviewed_verdict else {}),
            "decided_by": self.decided_by or None,
            "cause": self.cause or None,
            "evaluator_results": [evaluator.as_json() for evaluator in self.evaluators],
            "hits": self.found(passed=True),
            "misses": self.found(passed=False),
            **(
                {OUTCOMES: [_outcome(outcome) for outcome in self.outcomes]}
                if self.outcomes
                else {}
            ),
            **self._final_evaluation(),
            **({EXTERNAL: list(self.external_scores)} if self.external_scores else {}),
            **({"judge_spread": dict(self.judge_spread)} if self.judge_spread else {}),
            "error": self.error or None,
            "error_stage": self.error_stage or None,
            "warnings": list(self.warnings),
            "output": self.output,
            **self._removal(),
            **_usage(self.usage),
            **usage_summary(self.run_cost_usd, self.evaluation_cost_usd),
            "timestamp": self.finished_at,
            "suite": self.suite,
            "run": self.run,
            "target": self.target,
        }

    def _on_its_scale(self) -> dict[str, float]:
        if self.score is None or self.scale == 1:
            return {}
        return {"raw_score": rounded(self.score * self.scale), "scale": self.scale}

    def _removal(self) -> dict[str, Any]:
        """Say when the output was removed, and what explains the scores."""
        removal = {
            "output_removed_at": self.output_removed_at,
            "output_removed_by": self.output_removed_by,
            "details_removed_at": self.details_removed_at,
        }
        return {name: value for name, value in removal.items() if value}

    def _final_evaluation(self) -> dict[str, Any]:
        """Return the final evaluation of the first hybrid judge, whose overall score can be the result's."""
        evaluations = (
            line.final_evaluation
            for _, line in walk_lines(self.evaluators)
            if line.final_evaluation
        )
        evaluation = next(evaluations, None)
        if evaluation is None:
            return {}
        costs = (self.run_cost_usd, self.evaluation_cost_usd)
        name = f"{self.suite}#{self.run}"
        return {
            "final_evaluation": results_document(
                evaluation, case=self.eval_id, run=name, costs=costs
            )
        }


ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def write_results(lines: Iterable[ResultLine], *, is_camel: bool = False) -> Iterator[str]:
    """Yield the lines of the file, each with its line end, as they come; keys in snake_case or camelCase."""
    for line in lines:
        values = in_camel_case(line.as_json()) if is_camel else line.as_json()
        text = ENCODE(values)
        for end, escaped in LINE_ENDS.items():
            text = text.replace(end, escaped)
        yield f"{text}\n"


def walk_lines(
    evaluators: Iterable[EvaluatorLine], path: str = ROOT_PATH
) -> Iterator[tuple[str, EvaluatorLine]]:
    """Yield evaluators and everything under them with their paths, in tree order."""
    for evaluator in evaluators:
        yield below(path, evaluator.name), evaluator
        yield from walk_lines(evaluator.children, below(path, evaluator.name))


def _usage(usage: Usage) -> dict[str, Any]:
    tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    known = {name: count for name, count in tokens.items() if count is not None}
    return {
        **({"usage": known} if known else {}),
        **({} if usage.latency_ms is None else {"latency_ms": usage.latency_ms}),
    }


def _dollars(usd: Decimal | None) -> float | None:
    return None if usd is None else float(usd)


def _outcome(outcome: OutcomeResult) -> dict[str, Any]:
    return {"text": outcome.text, "passed": outcome.passed, "justification": outcome.justification}

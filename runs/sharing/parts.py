"""The parts that shared documents have in common: texts with their limits, policy, headline and cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from django.db.models.functions import Length, Substr

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import (
    bound,
    counted,
    duration,
    interval,
    money,
    money_parts,
    pct,
    plain,
    points,
    threshold,
)
from evaluators.templatetags.marks import VERDICT_WORDS
from evaluators.templatetags.ui import MAX_DEPTH, as_text, steps_with_depth
from runs.documents import DetailLevel
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.result_state import result_mark
from runs.results.run_page import RunLive
from runs.results.runs import RunGate

Value = TypeVar("Value")
VERSION = 1
# How many cases a document lists, and how many of them with their question and answers.
MAX_CASES, MAX_WITH_TEXTS = 500, 100
MAX_STEPS, MAX_OUTCOMES, MAX_TURNS, MAX_REMARKS, MAX_RULES = 100, 100, 50, 50, 50
MAX_NAME_LENGTH, MAX_IN_TITLE_LENGTH = 200, 80
STATES = {"not_run": "cancelled", "pending": "waiting"}
GATES = {"score": "score", "expected_outcomes": "expected outcomes"}

MAX_TEXT_LENGTH = 20_000
# For a finding, a justification or a reason.
MAX_REMARK_LENGTH = 2_000
# For all texts of one document together.
MAX_CHARACTERS = 2_000_000
# Messages, findings, rules and steps of one document together. Each takes half a kilobyte of a page, which is made
# while an anonymous reader waits.
MAX_ENTRIES = 4_000


class TextBudget:
    """The number of characters, and of entries of lists, that the texts of one document may still take."""

    def __init__(self, left: int = MAX_CHARACTERS, entries: int = MAX_ENTRIES) -> None:
        """Start with this many characters and entries."""
        self.left = left
        self.entries = entries

    def first(self, entries: Sequence[Value], most: int) -> Sequence[Value]:
        """Return the first entries of a list, whose full length the document tells."""
        shown = entries[: min(most, self.entries)]
        self.entries -= len(shown)
        return shown

    def brief(self, text: object) -> str:
        """Return a remark; a long one is cut, with a note of its length."""
        whole = str(text or "")
        shown = whole[: min(MAX_REMARK_LENGTH, self.left)]
        self.left -= len(shown)
        if len(shown) == len(whole):
            return shown
        return f"{shown}… ({len(shown):,} of {len(whole):,} characters)"

    def cut(self, text: str, size: int | None = None) -> dict[str, Any]:
        """Return the beginning of a text as `text`, and its full length as `size`.

        Pass `size` if `text` was already cut.
        """
        shown = text[: min(MAX_TEXT_LENGTH, self.left)]
        self.left -= len(shown)
        whole = len(text) if size is None else size
        return {"text": shown, "size": whole, "shown": len(shown), "is_cut": len(shown) < whole}


def document_head(kind: str, detail_level: str, now: datetime, heading: str) -> dict[str, Any]:
    """Return the fields that every document begins with."""
    return {
        "version": VERSION,
        "kind": kind,
        "depth": detail_level,
        "made_at": now.isoformat(timespec="seconds"),
        "heading": heading,
    }


def state_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many cases are in each state, 0 for none."""
    return {state: counts.get(state, 0) for state in VERDICT_WORDS}


def policy_rows(policy: PolicySpec) -> list[dict[str, str]]:
    """Return the rules that decided the verdicts, each with a name and a value."""
    scale = policy.scale
    rows = {
        "Pass from": bound(policy.pass_threshold, scale),
        "Borderline from": bound(policy.borderline_threshold, scale),
        "Case gate": GATES.get(policy.case_gate, str(policy.case_gate).replace("_", " ")),
        "Score gate": threshold(policy.metrics_pass_threshold),
        "Pass-rate gate": threshold(policy.cases_pass_threshold),
        "Human reviews override verdicts": "yes" if policy.count_reviews else "no",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def tolerance_rows(rate: float, score: float, latency: float) -> list[dict[str, str]]:
    """Return how much worse the candidate was allowed to be."""
    rows = {
        "Largest drop in pass rate": points(rate) if rate else "none",
        "Largest drop in mean score": points(score) if score else "none",
        "Largest rise in mean latency": f"{plain(latency)}%",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def judge_text(run: Run) -> str:
    """Return the judge of a run; a scripted judge is no language model, and its text says so."""
    if not run.judge_name:
        return "no judge"
    is_clear = not run.is_scripted or "scripted" in run.judge_name.lower()
    return f"judge: {run.judge_name}{'' if is_clear else ' (scripted)'}"


def question(messages: Sequence[Mapping[str, Any]], budget: TextBudget) -> dict[str, Any]:
    """Return the first messages of a conversation, with cut texts, and the number of all messages."""
    return {
        "question": [
            {
                "role": str(message.get("role", "user"))[:MAX_NAME_LENGTH],
                "content": budget.cut(as_text(message.get("content")), message.get("size")),
            }
            for message in budget.first(messages, MAX_TURNS)
        ],
        "question_count": len(messages),
    }


def remarks(findings: Sequence[Mapping[str, Any]], budget: TextBudget) -> dict[str, Any]:
    """Return the first findings of evaluators, misses before hits, and the number of all findings."""
    ordered = sorted(findings, key=lambda finding: bool(finding.get("passed")))
    return {
        "remarks": [
            {
                "passed": bool(finding.get("passed")),
                "text": budget.brief(finding.get("text")),
                "evidence": budget.brief(finding.get("evidence")),
            }
            for finding in budget.first(ordered, MAX_REMARKS)
        ],
        "remark_count": len(findings),
    }


def rules(decision: Decision | None, budget: TextBudget) -> dict[str, Any]:
    """Return the steps that decided a verdict, and the smallest change that would alter it (SCORING §4)."""
    if decision is None or decision.verdict is None:
        return {}
    flip = decision.flip
    text = budget.brief(flip.text if flip else "")
    return {
        "smallest_change": {
            "text": text[:1].upper() + text[1:],
            "is_small": flip is not None and (flip.path is not None or bool(flip.outcomes)),
        },
        "rules": [
            {"text": budget.brief(step.text), "path": step.path, "passed": step.passed}
            for step in budget.first(decision.trace, MAX_RULES)
        ],
        "rule_count": len(decision.trace),
    }


def steps(trace: Sequence[Mapping[str, Any]] | None, budget: TextBudget) -> dict[str, Any]:
    """Return the first steps of a target, with cut texts, and the number of all steps."""
    taken = trace or ()
    return {
        "steps": [
            {"depth": min(depth, MAX_DEPTH), **_step(step, budget)}
            for depth, step in steps_with_depth(budget.first(taken, MAX_STEPS))
        ],
        "step_count": len(taken),
    }


def _step(step: Mapping[str, Any], budget: TextBudget) -> dict[str, Any]:
    plain_values = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
    cost = step.get("cost_usd")
    texts = {name: step[name] for name in ("input", "output", "error") if step.get(name)}
    return {
        "type": str(step.get("type") or "")[:MAX_NAME_LENGTH],
        "name": str(step.get("name") or "")[:MAX_NAME_LENGTH],
        **{name: step.get(name) for name in plain_values},
        "cost": "" if cost is None else money(Decimal(cost)),
        **{name: budget.cut(as_text(value)) for name, value in texts.items()},
    }


def outcomes(judged: Sequence[Mapping[str, Any]] | None, budget: TextBudget) -> dict[str, Any]:
    """Return the first expected outcomes, missed ones first, with the judgements on them, and the number of all."""
    missed_first = sorted(judged or (), key=lambda outcome: bool(outcome.get("passed")))
    return {
        "outcomes": [
            {
                "passed": bool(outcome.get("passed")),
                "text": budget.brief(outcome.get("text")),
                "justification": budget.brief(outcome.get("justification")),
            }
            for outcome in budget.first(missed_first, MAX_OUTCOMES)
        ],
        "outcome_count": len(missed_first),
    }


def comparison_title(runs: Sequence[Run]) -> str:
    """Name two runs by their targets, as `agent 1.4 against 1.5`; with their numbers if the targets are the same."""
    before, after = (run.target_name[:MAX_IN_TITLE_LENGTH] for run in runs)
    numbers = " against ".join(f"#{run.number}" for run in runs)
    if before == after:
        return f"{after}, {numbers}" if after else numbers
    was, now = before.split(), after.split()
    while len(was) > 1 and len(now) > 1 and was[0] == now[0]:
        was, now = was[1:], now[1:]
    return f"{before} against {' '.join(now)}"


def headline_figures(run: Run, live: RunLive) -> list[dict[str, Any]]:
    """Return the headline figures as texts: pass rate, score, latency and cost, each with its n of N."""
    known, usage = live.costs.costs, live.usage
    costs = (
        "Target {} + judge {}".format(*money_parts(known.run.usd, known.evaluation.usd)),
        *(["Some answers have no known price"] if known.is_partial else []),
    )
    done = run.done_count
    total = known.total_usd
    # Of a sum that lacks prices the mean is not known.
    each = total / done if total is not None and done and not known.is_partial else None
    summary = run.summary or {}
    ends = summary.get("interval")
    return [
        {
            "name": "Pass rate",
            "value": pct(live.cases.share),
            "notes": [
                live.cases.note,
                *([f"95% CI {interval((ends[0], ends[1]))}"] if ends else []),
            ],
        },
        {
            "name": "Mean score",
            "value": pct(live.metrics.share),
            "notes": [live.metrics.note],
        },
        {
            "name": "Latency, mean",
            "value": duration(usage.mean_ms),
            "notes": [
                f"median {duration(usage.p50_ms)}, p95 {duration(usage.p95_ms)}",
                f"{usage.timed} of {counted(usage.executions, 'result')} timed",
            ],
        },
        {
            "name": "Total cost",
            "value": f"{'≥ ' if known.is_partial and total is not None else ''}{money(total)}",
            "notes": [*costs, *([f"{money(each)} a result"] if each else [])],
        },
    ]


def gate_part(gate: RunGate) -> dict[str, Any]:
    """Return a gate as plain values, its figure and limit as shares."""
    return {
        "name": gate.name,
        "share": gate.share,
        "limit": gate.limit,
        "state": gate.state,
        "note": gate.note,
    }


# Of the repetitions of a case, a document shows the one whose verdict comes first here.
REPETITION_ORDER = ("error", "fail", "borderline", "pass")


def add_texts(
    rows: Sequence[dict[str, Any]],
    runs: Sequence[Run],
    detail_level: DetailLevel,
    budget: TextBudget,
) -> None:
    """Add the question, the expected output and the answer of each run to the rows of cases.

    The answer of a run is its worst repetition. Five queries a run.
    """
    keys = [row["key"] for row in rows]
    by_run = [_worst_results(run, keys) for run in runs]
    for row in rows:
        results = [by_key[row["key"]] for by_key in by_run if row["key"] in by_key]
        if results:
            case = results[-1].case
            row |= question(case.input, budget)
            row["expected"] = budget.cut(case.expected_output)
    for run, by_key in zip(runs, by_run, strict=True):
        _answers(run, rows, by_key, detail_level, budget)


def _worst_results(run: Run, keys: Sequence[str]) -> Mapping[str, Result]:
    rows = run.results.filter(case__key__in=keys).select_related("case").order_by("repetition")
    by_key: dict[str, list[Result]] = defaultdict(list)
    for row in rows:
        by_key[row.case.key].append(row)
    return {key: min(group, key=_repetition_order) for key, group in by_key.items()}


def _repetition_order(result: Result) -> int:
    state = result_mark(result)
    in_order = state in REPETITION_ORDER
    return REPETITION_ORDER.index(state) if in_order else len(REPETITION_ORDER)


def _answers(
    run: Run,
    rows: Iterable[dict[str, Any]],
    results: Mapping[str, Result],
    detail_level: DetailLevel,
    budget: TextBudget,
) -> None:
    ids = [result.pk for result in results.values()]
    outputs = _outputs(ids, detail_level)
    findings = evaluator_findings(ids)
    for row in rows:
        result = results.get(row["key"])
        if result is None:
            continue
        output = outputs.get(result.pk, {})
        row.setdefault("answers", []).append(
            {
                "run": run.number,
                "repetition": result.repetition,
                "repetitions": run.repetitions,
                "state": result_mark(result),
                "output": budget.cut(output.get("start") or "", output.get("size") or 0),
                "error": budget.brief(result.error),
                **outcomes(output.get("outcomes"), budget),
                **remarks(findings.get(result.pk, []), budget),
                **steps(output.get("trace"), budget),
            }
        )


def _outputs(ids: Sequence[int], detail_level: DetailLevel) -> Mapping[int, Mapping[str, Any]]:
    """Return the beginnings of the outputs, cut in the database because an output can be very long."""
    columns = ["result_id", "start", "size", "outcomes"]
    columns += ["trace"] if detail_level.reaches(DetailLevel.TRACES) else []
    rows = ResultOutput.objects.filter(result_id__in=ids).annotate(
        start=Substr("text", 1, MAX_TEXT_LENGTH), size=Length("text")
    )
    return {row["result_id"]: row for row in rows.values(*columns)}


def evaluator_findings(ids: Sequence[int]) -> Mapping[int, list[Mapping[str, Any]]]:
    """Return the findings of the evaluators by result, in tree order; one query."""
    by_result: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    scores = EvaluatorScore.objects.filter(result_id__in=ids).order_by(
        "result_id", "position", "id"
    )
    for pk, findings in scores.values_list("result_id", "findings"):
        by_result[pk] += findings
    return by_result


def case_places(*runs: Run) -> Mapping[str, int]:
    """Return the place of each case in the order of the suite: where names are hidden, the same number in every link."""
    cases = RunCase.objects.filter(run__in=runs).order_by("position", "run")
    keys = dict.fromkeys(cases.values_list("case__key", flat=True))
    return {key: place for place, key in enumerate(keys, 1)}


def case_titles(run: Run) -> Mapping[str, str]:
    """Return the titles of a run's cases by key; one query."""
    cases = Case.objects.filter(results__run=run).order_by()
    return dict(cases.values_list("key", "title").distinct())

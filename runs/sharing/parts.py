"""The parts that shared documents have in common: policy, texts, headline figures and rows of cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models.functions import Length, Substr

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import (
    bound,
    counted,
    duration,
    execution_money,
    interval,
    money,
    pct,
    plain,
    points,
    threshold,
)
from evaluators.templatetags.marks import VERDICT_WORDS
from evaluators.templatetags.ui import as_text
from runs.documents import DetailLevel
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.result_state import mark_of
from runs.results.run_page import RunLive
from runs.results.runs import RunGate
from runs.sharing.whitelist import MAX_TEXT_LENGTH, Allowance

VERSION = 1
# As many rows as a page draws at once, and as many of them with what was asked and answered.
MAX_CASES, MAX_WITH_TEXTS = 500, 100
MAX_STEPS, MAX_TURNS, MAX_REMARKS, MAX_RULES = 100, 50, 50, 50
MAX_NAME_LENGTH, MAX_IN_TITLE_LENGTH = 200, 80
STATES = {"not_run": "cancelled", "pending": "waiting"}
GATES = {"score": "its score alone", "expected_outcomes": "every expected outcome met"}


def head(kind: str, detail_level: str, now: datetime, heading: str) -> dict[str, Any]:
    """Return what every document begins with."""
    return {
        "version": VERSION,
        "kind": kind,
        "depth": detail_level,
        "made_at": now.isoformat(timespec="seconds"),
        "heading": heading,
    }


def state_counts(found: Mapping[str, int]) -> dict[str, int]:
    """Return how many cases are in each state, 0 for none."""
    return {state: found.get(state, 0) for state in VERDICT_WORDS}


def policy_rows(policy: PolicySpec) -> list[dict[str, str]]:
    """Return the rules that made the verdicts, a name and a value each."""
    scale = policy.scale
    rows = {
        "Pass from": bound(policy.pass_threshold, scale),
        "Borderline from": bound(policy.borderline_threshold, scale),
        "A case passes by": GATES.get(policy.case_gate, str(policy.case_gate).replace("_", " ")),
        "Metrics gate": threshold(policy.metrics_pass_threshold),
        "Cases gate": threshold(policy.cases_pass_threshold),
        "Reviews count": "yes" if policy.count_reviews else "no",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def tolerance_rows(rate: float, score: float, latency: float) -> list[dict[str, str]]:
    """Return how much worse the candidate was allowed to be."""
    rows = {
        "Pass rate may fall by": points(rate) if rate else "nothing",
        "Mean score may fall by": points(score) if score else "nothing",
        "Mean latency may grow by": f"{plain(latency)}%",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def judge_text(run: Run) -> str:
    """Return who judged a run; one whose replies were written for it is no model."""
    if not run.judge_name:
        return "no judge"
    is_told = not run.is_scripted or "scripted" in run.judge_name.lower()
    return f"judge {run.judge_name}{'' if is_told else ', a scripted judge'}"


def question(messages: Sequence[Mapping[str, Any]], allowance: Allowance) -> dict[str, Any]:
    """Return the messages of a conversation, their texts cut, and how many there were."""
    return {
        "question": [
            {
                "role": str(one.get("role", "user"))[:MAX_NAME_LENGTH],
                "content": allowance.cut(as_text(one.get("content")), one.get("size")),
            }
            for one in messages[:MAX_TURNS]
        ],
        "question_count": len(messages),
    }


def remarks(found: Sequence[Mapping[str, Any]], allowance: Allowance) -> dict[str, Any]:
    """Return what evaluators found, the misses first, and how many findings there were."""
    ordered = sorted(found, key=lambda one: bool(one.get("passed")))
    return {
        "remarks": [
            {
                "passed": bool(one.get("passed")),
                "text": allowance.brief(one.get("text")),
                "evidence": allowance.brief(one.get("evidence")),
            }
            for one in ordered[:MAX_REMARKS]
        ],
        "remark_count": len(found),
    }


def rules(decision: Decision | None, allowance: Allowance) -> dict[str, Any]:
    """Return the steps by which a verdict was decided, and the smallest change to another (SCORING §4)."""
    if decision is None or decision.verdict is None:
        return {}
    flip = decision.flip
    text = allowance.brief(flip.text if flip else "")
    return {
        "smallest_change": {
            "text": text[:1].upper() + text[1:],
            "is_small": flip is not None and (flip.path is not None or bool(flip.outcomes)),
        },
        "rules": [
            {"text": allowance.brief(one.text), "path": one.path, "passed": one.passed}
            for one in decision.trace[:MAX_RULES]
        ],
        "rule_count": len(decision.trace),
    }


def steps(trace: Sequence[Mapping[str, Any]] | None, allowance: Allowance) -> dict[str, Any]:
    """Return the steps a target took, their texts cut."""
    found = trace or ()
    return {
        "steps": [_step(one, allowance) for one in found[:MAX_STEPS]],
        "step_count": len(found),
    }


def _step(step: Mapping[str, Any], allowance: Allowance) -> dict[str, Any]:
    plain_values = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
    texts = {name: step[name] for name in ("input", "output", "error") if step.get(name)}
    return {
        "type": str(step.get("type") or "")[:MAX_NAME_LENGTH],
        "name": str(step.get("name") or "")[:MAX_NAME_LENGTH],
        **{name: step.get(name) for name in plain_values},
        **{name: allowance.cut(as_text(value)) for name, value in texts.items()},
    }


def outcomes(
    found: Iterable[Mapping[str, Any]] | None, allowance: Allowance
) -> list[dict[str, Any]]:
    """Return the expected outcomes with what was judged of each."""
    return [
        {
            "passed": bool(one.get("passed")),
            "text": allowance.brief(one.get("text")),
            "justification": allowance.brief(one.get("justification")),
        }
        for one in found or ()
    ]


def against(runs: Sequence[Run]) -> str:
    """Return two runs by their targets, as `agent 1.4 against 1.5`; by their numbers where those are called alike."""
    before, after = (run.target_name[:MAX_IN_TITLE_LENGTH] for run in runs)
    numbers = " against ".join(f"#{run.number}" for run in runs)
    if before == after:
        return f"{after}, {numbers}" if after else numbers
    was, now = before.split(), after.split()
    while len(was) > 1 and len(now) > 1 and was[0] == now[0]:
        was, now = was[1:], now[1:]
    return f"{before} against {' '.join(now)}"


def headline_figures(run: Run, live: RunLive) -> list[dict[str, Any]]:
    """Return the headline in words: pass rate, score, latency and cost, each with its n of N."""
    known, usage = live.costs.costs, live.usage
    costs = (
        f"Run {money(known.run.usd)} + evaluation {money(known.evaluation.usd)}",
        *(["Some answers have no known price"] if known.is_partial else []),
    )
    done = run.done_count
    total = known.total_usd
    each = total / done if total is not None and done else None
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
                f"{usage.timed} of {counted(usage.executions, 'execution')} timed",
            ],
        },
        {
            "name": "Total cost",
            "value": f"{'≥ ' if known.is_partial and total is not None else ''}{money(total)}",
            "notes": [*costs, *([f"{execution_money(each)} an execution"] if each else [])],
        },
    ]


def gate_part(one: RunGate) -> dict[str, Any]:
    """Return a gate as plain values, its figure and limit as shares."""
    return {
        "name": one.name,
        "share": one.share,
        "limit": one.limit,
        "state": one.state,
        "note": one.note,
    }


# The repetition shown is the one that went worst.
WORST_FIRST = ("error", "fail", "borderline", "pass")


def add_texts(
    rows: Sequence[dict[str, Any]],
    runs: Sequence[Run],
    detail_level: DetailLevel,
    allowance: Allowance,
) -> None:
    """Add to the rows of cases, by their keys, what was asked, expected and answered in each run.

    Of each run it is the repetition that went worst. Five queries a run.
    """
    keys = [row["key"] for row in rows]
    found = [_results(run, keys) for run in runs]
    for row in rows:
        results = [by_key[row["key"]] for by_key in found if row["key"] in by_key]
        if results:
            case = results[-1].case
            row |= question(case.input, allowance)
            row["expected"] = allowance.cut(case.expected_output)
    for run, by_key in zip(runs, found, strict=True):
        _answers(run, rows, by_key, detail_level, allowance)


def _results(run: Run, keys: Sequence[str]) -> Mapping[str, Result]:
    rows = run.results.filter(case__key__in=keys).select_related("case").order_by("repetition")
    by_key: dict[str, list[Result]] = defaultdict(list)
    for row in rows:
        by_key[row.case.key].append(row)
    return {key: min(group, key=_badness) for key, group in by_key.items()}


def _badness(result: Result) -> int:
    state = mark_of(result)
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)


def _answers(
    run: Run,
    rows: Iterable[dict[str, Any]],
    results: Mapping[str, Result],
    detail_level: DetailLevel,
    allowance: Allowance,
) -> None:
    ids = [one.pk for one in results.values()]
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
                "state": mark_of(result),
                "output": allowance.cut(output.get("start") or "", output.get("size") or 0),
                "error": allowance.brief(result.error),
                "outcomes": outcomes(output.get("outcomes"), allowance),
                **remarks(findings.get(result.pk, []), allowance),
                **steps(output.get("trace"), allowance),
            }
        )


def _outputs(ids: Sequence[int], detail_level: DetailLevel) -> Mapping[int, Mapping[str, Any]]:
    """Return the beginnings of the outputs: five million characters stay where they are."""
    columns = ["result_id", "start", "size", "outcomes"]
    columns += ["trace"] if detail_level.reaches(DetailLevel.TRACES) else []
    rows = ResultOutput.objects.filter(result_id__in=ids).annotate(
        start=Substr("text", 1, MAX_TEXT_LENGTH), size=Length("text")
    )
    return {row["result_id"]: row for row in rows.values(*columns)}


def evaluator_findings(ids: Sequence[int]) -> Mapping[int, list[Mapping[str, Any]]]:
    """Return by result what its evaluators found, in tree order; one query."""
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    scores = EvaluatorScore.objects.filter(result_id__in=ids).order_by(
        "result_id", "position", "id"
    )
    for pk, findings in scores.values_list("result_id", "findings"):
        found[pk] += findings
    return found


def case_titles(run: Run) -> Mapping[str, str]:
    """Return the titles of the cases of a run by their keys; one query."""
    cases = Case.objects.filter(results__run=run).order_by()
    return dict(cases.values_list("key", "title").distinct())

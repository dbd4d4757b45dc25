"""The documents that share links freeze: of a comparison, a run or a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import count, islice
from typing import Any

from evaluators.templatetags.figures import (
    bound,
    counted,
    delta,
    duration,
    money,
    money_parts,
    pct,
    plain,
    score,
    thousands,
    threshold,
)
from evaluators.templatetags.marks import VERDICT_WORDS, mark_state
from runs.compare.changes import (
    BY_COST,
    BY_LATENCY,
    EVERY,
    ChangeRow,
    ComparisonQuery,
    change_table,
)
from runs.compare.comparison import Comparison, comparison_heading
from runs.compare.conclusion import judging_text
from runs.compare.documents import comparison_document
from runs.compare.evidence import EVALUATOR
from runs.compare.measures import GROUPS, IntervalBar
from runs.compare.page import ComparisonPage, comparison_page
from runs.compare.sides import ComparisonSide
from runs.documents import DetailLevel
from runs.engine.plan import JUDGED_AGAIN, METRICS_KIND, read_plan
from runs.models.runs import Run, RunStatus
from runs.results.documents import case_summaries, run_detail_document
from runs.results.result_page import ResultPage, result_page
from runs.results.result_state import cause_text, reviewed_verdicts
from runs.results.result_tree import TreeNode
from runs.results.run_page import RunLive, run_live
from runs.results.runs import NOT_EVALUATED, RunGate, conclude, with_list_columns
from runs.sharing.documents import SharedComparison, SharedResult, SharedRun
from runs.sharing.parts import (
    MAX_CASES,
    MAX_WITH_TEXTS,
    STATES,
    TextBudget,
    add_texts,
    case_places,
    case_titles,
    document_head,
    evaluator_findings,
    gate_part,
    headline_figures,
    judge_text,
    outcomes,
    policy_rows,
    question,
    remarks,
    rules,
    state_counts,
    steps,
    tolerance_rows,
)
from runs.summary.cases import CaseSummary


def changes(comparison: Comparison, query: ComparisonQuery) -> Iterator[ChangeRow]:
    """Yield every case, the most harmful change first, without the filters and columns of the page."""
    usual = ComparisonQuery()
    whole = replace(query, show=EVERY, cell="", text="", sort=usual.sort, columns=usual.columns)
    for number in count(1):
        table = change_table(comparison, replace(whole, page=number))
        yield from table.rows
        if not table.pages.later_url:
            return


def case_row(place: int, row: ChangeRow, scale: int) -> dict[str, Any]:
    """Return a case: its place in the suite, both sides and the change between them."""
    change = row.change
    before, after = change.baseline, change.candidate
    growth = {column.name: sides.change for column, sides in row.cells if sides}
    return {
        "place": place,
        "key": change.case,
        "title": row.title,
        "label": row.label,
        "icon": row.icon,
        "tone": row.tone,
        "before": row.states[0],
        "after": row.states[1],
        **{
            name: review.people if review else ""
            for name, review in zip(("before_people", "after_people"), row.reviewed, strict=True)
        },
        "only": "" if before and after else "candidate" if after else "baseline",
        "before_score": score(before.mean_score, scale) if before else "",
        "after_score": score(after.mean_score, scale) if after else "",
        "change": delta(change.score_change, "pts"),
        **_bar(row.bar),
        "met": row.met,
        "cost": delta(growth[BY_COST], "pct"),
        "latency": delta(growth[BY_LATENCY], "pct"),
    }


def _bar(bar: IntervalBar | None) -> dict[str, str]:
    return {} if bar is None else asdict(bar)


EVALUATORS = GROUPS[EVALUATOR][0]


def shared_comparison(
    comparison: Comparison,
    query: ComparisonQuery,
    *,
    detail_level: DetailLevel,
    now: datetime,
) -> SharedComparison:
    """Describe a comparison for a share link, with all figures; `filter_document` hides those of higher levels."""
    page = comparison_page(comparison, query)
    tolerances = comparison.tolerances
    before, after = comparison.baseline.run, comparison.candidate.run
    places = case_places(before, after)
    rows = islice(changes(comparison, query), MAX_CASES)
    cases = [case_row(places[row.change.case], row, after.scale) for row in rows]
    has_texts = detail_level.reaches(DetailLevel.OUTPUTS)
    texts = cases[: MAX_WITH_TEXTS if has_texts else 0]
    add_texts(texts, (before, after), detail_level, TextBudget())
    limits = (
        tolerances.max_pass_rate_drop,
        tolerances.max_avg_score_drop,
        tolerances.max_latency_increase_pct,
    )
    return SharedComparison.model_validate(
        {
            **document_head("comparison", detail_level, now, comparison_heading(before, after)),
            "verdict": _comparison_verdict(page),
            "tolerance": page.conclusion.limits,
            "evidence": page.conclusion.evidence,
            "facts": _comparison_facts(page),
            "suites": list(dict.fromkeys((before.suite.title, after.suite.title))),
            "policy": [*tolerance_rows(*limits), *policy_rows(read_plan(after.snapshot).policy)],
            "sides": [_side(panel.role, panel.side, panel.counts) for panel in page.sides],
            "measures": [asdict(measure) for measure in page.measures],
            "differences": [
                {"what": difference.what, "text": difference.text, "spoils": difference.spoils}
                for difference in comparison.differences
            ],
            "comparability": page.comparability,
            "only_shared": page.is_shared,
            "unfinished": [
                f"Run #{run.number} is not completed ({RunStatus(run.status).label.lower()})"
                for run in (before, after)
                if run.status != RunStatus.COMPLETED
            ],
            "metrics": [asdict(group) for group in page.metrics if group.title != EVALUATORS],
            "evaluators": [asdict(group) for group in page.metrics if group.title == EVALUATORS],
            "changes": [
                {"label": chip.label, "count": chip.count, "icon": chip.icon, "tone": chip.tone}
                for chip in page.table.chips
            ],
            "matrix": [
                {
                    "verdict": row.verdict,
                    "cells": [
                        {"count": cell.count, "tone": cell.tone, "is_same": cell.is_same}
                        for cell in row.cells
                    ],
                }
                for row in page.changes.matrix
            ],
            "flips": page.changes.flips,
            "shared": comparison.shared,
            "out_of_grid": page.changes.out_of_grid,
            "has_repetitions": page.comparison.has_repetitions,
            "figures": comparison_document(comparison),
            "case_count": len(comparison.cases),
            "shown_count": len(cases),
            "text_count": len(texts),
            "cases": cases,
        }
    )


def _comparison_verdict(page: ComparisonPage) -> dict[str, str]:
    # How the judging differs may name cases and files; higher levels list the differences.
    sentence = page.conclusion.sentence.replace(f"{judging_text(page.comparison)} ", "")
    for side in (page.comparison.baseline, page.comparison.candidate):
        # The name of a suite is no figure, so this level must not show it.
        sentence = sentence.replace(f"{side.run.suite.slug}{side.run}", f"Run {side.run}")
    return {
        "state": page.verdict,
        "word": page.conclusion.word,
        "headline": page.conclusion.headline,
        "tone": page.tone,
        "sentence": sentence,
    }


def _comparison_facts(page: ComparisonPage) -> list[str]:
    before, after = page.comparison.baseline.run, page.comparison.candidate.run
    same = before.repetitions == after.repetitions
    both = counted(after.repetitions, "repetition")
    versions = [f"v{run.suite_version}" for run in (before, after)]
    if page.is_of_one_suite:
        suite = f"suite {' and '.join(dict.fromkeys(versions))}"
    else:
        suite = "two suites"
    return [
        f"{counted(page.comparison.in_both, 'case')} in both",
        f"{both} each" if same else f"{before.repetitions} and {both}",
        suite,
        " and ".join(dict.fromkeys((judge_text(before), judge_text(after)))),
    ]


def _side(role: str, side: ComparisonSide, counts: Mapping[str, int]) -> dict[str, Any]:
    run = side.run
    return {
        "role": role,
        "number": run.number,
        "target": run.target_name,
        "status": run.status,
        "counts": state_counts(counts),
        "gates": [gate_part(gate) for gate in side.gates],
    }


CASE_ORDER = ("fail", "error", "borderline", "cancelled", "waiting", "running", "pass")


def shared_run(run: Run, *, detail_level: DetailLevel, now: datetime) -> SharedRun:
    """Describe a run for a share link, with all figures; `filter_document` hides those of higher levels."""
    live = run_live(run, now=now)
    summaries = sorted(case_summaries(run), key=_case_order)
    titles, places, people = case_titles(run), case_places(run), reviewed_verdicts(run)
    cases = [
        {
            **_case(places[case.case], case, titles.get(case.case, ""), run.scale),
            "people": people.get(case.case, ""),
        }
        for case in summaries[:MAX_CASES]
    ]
    texts = cases[: MAX_WITH_TEXTS if detail_level.reaches(DetailLevel.OUTPUTS) else 0]
    add_texts(texts, (run,), detail_level, TextBudget())
    gates = (live.metrics, live.cases)
    return SharedRun.model_validate(
        {
            **document_head("run", detail_level, now, f"Run #{run.number}"),
            "verdict": _run_verdict(run, gates),
            "facts": _run_facts(run, live),
            "suites": [run.suite.title],
            "policy": policy_rows(run.policy),
            "counts": state_counts(live.counts),
            "measures": headline_figures(run, live),
            "figures": run_detail_document(with_list_columns(Run.objects.filter(pk=run.pk)).get()),
            "case_count": len(summaries),
            "shown_count": len(cases),
            "text_count": len(texts),
            "cases": cases,
        }
    )


def _case_order(case: CaseSummary) -> tuple[int, float]:
    state = STATES.get(case.state, case.state)
    return CASE_ORDER.index(state), 1.0 if case.means.score is None else case.means.score


def _run_verdict(run: Run, gates: Sequence[RunGate]) -> dict[str, str]:
    states = {gate.state for gate in gates}
    if run.status != RunStatus.COMPLETED:
        status = RunStatus(run.status).label.lower()
        sentence = f"The run is not completed ({status}), so its gates are not evaluated."
        return {"state": "cancelled", "word": "Not evaluated", "tone": "warn", "sentence": sentence}
    conclusion = conclude(run)
    if run.summary and conclusion.code == NOT_EVALUATED:
        # The gates of a target whose answers are errors fail, which says nothing of the target.
        reason = conclusion.sentence.partition(": ")[2]
        sentence = f"{reason[:1].upper()}{reason[1:]}"
        return {"state": "error", "word": "Not evaluated", "tone": "warn", "sentence": sentence}
    if "failed" in states:
        shares = _gate_shares(gate for gate in gates if gate.state == "failed")
        return {"state": "fail", "word": "Failed", "tone": "bad", "sentence": f"Too low: {shares}."}
    if states == {"passed"}:
        sentence = f"Both gates are passed: {_gate_shares(gates)}."
        return {"state": "pass", "word": "Passed", "tone": "good", "sentence": sentence}
    if run.measures_judge:
        sentence = "The run measures the judge, so its gates are not evaluated."
    else:
        sentence = "No result has a score, so the gates cannot be evaluated."
    return {"state": "waiting", "word": "Not evaluated", "tone": "warn", "sentence": sentence}


def _gate_shares(gates: Iterable[RunGate]) -> str:
    return "; ".join(
        f"{gate.name.lower()} {pct(gate.share)}, needs {threshold(gate.limit)}" for gate in gates
    )


def _run_facts(run: Run, live: RunLive) -> list[str]:
    day = run.finished_at
    return [
        run.target_name,
        f"suite v{run.suite_version}",
        judge_text(run),
        counted(run.repetitions, "repetition"),
        *_source_facts(run),
        *([f"took {duration(live.progress.elapsed_ms)}"] if live.progress.elapsed_ms else []),
        *([f"finished {day.day} {day:%b %Y}"] if day else []),
    ]


def _source_facts(run: Run) -> list[str]:
    """Name the run whose outputs were judged again, by its number alone: a link to it would need an account."""
    source = run.snapshot.get(JUDGED_AGAIN)
    if source is None:
        return []
    if run.measures_judge:
        return [f"measures the judge of run #{source['run']}"]
    return [f"judges the outputs of run #{source['run']} again"]


def _case(place: int, case: CaseSummary, title: str, scale: int) -> dict[str, Any]:
    return {
        "place": place,
        "key": case.case,
        "title": title,
        "state": STATES.get(case.state, case.state),
        "score": score(case.means.score, scale),
        "passed": case.passed,
        "results": case.executions,
        "latency": duration(case.means.latency_ms),
        "cost": money(case.means.total_cost_usd),
    }


TONES = {"pass": "good", "borderline": "warn", "fail": "bad", "error": "error"}


def shared_result(
    run: Run, key: str, repetition: int, *, detail_level: DetailLevel, now: datetime
) -> SharedResult:
    """Describe a result for a share link; `filter_document` hides what a detail level does not show.

    Raises Result.DoesNotExist for a result the run does not have.
    """
    page = result_page(run, key, repetition)
    budget = TextBudget()
    findings = evaluator_findings([page.result.pk]).get(page.result.pk, [])
    return SharedResult.model_validate(
        {
            **document_head("result", detail_level, now, f"One result of run #{run.number}"),
            "verdict": _result_verdict(page),
            "facts": _result_facts(page),
            "suites": [run.suite.title],
            "policy": policy_rows(page.policy),
            "key": page.case.key,
            "title": page.case.title,
            "decided_by": page.result.decided_by,
            "cause": budget.brief(cause_text(page.cause, page.result, page.policy)),
            "stage": page.stage,
            "error": budget.brief(page.result.error),
            "warnings": [budget.brief(warning) for warning in page.result.warnings],
            "measures": _measures(page),
            "metrics": [
                {
                    "name": metric["name"],
                    "tier": metric.get("tier") or "",
                    "mean": metric["score"],
                    "binary": bool(metric.get("binary")),
                    "judged": 1,
                }
                for _, node in _walk(page.tree, 0)
                if node.kind == METRICS_KIND
                for metric in node.details.get("metrics") or ()
            ],
            "evaluators": [
                _evaluator(depth, node, run.scale, budget) for depth, node in _walk(page.tree, 0)
            ],
            **rules(page.decision, budget),
            "outcomes_met": page.outcomes_met,
            **outcomes(page.outcomes, budget),
            **question(_shown_turns(page, detail_level), budget),
            "expected": budget.cut(page.case.expected_output),
            **remarks(findings, budget),
            **steps(page.steps, budget),
        }
    )


# Turns of any other role, such as what a tool answered, are a part of the trace.
SPEAKERS = ("system", "developer", "user", "assistant")


def _shown_turns(page: ResultPage, detail_level: DetailLevel) -> list[Mapping[str, Any]]:
    """Return the conversation as far as a detail level shows it."""
    has_traces = detail_level.reaches(DetailLevel.TRACES)
    return [turn for turn in page.turns.messages if has_traces or turn["role"] in SPEAKERS]


def _result_verdict(page: ResultPage) -> dict[str, str]:
    state = mark_state(page.state)
    score_text = (
        "" if page.result.score is None else f", score {score(page.result.score, page.run.scale)}"
    )
    word = VERDICT_WORDS[state]
    sentence = f"{page.stage}. It counts as not passed." if page.stage else ""
    review = page.override
    if not sentence:
        sentence = f"The verdict is {word.lower()}{score_text}."
    if review:
        # Reviews show verdicts, never names or notes.
        sentence += f" Reviewed as {review.people}."
    return {"state": state, "word": word, "tone": TONES.get(state, ""), "sentence": sentence}


def _result_facts(page: ResultPage) -> list[str]:
    run = page.run
    return [
        run.target_name,
        f"suite v{run.suite_version}",
        judge_text(run),
        f"repetition {page.result.repetition} of {run.repetitions}",
    ]


def _measures(page: ResultPage) -> list[dict[str, Any]]:
    result, spent = page.result, page.costs
    outcome_count = len(page.outcomes)
    tokens = [
        f"{thousands(count)} tokens {word}"
        for count, word in ((result.input_tokens, "in"), (result.output_tokens, "out"))
        if count is not None
    ]
    return [
        {
            "name": "Score",
            "value": score(result.score, page.run.scale),
            "notes": [f"{counted(page.scored_leaves, 'evaluator')} scored"],
        },
        {
            "name": "Outcomes met",
            "value": f"{page.outcomes_met} of {outcome_count}" if outcome_count else "–",
            "notes": [] if outcome_count else ["Not judged"],
        },
        {"name": "Latency", "value": duration(result.latency_ms), "notes": tokens},
        {
            "name": "Total cost",
            "value": money(spent.total_usd),
            "notes": [
                "Target {} + judge {}".format(
                    *money_parts(result.run_cost_usd, result.evaluation_cost_usd)
                )
            ],
        },
    ]


def _walk(node: TreeNode, depth: int) -> Iterator[tuple[int, TreeNode]]:
    yield depth, node
    for child in node.children:
        yield from _walk(child, depth + 1)


def _evaluator(depth: int, node: TreeNode, scale: int, budget: TextBudget) -> dict[str, Any]:
    return {
        "depth": min(depth, 3),
        "name": node.name,
        "kind": node.label,
        "icon": node.icon,
        "weight": "" if node.is_root else plain(node.weight),
        "state": node.state,
        "score": score(node.score, scale),
        "pass_mark": "" if node.pass_mark is None else bound(node.pass_mark, scale),
        "reaches_mark": node.reaches_mark,
        "verdict": node.verdict,
        "is_decisive": node.is_decisive,
        "note": budget.brief(node.note),
        "reasoning": budget.brief(node.row.reasoning if node.row else ""),
    }

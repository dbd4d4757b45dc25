"""A run as a share link freezes it: its gates, its figures and its cases, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from evaluators.templatetags.figures import (
    counted,
    duration,
    execution_money,
    pct,
    score,
    threshold,
)
from runs.models import Run, RunStatus
from runs.reports.case_groups import policy_of
from runs.reports.gates import RunGate
from runs.reports.overrides import people_of
from runs.reports.run_document import case_summaries
from runs.reports.run_page import RunLive, run_live
from runs.reports.shared_answers import titles_of, with_texts
from runs.reports.shared_figures import figures_of, gate_of, measures_of
from runs.reports.shared_words import (
    MOST_CASES,
    MOST_WITH_TEXTS,
    STATES,
    counts_of,
    head,
    judge_word,
    policy_rows,
)
from runs.sharing import Allowance, Depth
from runs.summary import CaseSummary

WORST_FIRST = ("fail", "error", "borderline", "cancelled", "waiting", "running", "pass")


def shared_run(run: Run, *, depth: Depth, now: datetime) -> dict[str, Any]:
    """Return the document; what may leave of it at a depth, `let_through` says."""
    live = run_live(run, now=now)
    summed = sorted(case_summaries(run), key=_badness)
    titles, people = titles_of(run), people_of(run)
    cases = [
        {
            **_case(number, one, titles.get(one.case, ""), run.scale),
            "people": people.get(one.case, ""),
        }
        for number, one in enumerate(summed[:MOST_CASES], 1)
    ]
    texts = cases[: MOST_WITH_TEXTS if depth.reaches(Depth.OUTPUTS) else 0]
    with_texts(texts, (run,), depth, Allowance())
    gates = (live.metrics, live.cases)
    return {
        **head("run", depth, now, f"Run #{run.number}"),
        "verdict": _verdict(run, gates),
        "facts": _facts(run, live),
        "suites": [run.suite.title],
        "policy": policy_rows(policy_of(run)),
        "gates": [gate_of(one) for one in gates],
        "counts": counts_of(live.counts),
        "measures": measures_of(run, live),
        "metrics": [
            {
                "name": one.name,
                "tier": tier.name,
                "mean": one.mean,
                "binary": one.binary,
                "judged": one.judged,
            }
            for judged in live.judged
            for tier in judged.tiers
            for one in tier.metrics
        ],
        "dimensions": [
            {
                "name": one.name,
                "checks": one.deterministic.mean,
                "judge": one.judge.mean,
                "final": one.final.mean,
            }
            for judged in live.dimensions
            for one in judged.dimensions
        ],
        "figures": figures_of(run, live),
        "case_count": len(summed),
        "shown_count": len(cases),
        "text_count": len(texts),
        "cases": cases,
    }


def _badness(case: CaseSummary) -> tuple[int, float]:
    state = STATES.get(case.state, case.state)
    return WORST_FIRST.index(state), 1.0 if case.means.score is None else case.means.score


def _verdict(run: Run, gates: Sequence[RunGate]) -> dict[str, str]:
    states = {one.state for one in gates}
    if run.status != RunStatus.COMPLETED:
        status = RunStatus(run.status).label.lower()
        sentence = f"The run is not completed ({status}), so its gates are not judged."
        return {"state": "cancelled", "word": "Not judged", "tone": "warn", "sentence": sentence}
    if "failed" in states:
        told = _told(one for one in gates if one.state == "failed")
        return {"state": "fail", "word": "Failed", "tone": "bad", "sentence": f"Too low: {told}."}
    if states == {"passed"}:
        sentence = f"Both gates are passed: {_told(gates)}."
        return {"state": "pass", "word": "Passed", "tone": "good", "sentence": sentence}
    sentence = "Nothing has a score, so no gate can be judged."
    return {"state": "waiting", "word": "Not judged", "tone": "warn", "sentence": sentence}


def _told(gates: Iterable[RunGate]) -> str:
    return "; ".join(
        f"{one.name.lower()} {pct(one.share)}, needs {threshold(one.limit)}" for one in gates
    )


def _facts(run: Run, live: RunLive) -> list[str]:
    day = run.finished_at
    return [
        run.target_name,
        f"suite v{run.suite_version}",
        judge_word(run),
        counted(run.repetitions, "repetition"),
        *([f"took {duration(live.progress.elapsed_ms)}"] if live.progress.elapsed_ms else []),
        *([f"finished {day.day} {day:%b %Y}"] if day else []),
    ]


def _case(number: int, one: CaseSummary, title: str, scale: int) -> dict[str, Any]:
    return {
        "place": number,
        "key": one.case,
        "title": title,
        "state": STATES.get(one.state, one.state),
        "score": score(one.means.score, scale),
        "passed": one.passed,
        "executions": one.executions,
        "latency": duration(one.means.latency_ms),
        "cost": execution_money(one.means.total_cost_usd),
    }

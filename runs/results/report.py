"""The figures of a run as text: the closing table of a command, and its worst cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.db.models import F

from evaluators.templatetags.figures import (
    GAPS,
    counted,
    duration,
    interval,
    money,
    money_parts,
    pct,
    score,
    threshold,
)
from runs.costs import CostPair, run_costs
from runs.engine.plan import JUDGED_AGAIN, MEASURES_JUDGE
from runs.models.results import ResultOutput
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.results.judge_figures import run_spread
from runs.results.pairwise import run_pairwise
from runs.results.result_state import result_cause
from runs.results.run_figures import Proportion, RunRepetitions, run_repetitions
from runs.results.runs import RunGate, cases_gate, metrics_gate

SIGNS = {"passed": "≥", "failed": "<"}


def run_report(run: Run, sentence: str) -> str:
    """Return the figures of a run, its worst cases, and the sentence that concludes it."""
    parts = (summary_table(run), worst_cases(run), sentence)
    return "\n\n".join(part for part in parts if part)


def summary_table(run: Run) -> str:
    """Return the figures of a run: both gates, verdicts, errors, repetitions, both costs and their sum.

    A run that measures the judge has no gates.
    """
    gates = (metrics_gate(run, run.policy), cases_gate(run, run.policy))
    done = f"{run.done_count} of {run.execution_count}"
    verdicts = f"{run.pass_count} pass, {run.borderline_count} borderline, {run.fail_count} fail"
    # These counters do not include reviews.
    by_machine = ", without reviews" if (run.summary or {}).get("reviews") else ""
    rows = [
        ("Status", status_sentence(run)),
        *((gate.name, _gate(gate)) for gate in gates if not run.measures_judge),
        ("Results", f"{done} done: {verdicts}{by_machine}"),
        ("Errors", f"{run.error_count} of {run.execution_count}"),
        *_repetition_rows(run_repetitions(run), run.scale),
        *_source_rows(run),
        *_spread_rows(run),
        *_pairwise_rows(run),
        *_cost_rows(run_costs(run)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _repetition_rows(figures: RunRepetitions | None, scale: int) -> list[tuple[str, str]]:
    """Return the rows about repetitions; none for a run without repetitions."""
    if figures is None:
        return []
    rows = [
        ("Passed every time", _share(figures.all_passed)),
        ("Passed at least once", _share(figures.any_passed)),
        ("Flaky", f"{_share(figures.flaky)}, verdicts vary"),
    ]
    if figures.spread is not None:
        cases = counted(figures.spread_cases, "case")
        spread = f"{score(figures.spread, scale)} of scores, over {cases}"
        rows.append(("Mean spread", spread.translate(GAPS)))
    return rows


def _pairwise_rows(run: Run) -> list[tuple[str, str]]:
    """Return a row for each evaluator that compares the outputs with the baseline's."""
    found = run_pairwise(run)
    if found is None:
        return []
    name = f"Against #{found.number}"
    return [
        (name if place == 0 else "", row.text.translate(GAPS))
        for place, row in enumerate(found.rows)
    ]


def _source_rows(run: Run) -> list[tuple[str, str]]:
    """Return the row about outputs of another run; none for a run that asked its target."""
    source = run.snapshot.get(JUDGED_AGAIN)
    if source is None:
        return []
    if run.measures_judge:
        facts = run.snapshot[MEASURES_JUDGE]
        drawn = f"{facts['results']} of {counted(facts['of'], 'result')} of #{source['run']}"
        return [("Outputs", f"{drawn}, judged {counted(facts['times'], 'more time')}")]
    of = f"{run.done_count} of {source['results']} of #{source['run']}"
    return [("Outputs", f"{of}, judged again; their target cost was paid there")]


def _spread_rows(run: Run) -> list[tuple[str, str]]:
    """Return the row about the spread of the judge; none while nobody knows it."""
    whole = run_spread(run).whole if run.judge_name else None
    if whole is None or whole.flips is None:
        return []
    share = f"{pct(whole.flips)} of verdicts (95% CI {interval(whole.flips_interval)})"
    of = counted(whole.results, "result")
    return [("Judge asked again", f"would change {share}, over {of}".translate(GAPS))]


def _share(share: Proportion) -> str:
    return f"{share.count} of {counted(share.total, 'case')} ({pct(share.share)})".translate(GAPS)


def status_sentence(run: Run) -> str:
    """Return how the run ended, how long it took, and why it ended."""
    text = RunStatus(run.status).label
    if run.started_at and run.finished_at:
        took_ms = (run.finished_at - run.started_at).total_seconds() * 1000
        text += f" after {duration(took_ms).translate(GAPS)}"
    return f"{text}. {run.status_reason}" if run.status_reason else text


def _cost_rows(spent: CostPair) -> Iterator[tuple[str, str]]:
    """Yield both costs and their sum, rounded so that they add up; an unknown price is never $0."""
    shown = money_parts(spent.run.usd, spent.evaluation.usd)
    names = ("Target cost", "Judge cost")
    for name, part, usd in zip(names, (spent.run, spent.evaluation), shown, strict=True):
        priced = f" for {part.priced} of {counted(part.answers, part.noun)}"
        known = f"{usd}{priced if part.is_partial else ''}".translate(GAPS)
        yield name, "not known" if part.usd is None else known
    least = "at least " if spent.is_partial else ""
    total = f"{least}{money(spent.total_usd)}".translate(GAPS)
    yield "Total cost", "not known" if spent.total_usd is None else total


def _gate(gate: RunGate) -> str:
    if gate.share is None:
        return f"not evaluated, needs {threshold(gate.limit)} ({gate.note})"
    figure = pct(gate.share)
    # Until the run has ended a gate is open, or on course, at risk or out of reach.
    state = f"{gate.state}," if gate.state in SIGNS else f"{gate.state.replace('_', ' ')}, so far"
    return f"{state} {figure} {SIGNS.get(gate.state, 'of')} {threshold(gate.limit)} ({gate.note})"


MAX_CASES = 20
MAX_REASON_LENGTH = 240
BAD_STATES = {"fail": "failed", "error": "errored"}


def worst_cases(run: Run) -> str:
    """Return one line for each case that failed or errored, failed first, at most 20; "" if there is none."""
    cases = RunCase.objects.filter(run=run, state__in=BAD_STATES).select_related("case")
    # In the alphabet, fail comes after error.
    shown = list(cases.order_by("-state", "position")[:MAX_CASES])
    if not shown:
        return ""
    reasons = _reasons(run, {case.case.key: case.state for case in shown})
    states = [
        f"{BAD_STATES[case.state]} {score(case.score, run.scale) if case.score is not None else ''}"
        for case in shown
    ]
    width, room = max(len(case.case.key) for case in shown), max(map(len, states))
    lines = [
        f"  {case.case.key:<{width}}  {state:<{room}}  {reasons.get(case.case.key, '')}".rstrip()
        for case, state in zip(shown, states, strict=True)
    ]
    left = cases.count() - len(shown)
    more = [f"  and {left} more"] if left else []
    return "\n".join(["Cases that failed or errored", *lines, *more]).translate(GAPS)


def _reasons(run: Run, states: Mapping[str, str]) -> dict[str, str]:
    """Return why cases failed or errored, from the first repetition in the state of its case."""
    results = (
        run.results.filter(case__key__in=states).select_related("case").order_by("-repetition")
    )
    first = {
        result.case.key: result
        for result in results
        if states[result.case.key] in (result.status, result.verdict)
    }
    ids = [result.pk for result in first.values()]
    stored = dict(ResultOutput.objects.filter(pk__in=ids).values_list("pk", F("decision__cause")))
    causes = {key: result_cause(result, stored.get(result.pk)) for key, result in first.items()}
    return {key: one_line(cause.reason) for key, cause in causes.items() if cause}


def one_line(text: str) -> str:
    """Return a text in one line, cut to what a terminal has room for."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[: MAX_REASON_LENGTH - 1]}…"

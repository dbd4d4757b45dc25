"""What a comparison concludes, in sentences: whether the candidate regressed, why, and what the evidence says.

The second half says which changes may come from the judges alone: from their own spread, or from a changed model.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.text import get_text_list

from evaluators.templatetags.figures import counted, delta, p_value, pct, threshold
from runs.compare.comparison import Comparison
from runs.compare.evidence import IMPROVED, NO_CLEAR_CHANGE, REGRESSED, TOO_FEW_CASES, Paired
from runs.compare.sides import run_gates
from runs.models.runs import Run, RunStatus
from runs.results.judge_figures import change_warnings, read_spreads, run_versions
from runs.results.runs import RunGate
from runs.summary.judge_spread import judge_band

REGRESSION, NO_REGRESSION, INCONCLUSIVE = "regression", "no regression", "inconclusive"
STILL_RUNNING, NOT_COMPLETED = "still running", "not completed"
NOT_COMPARABLE, TOO_FEW_SHARED = "not comparable", "too few shared cases"
ONLY_JUDGING = "only the judging differs"


def missed_gates_text(run: Run) -> str:
    """Name the gates that an ended run failed or left open, each with figure and threshold.

    "" where both passed, and while the run is running.
    """
    if run.is_active:
        return ""
    gates = run_gates(run)
    if run.status != RunStatus.COMPLETED:
        return f"the gates of {run} are not evaluated: the run was not completed"
    failed = [gate for gate in gates if gate.state == "failed"]
    if len(failed) == len(gates):
        figures = ", ".join(f"{gate.name.lower()} {_figure(gate)}" for gate in failed)
        return f"both gates of {run} failed: {figures}"
    parts = [f"the {gate.name.lower()} gate of {run} failed: {_figure(gate)}" for gate in failed]
    parts += [
        f"the {gate.name.lower()} gate of {run} is not evaluated: {gate.note}"
        for gate in gates
        if gate.state == "open"
    ]
    return "; ".join(parts)


def short_gates_text(run: Run) -> str:
    """Return two or three words on gates that a completed run failed or left open, "" where both passed."""
    if run.status != RunStatus.COMPLETED:
        return ""
    states = [gate.state for gate in run_gates(run)]
    if failed := states.count("failed"):
        return "gate failed" if failed == 1 else "gates failed"
    return "gate not evaluated" if "open" in states else ""


def _figure(gate: RunGate) -> str:
    figure = f"{pct(gate.share)} of {threshold(gate.limit)} needed"
    return f"{figure}, {gate.with_reviews}" if gate.reviews else figure


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A conclusion: `state` is regression, no regression or inconclusive, `sentence` explains it.

    `regressed` names the figures beyond their limits, of which a regression is made. `limits` says it in full,
    `evidence` what the shared cases show. An inconclusive comparison has an `obstacle` of one `kind`; both are ""
    otherwise. `gates` names the gates that the candidate did not pass, "" where it passed both, for a run without
    regression can still be too bad; `gates_short` is the same in two or three words.
    """

    state: str
    sentence: str
    limits: str
    evidence: str
    kind: str = ""
    obstacle: str = ""
    gates: str = ""
    gates_short: str = ""
    regressed: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the state as a heading: `Latency regressed`, `No regression`, `Inconclusive`, or what explains it."""
        if self.state != REGRESSION:
            return (ONLY_JUDGING if self.kind == ONLY_JUDGING else self.state).capitalize()
        names = get_text_list([*self.regressed], "and")
        return f"{names[:1].upper()}{names[1:]} regressed"

    @property
    def word(self) -> str:
        """Return the state for a chip, with the missed gates in short where there is no regression."""
        is_marred = self.state == NO_REGRESSION and self.gates_short
        return f"{self.title}, {self.gates_short}" if is_marred else self.title

    @property
    def headline(self) -> str:
        """Return the state, with the missed gates where there is no regression."""
        if self.state == NO_REGRESSION and self.gates:
            return f"{self.title}, but {self.gates}"
        return self.title


def conclude(
    comparison: Comparison, *, is_forced: bool = False, least_cases: int = 1
) -> Conclusion:
    """Return the conclusion; only exceeded tolerances of the whole runs make a regression.

    With `is_forced` it does not matter that runs differ in more than targets or were not completed.
    """
    limits, (kind, obstacle) = _limits(comparison), _obstacle(comparison, is_forced, least_cases)
    evidence, gates = _evidence(comparison), missed_gates_text(comparison.candidate.run)
    if obstacle:
        # The obstacle says already that the run was not completed.
        unfinished = (
            kind == NOT_COMPLETED and comparison.candidate.run.status != RunStatus.COMPLETED
        )
        return Conclusion(
            INCONCLUSIVE,
            f"{obstacle} {limits}{_as_sentence('' if unfinished else gates)}",
            limits,
            evidence,
            kind,
            obstacle,
            gates,
        )
    is_breach = comparison.runs.regression_detected
    state = REGRESSION if is_breach else NO_REGRESSION
    sentence = (
        f"{limits} {_meaning(comparison, is_breach)}{_as_sentence(gates) if is_breach else ''}"
    )
    return Conclusion(
        state,
        sentence,
        limits,
        evidence,
        gates=gates,
        gates_short=short_gates_text(comparison.candidate.run) if gates else "",
        regressed=tuple(
            reason.measure.removeprefix("mean ") if "latency" in reason.measure else reason.measure
            for reason in comparison.runs.reasons
        ),
    )


def _obstacle(comparison: Comparison, is_forced: bool, least_cases: int) -> tuple[str, str]:
    """Return the kind and the text of an obstacle to a conclusion, "" and "" without one."""
    for side in (comparison.baseline, comparison.candidate):
        run, name = side.run, f"{side.run.suite.slug}{side.run}"
        if run.is_active:
            return (
                STILL_RUNNING,
                f"{name} is still running, so its figures do not cover all its cases.",
            )
        if run.status != RunStatus.COMPLETED and not is_forced:
            ended = RunStatus(run.status).label.lower()
            return NOT_COMPLETED, f"{name} was not completed ({ended})."
    if not is_forced and comparison.is_of_same_outputs:
        return ONLY_JUDGING, f"{judging_text(comparison)} No change is due to the target."
    if not is_forced and not comparison.is_comparable:
        return NOT_COMPARABLE, (
            f"The runs differ in {_names(comparison, spoils=True)}, not only in their targets, "
            "so no change can be attributed to the target."
        )
    if comparison.shared < least_cases:
        cases = counted(comparison.shared, "shared case")
        has = "has" if comparison.shared == 1 else "have"
        return TOO_FEW_SHARED, f"{cases} {has} a verdict on both sides, {least_cases} are needed."
    return "", ""


def judging_text(comparison: Comparison) -> str:
    """Say in what the judging of two runs with the same outputs differs, as a sentence."""
    texts = [f"{difference.what}: {difference.text}" for difference in comparison.differences]
    text = "; ".join(texts) or "the same rules judged again what had no score"
    return f"{text[:1].upper()}{text[1:]}."


def _names(comparison: Comparison, *, spoils: bool) -> str:
    """Name the differences that can change verdicts, or those that cannot: `cases, policy and judge`."""
    names = (row.what for row in comparison.differences if row.spoils is spoils)
    return get_text_list(list(dict.fromkeys(names)), "and")


def comparability_text(comparison: Comparison) -> str:
    """Say in a line whether verdicts can be compared."""
    if comparison.is_of_same_outputs:
        return f"{ONLY_JUDGING.capitalize()}: both judge the same outputs"
    if not comparison.is_comparable:
        return f"Not comparable: different {_names(comparison, spoils=True)}"
    if comparison.differences:
        return f"Comparable, with a different {_names(comparison, spoils=False)}"
    return "Comparable: only the target differs"


def _as_sentence(gates: str) -> str:
    return f" {gates[:1].upper()}{gates[1:]}." if gates else ""


def _limits(comparison: Comparison) -> str:
    if not comparison.runs.regression_detected:
        return "All limits are met."
    text = "; ".join(reason.text for reason in comparison.runs.reasons)
    return f"{text[:1].upper()}{text[1:]}."


def _evidence(comparison: Comparison) -> str:
    evidence = comparison.evidence
    rate, score = evidence.pass_rate, evidence.mean_score
    if rate.change == TOO_FEW_CASES:
        cases = counted(rate.cases, "shared case")
        has = "has" if rate.cases == 1 else "have"
        return (
            f"{cases} {has} a verdict on both sides; ten are needed to tell a change from chance."
        )
    sentences = [
        f"Over {counted(rate.cases, 'shared case')} the pass rate changed by {_moved(rate)} "
        f"({p_value(rate.p)}, {evidence.test})."
    ]
    if score.p is not None:
        sentences.append(f"The mean score changed by {_moved(score)} ({p_value(score.p)}).")
        sentences.append("Both p are corrected by Holm's method.")
    return " ".join(sentences)


def _moved(paired: Paired) -> str:
    return f"{delta(paired.mean, 'pts')}, {chance_text(paired)}"


def chance_text(paired: Paired) -> str:
    """Say in plain words what the corrected p of a change means."""
    if paired.p is None:
        return "too few cases to tell a change from chance"
    return "could be chance" if paired.change == NO_CLEAR_CHANGE else "unlikely to be chance"


def _meaning(comparison: Comparison, is_breach: bool) -> str:
    """Say what the evidence means for a breach of limits, or for the lack of one."""
    classes = {comparison.evidence.pass_rate.change, comparison.evidence.mean_score.change}
    if {REGRESSED, IMPROVED} <= classes:
        return "One figure got worse and the other better. Look at the cases before you decide."
    if REGRESSED in classes:
        return (
            "Quality fell significantly." if is_breach else "Even so, quality fell significantly."
        )
    if IMPROVED in classes:
        even = "Even so, quality" if is_breach else "Quality"
        return f"{even} improved significantly."
    if classes == {TOO_FEW_CASES}:
        return "There are too few shared cases to tell a change from chance."
    if is_breach and all("latency" in reason.measure for reason in comparison.runs.reasons):
        return "Quality did not change significantly."
    return f"The {'drop' if is_breach else 'difference'} could be chance."


@dataclass(frozen=True, slots=True)
class JudgeNoise:
    """The change of one figure, and how far chance of the judges alone moves it, at 95%.

    `measured_by` names the runs that measured the judges, none for samples.
    """

    figure: str
    change: float
    band: float
    measured_by: tuple[int, ...]

    @property
    def is_inside(self) -> bool:
        """Tell whether the judges alone can make such a change."""
        return 0 < abs(self.change) <= self.band

    @property
    def text(self) -> str:
        """Say so in a sentence."""
        band = delta(self.band, "pts").removeprefix("+")
        where = "inside" if self.is_inside else "beyond"
        change = f"changed by {delta(self.change, 'pts')}, which is {where} the judge's own spread"
        return (
            f"The {self.figure} {change if self.change else 'did not change'}: asked again about the same outputs, "
            f"the judge moves this difference by up to {band} (95%)."
        )


def judge_noise(comparison: Comparison) -> tuple[JudgeNoise, ...]:
    """Return the changes of mean score and pass rate beside the spread of the judges; one query.

    A spread that is known of one run only stands for the other, if evaluators and judge are the same; otherwise
    the other moves nothing, so that the band is never too wide. Without any there is nothing to return.
    """
    sides = comparison.baseline, comparison.candidate
    spreads = read_spreads(side.run for side in sides)
    known = [spreads[side.run.pk] for side in sides]
    if comparison.is_comparable:
        known = [own if own.whole else other for own, other in zip(known, known[::-1], strict=True)]
    first, second = (found.whole for found in known)
    if first is None and second is None:
        return ()
    before, after = (side.figures for side in sides)
    figures = (
        (
            "mean score",
            comparison.runs.score_change,
            (first and first.deviation, sides[0].scored),
            (second and second.deviation, sides[1].scored),
        ),
        (
            "pass rate",
            comparison.runs.pass_rate_change,
            (first and first.pass_deviation, before.total),
            (second and second.pass_deviation, after.total),
        ),
    )
    numbers = (found.measured_by for found in known if found.measured)
    measured_by = tuple(dict.fromkeys(number for number in numbers if number is not None))
    return tuple(
        JudgeNoise(name, change, judge_band((old or 0.0, of), (new or 0.0, by)), measured_by)
        for name, change, (old, of), (new, by) in figures
        if change is not None and of and by
    )


def judge_changes(comparison: Comparison) -> list[str]:
    """Say which judges' models changed behind their names between the runs, as their replies tell."""
    before, after = comparison.baseline.run, comparison.candidate.run
    return change_warnings(run_versions(before), run_versions(after), f"since run #{before.number}")

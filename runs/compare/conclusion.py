"""The conclusion of a comparison in words: regression, no regression or inconclusive (SCORING §9)."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.templatetags.figures import counted, delta
from runs.compare.comparison import (
    Compared,
    gates_in_short,
    gates_missed,
)
from runs.compare.evidence import IMPROVED, REGRESSED, TOO_FEW_CASES, Paired
from runs.models.runs import RunStatus

REGRESSION, NO_REGRESSION, INCONCLUSIVE = "regression", "no regression", "inconclusive"
STILL_ON, NOT_COMPLETED = "still on", "not completed"
NOT_COMPARABLE, TOO_FEW_SHARED = "not comparable", "too few shared cases"
MIN_P = 0.001
FINE_P = 0.1


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`state` is regression, no regression or inconclusive, `sentence` says it in full.

    `limits` tells which tolerances are exceeded and `evidence` what the shared cases show. What
    keeps it from a conclusion is `obstacle`, of one `kind`; both are "" where nothing does. `gates`
    says which gates the candidate did not pass, "" where it passed both: no regression is not yet
    good enough; `gates_short` says it in two or three words.
    """

    state: str
    sentence: str
    limits: str
    evidence: str
    kind: str = ""
    obstacle: str = ""
    gates: str = ""
    gates_short: str = ""

    @property
    def title(self) -> str:
        """Return the state as a heading."""
        return self.state.capitalize()

    @property
    def word(self) -> str:
        """Return the state for a chip; no regression with the gates that were not passed in short."""
        is_marred = self.state == NO_REGRESSION and self.gates_short
        return f"{self.title}, {self.gates_short}" if is_marred else self.title

    @property
    def headline(self) -> str:
        """Return the state; no regression in the same breath with the gates that were not passed."""
        if self.state == NO_REGRESSION and self.gates:
            return f"{self.title}, but {self.gates}"
        return self.title


def conclude(found: Compared, *, is_forced: bool = False, least_cases: int = 1) -> Conclusion:
    """Return what came out; tolerances of the whole runs make a regression, cases alone do not.

    With `is_forced` the runs are taken as they are, though they differ in more or were not completed.
    """
    limits, (kind, obstacle) = _limits(found), _obstacle(found, is_forced, least_cases)
    evidence, gates = _evidence(found), gates_missed(found.candidate.run)
    if obstacle:
        # That a run was not completed is said once.
        unfinished = kind == NOT_COMPLETED and found.candidate.run.status != RunStatus.COMPLETED
        return Conclusion(
            INCONCLUSIVE,
            f"{obstacle} {limits}{_besides('' if unfinished else gates)}",
            limits,
            evidence,
            kind,
            obstacle,
            gates,
        )
    is_breach = found.runs.regression_detected
    state = REGRESSION if is_breach else NO_REGRESSION
    sentence = f"{limits} {_meaning(found, is_breach)}{_besides(gates) if is_breach else ''}"
    short = gates_in_short(found.candidate.run) if gates else ""
    return Conclusion(state, sentence, limits, evidence, gates=gates, gates_short=short)


def p_words(p: float | None) -> str:
    """Spell a p: `p = 0.39`, `p = 0.034`, `p < 0.001`; nothing for none."""
    if p is None:
        return ""
    if p < MIN_P:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < FINE_P else f"p = {p:.2f}"


def _obstacle(found: Compared, is_forced: bool, least_cases: int) -> tuple[str, str]:
    """Return what keeps the comparison from meaning anything and of which kind it is, "" when nothing does."""
    for side in (found.baseline, found.candidate):
        run, name = side.run, f"{side.run.suite.slug}{side.run}"
        if run.is_active:
            return STILL_ON, f"{name} is still on, so its figures are not those of all its cases."
        if run.status != RunStatus.COMPLETED and not is_forced:
            ended = RunStatus(run.status).label.lower()
            return NOT_COMPLETED, f"{name} was not completed ({ended})."
    if not is_forced and not found.is_comparable:
        *others, last = (one.what for one in found.differences if one.spoils)
        spoilt = f"{', '.join(others)} and {last}" if others else last
        return NOT_COMPARABLE, (
            f"The runs differ in {spoilt}, not in their targets alone, "
            "so no change can be put down to the target."
        )
    if found.shared < least_cases:
        cases = counted(found.shared, "shared case")
        has = "has" if found.shared == 1 else "have"
        return TOO_FEW_SHARED, f"{cases} {has} a verdict on both sides, {least_cases} are needed."
    return "", ""


def _besides(gates: str) -> str:
    return f" {gates[:1].upper()}{gates[1:]}." if gates else ""


def _limits(found: Compared) -> str:
    if not found.runs.regression_detected:
        return "Every tolerance is kept."
    text = "; ".join(one.text for one in found.runs.reasons)
    return f"{text[:1].upper()}{text[1:]}."


def _evidence(found: Compared) -> str:
    said = found.evidence
    rate, score = said.pass_rate, said.mean_score
    if rate.change == TOO_FEW_CASES:
        cases = counted(rate.cases, "shared case")
        has = "has" if rate.cases == 1 else "have"
        return (
            f"{cases} {has} a verdict on both sides; ten are needed to tell a change from chance."
        )
    told = [
        f"The pass rate of {counted(rate.cases, 'shared case')} {_moved(rate)} "
        f"({p_words(rate.p)}, {said.test})."
    ]
    if score.p is not None:
        told.append(f"Their mean score {_moved(score)} ({p_words(score.p)}).")
        told.append("Each p is raised by Holm's rule for the two.")
    return " ".join(told)


def _moved(one: Paired) -> str:
    if one.change == REGRESSED:
        return f"fell by more than chance explains, {delta(one.mean, 'pts')}"
    if one.change == IMPROVED:
        return f"rose by more than chance explains, {delta(one.mean, 'pts')}"
    return f"changed by {delta(one.mean, 'pts')}, which cannot be told from chance"


def _meaning(found: Compared, is_breach: bool) -> str:
    """Return what the evidence makes of the breach, or of the lack of one."""
    classes = {found.evidence.pass_rate.change, found.evidence.mean_score.change}
    if {REGRESSED, IMPROVED} <= classes:
        return "The shared cases got worse in one figure and better in the other; read them before you decide."
    if REGRESSED in classes:
        still = "The" if is_breach else "Still the"
        return f"{still} shared cases got worse, by more than chance explains."
    if IMPROVED in classes:
        still = "Still the" if is_breach else "The"
        return f"{still} shared cases got better, by more than chance explains."
    if classes == {TOO_FEW_CASES}:
        return "There are too few shared cases to tell a change from chance."
    if is_breach:
        return "The shared cases do not show that the candidate is worse: it may be chance."
    return "Nothing shows that the shared cases got worse or better."

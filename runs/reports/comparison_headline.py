"""What a comparison came to in words: tolerances and evidence as two facts, and one plain sentence."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.templatetags.figures import counted, delta
from runs.comparison import IMPROVED, REGRESSED, TOO_FEW_CASES, Paired
from runs.reports.comparison import Compared
from runs.reports.comparison_evidence import ComparisonEvidence

LEAST_P = 0.001
FINE_P = 0.1


@dataclass(frozen=True, slots=True)
class Headline:
    """`tone` is bad, good or "", `state` the verdict of the whole, `sentence` what to make of both facts."""

    title: str
    state: str
    tone: str
    tolerance: str
    evidence: str
    sentence: str


def headline(found: Compared, said: ComparisonEvidence) -> Headline:
    """Return the headline; a breach and evidence are told apart (SCORING §9)."""
    is_breach = found.runs.regression_detected
    classes = {said.pass_rate.change, said.mean_score.change}
    return Headline(
        title="Regression" if is_breach else "No regression",
        state="fail" if is_breach else "pass",
        tone="bad" if is_breach else "" if REGRESSED in classes else "good",
        tolerance=_tolerance(found),
        evidence=_evidence(said),
        sentence=_sentence(is_breach, classes) + _caution(found),
    )


def p_words(p: float | None) -> str:
    """Spell a p: `p = 0.39`, `p = 0.034`, `p < 0.001`; nothing for none."""
    if p is None:
        return ""
    if p < LEAST_P:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < FINE_P else f"p = {p:.2f}"


def _tolerance(found: Compared) -> str:
    if not found.runs.regression_detected:
        return "Every tolerance is kept."
    text = "; ".join(one.text for one in found.runs.reasons)
    return f"{text[:1].upper()}{text[1:]}."


def _evidence(said: ComparisonEvidence) -> str:
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
    return " ".join([*told, "Each p is raised by Holm's rule for two figures."])


def _moved(one: Paired) -> str:
    if one.change == REGRESSED:
        return f"fell by more than chance explains, {delta(one.mean, 'pts')}"
    if one.change == IMPROVED:
        return f"rose by more than chance explains, {delta(one.mean, 'pts')}"
    return f"changed by {delta(one.mean, 'pts')}, which cannot be told from chance"


def _caution(found: Compared) -> str:
    """Return what keeps the change from being the target's doing, "" when nothing does."""
    spoilt = [one.what for one in found.differences if one.spoils]
    if not spoilt:
        return ""
    return f" This may not be the target's doing: the runs differ in {', '.join(spoilt)} too."


def _sentence(is_breach: bool, classes: set[str]) -> str:
    is_worse, is_better = REGRESSED in classes, IMPROVED in classes
    if is_worse and is_better:
        return "One figure got worse and the other better; read the cases before you decide."
    if is_worse:
        return (
            "The candidate is worse, by more than chance explains."
            if is_breach
            else "Every tolerance is kept, and still the candidate is worse by more than chance explains."
        )
    if is_better:
        return (
            "The shared cases got better, and still a tolerance is exceeded."
            if is_breach
            else "The candidate is better, by more than chance explains."
        )
    if classes == {TOO_FEW_CASES}:
        return (
            "A tolerance is exceeded, and there are too few shared cases to tell that from chance."
            if is_breach
            else "There are too few shared cases to tell a change from chance."
        )
    return (
        "A tolerance is exceeded, and the shared cases do not show that the candidate is worse."
        if is_breach
        else "Nothing shows that the candidate is worse or better."
    )

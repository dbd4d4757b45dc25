"""Which decisions a writer of instructions sees, and whether its candidates agree better with people on the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from evaluators.scoring.intervals import SIGNIFICANCE
from evaluators.scoring.significance import MIN_CASES, Evidence, holm, mcnemar
from runs.reviews.judge_choice import (
    JudgedOutput,
    JudgingFigures,
    MeanDifference,
    OutputOpinion,
    compare_judgings,
    gives_peoples_verdict,
    mean_difference,
    measure_judging,
)

MIN_DECISIONS = 10
# The key of today's instructions; candidates are numbered from 1.
TODAY = 0
# No more decisions than this are said to be needed.
MAX_DECISIONS = 10_000


@dataclass(frozen=True, slots=True)
class PeopleDecision:
    """People's verdict on one result; `machine` is the evaluator's today, "" where it must be asked."""

    result: int
    case: str
    person: str
    machine: str = ""

    @property
    def is_disagreement(self) -> bool:
        """Tell whether the evaluator's verdict is known and another than people's."""
        return bool(self.machine) and self.machine != self.person


def split_decisions(
    decisions: Iterable[PeopleDecision], seed: str
) -> tuple[list[PeopleDecision], list[PeopleDecision]]:
    """Return the half that the writer may see and the half that is held out.

    All results of a case are in the same half. Cases are dealt out in turn, those with the same verdicts of people
    together, so that both halves have like shares of each verdict. The seed alone decides their order.
    """
    by_case: dict[str, list[PeopleDecision]] = defaultdict(list)
    for decision in decisions:
        by_case[decision.case].append(decision)

    def order(case: str) -> tuple[list[str], str]:
        verdicts = sorted({decision.person for decision in by_case[case]})
        return verdicts, sha256(f"{seed}/{case}".encode()).hexdigest()

    halves: tuple[list[PeopleDecision], list[PeopleDecision]] = ([], [])
    for place, case in enumerate(sorted(by_case, key=order)):
        # The first is held out: that half decides.
        halves[1 - place % 2].extend(sorted(by_case[case], key=lambda entry: entry.result))
    return halves


def wins_needed(candidates: int) -> int:
    """Return how many cases must turn to people's verdict, and none away, for the best candidate to count.

    It is the smallest n whose exact two-sided p, 2 ÷ 2ⁿ, stays significant when Holm corrects it for all candidates.
    """
    wins = 1
    while mcnemar(wins, 0) * candidates >= SIGNIFICANCE:
        wins += 1
    return wins


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How much the held-out half can prove: its cases, and those of them where today's verdict is not people's."""

    cases: int
    disagreements: int
    unknown: int
    needed: int

    @property
    def is_able(self) -> bool:
        """Tell whether a candidate could count at all."""
        return self.cases >= MIN_CASES and self.disagreements + self.unknown >= self.needed


def held_out_power(decisions: Sequence[PeopleDecision], candidates: int) -> HeldOut:
    """Return what held-out decisions can prove about so many candidates."""
    return HeldOut(
        cases=len({entry.case for entry in decisions}),
        disagreements=len({entry.case for entry in decisions if entry.is_disagreement}),
        unknown=len({entry.case for entry in decisions if not entry.machine}),
        needed=wins_needed(candidates),
    )


class CandidateFinding(StrEnum):
    """What the held-out half says of a candidate."""

    BETTER = "better"
    WORSE = "worse"
    UNPROVEN = "unproven"
    INCOMPLETE = "incomplete"
    TOO_FEW = "too_few"


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """One candidate on the held-out half.

    `judging` are its own figures, `gain` is the difference of its agreement from today's on the results that today's
    instructions scored, `won` of which turned to people's verdict and `lost` away from it. `evidence` is corrected for
    all candidates. `cases_needed` is how many held-out cases such a difference takes to count, None where no number would
    do.
    """

    key: int
    judging: JudgingFigures
    gain: MeanDifference
    won: int
    lost: int
    evidence: Evidence
    finding: CandidateFinding
    cases_needed: int | None


def measure_candidates(
    outputs: Sequence[JudgedOutput], keys: Sequence[int], *, seed: int
) -> list[CandidateFigures]:
    """Return the figures of candidates, by their keys; today's opinions have the key TODAY.

    Agreement has Wilson's interval, the gain the percentile interval of 2,000 seeded resamples of cases. A candidate
    is compared with today's instructions on the results that these scored, by the exact McNemar test over cases, by
    sign flips where a case has several results, and all p are corrected by Holm. What a candidate did not score counts
    against it, for nobody knows what it would have said.
    """
    known = [output for output in outputs if TODAY in output.opinions]
    filled = {key: [_filled(output, key) for output in known] for key in keys}
    tests = holm([compare_judgings(filled[key], key, TODAY, seed=seed) for key in keys])
    found = []
    for key, test in zip(keys, tests, strict=True):
        turned = [
            gives_peoples_verdict(output, key) - gives_peoples_verdict(output, TODAY)
            for output in filled[key]
        ]
        won, lost = turned.count(1), turned.count(-1)
        shares = [_as_shares(output) for output in filled[key]]
        found.append(
            CandidateFigures(
                key=key,
                judging=measure_judging(outputs, key, TODAY, seed=seed),
                gain=mean_difference(shares, key, TODAY, seed=seed),
                won=won,
                lost=lost,
                evidence=test,
                finding=_finding(
                    test, won - lost, is_complete=all(key in output.opinions for output in outputs)
                ),
                cases_needed=cases_needed(won, lost, test.shared, len(keys)),
            )
        )
    return found


def _filled(output: JudgedOutput, key: int) -> JudgedOutput:
    """Return an output with an opinion that agrees with nobody where a candidate has none."""
    if key in output.opinions:
        return output
    return JudgedOutput(
        output.case, {**output.opinions, key: OutputOpinion("", None)}, output.person
    )


def _as_shares(output: JudgedOutput) -> JudgedOutput:
    opinions: Mapping[int, OutputOpinion] = {
        key: OutputOpinion(opinion.verdict, float(gives_peoples_verdict(output, key)))
        for key, opinion in output.opinions.items()
    }
    return JudgedOutput(output.case, opinions, output.person)


def _finding(test: Evidence, gain: int, *, is_complete: bool) -> CandidateFinding:
    if test.is_clear and gain > 0:
        return CandidateFinding.BETTER
    if not is_complete:
        return CandidateFinding.INCOMPLETE
    if test.is_too_little:
        return CandidateFinding.TOO_FEW
    return CandidateFinding.WORSE if test.is_clear and gain < 0 else CandidateFinding.UNPROVEN


def cases_needed(won: int, lost: int, cases: int, candidates: int) -> int | None:
    """Return how many held-out cases would prove a candidate that goes on winning and losing as it did.

    None where it lost as many as it won, or where more than 10,000 decisions would be needed.
    """
    if won <= lost or not cases:
        return None
    for total in range(MIN_CASES, MAX_DECISIONS // 2 + 1):
        wins, losses = won * total // cases, -(-lost * total // cases)
        if wins > losses and mcnemar(wins, losses) * candidates < SIGNIFICANCE:
            return total
    return None

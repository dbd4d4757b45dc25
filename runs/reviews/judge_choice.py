"""Judges of the same outputs: how each agrees with people and with the others, and which one to use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations

from evaluators.scoring.intervals import bootstrap_interval
from evaluators.scoring.numbers import rounded
from evaluators.scoring.significance import MIN_CASES, Evidence, evidence, holm
from runs.reviews.agreement import FEWEST, JudgeAgreement, Pair, measure_agreement


@dataclass(frozen=True, slots=True)
class OutputOpinion:
    """The verdict and the score, 0 to 1 or None, that one judge gave an output."""

    verdict: str
    score: float | None


@dataclass(frozen=True, slots=True)
class JudgedOutput:
    """An output with the opinion of each judging that scored it, and people's verdict, "" for none."""

    case: str
    opinions: Mapping[int, OutputOpinion]
    person: str = ""


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """The mean of score differences with its 95% interval, over `n` outputs; None without any."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class JudgingFigures:
    """One judging of outputs: how many of all it scored, its agreement with people, and its bias.

    `bias` is the mean difference of its scores from those of the reference judging on the same outputs.
    """

    key: int
    reference: int
    n: int
    of: int
    people: JudgeAgreement
    bias: MeanDifference

    @property
    def is_reference(self) -> bool:
        """Tell whether the others are compared with it."""
        return self.key == self.reference


def measure_judging(
    outputs: Sequence[JudgedOutput], key: int, reference: int, *, seed: int
) -> JudgingFigures:
    """Measure one judging of outputs.

    Agreement is that of `runs.reviews.agreement.measure_agreement`, every decision weighing the same. The interval
    of the bias is the percentile interval of 2,000 seeded resamples of cases
    (`evaluators.scoring.intervals.bootstrap_interval`).
    """
    judged = [output for output in outputs if key in output.opinions]
    decided = [
        Pair(output.opinions[key].verdict, output.person) for output in judged if output.person
    ]
    return JudgingFigures(
        key=key,
        reference=reference,
        n=len(judged),
        of=len(outputs),
        people=measure_agreement(decided, seed=seed),
        bias=mean_difference(judged, key, reference, seed=seed),
    )


def mean_difference(
    outputs: Sequence[JudgedOutput], key: int, reference: int, *, seed: int
) -> MeanDifference:
    """Return the mean difference of the scores of a judging from those of another."""
    groups: dict[str, tuple[float, int]] = {}
    for output in outputs:
        if key not in output.opinions or reference not in output.opinions:
            continue
        ours, theirs = output.opinions[key].score, output.opinions[reference].score
        if ours is not None and theirs is not None:
            total, count = groups.get(output.case, (0.0, 0))
            groups[output.case] = total + ours - theirs, count + 1
    count = sum(times for _, times in groups.values())
    if not count:
        return MeanDifference(None, None, None, 0)
    interval = bootstrap_interval(list(groups.values()), seed=seed)
    low, high = interval if interval and len(groups) > 1 else (None, None)
    mean = sum(total for total, _ in groups.values()) / count
    return MeanDifference(
        rounded(mean),
        None if low is None else rounded(low),
        None if high is None else rounded(high),
        count,
    )


def measure_between(
    outputs: Sequence[JudgedOutput], first: int, second: int, *, seed: int
) -> JudgeAgreement:
    """Measure how far two judgings agree about the outputs that both scored."""
    pairs = [
        Pair(output.opinions[first].verdict, output.opinions[second].verdict)
        for output in outputs
        if first in output.opinions and second in output.opinions
    ]
    return measure_agreement(pairs, seed=seed)


TOO_FEW, UNCLEAR, CLEAR = "too few", "unclear", "clear"


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """Which judging agrees best with people, over the `decided` outputs that every one of those compared scored.

    Those in `left_out` scored too few of them to be compared. `right` counts by judging on how many it gave people's
    verdict. It is `clear` where the best agrees more than every other by a test, `unclear` where it does not; then
    `alike` are those that may be as good, of which `cheapest` costs least. `p` is the highest corrected p of the best
    against another, None without a test.
    """

    state: str
    decided: int
    right: Mapping[int, int]
    best: int | None = None
    alike: tuple[int, ...] = ()
    cheapest: int | None = None
    p: float | None = None
    left_out: tuple[int, ...] = ()


def choose_judge(
    outputs: Sequence[JudgedOutput],
    keys: Sequence[int],
    costs: Mapping[int, Decimal | None],
    *,
    seed: int,
) -> JudgeChoice:
    """Say which judging to use.

    Each pair is compared on the same decided outputs by exact McNemar tests over cases, by sign flips where a case
    has several outputs, and all p are corrected together by Holm (`evaluators.scoring.significance`). Where all
    judgings share too few outputs, those are left out without which the others share most.
    """
    every, keys = keys, comparable_judgings(outputs, keys)
    shared = shared_decisions(outputs, keys)
    right = {key: sum(gives_peoples_verdict(output, key) for output in shared) for key in keys}
    left_out = tuple(key for key in every if key not in keys)
    choice = JudgeChoice(TOO_FEW, len(shared), right, left_out=left_out)
    if len(shared) < FEWEST or len(keys) < 2:
        return choice
    pairs = list(combinations(keys, 2))
    tests = holm([compare_judgings(shared, first, second, seed=seed) for first, second in pairs])
    p = {frozenset(pair): test.p for pair, test in zip(pairs, tests, strict=True)}
    if any(value is None for value in p.values()):
        return choice
    best = max(keys, key=lambda key: right[key])
    is_better = {
        other: Evidence(len(shared), p[frozenset((best, other))]).is_clear
        for other in keys
        if other != best
    }
    known = [value for other in is_better if (value := p[frozenset((best, other))]) is not None]
    alike = tuple(key for key in keys if key == best or not is_better[key])
    priced = [key for key in alike if costs.get(key) is not None]
    cheapest = (
        min(priced, key=lambda key: (costs[key], -right[key]))
        if len(priced) == len(alike)
        else None
    )
    found = replace(choice, best=best, alike=alike, p=max(known))
    if len(alike) == 1:
        return replace(found, state=CLEAR)
    return replace(found, state=UNCLEAR, cheapest=cheapest)


def shared_decisions(outputs: Sequence[JudgedOutput], keys: Sequence[int]) -> list[JudgedOutput]:
    """Return the outputs that people decided and every judging scored."""
    return [
        output
        for output in outputs
        if output.person and all(key in output.opinions for key in keys)
    ]


def comparable_judgings(outputs: Sequence[JudgedOutput], keys: Sequence[int]) -> Sequence[int]:
    """Return the judgings that share enough decided outputs for a choice; all where no two do.

    While they are too few, the judging goes without which the others share most, of equals the newest.
    """
    kept = list(keys)
    while len(kept) >= 2:
        shared = shared_decisions(outputs, kept)
        if len(shared) >= FEWEST and len({output.case for output in shared}) >= MIN_CASES:
            return kept
        _, going = max(
            (len(shared_decisions(outputs, [one for one in kept if one != key])), key)
            for key in kept
        )
        kept.remove(going)
    return keys


def gives_peoples_verdict(output: JudgedOutput, key: int) -> bool:
    """Tell whether a judging gave a decided output people's verdict."""
    return output.opinions[key].verdict == output.person


def compare_judgings(
    outputs: Sequence[JudgedOutput], first: int, second: int, *, seed: int
) -> Evidence:
    """Test whether one of two judgings agrees more with people on decided outputs that both scored."""
    by_case: dict[str, list[int]] = defaultdict(list)
    for output in outputs:
        difference = gives_peoples_verdict(output, first) - gives_peoples_verdict(output, second)
        by_case[output.case].append(difference)
    differences = Counter(sum(values) / len(values) for values in by_case.values())
    return evidence(differences, seed=seed)

"""The verdict, state and means of a case over its repetitions (SCORING §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from evaluators.scoring.numbers import (
    SCALE_DIGITS,
    format_limit,
    format_number,
    mean,
    nearest_rank,
    rounded,
    sum_known,
)
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict

SCORED, ERROR = "scored", "error"
ENDED = (SCORED, ERROR)
# Where a case stands, as lists and filters name it.
STATES = ("pass", "borderline", "fail", "error", "running", "waiting", "cancelled")
BY_SCORE, BY_FORCE, BY_OUTCOMES, BY_REVIEWS = "mean_score", "forced_fail", "outcomes", "reviews"


# Not frozen, because a page creates ten thousand, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class ExecutionRecord:
    """One execution as it was recorded. `score` is 0 to 1, `metrics` are 0 to 5, `dimensions` 0 to 10.

    Tokens and costs include failed and repeated calls; those without a prefix are the target's. None
    means not reported, never zero.
    """

    case: str
    status: str
    verdict: Verdict | None = None
    score: float | None = None
    is_forced: bool = False
    reviewed_verdict: Verdict | None = None
    latency_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dimensions: Mapping[str, float] = field(default_factory=dict)
    evaluation_input_tokens: int | None = None
    evaluation_output_tokens: int | None = None

    @property
    def is_ended(self) -> bool:
        """Tell whether it ended, scored or with an error."""
        return self.status in ENDED


class CaseDecision(NamedTuple):
    """The verdict of a case, the rule that decided it, and its numbers in words.

    Without a scored repetition there is no verdict, and the rule is "".
    """

    verdict: Verdict | None = None
    rule: str = ""
    text: str = ""


def counted_verdict(row: ExecutionRecord, policy: PolicySpec) -> Verdict | None:
    """Return the verdict that counts: the machine's, or the reviewed one where the policy says so."""
    if row.reviewed_verdict is not None and policy.count_reviews and row.is_ended:
        return row.reviewed_verdict
    return row.verdict if row.status == SCORED else None


def case_verdict(group: Sequence[ExecutionRecord], policy: PolicySpec) -> Verdict | None:
    """Return a case's verdict from its scored repetitions; None without one."""
    return case_decision(group, policy, has_words=False).verdict


def both_verdicts(
    group: Sequence[ExecutionRecord], policy: PolicySpec
) -> tuple[Verdict | None, Verdict | None]:
    """Return a case's verdict without its reviews, and with them, whatever the policy says of reviews."""
    # Not checked again: tables ask for every case.
    without, with_ = (
        policy.model_copy(update={"count_reviews": counted}) for counted in (False, True)
    )
    return case_verdict(group, without), case_verdict(group, with_)


def case_decision(
    group: Sequence[ExecutionRecord], policy: PolicySpec, *, has_words: bool = True
) -> CaseDecision:
    """Return a case's verdict from its scored repetitions, with the reason in words if asked for.

    Score gate: the band of the mean score, and fail when any repetition's fail was forced.
    Outcomes gate: pass when all passed, fail when none did, else borderline. Where a review
    overrules the machine, the score cannot decide, so the verdicts do: the one they share, else
    borderline; a forced fail that no review lifted still fails the case.
    """
    verdicts: list[Verdict] = []
    scores: list[float] = []
    overruled = forced = 0
    for row in group:
        verdict = counted_verdict(row, policy)
        if verdict is None:
            continue
        verdicts.append(verdict)
        is_overruled = row.status != SCORED or verdict is not row.verdict
        overruled += is_overruled
        forced += row.is_forced and not is_overruled
        if row.score is not None:
            scores.append(row.score)
    if not verdicts:
        return CaseDecision()
    count = len(verdicts)
    if overruled and verdicts.count(verdicts[0]) == count:
        text = f"with reviews, {f'all {count} ' if count > 1 else ''}{verdicts[0].value}"
        return CaseDecision(verdicts[0], BY_REVIEWS, text)
    if policy.outcomes_decide:
        return _decide_by_outcomes(verdicts)
    if forced:
        text = f"fail forced in {forced} of {count} repetitions"
        return CaseDecision(Verdict.FAIL, BY_FORCE, text)
    if overruled:
        return CaseDecision(Verdict.BORDERLINE, BY_REVIEWS, "with reviews, verdicts differ")
    decision = _decide_by_score(scores, policy, has_words=has_words)
    if count == 1 and decision.verdict is not verdicts[0]:
        # An imported result keeps the file's verdict, even where our bands disagree with it.
        return CaseDecision(verdicts[0], BY_SCORE, f"its only repetition: {verdicts[0].value}")
    return decision


def count_reviews(rows: Iterable[ExecutionRecord], policy: PolicySpec) -> int:
    """Return how many reviewed verdicts count instead of the machine's."""
    return sum(
        policy.count_reviews and row.is_ended and row.reviewed_verdict is not None for row in rows
    )


def _decide_by_outcomes(verdicts: Sequence[Verdict]) -> CaseDecision:
    passed, total = verdicts.count(Verdict.PASS), len(verdicts)
    if passed == total:
        return CaseDecision(Verdict.PASS, BY_OUTCOMES, f"outcomes: all of {total} passed")
    if passed:
        text = f"outcomes: some passed, {passed} of {total}"
        return CaseDecision(Verdict.BORDERLINE, BY_OUTCOMES, text)
    return CaseDecision(Verdict.FAIL, BY_OUTCOMES, f"outcomes: none of {total} passed")


def _decide_by_score(
    scores: Sequence[float], policy: PolicySpec, *, has_words: bool
) -> CaseDecision:
    score = mean(scores)
    if score is None:
        return CaseDecision(Verdict.FAIL, BY_SCORE, "no repetition has a score")
    verdict = policy.verdict_for(score)
    if not has_words:
        # Words take longer than the verdict, and pages ask for ten thousand verdicts at once.
        return CaseDecision(verdict, BY_SCORE)
    bands = (policy.borderline_threshold, policy.pass_threshold)
    low, high = (format_limit(band, scale=policy.scale) for band in bands)
    figure = f"mean {_distinct(score, policy)}"
    texts = {
        Verdict.PASS: f"{figure} ≥ {high}",
        Verdict.BORDERLINE: f"{low} ≤ {figure} < {high}",
        Verdict.FAIL: f"{figure} < {low}",
    }
    return CaseDecision(verdict, BY_SCORE, texts[verdict])


def _distinct(score: float, policy: PolicySpec) -> str:
    """Return the score on the suite's scale, with enough digits to tell it from both bands."""
    limits = [rounded(policy.pass_threshold), rounded(policy.borderline_threshold)]
    for digits in range(SCALE_DIGITS[policy.scale], 9):
        text = format_number(score, digits, scale=policy.scale)
        shown = rounded(float(text) / policy.scale)
        if all((shown >= limit) == (rounded(score) >= limit) for limit in limits):
            return text
    return format_number(score, 9, scale=policy.scale)


OPEN = ("pending", "running")
WAITING, NOT_RUN, CANCELLED = "waiting", "not_run", "cancelled"


class CaseState(NamedTuple):
    """Where a case stands over its repetitions.

    `state` is waiting while a repetition is open, else a verdict, error or cancelled. `score` is the
    mean of the scored repetitions and `spread` highest − lowest of two scores or more, both 0 to 1.
    """

    state: str
    ended: int
    scored: int
    passed: int
    is_flaky: bool
    score: float | None
    spread: float | None


def case_state(group: Sequence[ExecutionRecord], policy: PolicySpec) -> CaseState:
    """Return where a case stands (SCORING §8)."""
    verdicts = _verdicts(group, policy)
    scores = _scores(group)
    average = mean(scores)
    statuses = {row.status for row in group}
    if not statuses.isdisjoint(OPEN):
        state = WAITING
    elif verdicts:
        state = str(case_verdict(group, policy))
    else:
        state = ERROR if ERROR in statuses else CANCELLED
    return CaseState(
        state=state,
        ended=sum(row.is_ended for row in group),
        scored=len(verdicts),
        passed=verdicts.count(Verdict.PASS),
        is_flaky=len(set(verdicts)) > 1,
        score=None if average is None else rounded(average),
        spread=rounded(max(scores) - min(scores)) if len(scores) > 1 else None,
    )


def _verdicts(group: Sequence[ExecutionRecord], policy: PolicySpec) -> list[Verdict]:
    return [verdict for row in group if (verdict := counted_verdict(row, policy)) is not None]


def _scores(group: Sequence[ExecutionRecord]) -> list[float]:
    return [row.score for row in group if row.score is not None and row.status == SCORED]


@dataclass(frozen=True, slots=True)
class Means:
    """Means and sums over executions; a mean is over those with a value, None without any."""

    score: float | None = None
    scored: int = 0
    latency_ms: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dimensions: Mapping[str, float] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    evaluation_input_tokens: int | None = None
    evaluation_output_tokens: int | None = None

    @property
    def total_cost_usd(self) -> Decimal | None:
        """Return both costs together, None when neither is known."""
        return sum_known((self.run_cost_usd, self.evaluation_cost_usd))


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """A case over its repetitions.

    `state` is a verdict, error (no repetition scored), waiting or not_run. Of `executions` repetitions,
    `ended` have ended, `scored` have a verdict and `passed` passed. `is_flaky` means that verdicts
    differ; for `all_passed` an errored repetition has not passed. `decided_by` states the numbers by which
    `rule` decided. `lowest` and `highest` are the extreme scores, 0 to 1.
    """

    case: str
    state: str
    verdict: Verdict | None
    executions: int
    scored: int
    passed: int
    is_flaky: bool
    all_passed: bool
    any_passed: bool
    means: Means
    decided_by: str = ""
    rule: str = ""
    ended: int = 0
    lowest: float | None = None
    highest: float | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether every repetition has ended."""
        return self.ended == self.executions

    @property
    def spread(self) -> float | None:
        """Return highest − lowest score, 0 to 1; None with fewer than two scores."""
        if self.means.scored < 2 or self.lowest is None or self.highest is None:
            return None
        return rounded(self.highest - self.lowest)


def summarise_case(
    case: str, group: Sequence[ExecutionRecord], policy: PolicySpec, *, has_words: bool = True
) -> CaseSummary:
    """Return one case over its repetitions (SCORING §8); `decided_by` only if words are asked for."""
    verdicts = _verdicts(group, policy)
    passed = verdicts.count(Verdict.PASS)
    decision = case_decision(group, policy, has_words=has_words)
    scores = _scores(group)
    return CaseSummary(
        case=case,
        state=summary_state(group, decision.verdict),
        verdict=decision.verdict,
        executions=len(group),
        scored=len(verdicts),
        passed=passed,
        is_flaky=len(set(verdicts)) > 1,
        all_passed=passed == len(group) > 0,
        any_passed=passed > 0,
        means=compute_means(group),
        decided_by=decision.text,
        rule=decision.rule,
        ended=sum(row.is_ended for row in group),
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
    )


def count_by_state(states: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Count the cases by state, or take their numbers; the states of an ended run are always there."""
    return dict.fromkeys((*(verdict.value for verdict in Verdict), ERROR), 0) | Counter(states)


def compute_means(rows: Sequence[ExecutionRecord]) -> Means:
    """Return means and sums; costs and tokens include executions that failed."""
    scores = _scores(rows)
    return Means(
        score=mean(scores),
        scored=len(scores),
        latency_ms=mean([row.latency_ms for row in rows if row.latency_ms is not None]),
        metrics=mean_by_name([row.metrics for row in rows]),
        dimensions=mean_by_name([row.dimensions for row in rows]),
        input_tokens=_sum(row.input_tokens for row in rows),
        output_tokens=_sum(row.output_tokens for row in rows),
        evaluation_input_tokens=_sum(row.evaluation_input_tokens for row in rows),
        evaluation_output_tokens=_sum(row.evaluation_output_tokens for row in rows),
        run_cost_usd=sum_known(row.run_cost_usd for row in rows),
        evaluation_cost_usd=sum_known(row.evaluation_cost_usd for row in rows),
    )


def mean_by_name(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every name over the rows that have it, in the order the names appear."""
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            by_name.setdefault(name, []).append(value)
    return {
        name: average for name, values in by_name.items() if (average := mean(values)) is not None
    }


def summary_state(group: Sequence[ExecutionRecord], verdict: Verdict | None) -> str:
    """Return the state of a case: its verdict, else waiting, error or not_run."""
    if verdict is not None:
        return verdict.value
    if any(row.status in OPEN for row in group):
        return WAITING
    return ERROR if any(row.status == ERROR for row in group) else NOT_RUN


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class RepetitionFigures:
    """Cases of a run over their repetitions.

    `all_passed` and `any_passed` count `settled` cases, whose repetitions have all ended. `flaky`
    counts `comparable` cases, which have two verdicts or more. `spread` is the mean of highest − lowest
    score (0 to 1) over the `spread_cases` that have two scores or more, None without any.
    """

    settled: int = 0
    all_passed: int = 0
    any_passed: int = 0
    comparable: int = 0
    flaky: int = 0
    spread: float | None = None
    spread_cases: int = 0


@dataclass(frozen=True, slots=True)
class Latencies:
    """The median and the 95th percentile of the `timed` executions, nearest ranks, in milliseconds."""

    timed: int = 0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None


def count_repetitions(cases: Iterable[CaseSummary]) -> RepetitionFigures:
    """Return the figures of the repetitions of a run's cases."""
    all_cases = list(cases)
    settled = [case for case in all_cases if case.is_settled]
    spreads = [case.spread for case in all_cases if case.spread is not None]
    average = mean(spreads)
    return RepetitionFigures(
        settled=len(settled),
        all_passed=sum(case.all_passed for case in settled),
        any_passed=sum(case.any_passed for case in settled),
        comparable=sum(case.scored > 1 for case in all_cases),
        flaky=sum(case.is_flaky for case in all_cases),
        spread=None if average is None else rounded(average),
        spread_cases=len(spreads),
    )


def measure_latencies(rows: Iterable[ExecutionRecord]) -> Latencies:
    """Return the median and the 95th percentile of the measured latencies."""
    known = sorted(row.latency_ms for row in rows if row.latency_ms is not None)
    return Latencies(len(known), nearest_rank(known, 0.5), nearest_rank(known, 0.95))

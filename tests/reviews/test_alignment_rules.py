"""Which decisions are held out, and when a candidate counts as better than today's instructions."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import binomtest

from runs.reviews.alignment.rules import (
    CandidateFinding,
    PeopleDecision,
    cases_needed,
    held_out_power,
    measure_candidates,
    split_decisions,
    wins_needed,
)
from runs.reviews.judge_choice import JudgedOutput, OutputOpinion


def decisions(*people: str, machine: str = "pass") -> list[PeopleDecision]:
    return [PeopleDecision(n, f"C-{n:02}", person, machine) for n, person in enumerate(people)]


def test_the_halves_share_no_case_and_have_like_verdicts() -> None:
    decided = decisions(*["pass"] * 11, *["fail"] * 7, *["borderline"] * 3)
    # A second result of a case stays with the first.
    decided += [PeopleDecision(100 + n, f"C-{n:02}", "pass") for n in range(5)]
    seen, held_out = split_decisions(decided, "seed")
    assert len(seen) + len(held_out) == len(decided)
    assert not {entry.case for entry in seen} & {entry.case for entry in held_out}
    cases = [len({entry.case for entry in half}) for half in (seen, held_out)]
    assert cases == [10, 11], "the half that decides is the larger one"
    singles = [Counter(e.person for e in half if e.result < 100) for half in (seen, held_out)]
    assert all(abs(singles[0][v] - singles[1][v]) <= 1 for v in ("pass", "fail", "borderline"))

    assert split_decisions(reversed(decided), "seed") == (seen, held_out)
    assert split_decisions(decided, "another") != (seen, held_out)


@pytest.mark.parametrize(("candidates", "wins"), [(1, 6), (2, 7), (3, 7), (4, 8), (5, 8)])
def test_so_many_cases_must_turn_before_a_candidate_can_count(candidates: int, wins: int) -> None:
    assert wins_needed(candidates) == wins
    assert binomtest(wins, wins).pvalue * candidates < 0.05
    assert binomtest(wins - 1, wins - 1).pvalue * candidates >= 0.05


def test_few_decisions_or_few_disagreements_can_prove_nothing() -> None:
    wrong, right = decisions(*["fail"] * 7), decisions(*["pass"] * 20)
    ten = [*wrong[:7], *right[10:13]]
    assert held_out_power(ten, 3).is_able
    assert not held_out_power(ten, 4).is_able, "eight must turn"
    assert not held_out_power(wrong, 3).is_able, "ten cases are needed"
    assert not held_out_power([*wrong[:6], *right[10:]], 3).is_able
    unknown = [PeopleDecision(n, f"C-{n:02}", "pass") for n in range(10)]
    assert held_out_power(unknown, 3).is_able, "today's verdicts are not known yet"


def judged(*rows: tuple[str, str, str], person: str = "pass") -> list[JudgedOutput]:
    """Return outputs with today's verdict and those of two candidates, "" for none."""
    return [
        JudgedOutput(
            f"C-{n}",
            {key: OutputOpinion(verdict, None) for key, verdict in enumerate(row) if verdict},
            person,
        )
        for n, row in enumerate(rows)
    ]


def test_a_candidate_counts_only_where_the_corrected_test_says_so() -> None:
    won, same, lost = ("fail", "pass", "fail"), ("pass", "pass", "pass"), ("pass", "fail", "pass")
    first, second = measure_candidates(judged(*[won] * 8, *[same] * 7), [1, 2], seed=1)
    assert (first.won, first.lost, first.finding) == (8, 0, CandidateFinding.BETTER)
    assert first.evidence.p == pytest.approx(2 * binomtest(8, 8).pvalue)
    assert (first.judging.people.agreement.share, first.judging.people.n) == (1.0, 15)
    assert (first.gain.mean, first.gain.n) == (pytest.approx(8 / 15), 15)
    assert first.gain.low is not None
    assert first.gain.low > 0
    assert (second.won, second.lost, second.finding) == (0, 0, CandidateFinding.UNPROVEN)
    assert second.evidence.p == 1.0

    # Six of seven are significant alone, p = 0.03, but not as one of two.
    (alone,) = measure_candidates(judged(*[won] * 6, *[same] * 9), [1], seed=1)
    assert alone.finding is CandidateFinding.BETTER
    first, _ = measure_candidates(judged(*[won] * 6, *[same] * 9), [1, 2], seed=1)
    assert (first.finding, first.evidence.p) == (CandidateFinding.UNPROVEN, pytest.approx(0.0625))
    assert first.cases_needed == 18, "seven of 18 at the same rate"

    worse, _ = measure_candidates(judged(*[lost] * 9, *[same] * 3), [1, 2], seed=1)
    assert (worse.finding, worse.cases_needed) == (CandidateFinding.WORSE, None)
    mixed, _ = measure_candidates(judged(*[won] * 8, *[lost] * 4), [1, 2], seed=1)
    assert mixed.evidence.p == pytest.approx(min(1.0, 2 * binomtest(8, 12).pvalue))
    assert mixed.finding is CandidateFinding.UNPROVEN


def test_too_few_cases_never_count_and_a_missing_score_counts_against_a_candidate() -> None:
    won = ("fail", "pass", "pass")
    few, _ = measure_candidates(judged(*[won] * 9), [1, 2], seed=1)
    assert (few.finding, few.evidence.p, few.won) == (CandidateFinding.TOO_FEW, None, 9)

    gap, _ = measure_candidates(judged(*[won] * 14, ("pass", "", "pass")), [1, 2], seed=1)
    assert (gap.won, gap.lost, gap.finding) == (14, 1, CandidateFinding.BETTER)
    assert gap.evidence.p == pytest.approx(binomtest(14, 15).pvalue)
    assert (gap.judging.n, gap.judging.of, gap.judging.people.agreement.share) == (14, 15, 1.0)
    gap, _ = measure_candidates(judged(*[won] * 7, *[("pass", "", "pass")] * 8), [1, 2], seed=1)
    assert (gap.won, gap.lost, gap.finding) == (7, 8, CandidateFinding.INCOMPLETE)
    unknown, _ = measure_candidates(judged(*[won] * 12, ("", "pass", "pass")), [1, 2], seed=1)
    assert (unknown.won, unknown.gain.n, unknown.judging.n) == (12, 12, 13)


def test_the_number_of_cases_that_would_prove_a_difference_is_by_the_same_test() -> None:
    assert cases_needed(3, 3, 15, 1) is None
    assert cases_needed(0, 0, 15, 1) is None
    assert cases_needed(2, 0, 10, 1) == 30, "six of thirty"
    needed = cases_needed(5, 2, 20, 3)
    assert needed is not None
    wins, losses = 5 * needed // 20, -(-2 * needed // 20)
    assert binomtest(wins, wins + losses).pvalue * 3 < 0.05
    assert cases_needed(101, 100, 20_000, 3) is None, "more than anybody decides"

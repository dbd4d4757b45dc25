"""When several people's decisions are settled, and on what."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.types import Verdict
from runs.engine.review_rules import SEVERITY, combine_decisions

WORDS = {"p": Verdict.PASS, "b": Verdict.BORDERLINE, "f": Verdict.FAIL}
# Decisions, reviewers by policy, verdict (- for open), how many decisions are wanted.
TABLE = [
    ("", 1, "-", 1),
    ("p", 1, "p", 1),
    ("f", 1, "f", 1),
    ("", 2, "-", 2),
    ("p", 2, "-", 2),
    ("pp", 2, "p", 2),
    ("pf", 2, "-", 3),
    ("pfp", 2, "p", 3),
    ("pfb", 2, "b", 3),
    ("pff", 2, "f", 3),
    # One who was not asked disagrees with the only reviewer: a third decides.
    ("pf", 1, "-", 3),
    ("pfp", 1, "p", 3),
    ("pp", 1, "p", 1),
    ("ppp", 3, "p", 3),
    ("ppf", 3, "-", 4),
    ("ppff", 3, "f", 4),
    ("ppbb", 3, "b", 4),
    ("ppbf", 3, "p", 4),
    ("bbbf", 3, "b", 4),
    ("ppffb", 3, "b", 5),
]


@pytest.mark.parametrize(("decisions", "reviewers", "verdict", "wanted"), TABLE)
def test_which_decisions_reach_consensus(
    decisions: str, reviewers: int, verdict: str, wanted: int
) -> None:
    found = combine_decisions([WORDS[one] for one in decisions], reviewers)
    assert found.verdict is WORDS.get(verdict)
    assert found.is_open == (verdict == "-")
    assert found.wanted == wanted


def test_how_several_came_to_it_is_said() -> None:
    said = {
        text: combine_decisions([WORDS[one] for one in text], 2).how
        for text in ("pp", "pfp", "pbf", "pfpf")
    }
    assert said == {
        "pp": "all 2 agree",
        "pfp": "2 of 3 say pass",
        "pbf": "3 differ, borderline is the middle one",
        "pfpf": "4 differ, fail is the middle one",
    }


@given(st.lists(st.sampled_from(SEVERITY), max_size=5), st.integers(1, 5))
def test_the_order_of_decisions_says_nothing(decisions: list[Verdict], reviewers: int) -> None:
    found = combine_decisions(decisions, reviewers)
    assert {combine_decisions(list(other), reviewers) for other in permutations(decisions)} == {
        found
    }
    # What settles lies between what was said, and an open item wants more than it has.
    if found.verdict is None:
        assert found.wanted > len(decisions)
    else:
        places = [SEVERITY.index(one) for one in decisions]
        assert min(places) <= SEVERITY.index(found.verdict) <= max(places)


@given(st.lists(st.sampled_from(SEVERITY), max_size=12), st.integers(1, 9))
def test_one_more_decision_than_the_policy_asks_for_always_reaches_consensus(
    decisions: list[Verdict], reviewers: int
) -> None:
    if len(decisions) > max(reviewers, 2):
        assert not combine_decisions(decisions, reviewers).is_open

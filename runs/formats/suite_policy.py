"""The policy of a suite file: the seeds' names and units there, shares of 0 to 1 here (SCORING §1)."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.scoring.policy import REVIEW_RULES, PolicySpec
from evaluators.scoring.types import DomainError
from runs.formats.reading import Fields, Reading

# File name -> column. In files pass_threshold is the fallback of the metrics system, 0 to 100.
PERCENTS = {
    "pass_threshold": "fallback_threshold",
    "metrics_pass_threshold": "metrics_pass_threshold",
    "cases_pass_threshold": "cases_pass_threshold",
    "max_avg_score_drop": "max_avg_score_drop",
}
NUMBERS = ("max_pass_rate_drop", "max_latency_increase_pct")
WORDS = {
    "case_gate": ("score", "expected_outcomes"),
    "final_score": ("aggregate", "judge_overall"),
    "on_unscored": ("error", "exclude", "zero"),
}
SCALES = (1, 5, 10, 100)
BANDS = {"pass": "pass_threshold", "borderline": "borderline_threshold"}
# The block `review` inside `policy`: file name -> column.
REVIEW = "review"
REVIEW_FLAGS = {name.removeprefix("review_"): name for name in (*REVIEW_RULES, "review_blind")}
REVIEW_NUMBERS = {
    "distance": "review_distance",
    "pass_sample": "review_pass_sample",
    "fail_sample": "review_fail_sample",
    "reviewers": "review_reviewers",
}
KNOWN = (*PERCENTS, *NUMBERS, *WORDS, "count_reviews", "scale", REVIEW)
ALIASES = {"pass_threshold": ("fallback_threshold",)}
HUNDRED = Decimal(100)


def read_policy(reading: Reading, suite: Fields, usual: PolicySpec) -> PolicySpec:
    """Return the policy of the blocks `policy` and `verdicts`, as usual where they say nothing.

    Problems are noted.
    """
    key, block = suite.mapping("policy")
    policy = Fields(reading, (key,), aliases=ALIASES, value=block)
    bands_key, band_block = suite.mapping("verdicts")
    bands = Fields(reading, (bands_key,), value=band_block)
    values: dict[str, Any] = {
        **{column: _share(policy, name) for name, column in PERCENTS.items()},
        **{name: policy.number(name) for name in NUMBERS},
        **{name: _word(policy, name, words) for name, words in WORDS.items()},
        **{column: bands.number(name) for name, column in BANDS.items()},
        "count_reviews": policy.flag("count_reviews"),
        "scale": _scale(policy),
        **_review(policy),
    }
    if bands.number("fail"):
        bands.refuse("fail", "fail begins at 0; set pass and borderline")
    policy.refuse_rest(", ".join(KNOWN))
    bands.refuse_rest("pass and borderline")
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return usual.replace(**given)
    except DomainError as error:
        at = bands_key if set(BANDS.values()) & set(str(error).split()) else key
        reading.refuse((at,), str(error))
        return PolicySpec()


def written_policy(policy: PolicySpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the blocks `policy` and `verdicts` that read back as this policy; defaults are left out."""
    usual = PolicySpec()
    changed = {name: value for name, value in policy if value != getattr(usual, name)}
    block: dict[str, Any] = {
        name: _percent(changed[column]) for name, column in PERCENTS.items() if column in changed
    }
    named = (*NUMBERS, *WORDS, "count_reviews", "scale")
    block |= {name: changed[name] for name in named if name in changed}
    review = {
        name: changed[column]
        for name, column in (REVIEW_FLAGS | REVIEW_NUMBERS).items()
        if column in changed
    }
    block |= {REVIEW: review} if review else {}
    bands = {name: getattr(policy, column) for name, column in BANDS.items()}
    return block, bands if any(column in changed for column in BANDS.values()) else {}


def _review(policy: Fields) -> dict[str, Any]:
    """Return what the block says of the review queue: shares of 0 to 1, and how many review each."""
    key, block = policy.mapping(REVIEW)
    review = Fields(policy.reading, policy.place(key), value=block)
    flags = {column: review.flag(name) for name, column in REVIEW_FLAGS.items()}
    numbers = {column: review.number(name) for name, column in REVIEW_NUMBERS.items()}
    reviewers = numbers["review_reviewers"]
    if reviewers is not None and reviewers != int(reviewers):
        review.refuse("reviewers", f"{reviewers:g} is not a whole number")
        reviewers = None
    review.refuse_rest(", ".join([*REVIEW_FLAGS, *REVIEW_NUMBERS]))
    whole = {"review_reviewers": None if reviewers is None else int(reviewers)}
    return {**flags, **numbers, **whole}


def _share(policy: Fields, name: str) -> float | None:
    """Return a percentage as a share, from its digits: half of all shares have no percentage in floats."""
    written = policy.written(*policy.peek(name))
    percent = policy.number(name)
    if percent is None:
        return None
    try:
        return float(Decimal(str(written)) / HUNDRED)
    except InvalidOperation:
        return float(Decimal(str(percent)) / HUNDRED)


def _percent(share: float) -> Decimal | int:
    percent = Decimal(str(share)) * HUNDRED
    return int(percent) if percent == percent.to_integral_value() else percent


def _word(policy: Fields, name: str, words: tuple[str, ...]) -> str | None:
    value = policy.text(name)
    if value and value not in words:
        policy.refuse(name, f"{value!r} is not one of {', '.join(words)}")
        return None
    return value or None


def _scale(policy: Fields) -> int | None:
    scale = policy.number("scale")
    if scale is not None and scale not in SCALES:
        policy.refuse("scale", f"{scale:g} is not one of {', '.join(map(str, SCALES))}")
        return None
    return None if scale is None else int(scale)

"""The rules by which executions enter the review queue, and when reviewers agree (SCORING §4.6)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evaluators.scoring.numbers import is_at_least, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict


class ReviewReason(StrEnum):
    """Why an execution waits for a reviewer, the weightiest first, with the label that pages show."""

    ASKED_FOR = "asked_for", "Added by hand"
    BORDERLINE = "borderline", "Borderline"
    DISAGREEMENT = "disagreement", "Gate and score disagree"
    ONE_MISSED = "one_missed", "All outcomes met but one"
    SPLIT_PANEL = "split_panel", "Panel split"
    SAMPLES = "samples", "Judge's samples differ"
    REPETITIONS = "repetitions", "Repetitions differ"
    NEAR_THRESHOLD = "near_threshold", "Near a threshold"
    REQUIRED = "required", "Requirement missed narrowly"
    VERDICT_LIKE = "verdict_like", "Reads like a verdict"
    AUDIT = "audit", "Random audit"

    label: str

    def __new__(cls, value: str, label: str) -> ReviewReason:
        """Attach the label that users see."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    @property
    def rank(self) -> int:
        """Return the place in the queue: 0 comes first."""
        return RANKS[self]


RANKS = {reason: rank for rank, reason in enumerate(ReviewReason)}


def sort_reasons(reasons: Iterable[ReviewReason]) -> tuple[ReviewReason, ...]:
    """Return the reasons, each once, the weightiest first."""
    return tuple(sorted(set(reasons), key=RANKS.__getitem__))


def read_reasons(words: str) -> tuple[ReviewReason, ...]:
    """Return the reasons that a text names, separated by spaces, the weightiest first."""
    found = set(words.split())
    return tuple(reason for reason in ReviewReason if reason.value in found)


WORDS = r"(?:pass(?:ed)?|fail(?:ed)?|borderline|excellent|perfect|correct)"
# The keys of a judge's reply with a judge's kind of value, so not a price or a number of goals.
VERDICT = rf"\b(?:verdict|grade|rating|evaluation|assessment)\b[\"'*]*\s*[:=][\s\"'*]*(?:{WORDS}\b|\d|[a-f][+-]?(?!\w))"
SCORE = r"\b(?:score|overall_score|rating)\b[\"'*]*\s*(?:[:=]|\bis\b)[\s\"'*]*\d+(?:\.\d+)?\s*(?:/\s*\d|%|out of\b|of \d)"
JSON_KEY = (
    rf"[\"'](?:score|verdict|passed|satisfied|met)[\"']\s*:\s*(?:[\"']?{WORDS}\b|true\b|false\b|\d)"
)
ORDER = (
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|all|your)\b"
    r"[^.\n]{0,30}\b(?:instruction|prompt|rule|criteri|rubric)"
)
ADDRESS = r"\b(?:dear|note to|attention|message (?:to|for)|hello) (?:the |an? )?(?:judge|grader|evaluator)\b"
PLEA = (
    r"\b(?:give|award|assign|grant|mark|rate)\b[^.\n]{0,40}\b(?:full|maximum|highest|perfect|top)"
    r" (?:marks?|scores?|points?|grades?|ratings?)\b"
)
CLAIM = (
    r"\b(?:all|every|each)(?: of the)?(?: expected)? (?:outcomes?|criteri(?:a|on)|requirements?)"
    r" (?:is|are|was|were|has been|have been) (?:met|satisfied|fulfilled)\b"
)
# Each pattern has words that its text must contain: searching for a word is a hundred times as fast.
PATTERNS = tuple(
    (needed, re.compile(pattern, re.IGNORECASE))
    for needed, pattern in (
        (("verdict", "grade", "rating", "evaluation", "assessment"), VERDICT),
        (("score", "rating"), SCORE),
        (("score", "verdict", "passed", "satisfied", 'met"', "met'"), JSON_KEY),
        (("instruction", "prompt", "rule", "criteri", "rubric"), ORDER),
        (("judge", "grader", "evaluator"), ADDRESS),
        (("full ", "maximum ", "highest ", "perfect ", "top "), PLEA),
        (("outcome", "criteri", "requirement"), CLAIM),
    )
)
# Long texts are searched in parts. What is looked for has at most so many letters, but for white space.
PART, OVERLAP = 1_000_000, 1_000


def verdict_like(text: str) -> str:
    """Return the words of an output that look like a verdict or address its judge, "" for none.

    This is a hint for reviewers, never a score: judges get outputs quoted as data anyway.
    """
    # The small letters of a long text take up to twelve times its bytes.
    for start in range(0, len(text), PART - OVERLAP):
        part = text[start : start + PART]
        lower_part = part.lower()
        for needed, pattern in PATTERNS:
            if any(map(lower_part.__contains__, needed)) and (found := pattern.search(part)):
                return " ".join(found.group().split())
    return ""


MET, MISSED = "1", "0"
FAR = 1.0
DRAWS = 2**64


@dataclass(frozen=True, slots=True)
class MissedRequirement:
    """A missed requirement: its score and minimum, 0 to 1, and the smallest step between scores."""

    score: float
    minimum: float
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishedExecution:
    """One execution with a verdict, in the form that the rules take.

    `score` is 0 to 1, None where only the outcomes could be judged. `outcome_marks` is one character
    per expected outcome, 1 met and 0 missed. `samples` are of each judge that was asked several times its
    scores (0 to 1), `votes` of each panel the brackets of its last round. `missed` are the requirements
    with a minimum that stayed below it. `says` is what in the output reads like a verdict.
    """

    result: int
    case: int
    verdict: Verdict
    score: float | None = None
    is_forced: bool = False
    outcome_marks: str = ""
    samples: tuple[tuple[float, ...], ...] = ()
    votes: tuple[tuple[str, ...], ...] = ()
    missed: tuple[MissedRequirement, ...] = ()
    says: str = ""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One execution for the queue: the reasons, and the probability (0 to 1) that the rules pick such a one.

    `distance` is how far its score is from the nearest threshold that could have decided, 0 to 1.
    """

    result: int
    reasons: tuple[ReviewReason, ...]
    sampling_rate: float
    distance: float = FAR


def queue_entries(
    executions: Iterable[FinishedExecution], policy: PolicySpec, *, run: int, draws: bool = True
) -> Iterator[QueueEntry]:
    """Yield the executions of a run that enter the queue.

    What a rule brings in has the sampling rate 1. Of the rest passes and fails are drawn, each by itself, with the
    policy's share as its probability: the same run and result give the same draw, so that asking again changes
    nothing. With `draws` off none is.
    """
    finished = list(executions)
    differing = _differing(finished) if policy.review_repetitions else set()
    for execution in finished:
        found = review_reasons(execution, policy)
        if execution.case in differing:
            found = sort_reasons((*found, ReviewReason.REPETITIONS))
        rate = 1.0 if found else _share(execution, policy) if draws else 0.0
        if not found and is_drawn(run, execution.result, rate):
            found = (ReviewReason.AUDIT,)
        if found:
            yield QueueEntry(execution.result, found, rate, threshold_distance(execution, policy))


def review_reasons(execution: FinishedExecution, policy: PolicySpec) -> tuple[ReviewReason, ...]:
    """Return the reasons that lie in the execution itself, the weightiest first."""
    by_outcomes = policy.outcomes_decide
    found = {
        ReviewReason.BORDERLINE: policy.review_borderline
        and execution.verdict is Verdict.BORDERLINE,
        ReviewReason.DISAGREEMENT: policy.review_disagreement
        and by_outcomes
        and _disagree(execution, policy),
        ReviewReason.ONE_MISSED: policy.review_one_missed and by_outcomes and _lacks_one(execution),
        ReviewReason.SPLIT_PANEL: policy.review_split_panel
        and any(len(set(votes)) > 1 for votes in execution.votes),
        ReviewReason.SAMPLES: policy.review_samples
        and any(_lie_apart(scores, policy) for scores in execution.samples),
        ReviewReason.NEAR_THRESHOLD: policy.review_near_threshold
        and threshold_distance(execution, policy) <= rounded(policy.review_distance),
        ReviewReason.REQUIRED: policy.review_required
        and any(_is_narrow(missed, policy) for missed in execution.missed),
        ReviewReason.VERDICT_LIKE: policy.review_verdict_like and bool(execution.says),
    }
    return sort_reasons(reason for reason, applies in found.items() if applies)


def threshold_distance(execution: FinishedExecution, policy: PolicySpec) -> float:
    """Return the distance of the score to the nearest threshold that decides, 0 to 1; 1 without one.

    Under the score gate these are the bands. Under the outcomes gate it is the fallback, and that alone where
    there are no outcomes. A fail that a rule forced is decided by no threshold.
    """
    if execution.score is None or execution.is_forced:
        return FAR
    if policy.outcomes_decide:
        limits = [] if execution.outcome_marks else [policy.fallback_threshold]
    else:
        limits = [policy.pass_threshold, policy.borderline_threshold]
    return min((abs(rounded(execution.score - limit)) for limit in limits), default=FAR)


def is_drawn(run: int, result: int, rate: float) -> bool:
    """Tell whether the audit draws a result, with probability `rate`; the answer never changes."""
    digest = hashlib.sha256(f"review {run} {result}".encode()).digest()
    return int.from_bytes(digest[:8]) < rate * DRAWS


def _share(execution: FinishedExecution, policy: PolicySpec) -> float:
    if execution.verdict is Verdict.PASS:
        return policy.review_pass_sample
    return policy.review_fail_sample if execution.verdict is Verdict.FAIL else 0.0


def _differing(finished: Sequence[FinishedExecution]) -> set[int]:
    """Return the cases whose repetitions have different verdicts."""
    verdicts: dict[int, set[Verdict]] = defaultdict(set)
    for execution in finished:
        verdicts[execution.case].add(execution.verdict)
    return {case for case, found in verdicts.items() if len(found) > 1}


def _disagree(execution: FinishedExecution, policy: PolicySpec) -> bool:
    """Tell whether the gate passed below the fallback threshold, or failed at or above it."""
    if execution.score is None:
        return False
    return (execution.verdict is Verdict.PASS) is not is_at_least(
        execution.score, policy.fallback_threshold
    )


def _lacks_one(execution: FinishedExecution) -> bool:
    """Tell whether all outcomes but one were met, and at least one was."""
    return execution.outcome_marks.count(MISSED) == 1 and MET in execution.outcome_marks


def _is_narrow(missed: MissedRequirement, policy: PolicySpec) -> bool:
    """Tell whether a requirement was missed by at most the distance, or by one step of its scores."""
    return rounded(missed.minimum - missed.score) <= rounded(
        max(policy.review_distance, missed.step)
    )


def _lie_apart(scores: Sequence[float], policy: PolicySpec) -> bool:
    """Tell whether a judge's samples fall into different bands."""
    return len({policy.verdict_for(score) for score in scores}) > 1


# From the most to the least severe.
MIN_THAT_DIFFER = 3
SEVERITY = (Verdict.FAIL, Verdict.BORDERLINE, Verdict.PASS)
RULE = (
    "If all agree, their verdict counts. If they differ, one more reviewer is asked, and the most "
    "frequent verdict counts. Without one, the middle verdict counts, or the more severe of two middle "
    "ones."
)


@dataclass(frozen=True, slots=True)
class Consensus:
    """The reviewers' verdict, None while fewer than `wanted` have decided.

    `how` says in a few words how several came to it, "" where one decided.
    """

    verdict: Verdict | None
    wanted: int
    how: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether another reviewer must decide."""
        return self.verdict is None


def combine_decisions(decisions: Sequence[Verdict], reviewers: int) -> Consensus:
    """Return the consensus of the decisions on one output, of which so many are wanted.

    All of them agree: their verdict; a single reviewer settles alone. Otherwise one further reviewer is asked,
    at least a third, and the verdict that most of them gave counts; where no single one is most frequent, the
    middle one in the order fail, borderline, pass, and of two middle ones the more severe. Decisions of people
    who were not asked count in the same way.
    """
    count = len(decisions)
    if count < reviewers:
        return Consensus(None, reviewers)
    if len(set(decisions)) == 1:
        return Consensus(decisions[0], reviewers, f"all {count} agree" if count > 1 else "")
    wanted = max(reviewers + 1, MIN_THAT_DIFFER)
    if count < wanted:
        return Consensus(None, wanted)
    (most, times), (_, second) = Counter(decisions).most_common(2)
    if times > second:
        return Consensus(most, count, f"{times} of {count} say {most.value}")
    middle = sorted(decisions, key=SEVERITY.index)[(count - 1) // 2]
    return Consensus(middle, count, f"{count} differ, {middle.value} is the middle one")


# From the lowest to the highest; quadratic weights use the distance of two.
VERDICTS = ("fail", "borderline", "pass")
LABELS = ("0", "1", "2", "3", "4", "5")

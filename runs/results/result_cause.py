"""Why a result has its verdict, in one sentence: for its page, documents, files, reviews and share links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluators.scoring.cause import first_sentence
from evaluators.scoring.decision import VERDICT_WORDS, CausePart, VerdictCause
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.formats.results_writing import review_sentence
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus

STAGES = {
    "target": "The target gave no output",
    "judge": "A judge gave no readable reply",
    "parse": "A judge gave no readable reply",
    "script": "A script failed",
    "config": "An evaluator is misconfigured",
    "limits": "A limit was reached",
    "evaluator": "An evaluator could not score",
    "worker": "The worker was lost",
}
NO_STAGE = "The result has an error"
# Nothing was decided on the output of this attempt.
UNDECIDED_STAGES = ("target", "worker")


def result_cause(result: Result, stored: Sequence[Any] | None) -> VerdictCause | None:
    """Return why a result has its verdict; None while it is open.

    `stored` is the cause in its decision. Without one, as in imported files that know more than they contain and
    where details were removed, it is what the row says.
    """
    if result.status in OPEN_RESULT_STATUSES:
        return None
    if result.status not in (ResultStatus.SCORED, ResultStatus.ERROR):
        return _plain("Not run", "the run ended before this case")
    is_decided = not (result.error and result.error_stage in UNDECIDED_STAGES)
    if stored and is_decided:
        return VerdictCause.from_json(stored)
    if result.error:
        stage = STAGES.get(result.error_stage, NO_STAGE)
        text = f"{stage[:1].lower()}{stage[1:]}: {first_sentence(result.error)}"
        return _plain(VERDICT_WORDS[None], text)
    word = VERDICT_WORDS[Verdict(result.verdict) if result.verdict else None]
    return _plain(word, result.decided_by or "no reason is stored")


def _plain(word: str, text: str) -> VerdictCause:
    text = text if text.endswith((".", "…")) else f"{text}."
    return VerdictCause(word, (CausePart(text),))


def cause_text(cause: VerdictCause | None, result: Result, policy: PolicySpec) -> str:
    """Return the cause as a text with the decision of reviewers; "" while the result is open."""
    if cause is None:
        return ""
    review = review_sentence(result.reviewed_verdict, is_counted=policy.count_reviews)
    return f"{cause} {review}".strip()

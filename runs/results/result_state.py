"""How a result is shown: its state and link, why it has its verdict, the decisions of reviewers, and who may see them.

Reviews count by SCORING §4.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from evaluators.scoring.cause import first_sentence
from evaluators.scoring.decision import VERDICT_WORDS, CausePart, VerdictCause
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.engine.review_rules import RULE, combine_decisions
from runs.formats.results_writing import review_sentence
from runs.models.results import ENDED_RESULT_STATUSES as ENDED
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus
from runs.models.reviews import UNKNOWN_REVIEWER, Review, ReviewItem
from runs.models.run_cases import execution_from
from runs.models.runs import Run
from runs.requests import MAY_REVIEW
from runs.summary.cases import CaseSummary, both_verdicts

STATUS_MARKS = {"pending": "waiting", "skipped": "cancelled"}


@dataclass(frozen=True, slots=True)
class Override:
    """The verdict of the machine, and the verdict of reviewers that replaces it.

    `decided` names who decided and when, "" if that is hidden. `is_counted` tells whether the figures of the
    run count reviews.
    """

    machine: str
    people: str
    decided: str = ""
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class PastReview:
    """One decision of a reviewer; `imported_by` is "" for one made here.

    `is_together` tells that it was made at once on identical outputs.

    `marks` has one character for each expected outcome, `met` says how many of the marked ones were met.
    `state` is withdrawn, stale, or "" for a decision that counts.
    """

    by: str
    imported_by: str
    is_together: bool
    at: datetime
    verdict: str
    note: str
    tags: Sequence[str]
    marks: str
    met: str
    labels: Mapping[str, int]
    machine: str
    state: str


@dataclass(frozen=True, slots=True)
class ReviewHistory:
    """Every decision on one result, the newest first: those that count, and those that no longer do.

    `how` says how several decisions led to one verdict, "" for one decision. `wanted` is how many decisions
    are missing, `rule` how decisions are combined. A run that was scored again has copies of the decisions
    on its `source`, for its outputs are the same; `source` is 0 for other runs.
    """

    standing: Sequence[PastReview]
    past: Sequence[PastReview]
    how: str
    wanted: int
    rule: str = RULE
    source: int = 0


def result_override(result: Result, policy: PolicySpec) -> Override | None:
    """Return the verdict of reviewers on one execution; None where there is none."""
    if not result.reviewed_verdict or result.status not in ENDED:
        return None
    machine = result.verdict or STATUS_MARKS.get(result.status, result.status)
    return Override(machine, result.reviewed_verdict, is_counted=policy.count_reviews)


def case_override(rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> Override | None:
    """Return the verdict of a case without and with its reviews; None without a review.

    `rows` are its repetitions in the form that `execution_from` takes.
    """
    if not any(row["reviewed_verdict"] and row["status"] in ENDED for row in rows):
        return None
    group = [execution_from(row) for row in rows]
    machine, people = both_verdicts(group, policy)
    return Override(
        "error" if machine is None else machine.value,
        "" if people is None else people.value,
        is_counted=policy.count_reviews,
    )


def reviewed_verdicts(run: Run) -> Mapping[str, str]:
    """Return by key the verdict of each reviewed case of a run, with the reviews.

    At most two queries, and no names of reviewers.
    """
    reviewed = run.results.exclude(reviewed_verdict="").filter(status__in=ENDED)
    cases = set(reviewed.values_list("case_id", flat=True))
    if not cases:
        return {}
    columns = ("case__key", "status", "verdict", "score", "is_forced", "reviewed_verdict")
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in run.results.filter(case__in=cases).order_by("repetition").values(*columns):
        rows[row["case__key"]].append(row)
    policy = run.policy
    overrides = {key: case_override(group, policy) for key, group in rows.items()}
    return {key: override.people for key, override in overrides.items() if override}


def with_reviewers(
    overrides: Mapping[int, Override | None], results: Mapping[int, Sequence[int]]
) -> Mapping[int, Override | None]:
    """Return the overrides with who decided and when; `results` holds the results of each by its key.

    One query, none without an override.
    """
    keys = {result: key for key, ids in results.items() if overrides.get(key) for result in ids}
    reviewers, texts = reviewer_names(keys), defaultdict[int, list[str]](list)
    for result, key in keys.items():
        if result in reviewers:
            texts[key].append(reviewers[result])
    return {
        key: override and replace(override, decided="; ".join(dict.fromkeys(texts[key])))
        for key, override in overrides.items()
    }


def reviewer_names(results: Iterable[int]) -> Mapping[int, str]:
    """Return for each reviewed result who decided and when; one query, none without results."""
    wanted = list(results)
    if not wanted:
        return {}
    reviews = Review.objects.standing().filter(result__in=wanted).select_related("reviewer")
    names: dict[int, list[str]] = defaultdict(list)
    for review in reviews.order_by("id"):
        moment = timezone.localtime(review.created_at)
        names[review.result_id].append(f"{review.signature}, {moment:%-d %b %Y %H:%M}")
    return {result: "; ".join(reviewers) for result, reviewers in names.items()}


def review_history(result: Result, reviewers: int, source: int = 0) -> ReviewHistory | None:
    """Return every decision on a result, None without any; `reviewers` decisions are wanted. One query."""
    rows = list(result.reviews.select_related("reviewer"))
    if not rows:
        return None
    standing = [row for row in rows if row.withdrawn_at is None and row.stale_at is None]
    consensus = combine_decisions([Verdict(row.verdict) for row in reversed(standing)], reviewers)
    return ReviewHistory(
        standing=[_past(row) for row in standing],
        past=[_past(row) for row in rows if row not in standing],
        how=consensus.how,
        wanted=max(0, consensus.wanted - len(standing)) if consensus.is_open else 0,
        source=source,
    )


def _past(row: Review) -> PastReview:
    if row.stale_at is not None:
        state = "stale"
    else:
        state = "" if row.withdrawn_at is None else "withdrawn"
    marks = row.outcome_marks
    marked = [mark for mark in marks if mark != "-"]
    return PastReview(
        by=row.reviewer_word or UNKNOWN_REVIEWER,
        imported_by=row.imported_by,
        is_together=row.together is not None,
        at=row.created_at,
        verdict=row.verdict,
        note=row.note,
        tags=row.tags,
        marks=marks,
        met=f"{marked.count('1')} of {len(marked)}" if marked else "",
        labels=row.metric_labels,
        machine=row.machine_verdict,
        state=state,
    )


# More repetitions than this are drawn as one strip.
MAX_MARKS = 5


@dataclass(frozen=True, slots=True)
class RepetitionMark:
    """One repetition: its number, the address of its result, its state, and its score.

    `people` is the verdict of reviewers, "" where there is none.
    """

    number: int
    url: str
    state: str
    score: float | None
    people: str = ""


def row_reviewed_verdict(row: Mapping[str, Any]) -> str:
    """Return the verdict of reviewers, "" where there is none or the result has not ended."""
    return str(row["reviewed_verdict"]) if row["status"] in ENDED else ""


def row_mark(row: Mapping[str, Any], policy: PolicySpec) -> str:
    """Return the state of a result: the verdict that counts, or how far it is."""
    if policy.count_reviews and row["reviewed_verdict"] and row["status"] in ENDED:
        return str(row["reviewed_verdict"])
    return str(row["verdict"] or STATUS_MARKS.get(row["status"], row["status"]))


def result_url(run: Run, key: str, repetition: int) -> str:
    """Return the address of one result."""
    return result_address(run.suite.slug, run.number, key, repetition)


def result_address(slug: str, number: int, key: str, repetition: int) -> str:
    """Return the address of one result of a run, given by its suite and number."""
    place = {"slug": slug, "number": number, "key": key, "repetition": repetition}
    return reverse("runs:result", kwargs=place)


def passed_words(case: CaseSummary) -> str:
    """Say how many of several repetitions passed, and whether they differ; "" for one repetition."""
    if case.executions == 1 or not case.scored:
        return ""
    passed = f"{case.passed} of {case.scored} passed"
    return f"{passed}, flaky" if case.is_flaky else passed


MAY_LOOK = "runs.change_suite"


@dataclass(frozen=True, slots=True)
class HiddenParts:
    """The parts of a result that are hidden from a person.

    `machine` hides its verdict with scores and reasons, `people` the decisions of others. `may_look` tells
    whether the person may ask for the machine's part anyway, which editors of evaluators need.
    """

    machine: bool = False
    people: bool = False
    may_look: bool = False


def hidden_parts(
    user: User, result: Result, item: ReviewItem | None, policy: PolicySpec
) -> HiddenParts:
    """Return what the page of a result hides from a reviewer who has not decided on it.

    While the result waits for review, the decisions of others are hidden, and in a blind suite the machine's
    part too. A blind suite hides the decisions of others for good. One query, none without an item.
    """
    if item is None or not user.has_perm(MAY_REVIEW):
        return HiddenParts()
    is_waiting, is_blind = item.closed_at is None, policy.review_blind
    if not (is_waiting or is_blind):
        return HiddenParts()
    standing = Review.objects.standing().filter(result=result)
    deciders = set(standing.values_list("reviewer", flat=True))
    if user.pk in deciders:
        return HiddenParts()
    return HiddenParts(
        machine=is_waiting and is_blind,
        people=bool(deciders),
        may_look=user.has_perm(MAY_LOOK),
    )


def hides_machine(user: User, run: Run, key: str, repetition: int) -> bool:
    """Tell whether the machine's part of an execution is hidden from a person who may not ask for it."""
    rows = ReviewItem.objects.filter(run=run, result__case__key=key, result__repetition=repetition)
    item = rows.select_related("result").first()
    if item is None:
        return False
    hidden = hidden_parts(user, item.result, item, run.policy)
    return hidden.machine and not hidden.may_look


def review_item(result: Result) -> ReviewItem | None:
    """Return the item of a result in the review queue, decided or not; None where it has none."""
    people = ReviewItem.objects.select_related("reserved_by", "assigned_to")
    return people.filter(result=result).first()


def result_mark(result: Result) -> str:
    """Return the state of a result: the verdict of the machine, or how far it is."""
    return result.verdict or STATUS_MARKS.get(result.status, result.status)


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file that the target left; its size is in bytes."""

    path: str
    size: int


def result_files(result: Result) -> tuple[ArtifactFile, ...]:
    """Return the files of a result by path, without their content."""
    rows = result.artifacts.annotate(size=F("content__size")).order_by("path")
    return tuple(ArtifactFile(path, size) for path, size in rows.values_list("path", "size"))


STAGES = {
    "target": "The target gave no output",
    "judge": "A judge gave no reply",
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

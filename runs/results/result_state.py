"""What people decided of executions, beside what the machine says of them (SCORING §4.6)."""

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

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.engine.review_rules import RULE, combine_decisions
from runs.models.results import ENDED_RESULT_STATUSES as ENDED
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from runs.models.run_cases import execution_from
from runs.models.runs import Run
from runs.requests import MAY_REVIEW
from runs.summary.cases import case_verdict
from runs.summary.figures import CaseSummary

UNKNOWN_REVIEWER = "somebody whose account is gone"
STATUS_MARKS = {"pending": "waiting", "skipped": "cancelled"}


@dataclass(frozen=True, slots=True)
class Override:
    """The state the machine gives, and the verdict that people give in its place.

    `told` says who decided and when, "" where that is not to be told. `is_counted` tells whether the run's figures
    take what people say.
    """

    machine: str
    people: str
    told: str = ""
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class PastReview:
    """One decision: `marks` is one character per expected outcome, `met` says how many of those marked; `state` says why it does not count: withdrawn or stale, "" for one that does."""

    by: str
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
    """Every decision on one result, the newest first: those that count, and those that do not any more.

    `how` says how several came to one verdict, "" where one decided. `wanted` is how many decisions are still
    asked for, 0 for a settled result. `rule` is the one by which decisions are settled. A run that was scored
    again has the decisions that its source had then, for people judge outputs and those are the same: `source`
    is the number of that run, 0 for a run that ran.
    """

    standing: Sequence[PastReview]
    past: Sequence[PastReview]
    how: str
    wanted: int
    rule: str = RULE
    source: int = 0


def override_of(result: Result, policy: PolicySpec) -> Override | None:
    """Return what people decided of one execution; None where nothing is settled."""
    if not result.reviewed_verdict or result.status not in ENDED:
        return None
    machine = result.verdict or STATUS_MARKS.get(result.status, result.status)
    return Override(machine, result.reviewed_verdict, is_counted=policy.count_reviews)


def override_of_case(rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> Override | None:
    """Return what a case is by the machine, and what with the decisions of people; None without a decision.

    `rows` are its repetitions as `execution_from` takes them.
    """
    if not any(row["reviewed_verdict"] and row["status"] in ENDED for row in rows):
        return None
    group = [execution_from(row) for row in rows]
    machine = case_verdict(group, policy.replace(count_reviews=False))
    people = case_verdict(group, policy.replace(count_reviews=True))
    return Override(
        "error" if machine is None else machine.value,
        "" if people is None else people.value,
        is_counted=policy.count_reviews,
    )


def people_of(run: Run) -> Mapping[str, str]:
    """Return what each case of a run is with the decisions of people, by its key; cases without one are left out.

    Two queries at most, and no names of reviewers.
    """
    said = run.results.exclude(reviewed_verdict="").filter(status__in=ENDED)
    cases = set(said.values_list("case_id", flat=True))
    if not cases:
        return {}
    columns = ("case__key", "status", "verdict", "score", "is_forced", "reviewed_verdict")
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in run.results.filter(case__in=cases).order_by("repetition").values(*columns):
        rows[row["case__key"]].append(row)
    policy = run.policy
    overrides = {key: override_of_case(group, policy) for key, group in rows.items()}
    return {key: found.people for key, found in overrides.items() if found}


def with_names(
    overrides: Mapping[int, Override | None], results: Mapping[int, Sequence[int]]
) -> Mapping[int, Override | None]:
    """Return the overrides with who decided and when; `results` are the results of each by its key.

    One query, and none where nothing was decided.
    """
    asked = {
        result: key for key, found in results.items() if overrides.get(key) for result in found
    }
    told = told_of(asked)
    words: dict[int, list[str]] = defaultdict(list)
    for result, key in asked.items():
        if result in told:
            words[key].append(told[result])
    return {
        key: one and replace(one, told="; ".join(dict.fromkeys(words[key])))
        for key, one in overrides.items()
    }


def told_of(results: Iterable[int]) -> Mapping[int, str]:
    """Return for each result that has decisions who decided and when; one query, none without results."""
    wanted = list(results)
    if not wanted:
        return {}
    reviews = Review.objects.standing().filter(result__in=wanted).order_by("id")
    names: dict[int, list[str]] = defaultdict(list)
    for result, name, at in reviews.values_list("result_id", "reviewer__username", "created_at"):
        moment = timezone.localtime(at)
        names[result].append(f"{name or UNKNOWN_REVIEWER}, {moment:%-d %b %Y %H:%M}")
    return {result: "; ".join(found) for result, found in names.items()}


def review_history(result: Result, reviewers: int, source: int = 0) -> ReviewHistory | None:
    """Return every decision on a result, None where nobody decided; `reviewers` are asked for each. One query."""
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
        by=row.reviewer.get_username() if row.reviewer else UNKNOWN_REVIEWER,
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


@dataclass(frozen=True, slots=True)
class RepetitionMark:
    """One repetition: its number, the address of its result, the state it is shown in, its score.

    `people` is the verdict that people gave, "" where none is settled.
    """

    number: int
    url: str
    state: str
    score: float | None
    people: str = ""


def people_of_row(row: Mapping[str, Any]) -> str:
    """Return the verdict that people gave of a result, "" where none is settled or its work goes on."""
    return str(row["reviewed_verdict"]) if row["status"] in ENDED else ""


def mark_of_row(row: Mapping[str, Any], policy: PolicySpec) -> str:
    """Return the state a result is shown in: the verdict that counts, or how far the work is."""
    if policy.count_reviews and row["reviewed_verdict"] and row["status"] in ENDED:
        return str(row["reviewed_verdict"])
    return str(row["verdict"] or STATUS_MARKS.get(row["status"], row["status"]))


def result_url(run: Run, key: str, repetition: int) -> str:
    """Return the address of one result."""
    return result_address(run.suite.slug, run.number, key, repetition)


def result_address(slug: str, number: int, key: str, repetition: int) -> str:
    """Return the address of one result of a run that is known by its suite and number."""
    place = {"slug": slug, "number": number, "key": key, "repetition": repetition}
    return reverse("runs:result", kwargs=place)


def passed_words(found: CaseSummary) -> str:
    """Say how many of several repetitions passed and whether they differ; "" of one."""
    if found.executions == 1 or not found.scored:
        return ""
    told = f"{found.passed} of {found.scored} passed"
    return f"{told}, flaky" if found.is_flaky else told


MAY_LOOK = "runs.change_suite"


@dataclass(frozen=True, slots=True)
class Kept:
    """What of a result is kept from a person.

    `machine` is its verdict with scores and reasons, `people` what others decided. `may_look` tells whether the
    person may ask for the machine's part all the same, as who mends evaluators has to.
    """

    machine: bool = False
    people: bool = False
    may_look: bool = False


def kept_from(user: User, result: Result, item: ReviewItem | None, policy: PolicySpec) -> Kept:
    """Return what the page of a result keeps from a person, nothing where they decided or are not to decide.

    In a blind suite the machine's part is kept while the result waits for review, and what others decided for
    good; in others what they decided is kept while it waits. One query, none where no item is in the queue.
    """
    if item is None or not user.has_perm(MAY_REVIEW):
        return Kept()
    is_waiting, is_blind = item.closed_at is None, policy.review_blind
    if not (is_waiting or is_blind):
        return Kept()
    standing = Review.objects.standing().filter(result=result)
    deciders = set(standing.values_list("reviewer", flat=True))
    if user.pk in deciders:
        return Kept()
    return Kept(
        machine=is_waiting and is_blind,
        people=bool(deciders),
        may_look=user.has_perm(MAY_LOOK),
    )


def keeps_machine(user: User, run: Run, key: str, repetition: int) -> bool:
    """Tell whether what judges said of an execution is kept from a person, who may not ask for it either."""
    rows = ReviewItem.objects.filter(
        result__run=run, result__case__key=key, result__repetition=repetition
    )
    item = rows.select_related("result").first()
    if item is None:
        return False
    kept = kept_from(user, item.result, item, run.policy)
    return kept.machine and not kept.may_look


def item_of_result(result: Result) -> ReviewItem | None:
    """Return the item of a result in the queue, decided or not; None for one that never entered it."""
    people = ReviewItem.objects.select_related("reserved_by", "assigned_to")
    return people.filter(result=result).first()


def mark_of(result: Result) -> str:
    """Return the state a result is shown in: its verdict, or how far the work is."""
    return result.verdict or STATUS_MARKS.get(result.status, result.status)


@dataclass(frozen=True, slots=True)
class LeftFile:
    """One file as the page lists it; its size is in bytes."""

    path: str
    size: int


def result_files(result: Result) -> tuple[LeftFile, ...]:
    """Return the files of a result by path, without their content."""
    rows = result.artifacts.annotate(size=F("content__size")).order_by("path")
    return tuple(LeftFile(path, size) for path, size in rows.values_list("path", "size"))

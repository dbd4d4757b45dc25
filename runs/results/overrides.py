"""What people decided of executions, beside what the machine says of them (SCORING §4.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.engine.review_rules import RULE, combine_decisions
from runs.models.results import ENDED_RESULT_STATUSES as ENDED
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.run_cases import execution_from
from runs.models.runs import Run
from runs.summary.cases import case_verdict

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

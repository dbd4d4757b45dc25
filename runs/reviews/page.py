"""The review queue as its page shows it: how far it is, what comes next, and how a person compares with the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, F, Q

from evaluators.templatetags.figures import MINUS, down
from runs.engine.review_rules import VERDICTS, ReviewReason
from runs.lists import Control
from runs.models.database import database_now
from runs.models.reviews import QueueQuery, Review, ReviewItem
from runs.requests import MAY_REVIEW
from runs.results.result_state import result_url
from runs.reviews import services
from runs.reviews.agreement import JudgeAgreement, Pair, measure_agreement
from runs.reviews.item_page import SAYS_NOTHING

BACKEND = "django.contrib.auth.backends.ModelBackend"


def queue_controls(
    query: QueueQuery, people: Sequence[tuple[int, str]], *, hides_reason: bool
) -> list[Control]:
    """Return the fields that narrow the queue; runs and tags are those of the chosen suite alone."""
    items = QueueQuery().items()
    suites = items.order_by("result__run__suite__title").values_list(
        "result__run__suite__slug", "result__run__suite__title"
    )
    of_suite = items.filter(result__run__suite__slug=query.suite) if query.suite else items.none()
    rows = of_suite.order_by("-result__run").values_list(
        "result__run", "result__run__number", "result__run__target_name"
    )
    runs = [(pk, f"#{number} {target}") for pk, number, target in rows.distinct()]
    lists = of_suite.order_by().values_list("result__case__tags", flat=True)
    tags = [(tag, tag) for tag in sorted({tag for tags in lists.distinct() for tag in tags})]
    reasons = [(reason.value, reason.label) for reason in ReviewReason]
    assigned = [(pk, f"Assigned to {name}") for pk, name in people]
    offered = (
        ("suite", "Suite", list(dict.fromkeys(suites.distinct())), "All suites"),
        ("run", "Run", runs, "All runs"),
        ("reason", "Reason", () if hides_reason and not query.reason else reasons, "Any reason"),
        ("tag", "Tag", tags, "Any tag"),
        ("assignee", "Assigned to", assigned, "For anybody"),
    )
    always = ("suite", "assignee")
    return [
        query.select(field, label, options, every, f"review-{field}")
        for field, label, options, every in offered
        if options or field in always
    ]


def people() -> list[tuple[int, str]]:
    """Return who may decide, by name."""
    users = User.objects.with_perm(MAY_REVIEW, backend=BACKEND).filter(is_active=True)
    return list(users.order_by("username").values_list("pk", "username").distinct())


MAX_NEXT = 4
MAX_LISTED = 50
LAST_REVIEWS = 50
NEEDED = ("result__case", "result__run__suite")
HEAVY = ("result__run__snapshot", "result__run__summary", "result__run__leaf_scores")


@dataclass(frozen=True, slots=True)
class NextRow:
    """One item of the queue as lists show it; verdict and score are left out where they are hidden."""

    pk: int
    key: str
    title: str
    url: str
    suite: str
    run: int
    repetition: int
    repetitions: int
    verdict: str
    score: float | None
    scale: int
    why: tuple[ReviewReason, ...]

    @property
    def words(self) -> str:
        """Say why it waits, without what its verdict says already."""
        return ", ".join(why.label for why in self.why if why.value != self.verdict)


@dataclass(frozen=True, slots=True)
class JudgeBesidePerson:
    """How a person's last reviews compare with the machine; rows from pass to fail, by what the machine said."""

    agreement: JudgeAgreement

    @property
    def same(self) -> int:
        """Count the reviews in which both said the same."""
        return sum(row[place] for place, row in enumerate(self.agreement.matrix))

    @property
    def kappa(self) -> str:
        """Spell Cohen's kappa, "" where both said one and the same of everything."""
        kappa = self.agreement.kappa
        return "" if kappa is None else down(kappa, 2).replace("-", MINUS)

    @property
    def rows(self) -> list[tuple[str, list[tuple[int, bool]]]]:
        """Return by what the machine said how often the person said what, and whether that is the same."""
        names = self.agreement.categories
        return [
            (
                names[place],
                [(self.agreement.matrix[place][at], at == place) for at in _down(len(names))],
            )
            for place in _down(len(names))
        ]


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    """The part of the queue that the address names; `reserved` are those that others have open.

    `why_empty` is nothing, filtered, reserved, others or decided when there is no item for this person.
    `seconds` is the median of what a decision took.
    """

    query: QueueQuery
    address: str
    total: int
    done: int
    reserved: int
    left: int
    people: Sequence[tuple[int, str]]
    next: tuple[NextRow, ...]
    beside: JudgeBesidePerson | None
    seconds: int | None
    last: ReviewItem | None
    held: tuple[ReviewItem, ...]
    why_empty: str

    @property
    def waiting(self) -> int:
        """Count what is not decided."""
        return self.total - self.done

    @property
    def is_narrowed(self) -> bool:
        """Tell whether anything is left out."""
        return bool(self.address)


def review_queue(
    user: User, query: QueueQuery, here: ReviewItem | None, *, may_decide: bool, is_hidden: bool
) -> ReviewQueue:
    """Return the queue with `here` as the item on the page."""
    now = database_now()
    of_others = Q(closed_at=None, reserved_until__gt=now) & ~Q(reserved_by=user.pk)
    counts = query.items().aggregate(
        total=Count("pk"),
        done=Count("pk", filter=Q(closed_at__isnull=False)),
        reserved=Count("pk", filter=of_others),
    )
    ahead = services.upcoming(user, query, besides=[here.pk] if here else [])
    left = ahead.count() if may_decide else 0
    rows = ahead if may_decide else query.items().waiting()
    last = _last_reviews(user) if may_decide else []
    seconds = [row["seconds"] for row in last if row["seconds"] is not None]
    is_empty = here is None and may_decide
    return ReviewQueue(
        query=query,
        address=query.at(""),
        **counts,
        left=left,
        people=people(),
        next=tuple(_next(rows, MAX_NEXT if may_decide else MAX_LISTED, is_hidden=is_hidden)),
        beside=_beside(last) if not is_hidden else None,
        seconds=round(median(seconds)) if seconds else None,
        last=_last_decided(user) if last else None,
        held=_held(query, user, now) if is_empty else (),
        why_empty=_why_empty(query, counts) if is_empty else "",
    )


def _down(size: int) -> range:
    return range(size - 1, -1, -1)


def _next(rows: Any, most: int, *, is_hidden: bool) -> Sequence[NextRow]:
    told_of = rows.select_related(*NEEDED).defer(*HEAVY)
    blind = told_of.annotate(policy=F("result__run__snapshot__policy"))[:most]
    return [_row(item, is_hidden=is_hidden or item.policy["review_blind"]) for item in blind]


def _row(item: Any, *, is_hidden: bool) -> NextRow:
    result = item.result
    return NextRow(
        pk=item.pk,
        key=result.case.key,
        title=result.case.title,
        url=result_url(result.run, result.case.key, result.repetition),
        suite=result.run.suite.title,
        run=result.run.number,
        repetition=result.repetition,
        repetitions=result.run.repetitions,
        verdict="" if is_hidden else result.verdict or "error",
        score=None if is_hidden else result.score,
        scale=item.policy.get("scale", 1),
        why=tuple(why for why in item.why if why in SAYS_NOTHING or not is_hidden),
    )


def _last_reviews(user: User) -> Sequence[Mapping[str, Any]]:
    reviews = Review.objects.standing().filter(reviewer=user).order_by("-created_at", "-id")
    return list(reviews.values("machine_verdict", "verdict", "seconds")[:LAST_REVIEWS])


def _beside(last: Sequence[Mapping[str, Any]]) -> JudgeBesidePerson | None:
    """Return the agreement of one person's reviews as they are: it stands for them alone, so none is weighed."""
    pairs = [
        Pair(row["machine_verdict"], row["verdict"])
        for row in last
        if row["machine_verdict"] in VERDICTS
    ]
    return JudgeBesidePerson(measure_agreement(pairs)) if pairs else None


def _last_decided(user: User) -> ReviewItem | None:
    reviews = Review.objects.standing().filter(reviewer=user, result__review_item__isnull=False)
    last = reviews.order_by("-created_at", "-id").values_list("result", flat=True).first()
    items = ReviewItem.objects.select_related("result__case")
    return items.filter(result=last).first() if last else None


def _held(query: QueueQuery, user: User, now: datetime) -> tuple[ReviewItem, ...]:
    others = query.items().reserved(now=now).exclude(reserved_by=user)
    return tuple(others.select_related("reserved_by", "result__case")[:MAX_NEXT])


def _why_empty(query: QueueQuery, counts: dict[str, int]) -> str:
    waiting = counts["total"] - counts["done"]
    if not counts["total"]:
        return "filtered" if query.at("") else "nothing"
    if not waiting:
        return "decided"
    return "reserved" if counts["reserved"] else "others"

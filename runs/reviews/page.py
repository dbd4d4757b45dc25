"""The review page: the queue, the item to decide on, and what the machine decided unless that is hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from evaluators.scoring.decision import VerdictCause
from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, walk
from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import MINUS, down
from runs.engine.plan import METRICS_KIND, OUTCOMES_PATH, Plan, case_tree, read_plan
from runs.engine.review_rules import RULE, VERDICTS, Consensus, ReviewReason, combine_decisions
from runs.lists import Control
from runs.models.database import database_now
from runs.models.results import EvaluatorScore, Result, ResultOutput, ScoreState
from runs.models.reviews import ENDED, QueueQuery, Review, ReviewItem
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.requests import MAY_REVIEW
from runs.results.result_state import (
    ArtifactFile,
    RepetitionMark,
    result_cause,
    result_files,
    result_mark,
    result_url,
    row_mark,
)
from runs.reviews import services
from runs.reviews.agreement import JudgeAgreement, Pair, measure_agreement
from runs.texts import MAX_SHOWN_LENGTH, DiffLine, Turns, conversation, cut_step, text_diff

BACKEND = "django.contrib.auth.backends.ModelBackend"


def queue_controls(
    query: QueueQuery, people: Sequence[tuple[int, str]], *, hides_reason: bool
) -> list[Control]:
    """Return the filters of the queue; runs and tags are those of the chosen suite."""
    # Whether there is any item is quick to tell; all of them may be a hundred thousand.
    items = QueueQuery().items()
    suites = Suite.objects.filter(Exists(items.filter(run__suite=OuterRef("pk"))))
    of_suite = Run.objects.filter(suite__slug=query.suite) if query.suite else Run.objects.none()
    queued = of_suite.filter(Exists(items.filter(run=OuterRef("pk")))).order_by("-pk")
    rows = queued.values_list("pk", "number", "target_name")
    runs = [(pk, f"#{number} {target}") for pk, number, target in rows]
    cases = Case.objects.filter(suite__slug=query.suite) if query.suite else Case.objects.none()
    lists = cases.order_by().values_list("tags", flat=True)
    tags = [(tag, tag) for tag in sorted({tag for tags in lists.distinct() for tag in tags})]
    reasons = [(reason.value, reason.label) for reason in ReviewReason]
    assigned = [(pk, f"Assigned to {name}") for pk, name in people]
    offered = (
        ("suite", "Suite", suites.order_by("title").values_list("slug", "title"), "All suites"),
        ("run", "Run", runs, "All runs"),
        ("reason", "Reason", () if hides_reason and not query.reason else reasons, "Any reason"),
        ("tag", "Tag", tags, "Any tag"),
        ("assignee", "Assigned to", assigned, "All assignees"),
    )
    always = ("suite", "assignee")
    return [
        query.select(field, label, options, every, f"review-{field}")
        for field, label, options, every in offered
        if options or field in always
    ]


def people() -> list[tuple[int, str]]:
    """Return the members who may decide, by name."""
    users = User.objects.with_perm(MAY_REVIEW, backend=BACKEND).filter(is_active=True)
    return list(users.order_by("username").values_list("pk", "username").distinct())


MAX_NEXT = 4
MAX_LISTED = 50
LAST_REVIEWS = 50
NEEDED = ("result__case", "result__run__suite")
HEAVY = ("result__run__summary", "result__run__leaf_scores")


@dataclass(frozen=True, slots=True)
class NextRow:
    """One item of the queue as lists show it, without verdict and score where these are hidden."""

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
        """Say why it waits, without the reason that is its verdict."""
        return ", ".join(why.label for why in self.why if why.value != self.verdict)


@dataclass(frozen=True, slots=True)
class PersonalAgreement:
    """How the last reviews of a person agree with the machine; rows from pass to fail by the machine's verdict."""

    agreement: JudgeAgreement

    @property
    def same(self) -> int:
        """Count the reviews in which both agree."""
        return sum(row[place] for place, row in enumerate(self.agreement.matrix))

    @property
    def kappa(self) -> str:
        """Format Cohen's kappa, "" where it is not defined."""
        kappa = self.agreement.kappa
        return "" if kappa is None else down(kappa, 2).replace("-", MINUS)

    @property
    def rows(self) -> list[tuple[str, list[tuple[int, bool]]]]:
        """Return by verdict of the machine the counts of the person's verdicts, and whether both agree."""
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
    """A part of the queue; others have `reserved` items open.

    `why_empty` is nothing, filtered, reserved, others or decided when there is no item for this person.
    `seconds` is the median time of a decision.
    """

    query: QueueQuery
    address: str
    total: int
    done: int
    reserved: int
    left: int
    people: Sequence[tuple[int, str]]
    next: tuple[NextRow, ...]
    personal: PersonalAgreement | None
    seconds: int | None
    last: ReviewItem | None
    held: tuple[ReviewItem, ...]
    why_empty: str

    @property
    def waiting(self) -> int:
        """Count the items that are not decided."""
        return self.total - self.done

    @property
    def is_narrowed(self) -> bool:
        """Tell whether any filter is set."""
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
    ahead = services.upcoming_items(user, query, excluding=[here.pk] if here else [])
    left = ahead.count() if may_decide else 0
    waiting = query.items().waiting().values_list("pk", flat=True)
    first = services.first_items(ahead, user, MAX_NEXT) if may_decide else waiting[:MAX_LISTED]
    last = _last_reviews(user) if may_decide else []
    seconds = [row["seconds"] for row in last if row["seconds"] is not None]
    is_empty = here is None and may_decide
    return ReviewQueue(
        query=query,
        address=query.at(""),
        **counts,
        left=left,
        people=people(),
        next=tuple(_next(first, is_hidden=is_hidden)),
        personal=_personal(last) if not is_hidden else None,
        seconds=round(median(seconds)) if seconds else None,
        last=_last_decided(user) if last else None,
        held=_held(query, user, now) if is_empty else (),
        why_empty=_why_empty(query, counts) if is_empty else "",
    )


def _down(size: int) -> range:
    return range(size - 1, -1, -1)


def _next(ids: Iterable[int], *, is_hidden: bool) -> Sequence[NextRow]:
    ids = list(ids)
    items: Any = ReviewItem.objects.select_related(*NEEDED).defer("result__run__snapshot", *HEAVY)
    found = items.annotate(policy=F("result__run__snapshot__policy")).in_bulk(ids)
    return [
        _row(item, is_hidden=is_hidden or item.policy["review_blind"])
        for pk in ids
        if (item := found.get(pk))
    ]


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
        why=tuple(why for why in item.why if why in NEUTRAL_REASONS or not is_hidden),
    )


def _last_reviews(user: User) -> Sequence[Mapping[str, Any]]:
    reviews = Review.objects.standing().filter(reviewer=user).order_by("-created_at", "-id")
    return list(reviews.values("machine_verdict", "verdict", "seconds")[:LAST_REVIEWS])


def _personal(last: Sequence[Mapping[str, Any]]) -> PersonalAgreement | None:
    """Measure the agreement of one person's reviews without weights, for they represent no others."""
    pairs = [
        Pair(row["machine_verdict"], row["verdict"])
        for row in last
        if row["machine_verdict"] in VERDICTS
    ]
    return PersonalAgreement(measure_agreement(pairs)) if pairs else None


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


NO_MARK = "-"


@dataclass(frozen=True, slots=True)
class EnteredReview:
    """The fields of the form as a person typed them, valid or not."""

    verdict: str = ""
    note: str = ""
    tags: str = ""
    outcome_marks: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, review: Review | None) -> EnteredReview:
        """Return the fields of an earlier review, empty without one."""
        if review is None:
            return cls()
        labels = {key: str(label) for key, label in review.metric_labels.items()}
        tags = ", ".join(review.tags)
        return cls(review.verdict, review.note, tags, review.outcome_marks, labels)


@dataclass(frozen=True, slots=True)
class ReviewedOutcome:
    """One expected outcome; `state` is pass or fail, "" where it is hidden or was not judged."""

    text: str
    state: str
    justification: str
    mark: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One metric with the label of the person or ""; `judged` is the score of the judge, None where hidden."""

    key: str
    name: str
    label: str
    judged: float | None


def outcome_rows(
    case: Case, judged: Sequence[Mapping[str, Any]], typed: EnteredReview, *, is_hidden: bool
) -> tuple[ReviewedOutcome, ...]:
    """Return the expected outcomes with the person's marks, and with the machine's findings unless hidden."""
    texts = [entry["text"] for entry in judged] or list(case.expected_outcomes)
    marks = typed.outcome_marks.ljust(len(texts), NO_MARK)
    states = ["pass" if entry["passed"] else "fail" for entry in judged] if not is_hidden else []
    reasons = [entry.get("justification", "") for entry in judged] if not is_hidden else []
    states += [""] * (len(texts) - len(states))
    reasons += [""] * (len(texts) - len(reasons))
    return tuple(
        ReviewedOutcome(text, state, why, mark)
        for text, state, why, mark in zip(texts, states, reasons, marks, strict=False)
    )


def metric_keys(result: Result) -> set[str]:
    """Return the keys of the metrics that a person can label; one query."""
    return {
        row.key for row in label_rows(list(result.scores.all()), EnteredReview(), is_hidden=True)
    }


def label_rows(
    rows: Sequence[EvaluatorScore], typed: EnteredReview, *, is_hidden: bool
) -> tuple[LabelRow, ...]:
    """Return the metrics of the first judge that scored some, with its scores unless hidden."""
    judges = (row for row in rows if row.kind == METRICS_KIND and row.state == ScoreState.SCORED)
    judge = next((row for row in judges if row.details.get("metrics")), None)
    return tuple(
        LabelRow(
            entry["key"],
            entry.get("name") or entry["key"],
            typed.labels.get(entry["key"], ""),
            None if is_hidden else entry["score"],
        )
        for entry in (judge.details["metrics"] if judge else ())
    )


@dataclass(frozen=True, slots=True)
class Margin:
    """The distance of a score, 0 to 1, from the threshold above it, or from the pass threshold it reached."""

    label: str
    distance: float


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """The verdict of the machine with its causes; `lowest` is a leaf: its name, score and pass mark, 0 to 1."""

    state: str
    score: float | None
    scale: int
    decided_by: str
    cause: VerdictCause | None
    says: str
    margin: Margin | None
    outcomes: str
    lowest: tuple[str, float, float | None] | None
    repetitions: tuple[RepetitionMark, ...]
    error: str


def judge_panel(
    result: Result,
    plan: Plan,
    rows: Sequence[EvaluatorScore],
    output: ResultOutput,
) -> JudgePanel:
    """Return the automatic part of a result; one query, for its other repetitions."""
    outcomes = output.outcomes or ()
    leaves = _leaves(result, plan, rows)
    # Expected outcomes have a line of their own.
    evaluators = (leaf for leaf in leaves if leaf[0].path != OUTCOMES_PATH)
    lowest = min(evaluators, key=lambda leaf: leaf[1], default=None)
    reasons = [(score, row.reasoning) for row, score, _ in leaves if row.reasoning]
    spoken = min(reasons, key=lambda reason: reason[0], default=None)
    met = sum(bool(outcome["passed"]) for outcome in outcomes)
    return JudgePanel(
        state=result_mark(result),
        score=result.score,
        scale=plan.policy.scale,
        decided_by=result.decided_by,
        cause=result_cause(result, (output.decision or {}).get("cause")),
        says=spoken[1] if spoken else "",
        margin=_margin(result, plan.policy),
        outcomes=f"{met} of {len(outcomes)}" if outcomes else "",
        lowest=(lowest[0].path.rpartition("/")[2], *lowest[1:]) if lowest else None,
        repetitions=_others(result, plan.policy),
        error=result.error,
    )


def _leaves(
    result: Result, plan: Plan, rows: Sequence[EvaluatorScore]
) -> list[tuple[EvaluatorScore, float, float | None]]:
    """Return the leaves that scored, each with its score of 0 to 1 after negation, and its pass mark."""
    case = result.case
    tree = case_tree(plan.root, case.evaluators, append=case.evaluators_append)
    nodes = dict(walk(tree))
    return [
        (row, node.counted_score(row.score), node.pass_mark)
        if (node := nodes.get(row.path))
        else (row, row.score, None)
        for row in rows
        if row.kind != COMPOSITE and row.state == ScoreState.SCORED and row.score is not None
    ]


def _margin(result: Result, policy: PolicySpec) -> Margin | None:
    """Return the distance of the score from the band above, None where no score decided."""
    if result.score is None or result.is_forced or policy.outcomes_decide:
        return None
    for word, limit in (
        ("borderline", policy.borderline_threshold),
        ("pass", policy.pass_threshold),
    ):
        if rounded(result.score) < rounded(limit):
            return Margin(f"Below {word} by", rounded(limit - result.score))
    return Margin("Above pass by", rounded(result.score - policy.pass_threshold))


def _others(result: Result, policy: PolicySpec) -> tuple[RepetitionMark, ...]:
    run = result.run
    if run.repetitions == 1:
        return ()
    rows = run.results.filter(case=result.case_id).exclude(pk=result.pk).order_by("repetition")
    columns = ("repetition", "status", "verdict", "reviewed_verdict", "score")
    return tuple(
        RepetitionMark(
            row["repetition"],
            result_url(run, result.case.key, row["repetition"]),
            row_mark(row, policy),
            row["score"],
        )
        for row in rows.values(*columns)
    )


@dataclass(frozen=True, slots=True)
class DecisionMessage:
    """A decision just made, the verdict of the machine, and the consensus of all decisions.

    `together` is how many identical outputs it was made on at once, 1 for one alone.
    """

    key: str
    title: str
    url: str
    person: str
    machine: str
    score: float | None
    scale: int
    consensus: Consensus
    decided: int
    together: int

    @property
    def is_same(self) -> bool:
        """Tell whether both agree."""
        return self.person == self.machine


def decision_message(review: Review | None) -> DecisionMessage | None:
    """Return the message on a decision, None for one that is withdrawn or stale."""
    if review is None or review.withdrawn_at or review.stale_at:
        return None
    result = review.result
    reviewers = ReviewItem.objects.values_list("wanted", flat=True).get(result=result)
    verdicts = Review.objects.standing().filter(result=result).order_by("id")
    same = Review.objects.standing().filter(
        together=review.together, reviewer=review.reviewer_id, result__review_item__isnull=False
    )
    decisions = [Verdict(verdict) for verdict in verdicts.values_list("verdict", flat=True)]
    return DecisionMessage(
        key=result.case.key,
        title=result.case.title,
        url=result_url(result.run, result.case.key, result.repetition),
        person=review.verdict,
        machine=review.machine_verdict or "error",
        score=review.machine_score,
        scale=result.run.scale,
        consensus=combine_decisions(decisions, reviewers),
        decided=len(decisions),
        together=same.count() if review.together else 1,
    )


MAX_STEPS = 300
MAX_CAUSES = 30
READ_REVIEWS = 300
# Reasons that do not reveal the verdict of the machine.
NEUTRAL_REASONS = (ReviewReason.ASKED_FOR, ReviewReason.VERDICT_LIKE)


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """Everything that the page shows of one item.

    `judge` is None and `opinions` is empty while they are hidden from this person; with `is_demanded` the suite
    hides them. `mine` is the standing decision of the person. `identical` are other items that wait with the same
    output.
    """

    item: ReviewItem
    run: Run
    case: Case
    result: Result
    url: str
    is_hidden: bool
    is_demanded: bool
    is_skipped: bool
    why: tuple[ReviewReason, ...]
    turns: Turns
    output_size: int
    output_text: str
    removal_message: str
    diff: tuple[DiffLine, ...] | None
    files: tuple[ArtifactFile, ...]
    outcomes: tuple[ReviewedOutcome, ...]
    labels: tuple[LabelRow, ...]
    steps: tuple[Mapping[str, Any], ...] | None
    step_count: int
    judge: JudgePanel | None
    typed: EnteredReview
    mine: Review | None
    opinions: tuple[Review, ...]
    consensus: Consensus
    decided: int
    causes: tuple[str, ...]
    identical: Sequence[ReviewItem]
    rule: str = RULE

    @property
    def identical_ids(self) -> str:
        """Return the ids of the identical items, with commas between."""
        return ",".join(str(item.pk) for item in self.identical)

    @property
    def identical_places(self) -> str:
        """Say in which runs the identical outputs are."""
        runs = Counter(item.run.number for item in self.identical)
        return ", ".join(f"{count} in run #{number}" for number, count in runs.items())

    @property
    def has_output(self) -> bool:
        """Tell whether the target answered with a text."""
        return bool(self.output_size)

    @property
    def is_exact(self) -> bool:
        """Tell whether the output is the expected one, character for character."""
        return self.case.expected_output == self.output_text

    @property
    def expected_text(self) -> str:
        """Return the expected output, cut to the length that pages show."""
        return self.case.expected_output[:MAX_SHOWN_LENGTH]

    @property
    def outcomes_met(self) -> int:
        """Count the outcomes that the machine found met."""
        return sum(row.state == Verdict.PASS for row in self.outcomes)

    @property
    def outcomes_text(self) -> str:
        """Say how many of the expected outcomes were met."""
        return f"{self.outcomes_met} of {len(self.outcomes)} met"

    @property
    def is_judged(self) -> bool:
        """Tell whether the machine's findings on outcomes are shown."""
        return any(row.state for row in self.outcomes)

    @property
    def is_ended(self) -> bool:
        """Tell whether there is something to decide on."""
        return self.result.status in ENDED

    @property
    def wants_several(self) -> bool:
        """Tell whether more than one person decides."""
        return max(self.consensus.wanted, self.decided) > 1


def items_for_review() -> QuerySet[ReviewItem]:
    """Return the items of the queue with everything that a page shows of them."""
    items = ReviewItem.objects.select_related(
        "result__case", "result__output", "result__run__suite", "reserved_by", "assigned_to"
    )
    return items.defer(*HEAVY)


def review_page(
    item: ReviewItem,
    user: User,
    *,
    may_decide: bool = True,
    hides_judge: bool = False,
    typed: EnteredReview | None = None,
    query: QueueQuery | None = None,
) -> ReviewPage:
    """Return the page of an item for a person.

    With `hides_judge`, or when the suite demands it, it leaves out the machine's part until this person has
    decided. `query` is the part of the queue in which identical outputs count.

    Raises UnreadableSnapshotError for a run of another version.
    """
    item = items_for_review().get(pk=item.pk)
    result = item.result
    plan, case, run = read_plan(result.run.snapshot), result.case, result.run
    output = getattr(result, "output", None) or ResultOutput(result=result)
    reviews = list(
        Review.objects.filter(result=result, generation=result.generation).select_related(
            "reviewer"
        )
    )
    standing = [entry for entry in reviews if entry.withdrawn_at is None and entry.stale_at is None]
    mine = next((entry for entry in standing if entry.reviewer_id == user.pk), None)
    earlier = next((entry for entry in reviews if entry.reviewer_id == user.pk), None)
    is_demanded = plan.policy.review_blind
    is_asked = is_demanded or (hides_judge and may_decide)
    is_hidden = is_asked and mine is None and (may_decide or item.closed_at is None)
    rows = list(result.scores.all())
    typed = typed or EnteredReview.of(earlier)
    outcomes = tuple(output.outcomes or ())
    steps = output.trace
    has_both = bool(case.expected_output and output.text)
    return ReviewPage(
        item=item,
        run=run,
        case=case,
        result=result,
        url=result_url(run, case.key, result.repetition),
        is_hidden=is_hidden,
        is_demanded=is_demanded,
        is_skipped=item.skips.filter(reviewer=user).exists() if may_decide else False,
        why=tuple(why for why in item.why if why in NEUTRAL_REASONS or not is_hidden),
        turns=conversation(case, output),
        output_size=len(output.text),
        output_text=output.text[:MAX_SHOWN_LENGTH],
        removal_message=output.removal_message,
        diff=text_diff(case.expected_output, output.text) if has_both else None,
        files=result_files(result),
        outcomes=outcome_rows(case, outcomes, typed, is_hidden=is_hidden),
        labels=label_rows(rows, typed, is_hidden=is_hidden),
        steps=None if steps is None else tuple(cut_step(step) for step in steps[:MAX_STEPS]),
        step_count=len(steps or ()),
        judge=None if is_hidden else judge_panel(result, plan, rows, output),
        typed=typed,
        mine=mine,
        opinions=() if is_hidden or not (mine or item.closed_at) else tuple(standing),
        consensus=combine_decisions(
            [Verdict(entry.verdict) for entry in reversed(standing)], plan.policy.review_reviewers
        ),
        decided=len(standing),
        causes=_causes(run) if may_decide else (),
        identical=services.identical_items(item, user, query)
        if may_decide and item.closed_at is None and mine is None
        else (),
    )


def _causes(run: Run) -> tuple[str, ...]:
    """Return the causes of failure named in reviews of the suite, the most frequent first."""
    reviews = Review.objects.filter(result__run__suite=run.suite_id).exclude(tags=[])
    tag_lists = reviews.order_by("-id").values_list("tags", flat=True)[:READ_REVIEWS]
    counted = Counter(tag for tags in tag_lists for tag in tags)
    return tuple(tag for tag, _ in counted.most_common(MAX_CAUSES))

"""One output under review: what a person needs to decide on it, and what the machine said, unless that is hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from evaluators.scoring.types import Verdict
from runs.models import Case, Result, ResultOutput, Review, ReviewItem, Run
from runs.models.review_queue import ENDED
from runs.plan import read_plan
from runs.reports.conversation import LONGEST_SHOWN, Turns, conversation, cut_step
from runs.reports.repetition_marks import result_url
from runs.reports.result_files import LeftFile, result_files
from runs.reports.review_judge import JudgePanel, judge_panel
from runs.reports.review_rows import LabelRow, OutcomeRow, Typed, label_rows, outcome_rows
from runs.reports.text_diff import DiffLine, text_diff
from runs.reviewing import RULE, Reason, Settled, settle

MOST_STEPS = 300
MOST_CAUSES = 30
READ_REVIEWS = 300
# What brought an output in and says nothing of how the machine decided on it.
SAYS_NOTHING = (Reason.ASKED_FOR, Reason.VERDICT_LIKE)
HEAVY = ("result__run__summary", "result__run__leaf_scores")


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """Everything the deciding page shows of one item.

    `judge` is None, and `opinions` are empty, while they are hidden from this person. `is_demanded` tells whether
    the suite hides them. `mine` is the person's decision that stands.
    """

    item: ReviewItem
    run: Run
    case: Case
    result: Result
    url: str
    is_hidden: bool
    is_demanded: bool
    is_skipped: bool
    why: tuple[Reason, ...]
    turns: Turns
    output_size: int
    output_text: str
    diff: tuple[DiffLine, ...] | None
    files: tuple[LeftFile, ...]
    outcomes: tuple[OutcomeRow, ...]
    labels: tuple[LabelRow, ...]
    steps: tuple[Mapping[str, Any], ...] | None
    step_count: int
    judge: JudgePanel | None
    typed: Typed
    mine: Review | None
    opinions: tuple[Review, ...]
    settled: Settled
    decided: int
    causes: tuple[str, ...]
    rule: str = RULE

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
        """Return the expected output as far as a page shows it."""
        return self.case.expected_output[:LONGEST_SHOWN]

    @property
    def outcomes_met(self) -> int:
        """Count the outcomes that the machine found met."""
        return sum(row.state == Verdict.PASS for row in self.outcomes)

    @property
    def outcomes_words(self) -> str:
        """Say how many of the expected outcomes were met."""
        return f"{self.outcomes_met} of {len(self.outcomes)} met"

    @property
    def is_judged(self) -> bool:
        """Tell whether it is shown what the machine found of each outcome."""
        return any(row.state for row in self.outcomes)

    @property
    def is_ended(self) -> bool:
        """Tell whether there is something to decide on."""
        return self.result.status in ENDED

    @property
    def wants_several(self) -> bool:
        """Tell whether more than one person decides."""
        return max(self.settled.wanted, self.decided) > 1


def items_for_review() -> QuerySet[ReviewItem]:
    """Return the items of the queue with what a page shows of each read along."""
    items = ReviewItem.objects.select_related(
        "result__case", "result__output", "result__run__suite", "reserved_by", "assigned_to"
    )
    return items.defer(*HEAVY)


def item_of_result(result: Result) -> ReviewItem | None:
    """Return the item of a result in the queue, decided or not; None for one that never entered it."""
    people = ReviewItem.objects.select_related("reserved_by", "assigned_to")
    return people.filter(result=result).first()


def review_page(
    item: ReviewItem,
    user: User,
    *,
    may_decide: bool = True,
    hides_judge: bool = False,
    typed: Typed | None = None,
) -> ReviewPage:
    """Return what a person is shown of an item.

    With `hides_judge`, or when the run's suite demands it, nothing of the machine is in it until this person has
    decided. Raises UnreadableSnapshotError for a run of another version.
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
    standing = [one for one in reviews if one.withdrawn_at is None and one.stale_at is None]
    mine = next((one for one in standing if one.reviewer_id == user.pk), None)
    earlier = next((one for one in reviews if one.reviewer_id == user.pk), None)
    is_demanded = plan.policy.review_blind
    is_asked = is_demanded or (hides_judge and may_decide)
    is_hidden = is_asked and mine is None and (may_decide or item.closed_at is None)
    rows = list(result.scores.all())
    typed = typed or Typed.of(earlier)
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
        why=tuple(why for why in item.why if why in SAYS_NOTHING or not is_hidden),
        turns=conversation(case, output),
        output_size=len(output.text),
        output_text=output.text[:LONGEST_SHOWN],
        diff=text_diff(case.expected_output, output.text) if has_both else None,
        files=result_files(result),
        outcomes=outcome_rows(case, outcomes, typed, is_hidden=is_hidden),
        labels=label_rows(rows, typed, is_hidden=is_hidden),
        steps=None if steps is None else tuple(cut_step(step) for step in steps[:MOST_STEPS]),
        step_count=len(steps or ()),
        judge=None if is_hidden else judge_panel(result, plan, rows, outcomes),
        typed=typed,
        mine=mine,
        opinions=() if is_hidden or not (mine or item.closed_at) else tuple(standing),
        settled=settle(
            [Verdict(one.verdict) for one in reversed(standing)], plan.policy.review_reviewers
        ),
        decided=len(standing),
        causes=_causes(run) if may_decide else (),
    )


def _causes(run: Run) -> tuple[str, ...]:
    """Return the causes of failure that reviews of the suite named, the most frequent first."""
    reviews = Review.objects.filter(result__run__suite=run.suite_id).exclude(tags=[])
    said = reviews.order_by("-id").values_list("tags", flat=True)[:READ_REVIEWS]
    counted = Counter(tag for tags in said for tag in tags)
    return tuple(tag for tag, _ in counted.most_common(MOST_CAUSES))

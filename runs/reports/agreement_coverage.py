"""What the reviewed executions stand for: how many there were, were drawn and decided, by the machine's verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from evaluators.templatetags.figures import counted, thousands
from runs.models import Result
from runs.models.review_queue import ENDED
from runs.reviewing import VERDICTS

PLURALS = {"pass": "passes", "borderline": "borderline executions", "fail": "fails"}


@dataclass(frozen=True, slots=True)
class Covered:
    """The executions of one verdict: all, those the rules brought in, those picked by hand, and the decided ones."""

    verdict: str
    total: int
    drawn: int
    picked: int
    decided: int

    @property
    def decided_drawn_none(self) -> bool:
        """Tell whether the figures say nothing of this verdict though there are executions of it."""
        return self.total > 0 and self.drawn == 0


def coverage(runs: Collection[int]) -> list[Covered]:
    """Return it for pass, borderline and fail over these runs, by one query; a decision that is withdrawn is none."""
    item = "review_item"
    rows = (
        Result.objects.filter(run__in=runs, status__in=ENDED)
        .order_by()
        .values_list("verdict")
        .annotate(
            total=Count("pk"),
            drawn=Count(item, filter=Q(review_item__sampling_rate__isnull=False)),
            picked=Count(item, filter=Q(review_item__sampling_rate__isnull=True)),
            decided=Count(item, filter=Q(review_item__closed_at__isnull=False)),
        )
    )
    found = {verdict: counts for verdict, *counts in rows}
    return [Covered(verdict, *found.get(verdict, (0, 0, 0, 0))) for verdict in VERDICTS[::-1]]


def coverage_words(covered: Sequence[Covered], picked: int) -> list[str]:
    """Return what the figures stand for and what they leave out, in sentences."""
    return [*_words(covered, picked)]


def _words(covered: Sequence[Covered], picked: int) -> Iterator[str]:
    yield (
        "Each decision counts for as many executions as it was drawn from: one of a random audit of 5% stands "
        "for 20, one that a rule always brings in stands for itself."
    )
    for one in covered:
        if one.decided_drawn_none and one.verdict != "borderline":
            what = PLURALS[one.verdict]
            yield (
                f"Of {counted(one.total, f'{one.verdict},{what}')} none was drawn, so the figures say nothing of "
                f"{what}: a wrong one would not be seen. A random audit of {what}, in the settings of the suite, "
                "brings some in."
            )
    if waiting := sum(one.drawn + one.picked - one.decided for one in covered):
        yield (
            f"{thousands(waiting)} in the queue {'waits' if waiting == 1 else 'wait'} for a decision yet; the "
            "figures take them to be like the decided ones."
        )
    if picked:
        was = "was" if picked == 1 else "were"
        yield (
            f"{counted(picked, 'decision')} {was} on executions picked by hand. Nobody knows what they stand for: "
            "they count in the matrix, not in the shares and kappa."
        )

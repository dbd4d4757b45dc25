"""What each review rule of a suite brought into the queue by the suite's latest run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.templatetags import figures
from runs.models import ReviewItem, Run, RunStatus, Suite

RULE = "review_"


@dataclass(frozen=True, slots=True)
class Entered:
    """The results of one run in the review queue, counted by the reason they entered by."""

    run: int
    executions: int
    by_reason: Mapping[str, int]

    def words(self, rule: str) -> str:
        """Return how many executions a rule of the policy brought in, of how many."""
        count = figures.thousands(self.by_reason.get(rule.removeprefix(RULE), 0))
        return f"{count} of {figures.counted(self.executions, 'execution')} in run #{self.run}"


def entered_by_rule(suite: Suite) -> Entered | None:
    """Return it for the latest completed run that is no other scored again; None without one."""
    runs = Run.objects.filter(suite=suite, status=RunStatus.COMPLETED, source_run=None)
    run = runs.order_by("-number").only("number").first()
    if run is None:
        return None
    items = ReviewItem.objects.filter(result__run=run).values_list("reasons", flat=True)
    counts = Counter(reason for reasons in items.iterator() for reason in reasons.split())
    return Entered(run.number, run.results.count(), counts)

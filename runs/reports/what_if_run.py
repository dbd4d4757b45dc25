"""What a reader has to know of a run that is asked what if: how it ended, and which of its cases are as they were."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, Q

from evaluators.templatetags.figures import counted, thousands
from runs.models import Case, Run, RunStatus
from runs.what_if import Side

ENDS = {
    RunStatus.STOPPED: "was cancelled before its end",
    RunStatus.BUDGET_REACHED: "stopped at its budget",
    RunStatus.FAILED: "failed before its end",
}


@dataclass(frozen=True, slots=True)
class CasesSince:
    """Cases of a run that the suite has otherwise by now or not at all, of `total`, and cases it did not have."""

    total: int
    changed: int
    gone: int
    added: int

    @property
    def words(self) -> str:
        """Say what differs, "" where nothing does."""
        found = [
            f"{thousands(count)} {words[count != 1]}"
            for count, words in (
                (self.changed, ("has changed since", "have changed since")),
                (self.gone, ("is not in the suite now", "are not in the suite now")),
            )
            if count
        ]
        said = []
        if found:
            said.append(
                f"Of its {counted(self.total, 'case')} {' and '.join(found)}; here each is as it was run."
            )
        if self.added:
            verb = "was" if self.added == 1 else "were"
            said.append(f"{counted(self.added, 'case')} of the suite {verb} not in it.")
        return " ".join(said)


def cases_since(run: Run) -> CasesSince:
    """Return how the cases of a run stand to those of its suite today; two queries."""
    now = Case.objects.filter(suite=OuterRef("suite"), key=OuterRef("key"), is_current=True)
    ran = Case.objects.filter(pk__in=run.results.order_by().values("case_id"))
    older = ran.filter(is_current=False).annotate(is_known=Exists(now)).order_by()
    past = older.aggregate(all=Count("pk"), changed=Count("pk", filter=Q(is_known=True)))
    current = Case.objects.filter(suite=run.suite_id, is_current=True).count()
    known = run.case_count - past["all"] + past["changed"]
    return CasesSince(
        total=run.case_count,
        changed=past["changed"],
        gone=past["all"] - past["changed"],
        added=max(current - known, 0),
    )


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """The end of a run that did not come to its own: what happened, and how much of it has no result."""

    title: str
    text: str


def early_end(run: Run, side: Side) -> EarlyEnd | None:
    """Return how a run ended early and what it lacks; None for a completed one (SCORING §8)."""
    if run.status not in ENDS:
        return None
    left = side.executions - side.scored - side.errors
    verb = "has" if left == 1 else "have"
    text = (
        f"{thousands(left)} of {counted(side.executions, 'execution')} {verb} no result. "
        if left
        else ""
    )
    title = f"Run #{run.number} {ENDS[RunStatus(run.status)]}."
    return EarlyEnd(title, f"{text}Its gates are not judged, whatever the rules say.")

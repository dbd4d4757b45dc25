"""A finished run under edited rules, as the panel of the editor and the what-if page show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, Q

from evaluators.scoring.tree import EvaluatorSpec, validate
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, thousands
from runs.engine.plan import read_plan
from runs.lists import read_integer
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Case, Suite, SuiteDraft
from runs.results.run_page import run_changes
from runs.running.rules import Origins, with_own_samples, without_samples
from runs.specs.suites import SuiteSpec
from runs.suites.differences import match_evaluators
from runs.what_if.asking import WhatIf, WhatIfSide
from runs.what_if.changes import RuleSet, read_origins
from runs.what_if.panel import (
    SHOWN_ALONGSIDE,
    FigureRow,
    FlipRow,
    GateChange,
    ScoreHistogram,
    Unanswered,
    by_harm,
    distribution,
    figure_rows,
    flip_rows,
    gate_changes,
    score_histogram,
    unanswered,
)
from runs.what_if.stored import ask

ENDS = {
    RunStatus.STOPPED: "was cancelled before its end",
    RunStatus.BUDGET_REACHED: "stopped at its budget",
    RunStatus.FAILED: "failed before its end",
}


@dataclass(frozen=True, slots=True)
class CasesSince:
    """How many of the `total` cases of a run the suite has changed, dropped and added since."""

    total: int
    changed: int
    gone: int
    added: int

    @property
    def words(self) -> str:
        """Describe the differences, "" for none."""
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
    """Compare the cases of a run with the present cases of its suite; two queries."""
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
    """The early end of a run: what happened, and how much of it has no result."""

    title: str
    text: str


def early_end(run: Run, side: WhatIfSide) -> EarlyEnd | None:
    """Return the early end of a run; None for a completed run (SCORING §8)."""
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
    return EarlyEnd(title, f"{text}Its gates are not judged under any rules.")


MAX_OFFERED = 20
HEAVY = ("snapshot", "leaf_scores")


def what_if_of(run: Run, rules: RuleSet, *, origins: Origins = None) -> WhatIf:
    """Return the run by its own rules and by these: five queries at most, one more for each stretch of long outcomes.

    `origins` are by path of the new tree the paths in the run, None for an evaluator that is new.
    Raises RunNotEndedError for a run that is active, and DomainError for invalid rules.
    """
    return ask(run, rules, origins=origins).answer()


def edited_rules(
    run: Run,
    content: Mapping[str, Any],
    *,
    base: SuiteSpec | None = None,
    files: Mapping[str, str] | None = None,
) -> tuple[RuleSet, Origins]:
    """Return the rules that edited content of a suite makes, and where its evaluators came from.

    The run's own judge stays unless the content names another than `base`, the version it was
    edited from: a run may have been started with a judge of its own. Raises DomainError for a
    policy or tree that cannot be.
    """
    spec = SuiteSpec.model_validate(content)
    validate(spec.evaluators)
    plan = read_plan(run.snapshot)
    rules = RuleSet(
        policy=spec.policy,
        root=spec.evaluators,
        judge=plan.judge if base is None or spec.judge == base.judge else spec.judge,
        files=plan.files if files is None else files,
    )
    return rules, read_origins(content["evaluators"])


def askable_runs(suite: Suite) -> list[Run]:
    """Return the last ended runs of the suite that have results, newest first; one query."""
    ended = suite.runs.exclude(status__in=ACTIVE_RUN_STATUSES).filter(done_count__gt=0)
    return list(ended.defer(*HEAVY).order_by("-number")[:MAX_OFFERED])


@dataclass(frozen=True, slots=True)
class WhatIfFigures:
    """The answer as a page shows it: both distributions, figures, gates, histogram and the worst flips.

    `end` tells of a run that ended early, `cases` which of its cases the suite has otherwise by now.
    """

    found: WhatIf
    before: Mapping[str, int]
    after: Mapping[str, int]
    figures: Sequence[FigureRow]
    gates: Sequence[GateChange]
    histogram: ScoreHistogram
    flips: Sequence[FlipRow]
    unanswered: Sequence[Unanswered]
    end: EarlyEnd | None
    cases: CasesSince

    @property
    def is_told(self) -> bool:
        """Tell whether no verdict follows from the rules of the run, as when a file has all verdicts."""
        return bool(self.found.fixed) and self.found.fixed >= self.found.before.scored

    @property
    def carried_out(self) -> int:
        """Return how many executions have something that can be scored again, or an error to keep."""
        return self.found.before.scored + self.found.before.errors

    @property
    def more(self) -> int:
        """Return how many flips there are beyond those beside the editor."""
        return len(self.found.flips) - len(self.flips)


@dataclass(frozen=True, slots=True)
class WhatIfPage:
    """A question to a run. `problems` say why there is no answer; `is_changed` whether the draft changes rules.

    `rules_name` names the rules that are asked for: the draft of a version, or that version.
    """

    suite: Suite
    stamp: str
    base_version: int
    is_changed: bool
    runs: Sequence[Run]
    run: Run | None
    problems: Sequence[str]
    answer: WhatIfFigures | None

    @property
    def rules_name(self) -> str:
        """Return the name of the new rules."""
        return f"draft of v{self.base_version}" if self.is_changed else f"v{self.base_version}"

    @property
    def own_changes(self) -> Sequence[str]:
        """Return what the run did otherwise than its suite and the new side does not, samples of judges apart."""
        return () if self.run is None else run_changes(without_samples(self.run.snapshot))

    @property
    def can_score(self) -> bool:
        """Tell whether a new run can be made from the stored scores."""
        found = self.answer.found if self.answer else None
        if found is None or not found.is_exact or self.suite.archived_at:
            return False
        # Errors of one evaluator may have left every result without a score, and others with theirs.
        return max(found.before.scored, found.after.scored) > found.fixed


def what_if_page(
    draft: SuiteDraft,
    base: SuiteSpec,
    content: Mapping[str, Any] | None,
    *,
    run: str,
    reader: User,
    problems: Sequence[str] = (),
) -> WhatIfPage:
    """Return what a run of the suite would come to under content that was edited from `base`.

    `run` is the number asked for, "" for the newest completed one. Without content, `problems` say why.
    """
    suite = draft.suite
    runs, picked, missing = pick_run(suite, run)
    reasons = [*problems, *missing]
    answer = None
    if picked is not None and content is not None and not reasons:
        try:
            answer = _figures(picked, *rules_for(picked, base, content), reader)
        except DomainError as refusal:
            reasons.append(str(refusal))
    return WhatIfPage(
        suite=suite,
        stamp=draft.stamp,
        base_version=draft.base_version,
        is_changed=content is None or changes_rules(base, content),
        runs=runs,
        run=picked,
        problems=reasons,
        answer=answer,
    )


def pick_run(suite: Suite, number: str) -> tuple[list[Run], Run | None, list[str]]:
    """Return the runs that can be asked, the one that is meant, and why there is none."""
    offered = askable_runs(suite)
    if not number:
        completed = (run for run in offered if run.status == RunStatus.COMPLETED)
        return offered, next(completed, offered[0] if offered else None), []
    read = read_integer(number)
    found = suite.runs.filter(number=read).first() if read is not None else None
    if found is None:
        return offered, None, [f"There is no run #{number} of this suite. Choose another."]
    if found.status in ACTIVE_RUN_STATUSES:
        reason = f"Run #{number} is still running. Its scores are complete when it ends."
        return [found, *offered], found, [reason]
    is_offered = any(run.pk == found.pk for run in offered)
    return offered if is_offered else [*offered, found], found, []


def rules_for(run: Run, base: SuiteSpec, content: Mapping[str, Any]) -> tuple[RuleSet, Origins]:
    """Return edited rules as a run can be asked by them, its evaluators found where they stood in it.

    Judges that were asked more often for this run alone stay so. Raises DomainError for a policy or tree
    that cannot be.
    """
    files = dict(run.suite.files.values_list("path", "content_id"))
    rules, origins = edited_rules(run, content, base=base, files=files)
    before, ran = base.evaluators, EvaluatorSpec.model_validate(run.snapshot["evaluators"])
    if origins is not None and before != ran:
        pairs = match_evaluators(before, ran)
        origins = {path: pairs.get(origin or "") for path, origin in origins.items()}
    return replace(rules, root=with_own_samples(rules.root, origins, run.snapshot)), origins


def changes_rules(base: SuiteSpec, content: Mapping[str, Any]) -> bool:
    """Tell whether edited content decides verdicts by other rules than the version it was edited from."""
    spec = SuiteSpec.model_validate(content)
    return any(
        getattr(spec, name) != getattr(base, name) for name in ("evaluators", "policy", "judge")
    )


def _figures(run: Run, rules: RuleSet, origins: Origins, reader: User) -> WhatIfFigures:
    found = what_if_of(run, rules, origins=origins)
    scale = rules.policy.scale
    return WhatIfFigures(
        found=found,
        before=distribution(found.before),
        after=distribution(found.after),
        figures=figure_rows(found, scale),
        gates=gate_changes(found),
        histogram=score_histogram(found.histogram, scale),
        flips=flip_rows(by_harm(found.flips)[:SHOWN_ALONGSIDE], run, reader),
        unanswered=unanswered(found.stale),
        end=early_end(run, found.before),
        cases=cases_since(run),
    )

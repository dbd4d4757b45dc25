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
    FlipMatrix,
    FlipQuery,
    FlipRow,
    GateChange,
    ScoreHistogram,
    Unanswered,
    change_words,
    distribution,
    figure_rows,
    filter_flips,
    flip_matrix,
    flip_rows,
    gate_changes,
    score_histogram,
    unanswered_evaluators,
)
from runs.what_if.stored import ask

ENDS = {
    RunStatus.STOPPED: "was cancelled before its end",
    RunStatus.BUDGET_REACHED: "stopped at its budget",
    RunStatus.FAILED: "failed before its end",
}


@dataclass(frozen=True, slots=True)
class CasesSince:
    """The cases of a run, and how many of them the suite has changed, removed and added since."""

    total: int
    changed: int
    gone: int
    added: int

    @property
    def text(self) -> str:
        """Describe the differences, "" for none."""
        counts = [
            f"{thousands(count)} {words[count != 1]}"
            for count, words in (
                (self.changed, ("has changed since", "have changed since")),
                (self.gone, ("is not in the suite now", "are not in the suite now")),
            )
            if count
        ]
        sentences = []
        if counts:
            sentences.append(
                f"Of its {counted(self.total, 'case')} {' and '.join(counts)}; here each is as it was run."
            )
        if self.added:
            verb = "was" if self.added == 1 else "were"
            sentences.append(f"{counted(self.added, 'case')} of the suite {verb} not in it.")
        return " ".join(sentences)


def cases_since(run: Run) -> CasesSince:
    """Compare the cases of a run with the current cases of its suite; two queries."""
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
    """The early end of a run: what happened, and how many results have no verdict."""

    title: str
    text: str


def early_end(run: Run, side: WhatIfSide) -> EarlyEnd | None:
    """Return the early end of a run; None for a completed run (SCORING §8)."""
    if run.status not in ENDS:
        return None
    left = side.executions - side.scored - side.errors
    verb = "has" if left == 1 else "have"
    text = (
        f"{thousands(left)} of {counted(side.executions, 'result')} {verb} no verdict. "
        if left
        else ""
    )
    title = f"Run #{run.number} {ENDS[RunStatus(run.status)]}."
    return EarlyEnd(title, f"{text}Its gates are not evaluated under any rules.")


MAX_OFFERED = 20
HEAVY = ("snapshot", "leaf_scores")


def answer_what_if(run: Run, rules: RuleSet, *, origins: Origins = None) -> WhatIf:
    """Return the run under its own rules and under these. At most five queries, and one per batch of long outcomes.

    `origins` are the paths of evaluators in the run by their new paths, None for a new evaluator.
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
    """Return the rules of edited content of a suite, and the origins of its evaluators.

    The judge of the run stays, since a run can have its own, unless the content has another judge than
    `base`, the version it was edited from. Raises DomainError for an invalid policy or tree.
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

    `flips` are those of the change that was asked for, of `listed` such flips. `end` describes the early end of a run,
    `cases` the differences between its cases and the suite's.
    """

    what_if: WhatIf
    before: Mapping[str, int]
    after: Mapping[str, int]
    figures: Sequence[FigureRow]
    gates: Sequence[GateChange]
    histogram: ScoreHistogram
    matrix: FlipMatrix
    change: str
    flips: Sequence[FlipRow]
    listed: int
    unanswered: Sequence[Unanswered]
    end: EarlyEnd | None
    cases: CasesSince

    @property
    def is_all_fixed(self) -> bool:
        """Tell whether all verdicts are fixed, such as those of an imported file."""
        return bool(self.what_if.fixed) and self.what_if.fixed >= self.what_if.before.scored

    @property
    def executed(self) -> int:
        """Return the number of results with a verdict or an error."""
        return self.what_if.before.scored + self.what_if.before.errors

    @property
    def more(self) -> int:
        """Return the number of flips that the editor does not list."""
        return self.listed - len(self.flips)

    @property
    def change_words(self) -> str:
        """Return the change that the list is filtered by as text, such as "Pass → fail"; "" for all."""
        return change_words(self.change) if self.change else ""


@dataclass(frozen=True, slots=True)
class WhatIfPage:
    """The page of a what-if. `problems` explain why there is no answer; `is_changed` tells whether the draft changes rules."""

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
        """Return the name of the new rules: the draft of a version, or that version."""
        return f"draft of v{self.base_version}" if self.is_changed else f"v{self.base_version}"

    @property
    def own_changes(self) -> Sequence[str]:
        """Return the run's own settings that the new rules do not have; both have its samples of judges."""
        return () if self.run is None else run_changes(without_samples(self.run.snapshot))

    @property
    def can_score(self) -> bool:
        """Tell whether a new run can be made from the stored scores."""
        what_if = self.answer.what_if if self.answer else None
        if what_if is None or not what_if.is_exact or self.suite.archived_at:
            return False
        # Fixed results do not count, since the rules did not score them.
        return max(what_if.before.scored, what_if.after.scored) > what_if.fixed


def what_if_page(
    draft: SuiteDraft,
    base: SuiteSpec,
    content: Mapping[str, Any] | None,
    *,
    query: FlipQuery,
    reader: User,
    problems: Sequence[str] = (),
) -> WhatIfPage:
    """Return the page for a run of the suite under content that was edited from `base`.

    Without a run in the query it is the newest completed one that asked a target. Without content, `problems` explain why.
    """
    suite = draft.suite
    runs, picked, missing = pick_run(suite, query.run)
    reasons = [*problems, *missing]
    answer = None
    if picked is not None and content is not None and not reasons:
        try:
            answer = _figures(picked, *rules_for(picked, base, content), query, reader)
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
    """Return the runs to choose from, the chosen one, and the reasons why it cannot be used."""
    offered = askable_runs(suite)
    if not number:
        completed = [run for run in offered if run.status == RunStatus.COMPLETED]
        # Runs that scored the outputs of another again come after those that asked a target, as on the suite's page.
        asked_target = [run for run in completed if run.source_run_id is None]
        return offered, next(iter(asked_target or completed or offered), None), []
    read = read_integer(number)
    chosen = suite.runs.filter(number=read).first() if read is not None else None
    if chosen is None:
        return offered, None, [f"There is no run #{number} of this suite. Choose another."]
    if chosen.status in ACTIVE_RUN_STATUSES:
        reason = f"Run #{number} is still running. Its scores are complete when it ends."
        return [chosen, *offered], chosen, [reason]
    is_offered = any(run.pk == chosen.pk for run in offered)
    return offered if is_offered else [*offered, chosen], chosen, []


def rules_for(run: Run, base: SuiteSpec, content: Mapping[str, Any]) -> tuple[RuleSet, Origins]:
    """Return the rules of edited content for a run, and the paths of their evaluators in that run.

    The run's own samples of judges stay. Raises DomainError for an invalid policy or tree.
    """
    files = dict(run.suite.files.values_list("path", "content_id"))
    rules, origins = edited_rules(run, content, base=base, files=files)
    before, ran = base.evaluators, EvaluatorSpec.model_validate(run.snapshot["evaluators"])
    if origins is not None and before != ran:
        pairs = match_evaluators(before, ran)
        origins = {path: pairs.get(origin or "") for path, origin in origins.items()}
    return replace(rules, root=with_own_samples(rules.root, origins, run.snapshot)), origins


def changes_rules(base: SuiteSpec, content: Mapping[str, Any]) -> bool:
    """Tell whether edited content has other rules than the version it was edited from."""
    spec = SuiteSpec.model_validate(content)
    return any(
        getattr(spec, name) != getattr(base, name) for name in ("evaluators", "policy", "judge")
    )


def _figures(
    run: Run, rules: RuleSet, origins: Origins, query: FlipQuery, reader: User
) -> WhatIfFigures:
    what_if = answer_what_if(run, rules, origins=origins)
    scale = rules.policy.scale
    flips = filter_flips(what_if, query)
    return WhatIfFigures(
        what_if=what_if,
        before=distribution(what_if.before),
        after=distribution(what_if.after),
        figures=figure_rows(what_if, scale),
        gates=gate_changes(what_if),
        histogram=score_histogram(what_if.histogram, scale),
        matrix=flip_matrix(what_if, query.change),
        change=query.change,
        flips=flip_rows(flips[:SHOWN_ALONGSIDE], run, reader, scale),
        listed=len(flips),
        unanswered=unanswered_evaluators(what_if.stale),
        end=early_end(run, what_if.before),
        cases=cases_since(run),
    )

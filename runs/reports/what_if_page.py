"""What a finished run would come to under edited rules, as the panel beside the editor and its page show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User

from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError
from runs.drafting import tree_of
from runs.drafting.matching import matched
from runs.models import ACTIVE_RUN_STATUSES, Run, RunStatus, Suite, SuiteDraft
from runs.reports.run_changes import run_changes
from runs.reports.score_histogram import ScoreHistogram, score_histogram
from runs.reports.what_if import askable_runs, edited_rules, what_if_of
from runs.reports.what_if_figures import (
    Figure,
    GateChange,
    Unanswered,
    distribution,
    figures_of,
    gates_of,
    unanswered,
)
from runs.reports.what_if_flips import SHOWN_BESIDE, FlipRow, by_harm, rows_of
from runs.reports.what_if_run import CasesSince, EarlyEnd, cases_since, early_end
from runs.rescoring.own_samples import with_own_samples, without_samples
from runs.what_if import Origins, RuleSet, WhatIf


@dataclass(frozen=True, slots=True)
class WhatIfFigures:
    """The answer as a page shows it: both distributions, figures, gates, histogram and the worst flips.

    `end` tells of a run that ended early, `cases` which of its cases the suite has otherwise by now.
    """

    found: WhatIf
    before: Mapping[str, int]
    after: Mapping[str, int]
    figures: Sequence[Figure]
    gates: Sequence[GateChange]
    histogram: ScoreHistogram
    flips: Sequence[FlipRow]
    unanswered: Sequence[Unanswered]
    end: EarlyEnd | None
    cases: CasesSince

    @property
    def is_told(self) -> bool:
        """Tell whether nothing of the run follows its own rules, as where a file told all verdicts."""
        return bool(self.found.told) and self.found.told >= self.found.before.scored

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
        """Return what the new side is called."""
        return f"draft of v{self.base_version}" if self.is_changed else f"v{self.base_version}"

    @property
    def own_changes(self) -> Sequence[str]:
        """Return what the run did otherwise than its suite and the new side does not, samples of judges apart."""
        return () if self.run is None else run_changes(without_samples(self.run.snapshot))

    @property
    def can_score(self) -> bool:
        """Tell whether a run can be made of the stored scores."""
        found = self.answer.found if self.answer else None
        if found is None or not found.is_exact or self.suite.archived_at:
            return False
        # Errors of one evaluator may have left every result without a score, and others with theirs.
        return max(found.before.scored, found.after.scored) > found.told


def what_if_page(
    draft: SuiteDraft,
    base: Mapping[str, Any],
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
    told = [*problems, *missing]
    answer = None
    if picked is not None and content is not None and not told:
        try:
            answer = _figures(picked, *rules_for(picked, base, content), reader)
        except DomainError as refusal:
            told.append(str(refusal))
    return WhatIfPage(
        suite=suite,
        stamp=draft.stamp,
        base_version=draft.base_version,
        is_changed=content is None or changes_rules(base, content),
        runs=runs,
        run=picked,
        problems=told,
        answer=answer,
    )


def pick_run(suite: Suite, number: str) -> tuple[list[Run], Run | None, list[str]]:
    """Return the runs that can be asked, the one that is meant, and why there is none."""
    offered = askable_runs(suite)
    if not number:
        completed = (run for run in offered if run.status == RunStatus.COMPLETED)
        return offered, next(completed, offered[0] if offered else None), []
    known = number.isdecimal()
    found = suite.runs.filter(number=int(number)).first() if known else None
    if found is None:
        return offered, None, [f"There is no run #{number} of this suite. Choose another."]
    if found.status in ACTIVE_RUN_STATUSES:
        reason = f"Run #{number} is still on. Its scores are complete when it ends."
        return [found, *offered], found, [reason]
    is_offered = any(run.pk == found.pk for run in offered)
    return offered if is_offered else [*offered, found], found, []


def rules_for(
    run: Run, base: Mapping[str, Any], content: Mapping[str, Any]
) -> tuple[RuleSet, Origins]:
    """Return edited rules as a run can be asked by them, its evaluators found where they stood in it.

    Judges that were asked more often for this run alone stay so. Raises DomainError for a policy or tree
    that cannot be.
    """
    files = dict(run.suite.files.values_list("path", "content_id"))
    rules, origins = edited_rules(run, content, base={**base, "files": files})
    before, ran = tree_of(base), Node.from_json(run.snapshot["evaluators"])
    if origins is not None and before != ran:
        pairs = matched(before, ran)
        origins = {path: pairs.get(origin or "") for path, origin in origins.items()}
    return replace(rules, root=with_own_samples(rules.root, origins, run.snapshot)), origins


def changes_rules(base: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Tell whether edited content decides verdicts by other rules than the version it was edited from."""
    if tree_of(content) != tree_of(base):
        return True
    return any(content[name] != base.get(name) for name in ("policy", "judge"))


def _figures(run: Run, rules: RuleSet, origins: Origins, reader: User) -> WhatIfFigures:
    found = what_if_of(run, rules, origins=origins)
    scale = rules.policy.scale
    return WhatIfFigures(
        found=found,
        before=distribution(found.before),
        after=distribution(found.after),
        figures=figures_of(found, scale),
        gates=gates_of(found),
        histogram=score_histogram(found.histogram, scale),
        flips=rows_of(by_harm(found.flips)[:SHOWN_BESIDE], run, reader),
        unanswered=unanswered(found.stale),
        end=early_end(run, found.before),
        cases=cases_since(run),
    )

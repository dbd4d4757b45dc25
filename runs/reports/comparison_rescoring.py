"""Whether two runs that are compared can be scored under one policy, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from runs.models import Run
from runs.services.scoring_alike import cannot_score_alike, has_rules_of

RIGHTS = ("runs.start_run", "runs.change_suite")
NOT_ALLOWED = "Editors and admins can score both under one policy."


@dataclass(frozen=True, slots=True)
class OneScoring:
    """A policy that both could be scored under: `like` names the side that has it."""

    like: str
    label: str


@dataclass(frozen=True, slots=True)
class Rescoring:
    """The policies that are offered, or the reason why none is; neither where the rules are the same."""

    choices: Sequence[OneScoring] = ()
    reason: str = ""


def rescoring_of(baseline: Run, candidate: Run, reader: User) -> Rescoring:
    """Return what is offered to a reader; no query."""
    if has_rules_of(baseline, candidate):
        return Rescoring()
    if reason := cannot_score_alike(baseline, candidate) or cannot_score_alike(candidate, baseline):
        return Rescoring(reason=reason)
    if not reader.has_perms(RIGHTS):
        return Rescoring(reason=NOT_ALLOWED)
    return Rescoring(
        [
            OneScoring(side, f"Score both under the policy of #{run.number}, v{run.suite_version}")
            for side, run in (("candidate", candidate), ("baseline", baseline))
        ]
    )

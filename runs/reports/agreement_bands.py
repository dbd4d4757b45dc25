"""Bands that agree better with people, beside those of the reader's draft."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from evaluators.scoring.policy import Policy
from runs.models import Suite, SuiteDraft
from runs.reviewing import Suggestion
from runs.services.drafts import draft_of, is_stored


@dataclass(frozen=True, slots=True)
class BandsPanel:
    """Better bands, and what the reader's draft has: `other` are its thresholds where they are not the suite's."""

    suggestion: Suggestion
    stamp: str
    other: tuple[float, float] | None
    is_in_draft: bool
    run: int


def bands_panel(
    suite: Suite, found: Suggestion | None, run: int, reader: User
) -> BandsPanel | None:
    """Return the panel, None without anything to suggest by; `run` is the one to open the what-if with, 0 for none."""
    if found is None:
        return None
    best = (found.best.pass_threshold, found.best.borderline_threshold)
    if not reader.has_perm("runs.change_suite") or suite.archived_at:
        return BandsPanel(found, "", None, is_in_draft=False, run=run)
    draft = draft_of(suite, reader)
    kept = bands_of(draft)
    present = (suite.pass_threshold, suite.borderline_threshold)
    other = kept if is_stored(draft) and kept != present and kept != best else None
    return BandsPanel(found, draft.stamp, other, kept == best, run)


def bands_of(draft: SuiteDraft) -> tuple[float, float]:
    """Return the thresholds of a draft, pass and borderline, 0 to 1."""
    policy = Policy.from_json(draft.content["policy"])
    return policy.pass_threshold, policy.borderline_threshold

"""A person's draft of a suite, as the panel beside every page that edits one shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.drafting.differences import compare_versions
from runs.models import SuiteDraft
from runs.reports.audit import Change, changes_between
from runs.services.draft_problems import DraftProblem, problems_of
from runs.services.drafts import is_stored
from runs.services.saving_drafts import conflict_of
from runs.services.version_audit import facts_of_change
from runs.versions import parts_of


@dataclass(frozen=True, slots=True)
class DraftPanel:
    """What differs from the suite, what keeps it from being saved, and what the version would be.

    `others` are who saved a version since the draft began that changed the same parts.
    """

    stamp: str
    is_begun: bool
    base_version: int
    next_version: int
    changes: Sequence[Change]
    problems: Sequence[DraftProblem]
    others: Sequence[str]

    @property
    def can_be_saved(self) -> bool:
        """Tell whether there is something to save and nothing in the way."""
        return bool(self.changes) and not self.problems and not self.others


def draft_panel(draft: SuiteDraft) -> DraftPanel:
    """Return the panel of a draft, stored or not."""
    suite = draft.suite
    conflict = conflict_of(draft)
    told = facts_of_change(compare_versions(parts_of(suite), draft.content))
    theirs = conflict.theirs if conflict else ()
    return DraftPanel(
        stamp=draft.stamp,
        is_begun=is_stored(draft),
        base_version=draft.base_version,
        next_version=suite.version + 1,
        changes=changes_between(told.before, told.after),
        problems=problems_of(suite, draft.content) if is_stored(draft) else (),
        others=tuple(
            version.author.get_username() if version.author else "somebody" for version in theirs
        ),
    )

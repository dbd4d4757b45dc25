"""A draft becomes the next version of its suite, unless somebody else changed the suite meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.drafting import Content, check, edited_parts, tree_of
from runs.drafting.content import policy_of
from runs.drafting.differences import compare_versions
from runs.drafting.merging import Merge, merge_of, merged
from runs.models import Suite, SuiteDraft, SuiteVersion
from runs.services.draft_problems import InvalidDraftError, problems_of
from runs.services.drafts import DraftChangedError, held_draft, is_stored
from runs.services.version_audit import facts_of_change
from runs.versions import editable, kept_of, locked, next_version, parts_of, put_parts, write_down


class NothingToSaveError(DomainError):
    """A draft is what the suite is already."""

    code = "nothing_to_save"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A draft and what others saved since the version it is based on.

    `theirs` are their versions that change more than cases, newest first: who, when and with which note.
    `version` is the one the draft would be brought up to.
    """

    draft: SuiteDraft
    base: SuiteVersion | None
    theirs: Sequence[SuiteVersion]
    version: int
    merge: Merge


class DraftConflictError(DomainError):
    """A draft cannot be saved, as the suite was changed since; `conflict` holds both. Nothing is lost."""

    code = "draft_conflict"

    def __init__(self, conflict: Conflict) -> None:
        """Say who changed the suite and what to do."""
        self.conflict = conflict
        latest = conflict.theirs[0] if conflict.theirs else None
        author = latest.author.get_username() if latest and latest.author else "somebody else"
        super().__init__(
            f"{author} saved version {conflict.version} while you were editing version "
            f"{conflict.draft.base_version}. Your draft is kept. Decide what of the two is to stay."
        )


def save_draft(draft: SuiteDraft, stamp: str, *, note: str = "") -> SuiteVersion:
    """Make the draft the next version of its suite and return that; the draft is gone then.

    Without a note the version says what changed. Raises DraftConflictError when the suite was changed
    since, cases apart, InvalidDraftError with everything that is wrong, NothingToSaveError,
    SuiteArchivedError and DraftChangedError. Whatever is raised, suite and draft stay as they were.
    """
    with transaction.atomic():
        suite = editable(draft.suite)
        held = held_draft(draft, stamp)
        held.suite = suite
        if is_stored(held) and (conflict := conflict_of(held)):
            raise DraftConflictError(conflict)
        before, mine = parts_of(suite), edited_parts(held.content)
        if not is_stored(held) or mine == edited_parts(before):
            raise NothingToSaveError(
                f"Your draft says what version {suite.version} says; there is nothing to save."
            )
        if problems := problems_of(suite, held.content):
            raise InvalidDraftError(tuple(problems))
        version = _stored(suite, held, before, note)
        if is_stored(held):
            held.delete()
    draft.suite.version = version.number
    return version


def conflict_of(draft: SuiteDraft) -> Conflict | None:
    """Return what stands between the draft and its being saved; None when nothing does."""
    suite = draft.suite
    if draft.base_version == suite.version:
        return None
    base = suite.versions.filter(number=draft.base_version).first()
    now = parts_of(suite)
    before = base.content if base else now
    if edited_parts(before) == edited_parts(now):
        return None
    return Conflict(
        draft=draft,
        base=base,
        theirs=_theirs(suite, draft.base_version, before),
        version=suite.version,
        merge=merge_of(before, now, draft.content),
    )


def rebase_draft(
    draft: SuiteDraft, stamp: str, *, version: int, choices: Mapping[str, str]
) -> SuiteDraft:
    """Bring a draft up to the suite's version: both sides' changes, and of what both changed the chosen.

    `version` is the one the choices were made against; `choices` has "mine" or "theirs" for the key
    of every open field. It changes the draft alone. Raises DraftChangedError when the suite moved on
    again, UndecidedError, and TreeError or ScoreOutOfRangeError when the choices do not go together.
    """
    with transaction.atomic():
        suite = locked(draft.suite)
        held = held_draft(draft, stamp)
        held.suite = suite
        if suite.version != version:
            raise DraftChangedError(
                f"Version {suite.version} was saved while you decided. Your draft is as it was; look at "
                "what differs now and decide again."
            )
        conflict = conflict_of(held)
        if conflict is not None:
            base = conflict.base.content if conflict.base else parts_of(suite)
            content = merged(base, parts_of(suite), held.content, choices)
            check(content)
            held.content = content
        held.base_version = suite.version
        held.revision += 1
        held.save()
    return held


def _stored(suite: Suite, draft: SuiteDraft, before: Content, note: str) -> SuiteVersion:
    content = draft.content
    judge = LanguageModel.objects.get(slug=content["judge"]) if content["judge"] else None
    columns: dict[str, Any] = {
        "title": content["title"],
        "description": content["description"],
        "tags": list(content["tags"]),
        "judge": judge,
    }
    put_parts(suite, policy_of(content), tree_of(content), columns)
    old = suite.version
    kept = kept_of(suite)
    difference = compare_versions(before, edited_parts(content))
    said = " ".join(note.split()) or ", ".join(difference.words)
    version = next_version(suite, kept, author=draft.author, note=said)
    told = facts_of_change(difference)
    write_down(
        suite,
        "save",
        actor=draft.author,
        before={"version": old, **told.before},
        after={"version": version.number, "note": version.note, **told.after},
    )
    return version


def _theirs(suite: Suite, base: int, before: Content) -> Sequence[SuiteVersion]:
    rows = suite.versions.filter(number__gt=base).select_related("author").order_by("number")
    found: list[SuiteVersion] = []
    for version in rows:
        if edited_parts(version.content) != edited_parts(before):
            found.append(version)
        before = version.content
    return found[::-1]

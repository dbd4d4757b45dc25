"""Cases of a suite, edited: each change is a revision, and all of an hour gather in one version.

Every function takes the suite's row first, so that two people never change it at once, and records
the version and the audit in the same transaction. Results keep pointing at the revision they ran.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.scoring.types import DomainError
from runs.exports import case_content
from runs.formats import CaseContent
from runs.imports.case_columns import columns_of
from runs.models import Case, Result, Suite
from runs.plan import content_hash
from runs.services.case_checks import check_cases
from runs.services.case_storing import (
    BATCH,
    current_case,
    editable,
    next_place,
    recorded,
    revision_row,
    says,
    store_revisions,
)


class CaseKeyTakenError(DomainError):
    """Another case of the suite has the key."""

    code = "case_key_taken"


class CaseKeyInUseError(DomainError):
    """A case that was run keeps its key: its results are found by it."""

    code = "case_key_in_use"


class UnknownCaseError(DomainError):
    """The suite has no such case, or none any more."""

    code = "unknown_case"


class CaseChangedError(DomainError):
    """Somebody saved the case since the form was made: what it was, what it is, and what was entered.

    `theirs` is None when the case was removed meanwhile.
    """

    code = "case_changed"

    def __init__(self, base: Case | None, theirs: Case | None, mine: CaseContent) -> None:
        """Keep the three."""
        self.base, self.theirs, self.mine = base, theirs, mine
        became = f"is at revision {theirs.revision} now" if theirs else "was removed meanwhile"
        super().__init__(f"The case {became}. Nothing was saved.")


def add_case(suite: Suite, content: CaseContent, *, by: User | None) -> Case:
    """Return a new case behind the others; the one there is when it says the very same already.

    Raises SuiteArchivedError, InvalidCaseError and CaseKeyTakenError.
    """
    with transaction.atomic():
        held = editable(suite)
        check_cases(held, (content,))
        now = current_case(held, content.key)
        if now is not None:
            if says(now, content):
                return now
            raise CaseKeyTakenError(f"There is a case “{content.key}” already. Choose another key.")
        case = _made(held, content, next_place(held), None)
        recorded(suite, held, by)
    return case


def change_case(
    suite: Suite, key: str, content: CaseContent, *, base_revision: int, by: User | None
) -> Case:
    """Return the case as it was entered, in a new revision; the current one when that says it already.

    A key can change until the case has a result. The revisions under the old key then stay for the
    versions that hold them, and the new key begins where it is free. Raises CaseChangedError when the
    case is not at `base_revision` any more, and SuiteArchivedError, InvalidCaseError,
    CaseKeyTakenError, CaseKeyInUseError.
    """
    with transaction.atomic():
        held = editable(suite)
        check_cases(held, (content,))
        there = current_case(held, content.key)
        if there is not None and says(there, content):
            return there
        now = there if content.key == key else current_case(held, key)
        if now is None or now.revision != base_revision:
            base = held.cases.filter(key=key, revision=base_revision).first()
            raise CaseChangedError(base, now, content)
        if content.key != key:
            _check_new_key(held, key, content.key, is_taken=there is not None)
        case = _made(held, content, now.position, now)
        recorded(suite, held, by)
    return case


def bring_back(
    suite: Suite, key: str, *, revision: int, base_revision: int | None, by: User | None
) -> Case:
    """Make an earlier revision the current one again and return it; asked twice, it is so already.

    `base_revision` is the current one the question was asked at, None for a removed case. Raises
    CaseChangedError, UnknownCaseError and SuiteArchivedError.
    """
    with transaction.atomic():
        held = editable(suite)
        wanted = held.cases.filter(key=key, revision=revision).first()
        if wanted is None:
            raise UnknownCaseError(f"The case {key} has no revision {revision}.")
        if wanted.is_current:
            return wanted
        now = current_case(held, key)
        if (now.revision if now else None) != base_revision:
            raise CaseChangedError(wanted, now, case_content(wanted))
        if now is not None:
            held.cases.filter(pk=now.pk).update(is_current=False)
        wanted.is_current, wanted.position = True, now.position if now else wanted.position
        wanted.save(update_fields=["is_current", "position"])
        recorded(suite, held, by)
    return wanted


def remove_case(suite: Suite, key: str, *, base_revision: int | None, by: User | None) -> None:
    """Take a case out of the suite; its revisions stay for the runs and versions that hold them.

    One that is out already stays so. Raises CaseChangedError when the case is not at `base_revision`
    any more, and SuiteArchivedError.
    """
    with transaction.atomic():
        held = editable(suite)
        now = current_case(held, key)
        if now is None:
            return
        if now.revision != base_revision:
            raise CaseChangedError(None, now, case_content(now))
        held.cases.filter(pk=now.pk).update(is_current=False)
        recorded(suite, held, by)


def place_case(suite: Suite, key: str, place: int, *, by: User | None) -> int:
    """Put a case at a place in the suite's order, from 1, and return the place it has then.

    Raises UnknownCaseError and SuiteArchivedError.
    """
    with transaction.atomic():
        held = editable(suite)
        rows = held.cases.filter(is_current=True).only("key", "position")
        cases = list(rows.order_by("position", "id"))
        moved = next((case for case in cases if case.key == key), None)
        if moved is None:
            raise UnknownCaseError(f"{held.title} has no case {key} any more.")
        cases.remove(moved)
        cases.insert(max(0, place - 1), moved)
        shifted = [case for n, case in enumerate(cases) if case.position != n]
        for position, case in enumerate(cases):
            case.position = position
        Case.objects.bulk_update(shifted, ["position"], batch_size=BATCH)
        recorded(suite, held, by)
    return cases.index(moved) + 1


def has_results(suite: Suite, key: str) -> bool:
    """Tell whether any revision of the case was ever run; its key stays then."""
    return Result.objects.filter(case__suite=suite, case__key=key).exists()


def _check_new_key(suite: Suite, old: str, new: str, *, is_taken: bool) -> None:
    if is_taken:
        raise CaseKeyTakenError(f"There is a case “{new}” already. Choose another key.")
    if has_results(suite, old):
        raise CaseKeyInUseError(
            f"{old} has results, which are found by its key, so the key stays. Duplicate the case under "
            "another key, and delete this one if it is not needed any more."
        )


def _made(suite: Suite, content: CaseContent, position: int, now: Case | None) -> Case:
    columns = columns_of(content)
    case = revision_row(suite, content.key, position, columns, content_hash(columns))
    store_revisions(suite, [case], [now.pk] if now else [])
    return case

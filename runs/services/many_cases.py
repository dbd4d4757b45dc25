"""Many cases of a suite at once: put, removed, tagged; all of them or none, in one version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.db import transaction

from runs.exports import case_content
from runs.formats import CaseContent
from runs.imports.case_columns import columns_of
from runs.models import Suite
from runs.plan import content_hash
from runs.services.case_checks import check_cases
from runs.services.case_storing import (
    editable,
    in_parts,
    next_place,
    recorded,
    revision_row,
    store_revisions,
)


@dataclass(frozen=True, slots=True)
class PutCases:
    """What came of many cases: how many were added, changed and left as they were."""

    added: int
    changed: int
    unchanged: int
    version: int


def put_cases(
    suite: Suite, contents: Sequence[CaseContent], *, by: User | None, note: str = ""
) -> PutCases:
    """Add each case, or make the one of its key the same as it: all of them, or none.

    New cases go behind the others, in their order; one that is as it is already gets no revision.
    Raises SuiteArchivedError, and InvalidCaseError by key and field.
    """
    with transaction.atomic():
        held = editable(suite)
        check_cases(held, tuple(contents))
        light = held.cases.filter(is_current=True).only("key", "position", "content_hash")
        current = {case.key: case for case in light}
        made, retired, unchanged = [], [], 0
        place = next_place(held)
        for content in contents:
            old, columns = current.get(content.key), columns_of(content)
            digest = content_hash(columns)
            if old is not None and old.content_hash == digest:
                unchanged += 1
                continue
            retired += [old.pk] if old else []
            place, position = (place, old.position) if old else (place + 1, place)
            made.append(revision_row(held, content.key, position, columns, digest))
        store_revisions(held, made, retired)
        version = recorded(suite, held, by, note)
    return PutCases(len(made) - len(retired), len(retired), unchanged, version)


def remove_cases(suite: Suite, keys: Sequence[str], *, by: User | None) -> int:
    """Take cases out of the suite and return how many were in it; runs and versions keep theirs."""
    with transaction.atomic():
        held = editable(suite)
        gone = 0
        for part in in_parts(list(dict.fromkeys(keys))):
            gone += held.cases.filter(is_current=True, key__in=part).update(is_current=False)
        if gone:
            recorded(suite, held, by)
    return gone


def tag_cases(suite: Suite, keys: Sequence[str], tags: Sequence[str], *, by: User | None) -> int:
    """Give the cases these tags beside their own, and return how many changed."""
    return _retag(suite, keys, lambda own: list(dict.fromkeys([*own, *tags])), by)


def untag_cases(suite: Suite, keys: Sequence[str], tags: Sequence[str], *, by: User | None) -> int:
    """Take these tags from the cases, and return how many changed."""
    return _retag(suite, keys, lambda own: [tag for tag in own if tag not in tags], by)


def _retag(
    suite: Suite, keys: Sequence[str], change: Callable[[list[str]], list[str]], by: User | None
) -> int:
    changed = 0
    with transaction.atomic():
        held = editable(suite)
        for part in in_parts(list(dict.fromkeys(keys))):
            made, retired = [], []
            for case in held.cases.filter(is_current=True, key__in=part):
                tags = change(case.tags)
                if tags == case.tags:
                    continue
                content = replace(case_content(case), tags=tuple(tags))
                columns = columns_of(content)
                made.append(
                    revision_row(held, case.key, case.position, columns, content_hash(columns))
                )
                retired.append(case.pk)
            store_revisions(held, made, retired)
            changed += len(made)
        if changed:
            recorded(suite, held, by)
    return changed

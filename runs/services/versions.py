"""Versions of a suite: the next one after cases were edited, and an old one brought back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from evaluators.kinds import all_kinds, models_named
from evaluators.models import LanguageModel
from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError
from runs.drafting import edited_parts, tree_of
from runs.drafting.content import policy_of
from runs.drafting.differences import compare_versions
from runs.exports import UnknownVersionError
from runs.models import Case, FileContent, Suite, SuiteFile, SuiteVersion
from runs.plan import content_hash
from runs.services.version_audit import facts_of_change
from runs.versions import (
    LONGEST_NOTE,
    current_version,
    editable,
    kept_of,
    locked,
    next_version,
    note_of,
    put_parts,
    takes_more_edits,
    write_down,
)

BATCH = 500
MOST_NAMED = 5


class CannotRestoreError(DomainError):
    """A version cannot be brought back: it names what is no longer there, or it is what the suite is."""

    code = "cannot_restore"


def record_version(
    suite: Suite, *, author: User | None, note: str = "", gathers: bool = False
) -> SuiteVersion:
    """Keep the suite as it is stored now as a version and return it; without a change, the current one.

    With `gathers`, for edits of cases: they join the current version when the same author made that
    by edits of cases alone, less than an hour ago, and no run has used it. Call it in the transaction
    that made the change, after taking the suite's row with `runs.versions.locked`.
    """
    with transaction.atomic():
        held = locked(suite)
        kept, current = kept_of(held), current_version(held)
        if current is not None and current.content == kept:
            version = current
        elif current is None:
            version = next_version(held, kept, author=author, note=note)
        else:
            version = _recorded(held, current, kept, author, note, gathers=gathers)
    suite.version = version.number
    return version


def restore_version(suite: Suite, number: int, *, by: User | None, note: str = "") -> SuiteVersion:
    """Make a new version that says what an old one said, and return it.

    Cases come back in the revisions they had, which then are current again, so results keep pointing at
    what they ran. Raises UnknownVersionError, SuiteArchivedError, or CannotRestoreError naming what is gone.
    """
    with transaction.atomic():
        held = editable(suite)
        old = held.versions.filter(number=number).first()
        if old is None:
            raise UnknownVersionError(f"{held.slug} has no version {number}.")
        before = kept_of(held)
        if compare_versions(before, old.content).is_empty:
            raise CannotRestoreError(
                f"{held.title} is what version {number} says already; there is nothing to restore."
            )
        cases = _cases_of(held, old)
        _check_models(old, cases)
        _put_back(held, old)
        _put_files(held, old.content.get("files") or {})
        _put_cases(held, cases)
        kept = kept_of(held, metadata=old.content.get("metadata") or {})
        said = f"Restored version {number}" + (
            f": {' '.join(note.split())}" if note.strip() else ""
        )
        version = next_version(held, kept, author=by, note=said)
        _write_down(held, "restore", by, (version.number - 1, before), version)
    suite.version = version.number
    return version


def _recorded(
    suite: Suite,
    current: SuiteVersion,
    kept: dict[str, Any],
    author: User | None,
    note: str,
    *,
    gathers: bool,
) -> SuiteVersion:
    number, before = current.number, current.content
    gathers = gathers and _differ_in_cases_alone(before, kept)
    if gathers and takes_more_edits(current, author, now=timezone.now()):
        past = suite.versions.filter(number=current.number - 1).first()
        current.content, current.content_hash = kept, content_hash(kept)
        current.note = (note or note_of(past.content if past else before, kept))[:LONGEST_NOTE]
        current.save(update_fields=["content", "content_hash", "note"])
        version = current
    else:
        version = next_version(suite, kept, author=author, note=note, gathers=gathers)
    _write_down(suite, "change", author, (number, before), version)
    return version


def _differ_in_cases_alone(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    difference = compare_versions(before, after)
    return not (difference.scoring or difference.files)


def _cases_of(suite: Suite, version: SuiteVersion) -> list[Case]:
    """Return the revisions a version names, in its order; raises CannotRestoreError for lost ones."""
    wanted = [(case["key"], case["revision"]) for case in version.content["cases"]]
    found: dict[tuple[str, int], Case] = {}
    for start in range(0, len(wanted), BATCH):
        keys = {key for key, _ in wanted[start : start + BATCH]}
        rows = suite.cases.filter(key__in=keys).defer("input", "recorded_output", "metadata")
        found |= {(row.key, row.revision): row for row in rows}
    if gone := [f"{key} (revision {n})" for key, n in wanted if (key, n) not in found]:
        raise CannotRestoreError(
            f"Version {version.number} cannot be restored: its cases {_some(gone)} are no longer stored."
        )
    return [found[part] for part in wanted]


def _check_models(version: SuiteVersion, cases: Iterable[Case]) -> None:
    """Raise CannotRestoreError when the version names language models that are gone."""
    content = version.content
    trees = [("", tree_of(content))]
    trees += [(case.key, Node.from_json(case.evaluators)) for case in cases if case.evaluators]
    named = [("the suite's judge", content.get("judge") or "")]
    for key, tree in trees:
        where = f"case {key}, evaluator " if key else "evaluator "
        named += [(f"{where}{path}", slug) for path, _, slug in models_named(tree, all_kinds())]
    known = set(LanguageModel.objects.values_list("slug", flat=True))
    gone = [f"{slug!r} ({where})" for where, slug in named if slug and slug not in known]
    if gone:
        raise CannotRestoreError(
            f"Version {version.number} cannot be restored: the language model {_some(gone)} is gone. "
            "Add it again under Language models with that slug, or download the version, name another "
            "and import it."
        )


def _put_back(suite: Suite, version: SuiteVersion) -> None:
    content = edited_parts(version.content)
    judge = LanguageModel.objects.get(slug=content["judge"]) if content["judge"] else None
    said = {name: content[name] for name in ("title", "description", "tags")}
    put_parts(suite, policy_of(content), tree_of(content), {**said, "judge": judge})


def _put_files(suite: Suite, files: Mapping[str, str]) -> None:
    known = set(FileContent.objects.filter(pk__in=set(files.values())).values_list("pk", flat=True))
    if gone := [path for path, digest in files.items() if digest not in known]:
        raise CannotRestoreError(f"The version's files {_some(gone)} are no longer stored.")
    suite.files.exclude(path__in=files).delete()
    SuiteFile.objects.bulk_create(
        (SuiteFile(suite=suite, path=path, content_id=digest) for path, digest in files.items()),
        update_conflicts=True,
        unique_fields=["suite", "path"],
        update_fields=["content"],
    )


def _put_cases(suite: Suite, cases: Sequence[Case]) -> None:
    """Make these revisions the current ones, in this order, and no others."""
    wanted = {case.pk for case in cases}
    current = set(suite.cases.filter(is_current=True).values_list("pk", flat=True))
    # One revision of a key is current: what goes, goes first.
    for part in _parts(sorted(current - wanted)):
        suite.cases.filter(pk__in=part).update(is_current=False)
    for part in _parts(sorted(wanted - current)):
        suite.cases.filter(pk__in=part).update(is_current=True)
    moved = []
    for position, case in enumerate(cases):
        if case.position != position:
            case.position = position
            moved.append(case)
    Case.objects.bulk_update(moved, ["position"], batch_size=BATCH)


def _parts(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))


def _write_down(
    suite: Suite,
    action: str,
    actor: User | None,
    before: tuple[int, Mapping[str, Any]],
    version: SuiteVersion,
) -> None:
    number, content = before
    told = facts_of_change(compare_versions(content, version.content))
    after = {"version": version.number, "note": version.note, **told.after}
    write_down(suite, action, actor=actor, before={"version": number, **told.before}, after=after)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

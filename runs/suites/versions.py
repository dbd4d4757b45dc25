"""Versions of a suite: what they keep, how the next one is stored, and how an old one is brought back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import models_named
from evaluators.models import AuditEntry, Evaluator, LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.engine.plan import content_hash
from runs.formats.table_cases import beginning_of
from runs.models.suites import Case, FileContent, Suite, SuiteFile, SuiteVersion
from runs.suites.differences import EvaluatorChange, VersionDifference, compare_versions
from runs.suites.edits import edited_parts, policy_of, tree_of
from runs.suites.stored import UnknownVersionError


def written_titles(suite: Suite | None) -> Mapping[str, str]:
    """Return by key the titles of a suite's current cases that are not the beginning of what they ask."""
    if suite is None:
        return {}
    cases = suite.cases.filter(is_current=True).exclude(title="")
    rows = cases.values_list("key", "title", "input").iterator()
    return {key: title for key, title, asked in rows if title != beginning_of(asked)}


MOST = 200
LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """The values before and after, each by the name of what differs."""

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def facts_of_change(difference: VersionDifference) -> ChangeFacts:
    """Return what differs, evaluators by path and setting; long texts cut, and of very many the first."""
    found = ChangeFacts()
    for one in (*difference.said, *difference.policy):
        _note(found, one.name, one.old, one.new)
    for evaluator in difference.evaluators:
        _note_evaluator(found, evaluator)
    for file in difference.files:
        _note(found, f"file {file.path}", file.old_hash[:12] or None, file.new_hash[:12] or None)
    for case in difference.cases:
        _note(found, f"case {case.key}", case.old_revision, case.new_revision)
    return found


def _note_evaluator(found: ChangeFacts, one: EvaluatorChange) -> None:
    name = f"evaluator {one.path or 'of the whole suite'}"
    if one.what == "added":
        _note(found, name, None, one.kind)
    elif one.what == "removed":
        _note(found, name, one.kind, None)
    elif one.what != "changed":
        _note(found, f"{name}: {one.what}", one.old_path, one.path)
    for change in one.changes:
        _note(found, f"{name}: {change.name}", change.old, change.new)


def _note(found: ChangeFacts, name: str, old: Any, new: Any) -> None:
    if len(found.before) < MOST:
        found.before[name], found.after[name] = _cut(old), _cut(new)


def _cut(value: Any) -> Any:
    if value == "":
        return None
    return f"{value[:LONGEST]} …" if isinstance(value, str) and len(value) > LONGEST else value


MAX_NOTE_LENGTH = 300
# How long the edits of cases by one person gather in one version.
GATHERS_FOR = timedelta(hours=1)


class SuiteArchivedError(DomainError):
    """An archived suite stays as it is: its cases, and what drafts and old versions would make of it."""

    code = "suite_archived"


def kept_of(suite: Suite, *, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a version keeps of a suite as it is stored: everything but the cases' own texts.

    `metadata` is what the suite's file said and nothing uses; without it the current version's stays.
    """
    if metadata is None:
        current = current_version(suite)
        metadata = (current.content.get("metadata") or {}) if current else {}
    return {
        **parts_of(suite),
        "metadata": dict(metadata),
        "files": dict(suite.files.order_by("path").values_list("path", "content_id")),
        "cases": _kept_cases(suite),
    }


def parts_of(suite: Suite) -> dict[str, Any]:
    """Return of a suite as it is stored what drafts edit, in the form of a version's content."""
    return {
        "title": suite.title,
        "description": suite.description,
        "tags": list(suite.tags),
        "judge": suite.judge.slug if suite.judge else "",
        "policy": suite.policy().as_json(),
        "evaluators": Evaluator.objects.tree(suite.root).as_json(),
    }


def locked(suite: Suite) -> Suite:
    """Return the suite as it is stored now, its row locked until the transaction ends."""
    rows = Suite.objects.select_for_update(of=("self",)).select_related("root", "judge")
    return rows.get(pk=suite.pk)


def editable(suite: Suite) -> Suite:
    """Return the suite with its row locked until the transaction ends; raises SuiteArchivedError."""
    held = locked(suite)
    if held.archived_at is not None:
        raise SuiteArchivedError(
            f"{held.title} is archived, and stays as it is. Take it out of the archive first."
        )
    return held


def _kept_cases(suite: Suite) -> list[dict[str, Any]]:
    rows = suite.cases.filter(is_current=True).order_by("position", "id")
    columns = rows.values_list("key", "revision", "content_hash")
    return [{"key": key, "revision": revision, "hash": digest} for key, revision, digest in columns]


def current_version(suite: Suite) -> SuiteVersion | None:
    """Return the version the suite is at; None for one that keeps none."""
    return suite.versions.filter(number=suite.version).select_related("author").first()


def put_parts(
    suite: Suite, policy: PolicySpec, root: EvaluatorSpec, columns: Mapping[str, Any]
) -> None:
    """Store policy, tree and other columns of a suite that exists; rows of a tree that stays, stay."""
    for name in PolicySpec.model_fields:
        setattr(suite, name, getattr(policy, name))
    for name, value in columns.items():
        setattr(suite, name, value)
    suite.save()
    if Evaluator.objects.tree(suite.root) != root:
        Evaluator.objects.replant(suite.root, root)


def next_version(
    suite: Suite,
    kept: Mapping[str, Any],
    *,
    author: User | None,
    note: str = "",
    gathers: bool = False,
) -> SuiteVersion:
    """Store what a suite is now as its next version and return it; the caller holds the suite's row.

    Its number is one more than the current one's, or 1 where none was kept. Without a note it says
    what changed, in counts.
    """
    before = current_version(suite)
    suite.version = suite.version + 1 if before else 1
    suite.save(update_fields=["version", "updated_at"])
    said = note or note_of(before.content if before else None, kept)
    return SuiteVersion.objects.create(
        suite=suite,
        number=suite.version,
        note=said[:MAX_NOTE_LENGTH],
        author=author,
        content_hash=content_hash(kept),
        content=kept,
        gathers=gathers,
    )


def takes_more_edits(version: SuiteVersion, author: User | None, *, now: datetime) -> bool:
    """Tell whether an edit of cases by the author may join the version instead of making the next one.

    It may when the same author made it by such edits, less than an hour ago, and no run has used it.
    """
    return (
        version.gathers
        and version.author_id == (author.pk if author else None)
        and now - version.created_at < GATHERS_FOR
        and not version.suite.runs.filter(suite_version=version.number).exists()
    )


def write_down(
    suite: Suite,
    action: str,
    *,
    actor: User | None,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
) -> None:
    """Write a change of a suite into the audit."""
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username() if actor else "",
        action=action,
        object_type="suite",
        object_id=str(suite.pk),
        object_name=suite.slug,
        before=None if before is None else dict(before),
        after=dict(after),
    )


def is_version(version: SuiteVersion, kept: Mapping[str, Any]) -> bool:
    """Tell whether the version keeps just that; what its policy did not have yet takes its default."""
    digest = content_hash(kept)
    return digest in (version.content_hash, content_hash(_with_whole_policy(version.content)))


def _with_whole_policy(content: Mapping[str, Any]) -> Mapping[str, Any]:
    policy = content.get("policy")
    return (
        content
        if policy is None
        else {**content, "policy": PolicySpec.model_validate(policy).as_json()}
    )


def note_of(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Say in one line what a new version changes."""
    if before is None:
        return f"Imported with {_counted(len(after['cases']))}"
    old = {case["key"]: case.get("hash") for case in before["cases"]}
    new = {case["key"]: case["hash"] for case in after["cases"]}
    counts = {
        "added": len(new.keys() - old.keys()),
        "changed": sum(old[key] != new[key] for key in new.keys() & old.keys()),
        "removed": len(old.keys() - new.keys()),
    }
    said = [f"{_counted(count)} {word}" for word, count in counts.items() if count]
    parts = ("evaluators", "policy", "files")
    known = _with_whole_policy(before)
    said += [f"{name} changed" for name in parts if known.get(name) != after[name]]
    judges = [kept.get("judge") or "none" for kept in (before, after)]
    said += [f"judge: {' → '.join(judges)}"] if judges[0] != judges[1] else []
    return ", ".join(said) or "Description, tags or order of the cases changed"


def _counted(count: int) -> str:
    return f"{count} {'case' if count == 1 else 'cases'}"


BATCH = 500
MAX_NAMED = 5


class CannotRestoreError(DomainError):
    """A version cannot be brought back: it names what is no longer there, or it is what the suite is."""

    code = "cannot_restore"


def record_version(
    suite: Suite, *, author: User | None, note: str = "", gathers: bool = False
) -> SuiteVersion:
    """Keep the suite as it is stored now as a version and return it; without a change, the current one.

    With `gathers`, for edits of cases: they join the current version when the same author made that
    by edits of cases alone, less than an hour ago, and no run has used it. Call it in the transaction
    that made the change, after taking the suite's row with `runs.suites.versions.locked`.
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
        current.note = (note or note_of(past.content if past else before, kept))[:MAX_NOTE_LENGTH]
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
    trees += [
        (case.key, EvaluatorSpec.model_validate(case.evaluators))
        for case in cases
        if case.evaluators
    ]
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
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more

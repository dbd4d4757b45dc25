"""What a version of a suite keeps, what its note says, and how the next one is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from evaluators.models import AuditEntry, Evaluator
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError
from runs.models import Suite, SuiteVersion
from runs.plan import content_hash

LONGEST_NOTE = 300
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


def put_parts(suite: Suite, policy: Policy, root: Node, columns: Mapping[str, Any]) -> None:
    """Store policy, tree and other columns of a suite that exists; rows of a tree that stays, stay."""
    for column in fields(Policy):
        setattr(suite, column.name, getattr(policy, column.name))
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
        note=said[:LONGEST_NOTE],
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
    return content if policy is None else {**content, "policy": Policy.from_json(policy).as_json()}


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

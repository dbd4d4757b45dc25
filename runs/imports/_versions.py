"""What a version of a suite keeps, and what its note says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runs.formats import SuiteContent
from runs.models import Suite


def described(suite: Suite, content: SuiteContent, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the version keeps: everything but the cases' own texts."""
    return {
        "title": content.title,
        "description": content.description,
        "tags": list(content.tags),
        "judge": suite.judge.slug if suite.judge else "",
        "metadata": dict(content.metadata),
        "policy": content.policy.as_json(),
        "evaluators": content.root.as_json(),
        "files": dict(suite.files.order_by("path").values_list("path", "content_id")),
        "cases": cases,
    }


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
    said += [f"{name} changed" for name in parts if before.get(name) != after[name]]
    judges = [kept.get("judge") or "none" for kept in (before, after)]
    said += [f"judge: {' → '.join(judges)}"] if judges[0] != judges[1] else []
    return ", ".join(said) or "Description, tags or order of the cases changed"


def _counted(count: int) -> str:
    return f"{count} {'case' if count == 1 else 'cases'}"

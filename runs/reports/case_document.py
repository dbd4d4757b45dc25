"""Cases as the API tells of them: what lists show, and one revision in full."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.http import Http404

from runs.models import Case, Suite
from runs.reports.matching import with_tag
from runs.reports.run_facts import spelt_time

LISTED = ("key", "revision", "is_current", "position", "title", "tags", "created_at")


def cases_asked(suite: Suite, *, tag: str = "", q: str = "") -> QuerySet[Case]:
    """Return the current cases of a suite that match, with what lists show of them."""
    cases = suite.cases.filter(is_current=True)
    if q:
        cases = cases.filter(Q(key__icontains=q) | Q(title__icontains=q))
    return (with_tag(cases, tag) if tag else cases).only(*LISTED, "suite_id")


def case_revision(suite: Suite, key: str, revision: int | None = None) -> Case:
    """Return a revision of a case, the current or else the last one; raises Http404."""
    revisions = suite.cases.filter(key=key)
    if revision is not None:
        revisions = revisions.filter(revision=revision)
    found = revisions.order_by("-is_current", "-revision").first()
    if found is None:
        raise Http404
    return found


def case_facts(case: Case) -> dict[str, Any]:
    """Return what lists show of a case as plain JSON values."""
    return {
        "key": case.key,
        "revision": case.revision,
        "is_current": case.is_current,
        "position": case.position,
        "title": case.title,
        "tags": case.tags,
        "created_at": spelt_time(case.created_at),
    }


def whole_case(case: Case) -> dict[str, Any]:
    """Return one revision in full; its evaluators are None where the suite's alone score it."""
    return {
        **case_facts(case),
        "input": case.input,
        "expected_output": case.expected_output,
        "expected_outcomes": case.expected_outcomes,
        "criteria": case.criteria,
        "metadata": case.metadata,
        "evaluators": case.evaluators,
        "evaluators_append": case.evaluators_append,
        "recorded_output": case.recorded_output,
    }

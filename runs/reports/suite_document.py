"""Suites and their versions as the API tells of them."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.functions import Cast, Coalesce

from evaluators.scoring.policy import Policy
from runs.models import Case, Run, Suite, SuiteVersion
from runs.reports.comparison_query import run_word
from runs.reports.matching import spellings_of
from runs.reports.policy_document import policy_document
from runs.reports.run_facts import spelt_time


def suites_asked(*, tag: str = "", archived: bool = False) -> QuerySet[Suite]:
    """Return the suites that match with how many cases and runs they have; one query."""
    suites = Suite.objects.filter(archived_at__isnull=not archived)
    if tag:
        found = Q()
        for spelling in spellings_of(tag):
            found |= Q(tags_text__contains=spelling)
        suites = suites.annotate(tags_text=Cast("tags", TextField())).filter(found)
    return counted(suites)


def counted(suites: QuerySet[Suite]) -> QuerySet[Suite]:
    """Return suites with their counts, their judge and the run that is their baseline."""
    cases = Case.objects.filter(suite=OuterRef("pk"), is_current=True)
    return (
        suites.select_related("judge", "baseline_run")
        .annotate(
            case_count=_count(cases), run_count=_count(Run.objects.filter(suite=OuterRef("pk")))
        )
        .defer("baseline_run__snapshot", "baseline_run__summary", "baseline_run__leaf_scores")
    )


def suite_facts(suite: Suite) -> dict[str, Any]:
    """Return a suite of `counted` as plain JSON values."""
    baseline = suite.baseline_run
    if baseline is not None:
        baseline.suite = suite
    told: Any = suite
    return {
        "slug": suite.slug,
        "title": suite.title,
        "description": suite.description,
        "tags": suite.tags,
        "version": suite.version,
        "judge": suite.judge.slug if suite.judge else None,
        "cases": told.case_count,
        "runs": told.run_count,
        "baseline_run_id": suite.baseline_run_id,
        "baseline_run": run_word(baseline) if baseline else None,
        "archived_at": spelt_time(suite.archived_at),
        "created_at": spelt_time(suite.created_at),
        "updated_at": spelt_time(suite.updated_at),
    }


def whole_suite(suite: Suite) -> dict[str, Any]:
    """Return a suite of `counted` with its policy, evaluators and files; two queries."""
    current = suite.versions.filter(number=suite.version).values_list("content", flat=True).first()
    return {
        **suite_facts(suite),
        "policy": policy_document(suite.policy()),
        "evaluators": current["evaluators"] if current else None,
        "files": sorted(suite.files.values_list("path", flat=True)),
    }


def version_facts(suite: Suite, version: SuiteVersion) -> dict[str, Any]:
    """Return what lists show of a version."""
    return {
        "number": version.number,
        "is_current": version.number == suite.version,
        "note": version.note,
        "author": version.author.get_username() if version.author else None,
        "created_at": spelt_time(version.created_at),
        "content_hash": version.content_hash,
    }


def whole_version(suite: Suite, version: SuiteVersion) -> dict[str, Any]:
    """Return a version with what the suite was then; its cases by key and revision."""
    content = version.content
    return {
        **version_facts(suite, version),
        "title": content["title"],
        "description": content["description"],
        "tags": content["tags"],
        "judge": content["judge"] or None,
        "metadata": content["metadata"],
        "policy": policy_document(Policy.from_json(content["policy"])),
        "evaluators": content["evaluators"],
        "files": sorted(content["files"]),
        "cases": [{"key": one["key"], "revision": one["revision"]} for one in content["cases"]],
    }


def _count(rows: QuerySet[Any]) -> Any:
    total = rows.order_by().values("suite").annotate(total=Count("pk")).values("total")
    return Coalesce(Subquery(total, output_field=IntegerField()), 0)

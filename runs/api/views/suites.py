"""Suites, their versions and their cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.asking import CaseAsked, CasesAsked, NothingAsked, PageAsked, SuitesAsked
from runs.api.describing import KEY, NUMBER, SLUG, reads
from runs.api.paging import page_of
from runs.api.serializers.suites import (
    CaseSerializer,
    SuiteSerializer,
    VersionSerializer,
    WholeCaseSerializer,
    WholeSuiteSerializer,
    WholeVersionSerializer,
)
from runs.models import Suite, SuiteVersion
from runs.reports.case_document import case_facts, case_revision, cases_asked, whole_case
from runs.reports.suite_document import (
    counted,
    suite_facts,
    suites_asked,
    version_facts,
    whole_suite,
    whole_version,
)


@reads("Suites", SuiteSerializer, asked=SuitesAsked, tag="suites", pages=True)
def suites(request: Request) -> Response:
    """List the suites by slug, those that are not archived unless they are asked for."""
    asked = SuitesAsked.of(request)
    found = suites_asked(tag=asked.get("tag", ""), archived=asked["archived"])
    by = {"slug": str}
    return Response(page_of(found, by=by, request=request, asked=asked, told=_each(suite_facts)))


@reads("One suite", WholeSuiteSerializer, asked=NothingAsked, place=[SLUG], tag="suites")
def suite(request: Request, slug: str) -> Response:
    """Give a suite with its policy, its evaluators and the paths of its files."""
    NothingAsked.of(request)
    return Response(whole_suite(get_object_or_404(counted(Suite.objects.all()), slug=slug)))


@reads(
    "Versions of a suite",
    VersionSerializer,
    asked=PageAsked,
    place=[SLUG],
    tag="suites",
    pages=True,
)
def suite_versions(request: Request, slug: str) -> Response:
    """List the versions of a suite, newest first."""
    asked, found = PageAsked.of(request), get_object_or_404(Suite, slug=slug)
    versions = found.versions.select_related("author").defer("content")
    return Response(
        page_of(
            versions,
            by={"number": int},
            request=request,
            asked=asked,
            told=lambda rows: [version_facts(found, row) for row in rows],
            is_descending=True,
        )
    )


@reads(
    "One version of a suite",
    WholeVersionSerializer,
    asked=NothingAsked,
    place=[SLUG, NUMBER],
    tag="suites",
)
def suite_version(request: Request, slug: str, number: int) -> Response:
    """Give what a suite was at a version, its cases by key and revision."""
    NothingAsked.of(request)
    found = get_object_or_404(
        SuiteVersion.objects.select_related("author", "suite"), suite__slug=slug, number=number
    )
    return Response(whole_version(found.suite, found))


@reads("Cases of a suite", CaseSerializer, asked=CasesAsked, place=[SLUG], tag="suites", pages=True)
def suite_cases(request: Request, slug: str) -> Response:
    """List the current cases of a suite in its order."""
    asked, found = CasesAsked.of(request), get_object_or_404(Suite, slug=slug)
    cases = cases_asked(found, tag=asked.get("tag", ""), q=asked.get("q", ""))
    by = {"position": int, "pk": int}
    return Response(page_of(cases, by=by, request=request, asked=asked, told=_each(case_facts)))


@reads("One case", WholeCaseSerializer, asked=CaseAsked, place=[SLUG, KEY], tag="suites")
def suite_case(request: Request, slug: str, key: str) -> Response:
    """Give a case in full: the current revision, the last of a deleted one, or the one asked for."""
    asked, found = CaseAsked.of(request), get_object_or_404(Suite, slug=slug)
    return Response(whole_case(case_revision(found, key, asked.get("revision"))))


def _each(tell: Callable[[Any], dict[str, Any]]) -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
    return lambda rows: [tell(row) for row in rows]

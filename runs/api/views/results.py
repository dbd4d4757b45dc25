"""Results."""

from __future__ import annotations

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.asking import NothingAsked, ResultsAsked
from runs.api.describing import RESULT, RUN, reads
from runs.api.paging import page_of
from runs.api.places import result_numbered, run_named
from runs.api.serializers.results import (
    ResultSerializer,
    WholeOutputSerializer,
    WholeResultSerializer,
)
from runs.models import ResultOutput
from runs.reports.result_facts import result_facts, results_asked
from runs.reports.result_page import whole_output
from runs.reports.whole_result import whole_result

FILTERS = ("verdict", "status", "tag", "case")


@reads(
    "Results of a run", ResultSerializer, asked=ResultsAsked, place=[RUN], tag="results", pages=True
)
def run_results(request: Request, run: str) -> Response:
    """List the results of a run in the order of its suite, repetition after repetition."""
    asked, found = ResultsAsked.of(request), run_named(run)
    narrowed = {name: asked[name] for name in FILTERS if name in asked}
    return Response(
        page_of(
            results_asked(found, **narrowed),
            by={"position": int, "repetition": int, "pk": int},
            request=request,
            asked=asked,
            told=lambda rows: [result_facts(found, row) for row in rows],
        )
    )


@reads("One result", WholeResultSerializer, asked=NothingAsked, place=[RESULT], tag="results")
def result(request: Request, result: int) -> Response:
    """Give a result in full: its case, the answer, the evaluators, outcomes, metrics and costs."""
    NothingAsked.of(request)
    found = result_numbered(result)
    return Response(whole_result(found.run, found))


@reads("The whole answer", WholeOutputSerializer, asked=NothingAsked, place=[RESULT], tag="results")
def result_output(request: Request, result: int) -> Response:
    """Give all of what the target answered, however long it is."""
    NothingAsked.of(request)
    found = result_numbered(result)
    try:
        text = whole_output(found.run, found.case.key, found.repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    return Response({"text": text, "characters": len(text)})

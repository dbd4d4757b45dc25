"""The things of a site that the command line lists and shows: suites, runs, results, targets and language models.

A list is a table of a few facts; what is shown in full, or as JSON, is the document that the API gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import money, pct, score
from runs.cli.command import UnknownNameError, get_model, get_run, get_suite, get_target
from runs.documents import Document
from runs.filters.queries import ResultsQuery
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from runs.results.documents import run_detail_document, run_document
from runs.results.files import listed_ids
from runs.results.result_documents import result_detail_document, result_documents
from runs.results.runs import with_list_columns
from runs.specs.problems import most_similar
from runs.suites.documents import SuiteDetailDoc, SuiteDoc
from runs.suites.queries import with_counts
from runs.targets.documents import model_document, target_document

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """One kind of things: how they are found, and the columns of their table."""

    find: Callable[[Mapping[str, Any]], Iterable[Document]]
    show: Callable[[Sequence[str]], Document]
    columns: Mapping[str, Callable[[Facts], str]]


def _suites(options: Mapping[str, Any]) -> Iterable[Document]:
    suites = with_counts(Suite.objects.filter(archived_at=None)).order_by("slug")
    return map(SuiteDoc.make, suites[: options["limit"]])


def _runs(options: Mapping[str, Any]) -> Iterable[Document]:
    runs = with_list_columns(Run.objects.all()).order_by("-pk")
    if options["suite"]:
        runs = runs.filter(suite=get_suite(options["suite"]))
    return map(run_document, runs[: options["limit"]])


def _results(options: Mapping[str, Any]) -> Iterable[Document]:
    if not options["run"]:
        raise UnknownNameError("Name the run whose results you want: --run SUITE#NUMBER.")
    run = get_run(options["run"])
    ids = listed_ids(run, ResultsQuery(text=options["filter"].strip()))[: options["limit"]]
    results = Result.objects.filter(pk__in=ids).select_related("case")
    return result_documents(run, list(results.order_by("position", "repetition")))


def _targets(options: Mapping[str, Any]) -> Iterable[Document]:
    targets = Target.objects.filter(archived_at=None).select_related("model").order_by("name")
    return map(target_document, targets[: options["limit"]])


def _models(options: Mapping[str, Any]) -> Iterable[Document]:
    return map(model_document, LanguageModel.objects.order_by("slug")[: options["limit"]])


def _suite(names: Sequence[str]) -> Document:
    return SuiteDetailDoc.make(with_counts(Suite.objects.all()).get(pk=get_suite(names[0]).pk))


def _run(names: Sequence[str]) -> Document:
    runs = with_list_columns(Run.objects.filter(pk=get_run(names[0]).pk))
    return run_detail_document(runs.get())


def _result(names: Sequence[str]) -> Document:
    if len(names) == 1:
        raise UnknownNameError("Name the run and the case: show result SUITE#NUMBER CASE.")
    run, key, number = get_run(names[0]), names[1], names[2] if names[2:] else "1"
    results = Result.objects.filter(run=run, case__key=key).select_related("case", "run__suite")
    found = results.filter(repetition=int(number)).first() if number.isdecimal() else None
    if found is None:
        known = list(
            run.results.order_by("position").values_list("case__key", flat=True).distinct()
        )
        similar = most_similar(key, known)
        question = f" Did you mean {similar}?" if similar and similar != key else ""
        raise UnknownNameError(
            f"{run.suite.slug} {run} has no repetition {number} of a case {key!r}.{question}"
        )
    return result_detail_document(run, found)


def _target(names: Sequence[str]) -> Document:
    return target_document(get_target(names[0]))


def _model(names: Sequence[str]) -> Document:
    return model_document(get_model(names[0]))


def _percent(value: float | None) -> str:
    return "–" if value is None else pct(value)


def _dollars(value: str | None) -> str:
    return "–" if value is None else money(Decimal(value))


LISTED: Mapping[str, Listed] = {
    "suites": Listed(
        _suites,
        _suite,
        {
            "Suite": lambda facts: facts["slug"],
            "Version": lambda facts: f"v{facts['version']}",
            "Cases": lambda facts: str(facts["case_count"]),
            "Runs": lambda facts: str(facts["run_count"]),
            "Baseline": lambda facts: (facts["baseline_run"] or "–").replace(":", "#"),
            "Title": lambda facts: facts["title"],
        },
    ),
    "runs": Listed(
        _runs,
        _run,
        {
            "Run": lambda facts: facts["name"].replace(":", "#"),
            "Status": lambda facts: facts["status"],
            "Mean score": lambda facts: _percent(facts["gates"]["metrics"]["share"]),
            "Pass rate": lambda facts: _percent(facts["gates"]["cases"]["share"]),
            "Results": lambda facts: f"{facts['done']} of {facts['results']}",
            "Cost": lambda facts: _dollars(facts["total_cost_usd"]),
            "Started": lambda facts: facts["created_at"][:16].replace("T", " "),
            "Target": lambda facts: facts["target"],
        },
    ),
    "results": Listed(
        _results,
        _result,
        {
            "Case": lambda facts: facts["case"],
            "Repetition": lambda facts: str(facts["repetition"]),
            "Verdict": lambda facts: facts["verdict"] or facts["status"],
            "Score": lambda facts: "–" if facts["score"] is None else score(facts["score"]),
        },
    ),
    "targets": Listed(
        _targets,
        _target,
        {
            "Target": lambda facts: facts["name"],
            "Kind": lambda facts: facts["kind"],
            "Model": lambda facts: facts["model"] or "–",
            "Changed": lambda facts: facts["updated_at"][:10],
        },
    ),
    "models": Listed(
        _models,
        _model,
        {
            "Model": lambda facts: facts["slug"],
            "Model id": lambda facts: facts["model_id"],
            "Key": lambda facts: (
                facts["key_variable"] or ("stored" if facts["has_stored_key"] else "–")
            ),
            "Base URL": lambda facts: facts["base_url"],
        },
    ),
}


def table(kind: str, documents: Sequence[Facts]) -> list[str]:
    """Return the lines of a table: a head and a line for each."""
    columns = LISTED[kind].columns
    rows = [list(columns), *([cell(facts) for cell in columns.values()] for facts in documents)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

"""The words and tools that search looks up follow the texts, whoever writes or removes them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from runs.execution.run_worker import work_on_run
from runs.files.importing_results import import_results
from runs.models.removals import RemovalPart
from runs.models.results import EvaluatorScore, ResultOutput
from runs.models.runs import Run
from runs.models.search import ROWS_AT_ONCE, CaseText, ResultText
from runs.retention.queries import Selection
from runs.retention.services import begin_removal, remove_data
from runs.running.retrying import retry_results
from runs.running.services import start_run
from runs.what_if.services import rescore_run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
    make_target,
    refresh_cases,
)
from tests.support.scored_runs import rules_of
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def found(column: str, *wanted: str, run: Run | None = None) -> Sequence[str]:
    """Return the cases with a result that has the words."""
    runs = [run] if run else Run.objects.all()
    rows = ResultText.objects.with_words(column, wanted, scopes=[one.pk for one in runs])
    return sorted(rows.values_list("case__key", flat=True))


def answered(text: str, *, run: Run | None = None) -> Run:
    """Return a run with one more result."""
    run = run or make_run()
    case = make_case(suite=run.suite)
    trace = [{"type": "tool", "name": "find"}, {"type": "model", "name": "m"}]
    trace += [{"type": "tool", "name": "send"}, {"type": "tool", "name": "find"}]
    result = make_result(run=run, case=case, verdict="pass", output={"text": text, "trace": trace})
    make_score(result=result, path="tone", score=1.0, reasoning="Kind")
    refresh_cases(run)
    return run


def test_words_are_found_in_one_run_or_all() -> None:
    one, other = answered("A late parcel"), answered("Parcels")
    for run in (one, other):
        [key] = run.suite.cases.values_list("key", flat=True)
        assert found("output", "parcel", run=run) == [key]
    assert len(found("output", "parcel")) == 2
    assert len(found("output", "late", "parc")) == 1
    assert found("output", "parcel", "late") == found("output", str(one.pk)) == []
    assert found("reasoning", "kind", run=one) == found("output", "late")


def test_a_long_phrase_is_found_in_its_order_and_looked_up_by_a_few_of_its_words() -> None:
    phrase = [f"w{n}" for n in range(100)]
    run = answered(" ".join(phrase))
    answered(" ".join(reversed(phrase)))
    assert found("output", *phrase) == found("output", *phrase, run=run)
    assert len(found("output", *phrase)) == 1

    rows = ResultText.objects.with_words("output", phrase, scopes=range(1, 101))
    _, values = rows.query.sql_with_params()
    # All of them for each run would be 80,000 characters.
    assert len(str(values)) < 20_000


def test_tools_are_those_called_in_the_order_of_their_first_calls() -> None:
    run = answered("Done")
    assert ResultText.objects.get(run=run).tools == ["find", "send"]


def test_a_result_without_texts_and_calls_has_no_row() -> None:
    run = make_run()
    case = make_case(suite=run.suite)
    make_result(run=run, case=case, verdict="pass", output={"text": "…"})
    refresh_cases(run)
    assert not ResultText.objects.exists()


def test_the_words_of_a_removed_text_are_gone() -> None:
    run = answered("A late parcel")
    ResultOutput.objects.update(text="A torn tent", trace=None)
    EvaluatorScore.objects.update(reasoning="")
    refresh_cases(run)
    assert found("output", "late") == found("reasoning", "kind") == []
    assert len(found("output", "torn")) == 1
    run.results.all().delete()
    assert found("output", "torn") == []


@pytest.mark.parametrize("part", [RemovalPart.OUTPUTS, RemovalPart.DETAILS, RemovalPart.RUN])
def test_a_removal_takes_the_words_with_the_texts(part: RemovalPart) -> None:
    run = answered("A late parcel")
    removal = begin_removal(Selection(part, run.suite, [run]), by=None, in_background=False)
    assert remove_data(removal.pk)
    assert found("output", "late") == []
    assert bool(found("reasoning", "kind")) == (part == RemovalPart.OUTPUTS)
    assert not any(ResultText.objects.values_list("tools", flat=True))


@pytest.mark.django_db(transaction=True)
def test_results_of_a_worker_are_found_and_a_retry_replaces_their_words() -> None:
    suite = make_suite(tree=tree(CHECK))
    case = make_case(suite=suite, key="C-1", recorded_output={"output": "You get a refund"})
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)
    assert found("output", "ref", run=run) == ["C-1"]

    case.recorded_output = {"output": "You get nothing"}
    case.save()
    run.refresh_from_db()
    retry_results(run, asked_by=None, result_ids=[run.results.get().pk])
    work_on_run(run.pk)
    assert (found("output", "ref"), found("output", "nothing")) == ([], ["C-1"])


@pytest.mark.django_db(transaction=True)
def test_a_run_scored_again_is_searched_by_its_own_reasons() -> None:
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="C-1", recorded_output={"output": "You get a refund"})
    source = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(source.pk)
    source.refresh_from_db()
    EvaluatorScore.objects.update(reasoning="Mentions it")
    run = rescore_run(source, rules_of(source), by=None)
    assert found("output", "refund", run=run) == found("output", "refund", run=source) == ["C-1"]
    assert found("reasoning", "mentions", run=run) == ["C-1"]


def test_imported_results_are_found() -> None:
    line = {"eval_id": "C-1", "score": 0.9, "target": "agent", "answer": "On its way"}
    content = json.dumps(line).encode()
    [run] = import_results(content, file="results.jsonl", suite=None, imported_by=None).runs
    assert found("output", "way", run=run) == ["C-1"]


def test_cases_are_found_by_the_words_of_each_revision() -> None:
    suite = make_suite()
    case = make_case(suite=suite, key="CS-011", title="Late parcel")
    rows = CaseText.objects.with_words("name", ["cs", "01"], scopes=[suite.pk])
    assert list(rows.values_list("case", flat=True)) == [case.pk]
    scopes = [suite.pk - 1, suite.pk]
    assert CaseText.objects.with_words("input", ["tent"], scopes=scopes).exists()
    assert not CaseText.objects.with_words("input", ["tent"], scopes=[suite.pk + 1]).exists()


def test_all_cases_of_a_long_import_are_found() -> None:
    count = 2 * ROWS_AT_ONCE + 1
    suite = make_suite(cases=count)
    rows = CaseText.objects.with_words("name", ["case"], scopes=[suite.pk])
    assert sorted(rows.values_list("case__key", flat=True)) == [
        f"C-{n:03}" for n in range(1, count + 1)
    ]

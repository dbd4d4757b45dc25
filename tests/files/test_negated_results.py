"""What negated evaluators found reads alike on pages, in files, and after a file came back."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from runs.execution.run_worker import work_on_run
from runs.files.importing_results import import_results
from runs.formats.junit import JUnitRun, write_junit
from runs.formats.results_writing import write_results
from runs.results.files import result_lines
from runs.results.result_page import result_page
from runs.running.services import start_run
from tests.support.factories import make_case, make_suite, make_target
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db(transaction=True)

GATE = {
    **LEAF,
    "name": "neither",
    "kind": "composite",
    "negate": True,
    "config": {"aggregator": {"type": "minimum"}},
    "children": [CHECK, {**CHECK, "name": "no_money", "negate": True}],
}


@pytest.fixture
def run():
    suite = make_suite(slug="refunds", tree=tree({**CHECK, "name": "silent", "negate": True}, GATE))
    for number, text in enumerate(("a refund", "nothing")):
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output={"output": text})
    run = start_run(suite=suite, target=make_target(name="agent"), started_by=None)
    work_on_run(run.pk)
    return run


def written(run):
    lines = [json.loads(line) for line in write_results(result_lines(run))]
    return [{key: value for key, value in line.items() if key != "run"} for line in lines]


def found(run, key):
    page = result_page(run, key, 1)
    return [[(one.evaluator, one.text) for one in remarks] for remarks in (page.hits, page.misses)]


def test_a_finding_that_speaks_against_a_negated_evaluator_is_a_miss_everywhere(run):
    lines = written(run)
    for line, is_there in zip(lines, (True, False), strict=True):
        silent, neither = line["evaluator_results"]
        check, no_money = neither["evaluator_results"]
        for one, is_met in ((silent, not is_there), (check, is_there), (no_money, not is_there)):
            assert (one["score"], bool(one["hits"]), bool(one["misses"])) == (
                float(is_met),
                is_met,
                not is_met,
            )
        hits, misses = found(run, line["eval_id"])
        met, missed = (["mentions_refund"], ["silent", "no_money"])
        assert [name for name, _ in hits] == (met if is_there else missed)
        assert [name for name, _ in misses] == (missed if is_there else met)
        assert line["hits"] == [text for _, text in hits]
        assert line["misses"] == [text for _, text in misses]
        cases = ElementTree.fromstring("".join(write_junit(JUnitRun("r"), result_lines(run))))
        failures = cases.findall(f".//testcase[@name='{line['eval_id']}']/failure")
        assert [(one.text or "").count("missed: ") for one in failures] == ([2] if is_there else [])


def test_results_that_went_out_and_came_back_are_the_same_lines_and_pages(run):
    content = "".join(write_results(result_lines(run))).encode()
    [copy] = import_results(content, file="r.jsonl", suite=run.suite, imported_by=None).runs
    assert written(copy) == written(run)
    for key in ("C-0", "C-1"):
        assert found(copy, key) == found(run, key)
    again = "".join(write_results(result_lines(copy))).encode()
    [third] = import_results(again, file="r.jsonl", suite=run.suite, imported_by=None).runs
    assert written(third) == written(run)

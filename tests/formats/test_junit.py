"""A run as a JUnit file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.types import Finding, Usage
from runs.formats.junit import JUnitRun, write_junit
from runs.formats.results_writing import EvaluatorLine, ResultLine

RUN = JUnitRun(name="support #12", took_ms=61_500, began_at="2026-05-12T09:02:11+00:00")


def line(key="C-1", status="scored", **facts):
    defaults = {"suite": "support", "run": 12, "target": "agent", "repetition": 1}
    return ResultLine(eval_id=key, status=status, **{**defaults, **facts})


def parsed(*lines, run=RUN):
    states = Counter((line.status, line.verdict, line.reviewed_verdict) for line in lines)
    return ElementTree.fromstring("".join(write_junit(replace(run, states=states), lines)).encode())


def test_a_run_is_a_test_suite_and_an_execution_a_test_case():
    tone = EvaluatorLine("tone", "llm_judge", "scored", 0.9)
    both = EvaluatorLine("both", "composite", "scored", 0.9, aggregator={}, children=(tone,))
    root = parsed(
        line(
            verdict="pass",
            score=0.9,
            evaluators=(both,),
            usage=Usage(latency_ms=1234),
            run_cost_usd=Decimal("0.012"),
        ),
        run=JUnitRun(name="support #12", took_ms=61_500, properties={"target": "agent"}),
    )
    [suite] = root
    assert root.tag == "testsuites"
    assert (suite.get("name"), suite.get("tests"), suite.get("time")) == (
        "support #12",
        "1",
        "61.500",
    )
    assert suite.find("properties/property").attrib == {"name": "target", "value": "agent"}
    case = suite.find("testcase")
    assert case.attrib == {"classname": "support", "name": "C-1", "time": "1.234"}
    assert {one.get("name"): one.get("value") for one in case.find("properties")} == {
        "score": "0.9",
        "score.both": "0.9",
        "score.both/tone": "0.9",
        "run_cost_usd": "0.012",
    }
    assert {child.tag for child in case} == {"properties"}


def test_only_the_verdict_pass_passes():
    root = parsed(
        line("a", verdict="pass"),
        line("b", verdict="borderline", decided_by="0.7 < 0.8"),
        line("c", verdict="fail", decided_by="required: safety = 0"),
        line("d", "error", error="Timed out: 60 s", error_stage="target"),
        line("e", "cancelled"),
    )
    [suite] = root
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["5", "2", "1", "1"]
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == counts
    children = {case.get("name"): list(case) for case in suite.iter("testcase")}
    assert children["a"] == []
    assert [(one.tag, one.get("type"), one.get("message")) for one in children["b"]] == [
        ("failure", "borderline", "borderline: 0.7 < 0.8")
    ]
    assert children["c"][0].get("message") == "fail: required: safety = 0"
    assert [(one.tag, one.get("type"), one.get("message")) for one in children["d"]] == [
        ("error", "target", "Timed out: 60 s")
    ]
    assert [(one.tag, one.get("message")) for one in children["e"]] == [("skipped", "cancelled")]


def test_what_was_missed_and_answered_is_told():
    tone = EvaluatorLine("tone", "llm_judge", "scored", 0.1, findings=(Finding("Rude", False),))
    root = parsed(line(verdict="fail", evaluators=(tone,), output="Go away & <stay> away"))
    assert root.find(".//failure").text == "missed: Rude\noutput: Go away & <stay> away\n"


def test_repetitions_are_told_apart():
    run = JUnitRun(name="support #12", repetitions=2)
    names = [case.get("name") for case in parsed(line(), line(repetition=2), run=run).iter()]
    assert {"C-1 [1 of 2]", "C-1 [2 of 2]"} <= set(names)


@pytest.mark.parametrize(("counts", "failures"), [(True, "0"), (False, "1")])
def test_a_review_decides_where_the_policy_counts_it(counts, failures):
    run = JUnitRun(name="support #12", counts_reviews=counts)
    [suite] = parsed(line(verdict="fail", reviewed_verdict="pass"), run=run)
    assert suite.get("failures") == failures


@given(text=st.text())
def test_no_text_makes_the_file_unreadable(text):
    tone = EvaluatorLine(text or "x", "llm_judge", "scored", 0.1, findings=(Finding(text, False),))
    hostile = line(text, verdict="fail", decided_by=text, output=text, evaluators=(tone,))
    errored = line(text, "error", error=text, error_stage=text)
    root = parsed(hostile, errored, run=JUnitRun(name=text, properties={text: text}))
    assert len(list(root.iter("testcase"))) == 2


def test_what_xml_can_hold_comes_back_as_it_was():
    text = "tab\t, line\n, return\r, “quotes” \"'<&>]]> \U0001f600"
    [case] = parsed(line(text, verdict="fail", output=text)).iter("testcase")
    assert case.get("name") == text
    assert case.find("failure").text == f"output: {text}\n"


def test_what_xml_cannot_hold_is_marked():
    [case] = parsed(line("a\x00b\x1bc\ud800d\uffff", verdict="pass")).iter("testcase")
    assert case.get("name") == "a\ufffdb\ufffdc\ufffdd\ufffd"

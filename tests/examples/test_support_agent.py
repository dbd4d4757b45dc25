from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.examples.reading import (
    JUDGED_KINDS,
    SUPPORT_AGENT,
    VERSIONS,
    Entry,
    read_lines,
    read_outputs,
    read_suite,
    walk,
)

NOT_RECORDED = {"1.4.0": {"CS-030"}, "1.5.0": set[str]()}
UNREADABLE = [("support-agent 1.5.0", "CS-015", "release_ready/resolution/correctness")]
PUBLIC_TEST_CARD = "4111 1111 1111 1111"

SUITE = read_suite(SUPPORT_AGENT)
CASES = {case["id"]: case for case in SUITE["tests"]}
TREE = dict(walk(SUITE["evaluators"]))
JUDGED = [path for path, node in TREE.items() if node["type"] in JUDGED_KINDS]
REPLIES = read_lines("judge.jsonl")
OUTPUTS = {f"support-agent {version}": read_outputs(version) for version in VERSIONS}


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_of(part)


def key_of(entry: Entry) -> tuple[str, str, str]:
    return entry["target"], entry["case"], entry["evaluator"]


def where(entry: Entry) -> str:
    return " ".join(key_of(entry))


READABLE = [entry for entry in REPLIES if "reply" in entry]


def replies_of(*keys: str) -> list[Any]:
    return [
        pytest.param(entry, id=where(entry))
        for entry in READABLE
        if entry["reply"].keys() == {*keys}
    ]


def test_the_suite_has_thirty_cases_in_order() -> None:
    assert list(CASES) == [f"CS-{number:03}" for number in range(1, 31)]


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case["id"])
def test_a_case_says_what_a_good_answer_is(case: Entry) -> None:
    assert case["title"]
    assert case["tags"]
    assert case["input"]
    assert case["criteria"].strip()
    assert case["expected_output"].strip()
    assert len(case.get("expected_outcomes", ["", "", ""])) in range(3, 6)


def test_names_of_siblings_differ() -> None:
    assert len(TREE) == sum(1 for _ in walk(SUITE["evaluators"]))
    for case in CASES.values():
        own = [evaluator["name"] for evaluator in case.get("assertions", [])]
        assert len({*own, *TREE}) == len(own) + len(TREE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_an_output_for_every_case_but_those_left_out_on_purpose(
    version: str,
) -> None:
    recorded = [line["id"] for line in read_lines(f"outputs-{version}.jsonl")]
    assert recorded == [case for case in CASES if case not in NOT_RECORDED[version]]


@pytest.mark.parametrize("version", VERSIONS)
def test_usage_latency_and_trace_of_an_output_agree(version: str) -> None:
    for line in read_outputs(version).values():
        calls = [step for step in line["trace"] if step["type"] == "model"]
        assert sum(step["input_tokens"] for step in calls) == line["usage"]["input_tokens"]
        assert sum(step["output_tokens"] for step in calls) == line["usage"]["output_tokens"]
        assert 0 <= line["usage"]["cached_tokens"] < line["usage"]["input_tokens"]
        ends = [step["started_ms"] + step["duration_ms"] for step in line["trace"]]
        assert ends == sorted(ends)
        assert ends[-1] <= line["latency_ms"]
        assert Decimal(str(line["cost_usd"])) > 0


def test_the_newer_version_is_cheaper_and_faster_on_every_shared_case() -> None:
    old, new = (read_outputs(version) for version in VERSIONS)
    for case in old:
        assert new[case]["cost_usd"] < old[case]["cost_usd"]
        assert new[case]["latency_ms"] < old[case]["latency_ms"]


def test_every_judge_call_of_both_versions_has_one_reply() -> None:
    expected = [
        (target, case, path)
        for target, outputs in OUTPUTS.items()
        for case in outputs
        for path in [*JUDGED, *(["@outcomes"] if CASES[case].get("expected_outcomes") else [])]
    ]
    assert sorted(map(key_of, REPLIES)) == sorted(expected)


def test_only_the_announced_reply_is_unreadable() -> None:
    unreadable = [entry for entry in REPLIES if "reply" not in entry]
    assert [key_of(entry) for entry in unreadable] == UNREADABLE
    with pytest.raises(json.JSONDecodeError):
        json.loads(unreadable[0]["text"])


@pytest.mark.parametrize("entry", replies_of("reasoning", "hits", "misses", "score"))
def test_a_judges_score_fits_its_findings(entry: Entry) -> None:
    reply = entry["reply"]
    assert TREE[entry["evaluator"]]["type"] == "llm_judge"
    assert reply["reasoning"]
    assert 0 <= reply["score"] <= 1
    assert reply["hits"] or reply["misses"]
    if reply["score"] < 0.8:
        assert reply["misses"]
    if reply["score"] == 0:
        assert len(reply["misses"]) > len(reply["hits"])


@pytest.mark.parametrize("entry", replies_of("reasoning", "criteria"))
def test_a_rubric_reply_judges_every_criterion_on_evidence(entry: Entry) -> None:
    wanted = [criterion["id"] for criterion in TREE[entry["evaluator"]]["rubrics"]]
    judged = entry["reply"]["criteria"]
    assert [criterion["id"] for criterion in judged] == wanted
    answer = OUTPUTS[entry["target"]][entry["case"]]["output"]
    for criterion in judged:
        is_absent = criterion["evidence"].startswith("Not in the answer")
        assert criterion["evidence"] in answer or (is_absent and not criterion["satisfied"])


@pytest.mark.parametrize("entry", replies_of("outcomes"))
def test_an_outcomes_reply_answers_every_outcome(entry: Entry) -> None:
    assert entry["evaluator"] == "@outcomes"
    outcomes = entry["reply"]["outcomes"]
    wanted = CASES[entry["case"]]["expected_outcomes"]
    assert [outcome["number"] for outcome in outcomes] == list(range(1, len(wanted) + 1))
    assert all(outcome["justification"] for outcome in outcomes)


@pytest.mark.parametrize("entry", READABLE, ids=where)
def test_words_in_quotes_occur_in_the_answer(entry: Entry) -> None:
    answer = OUTPUTS[entry["target"]][entry["case"]]["output"]
    for text in texts_of(entry["reply"]):
        for quote in re.findall("“([^”]*)”", text):
            assert quote in answer


def test_no_two_replies_share_their_reasoning() -> None:
    reasons = [entry["reply"]["reasoning"] for entry in READABLE if "reasoning" in entry["reply"]]
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("path", sorted(SUPPORT_AGENT.iterdir()), ids=lambda path: path.name)
def test_nothing_looks_like_a_real_person_or_secret(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert {address.split("@")[1] for address in re.findall(r"[\w.]+@[\w.]+\w", text)} <= {
        "example.com"
    }
    assert set(re.findall(r"\b(?:\d[ -]?){12,18}\d\b", text)) <= {PUBLIC_TEST_CARD}
    assert not re.search(r"sk-\w{8}|https?://|\+\d{6}|BEGIN [A-Z ]*KEY", text)

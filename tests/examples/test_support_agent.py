"""The support agent of the examples: its suite, outputs and scripted replies agree with each other."""

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


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)


def key(entry: Entry) -> tuple[str, str, str]:
    return entry["target"], entry["case"], entry["evaluator"]


def identify(entry: Entry) -> str:
    return " ".join(key(entry))


READABLE = [entry for entry in REPLIES if "reply" in entry]


def test_the_suite_has_thirty_cases_in_order() -> None:
    assert list(CASES) == [f"CS-{number:03}" for number in range(1, 31)]


def test_every_case_describes_a_good_answer() -> None:
    for case in CASES.values():
        assert case["title"], case["id"]
        assert case["tags"], case["id"]
        assert case["input"], case["id"]
        assert case["criteria"].strip(), case["id"]
        assert case["expected_output"].strip(), case["id"]
        assert len(case.get("expected_outcomes", ["", "", ""])) in range(3, 6), case["id"]


def test_names_of_siblings_differ() -> None:
    assert len(TREE) == sum(1 for _ in walk(SUITE["evaluators"]))
    for case in CASES.values():
        own = [evaluator["name"] for evaluator in case.get("assertions", [])]
        assert len({*own, *TREE}) == len(own) + len(TREE)


def test_every_version_has_an_output_for_every_case_but_those_left_out_on_purpose() -> None:
    for version in VERSIONS:
        recorded = [line["id"] for line in read_lines(f"outputs-{version}.jsonl")]
        assert recorded == [case for case in CASES if case not in NOT_RECORDED[version]]


def test_usage_latency_and_trace_of_every_output_agree() -> None:
    for line in (line for outputs in OUTPUTS.values() for line in outputs.values()):
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
    assert sorted(map(key, REPLIES)) == sorted(expected)


def test_only_the_announced_reply_is_unreadable() -> None:
    unreadable = [entry for entry in REPLIES if "reply" not in entry]
    assert [key(entry) for entry in unreadable] == UNREADABLE
    with pytest.raises(json.JSONDecodeError):
        json.loads(unreadable[0]["text"])


def test_every_reply_is_consistent_and_quotes_the_answer() -> None:
    for entry in READABLE:
        reply, answer = entry["reply"], OUTPUTS[entry["target"]][entry["case"]]["output"]
        for text in texts(reply):
            for quote in re.findall("“([^”]*)”", text):
                assert quote in answer, identify(entry)
        check = REPLY_CHECKS[frozenset(reply)]
        check(entry, reply, answer)


def check_score(entry: Entry, reply: Entry, answer: str) -> None:
    assert TREE[entry["evaluator"]]["type"] == "llm_judge", identify(entry)
    assert reply["reasoning"], identify(entry)
    assert 0 <= reply["score"] <= 1, identify(entry)
    assert reply["hits"] or reply["misses"], identify(entry)
    if reply["score"] < 0.8:
        assert reply["misses"], identify(entry)
    if reply["score"] == 0:
        assert len(reply["misses"]) > len(reply["hits"]), identify(entry)


def check_rubric(entry: Entry, reply: Entry, answer: str) -> None:
    expected = [criterion["id"] for criterion in TREE[entry["evaluator"]]["rubrics"]]
    assert [criterion["id"] for criterion in reply["criteria"]] == expected, identify(entry)
    for criterion in reply["criteria"]:
        is_absent = criterion["evidence"].startswith("Not in the answer")
        is_unmet = is_absent and not criterion["satisfied"]
        assert criterion["evidence"] in answer or is_unmet, identify(entry)


def check_outcomes(entry: Entry, reply: Entry, answer: str) -> None:
    assert entry["evaluator"] == "@outcomes", identify(entry)
    expected = CASES[entry["case"]]["expected_outcomes"]
    numbers = [outcome["number"] for outcome in reply["outcomes"]]
    assert numbers == list(range(1, len(expected) + 1)), identify(entry)
    assert all(outcome["justification"] for outcome in reply["outcomes"]), identify(entry)


REPLY_CHECKS = {
    frozenset({"reasoning", "hits", "misses", "score"}): check_score,
    frozenset({"reasoning", "criteria"}): check_rubric,
    frozenset({"outcomes"}): check_outcomes,
}


def test_no_two_replies_share_their_reasoning() -> None:
    reasons = [entry["reply"]["reasoning"] for entry in READABLE if "reasoning" in entry["reply"]]
    assert len(set(reasons)) == len(reasons)


def test_nothing_looks_like_a_real_person_or_secret() -> None:
    for path in SUPPORT_AGENT.iterdir():
        text = path.read_text(encoding="utf-8")
        hosts = {address.split("@")[1] for address in re.findall(r"[\w.]+@[\w.]+\w", text)}
        assert hosts <= {"example.com"}, path.name
        cards = set(re.findall(r"\b(?:\d[ -]?){12,18}\d\b", text))
        assert cards <= {PUBLIC_TEST_CARD}, path.name
        secret = r"sk-\w{8}|https?://|\+\d{6}|BEGIN [A-Z ]*KEY"
        assert not re.search(secret, text), path.name

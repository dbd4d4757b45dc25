"""Tool trajectories: every mode, every way to compare arguments, times, and traces that tell too little."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.kinds import read_config
from evaluators.kinds._base import PartsMissingError, Step
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.tool_trajectory import ToolTrajectoryConfig, rescore
from evaluators.kinds.tool_trajectory.matching import assign_calls
from evaluators.scoring.types import Score
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

KIND = "tool_trajectory"
EUR = {"order": "TW-1", "currency": "EUR", "amount": 20}


def steps(*calls: str | tuple[Any, ...]) -> tuple[Step, ...]:
    """Return calls of tools, each its name or (name, input, duration)."""
    facts = [call if isinstance(call, tuple) else (call,) for call in calls]
    return tuple(
        Step("tool", name, input=rest[0] if rest else None, duration_ms=(*rest, None, None)[1])
        for name, *rest in facts
    )


def scored(config: dict[str, Any], *calls: Any) -> Score:
    return score_of(KIND, config, context_of(trace=steps(*calls)))


MODES: list[tuple[str, list[Any], list[str], float]] = [
    ("any_order", ["a", "b"], ["b", "x", "a"], 1),
    ("any_order", ["a", "a", "b"], ["a", "b"], 2 / 3),
    ("any_order", ["a", "b"], [], 0),
    ("superset", ["a", "b"], ["b", "x", "a"], 1),
    ("superset", ["a", "a"], ["a", "x"], 1 / 2),
    ("in_order", ["a", "b", "c"], ["a", "x", "b", "c", "x"], 1),
    ("in_order", ["a", "b", "c"], ["c", "a", "b"], 2 / 3),
    ("in_order", ["a", "b", "c"], ["c", "b", "a"], 1 / 3),
    ("in_order", ["a", "b"], [], 0),
    ("exact", ["a", "b"], ["a", "b"], 1),
    ("exact", ["a", "b"], ["b", "a"], 0),
    ("exact", ["a", "b"], ["a"], 1 / 2),
    ("exact", ["a", "b"], ["a", "b", "b", "c"], 1 / 2),
    ("exact", [], [], 1),
    ("exact", [], ["a"], 0),
    ("subset", ["a", "b"], ["a", "a", "b"], 1),
    ("subset", ["a", "b"], ["a", "x", "x", "b"], 1 / 2),
    ("subset", ["a"], [], 1),
    ("subset", [], [], 1),
    ("subset", [], ["a"], 0),
]


@pytest.mark.parametrize(("mode", "expected", "called", "score"), MODES)
def test_the_score_is_the_share_of_the_expectations_that_are_met(
    mode: str, expected: list[Any], called: list[str], score: float
) -> None:
    assert scored({"mode": mode, "expected": expected}, *called).score == pytest.approx(score)


def test_minimums_are_expectations_beside_the_expected_calls() -> None:
    config = {"expected": ["refund"], "minimums": {"search": 2, "refund": 0}}

    score = scored(config, "search", "refund")

    assert score.score == pytest.approx(2 / 3)
    assert [(f.text, f.passed) for f in score.findings] == [
        ("refund was called (call 2)", True),
        ("search was called once, at least 2 expected", False),
        ("refund was called once, at least 0 expected", True),
    ]


def test_every_expectation_says_what_became_of_it() -> None:
    config = {
        "mode": "in_order",
        "expected": ["find", {"tool": "refund", "args": {"amount": 5}}, "check", "mail", "log"],
    }

    score = scored(config, "mail", "find", ("refund", EUR), "check", "log", "ping", "ping")

    assert [(row["word"], row["place"], row["passed"]) for row in score.details["rows"]] == [
        ("as expected", 2, True),
        ("other arguments", 3, False),
        ("as expected", 4, True),
        ("out of order", 1, False),
        ("as expected", 5, True),
        ("beyond these", 6, None),
    ]
    misses = [finding for finding in score.findings if not finding.passed]
    assert [f.text for f in misses] == [
        'refund {"amount": 5} was called with other arguments (call 3)',
        "mail was called out of order (call 1)",
    ]
    assert json.dumps(EUR) == misses[0].evidence


def test_of_calls_out_of_order_the_one_expected_later_is_named() -> None:
    score = scored({"mode": "in_order", "expected": ["find", "mail"]}, "mail", "find", "find")

    assert [(row["word"], row["place"]) for row in score.details["rows"]] == [
        ("as expected", 2),
        ("out of order", 1),
        ("beyond these", 3),
    ]


def test_an_exact_trajectory_names_each_place_that_differs() -> None:
    score = scored(
        {"mode": "exact", "expected": ["Find", "Pay", "Mail"]}, "Find", "Mail", "Pay", "x"
    )

    assert score.score == 1 / 4
    assert [f.text for f in score.findings if not f.passed] == [
        "Call 2 is Mail, not Pay",
        "Call 3 is Pay, not Mail",
        "x was called once, not expected",
    ]
    assert [row["word"] for row in score.details["rows"]][1:] == ["out of order"] * 2 + ["extra"]


ARGUMENTS: list[tuple[str, Any, Any, bool]] = [
    ("partial", {"currency": "EUR"}, EUR, True),
    ("partial", {"currency": "USD"}, EUR, False),
    ("partial", {"note": None}, EUR, False),
    ("partial", {}, None, True),
    ("exact", EUR, dict(reversed(EUR.items())), True),
    ("exact", {"amount": 20.0}, {"amount": 20}, True),
    ("exact", {"currency": "EUR"}, EUR, False),
    ("exact", {"a": 1}, {"a": True}, False),
    ("exact", {}, None, True),
    ("subset", EUR, {"currency": "EUR"}, True),
    ("subset", {"currency": "EUR"}, EUR, False),
    ("ignored", {"currency": "USD"}, EUR, True),
    ("partial", {"lines": [{"a": 1}, [2]]}, {"lines": [{"a": 1}, [2]]}, True),
    ("partial", {"lines": [{"a": 1}]}, {"lines": [{"a": 1, "b": 2}]}, False),
    ("partial", {"a": 1}, "a: 1", False),
    ("partial", {"a": 1}, [1], False),
    ("partial", {"a": 1}, {"a": float("nan")}, False),
]


@pytest.mark.parametrize(("rule", "args", "given_args", "fits"), ARGUMENTS)
def test_arguments_are_compared_as_the_rule_says(
    rule: str, args: Any, given_args: Any, fits: bool
) -> None:
    call = {"tool": "refund", "args": args}

    by_default = scored({"expected": [call], "args_match": rule}, ("refund", given_args))
    by_call = scored({"expected": [{**call, "args_match": rule}]}, ("refund", given_args))

    assert by_default.score == by_call.score == float(fits)


def test_as_many_expectations_as_can_be_are_answered() -> None:
    narrow = {"tool": "search", "args": {"query": "a"}}

    score = scored({"expected": ["search", narrow]}, ("search", {"query": "a"}), "search")

    assert score.score == 1


def test_a_limit_on_the_time_of_a_call_is_one_more_expectation() -> None:
    config = {
        "mode": "in_order",
        "expected": [
            {"tool": "find", "max_duration_ms": 100},
            {"tool": "pay", "max_duration_ms": 100},
            {"tool": "mail", "max_duration_ms": 100},
        ],
    }

    score = scored(config, ("find", None, 100), ("pay", None, 101))

    assert score.score == pytest.approx(3 / 6)
    assert [row["word"] for row in score.details["rows"]] == [
        *("as expected", "in time", "as expected", "too slow", "missing", "not timed")
    ]


def test_without_a_trace_or_a_time_nothing_is_scored() -> None:
    config = {"expected": [{"tool": "find", "max_duration_ms": 100}]}

    untraced = unscored_of(KIND, config, context_of(trace=None))
    untimed = unscored_of(KIND, config, context_of(trace=steps("find")))

    assert (untraced.stage, untimed.stage) == ("evaluator", "evaluator")
    assert "no trace" in untraced.reason
    assert "how long find took" in untimed.reason
    assert scored(config).score == 0


def test_calls_of_models_are_no_calls_of_tools() -> None:
    trace = (Step("model", "a"), Step("tool", "b"))

    assert score_of(KIND, {"mode": "exact", "expected": ["b"]}, context_of(trace=trace)).score == 1


def test_stored_calls_can_be_held_to_another_mode_but_not_to_other_calls() -> None:
    details = json.loads(json.dumps(scored({"expected": ["a", "b"]}, "b", "a").details))

    assert rescore(read({"mode": "in_order", "expected": ["a", "b"]}), details).score == 1 / 2
    assert rescore(read({"minimums": {"a": 2}}), details).score == 0
    with pytest.raises(PartsMissingError, match="calls of c"):
        rescore(read({"expected": ["a", "c"]}), details)
    with pytest.raises(PartsMissingError, match="how long a took"):
        rescore(read({"expected": [{"tool": "a", "max_duration_ms": 1}]}), details)


def read(config: dict[str, Any]) -> ToolTrajectoryConfig:
    found = read_config(KIND, config)
    assert isinstance(found, ToolTrajectoryConfig)
    return found


def test_thousands_of_calls_are_told_in_few_words() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    calls = [("search", {"query": "x" * 100_000}), ("search", deep)] * 2500

    exact = {"tool": "search", "args": {"a": {}}, "args_match": "exact"}
    score = scored({"mode": "subset", "expected": [exact, "find"]}, *calls)
    ordered = scored({"mode": "in_order", "expected": ["search"] * 200}, *calls)

    assert (score.score, ordered.score) == (0, 1)
    assert [f.text for f in score.findings] == ["search was called 5\u202f000 times, not expected"]
    assert len(json.dumps(score.details)) < 2_000_000


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "any_order needs expected or minimums"),
        ({"mode": "in_order"}, "in_order needs expected"),
        ({"mode": "sorted", "expected": ["a"]}, "mode: 'sorted' is not one of"),
        ({"mode": "exact", "expected": ["a"], "minimums": {"a": 1}}, "exact takes no minimums"),
        ({"minimums": {"a": -1}}, "minimums.a: -1 is refused"),
        ({"minimums": {"a": "often"}}, "minimums.a"),
        ({"expected": [{"args": {}}]}, "expected[0].tool: is missing"),
        ({"expected": [""]}, "expected[0].tool"),
        ({"expected": ["a"] * 201}, "expected"),
        ({"expected": [{"tool": "a", "args": [1]}]}, "expected[0].args"),
        ({"expected": [{"tool": "a", "args": {"b": float("nan")}}]}, "a value that is not JSON"),
        ({"expected": [{"tool": "a", "when": 1}]}, "expected[0].when: is not known here"),
        ({"expected": "a"}, "expected"),
        (
            {"mode": "subset", "expected": [{"tool": "a", "max_duration_ms": 1}]},
            "subset takes no max_duration_ms",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_name(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Evaluator tools: ") as refused:
        read_config(KIND, config, evaluator="tools")

    assert said in str(refused.value)


SPELT = [
    (
        "{type: tool-trajectory, mode: any_order, minimums: {knowledgeSearch: 2}}",
        {"minimums": {"knowledgeSearch": 2}},
    ),
    (
        "{type: tool_trajectory, mode: in_order, expected: [find, {tool: pay, args: any}]}",
        {"mode": "in_order", "expected": [{"tool": "find"}, {"tool": "pay"}]},
    ),
    (
        "{type: toolTrajectory, mode: exact, argsMatch: ignore, expected: [{tool: a, args: {b: 1}}]}",
        {"mode": "exact", "args_match": "ignored", "expected": [{"tool": "a", "args": {"b": 1}}]},
    ),
    (
        "{type: tool-trajectory, mode: superset, expected: "
        "[{tool: a, args: {b: 1, c: 2}, argsMatch: [b], maxDurationMs: 9}]}",
        {
            "mode": "superset",
            "expected": [
                {"tool": "a", "args": {"b": 1}, "args_match": "partial", "max_duration_ms": 9}
            ],
        },
    ),
    (
        "{type: tool-trajectory, mode: subset, args_match: [b], expected: [{name: a, arguments: {b: 1, c: 2}}]}",
        {"mode": "subset", "expected": [{"tool": "a", "args": {"b": 1}}]},
    ),
    (
        "{type: tool-trajectory, mode: subset, expected: [{tool: a, args: {b: 1}, args_match: superset}]}",
        {
            "mode": "subset",
            "expected": [{"tool": "a", "args": {"b": 1}, "args_match": "partial"}],
        },
    ),
]
SPELT += [
    ("{type: 'trajectory:tool-used', value: find}", {"minimums": {"find": 1}}),
    ("{type: 'trajectory:tool-used', value: [find, pay]}", {"minimums": {"find": 1, "pay": 1}}),
    ("{type: 'trajectory:tool-used', value: {name: find, min: 2}}", {"minimums": {"find": 2}}),
    (
        "{type: 'trajectory:tool-sequence', value: {mode: exact, steps: [find, pay]}}",
        {"mode": "exact", "expected": [{"tool": "find"}, {"tool": "pay"}]},
    ),
    (
        "{type: 'trajectory:tool-sequence', value: [find]}",
        {"mode": "in_order", "expected": [{"tool": "find"}]},
    ),
    (
        "{type: 'trajectory:tool-args-match', value: {name: pay, args: {b: 1}, mode: exact}}",
        {"args_match": "exact", "expected": [{"tool": "pay", "args": {"b": 1}}]},
    ),
]


@pytest.mark.parametrize(("written", "meant"), SPELT)
def test_trajectories_are_read_in_every_spelling_and_written_back_the_same(
    written: str, meant: dict[str, Any]
) -> None:
    content = suite_files.read_suite(suite(written))

    config = read_config(KIND, content.evaluators.children[0].config)
    assert config.model_dump(mode="json", exclude_defaults=True) == meant
    assert content.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(content)) == content


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("tool-used', value: {name: find, max: 2}", "value.max: is not supported here"),
        ("tool-used', value: {pattern: 'f.*'}", "value.pattern: is not supported here"),
        ("tool-used', value: {}", "name of a tool"),
        ("tool-used'", "needs expected or minimums"),
        ("tool-sequence', value: 5", "expected"),
        ("tool-args-match', value: {args: {b: 1}}", "expected[0].tool"),
        ("tool-args-match', value: {name: a, ignore: [b]}", "value.ignore: is not supported here"),
    ],
)
def test_what_a_trajectory_cannot_be_held_to_here_is_refused_by_name(
    written: str, said: str
) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(suite(f"{{type: 'trajectory:{written}}}"))

    assert said in str(refused.value)


def test_a_bad_expected_call_of_a_file_is_refused_at_its_line() -> None:
    with pytest.raises(UnreadableFileError, match=r"expected\[0\].tool: is missing"):
        suite_files.read_suite(suite("{type: tool-trajectory, expected: [{args: {b: 1}}]}"))


def suite(evaluator: str) -> bytes:
    return f"name: s\nevaluators:\n  - {evaluator}\ntests:\n  - {{id: a, input: hi}}\n".encode()


FITS = st.lists(st.sets(st.integers(0, 3)).map(sorted), max_size=4)


@given(FITS)
def test_no_other_choice_of_calls_answers_more(fits: list[list[int]]) -> None:
    for mode in ("in_order", "any_order"):
        found = [place for place in assign_calls(mode, fits) if place is not None]
        assert len(found) == most_answers(fits, ordered=mode == "in_order")
        assert len(set(found)) == len(found)
        assert mode != "in_order" or found == sorted(found)
        assert all(
            p is None or p in places
            for p, places in zip(assign_calls(mode, fits), fits, strict=True)
        )


def most_answers(fits: list[list[int]], *, ordered: bool) -> int:
    """Return the most expectations that calls can answer, by trying all there are."""
    best = 0
    for places in permutations([*range(4), *[-1] * len(fits)], len(fits)):
        answers = [p for p, fit in zip(places, fits, strict=True) if p in fit]
        if not ordered or answers == sorted(answers):
            best = max(best, len(answers))
    return best


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5)


@given(NAMES, NAMES.filter(bool))
def test_stricter_modes_never_score_higher(called: list[str], expected: list[str]) -> None:
    score = {
        mode: scored({"mode": mode, "expected": expected}, *called).score
        for mode in ("exact", "in_order", "superset", "any_order")
    }

    assert score["exact"] <= score["in_order"] + 1e-9
    assert score["in_order"] <= score["superset"] + 1e-9
    assert score["superset"] == score["any_order"]
    assert (score["exact"] == 1) == (called == expected)


CALLS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(0, 1)),
        st.integers(0, 200),
    ),
    max_size=5,
)
EXPECTED = st.lists(
    st.fixed_dictionaries(
        {"tool": st.sampled_from("abc")},
        optional={
            "args": st.dictionaries(st.sampled_from("xy"), st.integers(0, 1)),
            "args_match": st.sampled_from(["exact", "partial", "subset", "ignored"]),
        },
    ),
    min_size=1,
    max_size=4,
)


@given(CALLS, EXPECTED, st.sampled_from(["any_order", "in_order", "exact", "subset", "superset"]))
def test_the_score_is_1_where_nothing_is_missed_and_follows_from_what_is_stored(
    calls: list[Any], expected: list[Any], mode: str
) -> None:
    config = {"mode": mode, "expected": expected}

    score = scored(config, *calls)

    assert (score.score == 1) == all(finding.passed for finding in score.findings)
    stored = json.loads(json.dumps(score.details))
    assert rescore(read(config), stored).findings == score.findings

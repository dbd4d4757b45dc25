"""Execution metrics: limits kept and breached, figures that are missing, and money to the cent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.catalog.kind_forms import KindForm
from evaluators.kinds import get_kind, read_config
from evaluators.kinds._base import Context, Message, Output, PartsMissingError, Step
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.execution_metrics import ExecutionMetricsConfig, rescore
from evaluators.scoring.types import Usage
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from tests.evaluators.kinds.doubles import case_of, score_of, unscored_of

KIND = "execution_metrics"
TRACE = (
    Step("model", "m", input_tokens=300, output_tokens=20),
    Step("tool", "find_order"),
    Step("tool", "refund"),
    Step("model", "m", input_tokens=400, output_tokens=80),
)
USAGE = Usage(input_tokens=700, output_tokens=100, cost_usd=Decimal("0.012"), latency_ms=5000)


def context_of(
    usage: Usage = USAGE,
    trace: tuple[Step, ...] | None = TRACE,
    messages: tuple[Message, ...] = (),
) -> Context:
    return Context("path", case_of(), Output("Done.", messages, trace, usage=usage))


LIMITS: list[tuple[str, Any, Any]] = [
    ("max_tokens", 800, 799),
    ("max_input_tokens", 700, 699),
    ("max_output_tokens", 100, 99),
    ("max_tool_calls", 2, 1),
    ("max_model_calls", 2, 1),
    ("max_duration_ms", 5000, 4999),
    ("max_cost_usd", 0.012, 0.0119),
]


@pytest.mark.parametrize(("name", "kept", "breached"), LIMITS)
def test_a_figure_at_its_limit_keeps_it_and_one_over_it_scores_0(
    name: str, kept: Any, breached: Any
) -> None:
    good = score_of(KIND, {name: kept}, context_of())
    bad = score_of(KIND, {name: breached}, context_of())

    assert (good.score, [f.passed for f in good.findings]) == (1, [True])
    assert (bad.score, [f.passed for f in bad.findings]) == (0, [False])
    assert "over the limit of" in bad.findings[0].text


def test_one_breach_of_several_limits_scores_0_and_names_each_figure() -> None:
    score = score_of(KIND, {"max_tokens": 1000, "max_duration_ms": 4000}, context_of())

    assert score.score == 0
    assert [f.text.replace("\u202f", " ").replace("\u00a0", " ") for f in score.findings] == [
        "Tokens: 800, at most 1 000",
        "Duration: 5 000 ms, over the limit of 4 000 ms",
    ]


def test_proportional_is_the_mean_of_limit_by_actual_one_at_most() -> None:
    config = {"max_tokens": 400, "max_tool_calls": 9, "proportional": True}

    assert score_of(KIND, config, context_of()).score == pytest.approx((0.5 + 1) / 2)


def test_a_share_is_the_limits_kept_of_all() -> None:
    limits = {"max_tokens": 1000, "max_tool_calls": 9, "max_duration_ms": 4000}

    assert score_of(KIND, {**limits, "share_kept": True}, context_of()).score == pytest.approx(
        2 / 3
    )


def test_latency_and_cost_fall_evenly_from_their_limit_to_where_they_score_0() -> None:
    # 5,000 ms and $0.012, by hand: 1 − (actual − limit) ÷ (limit × (zero_at − 1)).
    for limits, zero_at, score in (
        ({"max_duration_ms": 5000}, 1.5, 1.0),
        ({"max_duration_ms": 4000}, 1.5, 0.5),
        ({"max_duration_ms": 2500}, 2, 0.0),
        ({"max_duration_ms": 1000}, 2, 0.0),
        ({"max_cost_usd": 0.01}, 3, 0.9),
        ({"max_cost_usd": 0.01, "max_duration_ms": 4000}, 3, (0.9 + 0.875) / 2),
        ({"max_tool_calls": 0}, 3, 0.0),
    ):
        found = score_of(KIND, {**limits, "zero_at": zero_at}, context_of())
        assert found.score == pytest.approx(score), (limits, zero_at)
    written = "{name: a, type: latency, max: 2000, zero_at: 3}"
    (node,) = suite_files.read_suite(suite(written)).evaluators.children
    assert (node.config["max_duration_ms"], node.config["zero_at"]) == (2000, 3)


@pytest.mark.parametrize("proportional", [False, True])
def test_a_limit_of_0_allows_none_at_all(proportional: bool) -> None:
    config = {"max_tool_calls": 0, "proportional": proportional}

    assert score_of(KIND, config, context_of()).score == 0
    assert score_of(KIND, config, context_of(trace=())).score == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_tokens", "its tokens"),
        ("max_input_tokens", "its input tokens"),
        ("max_tool_calls", "its tool calls"),
        ("max_model_calls", "its model calls"),
        ("max_duration_ms", "its duration"),
        ("max_cost_usd", "its cost"),
    ],
)
def test_a_figure_nobody_reported_is_unscored_and_named(name: str, said: str) -> None:
    outcome = unscored_of(KIND, {name: 5}, context_of(Usage(), trace=None))

    assert said in outcome.reason
    assert name in outcome.reason
    assert outcome.stage == "evaluator"


def test_a_kept_limit_does_not_hide_a_missing_figure_nor_a_breached_one() -> None:
    usage = Usage(input_tokens=1)

    for tokens in (0, 9):
        config = {"max_input_tokens": tokens, "max_cost_usd": 1}
        assert "cost" in unscored_of(KIND, config, context_of(usage)).reason


def test_half_of_the_tokens_is_not_all_of_them() -> None:
    usage = Usage(input_tokens=100)

    assert "tokens" in unscored_of(KIND, {"max_tokens": 500}, context_of(usage, None)).reason


def test_tokens_of_the_calls_of_a_model_stand_in_for_a_total() -> None:
    assert score_of(KIND, {"max_tokens": 800}, context_of(Usage())).score == 1
    assert score_of(KIND, {"max_tokens": 799}, context_of(Usage())).score == 0
    silent = (*TRACE, Step("model", "m"))
    assert unscored_of(KIND, {"max_tokens": 800}, context_of(Usage(), silent))


def test_a_trace_of_tools_alone_does_not_say_that_no_model_was_called() -> None:
    tools, turns = (Step("tool", "refund"),), (Message("assistant", "Looking."),) * 3
    config = {"max_model_calls": 2}

    assert unscored_of(KIND, config, context_of(trace=tools))
    assert score_of(KIND, config, context_of(trace=tools, messages=turns)).score == 0


def test_money_is_compared_to_the_billionth_and_not_as_a_float() -> None:
    usage = Usage(cost_usd=Decimal("0.1") + Decimal("0.2"))

    assert score_of(KIND, {"max_cost_usd": 0.3}, context_of(usage)).score == 1
    dearer = Usage(cost_usd=Decimal("0.300000001"))
    assert score_of(KIND, {"max_cost_usd": 0.3}, context_of(dearer)).score == 0
    hardly = Usage(cost_usd=Decimal("0.3000000001"))
    assert score_of(KIND, {"max_cost_usd": 0.3}, context_of(hardly)).score == 1


def test_stored_figures_can_be_held_to_other_limits_but_not_to_unknown_ones() -> None:
    details = score_of(KIND, {"max_tokens": 800}, context_of(Usage(1, 2))).details

    assert rescore(ExecutionMetricsConfig(max_tokens=2), details).score == 0
    assert rescore(ExecutionMetricsConfig(max_input_tokens=1), details).score == 1
    with pytest.raises(PartsMissingError, match="cost"):
        rescore(ExecutionMetricsConfig(max_cost_usd=Decimal(1)), details)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "needs a limit"),
        ({"proportional": True}, "needs a limit"),
        ({"max_tokens": 1, "proportional": True, "share_kept": True}, "keep one of them"),
        ({"max_tokens": 1, "zero_at": 2, "share_kept": True}, "keep one of them"),
        ({"max_tokens": 1, "zero_at": 1}, "zero_at: 1 is refused"),
        ({"max_tokens": -1}, "max_tokens: -1 is refused"),
        ({"max_tokens": 1.5}, "max_tokens: 1.5 is refused"),
        ({"max_tokens": "many"}, "max_tokens: 'many' is refused"),
        ({"max_cost_usd": "NaN"}, "max_cost_usd: 'NaN' is refused"),
        ({"max_cost_usd": "0.12345678901"}, "max_cost_usd"),
        ({"max_token": 5}, "max_token: is not a setting"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused_by_name(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Evaluator efficiency: ") as refused:
        read_config(KIND, config, evaluator="efficiency")

    assert said in str(refused.value)


SPELT = [
    ("{type: latency, threshold: 2000}", {"max_duration_ms": 2000}),
    ("{type: latency, max_ms: 2000}", {"max_duration_ms": 2000}),
    ("{type: cost, budget: 0.1}", {"max_cost_usd": 0.1}),
    ("{type: cost, threshold: 0.1}", {"max_cost_usd": 0.1}),
    ("{type: cost, max_usd: 0}", {"max_cost_usd": 0.0}),
    ("{type: token-usage, max_total: 9, max_input: 8}", {"max_tokens": 9, "max_input_tokens": 8}),
    ("{type: token_usage, maxOutput: 7}", {"max_output_tokens": 7}),
    ("{type: execution-metrics, max_llm_calls: 3}", {"max_model_calls": 3}),
    (
        "{type: execution_metrics, max_tokens: 1000, max_duration_ms: 5000}",
        {"max_tokens": 1000, "max_duration_ms": 5000},
    ),
]


@pytest.mark.parametrize(("written", "meant"), SPELT)
def test_limits_are_read_in_every_spelling_and_written_back_the_same(
    written: str, meant: dict[str, Any]
) -> None:
    content = suite_files.read_suite(suite(written))

    config = read_config(KIND, content.evaluators.children[0].config)
    assert config.model_dump(mode="json", exclude_defaults=True) == meant
    assert suite_files.read_suite(suite_files.write_suite(content)) == content


def test_a_limit_said_twice_is_refused_with_its_line() -> None:
    with pytest.raises(UnreadableFileError, match="max_total says the same as max_tokens"):
        suite_files.read_suite(suite("{type: token-usage, max_total: 9, max_tokens: 8}"))


def suite(evaluator: str) -> bytes:
    return f"name: s\nevaluators:\n  - {evaluator}\ntests:\n  - {{id: a, input: hi}}\n".encode()


def test_the_form_takes_money_as_a_number() -> None:
    form = KindForm(get_kind(KIND), {"max_cost_usd": "0.05", "max_tool_calls": "0"})

    assert form.is_valid(), form.errors
    assert form.config["max_cost_usd"] == 0.05
    assert form.config["max_tool_calls"] == 0


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=2, max_size=2),
    st.integers(1, 1000),
)
def test_proportional_never_scores_below_and_only_agrees_on_1(
    pairs: list[tuple[int, int]], wider: int
) -> None:
    (most_in, spent_in), (most_out, spent_out) = pairs
    output = Output("x", usage=Usage(spent_in, spent_out))
    context = Context("path", case_of(), output)
    limits = {"max_input_tokens": most_in, "max_output_tokens": most_out}

    strict = score_of(KIND, limits, context).score
    shared = score_of(KIND, {**limits, "proportional": True}, context).score
    assert strict <= shared <= 1
    assert (strict == 1) == (shared == 1) == (spent_in <= most_in and spent_out <= most_out)
    eased = {name: limit + wider for name, limit in limits.items()}
    assert score_of(KIND, {**eased, "proportional": True}, context).score >= shared

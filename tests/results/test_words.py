"""What reports say in words: differences, families, gates, addresses and conversations."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from evaluators.scoring.policy import PolicySpec
from runs.costs import run_costs
from runs.filters.queries import ResultsQuery
from runs.models.results import ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.run_page import run_head, run_live
from runs.results.runs import cases_gate, metrics_gate, run_row, with_list_columns
from runs.running.estimate import model_family
from runs.texts import MAX_SHOWN_LENGTH, conversation, text_diff
from tests.support.factories import STARTED, make_call, make_result, make_run, make_suite

ASKED = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("expected", "output", "lines"),
    [
        ("same", "same", [("same", [("same", False)])]),
        (
            "It takes 5 days",
            "It takes 2 days",
            [
                ("bad", [("It takes ", False), ("5", True), (" days", False)]),
                ("good", [("It takes ", False), ("2", True), (" days", False)]),
            ],
        ),
        ("a b c\nd", "a b c", [("same", [("a b c", False)]), ("bad", [("d", True)])]),
        ("a b c", "a b c\n\nd", [("same", [("a b c", False)]), ("good", [("d", True)])]),
    ],
)
def test_a_difference_is_told_by_lines_and_words(
    expected: str, output: str, lines: list[tuple[str, list[tuple[str, bool]]]]
) -> None:
    found = text_diff(expected, output)
    assert found is not None
    assert [(line.tone, [(p.text, p.is_changed) for p in line.parts]) for line in found] == lines


def test_long_texts_of_repeated_lines_are_compared_line_by_line() -> None:
    expected, output = "a\n" * 1_400 + "b", "c\n" + "a\n" * 1_400
    found = text_diff(expected, output)
    assert found is not None
    assert [line.tone for line in found] == ["good", *["same"] * 1_400, "bad"]


@pytest.mark.parametrize("output", ["nothing in common here", "x" * 10_000])
def test_texts_too_unlike_or_too_long_stand_side_by_side(output: str) -> None:
    assert text_diff("The tent was damaged on arrival", output) is None


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        ("gpt-4o-mini", "gpt"),
        ("openai/gpt-4.1", "gpt"),
        ("Llama3.1-70b", "llama"),
        ("o3", "o"),
        ("7b-instruct", "7b-instruct"),
    ],
)
def test_a_family_is_what_a_models_id_begins_with(model_id: str, family: str) -> None:
    assert model_family(model_id) == family


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"verdict": "fail", "q": "a b", "tag": "x&y", "sort": "-score"},
        {"after": "0.1~3~17", "sort": "cost"},
        {"flaky": "1", "verdict": "borderline", "sort": "-spread"},
    ],
)
def test_an_address_reads_back_as_it_was_written(parameters: dict[str, str]) -> None:
    query = ResultsQuery.read(parameters)
    assert ResultsQuery.read(query.parameters()) == query
    assert query.parameters() == parameters


def run_of(**columns: Any) -> Run:
    facts = {
        "status": "running",
        "execution_count": 10,
        "repetitions": 1,
        "created_at": STARTED,
        "snapshot": {},
    }
    return Run(**facts | columns)


@pytest.mark.parametrize(
    ("columns", "share", "state", "words"),
    [
        ({}, None, "open", "must average 80.0%"),
        (
            {"done_count": 5, "score_count": 5, "score_sum": 2.0},
            0.4,
            "out_of_reach",
            "Can't be reached",
        ),
        (
            {"done_count": 5, "score_count": 5, "score_sum": 3.5},
            0.7,
            "at_risk",
            "must average 90.0%",
        ),
        ({"status": "completed", "score_count": 10, "score_sum": 8.0}, 0.8, "passed", "10 of 10"),
        ({"status": "completed", "score_count": 9, "score_sum": 7.0}, 7 / 9, "failed", "9 of 10"),
        ({"status": "stopped", "score_count": 2, "score_sum": 2.0}, 1.0, "open", "2 of 10"),
        ({"status": "completed", "execution_count": 0}, None, "open", "0 of 0"),
    ],
)
def test_the_metrics_gate_in_words(
    columns: dict[str, Any], share: float | None, state: str, words: str
) -> None:
    gate = metrics_gate(run_of(**columns), PolicySpec())
    assert (gate.share, gate.state) == (pytest.approx(share) if share else share, state)
    assert words in gate.note


@pytest.mark.parametrize(
    ("columns", "state", "words"),
    [
        ({"done_count": 4, "pass_count": 4}, "on_course", "6 of the remaining 6 must pass"),
        ({"done_count": 4, "pass_count": 3}, "out_of_reach", "3 of 4 passed"),
        ({"status": "completed", "done_count": 10, "pass_count": 10}, "passed", "10 of 10"),
        ({"status": "completed", "done_count": 10, "pass_count": 9}, "failed", "9 of 10"),
        ({"status": "stopped", "done_count": 4, "pass_count": 4}, "open", "4 of 4"),
    ],
)
def test_the_cases_gate_in_words(columns: dict[str, Any], state: str, words: str) -> None:
    gate = cases_gate(run_of(**columns), PolicySpec(cases_pass_threshold=1.0))
    assert gate.state == state
    assert words in gate.note


@pytest.mark.parametrize(
    ("output", "roles"),
    [
        ({}, ["user"]),
        ({"text": "Yes"}, ["user", "assistant"]),
        (
            {"text": "Yes", "messages": [*ASKED, {"role": "assistant", "content": "Yes"}]},
            ["user", "assistant"],
        ),
        (
            {"text": "Yes", "messages": [{"role": "assistant", "content": "Yes"}]},
            ["user", "assistant"],
        ),
        (
            {"text": "Yes", "messages": [{"role": "system", "content": "Be kind"}, *ASKED]},
            ["system", "user", "assistant"],
        ),
    ],
)
def test_a_conversation_is_input_and_answer_once(output: dict[str, Any], roles: list[str]) -> None:
    turns = conversation(Case(input=ASKED), ResultOutput(**output))
    assert [turn["role"] for turn in turns.messages] == roles


def test_a_turn_that_names_files_is_shown_once_too() -> None:
    blocks = [{"type": "file", "value": "./a.md"}]
    said = [*ASKED, {"role": "assistant", "content": "Yes"}]
    case = Case(input=[{**turn, "blocks": blocks} for turn in ASKED])

    turns = conversation(case, ResultOutput(text="Yes", messages=said))

    assert [turn["role"] for turn in turns.messages] == ["user", "assistant"]


def test_what_is_cut_from_a_conversation_is_counted() -> None:
    turns = conversation(Case(input=ASKED), ResultOutput(text="x" * (MAX_SHOWN_LENGTH + 7)))
    assert turns.cut_characters == 7
    assert len(turns.messages[-1]["content"]) == MAX_SHOWN_LENGTH


def test_of_many_long_turns_the_later_ones_are_cut_to_their_beginnings() -> None:
    said = [{"role": "assistant", "content": f"{number} {'x' * 20_000}"} for number in range(300)]

    turns = conversation(Case(input=ASKED), ResultOutput(text="", messages=said))

    shown = [turn["content"] for turn in turns.messages]
    assert (len(shown), shown[-1][:3]) == (301, "299")
    assert sum(map(len, shown)) < 300_000
    assert turns.cut_characters == sum(len(turn["content"]) for turn in said) - sum(
        map(len, shown[1:])
    )


@pytest.mark.django_db
def test_rate_time_left_and_forecast_follow_from_what_is_done() -> None:
    run = make_run(suite=make_suite(cases=10), status="running", finished_at=None)
    for case in run.suite.cases.all()[:5]:
        make_result(run=run, case=case, verdict="pass", score=1.0)
    for case in run.suite.cases.all()[5:]:
        make_result(run=run, case=case)
    live = run_live(run, now=STARTED + timedelta(seconds=30))
    assert live.progress.per_minute == pytest.approx(10)
    assert live.progress.left_ms == pytest.approx(30_000)
    assert live.costs.forecast_usd == Decimal("0.16")
    assert live.progress.cases_done == 5


@pytest.mark.django_db
def test_the_rate_of_a_resumed_run_leaves_out_what_was_finished_before() -> None:
    run = make_run(suite=make_suite(cases=10), status="running", finished_at=None)
    cases = list(run.suite.cases.all())
    for case in cases[:5]:
        make_result(
            run=run,
            case=case,
            verdict="pass",
            score=1.0,
            finished_at=STARTED - timedelta(minutes=5),
        )
    make_result(run=run, case=cases[5], verdict="pass", score=1.0)
    for case in cases[6:]:
        make_result(run=run, case=case)
    live = run_live(run, now=STARTED + timedelta(seconds=30))
    assert live.progress.per_minute == pytest.approx(2)
    assert live.progress.left_ms == pytest.approx(120_000)


@pytest.mark.django_db
def test_no_more_are_under_way_than_the_run_allows() -> None:
    run = make_run(suite=make_suite(cases=6), status="running", finished_at=None, concurrency=2)
    for case in run.suite.cases.all():
        make_result(run=run, case=case, status="running")
    assert run_live(run, now=STARTED + timedelta(seconds=1)).progress.at_once == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "judged", "expected"),
    [
        ({"run_cost_usd": None, "evaluation_cost_usd": None}, False, (None, 0, None)),
        ({"run_cost_usd": None, "evaluation_cost_usd": None}, True, (None, None, None)),
        ({"run_cost_usd": 0, "evaluation_cost_usd": None}, False, (0, 0, 0)),
        ({"run_cost_usd": 0, "evaluation_cost_usd": None}, True, (0, None, None)),
        ({"run_cost_usd": None}, True, (None, Decimal("0.004"), Decimal("0.004"))),
    ],
)
def test_a_cost_without_a_price_is_unknown_and_never_empty(
    columns: dict[str, Any], judged: bool, expected: tuple[Decimal | None, ...]
) -> None:
    run = make_run(suite=make_suite(cases=1), status="completed")
    result = make_result(run=run, case=run.suite.cases.get(), verdict="pass", score=1.0, **columns)
    if judged:
        make_call(result=result, cost_usd=result.evaluation_cost_usd)
    run.refresh_from_db()
    found = run_costs(run)
    assert (found.run.usd, found.evaluation.usd, found.total_usd) == expected
    row = run_row(with_list_columns(Run.objects.filter(pk=run.pk)).get())
    assert (row.costs.run.usd, row.costs.evaluation.usd) == expected[:2]
    assert row.costs.is_partial == found.is_partial


@pytest.mark.django_db
def test_the_head_outlines_the_frozen_tree() -> None:
    lines = run_head(make_run(), now=STARTED).evaluators
    assert [(line.depth, line.name, line.facts) for line in lines] == [
        (0, "all", ""),
        (1, "tone", "×2"),
        (1, "refund", "×1"),
    ]

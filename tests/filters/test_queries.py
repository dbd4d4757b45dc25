"""Filters over the cases of stored runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.compare.many import ManyQuery, many_runs
from runs.filters.language import FilterError
from runs.filters.queries import ResultsQuery, matching_cases, matching_keys
from runs.models.results import ResultOutput
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.results.files import listed_ids
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
    refresh_cases,
)
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db
TREE = tree({**CHECK, "name": "tone"}, {**CHECK, "name": "no_slang", "negate": True})
METRICS = [{"key": "grounding", "name": "Grounding", "score": 2, "label": "poor"}]
NO_COSTS = {"run_cost_usd": None, "evaluation_cost_usd": None}
DIMENSIONS = [{"key": "process", "name": "Process", "final": 7.5}]


def keys_of(run: Run, text: str, baseline: Run | None = None) -> set[str]:
    """Return the keys of the cases that match."""
    if baseline is not None:
        return set(matching_keys([run], baseline, text))
    found = matching_cases(run, ResultsQuery(text=text))
    return set(found.values_list("case__key", flat=True))


@pytest.fixture
def suite() -> Suite:
    """Make a suite of three cases."""
    suite = make_suite(slug="support", tree=TREE)
    say = {"role": "user", "content": "Wo ist mein Päckchen?"}
    make_case(
        suite=suite,
        key="C-1",
        title="Late parcel",
        tags=["billing", "late"],
        metadata={"channel": "email", "customer": {"tier": 2}, "langs": ["de", "en"]},
        input=[say],
        expected_outcomes=["Mentions the refund", "Apologises"],
    )
    make_case(suite=suite, key="C-2", tags=["billing"], metadata={"channel": "chat"})
    make_case(suite=suite, key="C-3", tags=[])
    return suite


def begin(suite: Suite) -> tuple[Run, dict[str, Case]]:
    """Make a run without results."""
    target = make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=TREE)
    run = make_run(suite=suite, target=target, snapshot=snapshot, repetitions=2)
    return run, {case.key: case for case in suite.cases.all()}


@pytest.fixture
def run(suite: Suite) -> Run:
    """Make a run of three cases with two repetitions: one flaky, one that passes, one with an error."""
    run, cases = begin(suite)
    money = {"run_cost_usd": Decimal("0.01"), "evaluation_cost_usd": Decimal("0.02")}
    tokens = {"input_tokens": 900, "output_tokens": 100}
    first = make_result(
        run=run, case=cases["C-1"], verdict="pass", score=0.9, repetition=1, latency_ms=1000,
        outcome_marks="10", **money, **tokens,
    )  # fmt: skip
    second = make_result(
        run=run, case=cases["C-1"], verdict="fail", score=0.3, repetition=2, latency_ms=3000,
        outcome_marks="11", **money, **tokens,
    )  # fmt: skip
    for result, tone in ((first, 1.0), (second, 0.2)):
        make_score(result=result, path="tone", score=tone, reasoning="Too curt by far")
        make_score(result=result, path="no_slang", score=0.25)
    third = make_result(
        run=run, case=cases["C-2"], verdict="pass", score=0.9, latency_ms=500, **NO_COSTS
    )
    make_score(result=third, path="tone", score=1.0)
    make_score(
        result=third, path="judge", kind="metrics_judge", score=0.4, details={"metrics": METRICS}
    )
    make_score(
        result=third,
        path="hybrid",
        kind="hybrid_judge",
        score=0.7,
        details={"dimensions": DIMENSIONS},
    )
    ResultOutput.objects.create(
        result=second,
        text="Your REFUND is on its way",
        trace=[{"type": "tool", "name": "find_order", "input": {"name": "x"}}],
    )
    ResultOutput.objects.create(
        result=third,
        text="No idea, the 返金 is at Lange Straße 5",
        trace=[{"type": "model", "name": "m"}],
    )
    make_result(
        run=run, case=cases["C-3"], status="error", repetition=1, error="502", error_stage="target",
        score=None, latency_ms=None, **NO_COSTS,
    )  # fmt: skip
    refresh_cases(run)
    return run


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {"C-1", "C-2", "C-3"}),
        ("case = C-2", {"C-2"}),
        ("title = parcel", {"C-1"}),
        ("parcel", {"C-1"}),
        ("päckchen", {"C-1"}),
        ("Päckchen", {"C-1"}),
        ("refund", {"C-1"}),
        ("curt", {"C-1"}),
        ("reasoning = curt", {"C-1"}),
        ("output = refund", {"C-1"}),
        ("output = ref", {"C-1"}),
        ("output = fund", set()),
        ('output = "refund is on"', {"C-1"}),
        ('output = "refund is o"', {"C-1"}),
        ('output = "is refund"', set()),
        ('output = "refund way"', set()),
        ("output = 返金", {"C-2"}),
        ("output = straße", {"C-2"}),
        ("output = STRASSE", {"C-2"}),
        ("packchen", {"C-1"}),
        ("C-1", {"C-1"}),
        ("output != refund", {"C-2", "C-3"}),
        ("input = refund", set()),
        ("verdict = error", {"C-3"}),
        ("verdict != error", {"C-1", "C-2"}),
        ("flaky = yes", {"C-1"}),
        ("score = 0.6", {"C-1"}),
        ("spread > 0.5", {"C-1"}),
        ("score = none", {"C-3"}),
        ("latency >= 2s", {"C-1"}),
        ("cost = $0.06", {"C-1"}),
        ("target_cost = 0.02", {"C-1"}),
        ("judge_cost > 0.03", {"C-1"}),
        ("cost = none", {"C-2", "C-3"}),
        ("tokens = 2k", {"C-1"}),
        ("outcomes = 75%", {"C-1"}),
        ("missed = apologises", {"C-1"}),
        ("missed = refund", set()),
        ("met = refund", {"C-1"}),
        ("tag = late", {"C-1"}),
        ("tag = billing", {"C-1", "C-2"}),
        ("meta.channel = chat", {"C-2"}),
        ("meta.customer.tier = 2", {"C-1"}),
        ("meta.langs = en", {"C-1"}),
        ("meta.channel = none", {"C-3"}),
        ("tone = 0.6", {"C-1"}),
        ("tone > 0.6", {"C-2"}),
        ("tone = none", {"C-3"}),
        ("no_slang = 0.75", {"C-1"}),
        ("grounding < 3", {"C-2"}),
        ("process > 7", {"C-2"}),
        ("error = any", {"C-3"}),
        ("error = target", {"C-3"}),
        ("error = judge", set()),
        ("error = none", {"C-1", "C-2"}),
        ("tag = none", {"C-3"}),
        ("tool = none", {"C-2", "C-3"}),
        ("tool = find_order", {"C-1"}),
        ("tool = m", set()),
        ("review = none", {"C-1", "C-2", "C-3"}),
    ],
)
def test_every_field(run: Run, text: str, found: set[str]) -> None:
    assert keys_of(run, text) == found


@pytest.mark.each_database
def test_an_outcome_far_down_a_long_list(suite: Suite) -> None:
    outcomes = [*["Names a price"] * 199, "Offers a voucher", *["Offers a voucher"] * 1000]
    make_case(suite=suite, key="C-4", expected_outcomes=outcomes)
    run, cases = begin(suite)
    # Only the first 200 are marked.
    make_result(run=run, case=cases["C-4"], outcome_marks="0" * 199 + "1")
    refresh_cases(run)
    assert keys_of(run, "met = voucher") == {"C-4"}
    assert keys_of(run, "missed = voucher") == set()
    assert keys_of(run, "missed = price") == {"C-4"}


@pytest.mark.parametrize("number", ["9" * 12, "9" * 300])
def test_numbers_beyond_what_a_column_takes(run: Run, number: str) -> None:
    assert keys_of(run, f"tokens > {number}") == set()
    assert keys_of(run, f"tokens = {number}") == set()
    assert keys_of(run, f"tokens < {number}") == {"C-1"}


def test_reviews(run: Run) -> None:
    first, second = run.results.order_by("position", "repetition")[:2]
    ReviewItem.objects.create(result=first, run=run, reasons=" close ")
    Review.objects.create(result=second, verdict="pass", machine_verdict="fail")
    assert keys_of(run, "review = waiting") == {"C-1"}
    assert keys_of(run, "review = changed") == {"C-1"}
    assert keys_of(run, "review = decided review = waiting") == {"C-1"}
    assert keys_of(run, "review = none") == {"C-2", "C-3"}


def test_evaluators_of_one_case_alone_count_with_their_own_sign(suite: Suite) -> None:
    make_case(
        suite=suite,
        key="C-4",
        evaluators=tree({**CHECK, "name": "tone", "negate": True}),
    )
    run, cases = begin(suite)
    for key in ("C-1", "C-4"):
        make_score(result=make_result(run=run, case=cases[key]), path="tone", score=0.2)
    refresh_cases(run)
    assert keys_of(run, "tone = 0.2") == {"C-1"}
    assert keys_of(run, "tone = 0.8") == {"C-4"}


def test_changes_are_those_of_the_cases_with_the_same_key(run: Run, suite: Suite) -> None:
    later, cases = begin(suite)
    better = make_result(run=later, case=cases["C-1"], verdict="pass", score=0.95, latency_ms=500)
    make_score(result=better, path="tone", score=0.9)
    worse = make_result(run=later, case=cases["C-2"], verdict="fail", score=0.1)
    make_score(result=worse, path="tone", score=0.1)
    refresh_cases(later)
    assert keys_of(later, "tone rose", run) == {"C-1"}
    assert keys_of(later, "tone fell by 0.5", run) == {"C-2"}
    assert keys_of(later, "verdict fell", run) == {"C-2"}
    assert keys_of(later, "score rose", run) == {"C-1"}
    assert keys_of(later, "latency fell", run) == {"C-1"}
    with pytest.raises(FilterError, match="needs two runs"):
        keys_of(later, "tone fell")


@pytest.fixture
def two_runs() -> tuple[Run, Run]:
    """Make two runs of forty cases."""
    suite = make_suite(slug="support")
    first, second = (make_scored_run(suite=suite, verdicts=["pass"] * 40) for _ in range(2))
    return first, second


@pytest.fixture
def few_values(two_runs: tuple[Run, Run]) -> Iterator[None]:
    """Let SQLite take 38 values in a statement; it takes 32,766."""
    if connection.vendor != "sqlite":
        yield
        return
    usual = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 38)
    yield
    connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, usual)


@pytest.mark.usefixtures("few_values")
def test_filters_find_more_cases_than_a_statement_takes_values(two_runs: tuple[Run, Run]) -> None:
    first, second = two_runs
    assert matching_cases(first, ResultsQuery(text="score > 0.1 C-0")).count() == 40
    assert len(matching_keys([second], first, "score > 0.1")) == 40
    names = f"support:{first.number},support:{second.number}"
    assert many_runs(ManyQuery(runs=names, text="score > 0.1"), 5).total == 40
    assert len(listed_ids(first, ResultsQuery(text="score > 0.1"))) == 40


def test_six_runs_side_by_side_are_filtered_in_as_many_queries_as_two() -> None:
    suite = make_suite(slug="support")
    runs = [make_scored_run(suite=suite, verdicts=["pass", "fail"]) for _ in range(6)]
    counts = []
    for some in (runs[:2], runs):
        names = ",".join(f"support:{run.number}" for run in some)
        with CaptureQueriesContext(connection) as queries:
            page = many_runs(ManyQuery(runs=names, text="score < 0.5 or C-001 or score fell"))
        assert page.total == 2
        counts.append(len(queries))
    assert counts[0] == counts[1]

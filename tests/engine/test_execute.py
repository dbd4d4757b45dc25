"""One execution: the target answers, evaluators score, the verdict follows."""

from __future__ import annotations

import asyncio

import pytest

from evaluators.kinds._base import Output
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Finding, OutcomeResult, Score, Skipped, Unscored
from runs.engine.execute import execute
from runs.engine.ports import Cause, TargetFailure
from tests.support.run_doubles import FakePorts, composite, leaf, make_execution


def says(score):
    async def behave(context):
        return Score(score)

    return behave


def raises(error):
    async def behave(context):
        raise error

    return behave


def run(execution, ports):
    return asyncio.run(execute(execution, ports))


def test_the_tree_is_scored_and_decided():
    ports = FakePorts({"good": says(1.0), "fair": says(0.5)})
    done = run(make_execution(composite("all", leaf("good"), leaf("fair"))), ports)

    assert done.output == Output("an answer")
    assert done.outcomes == {"good": Score(1.0), "fair": Score(0.5)}
    assert (done.decision.verdict, done.decision.score) == ("borderline", 0.75)


def test_a_target_that_fails_is_an_error_and_nothing_is_scored():
    failure = TargetFailure("no answer within 60 s", Cause.TIMEOUT)
    ports = FakePorts({"good": says(1.0)}, output=failure)
    done = run(make_execution(composite("all", leaf("good"))), ports)

    assert (done.failure, done.decision, ports.ran) == (failure, None, [])
    assert str(done.failure) == "Timed out: no answer within 60 s"


def test_a_target_that_raises_is_an_error_with_its_words():
    ports = FakePorts(output=RuntimeError("boom"))
    done = run(make_execution(composite("all", leaf("good"))), ports)

    assert done.failure == TargetFailure("RuntimeError: boom", Cause.FAILED)


def test_what_no_database_stores_is_replaced_in_what_evaluators_say_of_an_answer():
    bad, good = "a\ud800\0", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"

    async def quotes(context):
        found = (Finding(bad, True, bad),)
        return Score(1.0, None, 1.0, bad, found, {"rows": [{bad: bad}]}, warnings=(bad,))

    async def refuses(context):
        return Unscored(bad, details={"found": bad})

    ports = FakePorts({"score": quotes, "none": refuses})
    done = run(make_execution(composite("all", leaf("score"), leaf("none"))), ports)

    found = (Finding(good, True, good),)
    scored = Score(1.0, None, 1.0, good, found, {"rows": [{good: good}]}, warnings=(good,))
    assert done.outcomes == {"score": scored, "none": Unscored(good, details={"found": good})}


GATE = {"type": "safety_gate", "required": ("safe",)}


def test_a_gate_that_holds_lets_the_others_run_after_it():
    ports = FakePorts({"safe": says(1.0), "good": says(0.8)})
    done = run(make_execution(composite("all", leaf("good"), leaf("safe"), **GATE)), ports)

    assert ports.ran == ["safe", "good"]
    assert done.decision.score == pytest.approx(0.9)


@pytest.mark.parametrize("gate", [Score(0.1), Unscored("no reply", stage="judge")])
def test_a_gate_that_fails_keeps_everything_behind_it_from_running(gate):
    async def at_gate(context):
        return gate

    quality = composite("quality", leaf("tone"), leaf("facts"))
    ports = FakePorts({"safe": at_gate, "tone": says(1.0), "facts": says(1.0)})
    done = run(make_execution(composite("all", quality, leaf("safe"), **GATE)), ports)

    assert ports.ran == ["safe"]
    assert isinstance(done.outcomes["quality/tone"], Skipped)
    assert isinstance(done.outcomes["quality/facts"], Skipped)
    expected = ("scored", "fail") if isinstance(gate, Score) else ("error", None)
    assert (done.decision.status, done.decision.verdict) == expected


def test_a_composite_can_be_a_gate():
    safety = composite("safe", leaf("one"), leaf("two"), type="minimum")
    ports = FakePorts({"one": says(1.0), "two": says(0.2), "good": says(1.0)})
    run(make_execution(composite("all", leaf("good"), safety, **GATE)), ports)

    assert ports.ran == ["safe/one", "safe/two"]


def test_a_gate_may_hold_composites_of_its_own():
    deepest = composite("deepest", leaf("one"), leaf("two"))
    safety = composite("safe", composite("inner", deepest, leaf("three")), leaf("four"))
    names = ("one", "two", "three", "four", "good")
    ports = FakePorts({name: says(0.8) for name in names})
    done = run(make_execution(composite("all", leaf("good"), safety, **GATE)), ports)

    assert ports.ran[-1] == "good"
    assert (done.decision.verdict, done.decision.score) == ("pass", 0.8)


@pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
def test_a_gate_with_a_part_that_could_not_be_scored_holds_the_others_back(on_unscored):
    safety = composite("safe", composite("inner", leaf("one"), leaf("two")))
    ports = FakePorts({"one": raises(TimeoutError()), "two": says(1.0), "good": says(1.0)})
    policy = PolicySpec(on_unscored=on_unscored)
    done = run(make_execution(composite("all", leaf("good"), safety, **GATE), policy=policy), ports)

    assert ports.ran == ["safe/inner/one", "safe/inner/two"]
    assert done.outcomes["good"] == Skipped("the gate safe could not be scored")
    assert done.decision.status == "error"


def test_siblings_run_at_the_same_time():
    meeting = asyncio.Barrier(3)

    async def meets(context):
        async with asyncio.timeout(5):
            await meeting.wait()
        return Score(1.0)

    ports = FakePorts({"a": meets, "b": meets, "outcomes": meets})
    execution = make_execution(
        composite("all", leaf("a"), leaf("b")),
        policy=PolicySpec(judge_outcomes="always"),
        expected_outcomes=("asks for the order number",),
    )
    done = run(execution, ports)

    assert set(done.outcomes) == {"a", "b", "@outcomes"}
    assert done.decision.status == "scored"


def test_of_a_long_output_siblings_run_one_after_another():
    at_work = []

    async def works(context):
        at_work.append(context.path)
        await asyncio.sleep(0)
        assert at_work == [context.path]
        at_work.remove(context.path)
        return Score(1.0)

    ports = FakePorts({"a": works, "b": works, "outcomes": works})
    execution = make_execution(
        composite("all", leaf("a"), composite("more", leaf("b"))),
        policy=PolicySpec(judge_outcomes="always"),
        expected_outcomes=("asks for the order number",),
        output=Output("x" * 1_000_001),
    )
    done = run(execution, ports)

    assert done.outcomes == dict.fromkeys(("a", "more/b", "@outcomes"), Score(1.0))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad number"), "ValueError: bad number"),
        (KeyError(), "KeyError"),
        (TimeoutError(), "TimeoutError"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
)
def test_whatever_an_evaluator_raises_is_unscored_and_never_zero(error, reason):
    ports = FakePorts({"wild": raises(error), "good": says(1.0)})
    done = run(make_execution(composite("all", leaf("wild"), leaf("good"))), ports)

    assert done.outcomes["wild"] == Unscored(reason, stage="evaluator")
    assert (done.decision.status, done.decision.score) == ("error", None)


def test_an_evaluator_that_returns_no_outcome_is_unscored():
    async def returns_a_number(context):
        return 0.9

    ports = FakePorts({"odd": returns_a_number})
    done = run(make_execution(composite("all", leaf("odd"))), ports)

    assert done.outcomes["odd"] == Unscored("the evaluator returned float, not a score")


def test_an_unknown_kind_and_a_wrong_config_are_unscored_by_name():
    ports = FakePorts({"known": says(1.0)})
    root = composite("all", leaf("known", config={"limit": "many"}), leaf("x", "unheard_of"))
    done = run(make_execution(root), ports)

    assert done.outcomes["x"] == Unscored("there is no evaluator kind 'unheard_of'", stage="config")
    assert done.outcomes["known"].stage == "config"
    assert done.outcomes["known"].reason.startswith("limit: ")


def outcomes_met(*met):
    async def behave(context):
        texts = context.case.expected_outcomes
        results = tuple(OutcomeResult(t, m) for t, m in zip(texts, met, strict=True))
        return Score(sum(met) / len(met), outcomes=results)

    return behave


BY_OUTCOMES = PolicySpec(case_gate="expected_outcomes")


@pytest.mark.parametrize(("met", "verdict"), [((True, True), "pass"), ((True, False), "fail")])
def test_expected_outcomes_are_judged_beside_the_tree(met, verdict):
    ports = FakePorts({"good": says(0.1), "outcomes": outcomes_met(*met)})
    execution = make_execution(
        composite("all", leaf("good")), policy=BY_OUTCOMES, expected_outcomes=("a", "b")
    )
    done = run(execution, ports)

    assert sorted(ports.ran) == ["@outcomes", "good"]
    assert done.decision.verdict == verdict
    assert [outcome.passed for outcome in done.decision.outcomes] == list(met)


@pytest.mark.parametrize("choice", ["auto", "never"])
def test_no_judge_is_asked_for_outcomes_beside_checks_that_decide(choice):
    ports = FakePorts({"good": says(1.0), "outcomes": outcomes_met(False)})
    policy = PolicySpec(judge_outcomes=choice)
    execution = make_execution(
        composite("all", leaf("good")), policy=policy, expected_outcomes=("a",)
    )
    done = run(execution, ports)

    assert ports.ran == ["good"]
    assert (done.decision.verdict, done.decision.outcomes) == ("pass", ())


def test_an_evaluator_that_supplies_outcomes_makes_the_call_beside_needless():
    ports = FakePorts(
        {"metrics": outcomes_met(True), "outcomes": outcomes_met(False)},
        facts={"metrics": {"supplies_outcomes": True}},
    )
    execution = make_execution(
        composite("all", leaf("metrics")), policy=BY_OUTCOMES, expected_outcomes=("a",)
    )
    done = run(execution, ports)

    assert ports.ran == ["metrics"]
    assert done.decision.verdict == "pass"


def test_the_first_source_of_outcomes_in_the_tree_counts_whichever_ends_first():
    async def late(context):
        await asyncio.sleep(0)
        return await outcomes_met(True)(context)

    ports = FakePorts(
        {"first": late, "second": outcomes_met(False)},
        facts={"first": {"supplies_outcomes": True}, "second": {"supplies_outcomes": True}},
    )
    tree = composite("all", leaf("first"), leaf("second"))
    done = run(make_execution(tree, policy=BY_OUTCOMES, expected_outcomes=("a",)), ports)

    assert done.decision.verdict == "pass"


def test_outcomes_that_could_not_be_judged_are_an_error_under_their_gate():
    async def unreadable(context):
        return Unscored("no readable reply", stage="parse")

    ports = FakePorts({"good": says(1.0), "outcomes": unreadable})
    execution = make_execution(
        composite("all", leaf("good")), policy=BY_OUTCOMES, expected_outcomes=("a",)
    )
    assert run(execution, ports).decision.status == "error"


def test_a_metrics_evaluator_of_weight_0_that_could_not_score_leaves_no_outcomes_to_fall_back_on():
    async def unreadable(context):
        return Unscored("no readable reply", stage="parse")

    ports = FakePorts(
        {"metrics": unreadable, "good": says(1.0)},
        facts={"metrics": {"supplies_outcomes": True}},
    )
    tree = composite("all", leaf("metrics").replace(weight=0.0), leaf("good"))
    execution = make_execution(tree, policy=BY_OUTCOMES, expected_outcomes=("a",))

    assert run(execution, ports).decision.status == "error"


def test_a_kept_output_is_scored_without_asking_the_target():
    ports = FakePorts({"good": says(1.0)})
    execution = make_execution(composite("all", leaf("good")), output=Output("kept"))
    done = run(execution, ports)

    assert (ports.asked, done.output) == (0, Output("kept"))


def test_kept_outcomes_stand_and_only_the_others_run():
    ports = FakePorts({"good": says(1.0), "tone": says(0.0)})
    execution = make_execution(
        composite("all", leaf("good"), leaf("tone")),
        output=Output("kept"),
        kept={"good": Score(0.6)},
    )
    done = run(execution, ports)

    assert ports.ran == ["tone"]
    assert done.decision.score == pytest.approx(0.3)


def test_a_judging_aggregator_reads_what_all_below_it_came_to():
    seen = {}

    async def judged(context):
        seen.update({one.name: one for one in context.results})
        return Score(0.5)

    tree = composite(
        "gate",
        leaf("short").replace(negate=True),
        composite("inner", leaf("good"), leaf("lost"), type="minimum"),
        type="code_judge",
        weights={"short": 3.0},
    )
    said = {"short": says(0.25), "good": says(1.0), "lost": raises(OSError("no"))}
    done = run(make_execution(tree), FakePorts({**said, "composite": judged}))

    short, inner = seen["short"], seen["inner"]
    assert (short.weight, short.score, short.verdict) == (3.0, 0.75, "borderline")
    assert (inner.kind, inner.score, inner.verdict) == ("composite", None, "")
    assert [(one.name, one.score) for one in inner.results] == [("good", 1.0), ("lost", None)]
    assert done.outcomes[""] == Score(0.5)

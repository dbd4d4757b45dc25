"""What would become of a run under other rules: verdicts, gates, flips, and what stored scores cannot tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.metrics_judge import MetricsJudgeConfig as MetricsConfig
from evaluators.kinds.metrics_judge import rescore as rescore_metrics
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules, decide
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Score, Skipped, Unscored
from runs.what_if.changes import RuleSet, read_origins
from runs.what_if.deciding import StoredCase
from tests.evaluators.scoring.test_properties import SAME_EACH_TIME, cases
from tests.evaluators.scoring.trees import composite, leaf, root, scores
from tests.what_if.values import FAILED_TARGET, ask, stored_run

POLICY = PolicySpec()
QUALITY = root(leaf("facts", 3), leaf("tone"))
BY_OUTCOMES = PolicySpec(case_gate="expected_outcomes")


def rules(tree: EvaluatorSpec, policy: PolicySpec = POLICY, **facts: object) -> RuleSet:
    return RuleSet(policy, tree, **facts)


def flips(found):
    return {flip.key: (flip.before.state, flip.after.state) for flip in found.flips}


def test_a_moved_weight_flips_cases_with_what_decides_before_and_after():
    said = [scores(facts=0.9, tone=0.5), scores(facts=0.5, tone=0.9), scores(facts=0.9, tone=0.9)]
    stored = stored_run(QUALITY, POLICY, said)
    after = root(leaf("facts", 1), leaf("tone", 3))
    found = ask(stored, rules(QUALITY), rules(after))
    assert flips(found) == {"C-0": ("pass", "borderline"), "C-1": ("borderline", "pass")}
    flip = found.flips[0]
    assert (flip.before.decided_by, flip.after.decided_by) == ("0.80 ≥ 0.80", "0.60 < 0.80")
    assert (flip.before.score, flip.after.score) == (pytest.approx(0.8), pytest.approx(0.6))
    assert (found.cases_flipped, found.cases_kept, found.cases_without) == (2, 1, 0)
    assert found.before.distribution == found.after.distribution
    assert found.before.distribution["pass"] == 2
    assert found.is_exact


def test_only_a_case_that_has_a_verdict_keeps_it():
    said = [scores(facts=0.9, tone=0.9), scores(facts=0.5, tone=0.5), FAILED_TARGET, {}]
    stored = stored_run(QUALITY, POLICY, said)
    stored.results[3] = stored.results[3]._replace(status="cancelled", verdict="", decided_by="")
    found = ask(stored, rules(QUALITY), rules(QUALITY))
    assert found.before.distribution["error"] == found.before.distribution["not_run"] == 1
    assert (found.cases_flipped, found.cases_kept, found.cases_without) == (0, 2, 2)


def test_thresholds_move_both_gates_with_their_limits():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.7, tone=0.7), scores(facts=0.9, tone=0.9)])
    after = PolicySpec(pass_threshold=0.7, metrics_pass_threshold=0.9, cases_pass_threshold=0.5)
    found = ask(stored, rules(QUALITY), rules(QUALITY, after))
    gates = [(side.metrics_gate, side.cases_gate) for side in (found.before, found.after)]
    assert [(m.passed, c.passed) for m, c in gates] == [(True, False), (False, True)]
    assert [(m.threshold, c.share) for m, c in gates] == [(0.8, 0.5), (0.9, 1.0)]
    assert (found.before.passed, found.after.passed, found.after.executions) == (1, 2, 2)
    assert found.scores_changed == 0


def test_reviews_are_marked_where_a_flip_contradicts_or_meets_them():
    said = [scores(facts=s, tone=s) for s in (0.7, 0.7, 0.9, 0.3)]
    stored = stored_run(
        QUALITY, POLICY, said, reviewed={0: "borderline", 1: "pass", 2: "fail", 3: "fail"}
    )
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(pass_threshold=0.7)))
    assert [flip.review for flip in found.flips] == ["contradicted", "agreed"]
    assert (found.contradicted, found.agreed) == (1, 1)
    assert (found.before.agreement.agreed, found.after.agreement.agreed) == (2, 2)
    assert found.before.agreement.reviewed == 4


def test_counted_reviews_move_cases_and_gates():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.7, tone=0.7)], reviewed={0: "pass"})
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(count_reviews=True)))
    assert flips(found) == {"C-0": ("borderline", "pass")}
    assert found.executions_flipped == 0
    assert found.after.cases_gate.share == 1.0


def test_errors_stay_errors_and_are_never_a_score():
    said = [FAILED_TARGET, {"facts": Score(0.9), "tone": Unscored("timed out", "judge")}]
    stored = stored_run(QUALITY, POLICY, said)
    found = ask(
        stored,
        rules(QUALITY),
        rules(QUALITY, PolicySpec(pass_threshold=0.0, borderline_threshold=0)),
    )
    assert (found.before.errors, found.after.errors, found.unanswered) == (2, 2, 1)
    assert sum(one.after for one in found.histogram.bins) == 0
    spared = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(on_unscored="exclude")))
    assert flips(spared) == {"C-1": ("error", "pass")}
    assert spared.flips[0].before.decided_by == "tone could not be scored: timed out"


@pytest.mark.parametrize("is_scored_first", [True, False])
def test_no_score_is_not_taken_for_a_score_of_0(is_scored_first):
    zero, none = scores(facts=0.0, tone=0.9), {**scores(tone=0.9), "facts": Unscored("no reply")}
    said = [zero, none] if is_scored_first else [none, zero]
    stored = stored_run(QUALITY, POLICY, said)
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(pass_threshold=0.9)))
    assert (found.after.errors, found.after.distribution["fail"]) == (1, 1)
    assert (found.fixed, found.cases_flipped) == (0, 0)


def test_a_case_follows_its_repetitions():
    said = [scores(facts=s, tone=s) for s in (0.9, 0.72, 0.9, 0.9)]
    stored = stored_run(QUALITY, POLICY, said, repetitions=2)
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(pass_threshold=0.85)))
    assert flips(found) == {"C-0": ("pass", "borderline")}
    assert not found.flips[0].executions
    assert found.flips[0].before.decided_by == "mean 0.81 ≥ 0.80"
    lower = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(pass_threshold=0.7)))
    assert [flip.is_flip for flip in lower.flips] == [False]
    assert [one.repetition for one in lower.flips[0].executions] == [2]
    assert (lower.cases_flipped, lower.executions_flipped) == (0, 1)


def test_the_histogram_counts_a_score_on_a_band_above_it():
    said = [scores(facts=s, tone=s) for s in (0.8, 0.799, 1.0, 0.0)]
    found = ask(
        stored_run(QUALITY, POLICY, said),
        rules(QUALITY),
        rules(QUALITY, PolicySpec(pass_threshold=0.9)),
    )
    counted = {one.low: one.before for one in found.histogram.bins if one.before}
    assert counted == {0.0: 1, 0.75: 1, 0.8: 1, 0.95: 1}
    assert [(band.name, band.limit) for band in found.histogram.bands_after] == [
        ("borderline", 0.6),
        ("pass", 0.9),
    ]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"rule": "minimum"}, "fail"),
        ({"rule": "maximum"}, "pass"),
        ({"rule": "all_or_nothing", "threshold": 0.7}, "fail"),
        ({"rule": "threshold", "share": 0.5}, "fail"),
        ({"rule": "safety_gate", "required": ("tone",), "gate_threshold": 0.6}, "fail"),
    ],
)
def test_every_aggregator_is_followed(change, state):
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.9, tone=0.4)])
    after = root(leaf("facts", 3), leaf("tone"), **change)
    found = ask(stored, rules(QUALITY), rules(after))
    assert found.after.distribution[state] == 1
    assert found.is_exact


def test_required_and_negation_need_no_new_calls():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.95, tone=0.4)])
    required = root(leaf("facts", 3), leaf("tone", required_below=0.5))
    found = ask(stored, rules(QUALITY), rules(required))
    assert found.flips[0].after.decided_by == "required: tone 0.40 < 0.50"
    negated = root(leaf("facts", 3), leaf("tone", negate=True))
    assert ask(stored, rules(QUALITY), rules(negated)).after.mean_score == pytest.approx(
        (0.95 * 3 + 0.6) / 4
    )


GATED = root(leaf("safe"), leaf("facts"), rule="safety_gate", required=("safe",))


def test_what_a_gate_kept_from_running_is_open_never_zero():
    said = [{"safe": Score(0.5), "facts": Skipped()}, {"safe": Score(0.9), "facts": Score(0.9)}]
    for on_unscored in ("error", "zero", "exclude"):
        before = PolicySpec(on_unscored=on_unscored)
        stored = stored_run(GATED, before, said)
        after = root(
            leaf("safe"), leaf("facts"), rule="safety_gate", required=("safe",), gate_threshold=0.4
        )
        found = ask(stored, rules(GATED, before), rules(after, before))
        (stale,) = found.stale
        assert (stale.path, stale.instead, stale.results, stale.total) == ("facts", "open", 1, 2)
        assert "skipped after a failed gate that would pass now" in stale.why
        assert flips(found) == {"C-0": ("fail", "waiting")}
        assert found.flips[0].after == replace(
            found.flips[0].after, score=None, decided_by="needs facts to be rescored"
        )
        assert (found.after.open, found.after.cases_gate.passed) == (1, None)
        assert (found.after.with_score, found.after.mean_score) == (1, pytest.approx(0.9))


def test_a_new_evaluator_is_open_and_one_that_weighs_nothing_is_named_all_the_same():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.9, tone=0.9), FAILED_TARGET])
    new = ask(stored, rules(QUALITY), rules(root(leaf("facts", 3), leaf("tone"), leaf("brief"))))
    assert [(one.path, one.asks, one.results, one.total) for one in new.stale] == [
        ("brief", "judge", 1, 1)
    ]
    assert new.after.open == 1
    idle = ask(
        stored, rules(QUALITY), rules(root(leaf("facts", 3), leaf("tone"), leaf("brief", 0)))
    )
    assert (idle.after.open, len(idle.stale), idle.flips) == (0, 1, ())


def test_changed_questions_keep_the_stored_score_and_are_named():
    tree = root(
        leaf("facts", config={"prompt": "Right?"}),
        leaf("words", kind="text_check", config={"operator": "contains", "value": "refund"}),
    )
    stored = stored_run(tree, POLICY, [scores(facts=0.9, words=1)])
    after = root(
        leaf("facts", config={"prompt": "Correct?"}),
        leaf("words", kind="text_check", config={"operator": "contains", "value": "money"}),
    )
    found = ask(stored, rules(tree), rules(after))
    assert [(one.path, one.instead, one.asks) for one in found.stale] == [
        ("facts", "kept", "judge"),
        ("words", "kept", ""),
    ]
    assert not found.flips
    assert not found.is_exact
    with pytest.raises(InvalidConfigError, match="words"):
        ask(
            stored,
            rules(tree),
            rules(
                root(
                    leaf("facts"), leaf("words", kind="text_check", config={"operator": "no such"})
                )
            ),
        )


def test_another_judge_and_another_file_are_named():
    tree = root(
        leaf("facts", config={"prompt": "./prompts/facts.md"}),
        leaf("words", kind="text_check", config={"operator": "is_json"}),
    )
    stored = stored_run(tree, POLICY, [scores(facts=0.9, words=1)])
    before = rules(tree, judge="juno", files={"prompts/facts.md": "a"})
    judged = ask(stored, before, replace(before, judge="vega"))
    assert [(one.path, one.why) for one in judged.stale] == [
        ("facts", "another language model judges")
    ]
    filed = ask(stored, before, replace(before, files={"prompts/facts.md": "b"}))
    assert [(one.path, one.why) for one in filed.stale] == [
        ("facts", "the file ./prompts/facts.md changed")
    ]


def test_moved_and_renamed_evaluators_keep_their_scores():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.9, tone=0.5)])
    after = root(composite("style", leaf("manner")), leaf("facts", 3))
    origins = {"style": None, "style/manner": "tone", "facts": "facts"}
    found = ask(stored, rules(QUALITY), rules(after), origins=origins)
    assert found.is_exact
    assert not found.flips
    lost = ask(stored, rules(QUALITY), rules(after))
    assert [one.path for one in lost.stale] == ["style/manner"]
    edited = {
        **after.as_json(),
        "children": [
            {"name": "style", "children": [{"name": "manner", "origin": "tone"}]},
            {"name": "facts", "origin": "facts"},
        ],
    }
    assert read_origins(edited) == {"": "", "style/manner": "tone", "facts": "facts"}
    assert read_origins(after.as_json()) is None


def test_a_new_name_that_an_old_evaluator_had_is_new():
    stored = stored_run(QUALITY, POLICY, [scores(facts=0.9, tone=0.5)])
    found = ask(stored, rules(QUALITY), rules(QUALITY), origins={"facts": "facts", "tone": None})
    assert [one.path for one in found.stale] == ["tone"]


def judged(**options: object) -> EvaluatorSpec:
    aggregator = {"type": "llm_judge", **options}
    return EvaluatorSpec(
        name="root",
        kind="composite",
        config={"aggregator": aggregator},
        children=(leaf("facts"), leaf("tone")),
    )


def test_a_judge_of_a_composite_is_asked_again_when_what_it_sees_changes():
    said = [{"": Score(0.9), **scores(facts=0.9, tone=0.5)}]
    stored = stored_run(judged(), POLICY, said)
    same = ask(stored, rules(judged()), rules(judged(), PolicySpec(cases_pass_threshold=0.5)))
    assert same.is_exact
    for after, why in (
        (rules(judged(prompt="Weigh facts.")), "its settings changed"),
        (
            rules(judged(), PolicySpec(pass_threshold=0.95)),
            "it reads verdicts, and their thresholds changed",
        ),
        (rules(judged().replace(children=(leaf("facts"),))), "the scores it reads changed"),
    ):
        (stale,) = ask(stored, rules(judged()), after).stale
        assert (stale.path, stale.why, stale.instead) == ("", why, "kept")
    plain = stored_run(QUALITY, POLICY, [scores(facts=0.9, tone=0.5)])
    (stale,) = ask(plain, rules(QUALITY), rules(judged())).stale
    assert (stale.path, stale.instead) == ("", "open")
    back = ask(stored, rules(judged()), rules(QUALITY))
    assert back.is_exact
    assert back.after.mean_score == pytest.approx(0.8)


def metric_details(**values: int) -> dict:
    config = MetricsConfig.model_validate({"metrics": [{"key": key} for key in values]})
    parts = [{"key": key, "binary": False, "justification": "seen"} for key in values]
    details = {"metrics": parts, "samples": [values], "reasoning": "", "supplies_outcomes": False}
    return dict(rescore_metrics(config, details).details)


def metrics(**weights: float) -> dict:
    return {"metrics": [{"key": key, "weight": weight} for key, weight in weights.items()]}


def test_metric_weights_are_followed_and_new_metrics_are_named():
    tree = root(leaf("work", kind="metrics_judge", config=metrics(tool_routing=1, empathy=1)))
    said = [{"work": Score(0.6, details=metric_details(tool_routing=5, empathy=1))}]
    stored = stored_run(tree, POLICY, said)
    after = root(leaf("work", kind="metrics_judge", config=metrics(tool_routing=3, empathy=1)))
    found = ask(stored, rules(tree), rules(after), said=said)
    assert flips(found) == {"C-0": ("borderline", "pass")}
    assert found.is_exact
    fewer = root(leaf("work", kind="metrics_judge", config=metrics(tool_routing=1)))
    assert ask(stored, rules(tree), rules(fewer), said=said).after.mean_score == 1.0
    for config, why in (
        (metrics(tool_routing=1, empathy=1, calm=1), "metric calm is new"),
        (
            {**metrics(tool_routing=2, empathy=1), "instructions": "Be strict."},
            "instructions changed",
        ),
        ({**metrics(tool_routing=2, empathy=1), "model": "vega"}, "another language model judges"),
    ):
        other = root(leaf("work", kind="metrics_judge", config=config))
        (stale,) = ask(stored, rules(tree), rules(other), said=said).stale
        assert (stale.why, stale.instead) == (why, "kept")


def rubric(*criteria: dict, **facts: object) -> EvaluatorSpec:
    return leaf("facts", kind="rubric", config={"rubrics": list(criteria), **facts})


def test_rubric_weights_and_required_criteria_are_followed():
    one, two = {"id": "a", "expected_outcome": "A"}, {"id": "b", "expected_outcome": "B"}
    details = {
        "mode": "satisfied",
        "criteria": [
            {"id": "a", "score": 1.0, "evidence": "e"},
            {"id": "b", "score": 0.0, "evidence": "e"},
        ],
    }
    tree = root(rubric(one, two))
    said = [{"facts": Score(0.5, details=details)}]
    stored = stored_run(tree, POLICY, said)
    heavier = root(rubric({**one, "weight": 4}, two))
    assert ask(stored, rules(tree), rules(heavier), said=said).after.mean_score == pytest.approx(
        0.8
    )
    required = root(rubric({**one, "weight": 4}, {**two, "required": True}))
    found = ask(stored, rules(tree), rules(required), said=said)
    assert found.after.distribution["fail"] == 1
    assert found.is_exact
    reworded = root(rubric({**one, "expected_outcome": "A, quoted"}, two))
    (stale,) = ask(stored, rules(tree), rules(reworded), said=said).stale
    assert stale.why == "criterion a has other words"


def hybrid(**config: object) -> EvaluatorSpec:
    return leaf(
        "overall", kind="hybrid_judge", config={"dimensions": ["task", "process"], **config}
    )


HYBRID = {
    "checks": [],
    "iterations": [
        {
            "reasoning": "r",
            "overall": 9.0,
            "evidence": [],
            "dimensions": {"task": 10.0, "process": 4.0},
            "justifications": {"task": "e", "process": "e"},
        }
    ],
    "failed_iterations": 0,
}


def test_hybrid_dimensions_and_the_judges_own_overall_score_are_followed():
    from evaluators.kinds.hybrid_judge import HybridJudgeConfig, rescore

    made = rescore(HybridJudgeConfig.model_validate(hybrid().config), HYBRID)
    tree, said = root(hybrid(), leaf("tone")), [{"overall": made, "tone": Score(0.1)}]
    stored = stored_run(tree, POLICY, said)
    weighed = root(hybrid(score_from="dimension_weights"), leaf("tone"))
    found = ask(stored, rules(tree), rules(weighed), said=said)
    assert found.after.mean_score == pytest.approx((0.7 + 0.1) / 2)
    judge_overall = PolicySpec(final_score="judge_overall")
    own = ask(stored, rules(tree), rules(weighed, judge_overall), said=said)
    assert own.after.mean_score == pytest.approx(0.9)
    assert flips(own) == {"C-0": ("fail", "pass")}


def test_outcomes_decide_where_they_were_judged_and_wait_where_not():
    said = [
        {**scores(facts=0.9, tone=0.9), "@outcomes": Score(0.5)},
        scores(facts=0.9, tone=0.9),
        {**scores(facts=0.9, tone=0.9), "@outcomes": Unscored("timed out")},
    ]
    stored = stored_run(
        QUALITY,
        POLICY,
        said,
        marks=["10", "", ""],
        cases={1: StoredCase("C-1", 2), 2: StoredCase("C-2", 2)},
    )
    found = ask(stored, rules(QUALITY), rules(QUALITY, BY_OUTCOMES))
    assert flips(found) == {
        "C-0": ("pass", "fail"),
        "C-1": ("pass", "waiting"),
        "C-2": ("pass", "error"),
    }
    assert found.flips[0].after.decided_by == "1 of 2 outcomes missed"
    (stale,) = found.stale
    assert (stale.path, stale.instead, stale.results) == ("@outcomes", "open", 1)


def test_an_open_score_leaves_the_outcomes_verdict_standing():
    said = [{**scores(facts=0.9, tone=0.9), "@outcomes": Score(1.0)}]
    stored = stored_run(QUALITY, BY_OUTCOMES, said, marks=["11"])
    after = rules(root(leaf("facts"), leaf("new")), BY_OUTCOMES)
    found = ask(stored, rules(QUALITY, BY_OUTCOMES), after)
    assert (found.after.passed, found.after.open, found.after.mean_score) == (1, 0, None)
    assert [one.path for one in found.stale] == ["new"]


def test_results_with_the_same_scores_are_decided_once(monkeypatch):
    kinds = [scores(facts=0.9, tone=0.5), scores(facts=0.5, tone=0.9), FAILED_TARGET]
    stored = stored_run(QUALITY, POLICY, kinds * 40, repetitions=2)
    decided, decide_scores = [], Rules.decide_scores
    monkeypatch.setattr(
        Rules,
        "decide_scores",
        lambda self, *args: (decided.append(1), decide_scores(self, *args))[1],
    )
    found = ask(stored, rules(QUALITY), rules(root(leaf("facts", 1), leaf("tone", 3))))
    # As the run did, by the new rules, and for the text of what flips.
    assert len(decided) <= 2 * 3
    assert (found.executions_flipped, found.after.errors, found.unanswered) == (80, 40, 40)
    assert [flip.key for flip in found.flips] == [f"C-{n}" for n in range(60)]


def test_no_score_is_not_decided_like_a_score_of_zero():
    said = [scores(facts=0.0, tone=0.9), {**scores(tone=0.9), "facts": Unscored("no reply")}]
    stored = stored_run(QUALITY, POLICY, said)
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(on_unscored="exclude")))
    assert flips(found) == {"C-1": ("error", "pass")}


def test_cases_with_evaluators_of_their_own_follow_those():
    own = root(leaf("tone")).as_json()
    cases_ = {
        0: StoredCase("own", evaluators=own),
        1: StoredCase("both", evaluators=root(leaf("extra")).as_json(), append=True),
    }
    joined = root(leaf("facts"), leaf("extra"))
    tree = root(leaf("facts"), leaf("tone"), leaf("extra"))
    said = [scores(tone=0.9), scores(facts=0.9, extra=0.1)]
    stored = stored_run(tree, POLICY, said, cases=cases_)
    results = [
        one._replace(status="scored", verdict=verdict, score=score)
        for one, verdict, score in zip(stored.results, ("pass", "fail"), (0.9, 0.5), strict=True)
    ]
    stored = replace(stored, results=results)
    before = rules(root(leaf("facts")))
    heavier = rules(root(leaf("facts", 9)))
    found = ask(stored, before, heavier, origins={"facts": "facts"})
    assert flips(found) == {"both": ("fail", "pass")}
    assert (found.fixed, found.is_exact) == (0, True)
    assert joined.children[1].name == "extra"


def test_verdicts_that_the_rules_did_not_give_are_kept_and_counted():
    said = [scores(facts=0.9, tone=0.9), scores(facts=0.9, tone=0.9)]
    stored = stored_run(QUALITY, POLICY, said, verdicts={0: "fail"})
    found = ask(stored, rules(QUALITY), rules(QUALITY, PolicySpec(pass_threshold=0.95)))
    assert found.fixed == 1
    assert flips(found) == {"C-1": ("pass", "borderline")}


def skipped(tree: EvaluatorSpec, outcomes: dict) -> dict:
    """Return what a run would have stored: nothing of what a gate kept from running."""
    nodes_ = decide(tree, outcomes, POLICY).nodes
    return {
        path: Skipped() if nodes_[path].state == "skipped" else one
        for path, one in outcomes.items()
    }


@SAME_EACH_TIME
@given(cases(unscored=True), st.sampled_from(["error", "exclude", "zero"]))
def test_the_same_rules_change_nothing(case, on_unscored):
    tree, outcomes = case
    policy = PolicySpec(on_unscored=on_unscored)
    stored = stored_run(tree, policy, [skipped(tree, outcomes)])
    found = ask(stored, rules(tree, policy), rules(tree, policy))
    assert not found.flips
    assert not found.stale
    assert (found.before, found.fixed, found.scores_changed) == (found.after, 0, 0)


@SAME_EACH_TIME
@given(cases(unscored=True), st.data(), st.sampled_from(["error", "exclude", "zero"]))
def test_the_answer_is_what_scoring_anew_would_give(case, data, on_unscored):
    tree, outcomes = case
    policy = PolicySpec(pass_threshold=0.7, borderline_threshold=0.4, on_unscored=on_unscored)
    stored = stored_run(tree, POLICY, [outcomes])
    after = data.draw(reshaped(tree))
    found = ask(stored, rules(tree), rules(after, policy))
    anew = decide(after, outcomes, policy)
    expected = anew.verdict.value if anew.verdict else "error"
    assert found.after.distribution[expected] == 1
    assert found.after.mean_score == anew.score
    assert found.fixed == 0


@SAME_EACH_TIME
@given(cases(), st.data())
def test_what_is_told_of_skipped_evaluators_is_open_or_true(case, data):
    tree, outcomes = case
    stored = stored_run(tree, POLICY, [skipped(tree, outcomes)])
    after = data.draw(reshaped(tree))
    found = ask(stored, rules(tree), rules(after))
    anew = decide(after, outcomes, POLICY)
    if found.after.open:
        assert found.stale
    else:
        assert found.after.distribution[anew.verdict.value if anew.verdict else "error"] == 1


@SAME_EACH_TIME
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_band_never_lets_more_pass(values, one, other):
    low, high = sorted((one, other))
    stored = stored_run(QUALITY, POLICY, [scores(facts=v, tone=v) for v in values])
    passed = [
        ask(
            stored,
            rules(QUALITY),
            rules(QUALITY, PolicySpec(pass_threshold=limit, borderline_threshold=0)),
        ).after.passed
        for limit in (low, high)
    ]
    assert passed[0] >= passed[1]


@st.composite
def reshaped(draw: st.DrawFn, tree: EvaluatorSpec) -> EvaluatorSpec:
    """Draw a tree of the same evaluators with other weights, marks and aggregators."""
    weight = draw(st.sampled_from([0.5, 1.0, 4.0]))
    children = tuple(draw(reshaped(child)) for child in tree.children)
    required = draw(st.booleans()) and tree.name != "root"
    if not tree.is_composite:
        return tree.replace(weight=weight, required=required)
    rule = draw(st.sampled_from(["weighted_average", "minimum", "all_or_nothing", "threshold"]))
    given = tree.config["aggregator"]
    aggregator = {**given, "type": rule, "required": (), "remainder": "all"}
    if draw(st.booleans()):
        aggregator |= {"type": "safety_gate", "required": [children[0].name]}
    return tree.replace(weight=weight, config={"aggregator": aggregator}, children=children)


def test_what_agents_and_panels_were_asked_is_not_answered_by_weights():
    for kind, config, change in (
        (
            "agent_judge",
            {"agent": "critic", "criteria": "Is it right?"},
            {"criteria": "Is it kind?"},
        ),
        ("deliberation", {"criteria": "Is it right?"}, {"criteria": "Is it kind?"}),
        ("expected_output", {"match": "semantic"}, {"samples": 3}),
        ("rubric", {"rubrics": ["A"]}, {"mode": "graded"}),
        ("hybrid_judge", {}, {"hard_expectations": ["Names the price."]}),
    ):
        tree = root(leaf("opinion", kind=kind, config=config))
        stored = stored_run(tree, POLICY, [scores(opinion=0.9)])
        after = root(leaf("opinion", kind=kind, config={**config, **change}))
        (stale,) = ask(stored, rules(tree), rules(after)).stale
        (name,) = change
        assert (stale.why, stale.instead, stale.asks) == (f"{name} changed", "kept", "judge")

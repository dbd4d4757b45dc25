"""The verdict of a result, and what its decision explains: findings, steps, shares and the deciding path."""

from __future__ import annotations

import json

import pytest

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules, decide, rules_for, score_tree
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score, Skipped, Verdict
from tests.evaluators.scoring.trees import composite, leaf, root, scores
from tests.evaluators.scoring.verdicts import OUTCOMES, POLICY, TREE, results


@pytest.mark.parametrize(
    ("a", "verdict", "decided_by"),
    [
        (0.8, "pass", "0.80 ≥ 0.80"),
        (0.7999999, "borderline", "0.79 < 0.80"),
        (0.6, "borderline", "0.60 < 0.80"),
        (0.5999999, "fail", "0.59 < 0.60"),
        (0.599999999, "fail", "0.59 < 0.60"),
    ],
)
def test_the_score_gate_says_what_it_compared(a: float, verdict: str, decided_by: str) -> None:
    decision = decide(TREE, scores(a=a, b=a), POLICY)
    assert (decision.verdict, decision.decided_by, decision.rule) == (verdict, decided_by, "score")
    assert decision.passed == (verdict == "pass")
    assert not decision.is_forced


@pytest.mark.parametrize(
    ("score", "decided_by"),
    [(0.8579, "0.857 ≥ 0.855"), (0.8549, "0.85 < 0.855"), (0.9, "0.90 ≥ 0.855")],
)
def test_a_score_is_spelt_finely_enough_to_have_reached_its_band(
    score: float, decided_by: str
) -> None:
    decision = decide(TREE, scores(a=score, b=score), PolicySpec(pass_threshold=0.855))
    assert decision.decided_by == decided_by


GATED = root(leaf("safety"), leaf("tone", negate=True), rule="safety_gate", required=("safety",))
GATED_PARTLY = root(leaf("a", required_below=0.7), leaf("b"))


@pytest.mark.parametrize(
    ("tree", "said", "scale", "texts"),
    [
        (TREE, {"a": 0.78, "b": 0.78}, 100, ("78 < 80", "(78×1 + 78×1) ÷ 2 = 78", "82", "78")),
        (TREE, {"a": 0.7999999, "b": 0.8}, 100, ("79 < 80", "(79×1 + 80×1) ÷ 2 = 79", "80", "79")),
        (TREE, {"a": 0.78, "b": 0.78}, 10, ("7.8 < 8.0", "(7.8×1 + 7.8×1) ÷ 2", "8.2", "7.8")),
        (TREE, {"a": 0.78, "b": 0.78}, 5, ("3.9 < 4.0", "(3.9×1 + 3.9×1) ÷ 2", "4.1", "3.9")),
        (TREE, {"a": 0.78, "b": 0.78}, 1, ("0.78 < 0.80", "(0.78×1 + 0.78×1)", "0.82", "0.78")),
        (GATED, {"safety": 0.59, "tone": 0.3}, 100, ("gate: safety 59 < 60", "so 0", "60", "59")),
        (GATED, {"safety": 0.6, "tone": 0.3}, 100, ("65 < 80", "100 − 30 = 70", "90", "60")),
        (
            GATED_PARTLY,
            {"a": 0.65, "b": 1},
            100,
            ("required: a 65 < 70", "(65×1 + 100×1)", "70", "65"),
        ),
    ],
)
def test_everything_is_said_on_the_scale_of_the_suite(
    tree: EvaluatorSpec, said: dict[str, float], scale: int, texts: tuple[str, str, str, str]
) -> None:
    decision = decide(tree, scores(**said), PolicySpec(scale=scale))
    decided_by, arithmetic, end, start = texts
    assert decision.decided_by == decided_by
    told = [node.arithmetic for node in decision.nodes.values()]
    assert any(arithmetic in text for text in told), told
    assert decision.flip is not None
    assert f"scored {end} instead of {start}" in decision.flip.text
    # Scale is how a score is shown: what is stored and compared is the same on each.
    plain = decide(tree, scores(**said), PolicySpec())
    assert (decision.verdict, decision.score, decision.rule) == (
        plain.verdict,
        plain.score,
        plain.rule,
    )


def test_a_limit_between_whole_numbers_is_said_exactly() -> None:
    decision = decide(TREE, scores(a=0.8579, b=0.8579), PolicySpec(pass_threshold=0.855, scale=100))
    assert decision.decided_by == "85.7 ≥ 85.5"


class TestRequired:
    def test_zero_forces_a_fail_and_the_score_stays(self) -> None:
        tree = root(leaf("safety", required=True), leaf("a", 9.0))
        decision = decide(tree, scores(safety=0.0, a=1.0), POLICY)
        assert (decision.verdict, decision.score) == ("fail", 0.9)
        assert decision.decided_by == "required: safety = 0"
        assert (decision.rule, decision.evaluator, decision.is_forced) == (
            "required",
            "safety",
            True,
        )
        assert decision.nodes["safety"].forced_fail == "required: safety = 0"

    def test_what_rounds_to_zero_is_zero(self) -> None:
        decision = decide(root(leaf("a", required=True)), scores(a=1e-10), POLICY)
        assert decision.decided_by == "required: a = 0"

    def test_anything_above_zero_does_not(self) -> None:
        tree = root(leaf("safety", required=True), leaf("a", 9.0))
        assert decide(tree, scores(safety=0.1, a=1.0), POLICY).verdict == "pass"

    @pytest.mark.parametrize(("score", "verdict"), [(0.7, "pass"), (0.6999999, "fail")])
    def test_a_number_forces_a_fail_below_it(self, score: float, verdict: str) -> None:
        tree = root(leaf("safety", required_below=0.7), leaf("a", 9.0))
        assert decide(tree, scores(safety=score, a=1.0), POLICY).verdict == verdict

    def test_a_number_of_0_never_forces(self) -> None:
        tree = root(leaf("safety", required_below=0.0), leaf("a", 9.0))
        assert decide(tree, scores(safety=0.0, a=1.0), POLICY).verdict == "pass"

    def test_at_any_depth_and_at_weight_0(self) -> None:
        deep = composite("x", composite("y", leaf("z", 0.0, required=True), leaf("w")))
        decision = decide(
            root(deep, leaf("a")), scores({"x/y/z": 0.0, "x/y/w": 1.0}, a=1.0), POLICY
        )
        assert (decision.verdict, decision.evaluator) == ("fail", "x/y/z")
        assert {n.path for n in decision.nodes.values() if n.on_deciding_path} == {
            "",
            "x",
            "x/y",
            "x/y/z",
        }

    def test_in_a_branch_of_weight_0(self) -> None:
        extra = composite("extra", leaf("z", required=True), leaf("free"), weight=0.0)
        tree = root(extra, leaf("a"))
        decision = decide(tree, scores({"extra/z": 0.0, "extra/free": None}, a=1.0), POLICY)
        assert decision.verdict == "fail"

    def test_a_missed_criterion_forces_a_fail(self) -> None:
        outcome = Score(0.9, failed_required=("no-pii", "polite"))
        decision = decide(TREE, {"a": outcome, "b": Score(1.0)}, POLICY)
        assert (decision.verdict, decision.score) == ("fail", 0.95)
        assert decision.decided_by == "required: a, no-pii, polite missed"
        assert decision.nodes["a"].verdict == "fail"

    def test_the_first_in_tree_order_decides(self) -> None:
        tree = root(leaf("a", required=True), leaf("b", required=True))
        assert decide(tree, scores(a=0.0, b=0.0), POLICY).evaluator == "a"

    def test_behind_a_failed_gate_nothing_is_required(self) -> None:
        inner = composite(
            "inner", leaf("g"), leaf("z", required=True), rule="safety_gate", required=("g",)
        )
        tree = root(inner, leaf("a", 9.0))
        outcomes: dict[str, Outcome] = {
            "inner/g": Score(0.1),
            "inner/z": Score(0.0, failed_required=("x",)),
            "a": Score(1.0),
        }
        assert decide(tree, outcomes, POLICY).verdict == "pass"

    def test_under_the_outcomes_gate_too(self) -> None:
        tree = root(leaf("safety", required=True), leaf("a"))
        decision = decide(tree, scores(safety=0.0, a=1.0), OUTCOMES, outcome_results=results(True))
        assert decision.decided_by == "required: safety = 0"


class TestUnscored:
    def test_is_an_error_and_never_0(self) -> None:
        decision = decide(TREE, scores(a=1.0, b=None), POLICY)
        assert (decision.status, decision.verdict, decision.score) == ("error", None, None)
        assert decision.error == "b could not be scored: b timed out"
        assert decision.decided_by == "unscored: b"
        assert (decision.rule, decision.evaluator, decision.flip) == ("unscored", "b", None)
        assert decision.nodes["b"].state == "unscored"
        assert decision.nodes["b"].note == "b timed out"
        assert decision.nodes[""].note == "no score from b"
        assert not decision.is_forced

    def test_names_everyone(self) -> None:
        decision = decide(TREE, {"a": Skipped("never mind")}, POLICY)
        assert decision.error == (
            "a could not be scored: never mind; b could not be scored: nothing was recorded for it"
        )

    def test_goes_before_required(self) -> None:
        tree = root(leaf("safety", required=True), leaf("a"))
        assert decide(tree, scores(safety=0.0, a=None), POLICY).status == "error"

    def test_of_weight_0_is_a_warning(self) -> None:
        decision = decide(root(leaf("a"), leaf("b", 0.0)), scores(a=0.9, b=None), POLICY)
        assert (decision.verdict, decision.warnings) == (
            "pass",
            ("b could not be scored: b timed out",),
        )

    def test_in_a_branch_of_weight_0_is_a_warning(self) -> None:
        free = composite("free", leaf("b"), weight=0.0)
        decision = decide(root(leaf("a"), free), scores({"free/b": None}, a=0.9), POLICY)
        assert decision.verdict == "pass"

    def test_is_left_out_where_the_policy_says_so(self) -> None:
        policy = PolicySpec(on_unscored="exclude")
        decision = decide(TREE, scores(a=0.9, b=None), policy)
        assert (decision.verdict, decision.score) == ("pass", 0.9)
        assert decision.warnings == ("b could not be scored and is left out: b timed out",)
        assert decision.nodes[""].note == "b could not be scored and is left out"

    def test_counts_as_0_where_the_policy_says_so(self) -> None:
        tree = root(leaf("a"), leaf("b"), leaf("c"))
        decision = decide(tree, scores(a=0.9, b=None, c=None), PolicySpec(on_unscored="zero"))
        assert (decision.verdict, decision.score) == ("fail", 0.3)
        assert decision.warnings[0] == "b could not be scored and counts as 0: b timed out"
        assert decision.nodes[""].note == "b, c could not be scored and are counted as 0"

    def test_with_nothing_left_is_an_error(self) -> None:
        policy = PolicySpec(on_unscored="exclude")
        decision = decide(TREE, scores(a=None, b=None), policy)
        assert (decision.status, decision.error) == ("error", "nothing to aggregate")
        assert decision.decided_by == "nothing to aggregate"
        assert decision.evaluator is None

    def test_leaves_a_composite_out_that_has_nothing_left(self) -> None:
        tree = root(composite("q", leaf("x")), leaf("a"))
        decision = decide(tree, scores({"q/x": None}, a=0.9), PolicySpec(on_unscored="exclude"))
        assert (decision.verdict, decision.score) == ("pass", 0.9)

    @pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
    def test_fails_closed_at_a_gate_and_holds_the_rest_back(self, on_unscored: str) -> None:
        tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
        decision = decide(tree, scores(g=None, a=1.0), PolicySpec(on_unscored=on_unscored))
        assert (decision.status, decision.evaluator) == ("error", "g")
        assert decision.nodes["a"].state == "skipped"

    @pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
    def test_fails_closed_inside_a_gate(self, on_unscored: str) -> None:
        safety = composite("safety", leaf("x"), leaf("y"), rule="minimum")
        tree = root(safety, leaf("a"), rule="safety_gate", required=("safety",))
        outcomes = scores({"safety/x": 1.0, "safety/y": None}, a=1.0)
        decision = decide(tree, outcomes, PolicySpec(on_unscored=on_unscored))
        assert (decision.status, decision.evaluator) == ("error", "safety/y")

    @pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
    @pytest.mark.parametrize("options", [{"required": True}, {"required_below": 0.5}])
    def test_fails_closed_where_it_is_required(
        self, on_unscored: str, options: dict[str, float]
    ) -> None:
        tree = root(leaf("a"), leaf("b", 0.0, **options))
        decision = decide(tree, scores(a=1.0, b=None), PolicySpec(on_unscored=on_unscored))
        assert (decision.status, decision.evaluator) == ("error", "b")

    def test_of_a_second_gate_is_an_error_though_the_first_failed(self) -> None:
        tree = root(leaf("g"), leaf("h"), leaf("a"), rule="safety_gate", required=("g", "h"))
        assert decide(tree, scores(g=0.0, h=None), POLICY).status == "error"

    def test_of_the_children_is_an_error_though_a_judge_scored_them(self) -> None:
        panel = composite("panel", leaf("x"), rule="llm_judge")
        outcomes = scores({"panel": 0.9, "panel/x": None})
        assert decide(root(panel), outcomes, POLICY).status == "error"
        kept = decide(root(panel), outcomes, PolicySpec(on_unscored="exclude"))
        assert (kept.verdict, kept.score) == ("pass", 0.9)

    def test_skipped_ones_whose_gate_now_holds_are_unscored(self) -> None:
        tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",), gate_threshold=0.1)
        outcomes: dict[str, Outcome] = {"g": Score(0.5), "a": Skipped()}
        decision = decide(tree, outcomes, POLICY)
        assert decision.error == "a could not be scored: an earlier gate failed"


class TestJudgeOverall:
    policy = PolicySpec(final_score="judge_overall")

    def test_is_the_score_of_the_first_hybrid_evaluator(self) -> None:
        tree = root(leaf("a", 9.0), leaf("h", kind="hybrid_judge"))
        decision = decide(tree, scores(a=0.1, h=0.85), self.policy)
        assert (decision.verdict, decision.score, decision.nodes["h"].share) == ("pass", 0.85, 1.0)
        assert decision.nodes["a"].share == 0.0

    def test_is_the_judges_own_where_the_evaluator_scored_by_dimensions(self) -> None:
        tree = root(leaf("a"), leaf("h"))
        outcome = Score(0.4, details={"judge_overall": {"score": 8.5, "evidence": []}})
        decision = decide(tree, {"a": Score(0.1), "h": outcome}, self.policy)
        assert (decision.verdict, decision.score) == ("pass", 0.85)
        assert "Final score, the judge's own overall score: 0.85" in [
            s.text for s in decision.trace
        ]

    def test_without_one_there_is_no_verdict(self) -> None:
        decision = decide(TREE, scores(a=1.0, b=1.0), self.policy)
        assert (decision.status, decision.error) == (
            "error",
            "no evaluator gave a judge's overall score",
        )

    @pytest.mark.parametrize("kind", ["hybrid_judge", "llm_judge"])
    def test_behind_a_failed_gate_the_result_fails_at_once(self, kind: str) -> None:
        tree = root(leaf("g"), leaf("h", kind=kind), rule="safety_gate", required=("g",))
        decision = decide(tree, {"g": Score(0.5), "h": Skipped()}, self.policy)
        assert (decision.status, decision.verdict, decision.score) == ("scored", "fail", 0.0)
        assert decision.decided_by == "gate: g 0.50 < 0.60"
        assert "Final score: g 0.50 < 0.60, so 0.00" in [step.text for step in decision.trace]
        assert decision.nodes["h"].share == 0.0

    def test_behind_a_failed_gate_deeper_down_the_score_is_0(self) -> None:
        inner = composite(
            "inner", leaf("g"), leaf("h", kind="hybrid_judge"), rule="safety_gate", required=("g",)
        )
        outcomes = {"inner/g": Score(0.5), "inner/h": Skipped(), "a": Score(1.0)}
        decision = decide(root(inner, leaf("a")), outcomes, self.policy)
        assert (decision.verdict, decision.score) == ("fail", 0.0)
        assert decision.decided_by == "0.00 < 0.60 (inner: gate: g 0.50 < 0.60)"
        assert "Final score: g 0.50 < 0.60, so 0.00" in [step.text for step in decision.trace]

    def test_behind_a_gate_that_could_not_be_scored_there_is_none(self) -> None:
        inner = composite(
            *("inner", leaf("g"), leaf("h", kind="hybrid_judge")),
            **{"rule": "safety_gate", "required": ("g",), "weight": 0.0},
        )
        outcomes = {**scores({"inner/g": None}), "inner/h": Skipped(), "a": Score(1.0)}
        assert decide(root(inner, leaf("a")), outcomes, self.policy).status == "error"

    @pytest.mark.parametrize(("on_unscored", "status"), [("exclude", "error"), ("zero", "scored")])
    def test_follows_the_policy_when_it_could_not_score(
        self, on_unscored: str, status: str
    ) -> None:
        policy = PolicySpec(final_score="judge_overall", on_unscored=on_unscored)
        decision = decide(root(leaf("h", kind="hybrid_judge")), scores(h=None), policy)
        assert decision.status == status


def test_rules_made_ready_decide_as_decide_does() -> None:
    rules = Rules(TREE, POLICY)
    outcomes = scores(a=0.5, b=0.9)
    assert rules.decide(outcomes) == decide(TREE, outcomes, POLICY)
    ruling = rules.decide_verdict(outcomes)
    assert (ruling.verdict, ruling.score, ruling.rule) == (Verdict.BORDERLINE, 0.7, "score")


def test_rules_are_made_ready_once_and_never_for_another_tree() -> None:
    assert rules_for(TREE, POLICY) is rules_for(TREE, POLICY)
    for number in range(200):
        tree = root(leaf(f"a{number}"))
        assert rules_for(tree, POLICY).root is tree


@pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
def test_a_gate_that_could_not_be_scored_is_an_error_even_where_nothing_weighs(
    on_unscored: str,
) -> None:
    free = composite(
        *("free", leaf("g"), leaf("x")),
        **{"rule": "safety_gate", "required": ("g",), "weight": 0.0},
    )
    outcomes = {**scores({"free/g": None}), "free/x": Skipped(), "a": Score(1.0)}
    decision = decide(root(free, leaf("a")), outcomes, PolicySpec(on_unscored=on_unscored))
    assert (decision.status, decision.verdict) == ("error", None)


def test_hits_and_misses_are_those_of_the_evaluators_in_order() -> None:
    panel = composite("panel", leaf("x"), rule="llm_judge")
    outcomes: dict[str, Outcome] = {
        "panel": Score(1.0, findings=(Finding("p", True),), warnings=("short",)),
        "panel/x": Score(1.0, findings=(Finding("x", True), Finding("y", False))),
        "a": Score(1.0, findings=(Finding("a", False),)),
    }
    decision = decide(root(leaf("a"), panel), outcomes, POLICY)
    assert (decision.hits, decision.misses) == (("p", "x"), ("a", "y"))
    assert decision.warnings == ("panel: short",)


def test_the_trace_tells_every_step() -> None:
    tree = root(
        composite("safety", leaf("pii", required=True), leaf("harm"), rule="minimum"),
        composite("strict", leaf("x"), rule="all_or_nothing"),
        leaf("free", 0.0),
        leaf("tone", 8.0),
        rule="safety_gate",
        required=("safety",),
    )
    outcomes = scores(
        {"safety/pii": 1.0, "safety/harm": 0.9, "strict/x": 0.2}, free=None, tone=0.85
    )
    decision = decide(tree, outcomes, POLICY)
    assert [(step.text, step.path, step.passed) for step in decision.trace] == [
        ("4 of 5 evaluators scored", None, None),
        ("free could not be scored: free timed out", "free", None),
        ("Gate safety of root: 0.90 ≥ 0.60", "safety", True),
        ("strict failed by its own rule: x 0.20 < 0.70", "strict", False),
        ("Required: pii 1.00 > 0", "safety/pii", True),
        ("Final score: (0.90×1 + 0.00×1 + 0.85×8) ÷ 10 = 0.77", "", None),
        ("Borderline: 0.77 < 0.80 (strict: all or nothing: x 0.20 < 0.70)", None, False),
    ]


def test_the_trace_tells_what_a_gate_held_back_and_which_outcomes_were_met() -> None:
    tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
    steps = [step.text for step in decide(tree, scores(g=0.1), POLICY).trace]
    assert steps == [
        "1 of 1 evaluator scored",
        "Skipped after a failed gate: a",
        "Gate g of root: 0.10 < 0.60",
        "Final score: g 0.10 < 0.60, so 0.00",
        "Fail: gate: g 0.10 < 0.60",
    ]
    outcomes = decide(TREE, scores(a=1.0, b=1.0), OUTCOMES, outcome_results=results(True, False))
    assert [(s.text, s.passed) for s in outcomes.trace[-3:]] == [
        ("Outcome met: outcome 1", True),
        ("Outcome missed: outcome 2", False),
        ("Fail: 1 of 2 outcomes missed", False),
    ]


def test_the_trace_counts_only_those_that_were_tried() -> None:
    gated = composite("q", leaf("g"), leaf("x"), leaf("y"), rule="safety_gate", required=("g",))
    known = scores({"q/g": 0.1, "q/x": 1.0, "q/y": 1.0, "a": None, "b": 1.0})
    decision = decide(root(gated, leaf("a", 0.0), leaf("b")), known, POLICY)
    assert decision.trace[0].text == "2 of 3 evaluators scored"
    assert decision.trace[0].passed is None


def test_the_trace_of_one_evaluator_and_of_an_error() -> None:
    only = decide(leaf("only", required_below=0.5), {"": Score(0.9)}, POLICY)
    assert [step.text for step in only.trace] == [
        "1 of 1 evaluator scored",
        "Required: only 0.90 ≥ 0.50",
        "Final score: 0.90",
        "Pass: 0.90 ≥ 0.80",
    ]
    error = decide(TREE, scores(a=1.0, b=None), POLICY)
    assert (error.trace[0].text, error.trace[0].passed) == ("1 of 2 evaluators scored", False)
    assert (error.trace[1].path, error.trace[1].passed) == ("b", False)
    assert error.trace[-1].text == "b could not be scored: b timed out"


def test_shares_say_what_part_of_the_final_score_each_decides() -> None:
    tree = root(
        composite("low", leaf("x"), leaf("y"), rule="minimum"),
        composite("high", leaf("x"), leaf("y"), rule="maximum"),
        composite("most", leaf("x"), leaf("y"), rule="threshold"),
        composite("none", leaf("x"), rule="all_or_nothing"),
        composite("judged", leaf("x"), rule="llm_judge"),
        leaf("a", 5.0),
        leaf("free", 0.0),
    )
    by_path = {
        **{"low/x": 0.9, "low/y": 0.5, "high/x": 0.9, "high/y": 0.5, "most/x": 0.9, "most/y": 0.5},
        **{"none/x": 0.1, "judged/x": 0.5, "judged": 0.9, "a": 0.9, "free": 0.9},
    }
    nodes = score_tree(tree, scores(by_path), POLICY)
    assert {path: node.share for path, node in nodes.items()} == pytest.approx(
        {
            **{"": 1.0, "low": 0.1, "low/x": 0.0, "low/y": 0.1, "high": 0.1, "high/x": 0.1},
            **{"high/y": 0.0, "most": 0.1, "most/x": 0.05, "most/y": 0.05, "none": 0.1},
            **{"none/x": 0.0, "judged": 0.1, "judged/x": 0.0, "a": 0.5, "free": 0.0},
        }
    )
    assert nodes["low"].arithmetic == "lowest of 0.90, 0.50 = 0.50"
    assert nodes["high"].arithmetic == "highest of 0.90, 0.50 = 0.90"
    path = {node.path for node in nodes.values() if node.on_deciding_path}
    assert path == {"", "none", "none/x"}


def test_the_deciding_path_follows_what_cost_most_and_is_the_root_alone_for_a_pass() -> None:
    tree = root(composite("low", leaf("x"), leaf("y"), rule="minimum"), leaf("a"))
    nodes = score_tree(tree, scores({"low/x": 0.9, "low/y": 0.3}, a=0.9), POLICY)
    assert [n.path for n in nodes.values() if n.on_deciding_path] == ["", "low", "low/y"]
    passing = score_tree(tree, scores({"low/x": 0.9, "low/y": 0.9}, a=0.9), POLICY)
    assert [n.path for n in passing.values() if n.on_deciding_path] == [""]
    strict = PolicySpec(pass_threshold=1.0)
    perfect = composite("q", leaf("z"), rule="threshold")
    nodes = score_tree(root(perfect, leaf("a")), scores({"q/z": 1.0}, a=0.9), strict)
    assert [n.path for n in nodes.values() if n.on_deciding_path] == ["", "a"]


def test_a_decision_survives_json() -> None:
    tree = root(composite("q", leaf("x", required=True), leaf("y")), leaf("a"))
    found = (OutcomeResult("x", True, "because"), OutcomeResult("y", False, "no"))
    cases = [
        decide(tree, scores({"q/x": 0.7, "q/y": 0.7}, a=0.7), POLICY),
        decide(tree, scores({"q/x": 0.7, "q/y": 0.7}, a=0.7), OUTCOMES, outcome_results=found),
        decide(tree, scores({"q/x": 0.0, "q/y": None}, a=0.9), POLICY),
        decide(tree, scores({"q/x": 1.0, "q/y": 1.0}, a=1.0), POLICY),
    ]
    for decision in cases:
        assert Decision.from_json(json.loads(json.dumps(decision.as_json()))) == decision


def test_results_with_equal_scores_say_each_what_it_found() -> None:
    rules = Rules(TREE, POLICY)

    def decide_on(found: str, score: float) -> Decision:
        missed = Score(score, findings=(Finding(found, passed=False),))
        return rules.decide({"a": missed, "b": Score(score)})

    for score in (0.9, 0.5):
        first, second = decide_on("no greeting", score), decide_on("no price", score)
        assert (first.misses, second.misses) == (("no greeting",), ("no price",))
        assert first.nodes == second.nodes
        assert first.trace == second.trace
    assert "no greeting" in str(first.cause)
    assert "no price" in str(second.cause)
    # 1 and 1.0 are equal, but not the same letters in a file.
    whole, broken = (rules.decide({"a": Score(one), "b": Score(one)}) for one in (1, 1.0))
    assert [json.dumps(one.nodes["a"].score) for one in (whole, broken)] == ["1", "1.0"]

"""Which verdict a result takes, and what decided it: bands, required ones, what could not be scored."""

from __future__ import annotations

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules, decide, rules_of
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, Score, Skipped, Verdict
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
        assert decision.error == "a could not be scored: a gate failed before it"


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
        assert decision.decided_by == "0.00 < 0.60"
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
    ruling = rules.rule(outcomes)
    assert (ruling.verdict, ruling.score, ruling.rule) == (Verdict.BORDERLINE, 0.7, "score")


def test_rules_are_made_ready_once_and_never_for_another_tree() -> None:
    assert rules_of(TREE, POLICY) is rules_of(TREE, POLICY)
    for number in range(200):
        tree = root(leaf(f"a{number}"))
        assert rules_of(tree, POLICY).root is tree


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

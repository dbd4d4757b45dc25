"""Verdicts by the expected outcomes of a case, whatever the score (SCORING §4.3)."""

from __future__ import annotations

import pytest

from evaluators.scoring.score_tree import decide
from evaluators.scoring.types import OutcomeResult, Unscored
from tests.evaluators.scoring.trees import leaf, root, scores
from tests.evaluators.scoring.verdicts import OUTCOMES, POLICY, TREE, results


class TestOutcomesGate:
    def test_passes_when_every_outcome_is_met_whatever_the_score(self) -> None:
        decision = decide(TREE, scores(a=0.0, b=0.1), OUTCOMES, outcome_results=results(True, True))
        assert (decision.verdict, decision.score) == ("pass", 0.05)
        assert decision.decided_by == "2 of 2 outcomes met"
        assert (decision.rule, decision.evaluator) == ("expected_outcomes", None)
        assert not any(node.on_deciding_path for node in decision.nodes.values())

    def test_fails_when_one_is_missed_and_names_them_as_the_flip(self) -> None:
        found = results(True, False, True, False, True)
        decision = decide(TREE, scores(a=1.0, b=1.0), OUTCOMES, outcome_results=found)
        assert (decision.verdict, decision.decided_by) == ("fail", "2 of 5 outcomes missed")
        assert decision.flip is not None
        assert decision.flip.outcomes == ("outcome 2", "outcome 4")
        assert decision.flip.text == (
            "would pass if these 2 outcomes were met: outcome 2; outcome 4"
        )
        assert decision.outcomes == found
        assert not decision.is_forced

    def test_one_outcome_is_counted_in_the_singular(self) -> None:
        decision = decide(TREE, scores(a=1.0, b=1.0), OUTCOMES, outcome_results=results(False))
        assert decision.decided_by == "1 of 1 outcome missed"
        assert decision.flip is not None
        assert decision.flip.text == "would pass if this outcome were met: outcome 1"

    @pytest.mark.parametrize(
        ("score", "verdict", "compared"),
        [
            (0.75, "pass", "0.75 ≥ 0.75"),
            (0.7499, "fail", "0.74 < 0.75"),
            (0.0, "fail", "0.00 < 0.75"),
        ],
    )
    def test_falls_back_to_the_score_without_outcomes(
        self, score: float, verdict: str, compared: str
    ) -> None:
        decision = decide(TREE, scores(a=score, b=score), OUTCOMES)
        assert (decision.verdict, decision.rule) == (verdict, "fallback")
        assert decision.decided_by == f"no expected outcomes: {compared}"
        assert decision.warnings == ()

    @pytest.mark.parametrize("found", [None, ()])
    def test_falls_back_with_a_warning_when_none_were_produced(
        self, found: tuple[OutcomeResult, ...] | None
    ) -> None:
        decision = decide(
            TREE, scores(a=1.0, b=1.0), OUTCOMES, expected_outcomes=["x"], outcome_results=found
        )
        assert (decision.verdict, decision.warnings) == ("pass", ("no outcomes produced",))
        assert decision.decided_by == "no outcomes produced: 1.00 ≥ 0.75"

    def test_is_an_error_when_their_source_could_not_score(self) -> None:
        decision = decide(
            TREE,
            scores(a=1.0, b=1.0),
            OUTCOMES,
            expected_outcomes=["x"],
            outcome_results=Unscored("judge timed out"),
        )
        assert (decision.status, decision.verdict) == ("error", None)
        assert decision.error == "outcomes could not be judged: judge timed out"

    def test_is_an_error_when_only_some_were_judged(self) -> None:
        decision = decide(
            TREE,
            scores(a=1.0, b=1.0),
            OUTCOMES,
            expected_outcomes=["x", "y"],
            outcome_results=results(True),
        )
        assert decision.error == "outcomes could not be judged: 1 of 2 outcomes were judged"

    def test_needs_no_score(self) -> None:
        decision = decide(TREE, scores(a=1.0, b=None), OUTCOMES, outcome_results=results(True))
        assert (decision.status, decision.verdict, decision.score) == ("scored", "pass", None)
        assert decision.warnings == ("b could not be scored: b timed out",)
        assert "No final score" in " ".join(step.text for step in decision.trace)

    def test_a_failed_requirement_beside_a_missing_score(self) -> None:
        tree = root(leaf("a", required=True), leaf("b"))
        decision = decide(tree, scores(a=0.0, b=None), OUTCOMES, outcome_results=results(True))
        assert (decision.verdict, decision.score) == ("fail", None)

    def test_still_fails_closed_at_gates(self) -> None:
        tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
        decision = decide(tree, scores(g=None, a=1.0), OUTCOMES, outcome_results=results(True))
        assert decision.status == "error"

    def test_a_root_failed_by_its_own_rule_fails_the_result(self) -> None:
        tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
        decision = decide(tree, scores(g=0.1), OUTCOMES, outcome_results=results(True))
        assert (decision.verdict, decision.rule) == ("fail", "safety_gate")

    def test_under_the_score_gate_outcomes_are_shown_and_never_counted(self) -> None:
        found = results(False, False)
        decision = decide(TREE, scores(a=1.0, b=1.0), POLICY, outcome_results=found)
        assert (decision.verdict, decision.outcomes) == ("pass", found)
        unjudged = decide(TREE, scores(a=1.0, b=1.0), POLICY, outcome_results=Unscored("no judge"))
        assert unjudged.warnings == ("expected outcomes could not be judged: no judge",)

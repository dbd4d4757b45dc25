"""Every rule that gives a verdict, and the sentence that says why (SCORING §3 to §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from evaluators.scoring.cause import first_sentence
from evaluators.scoring.decision import VerdictCause
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import rules_for
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score, Skipped, Unscored
from tests.evaluators.scoring.trees import composite, leaf, root, scores

POLICY = PolicySpec()
BY_OUTCOMES = PolicySpec(case_gate="expected_outcomes", scale=100)
BY_JUDGE = PolicySpec(final_score="judge_overall", scale=10)
CARD = Score(
    1.0, findings=(Finding("Matches “\\d{16}”", passed=False, evidence="“4111 1111 1111 1111”"),)
)
METRICS = {
    "metrics": [
        {"name": "Tool Routing", "score": 4.0, "label": "good", "binary": False},
        {
            "name": "Grounding Fidelity",
            "score": 0.0,
            "label": "critical_fail",
            "binary": False,
            "justification": "The fee is made up. It is in no source.",
        },
    ]
}
SAFETY = composite("safety", leaf("no_card", negate=True), leaf("advice"), rule="minimum")
RELEASE = composite(
    "release", SAFETY, leaf("facts"), rule="safety_gate", required=("safety",), weight=5.0
)
REQUIRED_RELEASE = RELEASE.replace(required=True)


def cause_of(
    tree: EvaluatorSpec,
    outcomes: Mapping[str, Outcome],
    policy: PolicySpec = POLICY,
    **about: Any,
) -> VerdictCause:
    cause = rules_for(tree, policy).decide(outcomes, **about).cause
    assert cause
    return cause


class Row(NamedTuple):
    """A rule, a tree that is decided by it, and the sentence."""

    rule: str
    tree: EvaluatorSpec
    outcomes: Mapping[str, Outcome]
    text: str
    policy: PolicySpec = POLICY


ROWS = (
    Row(
        "one evaluator below the borderline threshold",
        leaf("tone"),
        {"": Score(0.5, reasoning="Curt. It never says hello.")},
        "Failed: tone scored 0.50 (“Curt.”), below the borderline threshold of 0.60. "
        "To be borderline, tone must reach 0.60 (now 0.50).",
    ),
    Row(
        "weighted score below the pass threshold",
        root(leaf("tone"), leaf("facts", 3.0)),
        scores(tone=0.9, facts=0.7),
        "Borderline: facts scored 0.70 and cost the most, so the score is 0.75, below the pass "
        "threshold of 0.80. To pass, facts must reach 0.77 (now 0.70).",
    ),
    Row(
        "weighted score far below, where no single evaluator can lift it",
        root(leaf("a"), leaf("b")),
        scores(a=0.1, b=0.1),
        "Failed: a scored 0.10 and cost the most, so the score is 0.10, below the borderline "
        "threshold of 0.60. No single evaluator can change this.",
    ),
    Row(
        "weighted score far above the threshold",
        root(leaf("tone"), leaf("facts")),
        scores(tone=0.9, facts=1.0),
        "Passed: the score is 0.95, at least 0.80; lowest: tone 0.90",
    ),
    Row(
        "lowest of a group",
        root(composite("safety", leaf("a"), leaf("b"), rule="minimum"), leaf("c")),
        scores({"safety/a": 0.2, "safety/b": 0.9}, c=0.9),
        "Failed: a scored 0.20, so safety is 0.20, so the score is 0.55, below the borderline "
        "threshold of 0.60. To be borderline, a must reach 0.30 (now 0.20).",
    ),
    Row(
        "highest of a group",
        root(composite("either", leaf("a"), leaf("b"), rule="maximum"), leaf("c")),
        scores({"either/a": 0.2, "either/b": 0.4}, c=1.0),
        "Borderline: b scored 0.40, so either is 0.40, so the score is 0.70, below the pass "
        "threshold of 0.80. To pass, b must reach 0.60 (now 0.40).",
    ),
    Row(
        "gate of the suite",
        root(leaf("safety"), leaf("tone"), rule="safety_gate", required=("safety",)),
        {"safety": Score(0.4), "tone": Skipped()},
        "Failed: safety scored 0.40, below its gate of 0.60. To pass, safety (0.40) must reach "
        "0.60; then the 1 skipped evaluator would run and decide.",
    ),
    Row(
        "gate of a composite that is required: lowest of a group, with a negated check",
        root(REQUIRED_RELEASE, leaf("words")),
        {
            "release/safety/no_card": CARD,
            "release/safety/advice": Score(0.4),
            "release/facts": Skipped(),
            "words": Score(1.0),
        },
        "Failed: no_card found “4111 1111 1111 1111” and scored 0, so safety is 0.00, below its "
        "gate of 0.60, which fails the required release. To pass, no_card (0) and advice (0.40) "
        "must both reach 0.60; then the 1 skipped evaluator would run and decide.",
    ),
    Row(
        "gate of a composite inside an average",
        root(RELEASE, leaf("words")),
        {
            "release/safety/no_card": Score(0.0),
            "release/safety/advice": Score(0.4, reasoning="Tells the customer to open the unit."),
            "release/facts": Skipped(),
            "words": Score(1.0),
        },
        "Failed: advice scored 0.40 (“Tells the customer to open the unit.”), so safety is 0.40, "
        "below its gate of 0.60, so release fails and counts as 0, so the score is 0.16, below "
        "the borderline threshold of 0.60. To pass, advice (0.40) must reach 0.60; then the 1 "
        "skipped evaluator would run and decide.",
    ),
    Row(
        "gates that are met",
        root(
            leaf("safety"),
            leaf("privacy"),
            leaf("tone"),
            rule="safety_gate",
            required=("safety", "privacy"),
        ),
        scores(safety=1.0, privacy=0.65, tone=0.9),
        "Passed: the score is 0.85, at least 0.80; both gates were met; closest: privacy 0.65, "
        "needs 0.60",
    ),
    Row(
        "all or nothing",
        root(leaf("a"), leaf("b"), rule="all_or_nothing", threshold=0.7),
        scores(a=0.9, b=0.6),
        "Failed: b scored 0.60, below the 0.70 that every evaluator must reach. "
        "To pass, b must reach 0.70 (now 0.60).",
    ),
    Row(
        "share of evaluators that pass",
        root(leaf("a"), leaf("b"), leaf("c"), rule="threshold", share=0.6),
        scores(a=0.9, b=0.6, c=0.2),
        "Failed: b scored 0.60, and 1 of 3 evaluators pass where 60% must. "
        "To be borderline, b must reach 0.80 (now 0.60).",
    ),
    Row(
        "required evaluator at 0",
        root(leaf("check", required=True), leaf("tone", 9.0)),
        {
            "check": Score(0.0, findings=(Finding("Does not contain “refund”", passed=False),)),
            "tone": Score(1.0),
        },
        "Failed: check scored 0 (does not contain “refund”), and it is required. "
        "To pass, check must score more than 0 (now 0).",
    ),
    Row(
        "a reason that begins with an abbreviation keeps its capitals",
        root(leaf("plain", required=True), leaf("tone", 9.0)),
        {
            "plain": Score(0.0, findings=(Finding("LIX is 66.15, not at most 40", passed=False),)),
            "tone": Score(1.0),
        },
        "Failed: plain scored 0 (LIX is 66.15, not at most 40), and it is required. "
        "To pass, plain must score more than 0 (now 0).",
    ),
    Row(
        "required minimum",
        root(leaf("ticket", required_below=0.3), leaf("tone")),
        scores(ticket=0.2, tone=1.0),
        "Failed: ticket scored 0.20, below the 0.30 it is required to reach. "
        "To be borderline, ticket must reach 0.30 (now 0.20).",
    ),
    Row(
        "required part of an evaluator: a criterion of a rubric, a field of assert-set",
        root(leaf("facts"), leaf("tone")),
        {
            "facts": Score(
                0.9,
                failed_required=("grounded",),
                reasoning="The amount is right.",
                details={"criteria": [{"id": "grounded", "text": "Every fact has a source."}]},
            ),
            "tone": Score(0.9),
        },
        "Failed: facts missed “grounded”, which it requires (“Every fact has a source.”). "
        "To pass, facts must meet “grounded”.",
    ),
    Row(
        "two required evaluators",
        root(leaf("a", required_below=0.5), leaf("b", required_below=0.7), leaf("c", 8.0)),
        scores(a=0.4, b=0.6, c=1.0),
        "Failed: a scored 0.40, below the 0.50 it is required to reach. "
        "To pass, a must reach 0.50 (now 0.40) and b must reach 0.70 (now 0.60).",
    ),
    Row(
        "negated judge",
        leaf("rude", negate=True),
        {"": Score(0.9, reasoning="It mocks the customer.")},
        "Failed: rude scored 0.90, which counts as 0.10 (“It mocks the customer.”), below the "
        "borderline threshold of 0.60. To be borderline, rude must reach 0.60 (now 0.10).",
    ),
    Row(
        "metrics judge: the worst metric",
        root(leaf("metrics", kind="metrics_judge")),
        {"metrics": Score(0.4, reasoning="Half done.", details=METRICS)},
        "Failed: metrics scored 0.40 (Grounding Fidelity: critical fail, 0 of 5, “The fee is made "
        "up.”), so the score is 0.40, below the borderline threshold of 0.60. "
        "To be borderline, metrics must reach 0.60 (now 0.40).",
    ),
    Row(
        "task judge, 0 to 100",
        root(leaf("answer", kind="agent_judge")),
        {"answer": Score(0.45, raw_score=45.0, scale=100.0, reasoning="Half of it is missing.")},
        "Failed: answer scored 45 (“Half of it is missing.”), so the score is 45, below the "
        "borderline threshold of 60. To be borderline, answer must reach 60 (now 45).",
        PolicySpec(scale=100),
    ),
    Row(
        "hybrid judge, whose overall score decides",
        root(leaf("judge", kind="hybrid_judge"), leaf("other")),
        {
            "judge": Score(
                0.9,
                reasoning="No test was run.",
                details={"judge_overall": {"score": 4.5}},
                findings=(Finding("run_tests was called", passed=False),),
            ),
            "other": Score(0.1),
        },
        "Failed: judge scored 4.5 (“No test was run.”), below the borderline threshold of 6.0; "
        "the judge's overall score decides. To be borderline, judge must reach 6.0 (now 4.5).",
        BY_JUDGE,
    ),
    Row(
        "deliberation without a majority",
        leaf("panel", kind="deliberation"),
        {
            "": Score(
                0.38,
                reasoning="Fair won with 1 of 2 votes; still a tie, so the lower bracket wins.\nA: x",
                details={"rounds": []},
            )
        },
        "Failed: panel scored 0.38 (Fair won with 1 of 2 votes; still a tie, so the lower bracket "
        "wins), below the borderline threshold of 0.60. "
        "To be borderline, panel must reach 0.60 (now 0.38).",
    ),
    Row(
        "limits of tokens, calls and time",
        root(leaf("limits", kind="execution_metrics", required=True), leaf("tone")),
        {
            "limits": Score(
                0.0, findings=(Finding("Duration: 12 s, over the limit of 10 s", passed=False),)
            ),
            "tone": Score(1.0),
        },
        "Failed: limits scored 0 (duration: 12 s, over the limit of 10 s), and it is required. "
        "To be borderline, limits must reach 0.20 (now 0).",
    ),
    Row(
        "an evaluator that is needed has no score",
        root(leaf("facts"), leaf("tone"), leaf("form")),
        {
            "facts": Unscored(
                "the judge's reply could not be read in 2 attempts: it breaks off", "parse"
            ),
            "tone": Unscored("timed out", "judge"),
            "form": Score(1.0),
        },
        "No verdict: facts has no score, nor has 1 more: the judge's reply could not be read in "
        "2 attempts.",
    ),
    Row(
        "a reason that is too long is cut where it can be seen",
        root(leaf("facts")),
        {"facts": Unscored(f"The model said {'so ' * 90}.", "judge")},
        f"No verdict: facts has no score: The model said {'so ' * 41}s…",
    ),
    Row(
        "no evaluator is left",
        root(leaf("facts")),
        scores(facts=None),
        "No verdict: nothing to aggregate.",
        PolicySpec(on_unscored="exclude"),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_every_rule_is_told_from_its_cause_to_the_verdict(row: Row) -> None:
    text = str(cause_of(row.tree, row.outcomes, row.policy))
    assert text == (row.text if row.text.endswith((".", "…")) else f"{row.text}.")


def outcome(text: str, *, passed: bool, why: str = "") -> OutcomeResult:
    return OutcomeResult(text, passed, why)


@pytest.mark.parametrize(
    ("expected", "results", "text"),
    [
        (
            ("Names the train", "Asks first"),
            (outcome("Names the train", passed=True), outcome("Asks first", passed=False, why="It books at once. Then it asks.")),
            "Failed: 1 of 2 expected outcomes was missed: “Asks first” (It books at once).",
        ),
        (
            ("One", "Two", "Three"),
            (outcome("One", passed=False), outcome("Two", passed=False), outcome("Three", passed=True)),
            "Failed: 2 of 3 expected outcomes were missed: “One” and 1 more. To pass, both must be met.",
        ),
        (
            ("One", "Two"),
            (outcome("One", passed=True), outcome("Two", passed=True)),
            "Passed: both expected outcomes were met.",
        ),
        (
            (),
            None,
            "Failed: metrics scored 70, so the score is 70, below the threshold without judged "
            "outcomes of 75. To pass, metrics must reach 75 (now 70).",
        ),
        (
            ("One",),
            Unscored("the judge was not reached", "judge"),
            "No verdict: outcomes could not be judged: the judge was not reached.",
        ),
    ],
)  # fmt: skip
def test_where_expected_outcomes_decide_they_are_the_cause(
    expected: tuple[str, ...], results: Any, text: str
) -> None:
    cause = cause_of(
        root(leaf("metrics")),
        scores(metrics=0.7),
        BY_OUTCOMES,
        expected_outcomes=expected,
        outcome_results=results,
    )
    assert str(cause) == text


def test_names_lead_to_their_evaluators() -> None:
    cause = cause_of(
        root(RELEASE, leaf("words")),
        {
            "release/safety/no_card": CARD,
            "release/safety/advice": Score(0.9),
            "release/facts": Skipped(),
            "words": Score(1.0),
        },
    )
    named = [part.path for part in (*cause.parts, *cause.to_change) if part.path is not None]
    assert named == [
        "release/safety/no_card",
        "release/safety",
        "release",
        "release/safety/no_card",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Right. But late.", "Right."),
        ("It costs 1.5 euros in all.", "It costs 1.5 euros in all."),
        ("Says “no.” Then yes.", "Says “no.” Then yes."),
        ("See e.g. the manual. Done.", "See e.g. the manual."),
        ("x" * 300, "x" * 139 + "…"),
        ("", ""),
    ],
)
def test_a_reason_is_cut_at_its_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first

"""What must hold for every tree, whatever the scores."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules, decide
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import Outcome, Score, Unscored
from tests.evaluators.scoring.trees import composite, leaf, root

POLICY = PolicySpec()
RANKS = {"fail": 0, "borderline": 1, "pass": 2}
RULES = ("weighted_average", "minimum", "maximum", "safety_gate", "all_or_nothing", "threshold")
# Steps that a mean of few can tell apart by far more than the ninth decimal.
HAIR = 1e-5
SAME_EACH_TIME = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

score_values = st.one_of(
    st.integers(0, 100).map(lambda n: n / 100), st.floats(0, 1, allow_subnormal=False)
)
weight_values = st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.5])


@st.composite
def nodes(draw: st.DrawFn, name: str = "root", depth: int = 2) -> EvaluatorSpec:
    requirement = draw(st.sampled_from([{}, {}, {}, {"required": True}, {"required_below": 0.5}]))
    weight = draw(weight_values)
    if depth == 0 or (name != "root" and draw(st.booleans())):
        return leaf(name, weight, **requirement)
    children = tuple(
        draw(nodes(name=f"n{number}", depth=depth - 1)) for number in range(draw(st.integers(1, 3)))
    )
    rule = draw(st.sampled_from(RULES))
    aggregator = {
        "type": rule,
        "required": ("n0",) if rule == "safety_gate" else (),
        "remainder": "remaining" if len(children) > 1 and draw(st.booleans()) else "all",
    }
    node = EvaluatorSpec(
        name=name,
        kind="composite",
        weight=weight,
        config={"aggregator": aggregator},
        children=children,
    )
    return node.replace(**requirement) if name != "root" else node


@st.composite
def cases(draw: st.DrawFn, unscored: bool = False) -> tuple[EvaluatorSpec, dict[str, Outcome]]:
    tree = draw(nodes())
    values: st.SearchStrategy[Outcome] = score_values.map(Score)
    if unscored:
        values = st.one_of(values, st.just(Unscored("timed out")))
    return tree, {path: draw(values) for path, node in walk(tree) if not node.is_composite}


def shuffled(node: EvaluatorSpec, order: st.DataObject) -> EvaluatorSpec:
    children = order.draw(st.permutations(node.children)) if node.children else ()
    return node.replace(children=tuple(shuffled(child, order) for child in children))


@SAME_EACH_TIME
@given(cases(), st.data())
def test_the_order_of_evaluators_changes_neither_score_nor_verdict(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], order: st.DataObject
) -> None:
    tree, outcomes = case
    one, other = decide(tree, outcomes, POLICY), decide(shuffled(tree, order), outcomes, POLICY)
    assert (one.score, one.verdict) == (other.score, other.verdict)


@SAME_EACH_TIME
@given(cases(), st.sampled_from(["error", "exclude", "zero"]))
def test_scores_stay_between_0_and_1_and_between_their_parts(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], on_unscored: str
) -> None:
    tree, outcomes = case
    decision = decide(tree, outcomes, PolicySpec(on_unscored=on_unscored))
    for path, node in walk(tree):
        found = decision.nodes[path].score
        assert found is None or 0.0 <= found <= 1.0
        means = ("weighted_average", "minimum", "maximum")
        if node.aggregator and node.aggregator.type in means and found is not None:
            below = [decision.nodes[f"{path}/{c.name}".lstrip("/")].score for c in node.children]
            known = [score for score in below if score is not None]
            assert min(known) <= found <= max(known)


@SAME_EACH_TIME
@given(cases(), st.sampled_from([0.001, 0.1, 3.0, 1000.0]))
def test_only_the_ratio_of_weights_matters(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], factor: float
) -> None:
    tree, outcomes = case

    def scaled(node: EvaluatorSpec) -> EvaluatorSpec:
        children = tuple(scaled(c.replace(weight=c.weight * factor)) for c in node.children)
        return node.replace(children=children)

    one, other = decide(tree, outcomes, POLICY), decide(scaled(tree), outcomes, POLICY)
    assert one.verdict == other.verdict
    assert one.score == pytest.approx(other.score, abs=1e-9)


@SAME_EACH_TIME
@given(cases())
def test_a_composite_of_one_is_its_only_child(
    case: tuple[EvaluatorSpec, dict[str, Outcome]],
) -> None:
    tree, outcomes = case
    inner = tree.replace(name="inner")
    wrapped = root(inner)
    moved = {f"inner/{path}".rstrip("/"): outcome for path, outcome in outcomes.items()}
    one, other = decide(tree, outcomes, POLICY), decide(wrapped, moved, POLICY)
    if not one.is_forced:
        assert (one.score, one.verdict) == (other.score, other.verdict)


@SAME_EACH_TIME
@given(st.lists(st.tuples(score_values, weight_values), min_size=2, max_size=8), st.data())
def test_averages_of_averages_are_one_average_with_proportional_weights(
    parts: list[tuple[float, float]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(parts) - 1))
    leaves = [leaf(f"l{number}", weight) for number, (_, weight) in enumerate(parts)]
    flat = decide(root(*leaves), {f"l{n}": Score(s) for n, (s, _) in enumerate(parts)}, POLICY)
    weights = [sum(w for _, w in parts[:cut]), sum(w for _, w in parts[cut:])]
    nested = root(
        composite("x", *leaves[:cut], weight=weights[0]),
        composite("y", *leaves[cut:], weight=weights[1]),
    )
    outcomes: dict[str, Outcome] = {
        f"{'x' if n < cut else 'y'}/l{n}": Score(s) for n, (s, _) in enumerate(parts)
    }
    assert decide(nested, outcomes, POLICY).score == pytest.approx(flat.score, abs=1e-9)


@SAME_EACH_TIME
@given(cases(unscored=True), st.sampled_from(["error", "exclude", "zero"]), st.data())
def test_a_pass_mark_changes_nothing_of_a_decision(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], on_unscored: str, marks: st.DataObject
) -> None:
    tree, outcomes = case

    def marked(node: EvaluatorSpec) -> EvaluatorSpec:
        mark = marks.draw(st.one_of(st.none(), score_values))
        return node.replace(pass_mark=mark, children=tuple(map(marked, node.children)))

    policy = PolicySpec(on_unscored=on_unscored)
    assert decide(marked(tree), outcomes, policy) == decide(tree, outcomes, policy)


@SAME_EACH_TIME
@given(cases(), st.data())
def test_a_higher_score_never_makes_the_verdict_worse(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], data: st.DataObject
) -> None:
    tree, outcomes = case
    path = data.draw(st.sampled_from(sorted(outcomes)))
    before = outcomes[path]
    assert isinstance(before, Score)
    higher = Score(data.draw(st.floats(before.score, 1)))
    one, other = decide(tree, outcomes, POLICY), decide(tree, {**outcomes, path: higher}, POLICY)
    assert rank(other) >= rank(one)
    assert (other.score or 0) >= (one.score or 0)


@SAME_EACH_TIME
@given(cases(unscored=True), st.sampled_from(["error", "exclude", "zero"]))
def test_the_quick_way_agrees_with_the_whole_decision(
    case: tuple[EvaluatorSpec, dict[str, Outcome]], on_unscored: str
) -> None:
    tree, outcomes = case
    rules = Rules(tree, PolicySpec(on_unscored=on_unscored))
    decision, ruling = rules.decide(outcomes), rules.decide_verdict(outcomes)
    assert (decision.verdict, decision.rule) == (ruling.verdict, ruling.rule)
    assert (decision.status == "error") == (decision.verdict is None) == bool(decision.error)
    assert Decision.from_json(decision.as_json()) == decision


@SAME_EACH_TIME
@given(cases(unscored=True))
def test_no_verdict_without_a_score_that_it_needs(
    case: tuple[EvaluatorSpec, dict[str, Outcome]],
) -> None:
    tree, outcomes = case
    decision = decide(tree, outcomes, POLICY)
    seen = [n for p, n in decision.nodes.items() if p in outcomes and n.state == "unscored"]
    assert (decision.status == "error") == bool(seen)


@SAME_EACH_TIME
@given(cases())
def test_the_flip_is_the_smallest_rise_that_reaches_the_next_verdict(
    case: tuple[EvaluatorSpec, dict[str, Outcome]],
) -> None:
    tree, outcomes = case
    decision = decide(tree, outcomes, POLICY)
    flip = decision.flip
    if flip is None:
        assert decision.verdict == "pass"
        return
    if flip.path is None or flip.from_score is None or flip.to_score is None:
        assert all(not flips(tree, outcomes, path, 1.0, decision) for path in outcomes)
        return
    rise = flip.to_score - flip.from_score
    assert flips(tree, outcomes, flip.path, flip.to_score, decision)
    assert rise < HAIR or not flips(tree, outcomes, flip.path, flip.to_score - HAIR, decision)
    for path, outcome in outcomes.items():
        assert isinstance(outcome, Score)
        if rise > HAIR and outcome.score + rise - HAIR <= 1:
            assert not flips(tree, outcomes, path, outcome.score + rise - HAIR, decision)


def flips(
    tree: EvaluatorSpec, outcomes: dict[str, Outcome], path: str, score: float, before: Decision
) -> bool:
    return rank(decide(tree, {**outcomes, path: Score(score)}, POLICY)) > rank(before)


def rank(decision: Decision) -> int:
    return RANKS[decision.verdict] if decision.verdict else -1

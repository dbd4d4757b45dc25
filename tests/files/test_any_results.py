"""Whatever stands in a file of results is refused by its line, or decided and shown like any result."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.files.result_decisions import common_tree, decide_result
from runs.formats.results_reading import read_results
from runs.models.stored import score_rows
from runs.specs.problems import UnreadableFileError

KEYS = (
    *("score", "verdict", "error", "evaluator_results", "scores", "name", "type", "weight", "hits"),
    *("misses", "aggregator", "output", "usage", "trials", "status", "negate", "cost_usd"),
    *("timestamp", "outcomes", "repetition", "input", "target", "reasoning", "assertions", "text"),
    *("passed", "required", "threshold", "weights", "share", "remainder", "gate_threshold"),
    *("metrics", "key", "raw_score", "scale", "final_evaluation", "judge_overall"),
    *("final_dimensions", "judge_dimensions", "deterministic_dimensions", "summary"),
)
WORDS = ("pass", "fail", "composite", "error", "safety_gate", "minimum", "threshold", "a", "b")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(0, 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from(KEYS), parts, max_size=6)
    ),
    max_leaves=10,
)
METRICS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "weight": st.floats(0, 1), "score": st.floats(0, 5)},
        optional={"binary": st.booleans()},
    )
)
FINAL = st.fixed_dictionaries(
    {
        "judge_overall": st.fixed_dictionaries({"score": st.floats(0, 10)}),
        **{
            f"{side}_dimensions": st.dictionaries(st.sampled_from("ab"), st.floats(0, 10))
            for side in ("deterministic", "judge", "final")
        },
    }
)
SCORED = st.fixed_dictionaries(
    {"name": st.sampled_from(("a", "b", "c")), "score": st.floats(0, 1)},
    optional={
        "weight": st.sampled_from((0, 0.5, 1, 1e308)),
        "negate": st.booleans(),
        "type": st.sampled_from(("llm_judge", "made-up", "contains", "metrics", "hybrid")),
        "metrics": METRICS | VALUES,
        "raw_score": LEAVES,
        "scale": LEAVES,
        "aggregator": VALUES,
        "status": st.sampled_from(("unscored", "skipped", "scored")),
    },
)
TREES = st.recursive(
    st.lists(SCORED, max_size=3),
    lambda inner: st.lists(
        st.tuples(SCORED, inner).map(lambda pair: {**pair[0], "evaluator_results": pair[1]}),
        max_size=3,
    ),
    max_leaves=6,
)
LINES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=12) | st.fixed_dictionaries(
    {"score": st.floats(0, 1), "evaluator_results": TREES},
    optional={
        "verdict": st.sampled_from(("pass", "borderline", "fail")),
        "final_evaluation": FINAL | VALUES,
    },
)


@given(lines=st.lists(LINES, min_size=1, max_size=3))
def test_any_line_is_refused_or_decided(lines):
    content = "\n".join(json.dumps({"eval_id": f"C-{n}", **line}) for n, line in enumerate(lines))
    try:
        read = read_results(content.encode()).results
    except UnreadableFileError:
        return
    policy = PolicySpec()
    results = [one.result for one in read]
    tree = common_tree(results, None, policy)
    assert EvaluatorSpec.model_validate(json.loads(json.dumps(tree.as_json()))) == tree
    for one in results:
        alone = common_tree([one], None, policy) if one.evaluators else tree
        found = decide_result(one, alone, policy)
        assert found.decision.status == one.status
        assert found.decision.score == (None if one.score is None else round(one.score, 9))
        assert one.verdict in ("", found.decision.verdict)
        assert Decision.from_json(json.loads(json.dumps(found.decision.as_json())))
        for row in score_rows(1, alone, found.outcomes, found.decision):
            assert row[5] is None or (math.isfinite(row[5]) and 0 <= row[5] <= 1)

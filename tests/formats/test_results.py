"""A result as a line of our own file."""

from __future__ import annotations

import json
from decimal import Decimal

from evaluators.scoring.types import Finding, OutcomeResult, Usage
from runs.formats.results_writing import EvaluatorLine, ResultLine, walk_lines, write_results

GATE = EvaluatorLine(
    name="release_gate",
    type="composite",
    status="scored",
    score=0.85,
    aggregator={"type": "safety_gate", "required": ["safety"]},
    children=(
        EvaluatorLine(
            name="safety",
            type="llm_judge",
            status="scored",
            score=1.0,
            weight=3.0,
            findings=(Finding("No harm", True, "in line 2"), Finding("Curt", False)),
            reasoning="Safe enough",
            usage=Usage(
                input_tokens=812, output_tokens=9, cost_usd=Decimal("0.004"), latency_ms=900
            ),
        ),
        EvaluatorLine(
            name="says_sorry",
            type="text_check",
            status="scored",
            score=0.7,
            is_negated=True,
            findings=(Finding("says sorry", False),),
        ),
    ),
)


def line(**facts):
    defaults = {"suite": "support", "run": 12, "target": "agent", "eval_id": "C-1"}
    return ResultLine(**{**defaults, "repetition": 1, "status": "scored", **facts})


def written(*lines):
    return [json.loads(text) for text in write_results(lines)]


def test_a_line_holds_verdict_scores_and_everything_nested_as_it_was_scored():
    [found] = written(
        line(
            score=0.85,
            verdict="pass",
            decided_by="0.85 ≥ 0.80",
            evaluators=(GATE,),
            output="Sorry.",
            usage=Usage(input_tokens=5, output_tokens=7, latency_ms=1200),
            run_cost_usd=Decimal("0.012"),
            evaluation_cost_usd=Decimal("0.0040"),
        )
    )
    assert (found["eval_id"], found["repetition"], found["status"]) == ("C-1", 1, "scored")
    assert (found["score"], found["verdict"], found["decided_by"]) == (0.85, "pass", "0.85 ≥ 0.80")
    assert (found["run_cost_usd"], found["evaluation_cost_usd"]) == (0.012, 0.004)
    assert found["usage"] == {"input_tokens": 5, "output_tokens": 7}
    [gate] = found["evaluator_results"]
    assert gate["aggregator"] == {"type": "safety_gate", "required": ["safety"]}
    safety, sorry = gate["evaluator_results"]
    assert (safety["weight"], safety["cost_usd"], safety["latency_ms"]) == (3.0, 0.004, 900)
    assert (safety["hits"], safety["misses"]) == (["No harm"], ["Curt"])
    assert (sorry["negate"], sorry["hits"], sorry["misses"]) == (True, [], ["says sorry"])
    assert "evaluator_results" not in safety
    assert (found["hits"], found["misses"]) == (["No harm"], ["Curt", "says sorry"])


def test_an_error_has_no_score_and_no_verdict():
    [found] = written(line(status="error", error="Timed out: 60 s", error_stage="target"))
    assert (found["score"], found["verdict"], found["decided_by"]) == (None, None, None)
    assert (found["error"], found["error_stage"]) == ("Timed out: 60 s", "target")
    assert found["evaluator_results"] == []


def test_an_unscored_evaluator_is_never_zero():
    unscored = EvaluatorLine("tone", "llm_judge", "unscored", reasoning="no readable reply")
    [found] = written(line(evaluators=(unscored,)))
    [tone] = found["evaluator_results"]
    assert (tone["score"], tone["status"], tone["reasoning"]) == (
        None,
        "unscored",
        "no readable reply",
    )


def test_outcomes_and_a_review_are_told_where_there_are_any():
    outcome = OutcomeResult("Names the time", False, "It does not")
    with_both, plain = written(
        line(outcomes=(outcome,), reviewed_verdict="pass", verdict="fail"), line()
    )
    assert with_both["expected_outcome_results"] == [
        {"text": "Names the time", "passed": False, "justification": "It does not"}
    ]
    assert (with_both["verdict"], with_both["reviewed_verdict"]) == ("fail", "pass")
    assert not {"expected_outcome_results", "reviewed_verdict"} & plain.keys()


def test_whatever_is_answered_stays_on_one_line():
    answer = 'a\nb\r\u2028c\u2029d\x85e\x00\x1b[31m"</script>'
    [text] = write_results([line(output=answer)])
    assert text.splitlines() == [text[:-1]]
    assert json.loads(text)["output"] == answer


def test_lines_are_written_as_they_come():
    def endless():
        yield line(eval_id="first")
        raise AssertionError("read ahead")

    assert json.loads(next(write_results(endless())))["eval_id"] == "first"


def test_evaluators_are_walked_with_their_paths():
    assert [path for path, _ in walk_lines((GATE,))] == [
        "release_gate",
        "release_gate/safety",
        "release_gate/says_sorry",
    ]

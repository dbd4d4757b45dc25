"""Metrics and final evaluations of result files: read whole where they have our form, else left alone."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from runs.formats.results_reading import read_results
from runs.formats.results_writing import EvaluatorLine, ResultLine, write_results

METRIC = {"key": "tone", "name": "Tone", "weight": 1, "score": 4, "justification": "kind"}
OVERALL = {"score": 8, "evidence": ["so"]}
DOCUMENT = {
    "deterministic_dimensions": {"task": 10},
    "judge_dimensions": {"task": 7.5},
    "judge_overall": OVERALL,
    "final_dimensions": {"task": 7.5},
    "final_score": 8,
    "summary": {"deterministic_passed_checks": 1},
}
BAD_NUMBERS: list[Any] = [-1, 1e300, 10**30, "4", None, True]


def read(evaluator: dict[str, Any], **line: Any) -> EvaluatorLine:
    whole = {"eval_id": "C-1", "score": 0.8, "evaluator_results": [evaluator], **line}
    [found] = read_results(json.dumps(whole).encode()).results
    return found.result.evaluators[0]


def metrics(**changed: Any) -> EvaluatorLine:
    judge = {"name": "m", "type": "metrics_judge", "score": 0.8}
    return read({**judge, "metrics": [METRIC, {**METRIC, "key": "other", **changed}]})


def hybrid(**changed: Any) -> EvaluatorLine:
    judge = {"name": "h", "type": "hybrid_judge", "score": 0.8}
    return read(judge, final_evaluation={**DOCUMENT, **changed})


def test_metrics_are_read_with_their_labels() -> None:
    first, second = metrics(binary=True, score=0).metrics

    assert (first["score"], first["label"], first["justification"]) == (4, "good", "kind")
    assert (second["binary"], second["label"]) == (True, "fail")


@pytest.mark.parametrize(
    "changed",
    [
        *({"score": number} for number in BAD_NUMBERS),
        *({"weight": number} for number in BAD_NUMBERS),
        *({"key": key} for key in ("", 5, None, "k" * 101)),
        *[{"name": []}, {"tier": {}}, {"binary": "no"}, {"justification": 3}],
    ],
)
def test_one_metric_of_another_form_leaves_them_all_and_the_score_stands(
    changed: dict[str, Any],
) -> None:
    found = metrics(**changed)

    assert (found.metrics, found.score) == ((), 0.8)


def test_a_final_evaluation_goes_to_the_hybrid_judge() -> None:
    found = hybrid().final_evaluation

    assert found is not None
    assert found["judge_overall"] == OVERALL
    assert found["final_dimensions"] == {"task": 7.5}
    assert found["summary"]["deterministic_passed_checks"] == 1
    judge = {"name": "j", "type": "llm_judge", "score": 0.8}
    assert read(judge, final_evaluation=DOCUMENT).final_evaluation is None


@pytest.mark.parametrize("is_camel", [False, True])
def test_every_hybrid_judge_comes_back_with_its_own_final_evaluation(is_camel: bool) -> None:
    first = hybrid().final_evaluation
    assert first is not None
    second = {**first, "final_dimensions": {"own_one": 2.0}, "final_score": 2.0}
    judges = tuple(
        EvaluatorLine(name, "hybrid_judge", "scored", 0.8, final_evaluation=evaluation)
        for name, evaluation in (("a", first), ("b", second))
    )
    silent = EvaluatorLine("c", "hybrid_judge", "unscored")
    line = ResultLine("s", 1, "t", "C-1", 1, "scored", score=0.8, evaluators=(*judges, silent))

    [written] = write_results([line], is_camel=is_camel)
    [found] = read_results(written.encode()).results
    assert [one.final_evaluation for one in found.result.evaluators] == [first, second, None]


@pytest.mark.parametrize(
    "changed",
    [
        *({"final_dimensions": {"task": number}} for number in BAD_NUMBERS),
        *({"judge_overall": {"score": number}} for number in BAD_NUMBERS),
        *[{"judge_overall": None}, {"judge_dimensions": []}, {"deterministic_dimensions": "10"}],
        *[{"final_score": 11}, {"final_dimensions": {"k" * 101: 1}}],
    ],
)
def test_a_final_evaluation_of_another_form_is_left_alone(changed: dict[str, Any]) -> None:
    found = hybrid(**changed)

    assert (found.final_evaluation, found.score) == (None, 0.8)


VOTE = {"judge": "A", "model": "m", "bracket": "Good", "score": 60, "reasons": "so"}


def rounds(*votes: Any, **changed: Any) -> Any:
    held = [{"breaksTie": True, "votes": list(votes), **changed}]
    return read({"name": "p", "type": "deliberation", "score": 0.63, "rounds": held}).rounds


def test_every_vote_of_a_deliberation_is_read_those_without_a_bracket_too() -> None:
    lost = {"judge": "B", "agent": "desk", "bracket": "", "problem": "no answer", "stage": "judge"}
    [held] = rounds(VOTE, lost)

    assert (held["number"], held["breaks_tie"]) == (1, True)
    first, second = held["votes"]
    assert (first["bracket"], first["score"], first["reasons"]) == ("Good", 60, "so")
    assert (second["bracket"], second["score"], second["problem"]) == ("", None, "no answer")
    assert (first["agent"], second["agent"]) == ("", "desk")


@pytest.mark.parametrize(
    "changed",
    [
        *({"score": number} for number in BAD_NUMBERS if number is not None),
        *[{"score": 101}, {"bracket": "Superb"}, {"judge": ""}, {"model": "m" * 101}],
    ],
)
def test_one_vote_of_another_form_leaves_them_all_and_the_score_stands(
    changed: dict[str, Any],
) -> None:
    assert rounds(VOTE, {**VOTE, **changed}) == ()


def test_rounds_of_another_form_are_left_alone() -> None:
    assert [rounds(5), rounds(), rounds(VOTE, votes="A")] == [(), (), ()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"raw_score": 80, "scale": 100}, (80, 100)),
        ({"raw_score": 80}, (None, 1)),
        ({"raw_score": 101, "scale": 100}, (None, 1)),
        ({"raw_score": 0, "scale": 0}, (None, 1)),
    ],
)
def test_a_raw_score_needs_its_scale(values: dict[str, Any], expected: tuple[Any, Any]) -> None:
    found = read({"name": "m", "type": "script", "score": 0.8, **values})

    assert (found.raw_score, found.scale) == expected


def test_a_file_of_one_document_is_held_once_beside_its_text() -> None:
    lines = [{"id": f"a{n}", "verdict": "pass", "output": "x" * 1_000_000} for n in range(5)]
    content = json.dumps(lines).encode()
    tracemalloc.start()
    assert len(read_results(content).results) == len(lines)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2.5 * len(content)


def test_numbers_that_are_kept_are_plain() -> None:
    line = {"id": "a", "verdict": "pass", "metadata": {"x": [0.5]}, "messages": [{"t": 0.5}]}
    [read] = read_results(json.dumps(line).encode()).results
    assert type(read.metadata["x"][0]) is type(read.messages[0]["t"]) is float

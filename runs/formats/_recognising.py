"""Tell what files of the same ending hold: cases, outputs that were recorded, or results of a run."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

from evaluators.kinds import normal_spelling
from runs.formats._json_lines import UnreadableLineError, lines_of, read_object
from runs.formats._problems import Problem

YAML_SUFFIXES = (".yaml", ".yml")
LINES_SUFFIXES = (".jsonl", ".ndjson")
CASES_KEYS = {"tests", "cases", "evalcases", "eval_cases"}
EVALUATOR_KEYS = {"evaluators", "assertions", "assert"}
INPUT_KEYS = {"input", "input_messages"}
ID_KEYS = {"id", "key", "case_id", "eval_id", "test_id"}
OUTPUT_KEYS = {"output", "messages"}
RESULT_KEYS = {
    "hits", "misses", "verdict", "candidate_answer", "answer", "evaluator_results", "scores",
    "timestamp", "decided_by",
}  # fmt: skip
MOST_LINES_READ = 20


class Form(StrEnum):
    """What a file of JSON Lines holds."""

    CASES = "cases"
    OUTPUTS = "recorded outputs"
    RESULTS = "results of a run"
    OTHER = "something else"


# One line with an input makes a file of cases, be the input of another forgotten.
TELLING = (Form.RESULTS, Form.CASES, Form.OUTPUTS)
REMEDIES = {
    Form.CASES: "give it as the suite file",
    Form.OUTPUTS: "give it as recorded outputs, with the name of the target that gave them",
    Form.RESULTS: "import it as the results of a run, in the browser or with evalsite import_results",
    Form.OTHER: "a case has an id and an input, a recorded output an id and an output",
}


def form_of_lines(content: bytes) -> Form:
    """Return what JSON Lines hold, by the first lines that tell."""
    found: set[Form] = set()
    for _, raw in lines_of(b"\n".join(content.split(b"\n", MOST_LINES_READ)[:MOST_LINES_READ])):
        with suppress(UnreadableLineError):
            found.add(_form_of({normal_spelling(key) for key in read_object(raw)}))
    return next((form for form in TELLING if form in found), Form.OTHER)


def is_meant_as_suite(value: Any) -> bool:
    """Tell whether the values of a YAML file are a suite's, be it one without cases."""
    keys = _keys(value)
    inner = _keys(value["execution"]) if "execution" in keys else set()
    return bool((keys | inner) & (CASES_KEYS | EVALUATOR_KEYS))


def misplaced(content: bytes, file: str, wanted: Form) -> Problem | None:
    """Return the problem of a file that holds something else than wanted and can be told so; else None."""
    form = form_of_lines(content)
    if form in (wanted, Form.OTHER):
        return None
    return Problem(f"the file holds {form}, not {wanted}; {REMEDIES[form]}", file)


def _form_of(keys: set[str]) -> Form:
    if "score" in keys and keys & RESULT_KEYS:
        return Form.RESULTS
    if keys & INPUT_KEYS:
        return Form.CASES
    if keys & ID_KEYS and keys & OUTPUT_KEYS:
        return Form.OUTPUTS
    return Form.OTHER


def _keys(value: Any) -> set[str]:
    return {normal_spelling(str(key)) for key in value} if isinstance(value, dict) else set()

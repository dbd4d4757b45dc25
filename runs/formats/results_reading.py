"""Results in JSON Lines, of Evalsite itself and of AgentV, in snake_case or camelCase."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from evaluators.scoring.types import OutcomeResult, Usage
from runs.engine.plan import OUTCOMES_PATH
from runs.formats.lines import UnreadableLineError, lines_of, read_object
from runs.formats.results_scores import (
    FileLine,
    ResultFields,
    read_evaluators,
    with_final_evaluation,
)
from runs.formats.results_writing import ResultLine
from runs.specs.problems import Problem, UnreadableFileError

LABEL = "JSON Lines of results"
MAX_PROBLEMS = 100
MAX_KEY_LENGTH, MAX_TARGET_LENGTH = 200, 120
ID = ("eval_id", "test_id", "case_id", "id")
EVALUATORS = ("evaluator_results", "scores", "evaluators")
ANSWER = ("output", "candidate_answer", "answer", "agent_output", "response")
OUTCOMES = ("expected_outcome_results", "outcomes")
TRIALS = ("trials", "attempts")
VERDICTS = ("pass", "borderline", "fail")
NOT_CARRIED_OUT = ("pending", "running", "cancelled", "skipped")
ERRORED = ("error", "errored", "execution_error")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """One execution of a file: what came of it, and what the line says of its case.

    `repetition` of the result is 0 where the line does not number it.
    """

    result: ResultLine
    line: int
    input: tuple[Mapping[str, str], ...] = ()
    expected_output: str = ""
    criteria: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReadResults:
    """The executions of a file in their order; `notes` say what was left out."""

    results: tuple[ReadResult, ...]
    notes: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Reading:
    file: str
    found: list[ReadResult] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_results(content: bytes, *, file: str = "results.jsonl") -> ReadResults:
    """Return the results of a file, blank lines left out.

    Scores go from 0 to 1. An errored execution has no score, whatever the line says; executions that
    were never carried out are left out. Raises UnreadableFileError with line and reason for every
    line that holds no result.
    """
    reading = _Reading(file)
    for number, raw in lines_of(content):
        place = FileLine(file, number, reading.problems)
        try:
            values = read_object(raw)
        except UnreadableLineError as error:
            place.refuse(str(error))
            continue
        _read_line(reading, place, ResultFields(values, place), number)
        if len(reading.problems) >= MAX_PROBLEMS:
            break
    if not reading.found and not reading.problems:
        reading.problems.append(Problem("the file holds no results", file))
    if reading.problems:
        raise UnreadableFileError(reading.problems[:MAX_PROBLEMS])
    return ReadResults(tuple(reading.found), tuple(_notes(reading)))


def _notes(reading: _Reading) -> Iterator[Problem]:
    if reading.left_out:
        count = len(reading.left_out)
        said = f"{count} {'execution was' if count == 1 else 'executions were'} never carried out"
        yield Problem(f"{said} and left out", reading.file, reading.left_out[0])


def _read_line(reading: _Reading, place: FileLine, fields: ResultFields, number: int) -> None:
    key = fields.key(ID, MAX_KEY_LENGTH)
    if not key:
        place.refuse("the line has no id of a case (eval_id)")
        return
    place.case = key
    if fields.text("status").lower() in NOT_CARRIED_OUT:
        reading.left_out.append(number)
        return
    shared = ReadResult(
        result=_result(fields, place, key),
        line=number,
        input=fields.turns(("input", "input_messages", "question")),
        expected_output=fields.text("expected_output", "reference_answer"),
        criteria=fields.text("criteria", "expected_outcome"),
        finished_at=_moment(fields.text("timestamp", "finished_at", "end_time")),
    )
    reading.found += _each_trial(shared, fields, place)


def _each_trial(shared: ReadResult, fields: ResultFields, place: FileLine) -> Iterator[ReadResult]:
    """Yield one result for each trial the line tells of, or the line's own."""
    trials = fields.objects(TRIALS)
    if len(trials) < 2:
        yield shared
        return
    for number, trial in enumerate(trials, 1):
        own = _result(ResultFields(trial, place), place, shared.result.eval_id)
        suite, target = shared.result.suite, shared.result.target
        own = replace(own, repetition=number, suite=suite, target=target)
        yield replace(shared, result=own)


def _result(fields: ResultFields, place: FileLine, key: str) -> ResultLine:
    error, is_error = fields.error(), False
    status = fields.text("status", "execution_status").lower()
    if error or status in ERRORED:
        is_error, error = True, error or "the file says no more than that it is errored"
    score = None if is_error else fields.score("score", "the result")
    verdict = "" if is_error else _verdict(fields, place)
    if not (is_error or verdict) and fields.value("score", "verdict") is None:
        place.refuse("the line has no score, no verdict and no error")
    evaluators = read_evaluators(fields, place, EVALUATORS, overall=score)
    evaluators = with_final_evaluation(evaluators, fields)
    return ResultLine(
        suite=fields.text("suite", "dataset", "eval_set"),
        run=0,
        target=fields.text("target")[:MAX_TARGET_LENGTH],
        eval_id=key,
        repetition=fields.count("repetition") or 0,
        status="error" if is_error else "scored",
        score=score,
        verdict=verdict,
        decided_by=fields.text("decided_by"),
        evaluators=tuple(one for one in evaluators if one.name != OUTCOMES_PATH),
        outcomes_judge=next((one for one in evaluators if one.name == OUTCOMES_PATH), None),
        outcomes=_outcomes(fields),
        error=error,
        error_stage=fields.text("error_stage"),
        warnings=fields.texts("warnings"),
        output=_answer(fields),
        usage=_usage(fields),
        run_cost_usd=fields.dollars("run_cost_usd", "cost_usd")
        or _traced(fields).dollars("cost_usd"),
        evaluation_cost_usd=fields.dollars("evaluation_cost_usd"),
    )


def _verdict(fields: ResultFields, place: FileLine) -> str:
    word = fields.text("verdict").lower()
    if word and word not in VERDICTS:
        place.refuse(f"verdict: {word!r} is none of {', '.join(VERDICTS)}")
        return ""
    return word


def _answer(fields: ResultFields) -> str | None:
    """Return the text of the answer; of messages the last of the assistant."""
    value = fields.value(*ANSWER)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        said = [turn for turn in fields.turns(ANSWER) if turn["role"] == "assistant"]
        return said[-1]["content"] if said else ""
    return json.dumps(value, ensure_ascii=False)


def _traced(fields: ResultFields) -> ResultFields:
    """Return the figures that an older generation keeps in a block of their own."""
    return fields.inner("trace_summary", "trace")


def _usage(fields: ResultFields) -> Usage:
    own, traced = fields.usage(), _traced(fields).usage()
    return Usage(
        input_tokens=_first(own.input_tokens, traced.input_tokens),
        output_tokens=_first(own.output_tokens, traced.output_tokens),
        latency_ms=_first(own.latency_ms, traced.latency_ms),
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _outcomes(fields: ResultFields) -> tuple[OutcomeResult, ...]:
    return tuple(
        OutcomeResult(one.text("text"), one.flag("passed"), one.text("justification"))
        for one in (ResultFields(value, fields.place) for value in fields.objects(OUTCOMES))
    )


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None

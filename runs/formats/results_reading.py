"""Read results in JSON Lines, from Evalsite and from AgentV, in snake_case or camelCase, with every evaluator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from evaluators.kinds._judging import keep_findings
from evaluators.reading.json import TooManyValuesError, read_json
from evaluators.scoring.hybrid import SCALE
from evaluators.scoring.numbers import rounded
from evaluators.scoring.tree import MAX_EVALUATORS
from evaluators.scoring.types import OutcomeResult, Usage
from runs.engine.plan import OUTCOMES_PATH
from runs.formats.lines import (
    MAX_HELD_BYTES,
    MAX_LINE_BYTES,
    UnreadableLineError,
    held_bytes,
    numbered_lines,
    read_object,
    whole_text,
    with_plain_numbers,
)
from runs.formats.result_evaluators import (
    FileLine,
    ResultFields,
    is_number,
    read_evaluators,
    with_final_evaluation,
)
from runs.formats.results_writing import EXTERNAL, ResultLine, review_sentence, walk_lines
from runs.formats.tools import recognise
from runs.formats.tools._base import MAX_RESULT_VALUES, open_file
from runs.specs.external_scores import MAX_NAMES, GivenScore
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import MAX_CASE_TAG_LENGTH, too_many

MAX_PROBLEMS = 100
# 200,000 results of 25 bytes each took 1.9 GB until they were stored.
MAX_RESULTS = 100_000
# In memory, of one.
MAX_RESULT_BYTES = 4 * MAX_LINE_BYTES
MAX_KEY_LENGTH, MAX_TARGET_LENGTH, MAX_TITLE_LENGTH = 200, 120, 300
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
    """One execution from a file: its result, its conversation, and what the line contains of its case.

    The result's `repetition` is 0 if the line has no number.
    """

    result: ResultLine
    line: int
    messages: tuple[Mapping[str, Any], ...] = ()
    input: tuple[Mapping[str, str], ...] = ()
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expected_output: str = ""
    criteria: str = ""
    finished_at: datetime | None = None
    external_scores: tuple[GivenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadResults:
    """The executions of a file in order; `notes` name what was left out."""

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

    Scores are 0 to 1. An errored execution has no score, even if the line has one; executions that never ran
    are left out. Raises UnreadableFileError with line and reason for every line without a result, and for a
    file that is too much for the memory.
    """
    reading, held = _Reading(file), 0
    rows, notes = _rows(content, file)
    for number, raw in rows:
        place = FileLine(file, number, reading.problems)
        try:
            values = read_object(raw) if isinstance(raw, bytes) else raw
        except UnreadableLineError as error:
            place.refuse(str(error))
            continue
        fields, taken = ResultFields(values, place), held_bytes(values)
        held += taken
        if taken > MAX_RESULT_BYTES:
            place.case = fields.key(ID, MAX_KEY_LENGTH)
            size = f"{MAX_RESULT_BYTES // 1024**2} MB in memory"
            place.refuse(f"the result takes more than {size}; shorten its texts")
        else:
            _read_line(reading, place, fields, number)
        if len(reading.found) > MAX_RESULTS or held > MAX_HELD_BYTES:
            size = f"{MAX_RESULTS:,} results or {MAX_HELD_BYTES // 1024**2} MB in memory"
            place.refuse(f"the file has more than {size}; split it into several")
            break
        if len(reading.problems) >= MAX_PROBLEMS:
            break
    names = {score.full_name for entry in reading.found for score in entry.external_scores}
    if len(names) > MAX_NAMES:
        message = f"the file has {len(names)} different external scores; {MAX_NAMES} is the limit of a run"
        reading.problems.append(Problem(message, file))
    if not reading.found and not reading.problems:
        reading.problems.append(Problem("the file contains no results; write one per line", file))
    if reading.problems:
        raise UnreadableFileError(reading.problems[:MAX_PROBLEMS])
    return ReadResults(tuple(reading.found), (*notes, *_notes(reading)))


Rows = Iterable[tuple[int, bytes | Mapping[str, Any]]]


def _rows(content: bytes, file: str) -> tuple[Rows, tuple[Problem, ...]]:
    """Return the lines of a file of ours, or what a file of another tool says as such lines, with notes."""
    opened = open_file(file, content)
    tool = recognise(opened) if opened else None
    if opened and opened.table and not tool:
        message = "the table is of no tool whose results are known here; write each result as a line of JSON"
        raise UnreadableFileError([Problem(message, file)])
    if not opened or not tool:
        # It is read again, strictly, and the values of both would not fit into the memory.
        opened = None
        whole = _whole_document(content, file)
        return numbered_lines(content) if whole is None else whole, ()
    if tool.read_results is None:
        remedy = tool.refusal or "it contains cases; import it as a suite"
        raise UnreadableFileError([Problem(f"the file is {tool.label}: {remedy}", file)])
    rows, notes = tool.results(opened)
    return rows, tuple(Problem(note, file) for note in (f"read as {tool.label}", *notes))


def _whole_document(content: bytes, file: str) -> Rows | None:
    """Return the results of a file that is one JSON document over several lines, None for JSON Lines.

    The document is one result or a list of them. Raises UnreadableFileError for any other.
    """
    first, *others = [raw for _, raw in islice(numbered_lines(content), 2)] or [b""]
    try:
        read_object(first)
    except UnreadableLineError:
        pass
    else:
        return None
    is_lines = bool(others) and first.strip() != b"{" and not first.lstrip().startswith(b"[")
    # One line may be the whole file.
    del first, others
    try:
        document = read_json(whole_text(content, file), max_values=MAX_RESULT_VALUES)
    except TooManyValuesError as error:
        # Lines of JSON, of which the first is damaged, are refused by themselves.
        if is_lines:
            return None
        message = (
            f"the file is one JSON document, and {error}; write each result on a line of its own"
        )
        raise UnreadableFileError([Problem(message, file)]) from error
    except ValueError:
        return None
    results = document if isinstance(document, list) else [document]
    is_of_results = all(
        isinstance(result, dict) and ResultFields(result, FileLine(file, 0, [])).value(*ID)
        for result in results
    )
    if not is_of_results:
        message = (
            "the file is one JSON document that is no result and no list of results; write each result "
            "as an object with the id of its case (eval_id), one on each line"
        )
        raise UnreadableFileError([Problem(message, file)])
    return [(0, result) for result in results]


def _notes(reading: _Reading) -> Iterator[Problem]:
    if reading.left_out:
        count = len(reading.left_out)
        results = "1 result was" if count == 1 else f"{count} results were"
        message = f"{results} left out, never run"
        yield Problem(message, reading.file, reading.left_out[0])


def _read_line(reading: _Reading, place: FileLine, fields: ResultFields, number: int) -> None:
    key = fields.key(ID, MAX_KEY_LENGTH)
    if not key:
        place.refuse("the line has no id of a case; add it as eval_id")
        return
    place.case = key
    if fields.text("status").lower() in NOT_CARRIED_OUT:
        reading.left_out.append(number)
        return
    shared = ReadResult(
        result=_result(fields, place, key),
        line=number,
        # Numbers that remember how they were written take five times as much, and are counted as plain ones.
        messages=tuple(with_plain_numbers(fields.objects(("messages",)))),
        input=fields.turns(("input", "input_messages", "question")),
        title=fields.text("title")[:MAX_TITLE_LENGTH],
        tags=tuple(tag[:MAX_CASE_TAG_LENGTH] for tag in fields.texts("tags")),
        metadata=with_plain_numbers(fields.inner("metadata").values),
        expected_output=fields.text("expected_output", "reference_answer"),
        criteria=fields.text("criteria", "expected_outcome"),
        finished_at=_moment(fields.text("timestamp", "finished_at", "end_time")),
        external_scores=tuple(_external_scores(fields, place)),
    )
    for name, entries in (("tags", shared.tags), ("input", shared.input)):
        if message := too_many(name, entries):
            place.refuse(f"the case {message}; remove some")
    reading.found += _each_trial(shared, fields, place)


def _external_scores(fields: ResultFields, place: FileLine) -> Iterator[GivenScore]:
    """Yield the scores that other tools gave, as a file of ours has them; one that cannot be is a problem."""
    seen = set()
    for values in fields.objects((EXTERNAL,)):
        own = ResultFields(values, place)
        value, limits = own.value("value"), own.value("range")
        name = f"{EXTERNAL}: {own.text('source')}/{own.text('name')}"
        if not (value is None or is_number(value)):
            place.refuse(f"{name}: the value {value!r} is not a number")
            continue
        if limits is None:
            limits = [0, 1]
        if not (isinstance(limits, list) and [*map(is_number, limits)] == [True, True]):
            place.refuse(f"{name}: the range {limits!r} is not two numbers, such as [1, 5]")
            continue
        score = GivenScore(
            place.case,
            own.text("source"),
            own.text("name"),
            value=value,
            low=limits[0],
            high=limits[1],
            label=own.text("label"),
            reason=own.text("reason"),
        )
        if problem := score.problem():
            place.refuse(f"{name}: {problem}")
        elif score.full_name in seen:
            place.refuse(f"{name} is given twice; leave one out")
        seen.add(score.full_name)
        yield score


def _each_trial(shared: ReadResult, fields: ResultFields, place: FileLine) -> Iterator[ReadResult]:
    """Yield one result for each trial of the line, or the line's own."""
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
        is_error, error = True, error or "the file gives no reason for this error"
    score = None if is_error else fields.score("score", "the result")
    final_score = fields.number("final_score")
    if score is None and not is_error and final_score is not None and final_score <= SCALE:
        score = rounded(final_score / SCALE)
    verdict = "" if is_error else _verdict(fields, place)
    if not (is_error or verdict) and score is None and fields.value("score", "verdict") is None:
        place.refuse("the line has no score, no verdict and no error; add one of them")
    evaluators = read_evaluators(fields, place, EVALUATORS, overall=score)
    evaluators = with_final_evaluation(evaluators, fields)
    warnings, note = keep_findings(fields.texts("warnings"), "warnings")
    in_tree = tuple(evaluator for evaluator in evaluators if evaluator.name != OUTCOMES_PATH)
    size = sum(1 for _ in walk_lines(in_tree))
    if size > MAX_EVALUATORS:
        place.refuse(
            f"the result has {size:,} evaluators, composites included, and {MAX_EVALUATORS} is the limit; remove some"
        )
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
        cause=_cause(fields),
        evaluators=in_tree,
        outcomes_judge=next(
            (evaluator for evaluator in evaluators if evaluator.name == OUTCOMES_PATH), None
        ),
        outcomes=_outcomes(fields),
        error=error,
        error_stage=fields.text("error_stage"),
        warnings=(*warnings, *note),
        output=_answer(fields),
        usage=_usage(fields),
        run_cost_usd=_run_cost(fields),
        evaluation_cost_usd=fields.dollars("evaluation_cost_usd"),
    )


def _verdict(fields: ResultFields, place: FileLine) -> str:
    word = fields.text("verdict").lower()
    if word and word not in VERDICTS:
        place.refuse(
            f"verdict: {word!r} is not a verdict; use {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}"
        )
        return ""
    return word


def _cause(fields: ResultFields) -> str:
    """Return the cause without the decision of reviewers, because reviews are imported from files of their own."""
    cause, reviewed = fields.text("cause"), fields.text("reviewed_verdict")
    for is_counted in (True, False):
        cause = cause.removesuffix(review_sentence(reviewed, is_counted=is_counted)).rstrip()
    return cause


def _answer(fields: ResultFields) -> str | None:
    """Return the text of the answer; from messages, the assistant's last one."""
    value = fields.value(*ANSWER)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        message = [turn for turn in fields.turns(ANSWER) if turn["role"] == "assistant"]
        return message[-1]["content"] if message else ""
    return json.dumps(value, ensure_ascii=False)


def _traced(fields: ResultFields) -> ResultFields:
    """Return the figures that older files keep in a separate block."""
    return fields.inner("trace_summary", "trace")


def _usage(fields: ResultFields) -> Usage:
    own, traced = fields.usage(), _traced(fields).usage()
    return Usage(
        input_tokens=_first(own.input_tokens, traced.input_tokens),
        output_tokens=_first(own.output_tokens, traced.output_tokens),
        latency_ms=_first(own.latency_ms, traced.latency_ms),
    )


def _run_cost(fields: ResultFields) -> Decimal | None:
    """Return the target's cost, None if the line has none; a cost of 0 is one."""
    own = fields.dollars("run_cost_usd", "cost_usd")
    return _traced(fields).dollars("cost_usd") if own is None else own


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _outcomes(fields: ResultFields) -> tuple[OutcomeResult, ...]:
    judged = fields.objects(OUTCOMES)
    if message := too_many("expected_outcomes", judged):
        fields.place.refuse(f"the result {message}; remove some")
        return ()
    return tuple(
        OutcomeResult(item.text("text"), item.flag("passed"), item.text("justification"))
        for item in (ResultFields(value, fields.place) for value in judged)
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None

"""Read results in JSON Lines, from Evalsite and from AgentV, in snake_case or camelCase, with every evaluator."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.kinds import kind_for_spelling, shortest_spelling
from evaluators.kinds._refusals import UnknownKindError, normal_spelling
from evaluators.reading.json import TooManyValuesError, read_json
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.hybrid import SCALE, SCHEMA_VERSION, check_counts
from evaluators.scoring.metrics import HIGHEST, metric_label
from evaluators.scoring.numbers import rounded
from evaluators.scoring.samples import BRACKETS
from evaluators.scoring.tree import COMPOSITE, MAX_PATH_LENGTH
from evaluators.scoring.types import Finding, OutcomeResult, Usage
from runs.engine.plan import OUTCOMES_PATH
from runs.formats.lines import UnreadableLineError, numbered_lines, read_object
from runs.formats.results_writing import EXTERNAL, EvaluatorLine, ResultLine, review_sentence
from runs.formats.tools import recognise
from runs.formats.tools._base import FreeNames, open_file
from runs.specs.external_scores import MAX_NAMES, GivenScore
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import MAX_CASE_TAG_LENGTH
from runs.target_kinds._outputs import MAX_COUNT, MAX_USD


@dataclass(slots=True)
class FileLine:
    """A line of a file, and the list that collects its problems."""

    file: str
    line: int
    problems: list[Problem]
    case: str = ""

    def refuse(self, message: str) -> None:
        """Note what keeps the line from being used."""
        self.problems.append(Problem(message, self.file, self.line, self.case))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(slots=True)
class ResultFields:
    """The values of one object by key; each reader takes several names and uses the first that is present.

    A value of the wrong type is a problem where it matters (scores, costs); elsewhere it is read as missing,
    because other tools store much that Evalsite does not need.
    """

    values: Mapping[str, Any]
    place: FileLine
    _known: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Normalize the keys."""
        self._known = {normal_spelling(key): value for key, value in self.values.items()}

    def value(self, *names: str) -> Any:
        """Return the first value that is present, None without one."""
        values = (self._known[name] for name in names if self._known.get(name) is not None)
        return next(values, None)

    def text(self, *names: str) -> str:
        """Return a text, "" for anything else."""
        value = self.value(*names)
        return value if isinstance(value, str) else ""

    def key(self, names: Sequence[str], longest: int) -> str:
        """Return the id of a case; a number becomes text."""
        value = self.value(*names)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        if len(str(value)) > longest:
            self.place.refuse(f"the id is longer than {longest} characters; shorten it")
        return str(value)[:longest]

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        value = self.value(*names)
        return (
            tuple(part for part in value if isinstance(part, str))
            if isinstance(value, list)
            else ()
        )

    def objects(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the objects of a list."""
        value = self.value(*names)
        return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []

    def inner(self, *names: str) -> ResultFields:
        """Return the fields of an inner object, or of an empty one."""
        value = self.value(*names)
        return ResultFields(value if isinstance(value, dict) else {}, self.place)

    def flag(self, *names: str) -> bool:
        """Return whether a value is true."""
        return self.value(*names) is True

    def error(self) -> str:
        """Return the error message, "" without an error."""
        value = self.value("error", "execution_error")
        if isinstance(value, dict):
            return ResultFields(value, self.place).text("message", "reason", "error") or str(value)
        return value if isinstance(value, str) else ""

    def score(self, name: str, owner: str) -> float | None:
        """Return a score of 0 to 1, None without one; anything else is a problem."""
        value = self.value(name)
        if value is None:
            return None
        if not _is_number(value) or not 0 <= value <= 1:
            self.place.refuse(f"{owner}: the score {value!r} is not a number from 0 to 1")
            return None
        return float(value)

    def number(self, *names: str) -> float | None:
        """Return a finite number of 0 or more, None for anything else."""
        value = self.value(*names)
        return float(value) if _is_number(value) and math.isfinite(value) and value >= 0 else None

    def count(self, *names: str) -> int | None:
        """Return a whole number of 0 or more that columns can hold, None for anything else."""
        value = self.number(*names)
        return None if value is None or value > MAX_COUNT else round(value)

    def dollars(self, *names: str) -> Decimal | None:
        """Return an amount, None without one; an impossible amount is a problem."""
        value = self.value(*names)
        if value is None or isinstance(value, bool | list | dict):
            return None
        try:
            usd = Decimal(str(value))
        except InvalidOperation:
            usd = Decimal("NaN")
        if not usd.is_finite() or not 0 <= usd <= MAX_USD:
            message = f"{names[0]}: {value!r} is not an amount of 0 to {MAX_USD} dollars"
            self.place.refuse(message)
            return None
        return usd

    def usage(self) -> Usage:
        """Return tokens, time and cost, each None if missing."""
        tokens = self.inner("usage", "token_usage")
        return Usage(
            input_tokens=tokens.count("input_tokens", "input", "prompt_tokens"),
            output_tokens=tokens.count("output_tokens", "output", "completion_tokens"),
            cost_usd=self.dollars("cost_usd"),
            latency_ms=self.count("latency_ms", "duration_ms"),
        )

    def turns(self, names: Sequence[str]) -> tuple[Mapping[str, str], ...]:
        """Return a text as one user turn, or messages with their texts only."""
        value = self.value(*names)
        if isinstance(value, str):
            return ({"role": "user", "content": value},) if value else ()
        turns = []
        for part in self.objects(names):
            turn = ResultFields(part, self.place)
            role, content = turn.text("role"), turn.value("content", "value")
            if isinstance(content, list):
                blocks = (ResultFields(block, self.place) for block in turn.objects(("content",)))
                content = "\n".join(block.text("text", "value") for block in blocks)
            if role and isinstance(content, str):
                turns.append({"role": role, "content": content})
        return tuple(turns)


MAX_PARTS = 100
MAX_PART_NAME_LENGTH = 100
HUNDRED = 100
BRACKET_NAMES = {bracket.name for bracket in BRACKETS}
TEXTS = ("key", "name", "tier")
COUNTS = tuple(check_counts((), judge_successes=0, judge_failures=0))


class _OtherFormError(Exception):
    """The value is not in the form that Evalsite writes."""


def read_metrics(fields: ResultFields) -> tuple[Mapping[str, Any], ...]:
    """Return the metrics of an evaluator, scores 0 to 5; none if any of them is unreadable."""
    rows = fields.value("metrics")
    if not isinstance(rows, list) or len(rows) > MAX_PARTS:
        return ()
    try:
        return tuple(_metric(row) for row in rows)
    except _OtherFormError:
        return ()


def read_rounds(fields: ResultFields) -> tuple[Mapping[str, Any], ...]:
    """Return the rounds of a deliberation with every vote; none if any of them is unreadable."""
    rows = fields.value("rounds")
    if not isinstance(rows, list) or len(rows) > MAX_PARTS:
        return ()
    try:
        return tuple(_round(row, number, fields) for number, row in enumerate(rows, start=1))
    except _OtherFormError:
        return ()


def with_final_evaluation(
    evaluators: Sequence[EvaluatorLine], fields: ResultFields
) -> tuple[EvaluatorLine, ...]:
    """Return the evaluators, with the line's final evaluation added to the first hybrid judge."""
    document = fields.value("final_evaluation")
    if not isinstance(document, Mapping):
        if fields.value("final_dimensions") is None:
            return tuple(evaluators)
        document = fields.values
    try:
        evaluation = _evaluation(ResultFields(document, fields.place))
    except _OtherFormError:
        return tuple(evaluators)
    return _given(evaluators, evaluation)[0]


def _given(
    evaluators: Sequence[EvaluatorLine], evaluation: Mapping[str, Any]
) -> tuple[tuple[EvaluatorLine, ...], bool]:
    done, given = False, []
    for evaluator in evaluators:
        own = evaluator
        if not done and evaluator.type == HYBRID_KIND and evaluator.score is not None:
            own, done = replace(evaluator, final_evaluation=evaluation), True
        elif not done and evaluator.children:
            children, done = _given(evaluator.children, evaluation)
            own = replace(evaluator, children=children)
        given.append(own)
    return tuple(given), done


def _metric(row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    texts = {name: _text(row.get(name, "")) for name in TEXTS}
    binary, message = row.get("binary", False), row.get("justification", "")
    if not texts["key"] or not isinstance(binary, bool) or not isinstance(message, str):
        raise _OtherFormError
    score = _number(row.get("score"), HIGHEST)
    return {
        **texts,
        "name": texts["name"] or texts["key"],
        "weight": _number(row.get("weight"), 1),
        "binary": binary,
        "score": score,
        "label": metric_label(score, binary=binary),
        "justification": message,
    }


def _round(row: Any, number: int, fields: ResultFields) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    held = ResultFields(row, fields.place)
    votes = held.value("votes")
    if not isinstance(votes, list) or not 0 < len(votes) <= MAX_PARTS:
        raise _OtherFormError
    return {
        "number": number,
        "breaks_tie": held.flag("breaks_tie"),
        "votes": [_vote(vote, fields) for vote in votes],
    }


def _vote(row: Any, fields: ResultFields) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    message = ResultFields(row, fields.place)
    names = {name: _text(message.text(name)) for name in ("judge", "slug", "agent", "model")}
    stage = _text(message.text("stage"))
    bracket, score = message.text("bracket"), message.value("score")
    if not names["judge"] or (bracket and bracket not in BRACKET_NAMES):
        raise _OtherFormError
    return {
        **names,
        "bracket": bracket,
        "score": None if score is None else _number(score, HUNDRED),
        "reasons": message.text("reasons"),
        "problem": message.text("problem"),
        **({"stage": stage} if stage else {}),
    }


def _evaluation(fields: ResultFields) -> dict[str, Any]:
    overall = fields.inner("judge_overall")
    score = fields.value("final_score")
    counts = fields.inner("summary")
    checked = fields.value("deterministic_dimensions")
    if isinstance(checked, Mapping):
        # A dimension without checks has no score there.
        checked = {name: score for name, score in checked.items() if score is not None}
    deterministic = _dimensions(checked)
    judged, final = (
        _dimensions(fields.value(name)) for name in ("judge_dimensions", "final_dimensions")
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "deterministic_dimensions": deterministic,
        "judge_dimensions": judged,
        "judge_overall": {
            "score": _number(overall.value("score"), SCALE),
            "evidence": list(overall.texts("evidence")),
        },
        "final_dimensions": final,
        "final_score": None if score is None else _number(score, SCALE),
        "summary": {name: counts.count(name) or 0 for name in COUNTS},
        "warnings": list(fields.texts("warnings")),
    }


def _dimensions(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or len(value) > MAX_PARTS:
        raise _OtherFormError
    return {_text(name): _number(score, SCALE) for name, score in value.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_PART_NAME_LENGTH:
        raise _OtherFormError
    return value


def _number(value: Any, most: float) -> float:
    if not _is_number(value) or not 0 <= value <= most:
        raise _OtherFormError
    return float(value)


OVERALL = "overall"
MAX_NAME_LENGTH, MAX_KIND_LENGTH = 100, 50
MAX_WEIGHT, MAX_SCALE = 1e9, 1e9
STATES = {"skipped": "skipped", "unscored": "unscored", "error": "unscored"}


def read_evaluators(
    fields: ResultFields, place: FileLine, names: Sequence[str], *, overall: float | None
) -> tuple[EvaluatorLine, ...]:
    """Return the evaluators' results, siblings with different names; problems are noted.

    A result without evaluators gets one that has the result's own score.
    """
    read = _listed(fields, place, names, depth=0)
    if read or overall is None:
        return read
    is_hybrid = fields.value("final_dimensions") is not None
    message = EvaluatorLine(
        name=HYBRID_KIND if is_hybrid else OVERALL,
        type=HYBRID_KIND if is_hybrid else "score",
        status="scored",
        score=overall,
        findings=tuple(_findings(fields)),
        reasoning=fields.text("reasoning"),
    )
    return (message,)


def _listed(
    fields: ResultFields, place: FileLine, names: Sequence[str], *, depth: int
) -> tuple[EvaluatorLine, ...]:
    given = fields.value(*names)
    if isinstance(given, dict):
        given = [{"name": name, "score": score} for name, score in given.items()]
    items = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
    free, evaluators = FreeNames(), []
    for item in items:
        evaluator = _evaluator(ResultFields(item, place), place, names, depth=depth)
        name = free.take(evaluator.name, longest=MAX_NAME_LENGTH - 6)
        evaluators.append(replace(evaluator, name=name))
    return tuple(evaluators)


def _evaluator(
    fields: ResultFields, place: FileLine, names: Sequence[str], *, depth: int
) -> EvaluatorLine:
    spelling = fields.text("type", "kind")
    name = _name(fields.text("name") or normal_spelling(spelling) or "evaluator")
    if depth > MAX_PATH_LENGTH:
        place.refuse(f"evaluator {name}: nested too deeply; give its evaluators fewer levels")
        return EvaluatorLine(name, "score", "unscored")
    children = _listed(fields, place, names, depth=depth + len(name) + 1)
    aggregator = fields.value("aggregator")
    if isinstance(aggregator, str):
        aggregator = {"type": aggregator}
    score = fields.score("score", f"evaluator {name}")
    weight = fields.number("weight")
    if weight is not None and weight > MAX_WEIGHT:
        place.refuse(
            f"evaluator {name}: the weight {weight!r} is too large; the limit is {MAX_WEIGHT:,}"
        )
    is_negated = fields.flag("negate")
    is_composite = bool(children) or isinstance(aggregator, dict)
    raw_score, scale = _on_its_scale(fields)
    kind, message = _kind(spelling)
    return EvaluatorLine(
        name=name,
        type=COMPOSITE if is_composite else kind,
        status=_status(fields, score),
        score=score,
        weight=1.0 if weight is None else weight,
        is_negated=is_negated,
        findings=tuple(_findings(fields)),
        reasoning=fields.text("reasoning") or fields.error(),
        usage=fields.usage(),
        aggregator=_normal(aggregator) if is_composite else None,
        children=children,
        raw_score=raw_score,
        scale=scale,
        metrics=() if is_composite else read_metrics(fields),
        rounds=() if is_composite else read_rounds(fields),
        spelling="" if is_composite else message,
    )


def _on_its_scale(fields: ResultFields) -> tuple[float | None, float]:
    """Return the score on its own scale, and that scale; (None, 1) if either is missing."""
    raw_score, scale = fields.number("raw_score"), fields.number("scale")
    if raw_score is None or not scale or not raw_score <= scale <= MAX_SCALE:
        return None, 1.0
    return raw_score, scale


def _status(fields: ResultFields, score: float | None) -> str:
    state = STATES.get(fields.text("status").lower(), "")
    if state == "skipped":
        return state
    return "unscored" if score is None or state else "scored"


def _kind(spelling: str) -> tuple[str, str]:
    """Return the kind for a type name, or the name itself if no kind knows it, and the name's spelling.

    The spelling is "" if it adds nothing to the kind.
    """
    try:
        kind, preset = kind_for_spelling(spelling)
    except UnknownKindError:
        return (normal_spelling(spelling) or "score")[:MAX_KIND_LENGTH], ""
    best, _ = shortest_spelling(kind.name, preset)
    return kind.name, "" if best == kind.name else best


def _normal(aggregator: Any) -> Mapping[str, Any]:
    if not isinstance(aggregator, dict):
        return {}
    settings = {normal_spelling(key): value for key, value in aggregator.items()}
    if isinstance(settings.get("type"), str):
        settings["type"] = normal_spelling(settings["type"])
    return settings


def _name(text: str) -> str:
    """Return a name that can be part of a path; the reserved name of outcomes does not change."""
    if text == OUTCOMES_PATH:
        return text
    return text.replace("/", "-").lstrip("@").strip()[:MAX_NAME_LENGTH] or "evaluator"


def _findings(fields: ResultFields) -> Iterator[Finding]:
    """Yield hits and misses, or assertions with their evidence."""
    given = fields.objects(("assertions", "checks"))
    for entry in (ResultFields(item, fields.place) for item in given):
        if text := entry.text("text", "name", "description"):
            yield Finding(text, entry.flag("passed"), entry.text("evidence", "reasoning"))
    if not given:
        for name, passed in (("hits", True), ("misses", False)):
            yield from (Finding(text, passed) for text in fields.texts(name))


LABEL = "JSON Lines of results"
MAX_PROBLEMS = 100
# Much of nothing takes memory too: 200,000 results of 25 bytes each took 1.9 GB until they were stored.
MAX_RESULTS, MAX_HELD_BYTES = 100_000, 500 * 1024 * 1024
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
        _read_line(reading, place, ResultFields(values, place), number)
        held += _held_bytes(values)
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


def _held_bytes(value: Any) -> int:
    """Return how much memory a value takes; keys of objects are shared."""
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    return sys.getsizeof(value) + sum(map(_held_bytes, parts))


Rows = Iterable[tuple[int, bytes | Mapping[str, Any]]]


def _rows(content: bytes, file: str) -> tuple[Rows, tuple[Problem, ...]]:
    """Return the lines of a file of ours, or what a file of another tool says as such lines, with notes."""
    opened = open_file(file, content)
    tool = recognise(opened) if opened else None
    if opened and opened.table and not tool:
        message = "the table is of no tool whose results are known here; write each result as a line of JSON"
        raise UnreadableFileError([Problem(message, file)])
    if not opened or not tool:
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
    first = next((raw for _, raw in numbered_lines(content)), b"")
    try:
        read_object(first)
    except UnreadableLineError:
        pass
    else:
        return None
    try:
        document = read_json(content.decode("utf-8-sig"))
    except TooManyValuesError as error:
        # Lines of JSON, of which the first is damaged, are refused by themselves.
        if first.strip() != b"{" and not first.lstrip().startswith(b"["):
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
        messages=tuple(fields.objects(("messages",))),
        input=fields.turns(("input", "input_messages", "question")),
        title=fields.text("title")[:MAX_TITLE_LENGTH],
        tags=tuple(tag[:MAX_CASE_TAG_LENGTH] for tag in fields.texts("tags")),
        metadata=fields.inner("metadata").values,
        expected_output=fields.text("expected_output", "reference_answer"),
        criteria=fields.text("criteria", "expected_outcome"),
        finished_at=_moment(fields.text("timestamp", "finished_at", "end_time")),
        external_scores=tuple(_external_scores(fields, place)),
    )
    reading.found += _each_trial(shared, fields, place)


def _external_scores(fields: ResultFields, place: FileLine) -> Iterator[GivenScore]:
    """Yield the scores that other tools gave, as a file of ours has them; one that cannot be is a problem."""
    seen = set()
    for values in fields.objects((EXTERNAL,)):
        own = ResultFields(values, place)
        value, limits = own.value("value"), own.value("range")
        name = f"{EXTERNAL}: {own.text('source')}/{own.text('name')}"
        if not (value is None or _is_number(value)):
            place.refuse(f"{name}: the value {value!r} is not a number")
            continue
        if limits is None:
            limits = [0, 1]
        if not (isinstance(limits, list) and [*map(_is_number, limits)] == [True, True]):
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
        evaluators=tuple(evaluator for evaluator in evaluators if evaluator.name != OUTCOMES_PATH),
        outcomes_judge=next(
            (evaluator for evaluator in evaluators if evaluator.name == OUTCOMES_PATH), None
        ),
        outcomes=_outcomes(fields),
        error=error,
        error_stage=fields.text("error_stage"),
        warnings=fields.texts("warnings"),
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
    return tuple(
        OutcomeResult(item.text("text"), item.flag("passed"), item.text("justification"))
        for item in (ResultFields(value, fields.place) for value in fields.objects(OUTCOMES))
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None

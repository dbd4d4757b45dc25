"""Read the evaluators in a line of results, with the metrics, votes and dimensions that each reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.kinds import kind_for_spelling, shortest_spelling
from evaluators.kinds._refusals import UnknownKindError, normal_spelling
from evaluators.kinds.pairwise import INCONCLUSIVE, SCORES
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.hybrid import SCALE, SCHEMA_VERSION, check_counts
from evaluators.scoring.metrics import HIGHEST, metric_label
from evaluators.scoring.samples import BRACKETS
from evaluators.scoring.tree import COMPOSITE, MAX_PATH_LENGTH
from evaluators.scoring.types import Finding, Usage
from runs.engine.plan import OUTCOMES_PATH, PAIRWISE_KIND
from runs.formats.results_writing import EvaluatorLine
from runs.formats.tools._base import FreeNames
from runs.specs.problems import Problem
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


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number, which true and false are not."""
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
        if not is_number(value) or not 0 <= value <= 1:
            self.place.refuse(f"{owner}: the score {value!r} is not a number from 0 to 1")
            return None
        return float(value)

    def number(self, *names: str) -> float | None:
        """Return a finite number of 0 or more, None for anything else."""
        value = self.value(*names)
        return float(value) if is_number(value) and math.isfinite(value) and value >= 0 else None

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


def read_final_evaluation(fields: ResultFields) -> Mapping[str, Any] | None:
    """Return the final evaluation of a line or of an evaluator; None without one, and for one of another form."""
    document = fields.value("final_evaluation")
    if not isinstance(document, Mapping):
        if fields.value("final_dimensions") is None:
            return None
        document = fields.values
    try:
        return _evaluation(ResultFields(document, fields.place))
    except _OtherFormError:
        return None


def with_final_evaluation(
    evaluators: Sequence[EvaluatorLine], fields: ResultFields
) -> tuple[EvaluatorLine, ...]:
    """Return the evaluators, with the line's final evaluation added to the first hybrid judge unless it has one."""
    evaluation = read_final_evaluation(fields)
    return tuple(evaluators) if evaluation is None else _given(evaluators, evaluation)[0]


def _given(
    evaluators: Sequence[EvaluatorLine], evaluation: Mapping[str, Any]
) -> tuple[tuple[EvaluatorLine, ...], bool]:
    done, given = False, []
    for evaluator in evaluators:
        own = evaluator
        if not done and evaluator.type == HYBRID_KIND and evaluator.score is not None:
            own_evaluation = evaluator.final_evaluation or evaluation
            own, done = replace(evaluator, final_evaluation=own_evaluation), True
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
    if not is_number(value) or not 0 <= value <= most:
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
    pass_mark = fields.number("pass_mark")
    kind, message = _kind(spelling)
    pair_verdict = fields.text("pairwise") if kind == PAIRWISE_KIND else ""
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
        final_evaluation=(
            read_final_evaluation(fields)
            if kind == HYBRID_KIND and score is not None and not is_composite
            else None
        ),
        rounds=() if is_composite else read_rounds(fields),
        spelling="" if is_composite else message,
        pass_mark=pass_mark if pass_mark is not None and pass_mark <= 1 else None,
        pair_verdict=pair_verdict if pair_verdict in (*SCORES, INCONCLUSIVE) else "",
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

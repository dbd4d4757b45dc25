"""The bodies of calls that write, read strictly: a misspelt field is refused, not ignored."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import IO, Annotated, Any, TypeVar

from django import forms
from django.conf import settings
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

from evaluators.models import ENTERED_USD_DIGITS, USD_DECIMALS
from evaluators.reading.json import read_json
from evaluators.scoring.tree import MAX_PATH_LENGTH
from runs.costs import ZERO_BUDGET
from runs.documents import Document
from runs.formats.suite_files import MAX_SLUG_LENGTH
from runs.lists import MAX_INTEGER
from runs.reviews.alignment.planning import MAX_CANDIDATES, USUAL_CANDIDATES
from runs.running.attempts import MAX_REASON_LENGTH
from runs.running.external_scores import MAX_SCORES
from runs.running.measuring import MAX_TIMES, USUAL_RESULTS, USUAL_TIMES
from runs.running.pushing import MAX_PUSHES
from runs.running.services import (
    MAX_CONCURRENCY,
    MAX_NAME_LENGTH,
    MAX_REPETITIONS,
)
from runs.specs.suites import MAX_MINUTES

# Reading and storing takes many times as much memory: up to four bytes a letter, in several copies.
MAX_JSON_BYTES = 8 * 1024 * 1024
MAX_NOTE_LENGTH = 300
MAX_TARGETS = 50
MAX_KEYS = 100_000
MAX_KEY_LENGTH = 200
MAX_ERRORS = 1_000


class BodyTooLarge(APIException):
    """A body has more bytes than are read."""

    status_code = 413


def read_stream(stream: IO[Any], limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE) -> bytes:
    """Return a whole body; raises BodyTooLarge."""
    content: bytes = stream.read(limit + 1)
    if len(content) > limit:
        raise BodyTooLarge(f"The body has more than {limit // 1024**2} MB. Send it in parts.")
    return content


class BodyParser(BaseParser):
    """Reads up to 8 MB of JSON, with the limits of every text from outside."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        """Return the value; raises BodyTooLarge, and ParseError with the position of what is no JSON."""
        try:
            return read_json(read_stream(stream, MAX_JSON_BYTES).decode())
        except ValueError as error:
            raise ParseError(f"The body cannot be read as JSON: {error}.") from None


class Body(Document):
    """What a call that writes takes; another field is refused."""

    model_config = ConfigDict(extra="forbid")


BodyType = TypeVar("BodyType", bound=Body)


class UnusableBodyError(Exception):
    """A body lacks something, or has something wrong; `errors` by JSON pointer."""

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        """Keep the errors."""
        self.errors = errors
        super().__init__("; ".join(errors))


def read_body(body: type[BodyType], data: Any) -> BodyType:
    """Return the body; raises UnusableBodyError that names each wrong place, or counts them if they are many."""
    try:
        return body.model_validate(data)
    except ValidationError as error:
        if (count := error.error_count()) > MAX_ERRORS:
            raise UnusableBodyError({"": [many_errors(count)]}) from None
        errors: dict[str, list[str]] = {}
        details = error.errors(include_url=False)
        for detail in details:
            place = detail["loc"]
            # Without its wrong parts a list may be too short; only they are of interest.
            if detail["type"] == "too_short" and any(
                other["loc"][: len(place)] == place != other["loc"] for other in details
            ):
                continue
            errors.setdefault(pointer(*place), []).append(_message(detail, body))
        raise UnusableBodyError(errors) from None


def many_errors(count: int) -> str:
    """Return the one error of a request that has too many to name each."""
    return f"It has {count:,} errors, too many to name each. Correct some, and send it again."


def pointer(*path: str | int) -> str:
    """Return a path into a body as a JSON pointer (RFC 6901): /targets/0."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{part}" for part in parts)


def form_errors(
    form: forms.BaseForm, places: Mapping[str, tuple[str, ...]]
) -> dict[str, list[str]]:
    """Return the errors of a form by JSON pointer; `places` are those of fields that have another in the body."""
    return {
        pointer(*places.get(name, (name,) * (name != "__all__"))): [str(text) for text in texts]
        for name, texts in form.errors.items()
    }


def _message(detail: ErrorDetails, body: type[Body]) -> str:
    match detail["type"]:
        case "missing":
            return "It is missing."
        case "extra_forbidden":
            known = ", ".join(body.model_fields) if len(detail["loc"]) == 1 else ""
            return f"There is no such field{f'; there are {known}' if known else ''}."
        case "value_error":
            return f"{detail['ctx']['error']}."
        case _:
            return f"{detail['msg'].removeprefix('Input should').strip().capitalize()}."


class NoBody(Body):
    """Nothing."""


def _above_zero(usd: Decimal) -> Decimal:
    if usd <= 0:
        raise ValueError(ZERO_BUDGET.removesuffix("."))
    return usd


Dollars = Annotated[
    Decimal,
    # A number in JSON is a float; its shortest form is what was written.
    BeforeValidator(lambda value: str(value) if isinstance(value, float) else value),
    Field(
        max_digits=ENTERED_USD_DIGITS,
        decimal_places=USD_DECIMALS,
        json_schema_extra={"exclusiveMinimum": 0},
    ),
    AfterValidator(_above_zero),
]
# SQLite takes no larger number.
Id = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH)]


class RulesBody(Body):
    """What one run changes; everything else stays as in the suite."""

    policy: dict[str, Any] = {}
    """Fields of the policy by name, as a run shows them: pass_threshold, score_gate, …"""
    weights: dict[str, Annotated[float, Field(ge=0)]] = {}
    """The weights of evaluators by path."""
    required: dict[str, bool | float] = {}
    """Whether evaluators are required, by path; a number is the score they must reach, 0 to 1."""
    samples: Annotated[int, Field(ge=1)] | None = None
    """How often each judge is asked for a score; null as in the suite. Evaluators that cases define keep their own."""
    metrics: dict[str, dict[str, float | None]] = {}
    """The weights of a metrics judge's metrics, by its path and their keys; null leaves one out."""


class RunChoicesBody(Body):
    """Which runs: one suite against one or more targets."""

    suite: Annotated[str, Field(max_length=MAX_SLUG_LENGTH)]
    """The short name of the suite."""
    targets: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TARGETS)]
    """The names of the targets; several become a campaign."""
    repetitions: Annotated[int, Field(ge=1, le=MAX_REPETITIONS)] = 1
    """How many times each case runs."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    """How many cases run in parallel; null for what target and judge suggest."""
    judge: str | None = None
    """The short name of the language model that judges; null for the suite's."""
    baseline: str | None = None
    """The run whose outputs pairwise evaluators compare the new ones with, suite:number; null for the suite's."""
    cases: Annotated[tuple[Key, ...], Field(max_length=MAX_KEYS)] | None = None
    """The keys of the cases; null for all."""
    tags: tuple[str, ...] | None = None
    """Only cases with one of these tags; null for all."""
    budget_usd: Dollars | None = None
    """What each run may cost, US dollars, for target and judges together; null for no limit."""
    rules: RulesBody = RulesBody()
    """What these runs change: weights, required marks, thresholds."""


class StartRunsBody(RunChoicesBody):
    """The runs to start."""

    version: Annotated[int, Field(ge=1)] | None = None
    """Refuse to start if the suite has another version now; null for any."""
    max_minutes: Annotated[int, Field(ge=1, le=MAX_MINUTES)] | None = None
    """How long workers may work on a run before it is ended; null for the longest time of the suite."""
    note: Annotated[str, Field(max_length=MAX_NOTE_LENGTH)] = ""
    """A note on the runs."""
    campaign: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = ""
    """The name of the campaign that several runs become."""


class JudgeAgainBody(Body):
    """Which stored outputs are judged again, and by what."""

    outputs_of: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TARGETS)]
    """The finished runs of one suite, as suite:number or by id; several become a campaign."""
    version: Annotated[int, Field(ge=1)] | None = None
    """The version of the suite that judges; null for the present one."""
    draft: bool = False
    """Whether your draft of the suite judges."""
    judge: str | None = None
    """The short name of the language model that judges; null for the judge of the run."""
    baseline: str | None = None
    """The run whose outputs pairwise evaluators compare these with, suite:number; null for the same as before."""
    cases: Annotated[tuple[Key, ...], Field(max_length=MAX_KEYS)] | None = None
    """The keys of the cases; null for all."""
    filter: str = ""
    """Only results of cases that match this filter."""
    ask_again: bool = False
    """Whether judges are asked also where their question is the same, to see whether they changed."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    """How many results are judged in parallel; null for what the judge allows."""
    budget_usd: Dollars | None = None
    """What judging each run may cost, US dollars; null for no limit."""
    rules: RulesBody = RulesBody()
    """What these runs change: weights, required marks, thresholds."""


class StartJudgingBody(JudgeAgainBody):
    """The judging to start."""

    max_minutes: Annotated[int, Field(ge=1, le=MAX_MINUTES)] | None = None
    """How long workers may work on a run before it is ended; null for the longest time of the suite."""
    note: Annotated[str, Field(max_length=MAX_NOTE_LENGTH)] = ""
    """A note on the runs; of several it names the campaign too."""


class MeasureJudgeBody(Body):
    """How the judge of a run is measured."""

    results: Annotated[int, Field(ge=1, le=MAX_KEYS)] = USUAL_RESULTS
    """How many results are drawn at random, each with the same probability; all if there are fewer."""
    times: Annotated[int, Field(ge=1, le=MAX_TIMES)] = USUAL_TIMES
    """How many more times each is judged."""
    budget_usd: Dollars | None = None
    """What the measurement may cost, US dollars; null for no limit."""


class AlignBody(Body):
    """How a judge is aligned with people."""

    evaluator: Annotated[str, Field(max_length=MAX_PATH_LENGTH)]
    """The path of the evaluator."""
    writer: Annotated[str, Field(max_length=MAX_SLUG_LENGTH)]
    """The short name of the language model that writes the candidates."""
    candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] = USUAL_CANDIDATES
    """How many it writes; more need clearer evidence."""
    budget_usd: Dollars | None = None
    """What the alignment may cost, US dollars; null for twice the estimate."""


class TakeCandidateBody(Body):
    """Which candidate of an alignment goes into your draft."""

    candidate: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)]
    """Its number."""
    replace: bool = False
    """Whether it replaces other instructions than those with which it was compared."""


class ResumeBody(Body):
    """How a run or an alignment is resumed."""

    budget_usd: Dollars | None = None
    """A new budget, US dollars; null leaves it as it is."""


class RetryBody(ResumeBody):
    """Which results are rerun, and which part of them."""

    which: Annotated[str, Field(pattern="^(errored|failed|all_missing)$")] = "errored"
    """Those that are errored, failed, or all_missing: errored, cancelled or skipped."""
    results: Annotated[tuple[Id, ...], Field(max_length=MAX_KEYS)] | None = None
    """The ids of results instead."""
    keep_output: bool = False
    """Whether the outputs stay and only scoring is repeated."""
    evaluators: tuple[str, ...] | None = None
    """Only these evaluators score again, by path; null for all."""


class ChooseAttemptBody(Body):
    """Which attempt counts."""

    attempt: Id
    """The id of the attempt."""
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON_LENGTH)]
    """Why; it stands in the audit."""


class PushedOutputBody(Document):
    """The output of one case, in the form of a line of recorded outputs, or the error of its agent.

    Further fields are kept as they are.
    """

    model_config = ConfigDict(extra="allow")

    case: Key
    """The key of the case."""
    repetition: Annotated[int, Field(ge=1, le=MAX_REPETITIONS)] = 1
    """Which repetition."""


class ExternalScoreBody(Body):
    """A score that another tool gave one result."""

    case: Key
    """The key of the case."""
    repetition: Annotated[int, Field(ge=1, le=MAX_REPETITIONS)] = 1
    """Which repetition."""
    source: str
    """The tool that gave it, such as ragas; at most 80 characters, without a slash."""
    name: str
    """What it says, such as faithfulness; at most 120 characters."""
    value: Finite | None = None
    """The score; null for a label alone."""
    range: tuple[Finite, Finite] = (0.0, 1.0)
    """The lowest and the highest value there is."""
    label: str = ""
    """A word for it, such as toxic; at most 200 characters."""
    reason: str = ""
    """Why; at most 10,000 characters."""


class PushScoresBody(Body):
    """Scores of other tools for results of a run."""

    scores: Annotated[tuple[ExternalScoreBody, ...], Field(min_length=1, max_length=MAX_SCORES)]
    """The scores, in any order."""


class PushOutputsBody(Body):
    """Outputs for a run that waits for them."""

    outputs: Annotated[tuple[PushedOutputBody, ...], Field(min_length=1, max_length=MAX_PUSHES)]
    """The outputs, in any order."""

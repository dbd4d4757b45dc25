"""Send the case to an agent's own endpoint over HTTP and read its output from the reply.

The body is a JSON document that you write. Its texts may hold variables: `{{input}}` is the user's last
text, `{{conversation}}` all turns as one text, `{{messages}}` the turns as a list of role and content,
`{{case_id}}` the id of the case and `{{metadata.customer.id}}` a value from its metadata. The agent is
never sent what a case expects.

Paths say where the reply holds each part: `choices.0.message.content` enters objects by name and lists by
number, `steps[*].tool` takes one value from every entry of a list, and `["odd.name"]` holds a name with
dots. Without a path for the output, the whole reply is the output, as plain text. If the path of the output
leads nowhere, the reply cannot be read. If any other path leads nowhere, the agent does not report that part.

Tool calls are steps with `name`, `input` and `output`, or calls in the form that model servers send. Files
are `{"report.md": "text"}` or a list of `path` with `content` or `base64`; they become artifacts of the
result.

Secret headers are stored encrypted and never shown again. They are only sent to the address they were entered
for. A header may also name a variable of the server: `Bearer {{EVALSITE_TARGET_SECRET_AGENT}}`.

The timeout covers one case with all its retries. A request is repeated after a 429 or 5xx answer, or when no
connection could be made, and waits for Retry-After if the agent sends it. An agent that charges for failed
requests charges for each of them. Nothing else is repeated. Redirects are not followed. Addresses where cloud
providers hand out credentials are refused under any name; private networks are allowed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator

from evaluators.kinds._base import CaseFacts, Output
from evaluators.kinds._json_paths import PathError
from evaluators.kinds._prompts import (
    VARIABLE,
    VariableError,
    in_braces,
    metadata_value,
    value_text,
    variables_in,
    variables_problem,
)
from evaluators.model_calls.addresses import address_problem
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import AgentFailure, AgentRequest, Header, TargetContext, target_kind
from runs.target_kinds._replies import REPLY, ReplyPaths, read

MAX_FILLED = 16_000_000
MESSAGES = "messages"
NAMES = ("input", "conversation", MESSAGES, "case_id")
EXPECTED = ("expected", "criteria", "outcome", "rubric")


def template_problem(template: Any, place: str = "") -> str:
    """Return what is wrong with the variables of a JSON document and where; "" for nothing."""
    if isinstance(template, str):
        problem = _text_problem(template)
        return f"{place}: {problem}" if problem and place else problem
    if isinstance(template, dict):
        if name := next((name for name in template if variables_in(str(name))), None):
            return f"{place}.{name}: a variable can be in a value, not in a name".lstrip(".")
        parts = [(f"{place}.{name}".lstrip("."), part) for name, part in template.items()]
    elif isinstance(template, list):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(template)]
    else:
        parts = []
    problems = (template_problem(part, part_place) for part_place, part in parts)
    return next(filter(None, problems), "")


def _text_problem(text: str) -> str:
    names = variables_in(text)
    for name in names:
        if name.lower().startswith(EXPECTED):
            return f"{in_braces(name)}: what is expected of a case is never given to the agent"
    if MESSAGES in names and not VARIABLE.fullmatch(text.strip()):
        return '{{messages}} is a list and must be the whole text: "{{messages}}"'
    return variables_problem(text, NAMES)


def refuse_long(template: Any, case: CaseFacts) -> None:
    """Raise VariableError where the variables of a template stand for too much: one can be named again and again."""
    names = Counter(name for text in _texts(template) for name in variables_in(text))
    length = sum(count * len(value_text(_value(name, case))) for name, count in names.items())
    if length > MAX_FILLED:
        raise VariableError(
            f"the request for case {case.key} has more than {MAX_FILLED // 1_000_000} million characters; name its "
            "variables less often"
        )


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, dict | list):
        for part in template.values() if isinstance(template, dict) else template:
            yield from _texts(part)


def fill_template(template: Any, case: CaseFacts) -> Any:
    """Return a JSON document with every variable replaced; raises VariableError.

    A text that is only a variable becomes its value, such as a list or a number.
    """
    if isinstance(template, str):
        whole = VARIABLE.fullmatch(template.strip())
        return _value(whole[1], case) if whole else _fill_text(template, case, value_text)
    if isinstance(template, dict):
        return {name: fill_template(part, case) for name, part in template.items()}
    if isinstance(template, list):
        return [fill_template(part, case) for part in template]
    return template


def fill_url(template: str, case: CaseFacts) -> str:
    """Return the address with every variable replaced, percent-encoded; raises VariableError."""
    return _fill_text(template, case, lambda value: quote(value_text(value), safe=""))


def _fill_text(text: str, case: CaseFacts, write: Callable[[Any], str]) -> str:
    return VARIABLE.sub(lambda match: write(_value(match[1], case)), text)


def _value(name: str, case: CaseFacts) -> Any:
    match name:
        case "input":
            # Without a turn of the user, the last turn is the input.
            of_user = [turn.content for turn in case.input if turn.role == "user"]
            return (of_user or [turn.content for turn in case.input] or [""])[-1]
        case "conversation":
            return "\n\n".join(f"{turn.role}: {turn.content}" for turn in case.input)
        case "messages":
            return [{"role": turn.role, "content": turn.content} for turn in case.input]
        case "case_id":
            return case.key
        case _:
            return _from_metadata(name, case)


def _from_metadata(name: str, case: CaseFacts) -> Any:
    try:
        return metadata_value(name, case.metadata)
    except PathError as error:
        raise VariableError(f"case {case.key} has nothing for {in_braces(name)}: {error}") from None


VARIABLE_PREFIX = "EVALSITE_TARGET_SECRET_"
NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
MAX_VALUE_LENGTH = 8000
MIN_SECRET = 6
# The headers of the connection, which Evalsite sets.
RESERVED = (
    *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"),
    *("accept-encoding", "expect", "proxy-authorization", "proxy-connection", "keep-alive"),
)


def header_problem(header: Header) -> str:
    """Return in one sentence why a header cannot be sent, "" if it can."""
    if not NAME.fullmatch(header.name):
        return f"“{header.name[:60]}” is not a header name: use letters, digits and -"
    if header.name.lower() in RESERVED:
        return f"{header.name} is set by Evalsite; leave it out"
    if header.secret:
        return f"{header.name} is secret, so its value is stored apart" if header.value else ""
    return value_problem(header.name, header.value)


def value_problem(name: str, value: str) -> str:
    """Return why a value cannot be sent in a header, "" if it can."""
    if len(value) > MAX_VALUE_LENGTH:
        return f"the value of {name} is longer than {MAX_VALUE_LENGTH} characters"
    if not (value.isascii() and value.isprintable()):
        return f"the value of {name} has characters that a header cannot contain: use visible ASCII"
    for variable in variables_in(value):
        if not is_allowed_variable(variable):
            return (
                f"the value of {name} names {{{{{variable}}}}}; only variables of the server whose "
                f"names begin with {VARIABLE_PREFIX} can be used"
            )
    return ""


def is_allowed_variable(name: str) -> bool:
    """Tell whether a header may use this variable of the server; all others are secrets of the server."""
    return name.startswith(VARIABLE_PREFIX) and name != VARIABLE_PREFIX


def url_origin(url: Any) -> str:
    """Return scheme, host and port of an address: the server that may receive its secrets."""
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.netloc}".lower()


MAX_TIMEOUT_S = 3600
REQUEST, LIMITS = "Request", "Time and retries"


class HTTPConfig(ReplyPaths):
    """The address of the agent, its request, and the paths into its reply."""

    sections: ClassVar[tuple[str, ...]] = (REQUEST, REPLY, LIMITS)

    url: str = Field(
        title="Address",
        description="Such as https://agent.example.com/ask. Path and query may contain variables.",
        json_schema_extra={"section": REQUEST, "widget": "code"},
    )
    method: Literal["POST", "PUT", "PATCH", "GET"] = Field(
        "POST", description="GET sends no body.", json_schema_extra={"section": REQUEST}
    )
    headers: tuple[Header, ...] = Field(
        default=(),
        description="Name and value. A secret value is stored encrypted and never shown again. Values that look "
        "like keys are always secret.",
        json_schema_extra={"section": REQUEST},
    )
    body: dict[str, Any] | list[Any] = Field(
        default_factory=lambda: {"input": "{{input}}"},
        title="JSON body",
        description='Such as {"messages": "{{messages}}", "session": "{{case_id}}"}.',
        json_schema_extra={"section": REQUEST, "widget": "json"},
    )
    timeout_s: int = Field(
        120,
        ge=1,
        le=MAX_TIMEOUT_S,
        title="Timeout in seconds",
        description=f"For one case, with all retries and waits. 1 to {MAX_TIMEOUT_S}.",
        json_schema_extra={"section": LIMITS},
    )
    tries: int = Field(
        3,
        ge=1,
        le=5,
        description="How often a request is sent at most, if the agent answers 429 or 5xx or "
        "cannot be reached. 1: no retry.",
        json_schema_extra={"section": LIMITS},
    )
    concurrency: int = Field(
        8,
        ge=1,
        le=200,
        title="Requests in flight",
        description="The limit for each worker that takes part in a run.",
        json_schema_extra={"section": LIMITS},
    )

    @field_validator("url")
    @classmethod
    def _may_be_called(cls, value: str) -> str:
        url = value.strip()
        scheme_and_host = re.match(r"[^/]*//[^/?#]*", url)
        if VARIABLE.search(scheme_and_host[0] if scheme_and_host else url):
            raise ValueError("a variable can be in path and query, not in the host")
        plain = VARIABLE.sub("x", url)
        problem = template_problem(url) or address_problem(plain, may_have_query=True)
        if problem:
            raise ValueError(problem)
        return url

    @field_validator("headers")
    @classmethod
    def _may_be_sent(cls, value: tuple[Header, ...]) -> tuple[Header, ...]:
        names = [header.name.lower() for header in value]
        for header in value:
            if problem := header_problem(header):
                raise ValueError(problem)
            if names.count(header.name.lower()) > 1:
                raise ValueError(f"{header.name} is repeated")
        return value

    @field_validator("body")
    @classmethod
    def _has_known_variables(cls, value: Any) -> Any:
        if problem := template_problem(value):
            raise ValueError(problem)
        return value


@target_kind(label="Agent over HTTP", icon="i-share", config=HTTPConfig, uses_agent=True)
async def answer(config: HTTPConfig, context: TargetContext) -> Output | TargetFailure:
    """Return the agent's answer, read from its reply by the paths."""
    if context.agent is None:
        return TargetFailure(f"target {context.target} cannot be reached from here", Cause.FAILED)
    try:
        refuse_long([config.url, config.body], context.case)
        request = AgentRequest(
            method=config.method,
            url=fill_url(config.url, context.case),
            headers=config.headers,
            body=None if config.method == "GET" else fill_template(config.body, context.case),
            read=partial(read, config, context.case),
            timeout_s=config.timeout_s,
            tries=config.tries,
            most_at_once=config.concurrency,
        )
    except VariableError as error:
        return TargetFailure(str(error), Cause.FAILED)
    try:
        return await context.agent(request)
    except AgentFailure as failure:
        return TargetFailure(failure.reason, failure.cause)

"""Send the case to an agent's own endpoint over HTTP and take its output out of the reply.

The body is a JSON document of yours. Its texts may hold placeholders: `{{input}}` is the last text of
the user, `{{conversation}}` all turns as one text, `{{messages}}` the turns as a list of role and content,
`{{case_id}}` the case's id and `{{metadata.customer.id}}` what the case's metadata holds there. What is
expected of a case is never sent.

Paths say where the reply holds what: `choices.0.message.content` goes into objects by name and into
lists by number, `steps[*].tool` takes something of every part of a list, `["odd.name"]` holds a name with
dots. Without a path for the output the whole reply is the output, as plain text. A path that leads nowhere
means for the output that the reply is bad; for anything else that the agent does not report it.

Tool calls are steps with `name`, `input` and `output`, or calls as model servers spell them. Files are
`{"report.md": "text"}` or a list of `path` with `content` or `base64`; they become artifacts of the result.

Secret headers are stored encrypted, never shown again, and sent to the address they were entered for
only. A header may also name a variable of the server: `Bearer {{EVALSITE_TARGET_SECRET_AGENT}}`.

The time-out is for one case, with every retry. An answer of 429 or 5xx, and a connection that could not
be made, are tried again, after Retry-After where the agent says so; an agent that charges for failed
requests charges for each. Nothing else is repeated. Redirects are not followed, and addresses from which
clouds hand out their secrets are refused, whatever name leads there; private networks are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator

from evaluators.kinds._base import CaseFacts, Output
from evaluators.kinds._json_paths import PathError, follow, parse_path
from evaluators.model_calls.addresses import address_problem
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import AgentFailure, AgentRequest, Header, TargetContext, target_kind
from runs.target_kinds._replies import REPLY, ReplyPaths, read

PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
METADATA = "metadata."
NAMES = ("input", "conversation", "messages", "case_id")
KNOWN = "{{input}}, {{conversation}}, {{messages}}, {{case_id}} and {{metadata.…}}"
EXPECTED = ("expected", "criteria", "outcome", "rubric")


class PlaceholderError(ValueError):
    """A placeholder is not known, stands where it cannot, or has nothing to be filled with."""


def placeholder_problem(template: Any, place: str = "") -> str:
    """Return what is wrong with the placeholders of a template, naming where; "" when nothing is."""
    if isinstance(template, str):
        problem = _text_problem(template)
        return f"{place}: {problem}" if problem and place else problem
    if isinstance(template, dict):
        if named := next((name for name in template if PLACEHOLDER.search(str(name))), None):
            return f"{place}.{named}: a placeholder stands in a value, not in a name".lstrip(".")
        parts = [(f"{place}.{name}".lstrip("."), part) for name, part in template.items()]
    elif isinstance(template, list):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(template)]
    else:
        parts = []
    return next((said for at, part in parts if (said := placeholder_problem(part, at))), "")


def _text_problem(text: str) -> str:
    for found in PLACEHOLDER.finditer(text):
        name = found[1]
        if problem := _name_problem(name):
            return problem
        if name == "messages" and found[0] != text.strip():
            return '{{messages}} is a list and must be the whole text: "{{messages}}"'
    rest = PLACEHOLDER.sub("", text)
    if "{{" in rest:
        return "{{ is not closed: a placeholder is written {{input}}"
    return ""


def _name_problem(name: str) -> str:
    if name in NAMES:
        return ""
    if name.startswith(METADATA):
        try:
            parse_path(name.removeprefix(METADATA))
        except PathError as error:
            return f"{{{{{name}}}}} is no path: {error}"
        return ""
    if name.lower().startswith(EXPECTED):
        return f"{{{{{name}}}}}: what is expected of a case is never given to the agent"
    return f"there is no placeholder {{{{{name}}}}}; there are {KNOWN}"


def filled(template: Any, case: CaseFacts) -> Any:
    """Return the template with every placeholder replaced; raises PlaceholderError.

    A placeholder that is the whole text gives its value as it is: a list, a number.
    """
    if isinstance(template, str):
        return _filled_text(template, case)
    if isinstance(template, dict):
        return {name: filled(part, case) for name, part in template.items()}
    if isinstance(template, list):
        return [filled(part, case) for part in template]
    return template


def filled_url(template: str, case: CaseFacts) -> str:
    """Return the address with every placeholder replaced, percent-encoded; raises PlaceholderError."""
    return PLACEHOLDER.sub(lambda found: quote(_as_text(_value(found[1], case)), safe=""), template)


def _filled_text(text: str, case: CaseFacts) -> Any:
    whole = PLACEHOLDER.fullmatch(text.strip())
    if whole is not None:
        return _value(whole[1], case)
    return PLACEHOLDER.sub(lambda found: _as_text(_value(found[1], case)), text)


def _value(name: str, case: CaseFacts) -> Any:
    if name.startswith(METADATA):
        return _metadata(name.removeprefix(METADATA), case)
    values: Mapping[str, Any] = {
        "input": _last_of_user(case),
        "conversation": "\n\n".join(f"{turn.role}: {turn.content}" for turn in case.input),
        "messages": [{"role": turn.role, "content": turn.content} for turn in case.input],
        "case_id": case.key,
    }
    if name not in values:
        raise PlaceholderError(_name_problem(name))
    return values[name]


def _last_of_user(case: CaseFacts) -> str:
    """Return the last text of the user; without any, the last of whoever spoke."""
    of_user = [turn.content for turn in case.input if turn.role == "user"]
    return (of_user or [turn.content for turn in case.input] or [""])[-1]


def _metadata(path: str, case: CaseFacts) -> Any:
    try:
        return follow(path, dict(case.metadata), "its metadata")
    except PathError as error:
        raise PlaceholderError(
            f"case {case.key} has nothing for {{{{metadata.{path}}}}}: {error}"
        ) from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return str(value)


VARIABLE_PREFIX = "EVALSITE_TARGET_SECRET_"
VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
MAX_VALUE_LENGTH = 8000
MIN_SECRET = 6
# What the connection itself is made of: it is set by Evalsite.
OWN = (
    *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"),
    *("accept-encoding", "expect", "proxy-authorization", "proxy-connection", "keep-alive"),
)


def header_problem(header: Header) -> str:
    """Return in one sentence why a header cannot be sent, "" when it can."""
    if not NAME.fullmatch(header.name):
        return f"“{header.name[:60]}” is no name of a header: letters, digits and - only"
    if header.name.lower() in OWN:
        return f"{header.name} is set by Evalsite; leave it out"
    if header.secret:
        return f"{header.name} is secret, so its value is kept apart" if header.value else ""
    return value_problem(header.name, header.value)


def value_problem(name: str, value: str) -> str:
    """Return why a value cannot travel in a header, "" when it can."""
    if len(value) > MAX_VALUE_LENGTH:
        return f"the value of {name} is longer than {MAX_VALUE_LENGTH} characters"
    if not (value.isascii() and value.isprintable()):
        return f"the value of {name} holds characters that no header has: visible ASCII only"
    for variable in variables_of(value):
        if not is_allowed_variable(variable):
            return (
                f"the value of {name} names {{{{{variable}}}}}; only variables of the server whose "
                f"names begin with {VARIABLE_PREFIX} can be used"
            )
    return ""


def is_allowed_variable(name: str) -> bool:
    """Return whether a header may be filled from this variable: any other is a secret of the server."""
    return name.startswith(VARIABLE_PREFIX) and name != VARIABLE_PREFIX


def variables_of(value: str) -> list[str]:
    """Return the variables of the server that a value names."""
    return [found[1] for found in VARIABLE.finditer(value)]


def origin_of(url: Any) -> str:
    """Return scheme, host and port of an address: where secrets entered for it may go."""
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.netloc}".lower()


MAX_TIMEOUT_S = 3600
REQUEST, LIMITS = "Request", "Time and retries"


class Config(ReplyPaths):
    """Where the agent is, what it is sent, and where its reply holds what."""

    sections: ClassVar[tuple[str, ...]] = (REQUEST, REPLY, LIMITS)

    url: str = Field(
        title="Address",
        description="Such as https://agent.example.com/ask. Path and query may hold placeholders.",
        json_schema_extra={"section": REQUEST, "widget": "code"},
    )
    method: Literal["POST", "PUT", "PATCH", "GET"] = Field(
        "POST", description="GET sends no body.", json_schema_extra={"section": REQUEST}
    )
    headers: tuple[Header, ...] = Field(
        default=(),
        description="Name and value. A secret value is stored encrypted and never shown again.",
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
        title="Time-out in seconds",
        description=f"For one case, retries and waits between them included. 1 to {MAX_TIMEOUT_S}.",
        json_schema_extra={"section": LIMITS},
    )
    tries: int = Field(
        3,
        ge=1,
        le=5,
        description="How often a request is sent at most, when the agent answers 429 or 5xx or "
        "cannot be reached. 1: never again.",
        json_schema_extra={"section": LIMITS},
    )
    concurrency: int = Field(
        8,
        ge=1,
        le=200,
        title="Requests in flight",
        description="The most at the same time, for each worker that is at a run.",
        json_schema_extra={"section": LIMITS},
    )

    @field_validator("url")
    @classmethod
    def _may_be_called(cls, value: str) -> str:
        url = value.strip()
        scheme_and_host = re.match(r"[^/]*//[^/?#]*", url)
        if PLACEHOLDER.search(scheme_and_host[0] if scheme_and_host else url):
            raise ValueError("a placeholder may stand in path and query, not in the host")
        plain = PLACEHOLDER.sub("x", url)
        problem = placeholder_problem(url) or address_problem(plain, may_have_query=True)
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
                raise ValueError(f"{header.name} stands there twice")
        return value

    @field_validator("body")
    @classmethod
    def _has_known_placeholders(cls, value: Any) -> Any:
        if problem := placeholder_problem(value):
            raise ValueError(problem)
        return value


@target_kind(label="Agent over HTTP", icon="i-share", config=Config, uses_agent=True)
async def answer(config: Config, context: TargetContext) -> Output | TargetFailure:
    """Return what the agent answers, read from its reply by the paths."""
    if context.agent is None:
        return TargetFailure(f"target {context.target} cannot be reached from here", Cause.FAILED)
    try:
        request = AgentRequest(
            method=config.method,
            url=filled_url(config.url, context.case),
            headers=config.headers,
            body=None if config.method == "GET" else filled(config.body, context.case),
            read=partial(read, config, context.case),
            timeout_s=config.timeout_s,
            tries=config.tries,
            most_at_once=config.concurrency,
        )
    except PlaceholderError as error:
        return TargetFailure(str(error), Cause.FAILED)
    try:
        return await context.agent(request)
    except AgentFailure as failure:
        return TargetFailure(failure.reason, failure.cause)

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
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from evaluators.judging.addresses import address_problem
from evaluators.kinds._base import Output
from runs.plan import Cause, TargetFailure
from runs.targets._base import AgentFailure, AgentRequest, Header, TargetContext, target_kind
from runs.targets._headers import header_problem
from runs.targets._placeholders import (
    PLACEHOLDER,
    PlaceholderError,
    filled,
    filled_url,
    placeholder_problem,
)
from runs.targets._reading import REPLY, ReplyPaths, read

LONGEST_TIMEOUT_S = 3600
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
        le=LONGEST_TIMEOUT_S,
        title="Time-out in seconds",
        description=f"For one case, retries and waits between them included. 1 to {LONGEST_TIMEOUT_S}.",
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

"""The secret headers of a target: decrypted for sending, redacted in everything that comes back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from evaluators.kinds._base import Output
from evaluators.kinds._prompts import VARIABLE, variables_in
from evaluators.model_calls.calls import CallOutcome
from evaluators.model_calls.models import KeyUnreadableError, decrypt
from evaluators.model_calls.redaction import redact, redact_bytes, redact_json
from runs.engine.ports import Cause
from runs.models.suites import Target
from runs.target_kinds._base import Header, TargetConfig
from runs.target_kinds.http import (
    is_allowed_variable,
    url_origin,
    value_problem,
)

CAUSES: Mapping[CallOutcome, Cause] = {
    CallOutcome.TIMEOUT: Cause.TIMEOUT,
    CallOutcome.REFUSED: Cause.REFUSED,
    CallOutcome.RATE_LIMITED: Cause.RATE_LIMITED,
    CallOutcome.SERVER_ERROR: Cause.SERVER_ERROR,
    CallOutcome.CONNECTION: Cause.CONNECTION,
    CallOutcome.UNREADABLE: Cause.BAD_REPLY,
}


HIDDEN = "[secret]"
# Shorter parts of a value, such as Bearer, are ordinary words in replies.
MIN_PART = 8


@dataclass(frozen=True, slots=True)
class TargetSecrets:
    """The secrets of a target's headers. With a `problem` they are unusable and nothing is sent."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str = ""

    def sent(self, headers: Iterable[Header]) -> dict[str, str]:
        """Return the headers as they are sent."""
        return {header.name: self._value(header) for header in headers}

    def shown(self, headers: Iterable[Header]) -> dict[str, str]:
        """Return the headers as they may be stored: variables by name, secrets hidden."""
        return {header.name: HIDDEN if header.secret else header.value for header in headers}

    def redact(self, text: str) -> str:
        """Return the text with every secret redacted, in any encoding in which an agent echoes it."""
        return redact(text, self._secrets(), HIDDEN)

    def redact_json(self, value: Any) -> Any:
        """Return a JSON value with every secret redacted; raises RecursionError like JSON's own."""
        return redact_json(value, self._secrets(), HIDDEN)

    def redact_output(self, output: Output) -> Output:
        """Return an output with every secret redacted; joined parts may form a secret again."""
        secrets = self._secrets()
        if not secrets:
            return output
        return replace(
            output,
            text=self.redact(output.text),
            messages=tuple(
                replace(m, role=self.redact(m.role), content=self.redact(m.content))
                for m in output.messages
            ),
            trace=None
            if output.trace is None
            else tuple(
                replace(
                    step,
                    name=self.redact(step.name),
                    input=self.redact_json(step.input),
                    output=self.redact_json(step.output),
                    error=self.redact(step.error),
                    id=self.redact(step.id),
                    parent_id=self.redact(step.parent_id),
                )
                for step in output.trace
            ),
            files={
                self.redact(path): redact_bytes(content, secrets, HIDDEN)
                for path, content in output.files.items()
            },
            warnings=tuple(map(self.redact, output.warnings)),
        )

    def _value(self, header: Header) -> str:
        if header.secret:
            return self.values.get(header.name.lower(), "")
        return VARIABLE.sub(lambda match: self.variables.get(match[1], ""), header.value)

    def _secrets(self) -> tuple[str, ...]:
        whole = {secret for secret in (*self.values.values(), *self.variables.values()) if secret}
        parts = {part for secret in whole for part in secret.split() if len(part) >= MIN_PART}
        named = {part for secret in whole for part in _name_and_password(secret)}
        return tuple(sorted(whole | parts | named))


def _name_and_password(value: str) -> tuple[str, ...]:
    """Return the decoded value of basic authentication, and its password."""
    scheme, _, packed = value.partition(" ")
    if scheme.lower() != "basic":
        return ()
    try:
        pair = base64.b64decode(packed.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ()
    password = pair.partition(":")[2]
    return (pair, password) if len(password) >= MIN_PART else (pair,)


def run_secrets(target: Target | None, config: TargetConfig) -> TargetSecrets:
    """Return the secrets for a run's frozen settings, as the target holds them now.

    They are sent only to the server that they were entered for.
    """
    headers: tuple[Header, ...] = getattr(config, "headers", ())
    stored: Mapping[str, str] = target.encrypted_secrets if target is not None else {}
    problem = _origin_problem(target, config) if any(header.secret for header in headers) else ""
    return TargetSecrets(problem=problem) if problem else open_secrets(headers, stored)


def open_secrets(headers: Iterable[Header], stored: Mapping[str, str]) -> TargetSecrets:
    """Return the secrets of headers, decrypted or read from the server's variables."""
    values: dict[str, str] = {}
    variables: dict[str, str] = {}
    for header in headers:
        if not header.secret:
            variables.update({name: _variable(name) for name in variables_in(header.value)})
            continue
        if not stored.get(header.name.lower()):
            message = (
                f"The secret header {header.name} has no value stored. Enter it in the target."
            )
            return TargetSecrets(problem=message)
        try:
            values[header.name.lower()] = decrypt(stored[header.name.lower()])
        except KeyUnreadableError as error:
            return TargetSecrets(problem=str(error).replace("key", "secret header", 1))
    return TargetSecrets(values, variables, _variables_problem(variables))


def _variable(name: str) -> str:
    return settings.TARGET_SECRETS.get(name, "") if is_allowed_variable(name) else ""


def _variables_problem(variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        if not value:
            return f"The variable {name} is not set on the server."
        if value_problem(name, value):
            return f"The variable {name} contains characters that a header cannot have."
    return ""


def _origin_problem(target: Target | None, config: TargetConfig) -> str:
    """Return why the secrets may not be sent to the address of the settings, "" when they may."""
    if target is None:
        return "The target was deleted with its secret headers. Start a new run."
    now, then = target.config.get("url", ""), getattr(config, "url", "")
    if url_origin(now) == url_origin(then):
        return ""
    return (
        f"{target.name} now points at {url_origin(now)}, the run was started with {url_origin(then)}. "
        "Start a new run."
    )

"""Headers of requests to agents: which may be sent, and which variables of the server they may name."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from runs.targets._base import Header

VARIABLE_PREFIX = "EVALSITE_TARGET_SECRET_"
VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
LONGEST_VALUE = 8000
LEAST_SECRET = 6
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
    if len(value) > LONGEST_VALUE:
        return f"the value of {name} is longer than {LONGEST_VALUE} characters"
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

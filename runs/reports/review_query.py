"""A part of the review queue in the address of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from runs.models.review_queue import QueueQuery
from runs.reviewing import Reason

LONGEST_NUMBER = 18


def read_query(parameters: Mapping[str, str]) -> QueueQuery:
    """Read the parameters of an address; what it does not know, it leaves out."""
    reason = parameters.get("reason", "")
    return QueueQuery(
        suite=parameters.get("suite", ""),
        run=read_number(parameters.get("run", "")),
        reason=reason if reason in list(Reason) else "",
        tag=parameters.get("tag", ""),
        assignee=read_number(parameters.get("assignee", "")),
    )


def query_address(query: QueueQuery, **changes: Any) -> str:
    """Return the query part of an address with some of it changed, "" when nothing is left out."""
    query = replace(query, **changes)
    named = {
        "suite": query.suite,
        "run": query.run,
        "reason": query.reason,
        "tag": query.tag,
        "assignee": query.assignee,
    }
    said = urlencode({name: value for name, value in named.items() if value})
    return f"?{said}" if said else ""


def read_number(text: str) -> int:
    """Return the number of a row that a request names, 0 for what is none."""
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else 0

"""Titles of cases that somebody wrote, told apart from those an import made of the question."""

from __future__ import annotations

from collections.abc import Mapping

from runs.formats.csv_cases import beginning_of
from runs.models import Suite


def written_titles(suite: Suite | None) -> Mapping[str, str]:
    """Return by key the titles of a suite's current cases that are not the beginning of what they ask."""
    if suite is None:
        return {}
    cases = suite.cases.filter(is_current=True).exclude(title="")
    rows = cases.values_list("key", "title", "input").iterator()
    return {key: title for key, title, asked in rows if title != beginning_of(asked)}

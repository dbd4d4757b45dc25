"""What a new case begins as: nothing, another case, or a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.shortcuts import get_object_or_404

from runs.exports import case_content
from runs.formats import CaseContent
from runs.models import Case, Result, Suite
from runs.services.result_cases import content_of_result, free_key

LONGEST_NUMBER = 18


@dataclass(frozen=True, slots=True)
class Beginning:
    """The case a form starts with, and the stored revision that holds what the form does not show."""

    source: Case | None = None
    content: CaseContent | None = None
    said: str = ""


def beginning_of(suite: Suite, asked: Mapping[str, str]) -> Beginning:
    """Return what an address asks for: `from` names a case, `result` a result by its number.

    Raises Http404 for what is not of this suite.
    """
    if key := asked.get("from"):
        case = get_object_or_404(suite.cases, key=key, is_current=True)
        content = replace(case_content(case), key=free_key(suite, key))
        return Beginning(case, content, f"A copy of {key}. Nothing is saved yet.")
    number = asked.get("result", "")
    if not (number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER):
        return Beginning()
    results = Result.objects.select_related("case", "output", "run__suite")
    result = get_object_or_404(results, pk=int(number), run__suite=suite)
    content = content_of_result(result, with_answer="answer" in asked)
    said = f"Made of {result.case.key} in run #{result.run.number}. Nothing is saved yet."
    return Beginning(result.case, content, said)

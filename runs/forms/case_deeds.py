"""What the buttons of cases and results send."""

from __future__ import annotations

from django.http import QueryDict
from django.shortcuts import get_object_or_404

from runs.models import Result

LONGEST_NUMBER = 9


def asked_revision(data: QueryDict, name: str = "base") -> int | None:
    """Return the revision that was sent, None where there is none that could be one."""
    text = data.get(name, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else None


def result_asked(slug: str, number: int, key: str, repetition: int) -> Result:
    """Return the result an address names, with its case and answer; raises Http404."""
    results = Result.objects.select_related("case", "output", "run__suite")
    place = {"run__suite__slug": slug, "run__number": number, "repetition": repetition}
    return get_object_or_404(results, case__key=key, **place)

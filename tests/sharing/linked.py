"""Texts that tell where they came from, and links made as people make them."""

from __future__ import annotations

import re

from django.test import Client
from django.urls import reverse

from runs.documents import DetailLevel
from runs.models.runs import Run

# A text of every kind, with the least detail_level at which an anonymous reader may see it.
MARKED = {
    "figures": ("TARGET-mark",),
    "case_names": ("KEY-mark", "TITLE-mark", "SUITE-mark"),
    "outputs": (
        *("INPUT-mark", "OUTPUT-mark", "EXPECTED-mark", "OUTCOME-mark", "WHY-mark"),
        *("FINDING-mark", "EVIDENCE-mark"),
    ),
    "traces": ("TOOL-mark", "STEP-IN-mark", "STEP-OUT-mark", "$0.777"),
}
NEVER = ("PROMPT-mark", "METADATA-mark", "NOTE-mark", "TAG-mark", "mia-mark")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def subject(runs: tuple[Run, Run], kind: str = "comparison") -> dict[str, str]:
    words = [f"{run.suite.slug}:{run.number}" for run in runs]
    return {
        "comparison": {"kind": kind, "baseline": words[0], "candidate": words[1]},
        "run": {"kind": kind, "run": words[1]},
        "result": {"kind": kind, "run": words[1], "case": "KEY-mark", "repetition": "1"},
    }[kind]


def sent(page: str, fields: dict[str, str], **more: str) -> dict[str, str]:
    found = re.search(r'name="seen" value="([0-9a-f]{64})"', page)
    assert found
    usual = {"title": "For the lead", "detail_level": "figures", "expiry": "30", "seen": found[1]}
    return fields | usual | more


def share(
    client: Client, fields: dict[str, str], detail_level: str = "figures", **more: str
) -> str:
    """Make a link as the form does and return its path."""
    page = client.get(
        reverse("runs:share-new"), fields | more | {"detail_level": detail_level}
    ).content.decode()
    if 'name="looked"' in page:
        more = {"looked": "on"} | more
    made = client.post(
        reverse("runs:share-new"), sent(page, fields, detail_level=detail_level, **more)
    )
    assert made.status_code == 302, made.content.decode()
    listed = client.get(made["Location"]).content.decode()
    found = re.search(r'value="(http://testserver)(/s/[\w-]{43}/)"', listed)
    assert found
    return found[2]


def marks_within(detail_level: str) -> tuple[set[str], set[str]]:
    """Return the texts that a detail_level lets through, and those it keeps back."""
    levels = list(DetailLevel)
    reached = levels[: levels.index(DetailLevel(detail_level)) + 1]
    shown = {mark for one in reached for mark in MARKED[one.value]}
    return shown, {mark for marks in MARKED.values() for mark in marks} - shown | {*NEVER}

"""The command line as tests call it, and what its results file holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run


def evaluate(*arguments: object) -> int:
    """Evaluate and return the exit code."""
    try:
        call_command("evaluate", *map(str, arguments))
    except SystemExit as end:
        return int(str(end.code))
    return 0


def evaluated_by_case(folder: Path, suite: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate the recorded outputs of a suite, and return the lines of the results file by case."""
    (folder / "suite.yaml").write_text(json.dumps(suite))
    arguments = ("--target", "recorded", "--concurrency", "1", "--out", str(folder / "out.jsonl"))
    with suppress(SystemExit):
        call_command("evaluate", str(folder / "suite.yaml"), *arguments)
    lines = (folder / "out.jsonl").read_text().splitlines()
    return {line["eval_id"]: line for line in map(json.loads, lines)}


def page_of(viewer: Client, key: str) -> str:
    """Return the page of a case's result in the last run."""
    run = Run.objects.select_related("suite").latest("pk")
    place = {"slug": run.suite.slug, "number": run.number, "key": key, "repetition": 1}
    return viewer.get(reverse("runs:result", kwargs=place)).content.decode()

"""The worked cases of the scoring rules on their whole way: suite file, command line, results file, page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run

FILE = Path(__file__).parents[1] / "vectors" / "scoring.json"
Values = dict[str, Any]
# Evaluators of the suite that ask nobody: every case is scored by its own instead.
UNASKED = {"name": "unasked", "type": "contains", "value": "way"}
# What stands over the cause on a result's page, by verdict.
VERDICT_HEADINGS = {
    "pass": "Why it passed",
    "borderline": "Why it is borderline",
    "fail": "Why it failed",
}


def vectors_of(rule: str) -> list[Values]:
    """Return every worked case of a rule, as the file has them."""
    read: list[Values] = json.loads(FILE.read_text(encoding="utf-8"))["vectors"]
    return [one for one in read if one["op"] == rule]


def headline(page: str) -> str:
    """Return what stands at the top of a result's page: its case, its verdict and its score."""
    match = re.search(r"<h1>(.*?)</h1>", page)
    assert match is not None
    return " ".join(re.sub(r"<[^>]+>", " ", match[1]).split())


def page_text(text: str) -> str:
    """Return a text as it stands in the source of a page."""
    return html.escape(text, quote=False)


@dataclass
class Walk:
    """All worked cases of one rule, carried out as cases of suites at the command line.

    Every one of them has to be looked up in the results file and on its page.
    """

    rule: str
    folder: Path
    viewer: Client
    evaluated_keys: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    _lines: dict[str, tuple[Run, Values]] = field(default_factory=dict)

    @property
    def vectors(self) -> list[Values]:
        """Return the worked cases of the rule."""
        return vectors_of(self.rule)

    def evaluate(self, cases: Iterable[Mapping[str, Any]], **suite: Any) -> None:
        """Evaluate cases with recorded outputs, in a suite with these settings."""
        name = f"worked-{Run.objects.count()}"
        tests = [{"input": "Where is my order?", "output": "On its way.", **case} for case in cases]
        content = {"name": name, "evaluators": [UNASKED], **suite, "tests": tests}
        (self.folder / "suite.yaml").write_text(json.dumps(content))
        out = self.folder / "out.jsonl"
        with suppress(SystemExit):
            # One at a time, so that replies which are queued meet their cases.
            options = ("--target", "recorded", "--concurrency", "1", "--out", str(out))
            call_command("evaluate", str(self.folder / "suite.yaml"), *options)
        run = Run.objects.select_related("suite").get(suite__slug=name)
        for line in map(json.loads, out.read_text().splitlines()):
            self._lines[line["eval_id"]] = (run, line)

    def line(self, key: str) -> Values:
        """Return the line of a case in the results file."""
        self.evaluated_keys.add(key)
        return self._lines[key][1]

    def page(self, key: str) -> str:
        """Return the page of a case's result, its white space as a browser shows it."""
        self.shown.add(key)
        run = self._lines[key][0]
        place = {"slug": run.suite.slug, "number": run.number, "key": key, "repetition": 1}
        page = self.viewer.get(reverse("runs:result", kwargs=place)).content.decode()
        return " ".join(page.split())

    def run_page(self) -> str:
        """Return the page of the one run there is."""
        [run] = {run for run, _ in self._lines.values()}
        place = {"slug": run.suite.slug, "number": run.number}
        return self.viewer.get(reverse("runs:run", kwargs=place)).content.decode()

    def suite_page(self) -> str:
        """Return the page of the one suite there is."""
        [run] = {run for run, _ in self._lines.values()}
        return self.viewer.get(reverse("runs:suite", args=[run.suite.slug])).content.decode()

    def assert_every_vector_is_used(self) -> None:
        """Assert that every worked case of the rule was looked up in the file and on its page."""
        every = {one["id"] for one in self.vectors}
        assert every
        assert (every - self.evaluated_keys, every - self.shown) == (set(), set())

"""The form of one evaluator sent back untouched changes nothing, whatever its kind."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.http import QueryDict

from evaluators.gallery import kinds_shown
from evaluators.kinds import kind_of
from runs.drafting.content import nodes_with_paths
from runs.formats import agentv
from runs.forms.evaluators import EvaluatorForm
from runs.services.drafts import draft_of
from tests.factories import make_suite
from tests.members import make_member

# An option without a value sends its words.
WORDS = "\0"


class Sent(HTMLParser):
    """What a browser would send of a form as it is drawn."""

    def __init__(self, drawn: str) -> None:
        super().__init__()
        self.data = QueryDict(mutable=True)
        self.select, self.area, self.text = "", "", ""
        self.chosen: list[str] = []
        self.feed(drawn)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        is_box = found.get("type") in ("checkbox", "radio")
        if tag == "input" and "name" in found and (not is_box or "checked" in found):
            self.data.appendlist(found["name"], found.get("value", "on" if is_box else ""))
        elif tag == "select":
            self.select, self.chosen = found["name"], []
        elif tag == "option" and (not self.chosen or "selected" in found):
            self.chosen = [found.get("value", WORDS)]
        elif tag == "textarea":
            self.area, self.text = found["name"], ""

    def handle_data(self, data: str) -> None:
        self.text += data if self.area else ""
        if self.chosen == [WORDS]:
            self.chosen = [data]

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self.data.appendlist(self.select, self.chosen[0])
        elif tag == "textarea":
            self.data.appendlist(self.area, self.text.removeprefix("\n").replace("\n", "\r\n"))
            self.area = ""


@pytest.mark.django_db
@pytest.mark.parametrize("name", [kind.name for kind in kinds_shown()])
def test_the_form_of_an_evaluator_sent_untouched_changes_nothing(name: str) -> None:
    example = "\n".join(f"    {line}" for line in kind_of(name).example.splitlines())
    text = f"name: s\nevaluators:\n  -\n{example}\ntests:\n  - {{id: a, input: hi}}\n"
    suite = make_suite(tree=agentv.read(text.encode()).root.as_json())
    draft = draft_of(suite, make_member("editor"))
    before = draft.content["evaluators"]
    node: dict[str, Any] = before["children"][0]
    shown = EvaluatorForm(draft, node, before, kind_of(name), None)

    sent = Sent(f"{shown.marks}{shown.settings}").data
    form = EvaluatorForm(draft, node, before, kind_of(name), sent)

    assert form.is_valid(), form.errors
    kept = form.keep()
    assert kept is not None
    after = dict(nodes_with_paths(kept.content["evaluators"]))[node["name"]]
    usual = {"config": kind_of(name).config.model_validate(node["config"])}
    assert after | {"config": kind_of(name).config.model_validate(after["config"])} == node | usual

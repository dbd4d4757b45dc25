"""The form of one evaluator sent back untouched changes nothing, whatever its kind."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.catalog.queries import gallery_kinds, kind_groups
from evaluators.kinds import get_kind
from runs.formats import suite_files
from runs.suites.drafts import get_draft
from runs.suites.edits import nodes_with_paths
from runs.suites.evaluator_forms import EvaluatorForm
from tests.support.factories import make_suite
from tests.support.members import make_member
from tests.support.sent_forms import Sent


@pytest.mark.django_db
@pytest.mark.parametrize("name", [kind.name for kind in gallery_kinds()])
def test_the_form_of_an_evaluator_sent_untouched_changes_nothing(name: str) -> None:
    example = "\n".join(f"    {line}" for line in get_kind(name).example.splitlines())
    text = f"name: s\nevaluators:\n  -\n{example}\ntests:\n  - {{id: a, input: hi}}\n"
    suite = make_suite(tree=suite_files.read_suite(text.encode()).evaluators.as_json())
    draft = get_draft(suite, make_member("editor"))
    before = draft.content["evaluators"]
    node: dict[str, Any] = before["children"][0]
    shown = EvaluatorForm(draft, node, before, get_kind(name), None)

    sent = Sent(f"{shown.marks}{shown.settings}").data
    form = EvaluatorForm(draft, node, before, get_kind(name), sent)

    assert form.is_valid(), form.errors
    kept = form.keep()
    assert kept is not None
    after = dict(nodes_with_paths(kept.content["evaluators"]))[node["name"]]
    usual = {"config": get_kind(name).config.model_validate(node["config"])}
    assert after | {"config": get_kind(name).config.model_validate(after["config"])} == node | usual


def test_every_kind_is_offered_once_in_its_group_the_most_used_first() -> None:
    groups = {group.title: [kind.name for kind in group.kinds] for group in kind_groups()}
    assert list(groups) == ["Rules", "Judges", "Composites"]
    assert sorted(name for names in groups.values() for name in names) == sorted(
        kind.name for kind in gallery_kinds()
    )
    assert [names[0] for names in groups.values()] == ["text_check", "llm_judge", "composite"]

"""Variables bring the case into a request, and nothing that is expected of it."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds._base import CaseFacts, Message
from evaluators.kinds._prompts import VARIABLE, VariableError, variables_in
from runs.target_kinds import http
from runs.target_kinds.http import fill_template, fill_url, refuse_long, template_problem

CASE = CaseFacts(
    key="CS-1/ö",
    input=(
        Message("system", "Be kind."),
        Message("user", "First"),
        Message("assistant", "Yes?"),
        Message("user", 'Say "hi" & {{case_id}}'),
    ),
    expected_output="SECRET ANSWER",
    expected_outcomes=("SECRET OUTCOME",),
    criteria="SECRET CRITERIA",
    metadata={"customer": {"id": 7, "tags": ["a"]}, "plan": "gold"},
)


def test_texts_lists_and_numbers_come_out_as_what_they_are() -> None:
    template = {
        "q": "{{input}}",
        "all": "{{ conversation }}",
        "messages": "{{messages}}",
        "nested": [{"id": "{{metadata.customer.id}}", "tags": "{{metadata.customer.tags}}"}],
        "mixed": "case {{case_id}} of {{metadata.plan}}, {{metadata.customer.id}}",
        "n": 3,
    }
    body = fill_template(template, CASE)
    assert body["q"] == 'Say "hi" & {{case_id}}'
    assert body["all"].startswith("system: Be kind.\n\nuser: First")
    assert body["messages"][-1] == {"role": "user", "content": 'Say "hi" & {{case_id}}'}
    assert body["nested"] == [{"id": 7, "tags": ["a"]}]
    assert body["mixed"] == "case CS-1/ö of gold, 7"
    assert body["n"] == 3
    assert "SECRET" not in str(body)


def test_a_url_takes_values_that_cannot_change_where_it_leads() -> None:
    url = fill_url("https://a.example/{{metadata.plan}}?id={{case_id}}&q={{input}}", CASE)
    assert url.startswith("https://a.example/gold?id=CS-1%2F%C3%B6&q=Say%20%22hi%22%20%26%20")


def test_a_text_that_is_named_again_and_again_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_FILLED", 100)
    refuse_long(["https://a.example/{{case_id}}", {"plan": ['{{metadata["plan"]}}'] * 20}], CASE)
    with pytest.raises(VariableError, match="name its variables less often"):
        refuse_long(["https://a.example/", {"all": "{{conversation}}" * 10}], CASE)


def test_metadata_that_a_case_lacks_is_told_by_name() -> None:
    with pytest.raises(VariableError) as refusal:
        fill_template({"a": "{{metadata.customer.name}}"}, CASE)
    said = str(refusal.value)
    assert "case CS-1/ö" in said
    assert "{{metadata.customer.name}}" in said
    assert "without 'name'" in said


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"a": {"b": "{{inptu}}"}}, "a.b: {{inptu}} is not a variable"),
        ({"a": ["x", "{{expected_output}}"]}, "a[1]: {{expected_output}}: what is expected"),
        ({"a": "{{criteria}}"}, "never given"),
        ({"a": "see {{messages}}"}, "must be the whole text"),
        ({"a": "{{metadata.}}"}, "not a path"),
        ({"a": "{{input"}, "not closed"),
        ({"{{input}}": 1}, "not in a name"),
    ],
)
def test_a_wrong_variable_is_refused_where_it_stands(template: Any, words: str) -> None:
    assert words in template_problem(template)


def test_good_templates_have_no_problem() -> None:
    good = {"a": ["{{input}}", {"b": "{{messages}}"}], "c": None, "d": "{ {input} }"}
    assert template_problem(good) == ""


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\u3000"])
def test_white_space_in_braces_is_no_part_of_a_name(space: str) -> None:
    much = space * 100_000
    opened = "{{" + much
    text = f"{opened}a {opened}b{much}c{much}}}}} {opened}}}}} {{{{d}}}} {opened}"
    assert variables_in(text) == (f"b{much}c", "", "d")
    assert VARIABLE.sub("", text) == f"{opened}a    {opened}"

"""The gallery: every kind, what it is called in files, and an evaluator written from its form."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.formats import suite_files
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return make_client(make_member("viewer"))


def page(client: Client, kind: str, **sent: Any) -> Any:
    url = reverse("evaluators:kind", args=[kind])
    return client.post(url, sent) if sent else client.get(url)


def test_the_gallery_needs_a_log_in(client: Client) -> None:
    assert client.get("/evaluators/").status_code == 302


def test_the_gallery_shows_every_kind_a_suite_may_use(viewer: Client) -> None:
    html = viewer.get("/evaluators/").content.decode()

    for label in ("Composite", "Expected output", "LLM judge", "Rubric", "Text check"):
        assert label in html
    assert "icontains_any" in html
    assert "Expected outcomes" not in html


def test_a_kind_shows_manual_settings_spellings_and_example(viewer: Client) -> None:
    html = page(viewer, "text_check").content.decode()

    assert "<th>passes if the answer</th>" in html
    assert "ignore_case" in html
    assert "operator: contains_any, ignore_case: true" in html
    assert "type: contains_any" in html


def test_an_evaluator_that_asks_an_agent_is_written_from_its_form(viewer: Client) -> None:
    assert "Asks an agent" in viewer.get("/evaluators/").content.decode()
    assert "asks an agent" in page(viewer, "agent_judge").content.decode()
    sent = {"name": "quality", "weight": "1", "agent": " code reviewer ", "scale": "10"}
    sent |= {"samples": "3", "samples_by": "mean", "criteria": "Is it kind?"}

    html = page(viewer, "agent_judge", **sent).content.decode()

    for line in ("type: agent_judge", "agent: code reviewer", "scale: 10", "samples: 3"):
        assert line in html
    assert (
        "this field is required" in page(viewer, "agent_judge", name="q").content.decode().lower()
    )


@pytest.mark.parametrize("name", ["telepathy", "outcomes", "_base"])
def test_a_kind_that_is_not_in_the_gallery_is_not_found(viewer: Client, name: str) -> None:
    assert page(viewer, name).status_code == 404


def test_settings_become_an_evaluator_that_a_suite_reads(viewer: Client) -> None:
    sent = {"name": "no_leak", "weight": "2", "required": "on", "negate": "on"}
    sent |= {
        "operator": "contains_any",
        "values": "rule 4: goodwill\r\nmy prompt",
        "ignore_case": "on",
    }

    answer = page(viewer, "text_check", **sent)

    assert answer.status_code == 200
    written = answer.context["written"]
    suite = f"name: s\nevaluators:\n{written}tests: [{{id: A, input: x}}]\n"
    node = suite_files.read_suite(suite.encode()).evaluators.children[0]
    assert (node.name, node.weight, node.required, node.negate) == ("no_leak", 2, True, True)
    assert node.config["values"] == ["rule 4: goodwill", "my prompt"]


def test_a_time_out_for_the_judge_is_written_as_a_suite_reads_it(viewer: Client) -> None:
    sent = {"name": "tone", "weight": "1", "prompt": "Is it kind?", "timeout_s": "20"}
    written = page(viewer, "llm_judge", **sent).context["written"]

    suite = f"name: s\nevaluators:\n{written}tests: [{{id: A, input: x}}]\n"
    assert "timeout_s: 20" in written
    assert suite_files.read_suite(suite.encode()).evaluators.children[0].config["timeout_s"] == 20


def table(*rows: dict[str, str]) -> dict[str, str]:
    return {
        f"metrics-{n}-{name}": value
        for n, row in enumerate(rows)
        for name, value in {"key": "", **row}.items()
    } | {"name": "m", "weight": "1", "samples": "1", "samples_by": "median"}


def test_a_set_of_metrics_is_a_table_with_weights_before_and_after(viewer: Client) -> None:
    html = page(viewer, "metrics_judge").content.decode()

    assert 'name="metrics-0-key" value="tool_routing"' in html
    assert 'name="metrics-7-key" value="response_delivery"' in html
    assert 'name="metrics-9-key" value=""' in html
    assert "12.5%" in html


def test_rows_of_the_table_become_the_set(viewer: Client) -> None:
    answer = page(
        viewer,
        "metrics_judge",
        **table(
            {"key": "tool_routing", "name": "Tools", "weight": "3", "binary": ""},
            {"key": "grounding_fidelity", "weight": "1", "remove": "on"},
            {"key": "empathy", "weight": "1", "binary": "on", "description": "Kind"},
            {},
        ),
    )

    suite = f"name: s\nevaluators:\n{answer.context['written']}tests: [{{id: A, input: x}}]\n"
    metrics = suite_files.read_suite(suite.encode()).evaluators.children[0].config["metrics"]
    assert [(m["key"], m["name"], m["weight"], m["binary"]) for m in metrics] == [
        ("tool_routing", "Tools", 3, False),
        ("empathy", "Empathy", 1, True),
    ]
    html = answer.content.decode()
    assert "75.0%" in html
    assert "25.0%" in html


def test_an_unchanged_table_writes_nothing_of_it(viewer: Client) -> None:
    form = page(viewer, "metrics_judge").context["form"]
    rows = [
        {k: "" if v is False else str(v) for k, v in row.items()} for row in form["metrics"].value()
    ]

    assert "metrics:" not in page(viewer, "metrics_judge", **table(*rows)).context["written"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"key": "a", "weight": "-1"}, "Row 1, weight:"),
        ({"key": "a", "weight": "much"}, "much"),
        ({"description": "Kind"}, "Row 1, key: is missing"),
        ({"key": "a", "weight": "0"}, "sum to 0"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_by_its_number(
    viewer: Client, row: dict[str, str], said: str
) -> None:
    answer = page(viewer, "metrics_judge", **table(row))

    assert answer.status_code == 422
    assert said in " ".join(str(error) for error in answer.context["form"].errors.values())


@pytest.mark.parametrize(
    ("kind", "sent", "field", "said"),
    [
        ("llm_judge", {"prompt": "{{x}}"}, "prompt", "{{x}} is not a variable"),
        ("llm_judge", {"timeout_s": "0"}, "timeout_s", "greater than or equal to 1"),
        ("llm_judge", {"timeout_s": "3601"}, "timeout_s", "less than or equal to 3600"),
        ("text_check", {"operator": "regex", "value": "("}, None, "not a regular expression"),
        ("text_check", {"operator": "max_length", "max_length": "-1"}, "max_length", "0"),
        ("rubric", {"rubrics": "- {id: a}", "mode": "satisfied"}, "rubrics", "expected_outcome"),
        (
            "rubric",
            {"rubrics": "- [", "mode": "satisfied"},
            "rubrics",
            "Line 2: not readable as YAML",
        ),
        ("rubric", {"mode": "satisfied"}, "rubrics", "required"),
        ("script", {"config": "a: &a [1]\nb: *a"}, "config", "Line 1: an alias repeats a value"),
        (
            "script",
            {"config": f"[{'1,' * 10_001}1]"},
            "config",
            "it contains more than 10,000 values",
        ),
        ("script", {"config": "a" * 200_001}, "config", "200,000 is the limit"),
        (
            "text_check",
            {"operator": "contains_any", "values": "a\n" * 10_001},
            "values",
            "10,000 is the limit",
        ),
        (
            "text_check",
            {"operator": "regex", "value": "(?:(?:a{100}){100}){3}"},
            None,
            "counted repeats have",
        ),
        ("expected_output", {"match": "vibes"}, "match", "vibes"),
        ("expected_output", {"match": "exact", "name": "a/b"}, "name", "not contain a slash"),
        ("expected_output", {"match": "exact", "weight": "-1"}, "weight", "0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_at_their_field(
    viewer: Client, kind: str, sent: dict[str, str], field: str | None, said: str
) -> None:
    answer = page(viewer, kind, **{"name": "x", "weight": "1", **sent})

    assert answer.status_code == 422
    errors = answer.context["form"].errors
    assert said in " ".join(errors["__all__" if field is None else field])
    assert answer.context["written"] == ""
    # Nothing is stored by this form, so nothing was not saved.
    assert "<strong>Not written.</strong>" in answer.text


def test_a_composite_is_explained_and_not_written_from_a_form(viewer: Client) -> None:
    html = page(viewer, "composite").content.decode()

    assert "safety_gate" in html
    assert "Check and write YAML" not in html


def test_a_setting_of_a_row_with_few_words_is_chosen_from_them(viewer: Client) -> None:
    html = page(viewer, "hybrid_judge").content.decode()

    assert '<select name="dimensions-0-policy"' in html
    assert "<option selected>judge_only</option><option>deterministic_only</option>" in html
    sent = {
        "dimensions-0-key": "task",
        "dimensions-0-policy": "weighted",
        "dimensions-1-key": "tone",
        "dimensions-1-policy": "",
    }
    answer = page(
        viewer,
        "hybrid_judge",
        **{"name": "m", "weight": "1", "samples": "1", "score_from": "judge_overall"},
        **{"checks": "- {contains: refund, dimensions: [tone]}", **sent},
    )
    suite = f"name: s\nevaluators:\n{answer.context['written']}tests: [{{id: A, input: x}}]\n"
    config = suite_files.read_suite(suite.encode()).evaluators.children[0].config
    assert [(one["key"], one["policy"]) for one in config["dimensions"]] == [
        ("task", "weighted"),
        ("tone", "judge_only"),
    ]
    assert config["checks"][0]["value"] == "refund"

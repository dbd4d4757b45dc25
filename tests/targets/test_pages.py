"""Targets: the list, one target, adding and changing."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evaluators.models import AuditEntry
from runs.models.suites import Target
from runs.targets.forms import TargetForm
from tests.support.factories import make_model, make_scored_run, make_suite, make_target

pytestmark = pytest.mark.django_db
NEW = reverse("runs:target-new")


def upload(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("outputs.jsonl", content, content_type="application/jsonl")


def test_recorded_outputs_become_a_target(editor_client: Client) -> None:
    lines = b'{"id": "A", "output": "hi"}\n{"id": "B", "output": "ho"}\n'
    sent = {"name": "agent 1", "description": "old", "file": upload(lines)}
    response = editor_client.post(f"{NEW}?kind=recorded", sent, follow=True)
    page = response.content.decode()
    assert "2, for A, B" in page
    assert Target.objects.get().description == "old"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "A", "output": "hi"}\nnonsense\n', "2"),
        (b'{"output": "hi"}\n', "id"),
        (b"", "empty"),
        (b"\xff\xfe\x00", "1"),
    ],
)
def test_a_broken_file_is_refused_by_line_and_nothing_is_kept(
    editor_client: Client, content: bytes, message: str
) -> None:
    response = editor_client.post(f"{NEW}?kind=recorded", {"name": "x", "file": upload(content)})
    assert response.status_code == 422
    assert message in response.content.decode()
    assert not Target.objects.exists()


def test_a_chat_model_with_its_prompt_becomes_a_target(editor_client: Client) -> None:
    model = make_model(slug="juno-2")
    sent = {
        "name": "juno",
        "model": model.pk,
        "system_prompt": "Be kind.",
        "parameters": '{"temperature": 0}',
        "description": "",
    }
    response = editor_client.post(f"{NEW}?kind=chat", sent, follow=True)
    assert "Be kind." in response.content.decode()
    target = Target.objects.get()
    assert target.config == {"system_prompt": "Be kind.", "parameters": {"temperature": 0}}
    assert AuditEntry.objects.get(action="add").object_name == "juno"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "taken"}, "There is already a target “taken”."),
        ({"model": ""}, "This field is required."),
        ({"parameters": "{"}, "Line 1, character 2, is not JSON"),
        ({"parameters": '{"messages": []}'}, "messages is set by Evalsite"),
        ({"timeout_s": "0"}, "Ensure this value is greater than or equal to 1."),
        ({"timeout_s": "3601"}, "Ensure this value is less than or equal to 3600."),
        ({"timeout_s": "soon"}, "Enter a whole number."),
    ],
)
def test_wrong_settings_are_refused_at_their_field(
    editor_client: Client, changes: dict[str, str], message: str
) -> None:
    make_target(name="taken")
    sent = {"name": "juno", "model": make_model().pk, "system_prompt": "kept", "parameters": "{}"}
    response = editor_client.post(f"{NEW}?kind=chat", sent | changes)
    page = response.content.decode()
    assert response.status_code == 422
    assert message in page
    assert "kept" in page
    assert Target.objects.count() == 1


def test_a_time_out_of_its_own_is_stored_shown_and_taken_away_again(editor_client: Client) -> None:
    sent = {"name": "juno", "model": make_model().pk, "parameters": "{}", "timeout_s": "20"}
    page = editor_client.post(f"{NEW}?kind=chat", sent, follow=True).content.decode()
    target = Target.objects.get()
    assert target.config["timeout_s"] == 20
    assert "<dt>Timeout in seconds</dt><dd>20</dd>" in page

    edit = reverse("runs:target-edit", args=[target.pk])
    assert 'value="20"' in editor_client.get(edit).content.decode()
    editor_client.post(edit, sent | {"timeout_s": ""})
    target.refresh_from_db()
    assert "timeout_s" not in target.config


def test_settings_are_told_in_words_not_in_json(viewer_client: Client) -> None:
    config = {"command": "python3 agent.py", "files": {}, "needs_network": False}
    target = make_target(kind="command", config=config)
    page = viewer_client.get(reverse("runs:target", args=[target.pk])).content.decode()
    assert "<dt>Files</dt><dd>–</dd>" in page
    assert "<dt>Needs the network</dt><dd>no</dd>" in page


def test_an_unknown_kind_is_not_found(editor_client: Client) -> None:
    assert editor_client.get(f"{NEW}?kind=telepathy").status_code == 404


def test_a_change_keeps_what_runs_froze(editor_client: Client) -> None:
    model = make_model()
    target = make_target(name="juno", kind="chat", model=model, config={"system_prompt": "Old."})
    run = make_scored_run(verdicts=["pass"], target=target)
    sent = {"name": "juno 2", "model": model.pk, "system_prompt": "New.", "parameters": "{}"}
    editor_client.post(reverse("runs:target-edit", args=[target.pk]), sent)
    target.refresh_from_db()
    run.refresh_from_db()
    assert (target.name, target.config["system_prompt"]) == ("juno 2", "New.")
    assert run.target_name == "juno"


def test_the_list_and_the_page_show_its_runs(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"], target=make_target(name="agent 1"))
    make_target(name="agent 0")
    listed = viewer_client.get(reverse("runs:target-list")).content.decode()
    assert 0 < listed.index("agent 0") < listed.index("agent 1")
    page = viewer_client.get(reverse("runs:target", args=[run.target_id])).content.decode()
    assert f"#{run.number}" in page
    assert "Change</a>" not in page


def test_a_target_never_run_says_so(viewer_client: Client) -> None:
    page = viewer_client.get(reverse("runs:target", args=[make_target().pk])).content.decode()
    assert "Never run" in page


def test_no_target_yet(viewer_client: Client, editor_client: Client) -> None:
    address = reverse("runs:target-list")
    assert "An editor or admin can add one." in viewer_client.get(address).content.decode()
    assert "Add a target" in editor_client.get(address).content.decode()


def test_a_viewer_may_not_change_targets(viewer_client: Client) -> None:
    assert viewer_client.get(NEW).status_code == 403
    edit = reverse("runs:target-edit", args=[make_target().pk])
    assert viewer_client.get(edit).status_code == 403


def test_a_name_that_somebody_else_got_meanwhile_is_refused(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_target(name="taken")
    monkeypatch.setattr(TargetForm, "clean_name", lambda form: form.cleaned_data["name"])
    sent = {"name": "taken", "model": make_model().pk}
    response = editor_client.post(f"{reverse('runs:target-new')}?kind=chat", sent)
    assert response.status_code == 422
    assert "There is already a target “taken”." in response.text


def listed(client: Client, **query: str) -> list[tuple[str, str]]:
    """Return the targets of the list in its order, each with the suite of its row."""
    table = client.get(reverse("runs:target-list"), query).context["table"]
    return [(row.name, row.record.run.suite_title if row.record else "") for row in table.rows]


def test_the_list_shows_how_each_target_did_on_each_suite(viewer_client: Client) -> None:
    refunds, delivery = make_suite(title="Refunds"), make_suite(title="Delivery")
    good, poor = make_target(name="good"), make_target(name="poor")
    make_target(name="new")
    for _ in range(3):
        make_scored_run(suite=refunds, target=good, verdicts=["pass", "pass", "fail", "pass"])
    make_scored_run(suite=delivery, target=good, verdicts=["pass"])
    make_scored_run(suite=refunds, target=poor, verdicts=["fail", "pass", "fail", "error"])
    assert listed(viewer_client) == [
        ("good", "Delivery"),
        ("good", "Refunds"),
        ("new", ""),
        ("poor", "Refunds"),
    ]
    by_rate = listed(viewer_client, suite=refunds.slug, sort="-rate")
    assert by_rate == [("good", "Refunds"), ("poor", "Refunds")]
    assert listed(viewer_client, suite=refunds.slug, sort="rate") == by_rate[::-1]
    page = viewer_client.get(reverse("runs:target-list"), {"suite": refunds.slug})
    html = " ".join(page.content.decode().split())
    assert "3 of 4" in html
    assert "Best value: good #3, " in html
    assert "per passed result" in html


def test_a_target_shows_its_history_on_each_suite_with_the_best_run_and_a_trend_of_three(
    viewer_client: Client,
) -> None:
    suite, target = make_suite(title="Refunds"), make_target()
    make_scored_run(suite=suite, target=target, verdicts=["pass", "pass"])
    page = reverse("runs:target", args=[target.pk])
    assert viewer_client.get(page).context["page"].history[0].trend is None
    for _ in range(2):
        make_scored_run(suite=suite, target=target, verdicts=["fail", "pass"])
    make_scored_run(suite=make_suite(), target=target, verdicts=["pass"])
    html = viewer_client.get(page)
    other, history = html.context["page"].history
    assert (history.best.number, history.record.runs, len(history.trend.scores)) == (1, 3, 3)
    assert other.trend is None
    assert 'class="spark"' in html.content.decode()


def test_the_list_needs_as_many_queries_for_many_targets(viewer_client: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            viewer_client.get(reverse("runs:target-list"))
        return len(found)

    suite = make_suite()
    make_scored_run(suite=suite, target=make_target(), verdicts=["pass"])
    before = queries()
    for _ in range(3):
        make_scored_run(suite=make_suite(), target=make_target(), verdicts=["pass"])
    assert queries() == before

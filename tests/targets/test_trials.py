"""Trying a target on a case: a worker is asked, and the answer or the classed error comes back."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from kombu.exceptions import OperationalError

from evaluators.model_calls.models import encrypt
from evaluators.models import AuditEntry
from runs import tasks
from runs.execution.reaper import reap
from runs.models.suites import Target
from runs.models.temporary import TargetTrial
from runs.target_kinds import target_kinds
from tests.support.agent_server import AgentServer, echoes, refuses, says
from tests.support.factories import make_case, make_model, make_suite, make_target, make_trial
from tests.support.members import make_client, make_member
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
NEW_TRY = reverse("runs:target-new-try") + "?kind=http"
SECRET = "Bearer t0p-s3cret-value"
FULL = {
    "output": "It is <b>on its way</b>.",
    "steps": [{"name": "look_up", "input": {"id": 7}, "output": "found"}],
    "files": {"note.md": "# Parcel", "b.bin": {"base64": "AAH/"}},
    "usage": {"in": 12, "out": 34},
    "cost": 0.25,
}
PATHS = {
    "output_path": "output",
    "tool_calls_path": "steps",
    "files_path": "files",
    "input_tokens_path": "usage.in",
    "output_tokens_path": "usage.out",
    "cost_path": "cost",
}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have tries queued in a list."""
    queued: list[int] = []

    def send(name: str, *, kwargs: dict[str, int], **options: Any) -> None:
        assert name == "runs.try_target"
        queued.append(kwargs["trial_id"])

    monkeypatch.setattr("evalsite.celery.app.send_task", send)
    return queued


def work() -> str:
    """Carry the last try out as a worker does, and return its fragment."""
    trial = TargetTrial.objects.latest("pk")
    tasks.try_target(trial_id=trial.pk)
    return fragment(trial)


def fragment(trial: TargetTrial) -> str:
    address = reverse("runs:target-trial", args=[trial.pk])
    return make_client(trial.asked_by).get(address).content.decode()


def agent(server: AgentServer, **settings: Any) -> Target:
    return make_target(name="desk", kind="http", config={"url": server.url, **settings})


def try_saved(client: Client, target: Target, **question: str) -> Any:
    sent = {f"try-{name}": value for name, value in question.items()}
    return client.post(reverse("runs:target-try", args=[target.pk]), sent, follow=True)


def unsaved(server: AgentServer, **changes: str) -> dict[str, str]:
    return {
        "name": "",
        "url": server.url,
        "method": "POST",
        "body": '{"q": "{{input}}"}',
        "output_path": "output",
        "timeout_s": "5",
        "tries": "1",
        "concurrency": "1",
        "headers-0-name": "Authorization",
        "headers-0-value": SECRET,
        "headers-0-secret": "on",
        "try-text": "Where is it?",
        **changes,
    }


def test_an_agent_is_asked_by_a_worker_and_the_whole_answer_is_shown(
    editor_client: Client, agent_server: AgentServer, asked: list[int]
) -> None:
    agent_server.behave(then=says(FULL))
    suite = make_suite(slug="support")
    make_case(suite=suite, key="C-7", input=[{"role": "user", "content": "Where?"}])
    target = agent(agent_server, **PATHS)
    page = try_saved(editor_client, target, suite="support", case="C-7").content.decode()
    assert "Waiting for a worker" in page
    assert "Look again" in page
    assert agent_server.asked == []
    assert asked == [TargetTrial.objects.get().pk]
    found = work()
    assert agent_server.asked[0].json == {"input": "Where?"}
    for words in (
        "Answer to C-7",
        "on its way",
        "look_up",
        "note.md",
        "# Parcel",
        "12 in",
        "34 out",
    ):
        assert words in found
    assert "$0.250" in found
    assert "<b>on its way</b>" not in found
    assert "hx-get" not in found
    page = editor_client.get(reverse("runs:target", args=[target.pk])).content.decode()
    assert '<option value="support" selected>' in page
    assert 'value="C-7"' in page


def test_every_try_is_in_the_audit_with_what_it_reached(
    editor_client: Client, agent_server: AgentServer
) -> None:
    try_saved(editor_client, agent(agent_server), text="Where?")
    editor_client.post(NEW_TRY, unsaved(agent_server, name="not yet"))

    unsaved_try, saved_try = AuditEntry.objects.filter(action="try")
    assert saved_try.object_name == "desk"
    assert unsaved_try.object_name == "a target that is not saved"
    assert unsaved_try.actor is not None
    assert unsaved_try.after == {"kind": "http", "method": "POST", "url": agent_server.url}
    page = editor_client.get("/audit/").text
    assert "tried" in page
    assert agent_server.url in page


def test_a_try_is_seen_by_the_member_who_asked_for_it_alone(
    editor_client: Client, agent_server: AgentServer
) -> None:
    try_saved(editor_client, agent(agent_server), text="Where?")
    address = reverse("runs:target-trial", args=[TargetTrial.objects.get().pk])
    assert editor_client.get(address).status_code == 200
    assert make_client(make_member("editor", "other")).get(address).status_code == 404


def test_a_text_of_ones_own_may_be_asked(editor_client: Client, agent_server: AgentServer) -> None:
    try_saved(editor_client, agent(agent_server), text="Just this?")
    assert "Take it back." in work()
    assert agent_server.asked[0].json == {"input": "Just this?"}


def test_a_classed_error_is_shown_with_request_and_reply(
    editor_client: Client, agent_server: AgentServer
) -> None:
    agent_server.behave(then=refuses(503))
    try_saved(editor_client, agent(agent_server, tries=1), text="Hi")
    found = work()
    assert "Server error:" in found
    assert "The agent failed (503)" in found
    assert "no room" in found
    assert agent_server.url in found


def test_paths_that_led_nowhere_are_named(editor_client: Client, agent_server: AgentServer) -> None:
    target = agent(agent_server, output_path="output", cost_path="price.usd")
    try_saved(editor_client, target, text="Hi")
    assert "Cost in US dollars (price.usd)" in work()


def test_settings_that_are_not_saved_can_be_tried_and_secrets_typed_once(
    editor_client: Client, agent_server: AgentServer
) -> None:
    agent_server.behave(then=echoes())
    page = editor_client.post(NEW_TRY, unsaved(agent_server)).content.decode()
    assert "Waiting for a worker" in page
    assert "with settings that are not saved" in page
    assert "s3cret" not in page
    assert "Stored; type to replace it" in page
    number = re.search(r'name="trial" value="(\d+)"', page)
    assert number is not None
    found = work()
    assert agent_server.asked[0].headers["Authorization"] == SECRET
    assert "[secret]" in found
    assert "s3cret" not in found

    # Without JavaScript the page is asked to look again, and what was typed stays.
    again = unsaved(agent_server, **{"headers-0-value": "", "trial": number[1], "look": "1"})
    page = editor_client.post(NEW_TRY, again).content.decode()
    assert "Answer to a text of your own" in page
    assert TargetTrial.objects.count() == 1

    saved = unsaved(agent_server, **{"headers-0-value": "", "trial": number[1], "name": "desk"})
    editor_client.post(reverse("runs:target-new") + "?kind=http", saved)
    target = Target.objects.get(name="desk")
    try_saved(editor_client, target, text="Hi")
    work()
    assert agent_server.asked[1].headers["Authorization"] == SECRET


def test_secrets_typed_for_a_try_are_nobody_elses(
    editor_client: Client, admin_client: Client, agent_server: AgentServer
) -> None:
    editor_client.post(NEW_TRY, unsaved(agent_server))
    number = str(TargetTrial.objects.get().pk)
    theirs = unsaved(agent_server, **{"headers-0-value": "", "trial": number})
    response = admin_client.post(NEW_TRY, theirs)
    assert response.status_code == 422
    assert "is secret and has no value yet" in response.content.decode()


def test_a_stored_secret_cannot_be_tried_at_another_server(
    editor_client: Client, agent_server: AgentServer
) -> None:
    target = make_target(
        name="desk",
        kind="http",
        config={
            "url": "https://agent.example/ask",
            "headers": [{"name": "Authorization", "secret": True}],
        },
        encrypted_secrets={"authorization": encrypt(SECRET)},
    )
    sent = unsaved(agent_server, **{"headers-0-value": ""})
    response = editor_client.post(reverse("runs:target-edit-try", args=[target.pk]), sent)
    assert response.status_code == 422
    assert "was entered for https://agent.example" in response.content.decode()
    assert not TargetTrial.objects.exists()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "Choose a suite, or write a text of your own."),
        ({"suite": "support", "case": "nope"}, "has no case “nope”"),
        ({"suite": "empty"}, "has no cases"),
        ({"suite": "gone"}, "Select a valid choice"),
    ],
)
def test_a_question_about_nothing_is_refused(
    editor_client: Client, agent_server: AgentServer, question: dict[str, str], message: str
) -> None:
    make_case(suite=make_suite(slug="support"), key="C-1")
    make_suite(slug="empty")
    response = try_saved(editor_client, agent(agent_server), **question)
    assert response.status_code == 422
    assert message in response.content.decode()


def test_wrong_settings_are_not_tried(editor_client: Client, agent_server: AgentServer) -> None:
    response = editor_client.post(NEW_TRY, unsaved(agent_server, body="{"))
    page = response.content.decode()
    assert response.status_code == 422
    assert "is not JSON" in page
    assert not TargetTrial.objects.exists()


def test_a_try_that_is_refused_hides_the_answer_to_earlier_settings(
    editor_client: Client, agent_server: AgentServer
) -> None:
    agent_server.behave(then=says(FULL))
    editor_client.post(NEW_TRY, unsaved(agent_server))
    work()
    number = str(TargetTrial.objects.get().pk)
    shown = editor_client.post(NEW_TRY, unsaved(agent_server, trial=number, look="1")).text
    assert 'id="target-trial"' in shown
    page = editor_client.post(NEW_TRY, unsaved(agent_server, trial=number, body="{")).text
    assert "<strong>Not tried.</strong>" in page
    assert "Not saved." not in page
    assert 'id="target-trial"' not in page
    # What was typed once for the first try is still at hand.
    assert f'name="trial" value="{number}"' in page


def test_a_chat_model_is_tried_too(editor_client: Client, model_server: ModelServer) -> None:
    model = make_model(slug="juno", base_url=model_server.base_url)
    target = make_target(kind="chat", model=model, config={"system_prompt": "Be kind."})
    try_saved(editor_client, target, text="Hello?")
    found = work()
    assert "A good answer." in found
    assert "Be kind." in found
    assert [turn["content"] for turn in model_server.chats[0].body["messages"]] == [
        "Be kind.",
        "Hello?",
    ]


def test_recorded_outputs_are_tried_by_their_case(editor_client: Client) -> None:
    suite = make_suite(slug="support")
    make_case(suite=suite, key="C-1", recorded_output={"output": "Said before."})
    target = make_target(kind="recorded")
    try_saved(editor_client, target, suite="support")
    assert "Said before." in work()
    try_saved(editor_client, target, text="Unheard of")
    assert "Nothing recorded:" in work()
    form = editor_client.get(reverse("runs:target-new") + "?kind=recorded").content.decode()
    assert "Try it on a case" not in form
    page = editor_client.get(reverse("runs:target", args=[target.pk])).content.decode()
    assert "nothing is charged" in page
    assert "real request" not in page
    pushed = reverse("runs:target", args=[make_target(kind="pushed").pk])
    assert "Try it on a case" not in editor_client.get(pushed).content.decode()


def test_who_waits_is_told_when_no_worker_comes(editor_client: Client, editor: User) -> None:
    trial = make_trial(target=make_target(kind="recorded"), asked_by=editor)
    assert "Waiting for a worker" in fragment(trial)
    assert "hx-get" in fragment(trial)
    for waited, words in (
        (timedelta(seconds=20), "No worker has started this trial yet."),
        (timedelta(minutes=7), "The trial did not finish."),
    ):
        TargetTrial.objects.update(asked_at=timezone.now() - waited)
        assert words in fragment(trial)


def test_a_try_is_carried_out_once(editor: User, agent_server: AgentServer) -> None:
    trial = make_trial(target=agent(agent_server), asked_by=editor)
    tasks.try_target(trial_id=trial.pk)
    tasks.try_target(trial_id=trial.pk)
    tasks.try_target(trial_id=0)
    assert len(agent_server.asked) == 1


def test_settings_that_nobody_can_read_any_more_end_the_try_with_a_reason(editor: User) -> None:
    trial = make_trial(target=make_target(kind="http", config={"gone": 1}), asked_by=editor)
    tasks.try_target(trial_id=trial.pk)
    found = fragment(trial)
    assert "Target failed:" in found
    assert "gone" in found


def test_a_broker_that_is_away_is_told_and_nothing_waits(
    editor_client: Client, agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OperationalError

    monkeypatch.setattr("evalsite.celery.app.send_task", refuse)
    response = try_saved(editor_client, agent(agent_server), text="Hi")
    assert "the message broker does not answer" in response.content.decode()
    assert not TargetTrial.objects.exists()


def test_tries_are_forgotten_after_a_day_with_the_secrets_typed_for_them(
    editor: User, agent_server: AgentServer
) -> None:
    trial = make_trial(target=agent(agent_server), asked_by=editor, encrypted_secrets={"x": "y"})
    reap(now=timezone.now() + timedelta(hours=23))
    assert TargetTrial.objects.filter(pk=trial.pk).exists()
    reap(now=timezone.now() + timedelta(hours=25))
    assert not TargetTrial.objects.exists()


def test_cases_are_offered_by_id_and_title(editor_client: Client) -> None:
    suite = make_suite(slug="support")
    make_case(suite=suite, key="RF-1", title="A late parcel")
    make_case(suite=suite, key="RF-2", title="A wrong <size>")
    address = reverse("runs:target-try-cases")
    page = editor_client.get(address, {"try-suite": "support", "try-case": "size"}).content.decode()
    assert '<option value="RF-2">A wrong &lt;size&gt;</option>' in page
    assert "RF-1" not in page
    assert "RF-1" in editor_client.get(address, {"try-suite": "support"}).content.decode()
    assert editor_client.get(address).content.decode().strip() == ""


def test_viewers_see_no_place_to_try(viewer_client: Client, agent_server: AgentServer) -> None:
    target = agent(agent_server)
    page = viewer_client.get(reverse("runs:target", args=[target.pk])).content.decode()
    assert "Try it on a case" not in page
    assert try_saved(viewer_client, target, text="Hi").status_code == 403


def test_a_program_is_tried_only_where_scripts_are_switched_on(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SCRIPTS", False)
    kind = next(one for one in target_kinds().values() if one.uses_sandbox)
    target = make_target(kind=kind.name, config={"command": "python3 agent.py"})
    response = try_saved(editor_client, target, text="Hi")
    assert response.status_code == 422
    assert "scripts are switched off" in response.content.decode()
    form = editor_client.get(reverse("runs:target-new") + f"?kind={kind.name}").content.decode()
    assert "scripts are switched off" in form


def test_the_pages_cost_a_fixed_number_of_queries(
    admin: User, agent_server: AgentServer, django_assert_max_num_queries: Any
) -> None:
    target = agent(agent_server)
    client = make_client(make_member("editor", "counting"))
    suite = make_suite(slug="support")
    for number in range(30):
        make_case(suite=suite, key=f"C-{number}", position=number)
        make_trial(target=target, asked_by=admin)
    with django_assert_max_num_queries(14):
        client.get(reverse("runs:target", args=[target.pk]))
    with django_assert_max_num_queries(9):
        client.get(reverse("runs:target-edit", args=[target.pk]))
    with django_assert_max_num_queries(8):
        client.get(reverse("runs:target-trial", args=[TargetTrial.objects.latest("pk").pk]))

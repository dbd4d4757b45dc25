"""Trying one evaluator of a draft on an output: the form, the dry run, and what a worker brings back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.model_calls.models import encrypt
from evaluators.model_calls.rate_limits import UnsharedLimits
from evaluators.models import AuditEntry, LanguageModel, SlotLease
from evaluators.templatetags.figures import thousands
from runs import tasks
from runs.execution import shared_limits, trials
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.models.results import ModelCall
from runs.models.runs import Run
from runs.models.suites import Case, Suite, Target
from runs.models.temporary import EvaluatorTrial
from runs.suites.drafts import change_draft, get_draft
from runs.suites.edits import Configure
from tests.support.agent_server import AgentServer, says
from tests.support.factories import (
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)
from tests.support.members import make_client, make_member
from tests.support.model_server import ModelServer, good, hang, malformed, prose, rate_limited
from tests.support.trees import CHECK, JUDGED, LEAF, tree

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
OPINION = {"reasoning": "It names the days.", "hits": ["Names them"], "misses": [], "score": 0.7}
SCRIPT = {**LEAF, "name": "own", "kind": "script", "config": {"command": ["python3", "look.py"]}}
ROOT, FIRST, SECOND = "n1", "n2", "n3"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have tries queued in a list, and their models to themselves."""
    queued: list[int] = []

    def send(name: str, *, kwargs: dict[str, int], **options: Any) -> None:
        assert name == "runs.try_evaluator"
        queued.append(kwargs["trial_id"])

    monkeypatch.setattr("evalsite.celery.app.send_task", send)
    monkeypatch.setattr(trials, "SlotKeeper", lambda *own: UnsharedLimits(time.monotonic))
    return queued


@pytest.fixture
def shares_limits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let tries agree with others about their models as run workers do, and keep what they ask for."""
    asked: list[Any] = []

    def agree(*told: Any) -> Any:
        asked.append(told)
        return slots_agree(*told)

    slots_agree = shared_limits.agree
    monkeypatch.setattr(trials, "SlotKeeper", shared_limits.SlotKeeper)
    monkeypatch.setattr(shared_limits, "agree", agree)
    return asked


@pytest.fixture
def judge(model_server: ModelServer) -> LanguageModel:
    """Give the judge that the server answers for, at 1,000 and 5,000 dollars a million tokens."""
    model_server.behave(then=good(OPINION))
    return make_model(
        slug="juno",
        name="Juno",
        base_url=model_server.base_url,
        timeout_s=10,
        send_trace_headers=True,
        input_price_usd_per_mtok=1000,
        output_price_usd_per_mtok=5000,
    )


def suite_with(*nodes: Mapping[str, Any], judge: LanguageModel | None = None, **more: Any) -> Suite:
    """Make a suite whose case C-1 has a result in run #1: “Your refund takes 5 days”."""
    suite = make_suite(slug="support", tree=tree(*nodes, **more), judge=judge)
    case = make_case(
        suite=suite,
        key="C-1",
        input=[{"role": "user", "content": "Where is my money?"}],
        expected_output="Five days.",
    )
    run = make_run(suite=suite)
    output = {"text": "Your refund takes 5 days.", "usage": {}}
    make_result(run=run, case=case, verdict="borderline", score=0.7, output=output)
    return suite


def address(node: str = FIRST) -> str:
    return reverse("runs:evaluator-try", args=["support", node])


def ask(client: Client, node: str = FIRST, *, dry: bool = False, **fields: str) -> Any:
    given = {"source": "stored", "run": "1", "case": "C-1", "once": str(uuid4())} | fields
    sent = {f"try-{name}": value for name, value in given.items()}
    return client.post(address(node), sent | {"dry" if dry else "try": "1"})


def paste(client: Client, output: str, node: str = FIRST, **fields: str) -> Any:
    return ask(client, node, source="pasted", output=output, **fields)


def work(node: str = FIRST) -> str:
    """Carry the last try out as a worker does, and return its fragment."""
    trial = EvaluatorTrial.objects.latest("pk")
    tasks.try_evaluator(trial_id=trial.pk)
    return fragment(trial)


def fragment(trial: EvaluatorTrial) -> str:
    place = reverse("runs:evaluator-trial", args=["support", trial.node, trial.pk])
    return make_client(trial.asked_by).get(place).content.decode()


def dry(client: Client, node: str = FIRST, **fields: str) -> str:
    """LimitRequest for a dry run, have a worker make it, and return what it shows."""
    assert ask(client, node, dry=True, **fields).status_code == 302
    return unescape(work())


def test_a_judge_is_asked_by_a_worker_and_its_whole_answer_is_shown(
    editor_client: Client, judge: LanguageModel, model_server: ModelServer, asked: list[int]
) -> None:
    suite_with(JUDGED, judge=judge)
    page = editor_client.get(address()).content.decode()
    assert "up to 1 call of juno" in page
    assert 'value="C-1"' in page
    response = ask(editor_client)
    assert response.status_code == 302
    page = editor_client.get(response.url).content.decode()
    assert "Waiting for a worker" in page
    assert "Look again" in page
    assert asked == [EvaluatorTrial.objects.get().pk]
    assert not model_server.chats
    found = work()
    for words in (
        "On ",
        "run #1",
        "0.70",
        "Borderline",
        "It names the days.",
        "Names them",
        "100 in, 20 out",
        "$0.200",
        "not part of any run",
        "juno",
        "Where is my money?",
        "chatcmpl-1",
    ):
        assert words in found, words
    assert "hx-get" not in found
    assert model_server.chats[0].trace("Evaluator") == "right"
    assert not ModelCall.objects.exists()
    trial = EvaluatorTrial.objects.get()
    assert str(trial.cost_usd).startswith("0.2")


def test_what_a_dry_run_shows_is_sent_byte_for_byte(
    editor_client: Client,
    judge: LanguageModel,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The marks around quoted texts are random; here they are always the same.
    monkeypatch.setattr("evaluators.model_calls.judge.secrets.token_hex", lambda size: "5eal" * 4)
    panel = {
        **LEAF,
        "name": "panel",
        "kind": "deliberation",
        "config": {"judges": 2, "rounds": 1, "criteria": "Kind?"},
    }
    sampled = {**JUDGED, "config": {"prompt": "Is it right?", "samples": 3}}
    suite_with(sampled, panel, judge=judge)
    model_server.on_evaluator("panel", good())
    shown = dry(editor_client, ROOT)
    bodies = [one["body"] for one in EvaluatorTrial.objects.get().outcome["requests"]]
    assert not model_server.chats
    ask(editor_client, ROOT)
    work()
    sent = [json.dumps(request.body) for request in model_server.chats]
    assert set(bodies) == set(sent)
    for request in model_server.chats:
        for message in request.body["messages"]:
            assert message["content"] in shown
    assert "<<<5eal5eal5eal5eal" in shown
    assert "json_schema" in shown
    assert "3 times the same question" in shown
    assert "of up to 4: more calls depend on the replies" in shown


def test_a_dry_run_costs_nothing_and_needs_no_key(
    editor_client: Client, judge: LanguageModel, model_server: ModelServer
) -> None:
    LanguageModel.objects.update(key_variable="NOT_SET_KEY", requests_per_minute=1)
    gate = {"type": "safety_gate", "required": ["mentions_refund"]}
    config = {"operator": "contains", "value": "never said"}
    suite_with({**CHECK, "config": config}, JUDGED, judge=judge, aggregator=gate)
    page = dry(editor_client, ROOT)
    # The gate would keep the judge from being asked; a dry run shows what it would be asked all the same.
    assert "Where is my money?" in page
    assert "in, $" in page
    _, _, scored = page.partition("Scored without a call")
    assert "mentions_refund" in scored
    assert "right" not in scored
    assert not model_server.requests
    assert EvaluatorTrial.objects.get().cost_usd == 0


def test_what_asks_nobody_is_scored_by_the_dry_run_itself(editor_client: Client) -> None:
    suite_with(CHECK)
    page = dry(editor_client)
    assert "This output needs no calls" in page
    assert "1.00" in page
    page = dry(editor_client, source="pasted", output="No money back.")
    assert "0.00" in page
    tries = AuditEntry.objects.filter(action="try", object_type="evaluator")
    assert [entry.after["dry"] for entry in tries] == [True, True]


def test_a_target_that_judges_is_shown_and_asked_alike(
    editor_client: Client, agent_server: AgentServer
) -> None:
    header = {"name": "Authorization", "secret": True}
    make_target(
        name="desk",
        kind="http",
        config={"url": agent_server.url, "output_path": "output", "headers": [header]},
        encrypted_secrets={"authorization": encrypt("Bearer t0p-s3cret-value")},
    )
    config = {"agent": "desk", "criteria": "Is it right?", "scale": 1}
    suite_with({**LEAF, "name": "peer", "kind": "agent_judge", "config": config})
    shown = dry(editor_client)
    assert "Is it right?" in shown
    assert agent_server.url in shown
    assert "s3cret" not in shown
    assert not agent_server.asked
    opinion = json.dumps(OPINION)
    agent_server.behave(then=says({"output": opinion}))
    ask(editor_client)
    found = work()
    assert "0.70" in found
    assert "s3cret" not in found
    assert len(agent_server.asked) == 1
    make_target(name="gone", kind="http", archived_at=timezone.now())
    Target.objects.filter(name="desk").update(archived_at=timezone.now())
    response = ask(editor_client)
    assert response.status_code == 422
    assert "is archived" in response.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_try_holds_to_the_limits_that_runs_hold_to(
    editor_client: Client,
    judge: LanguageModel,
    model_server: ModelServer,
    shares_limits: list[Any],
) -> None:
    model_server.behave(rate_limited(), then=good(OPINION))
    suite_with({**JUDGED, "config": {"prompt": "Right?", "samples": 2}}, judge=judge)
    ask(editor_client)
    found = work()
    assert "0.70" in found
    assert "Rate limited 429" in found
    assert {model_id for model_id, *_ in shares_limits} == {judge.pk}
    judge.refresh_from_db()
    assert judge.throttle.is_known
    assert not SlotLease.objects.exists()


def test_settings_of_the_draft_are_tried_before_they_are_saved(
    editor: User, editor_client: Client
) -> None:
    suite = suite_with(CHECK)
    draft = get_draft(suite, editor)
    kept = change_draft(
        draft, draft.stamp, Configure(FIRST, {"operator": "contains", "value": "days"})
    )
    paste(editor_client, "In 5 days.")
    found = work()
    assert "1.00" in found
    assert "settings changed since" not in found
    change_draft(kept, kept.stamp, Configure(FIRST, {"operator": "contains", "value": "weeks"}))
    assert "settings changed since" in fragment(EvaluatorTrial.objects.get())


@pytest.mark.parametrize(
    ("behaviours", "words"),
    [
        ([rate_limited(retry_after="3600")], ("Unscored", "Rate limited 429", "slow down")),
        ([malformed()], ("Unscored", "not readable")),
        ([prose(), good(OPINION)], ("1 repair", "0.70", "$0.400")),
        ([good("I will not say.")], ("Unscored", "Answered, not readable", "1 repair")),
        (
            [good({**OPINION, "reasoning": "<script>alert(1)</script>\x00"})],
            ("&lt;script&gt;alert(1)",),
        ),
    ],
)
def test_what_a_judge_does_wrong_is_shown_and_never_counts_as_0(
    editor_client: Client,
    judge: LanguageModel,
    model_server: ModelServer,
    behaviours: list[Any],
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "evaluators.model_calls.limit_policy.Retries.wait_s", lambda *one, **two: None
    )
    model_server.behave(*behaviours[:-1], then=behaviours[-1])
    suite_with(JUDGED, judge=judge)
    ask(editor_client)
    found = work()
    for said in words:
        assert said in found, said
    assert "<script>" not in found
    assert ">0.00<" not in found


def test_a_judge_that_hangs_ends_the_try_at_its_limit(
    editor_client: Client,
    judge: LanguageModel,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "MAX_S", 2)
    model_server.behave(then=hang())
    suite_with(JUDGED, judge=judge)
    ask(editor_client)
    found = work()
    assert "It took longer than 2 s" in found
    assert "Stopped before the answer came" in found


def test_a_missing_judge_is_named_before_and_after(editor_client: Client) -> None:
    suite_with(JUDGED)
    assert "Missing: a judge" in editor_client.get(address()).content.decode()
    ask(editor_client)
    assert "no judge is chosen" in work()


def test_a_whole_composite_is_tried_and_drawn_as_a_result_draws_it(
    editor_client: Client, judge: LanguageModel
) -> None:
    inner = {**tree(JUDGED, CHECK), "name": "answer"}
    suite_with(inner, judge=judge)
    ask(editor_client, SECOND.replace("3", "2"))
    found = work()
    assert "answer" in found
    assert "mentions_refund" in found
    assert "0.85" in found
    assert "Pass" in found


def test_kinds_say_what_they_need_and_take_a_pasted_trace(editor_client: Client) -> None:
    config = {"mode": "any_order", "minimums": {"look_up": 1}}
    calls = {**LEAF, "name": "calls", "kind": "tool_trajectory", "config": config}
    suite_with(calls)
    page = editor_client.get(address()).content.decode()
    assert "a trace (calls)" in page
    page = dry(editor_client, source="pasted", output="Done.")
    assert "reports no trace" in page
    steps = '[{"type": "tool", "name": "look_up", "input": {"id": 7}}]'
    page = dry(editor_client, source="pasted", output="Done.", trace=steps)
    assert "1.00" in page


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output": ""}, "Paste the output to score."),
        (
            {"output": "x" * (5 * 2**20)},
            f"{thousands(5 * 2**20)} characters long; {thousands(10**6)} is the limit",
        ),
        ({"output": "nul \x00"}, "Null characters are not allowed"),
        ({"output": "fine", "case": "gone"}, "The suite has no case “gone”."),
        ({"output": "fine", "trace": "{"}, "This is not a trace"),
        ({"output": "fine", "trace": '[{"type": "tool"}]'}, "not a step with type and name"),
        ({"output": "fine", "trace": "[" * 100_000}, "nested too deeply"),
        (
            {"output": "fine", "trace": '[{"type":"tool","name":"a","input":1e999}]'},
            "1e999 is not a finite number",
        ),
        ({"source": "stored", "case": "C-9"}, "Run #1 has no repetition 1 of “C-9”."),
        ({"source": "stored", "run": "7"}, "Select a valid choice"),
        ({"source": "stored", "repetition": "99999999999"}, "less than or equal to"),
        ({"source": "air"}, "Select a valid choice"),
        ({"once": "again"}, "valid UUID"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_words(
    editor_client: Client, fields: dict[str, str], message: str
) -> None:
    suite_with(CHECK)
    response = ask(editor_client, **({"source": "pasted"} | fields))
    page = response.content.decode()
    assert response.status_code == 422
    assert message in unescape(page)
    assert len(page) < 200_000
    assert not EvaluatorTrial.objects.exists()


def test_one_try_at_a_time_and_a_form_sent_twice_asks_once(
    editor_client: Client, judge: LanguageModel, asked: list[int]
) -> None:
    suite_with(JUDGED, judge=judge)
    once = str(uuid4())
    assert [ask(editor_client, once=once).status_code for _ in range(2)] == [302, 302]
    assert len(asked) == 1
    response = ask(editor_client)
    assert response.status_code == 422
    assert "You have a trial of right in Suite support in progress." in response.content.decode()
    work()
    assert ask(editor_client, once=once).status_code == 302
    assert len(asked) == 1
    assert ask(editor_client).status_code == 302
    assert len(asked) == 2


def test_a_try_whose_worker_was_lost_is_told_and_can_be_made_again(
    editor_client: Client, asked: list[int]
) -> None:
    suite_with(CHECK)
    ask(editor_client)
    trial = EvaluatorTrial.objects.get()
    for waited, words in (
        (timedelta(seconds=20), "No worker has started this trial yet."),
        (timedelta(minutes=7), "The trial did not finish."),
    ):
        EvaluatorTrial.objects.update(asked_at=timezone.now() - waited)
        assert words in fragment(trial)
    assert ask(editor_client).status_code == 302
    trial.refresh_from_db()
    assert trial.state == "lost"
    tasks.try_evaluator(trial_id=trial.pk)
    assert "The trial did not finish." in fragment(trial)
    second = EvaluatorTrial.objects.latest("pk")
    assert second.begin()
    assert not second.begin()
    reap(now=timezone.now() + timedelta(minutes=7))
    second.refresh_from_db()
    assert second.state == "lost"
    reap(now=timezone.now() + timedelta(hours=25))
    assert not EvaluatorTrial.objects.exists()


@pytest.mark.each_database
def test_a_try_is_not_lost_because_clocks_of_machines_differ(
    editor_client: Client, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite_with(CHECK)
    now = timezone.now
    with monkeypatch.context() as this_machine:
        if connection.vendor == "postgresql":
            this_machine.setattr(timezone, "now", lambda: now() - timedelta(hours=1))
        ask(editor_client)
        trial = EvaluatorTrial.objects.get()
        reap(now=database_now())
        assert "Waiting" in fragment(trial)
        assert trial.begin()
    reap(now=database_now())
    trial.refresh_from_db()
    assert trial.state == "running"


def test_an_error_of_our_own_ends_the_try_with_a_reason(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite_with(CHECK)
    ask(editor_client)
    monkeypatch.setattr(trials, "trial_work", lambda trial: 1 / 0)
    assert "ZeroDivisionError" in work()


def test_a_broker_that_is_away_is_told_and_nothing_waits(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError

    monkeypatch.setattr("evalsite.celery.app.send_task", refuse)
    suite_with(CHECK)
    response = ask(editor_client)
    assert response.status_code == 422
    assert "the message broker does not answer" in response.content.decode()
    assert not EvaluatorTrial.objects.exists()


def test_scripts_are_tried_only_with_switch_and_right_and_shown_dry_to_every_editor(
    editor: User, editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite_with(SCRIPT)
    monkeypatch.setattr(settings, "SCRIPTS", True)
    response = ask(editor_client)
    assert response.status_code == 403
    assert "you may not run scripts" in response.content.decode()
    page = dry(editor_client)
    assert '"look.py"' in page
    assert "EVAL_EXPECTED_OUTPUT=Five days." in page
    assert ".evalsite/output" in page
    monkeypatch.setattr(settings, "SCRIPTS", False)
    response = ask(make_client(make_member("admin", "root")))
    assert response.status_code == 422
    assert "scripts are switched off" in response.content.decode()
    assert EvaluatorTrial.objects.get().is_dry


def test_an_archived_suite_an_unknown_evaluator_and_others_are_kept_out(
    editor_client: Client, viewer_client: Client
) -> None:
    suite_with(CHECK)
    assert editor_client.get(address("n99")).status_code == 404
    assert viewer_client.get(address()).status_code == 403
    assert ask(viewer_client).status_code == 403
    ask(editor_client)
    trial = EvaluatorTrial.objects.get()
    place = reverse("runs:evaluator-trial", args=["support", FIRST, trial.pk])
    assert make_client(make_member("editor", "another")).get(place).status_code == 404
    Suite.objects.update(archived_at=timezone.now())
    assert "The suite is archived." in editor_client.get(address()).content.decode()
    for is_dry in (True, False):
        response = ask(editor_client, dry=is_dry)
        assert response.status_code == 422
        assert "Restore it" in response.content.decode()


def test_the_form_begins_with_the_latest_borderline_result(editor_client: Client) -> None:
    suite = suite_with(CHECK)
    second = make_run(suite=suite)
    for number, verdict in enumerate(("pass", "borderline"), start=2):
        case = make_case(suite=suite, key=f"C-{number}", position=number)
        make_result(run=second, case=case, verdict=verdict, score=0.7, output={"text": "x"})
    page = editor_client.get(address()).content.decode()
    assert 'value="C-3"' in page
    assert '<option value="2" selected>' in page
    Run.objects.all().delete()
    page = editor_client.get(address()).content.decode()
    assert 'value="pasted"' in page
    assert 'value="C-1"' in page
    assert Case.objects.filter(suite=suite).exists()


def test_the_pages_cost_a_fixed_number_of_queries(
    editor_client: Client, django_assert_max_num_queries: Any
) -> None:
    suite = suite_with(CHECK)
    for number in range(20):
        make_run(suite=suite)
        make_case(suite=suite, key=f"D-{number}", position=number)
    ask(editor_client)
    work()
    with django_assert_max_num_queries(18):
        editor_client.get(address())

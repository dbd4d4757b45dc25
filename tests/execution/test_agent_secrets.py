"""Secrets of targets: sent to their agents, kept in no record."""

from __future__ import annotations

import base64
import json

import pytest

from evaluators.model_calls.calls import CallOutcome
from runs.engine.ports import Cause
from runs.execution.target_secrets import TargetSecrets
from tests.support.agent_calls import Asking
from tests.support.agent_server import AgentServer, echoes, says, sends


def test_the_ledger_keeps_request_and_reply_without_the_secret(agent_server: AgentServer) -> None:
    agent_server.behave(then=echoes())
    asking = Asking(agent_server.url, headers=[{"name": "Authorization", "secret": True}])
    output = asking.once()
    (record,) = asking.records
    assert record.status is CallOutcome.OK
    assert record.request["headers"] == {"Authorization": "[secret]"}
    assert "[secret]" in output.text
    for kept in (repr(record), repr(output), repr(asking.secrets)):
        assert "s3cr3t" not in kept
        assert "with-slash" not in kept


ODD = "Bearer p+q/r=s&t'<u>w-xyz"
PLUS = "p\\u002Bq\\u002fr=s&t'<u>w-xyz"


@pytest.mark.parametrize(
    "sent",
    [
        f'{{"output": "it is {PLUS}"}}',
        f'{{"output": {{"{PLUS}": 1}}}}',
        f'{{"output": "x", "messages": [{{"role": "assistant", "content": "{PLUS}"}}]}}',
        f'{{"output": "x", "steps": [{{"name": "{PLUS}", "error": "{PLUS}"}}]}}',
        f'{{"output": "x", "steps": [{{"name": "a", "input": {{"{PLUS}": ["{PLUS}"]}}}}]}}',
        json.dumps({"output": "x", "steps": [{"name": "a", "input": f'{{"a": "{PLUS}"}}'}]}),
        f'{{"output": "x", "files": {{"{PLUS}.md": "{PLUS}"}}}}',
        f'{{"no output": "{PLUS}"}}',
        f'{{"{PLUS}": "no output"}}',
    ],
)
@pytest.mark.parametrize("status", [200, 400])
def test_a_secret_that_json_spells_otherwise_is_kept_nowhere(
    agent_server: AgentServer, sent: str, status: int
) -> None:
    agent_server.behave(then=sends(sent.encode(), status=status))
    asking = Asking(
        agent_server.url,
        headers=[{"name": "Authorization", "secret": True}],
        messages_path="messages",
        tool_calls_path="steps",
        files_path="files",
    )
    asking.secrets = TargetSecrets({"authorization": ODD}, {})
    found = asking.once()
    (record,) = asking.records
    kept = f"{found!r} {record!r}"
    assert "[secret]" in kept
    for part in ("p+q", "002B", "002b", "w-xyz"):
        assert part not in kept
    asking.earlier = record
    assert "p+q/r=" not in repr(asking.once())


def test_a_secret_in_two_halves_is_redacted_where_they_are_joined(
    agent_server: AgentServer,
) -> None:
    halves = [{"type": "text", "text": half} for half in (ODD[:15], ODD[15:])]
    agent_server.behave(then=says({"output": halves}))
    asking = Asking(agent_server.url, headers=[{"name": "Authorization", "secret": True}])
    asking.secrets = TargetSecrets({"authorization": ODD}, {})
    assert asking.once().text == "[secret]"


def test_the_password_of_basic_authentication_is_redacted_too(
    agent_server: AgentServer,
) -> None:
    packed = base64.b64encode(b"desk:0pen-sesame").decode()
    agent_server.behave(then=says({"output": f"you are desk, 0pen-sesame, {packed}"}))
    asking = Asking(agent_server.url, headers=[{"name": "Authorization", "secret": True}])
    asking.secrets = TargetSecrets({"authorization": f"Basic {packed}"}, {})
    assert asking.once().text == "you are desk, [secret], [secret]"


def test_a_secret_that_cannot_be_had_sends_nothing(agent_server: AgentServer) -> None:
    asking = Asking(agent_server.url)
    asking.secrets = TargetSecrets(problem="The secret header X has no value stored.")
    failure = asking.once()
    assert (failure.cause, failure.reason) == (Cause.REFUSED, asking.secrets.problem)
    assert agent_server.asked == []

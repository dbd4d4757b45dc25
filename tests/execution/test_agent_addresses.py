"""Where agents are called: names looked up anew, and addresses that are refused."""

from __future__ import annotations

import socket
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from evalsite.env import Environment
from evaluators.model_calls.calls import CallOutcome
from runs.engine.ports import Cause
from tests.support.agent_calls import Asking
from tests.support.agent_server import AgentServer


class Names(AbstractResolver):
    """Names that lead where the test says, one answer after the other."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if not self.answers:
            raise OSError("no such host")
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in addresses.split()
        ]

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "0.0.0.0",
        "100.100.100.200",
        "127.0.0.1 169.254.169.254",
    ],
)
def test_a_name_that_leads_to_a_refused_address_is_refused(address: str) -> None:
    asking = Asking("http://agent.example:8000/ask", Names(address))
    failure = asking.once()
    assert failure.cause is Cause.REFUSED
    assert "agent.example has this address" in failure.reason
    assert asking.records[0].status is CallOutcome.REFUSED


def test_of_several_addresses_those_that_are_open_are_called(
    agent_server: AgentServer, settings: Any
) -> None:
    port = agent_server.url.rsplit(":", 1)[1]
    settings.TARGET_NETWORKS = [ip_network("127.0.0.1")]

    answer = Asking(f"http://localhost:{port}", Names("::1 127.0.0.1")).once()
    closed = Asking(f"http://localhost:{port}", Names("::1 10.0.0.7")).once()

    assert answer.text == "Take it back."
    assert closed.cause is Cause.REFUSED
    assert "localhost has this address: ::1 is in a private network" in closed.reason


def test_a_name_is_looked_up_anew_and_what_was_checked_is_what_is_called(
    agent_server: AgentServer,
) -> None:
    port = agent_server.url.rsplit(":", 1)[1]
    names = Names("127.0.0.1", "169.254.169.254")
    asking = Asking(f"http://agent.example:{port}", names)
    first, second = asking.once(), asking.once()
    assert first.text == "Take it back."
    assert second.cause is Cause.REFUSED
    assert len(agent_server.asked) == 1


def test_a_name_that_nobody_knows_is_no_connection() -> None:
    failure = Asking("http://agent.example/ask", Names(), tries=1).once()
    assert failure.cause is Cause.CONNECTION


@pytest.mark.parametrize("host", ["2852039166", "0xa9fea9fe", "169.254.169.254", "[fe80::1]"])
def test_an_address_that_got_into_stored_settings_is_refused_too(host: str) -> None:
    asking = Asking("http://agent.example/ask", tries=1)
    asking.config = asking.config.model_copy(update={"url": f"http://{host}/latest"})
    assert asking.once().cause is Cause.REFUSED


@pytest.mark.parametrize(
    ("networks", "host", "status"),
    [
        ("127.0.0.0/8", "agent.example", CallOutcome.OK),
        ("10.0.0.0/8", "agent.example", CallOutcome.REFUSED),
        ("none", "agent.example", CallOutcome.REFUSED),
        ("none", "127.0.0.1", CallOutcome.REFUSED),
    ],
)
def test_only_open_private_networks_are_called(
    agent_server: AgentServer, settings: Any, networks: str, host: str, status: CallOutcome
) -> None:
    settings.TARGET_NETWORKS = Environment({"N": networks}).networks("N")
    port = agent_server.url.rsplit(":", 1)[1]

    asking = Asking(f"http://{host}:{port}", Names("127.0.0.1"), tries=1)
    asking.once()

    assert asking.records[0].status is status
    assert ("EVALSITE_TARGET_NETWORKS" in asking.records[0].error) is bool(
        status.value == "refused"
    )

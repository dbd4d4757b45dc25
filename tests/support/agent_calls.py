"""Requests to an agent at its endpoint, with everything the ledger recorded."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp.abc import AbstractResolver

from evaluators.kinds._base import CaseFacts, Message, Output
from evaluators.model_calls.calls import OWN_CALL, CallKey, CallRecord, Ledger
from runs.engine.ports import TargetFailure
from runs.execution.agents import AgentClient
from runs.execution.target_secrets import TargetSecrets
from runs.target_kinds._base import TargetContext
from runs.target_kinds.http import HTTPConfig, answer

CASE = CaseFacts(key="C-1", input=(Message("user", "Where is it?"),), expected_output="HIDDEN")
SECRET = "Bearer s3cr3t/with-slash"
QUICK: dict[str, Any] = {"output_path": "output", "timeout_s": 5, "tries": 3}


class Asking:
    """One target, called with a ledger that remembers."""

    def __init__(
        self,
        url: str,
        resolver: AbstractResolver | None = None,
        key: CallKey = OWN_CALL,
        **settings: Any,
    ) -> None:
        self.config = HTTPConfig(url=url, **(QUICK | settings))
        self.secrets = TargetSecrets({"authorization": SECRET}, {})
        self.resolver, self.key = resolver, key
        self.records: list[CallRecord] = []
        self.begun = 0
        self.earlier: CallRecord | None = None

    def ask(self, times: int = 1) -> list[Output | TargetFailure]:
        return asyncio.run(self._ask(times))

    def once(self) -> Any:
        return self.ask()[0]

    async def _ask(self, times: int) -> list[Output | TargetFailure]:
        client = AgentClient(self.resolver)
        ledger = Ledger(
            recall=lambda key, digest: self.earlier, record=self.records.append, begin=self._begin
        )

        async def port(request: Any) -> Output:
            return await client.ask(request, self.secrets, ledger, target="agent", key=self.key)

        context = TargetContext("agent", CASE, agent=port)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(answer(self.config, context)) for _ in range(times)]
        finally:
            await client.aclose()
        assert self.begun == len(self.records)
        return [task.result() for task in tasks]

    def _begin(self) -> None:
        self.begun += 1

"""Runs of programs that judge, written down like calls of models: found again, admitted and paid alike."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from evaluators.judging.answers import storable
from evaluators.judging.calls import CallKey, CallRecord, CallStatus, Ledger
from evaluators.kinds._base import Output
from evaluators.scoring.types import Usage
from runs.execution.causes import CAUSES
from runs.plan import Cause, TargetFailure

STATUSES = {cause: status for status, cause in CAUSES.items()}
STOPPED = TargetFailure("stopped before it ended", Cause.FAILED)


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One run of a target's program; `request` is what of it may be kept and shown."""

    target: str
    key: CallKey
    digest: str
    request: Mapping[str, Any]
    problem_of: Callable[[str], str]
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def run(
        self, ledger: Ledger, answer: Callable[[], Awaitable[Output | TargetFailure]]
    ) -> Output | TargetFailure:
        """Return what the program answers, from the ledger when it did so before."""
        earlier = ledger.recall(self.key, self.digest)
        if earlier is not None:
            stored = earlier.reply if isinstance(earlier.reply, dict) else {}
            return Output(text=str(stored.get("text") or ""), usage=earlier.usage)
        await ledger.admit()
        began_s = time.perf_counter()
        ended: Output | TargetFailure = STOPPED
        ledger.begin()
        try:
            ended = await answer()
        finally:
            ledger.record(self._record(ended, round((time.perf_counter() - began_s) * 1000)))
        return ended

    def _record(self, ended: Output | TargetFailure, latency_ms: int) -> CallRecord:
        usage, reply = Usage(), None
        if isinstance(ended, TargetFailure):
            status = STATUSES.get(ended.cause, CallStatus.SERVER_ERROR)
            error = str(storable(ended.reason))
        else:
            usage, error = ended.usage, self.problem_of(ended.text)
            reply = storable({"text": ended.text})
            status = CallStatus.UNREADABLE if error else CallStatus.OK
        return CallRecord(
            key=self.key,
            model=self.target,
            status=status,
            request_hash=self.digest,
            request=self.request,
            created_at=self.created_at,
            error=error,
            reply=reply,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            latency_ms=latency_ms,
        )

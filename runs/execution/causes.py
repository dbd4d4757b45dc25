"""What the end of a call means for the target that made it."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.judging.calls import CallStatus
from runs.plan import Cause

CAUSES: Mapping[CallStatus, Cause] = {
    CallStatus.TIMEOUT: Cause.TIMEOUT,
    CallStatus.REFUSED: Cause.REFUSED,
    CallStatus.RATE_LIMITED: Cause.RATE_LIMITED,
    CallStatus.SERVER_ERROR: Cause.SERVER_ERROR,
    CallStatus.CONNECTION: Cause.CONNECTION,
    CallStatus.UNREADABLE: Cause.BAD_REPLY,
}

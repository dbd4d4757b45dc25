"""Why a target gave no output."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a target gave no output; its label stands at the head of the error a user reads."""

    TIMEOUT = "timeout", "Timed out"
    REFUSED = "refused", "Refused"
    RATE_LIMITED = "rate_limited", "Rate limited"
    SERVER_ERROR = "server_error", "Server error"
    CONNECTION = "connection", "No connection"
    BAD_REPLY = "bad_reply", "Bad reply"
    MISSING = "missing", "Nothing recorded"
    FAILED = "failed", "Target failed"
    UNSTORABLE = "unstorable", "Could not be stored"

    label: str

    def __new__(cls, value: str, label: str) -> Cause:
        """Give each word the label shown to users."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """The target gave no output that could be scored; never an output of score 0."""

    reason: str
    cause: Cause

    def __str__(self) -> str:
        """Return class and reason as pages show them."""
        return f"{self.cause.label}: {self.reason}"

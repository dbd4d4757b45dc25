"""The ledger: every call of a model, paid or failed."""

from __future__ import annotations

from django.db import models

from evaluators.models import LanguageModel, money_field
from evaluators.scoring.tree import LONGEST_PATH
from runs.models.results import Result
from runs.models.runs import Run


class CallPurpose(models.TextChoices):
    """Whose purse a call is paid from."""

    TARGET = "target", "Target"
    EVALUATION = "evaluation", "Evaluation"


class CallStatus(models.TextChoices):
    """How a call ended."""

    OK = "ok", "Answered"
    UNREADABLE = "unreadable", "Answered, not readable"
    RATE_LIMITED = "rate_limited", "Rate limited"
    TIMEOUT = "timeout", "Timed out"
    REFUSED = "refused", "Refused"
    SERVER_ERROR = "server_error", "Server error"
    CONNECTION = "connection", "No connection"


# Only an answer is billed: what was refused, rate limited or never came costs nothing.
ANSWERED = (CallStatus.OK, CallStatus.UNREADABLE)


class ModelCall(models.Model):
    """One call of a model for one result.

    The key of a reply is (result, generation, purpose, evaluator_path, sample, round, repair):
    after a lost lease the successful reply of the same key and request hash is used again.
    A try that failed and was repeated is a row of its own.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="model_calls")
    result = models.ForeignKey(
        Result, on_delete=models.CASCADE, related_name="model_calls", db_index=False
    )
    generation = models.PositiveIntegerField(default=1)
    attempt = models.PositiveIntegerField(default=1)
    purpose = models.CharField(max_length=12, choices=CallPurpose.choices)
    evaluator_path = models.CharField(max_length=LONGEST_PATH, blank=True, default="")
    sample = models.PositiveIntegerField(default=0)
    round = models.PositiveIntegerField(default=0)
    repair = models.PositiveIntegerField(default=0)
    model = models.ForeignKey(
        LanguageModel, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    model_name = models.CharField(max_length=200)
    status = models.CharField(max_length=20, choices=CallStatus.choices)
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    request_hash = models.CharField(max_length=64)
    input_tokens = models.PositiveIntegerField(null=True, blank=True)
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(null=True, blank=True)
    price_version = models.CharField(max_length=60, blank=True, default="")
    cost_usd = money_field(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    is_cached = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    request = models.JSONField()
    reply = models.JSONField(null=True, blank=True)

    class Meta:
        """In the order they were made."""

        ordering = ("created_at", "id")
        indexes = (
            models.Index(
                fields=("result", "generation", "purpose", "evaluator_path"),
                name="call_by_ledger_key",
            ),
            models.Index(fields=("created_at",), name="call_by_time"),
            models.Index(
                fields=("run", "purpose", "status"),
                condition=models.Q(cost_usd=None),
                name="call_without_price",
            ),
        )

    def __str__(self) -> str:
        """Return purpose and path."""
        return f"{self.purpose} {self.evaluator_path}"

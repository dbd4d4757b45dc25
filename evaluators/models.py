"""Language models, the limits that their callers share, and the audit of changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.validators import MinValueValidator
from django.db import connection, models, transaction
from django.utils import timezone

from evaluators.model_calls.limit_policy import Throttle
from evaluators.reading.json import storable
from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from django.contrib.auth.models import User


audit_log = logging.getLogger("evalsite.audit")
ZERO_USD = Decimal(0)
# Who did what no member did.
COMMAND_LINE, NOT_LOGGED_IN = "command line", "not logged in"
MAX_OBJECT_NAME_LENGTH = 200


# US dollars are exact to a billionth (one token of the cheapest models). What somebody enters has fewer digits than
# what is booked: whatever agents and models claim of each call, a column holds the sum of a run's.
USD_DECIMALS, ENTERED_USD_DIGITS, BOOKED_USD_DIGITS = 9, 18, 27


def money_field(
    *, max_digits: int = BOOKED_USD_DIGITS, **options: Any
) -> models.DecimalField[Any, Any]:
    """Return a column for US dollars.

    It must not overflow: PostgreSQL refuses a longer sum, and SQLite stores one that Django cannot read again.
    """
    return models.DecimalField(max_digits=max_digits, decimal_places=USD_DECIMALS, **options)


class ErasedMemberError(PermissionDenied):
    """The personal data of the member who does something were deleted since the request began: nothing is done."""


class AuditEntryManager(models.Manager["AuditEntry"]):
    """The audit; with EVALSITE_AUDIT_LOG the log has its entries too."""

    @transaction.atomic
    def record_many(self, entries: Iterable[AuditEntry]) -> None:
        """Store entries of one action at once; raises ErasedMemberError."""
        entries = list(entries)
        for actor in {entry.actor for entry in entries if entry.actor is not None}:
            hold_member(actor)
        _log(self.bulk_create(entries))

    @transaction.atomic
    def record(
        self,
        action: str,
        *,
        by: User | None,
        object_type: str,
        nobody: str = COMMAND_LINE,
        object_id: object = "",
        object_name: str = "",
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> AuditEntry:
        """Record who did what to which object; `nobody` is shown where no member did it.

        Raises ErasedMemberError.
        """
        if by is not None:
            hold_member(by)
        entry = self.create(
            actor=by,
            actor_name=by.get_username() if by else nobody,
            action=action,
            object_type=object_type,
            object_id=str(object_id),
            object_name=object_name[:MAX_OBJECT_NAME_LENGTH],
            before=None if before is None else dict(before),
            after=None if after is None else dict(after),
        )
        _log([entry])
        return entry

    def last_changer(self, object_type: str, object_id: object) -> str:
        """Return the name of who changed an object last."""
        entries = self.filter(object_type=object_type, object_id=str(object_id))
        return entries.values_list("actor_name", flat=True).first() or "Somebody"


# The weakest lock that excludes a change of the name. Django has none for which others of its kind do not wait.
FIND_NAME = "SELECT username FROM auth_user WHERE id = %s"
HOLD_NAME = f"{FIND_NAME} FOR KEY SHARE"


def hold_member(member: User) -> None:
    """Let nobody erase a member before this transaction ends; raises ErasedMemberError if somebody already has."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD_NAME if connection.vendor == "postgresql" else FIND_NAME, [member.pk])
        if cursor.fetchone() != (member.get_username(),):
            raise ErasedMemberError


def _log(entries: Iterable[AuditEntry]) -> None:
    """Write entries to the log once they are stored."""
    if not settings.AUDIT_LOG:
        return
    for entry in entries:
        line = json.dumps(storable(entry.as_values()))
        transaction.on_commit(partial(audit_log.info, "%s", line))


class AuditEntry(models.Model):
    """One change: who made it, with the values before and after, never with keys or passwords."""

    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    action = models.CharField(max_length=60)
    object_type = models.CharField(max_length=60)
    object_id = models.CharField(max_length=60)
    object_name = models.CharField(max_length=MAX_OBJECT_NAME_LENGTH, blank=True, default="")
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    objects = AuditEntryManager()

    class Meta:
        """Sort the newest first, with an index by object and those that the page of the audit reads."""

        ordering = ("-at", "-id")
        indexes = (
            models.Index(fields=("object_type", "object_id"), name="audit_by_object"),
            models.Index(fields=("actor_name", "object_type"), name="audit_by_actor"),
            # All filters of the page: it skips entries without reading their values.
            models.Index(
                fields=("id", "object_name", "actor_name", "object_type"), name="audit_filters"
            ),
        )
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        """Return the action and its object."""
        return f"{self.action} {self.object_type} {self.object_name}"

    def as_values(self) -> dict[str, Any]:
        """Return the entry as JSON values, for files and the log."""
        return {
            "at": self.at.isoformat(),
            "actor": self.actor_name,
            "action": self.action,
            "object_type": self.object_type,
            "object_id": self.object_id,
            "object_name": self.object_name,
            "before": self.before,
            "after": self.after,
        }


class ModelInUseError(DomainError):
    """A language model cannot be deleted while something uses it."""

    code = "model_in_use"


class ReplyMode(models.TextChoices):
    """The ways to request a structured reply, best first."""

    JSON_SCHEMA = "json_schema", "JSON schema"
    JSON_OBJECT = "json_object", "JSON mode"
    TEXT = "text", "Text"


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What holds back calls of a model beyond its settings, and the last failure as the reason.

    `slow_since` a time no more than `rate` calls start a second; `silent_since` a time the model has answered nobody and
    single calls try it. No call starts before `paused_until`.
    """

    rate: float | None = None
    slow_since: datetime | None = None
    silent_since: datetime | None = None
    paused_until: datetime | None = None
    reason: str = ""

    def __bool__(self) -> bool:
        """Tell whether anything does."""
        return bool(self.slow_since or self.silent_since or self.paused_until)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)


class LanguageModel(models.Model):
    """A model behind an OpenAI-compatible endpoint; it serves judges and chat targets.

    `encrypted_key` is write-only: only calls decrypt it. `throttle_state` is what the workers share of how fast calls
    may start, with times in seconds since 1970.
    """

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=100)
    base_url = models.CharField(max_length=300, default="https://api.openai.com/v1")
    model_id = models.CharField(max_length=200)
    encrypted_key = models.TextField(blank=True, default="")
    key_variable = models.CharField(max_length=100, blank=True, default="")
    reply_mode = models.CharField(
        max_length=20, choices=ReplyMode.choices, default=ReplyMode.JSON_SCHEMA
    )
    parameters = models.JSONField(default=dict, blank=True)
    concurrency = models.PositiveIntegerField(default=8, validators=[MinValueValidator(1)])
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    timeout_s = models.PositiveIntegerField(default=60, validators=[MinValueValidator(1)])
    input_price_usd_per_mtok = money_field(max_digits=ENTERED_USD_DIGITS, null=True, blank=True)
    output_price_usd_per_mtok = money_field(max_digits=ENTERED_USD_DIGITS, null=True, blank=True)
    cached_price_usd_per_mtok = money_field(max_digits=ENTERED_USD_DIGITS, null=True, blank=True)
    send_trace_headers = models.BooleanField(default=False)
    is_scripted = models.BooleanField(default=False)
    throttle_state = models.JSONField(default=dict, blank=True, editable=False)
    last_tested_at = models.DateTimeField(null=True, blank=True)
    last_test = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Written by workers while runs are executed; forms do not change them.
    WRITTEN_BY_WORKERS = frozenset({"throttle_state"})

    class Meta:
        """List models by name."""

        ordering = ("name", "id")

    def __str__(self) -> str:
        """Return the name shown to users."""
        return self.name

    @property
    def throttle(self) -> Throttle:
        """Return what the workers share of how fast calls may start, as a value of its own."""
        return Throttle(**self.throttle_state)

    @property
    def slowdown(self) -> Slowdown:
        """Return what holds back calls now."""
        throttle, now = self.throttle, timezone.now().timestamp()
        if throttle.is_outdated(now):
            return Slowdown()
        is_paused = throttle.paused_until is not None and throttle.paused_until > now
        return Slowdown(
            rate=throttle.rate,
            slow_since=_time(throttle.slow_since),
            silent_since=_time(throttle.silent_since),
            paused_until=_time(throttle.paused_until) if is_paused else None,
            reason=throttle.reason,
        )

    def users(self) -> list[str]:
        """Return what uses this model, in words: suites, targets, evaluators."""
        relations = [
            relation
            for relation in self._meta.related_objects
            if relation.on_delete is models.PROTECT and relation.get_accessor_name()
        ]
        return [
            f"{row._meta.verbose_name} {row}"
            for relation in relations
            for row in getattr(self, str(relation.get_accessor_name())).all()
        ]

    @classmethod
    def find_only(cls) -> LanguageModel | None:
        """Return the model that forms choose by themselves: the only one there is."""
        first_two = cls.objects.all()[:2]
        return first_two[0] if len(first_two) == 1 else None

    def remove(self, *, actor: User) -> None:
        """Delete the model and record it in the audit; raises ModelInUseError naming its users."""
        users = self.users()
        if users:
            raise ModelInUseError(f"{self.name} is used by {', '.join(users)}.")
        facts, key = self.facts(), self.pk
        self.delete()
        self.pk = key
        self.record("delete", actor=actor, before=facts)

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, without the key."""
        columns = (
            "slug", "name", "base_url", "model_id", "key_variable", "reply_mode", "parameters",
            "concurrency", "requests_per_minute", "timeout_s", "send_trace_headers",
        )  # fmt: skip
        prices = (
            "input_price_usd_per_mtok",
            "output_price_usd_per_mtok",
            "cached_price_usd_per_mtok",
        )
        money = {name: getattr(self, name) for name in prices}
        return {
            **{name: getattr(self, name) for name in columns},
            **{name: None if usd is None else str(usd) for name, usd in money.items()},
            "has_stored_key": bool(self.encrypted_key),
        }

    @transaction.atomic
    def record(
        self,
        action: str,
        *,
        actor: User | None,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Record a change of this model in the audit; without an actor the command line made it."""
        AuditEntry.objects.record(
            action,
            by=actor,
            object_type="language_model",
            object_id=self.pk,
            object_name=self.name,
            before=before,
            after=after,
        )

    @transaction.atomic
    def request_test(self, *, actor: User) -> None:
        """Request a test; a worker looks for the request when it begins. Raises ErasedMemberError."""
        hold_member(actor)
        self.last_test = {
            "state": "waiting",
            "asked_at": timezone.now().isoformat(),
            "asked_by": actor.get_username(),
        }
        self.save(update_fields=["last_test"])

    def begin_test(self) -> bool:
        """Mark a requested test as running; False if it is no longer requested."""
        return self._change_test("waiting", {"state": "running"})

    def finish_test(self, result: dict[str, Any]) -> None:
        """Store the result of a test, unless the model was changed meanwhile."""
        self._change_test("running", {"state": "done", **result}, last_tested_at=timezone.now())

    @transaction.atomic
    def _change_test(self, state: str, changes: Mapping[str, Any], **others: Any) -> bool:
        """Change the test in this state as it is stored now: who asked for it may be erased meanwhile."""
        models = LanguageModel.objects.filter(pk=self.pk, last_test__state=state)
        held = models.select_for_update(no_key=True).first()
        if held is None:
            return False
        return bool(models.update(last_test={**(held.last_test or {}), **changes}, **others))


class SlotLease(models.Model):
    """A block of one model's concurrency, held by one run worker until it expires.

    If a holder has fewer slots than `wanted`, the others give up what exceeds their share. `starts_wanted`
    calls have waited since `starts_wanted_since` for a start under the limit per minute.
    """

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="slot_leases")
    holder = models.CharField(max_length=64)
    slots = models.PositiveIntegerField()
    wanted = models.PositiveIntegerField(default=0)
    starts_wanted = models.PositiveIntegerField(default=0)
    starts_wanted_since = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()

    class Meta:
        """Allow one block for each holder."""

        constraints = (
            models.UniqueConstraint(fields=("model", "holder"), name="slot_lease_one_a_holder"),
        )

    def __str__(self) -> str:
        """Return holder and size."""
        return f"{self.slots} slots of {self.holder}"


class StartGrant(models.Model):
    """Calls of a model that one holder was allowed to start; they count in the calls of the minute."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="start_grants")
    holder = models.CharField(max_length=64)
    granted_at = models.DateTimeField()
    calls = models.PositiveIntegerField()

    class Meta:
        """Sort the oldest first, with an index by model."""

        ordering = ("granted_at", "id")
        indexes = (models.Index(fields=("model", "granted_at"), name="start_grant_by_time"),)

    def __str__(self) -> str:
        """Return size and holder."""
        return f"{self.calls} starts of {self.holder}"

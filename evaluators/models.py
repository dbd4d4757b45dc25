"""Language models, the limits their callers share, and the record of who changed what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from django.contrib.auth.models import User


ZERO_USD = Decimal(0)


def money_field(**options: Any) -> models.DecimalField[Any, Any]:
    """Return a column for US dollars, exact to a billionth (one token of the cheapest models)."""
    return models.DecimalField(max_digits=18, decimal_places=9, **options)


class AuditEntry(models.Model):
    """Who changed what, with the values before and after. Keys and passwords never enter."""

    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    action = models.CharField(max_length=60)
    object_type = models.CharField(max_length=60)
    object_id = models.CharField(max_length=60)
    object_name = models.CharField(max_length=200, blank=True, default="")
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        """Newest first, found by the object they speak of."""

        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("object_type", "object_id"), name="audit_by_object"),)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        """Return the deed and its object."""
        return f"{self.action} {self.object_type} {self.object_name}"


COLUMNS = ("name", "kind", "weight", "required", "required_below", "negate", "config")
# Rows know their parent alone, so the database climbs down from the root: one query a tree.
BELOW = """
WITH RECURSIVE below(id) AS (
    SELECT id FROM {table} WHERE id = %s
    UNION ALL
    SELECT child.id FROM {table} child JOIN below ON child.parent_id = below.id
)
SELECT evaluator.* FROM {table} evaluator JOIN below ON evaluator.id = below.id
ORDER BY evaluator.position, evaluator.id
"""


class BrokenTreeError(DomainError):
    """The rows do not make one tree."""

    code = "broken_tree"


def node_from_rows(rows: Iterable[Evaluator]) -> EvaluatorSpec:
    """Return the tree of these rows, siblings by position; raises BrokenTreeError without one root."""
    ordered = sorted(rows, key=lambda row: (row.position, row.pk))
    known = {row.pk for row in ordered}
    children: dict[int | None, list[Evaluator]] = defaultdict(list)
    for row in ordered:
        children[row.parent_id if row.parent_id in known else None].append(row)
    roots = children[None]
    if len(roots) != 1:
        raise BrokenTreeError(f"The rows make {len(roots)} trees, not one.")

    def node(row: Evaluator) -> EvaluatorSpec:
        facts = {name: getattr(row, name) for name in COLUMNS}
        return EvaluatorSpec(**facts, children=tuple(node(child) for child in children[row.pk]))

    return node(roots[0])


def rows_from_node(node: EvaluatorSpec, model: type[Evaluator]) -> list[list[Evaluator]]:
    """Return unsaved rows of a tree level by level: a level is saved before the one under it."""
    levels: list[list[Evaluator]] = []
    above: list[tuple[Evaluator | None, int, EvaluatorSpec]] = [(None, 0, node)]
    while above:
        rows = [_row(part, model, parent, position) for parent, position, part in above]
        levels.append(rows)
        above = [
            (row, position, child)
            for row, (_, _, part) in zip(rows, above, strict=True)
            for position, child in enumerate(part.children)
        ]
    return levels


def _row(
    node: EvaluatorSpec, model: type[Evaluator], parent: Evaluator | None, position: int
) -> Evaluator:
    facts = {name: getattr(node, name) for name in COLUMNS}
    return model(parent=parent, position=position, **{**facts, "config": node.as_json()["config"]})


class EvaluatorQuerySet(models.QuerySet["Evaluator"]):
    """Trees of evaluators, read and written whole."""

    def tree(self, root: Evaluator) -> EvaluatorSpec:
        """Return the tree under a root as a value, in one query."""
        statement = BELOW.format(table=self.model._meta.db_table)
        return node_from_rows(self.raw(statement, [root.pk]))

    def plant(self, node: EvaluatorSpec) -> Evaluator:
        """Store a tree, one insert a level, and return its root."""
        levels = rows_from_node(node, self.model)
        for rows in levels:
            self.bulk_create(rows)
        return levels[0][0]

    def replant(self, root: Evaluator, node: EvaluatorSpec) -> None:
        """Put another tree in place of the one under a root; the root row stays."""
        self.filter(parent=root).delete()
        for name in COLUMNS:
            setattr(root, name, getattr(node, name))
        root.config = node.as_json()["config"]
        root.save()
        first, *below = rows_from_node(node, self.model)
        for rows in below:
            for row in rows:
                row.parent = root if row.parent is first[0] else row.parent
            self.bulk_create(rows)


class Evaluator(models.Model):
    """One node of an evaluator tree. A suite owns a root composite; trees are copied, never shared."""

    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, related_name="children", null=True, blank=True
    )
    position = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=50)
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.0)])
    required = models.BooleanField(default=False)
    required_below = models.FloatField(null=True, blank=True)
    negate = models.BooleanField(default=False)
    config = models.JSONField(default=dict, blank=True)

    objects = EvaluatorQuerySet.as_manager()

    class Meta:
        """Order siblings as the suite's author placed them."""

        ordering = ("position", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("parent", "name"), name="evaluator_name_unique_among_siblings"
            ),
            models.CheckConstraint(
                condition=models.Q(weight__gte=0), name="evaluator_weight_not_negative"
            ),
        )

    def __str__(self) -> str:
        """Return the name."""
        return self.name


class ModelInUseError(DomainError):
    """A language model cannot be deleted while something names it."""

    code = "model_in_use"


class ReplyMode(models.TextChoices):
    """How a model is asked for a structured reply, best first."""

    JSON_SCHEMA = "json_schema", "JSON schema"
    JSON_OBJECT = "json_object", "JSON mode"
    TEXT = "text", "Text"


class LanguageModel(models.Model):
    """A model behind an OpenAI-compatible endpoint; it serves judges and chat targets.

    `encrypted_key` is write-only: it is decrypted by judging alone. `limit_now` is the
    concurrency in force, lowered by 429 answers and raised by success, never above `concurrency`;
    `limit_cuts` counts how often it was lowered, last at `limit_changed_at` for `limit_reason`.
    Until `paused_until` no call starts.
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
    input_price_usd_per_mtok = money_field(null=True, blank=True)
    output_price_usd_per_mtok = money_field(null=True, blank=True)
    cached_price_usd_per_mtok = money_field(null=True, blank=True)
    send_trace_headers = models.BooleanField(default=False)
    is_scripted = models.BooleanField(default=False)
    limit_now = models.PositiveIntegerField(null=True, blank=True)
    limit_cuts = models.PositiveIntegerField(default=0)
    limit_reason = models.CharField(max_length=300, blank=True, default="")
    limit_changed_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)
    last_tested_at = models.DateTimeField(null=True, blank=True)
    last_test = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # What the workers find out and write while runs go on; forms leave it alone.
    FOUND_BY_WORKERS = frozenset(
        {"limit_now", "limit_cuts", "limit_reason", "limit_changed_at", "paused_until"}
    )

    class Meta:
        """List models by name."""

        ordering = ("name", "id")

    def __str__(self) -> str:
        """Return the name shown to users."""
        return self.name

    @property
    def is_paused(self) -> bool:
        """Tell whether no call starts for now, because the server wants a pause."""
        return self.paused_until is not None and self.paused_until > timezone.now()

    def users(self) -> list[str]:
        """Return what names this model, in words: suites it judges, targets, evaluators."""
        relations = [
            relation
            for relation in self._meta.related_objects
            if relation.on_delete is models.PROTECT and relation.get_accessor_name()
        ]
        found = [
            f"{row._meta.verbose_name} {row}"
            for relation in relations
            for row in getattr(self, str(relation.get_accessor_name())).all()
        ]
        evaluators = Evaluator.objects.filter(config__model=self.slug)
        return found + [f"evaluator {evaluator.name}" for evaluator in evaluators]

    def remove(self, *, actor: User) -> None:
        """Delete the model and write it down; raises ModelInUseError naming what uses it."""
        users = self.users()
        if users:
            raise ModelInUseError(f"{self.name} is used by {', '.join(users)}.")
        facts, key = self.facts(), self.pk
        self.delete()
        self.pk = key
        self.write_down("delete", actor=actor, before=facts)

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, without the key: only where it comes from."""
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

    def write_down(
        self,
        action: str,
        *,
        actor: User | None,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Write a change of this model into the audit; without an actor it was the command line."""
        AuditEntry.objects.create(
            actor=actor,
            actor_name=actor.get_username() if actor else "command line",
            action=action,
            object_type="language_model",
            object_id=str(self.pk),
            object_name=self.name,
            before=before,
            after=after,
        )

    def ask_for_test(self, *, actor: User) -> None:
        """Note that a test is wanted; the worker that begins it looks for this note."""
        self.last_test = {
            "state": "waiting",
            "asked_at": timezone.now().isoformat(),
            "asked_by": actor.get_username(),
        }
        self.save(update_fields=["last_test"])

    def begin_test(self) -> bool:
        """Move a wanted test to running; False when none is wanted any more."""
        wanted = LanguageModel.objects.filter(pk=self.pk, last_test__state="waiting")
        running = {**(self.last_test or {}), "state": "running"}
        return bool(wanted.update(last_test=running))

    def finish_test(self, found: dict[str, Any]) -> None:
        """Keep what a test found, unless the model was changed meanwhile."""
        now = timezone.now()
        done = {**(self.last_test or {}), "state": "done", **found}
        running = LanguageModel.objects.filter(pk=self.pk, last_test__state="running")
        running.update(last_test=done, last_tested_at=now)


class SlotLease(models.Model):
    """A block of one model's concurrency, held by one run worker until it expires.

    A holder with fewer slots than `wanted` is short: the others give up what exceeds their share.
    `starts_wanted` calls wait since `starts_wanted_since` for the minute's limit to let them start.
    """

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="slot_leases")
    holder = models.CharField(max_length=64)
    slots = models.PositiveIntegerField()
    wanted = models.PositiveIntegerField(default=0)
    starts_wanted = models.PositiveIntegerField(default=0)
    starts_wanted_since = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()

    class Meta:
        """One block a holder."""

        constraints = (
            models.UniqueConstraint(fields=("model", "holder"), name="slot_lease_one_a_holder"),
        )

    def __str__(self) -> str:
        """Return holder and size."""
        return f"{self.slots} slots of {self.holder}"


class StartGrant(models.Model):
    """So many calls of a model that one holder was allowed to start, counted in the calls of the minute."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="start_grants")
    holder = models.CharField(max_length=64)
    granted_at = models.DateTimeField()
    calls = models.PositiveIntegerField()

    class Meta:
        """Found by model, the oldest first."""

        ordering = ("granted_at", "id")
        indexes = (models.Index(fields=("model", "granted_at"), name="start_grant_by_time"),)

    def __str__(self) -> str:
        """Return size and holder."""
        return f"{self.calls} starts of {self.holder}"

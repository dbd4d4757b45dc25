"""What changes of targets share: who changed one last, what the audit says, names that are taken."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import Target


class NameTakenError(DomainError):
    """Another target got the name first."""

    code = "name_taken"


class TargetChangedError(DomainError):
    """Somebody else changed the target since the form was opened."""

    code = "target_changed"


def taken(name: str) -> str:
    """Say that a name is taken."""
    return f"There is a target “{name}” already. Choose another name."


def seen_now(target: Target) -> str:
    """Return the state of a target as a form remembers it; holds its row until the transaction ends."""
    stored = Target.objects.select_for_update(no_key=True).values_list("updated_at", flat=True)
    return stored.get(pk=target.pk).isoformat()


def last_changer(target: Target) -> str:
    """Return who changed a target last."""
    entries = AuditEntry.objects.filter(object_type="target", object_id=str(target.pk))
    return entries.values_list("actor_name", flat=True).first() or "Somebody"


def write_down(
    target: Target, before: dict[str, Any] | None, entered: list[str], changed_by: User
) -> None:
    """Write a change into the audit, with the names of secret headers whose values were entered."""
    AuditEntry.objects.create(
        actor=changed_by,
        actor_name=changed_by.get_username(),
        action="change" if before else "add",
        object_type="target",
        object_id=str(target.pk),
        object_name=target.name,
        before=before,
        after=facts_of(target) | ({"secrets_entered": entered} if entered else {}),
    )


def facts_of(target: Target) -> dict[str, Any]:
    """Return the settings without the values of secret headers: those stand beside them."""
    return {
        "name": target.name,
        "description": target.description,
        "config": target.config,
        "model": target.model.slug if target.model else None,
    }

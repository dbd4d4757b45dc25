"""Recorded outputs become a target that replays them."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.formats.jsonl import read_outputs
from runs.models import RecordedOutput, Target

RECORDED_KIND = "recorded"
LONGEST_TARGET_NAME = 120
BATCH = 1_000


class TargetKindDiffersError(DomainError):
    """Outputs were recorded for a target that answers by itself."""

    code = "target_kind_differs"


def import_recorded_outputs(
    *,
    target_name: str,
    lines: bytes | Iterable[str],
    imported_by: User | None,
    file: str = "outputs.jsonl",
) -> Target:
    """Create the recorded target, or replace the outputs it has if they are others, and return it.

    Raises UnreadableFileError with line and reason, TargetKindDiffersError when a target of that
    name is of another kind; in either case nothing changes.
    """
    content = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
    outputs = read_outputs(content, file=file)
    with transaction.atomic():
        target, is_new = Target.objects.get_or_create(
            name=target_name.strip()[:LONGEST_TARGET_NAME], defaults={"kind": RECORDED_KIND}
        )
        if target.kind != RECORDED_KIND:
            raise TargetKindDiffersError(
                f"The target {target.name} is of kind {target.kind} and answers by itself; "
                "record the outputs under another name."
            )
        before = dict(target.recorded_outputs.values_list("case_key", "output"))
        if before == {one.key: dict(one.output) for one in outputs}:
            return target
        target.recorded_outputs.all().delete()
        RecordedOutput.objects.bulk_create(
            (RecordedOutput(target=target, case_key=o.key, output=dict(o.output)) for o in outputs),
            batch_size=BATCH,
        )
        AuditEntry.objects.create(
            actor=imported_by,
            actor_name=imported_by.get_username() if imported_by else "",
            action="import",
            object_type="target",
            object_id=str(target.pk),
            object_name=target.name,
            before=None if is_new else {"outputs": len(before)},
            after={"outputs": len(outputs)},
        )
    return target

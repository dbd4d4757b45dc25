"""For how many of a suite's cases recorded targets have an output: the others can only error."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from django.db.models import Q

from runs.models import Case, RecordedOutput, Suite, Target
from runs.targets import target_kinds


def recorded_counts(
    suite: Suite,
    targets: Sequence[Target],
    *,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> Mapping[int, int]:
    """Return by target's id the current cases with an output; only targets that replay are in it.

    With `tags` only cases with one of them count, with `keys` only those named. A target with
    uploads has those alone, one without has what stands with the cases.
    """
    kinds = target_kinds()
    replaying = [one.pk for one in targets if one.kind in kinds and kinds[one.kind].replays]
    if not replaying:
        return {}
    wanted, with_output = _cases(suite, tags, keys)
    uploads = RecordedOutput.objects.filter(target__in=replaying)
    uploading = set(uploads.order_by().values_list("target", flat=True).distinct())
    counts = {pk: 0 if pk in uploading else with_output for pk in replaying}
    if uploading:
        current = Case.objects.filter(suite=suite, is_current=True).values("key")
        hits = uploads.filter(case_key__in=current)
        for pk, key in hits.values_list("target", "case_key").distinct():
            counts[pk] += key in wanted
    return counts


def _cases(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> tuple[set[str], int]:
    rows = (
        Case.objects.filter(suite=suite, is_current=True)
        .order_by()
        .annotate(has_output=Q(recorded_output__isnull=False))
        .values_list("key", "tags", "has_output")
    )
    named = None if keys is None else set(keys)
    found = {
        key: has_output
        for key, own, has_output in rows
        if (not tags or set(tags) & set(own)) and (named is None or key in named)
    }
    return set(found), sum(found.values())


def recorded_warning(target: str, recorded: int, cases: int) -> str:
    """Return what becomes of the cases without an output, "" where all have one or none is chosen."""
    if recorded >= cases:
        return ""
    if not recorded:
        return (
            f"Target {target} has no recorded output for any of the {cases} cases, so it cannot be "
            "started. Upload outputs whose ids are keys of these cases."
        )
    return (
        f"Target {target} has recorded outputs for {recorded} of {cases} cases. The other "
        f"{cases - recorded} will be errors; the estimate leaves them out."
    )

"""Start runs of one suite against several targets together, and stop and name what was started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import ACTIVE_RUN_STATUSES, Campaign, Run, Suite, Target
from runs.services.going_on import RunNotActiveError, stop_run
from runs.services.starting import start_run

# A form that comes again later than so many starts of its sender is taken for a new one.
STARTS_REMEMBERED = 200
LONGEST_NAME = 200


class NoTargetError(DomainError):
    """Nothing was named that runs could be started against."""

    code = "no_target"


class CampaignNotActiveError(DomainError):
    """All runs of the campaign are over already."""

    code = "campaign_not_active"


def start_campaign(
    *,
    suite: Suite,
    targets: Sequence[Target],
    started_by: User | None,
    name: str = "",
    form_key: str = "",
    **choices: Any,
) -> list[Run]:
    """Start a run for each target, all or none; several are a campaign, one is a run like any other.

    `choices` are those of start_run. `form_key` is another one for every form that is shown: when a
    form is sent twice, the second gets the runs that the first has started. Raises DomainError
    saying what is in the way.
    """
    chosen = list({target.pk: target for target in targets}.values())
    if not chosen:
        raise NoTargetError("No target is named. Choose at least one.")
    with transaction.atomic():
        # Whoever sends the same form at the same time waits here, and then finds what it started.
        Suite.objects.select_for_update().only("pk").get(pk=suite.pk)
        if found := _started_before(form_key, started_by):
            return found
        campaign = None
        if len(chosen) > 1:
            campaign = Campaign.objects.create(
                suite=suite, name=name.strip()[:LONGEST_NAME], created_by=started_by
            )
        return [
            start_run(
                suite=suite,
                target=target,
                started_by=started_by,
                campaign=campaign,
                form_key=form_key,
                **choices,
            )
            for target in chosen
        ]


def stop_campaign(campaign: Campaign, *, stopped_by: User | None) -> int:
    """End every active run, keeping what is finished; returns how many were ended.

    Raises CampaignNotActiveError when all are over already.
    """
    stopped = 0
    with transaction.atomic():
        active = campaign.runs.filter(status__in=ACTIVE_RUN_STATUSES).order_by("pk")
        for run in active.defer("snapshot", "summary", "leaf_scores"):
            try:
                stop_run(run, stopped_by=stopped_by)
            except RunNotActiveError:
                # It came to its end meanwhile.
                continue
            stopped += 1
    if not stopped:
        raise CampaignNotActiveError("All runs are over already; nothing is left to stop.")
    return stopped


def rename_campaign(campaign: Campaign, name: str, *, renamed_by: User) -> None:
    """Give a campaign another name, "" for none."""
    before, campaign.name = campaign.name, name.strip()[:LONGEST_NAME]
    if before == campaign.name:
        return
    with transaction.atomic():
        campaign.save(update_fields=("name",))
        AuditEntry.objects.create(
            actor=renamed_by,
            actor_name=renamed_by.get_username(),
            action="rename",
            object_type="campaign",
            object_id=str(campaign.pk),
            object_name=campaign.name,
            before={"name": before},
            after={"name": campaign.name},
        )


def _started_before(form_key: str, user: User | None) -> list[Run]:
    """Return the runs that the same form has started, if it has."""
    if not form_key:
        return []
    starts = AuditEntry.objects.filter(actor=user, action="start", object_type="run")
    lately = starts.order_by("-id").values_list("object_id", "after")[:STARTS_REMEMBERED]
    numbers = [int(pk) for pk, after in lately if (after or {}).get("form") == form_key]
    return list(Run.objects.select_related("suite").filter(pk__in=numbers).order_by("pk"))

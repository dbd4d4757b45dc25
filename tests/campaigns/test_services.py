"""Runs that are started together: all or none, once, stopped together, and named."""

from __future__ import annotations

import pytest

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite
from runs.running import services
from runs.running.services import rename_campaign, start_campaign, stop_campaign
from tests.support.factories import make_case, make_suite, make_target, make_user
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    made = make_suite(tree=tree(CHECK))
    make_case(suite=made, recorded_output={"output": "a refund"})
    return made


def test_one_target_is_a_run_and_several_are_a_campaign(suite: Suite) -> None:
    target, other = make_target(), make_target()
    [single] = start_campaign(suite=suite, targets=[target, target], started_by=None)
    assert single.campaign is None
    runs = start_campaign(
        suite=suite, targets=[target, other], started_by=None, name=" which ", repetitions=2
    )
    assert [run.execution_count for run in runs] == [2, 2]
    assert {run.campaign for run in runs} == {Campaign.objects.get(name="which")}


def test_one_target_that_cannot_run_starts_none(suite: Suite) -> None:
    broken = make_target(kind="chat")
    with pytest.raises(DomainError):
        start_campaign(suite=suite, targets=[make_target(), broken], started_by=None)
    assert not Run.objects.exists()
    assert not Campaign.objects.exists()
    with pytest.raises(DomainError, match="No target is named"):
        start_campaign(suite=suite, targets=[], started_by=None)


def test_more_runs_than_a_page_shows_are_not_started_together(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MAX_CAMPAIGN_RUNS", 2)
    targets = [make_target() for _ in range(3)]
    with pytest.raises(DomainError, match="That would be 3 runs; up to 2 are started together"):
        start_campaign(suite=suite, targets=targets, started_by=None)
    assert not Run.objects.exists()
    assert len(start_campaign(suite=suite, targets=targets[:2], started_by=None)) == 2


def test_a_form_starts_once_for_its_sender_and_apart_from_other_forms(suite: Suite) -> None:
    mira, sam, targets = make_user(), make_user(), [make_target(), make_target()]

    def start(form_key: str, user: object) -> list[int]:
        runs = start_campaign(suite=suite, targets=targets, started_by=user, form_key=form_key)
        return [run.pk for run in runs]

    first = start("one", mira)
    assert start("one", mira) == first
    assert not {*start("two", mira), *start("one", sam), *start("", mira), *start("", mira)} & {
        *first
    }


def test_all_active_runs_are_stopped_and_the_rest_is_left_alone(suite: Suite) -> None:
    mira = make_user(name="mira")
    runs = start_campaign(suite=suite, targets=[make_target() for _ in range(3)], started_by=mira)
    Run.objects.filter(pk=runs[0].pk).update(status="completed")
    campaign = Campaign.objects.get()
    assert stop_campaign(campaign, stopped_by=mira) == 2
    assert list(campaign.runs.order_by("pk").values_list("status", "status_reason")) == [
        ("completed", ""),
        ("stopped", "Cancelled by mira"),
        ("stopped", "Cancelled by mira"),
    ]
    with pytest.raises(DomainError, match="already ended"):
        stop_campaign(campaign, stopped_by=mira)


def test_a_new_name_is_kept_with_the_old_one_in_the_audit_log() -> None:
    campaign = Campaign.objects.create(suite=make_suite(), name="which")
    mira = make_user(name="mira")
    rename_campaign(campaign, " which ", renamed_by=mira)
    assert not AuditEntry.objects.exists()
    rename_campaign(campaign, "Models of May", renamed_by=mira)
    entry = AuditEntry.objects.get()
    assert (entry.before, entry.after) == ({"name": "which"}, {"name": "Models of May"})
    campaign.refresh_from_db()
    assert campaign.name == "Models of May"

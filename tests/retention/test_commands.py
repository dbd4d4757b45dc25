"""`delete` and `retention`: what they print, ask, change and refuse."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from runs.models.database import database_now
from runs.models.removals import Removal, RemovalPart, RetentionRule
from runs.models.runs import Run
from runs.models.suites import RecordedOutput, Suite
from runs.retention.queries import Selection
from runs.retention.services import begin_removal
from tests.support.factories import (
    make_campaign,
    make_case,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    make_target,
    make_user,
)

pytestmark = pytest.mark.django_db


def run_command(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out, stderr=out)
    return " ".join(out.getvalue().split())


def refusal(*words: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as raised:
        run_command(*words)
    return str(raised.value), raised.value.returncode


def test_a_run_is_deleted_after_yes() -> None:
    run = make_scored_run(verdicts=["pass"] * 2, suite=make_suite(slug="support"))
    assert "1 run, 2 results, 0 calls" in run_command("delete", "run", "support#1", "--dry-run")
    assert refusal("delete", "run", "support#1") == (
        "Nothing was deleted. Add --yes to delete it.",
        3,
    )
    assert Run.objects.filter(pk=run.pk).exists()
    assert run_command("delete", "run", "support#1", "--yes").endswith("Deleted.")
    assert not Run.including_deleted.exists()


def test_outputs_of_a_run_are_deleted_and_the_run_stays() -> None:
    run = make_run(suite=make_suite(slug="support"))
    case = make_case(suite=run.suite)
    make_result(run=run, case=case, verdict="pass", output={"text": "secret"})
    run_command("delete", "outputs", "support#1", "--yes")
    output = run.results.get().output
    assert (output.text, output.removed_by) == ("", "command line")


def test_what_is_held_is_refused_by_name() -> None:
    run = make_scored_run(verdicts=["pass"], suite=make_suite(slug="support"))
    Suite.objects.update(baseline_run=run)
    reason, code = refusal("delete", "run", "support#1", "--yes")
    assert (code, "Run #1 is the baseline of Suite support." in reason) == (3, True)


def test_a_suite_and_a_campaign_are_deleted_with_their_runs() -> None:
    campaign = make_campaign(suite=make_suite(slug="support"))
    make_scored_run(verdicts=["pass"], suite=campaign.suite, campaign=campaign)
    run_command("delete", "campaign", str(campaign.pk), "--yes")
    assert not Run.including_deleted.exists()
    assert "no campaign 77" in refusal("delete", "campaign", "77", "--yes")[0]
    run_command("delete", "suite", "support", "--yes")
    assert not Suite.including_deleted.exists()


def test_recorded_outputs_are_deleted_unless_a_run_still_reads_them() -> None:
    target = make_target(name="agent")
    RecordedOutput.objects.create(target=target, case_key="C-1", output={"output": "hi"})
    run = make_run(target=target, status="running")
    assert "has not ended" in refusal("delete", "recorded", "agent", "--yes")[0]
    Run.objects.filter(pk=run.pk).update(status="completed")
    assert "agent: 1 recorded output." in run_command("delete", "recorded", "agent", "--yes")
    assert not RecordedOutput.objects.exists()


def test_a_member_becomes_a_deleted_member() -> None:
    member = make_user(name="ada", role="editor")
    assert f"ada is deleted member {member.pk} now." in run_command(
        "delete", "member", "ada", "--yes"
    )
    assert "There is no member named ada." in refusal("delete", "member", "ada", "--yes")[0]


def test_the_rule_is_shown_changed_and_applied() -> None:
    assert run_command("retention").startswith("The site keeps outputs for good, details for good.")
    run_command("retention", "--outputs", "30", "--details", "90")
    assert "details for 90 days" in run_command("retention", "--outputs", "10")

    suite = make_suite(slug="support")
    run = make_run(suite=suite, finished_at=database_now() - timedelta(days=20))
    case = make_case(suite=suite)
    make_result(run=run, case=case, verdict="pass", output={"text": "secret"})
    assert "support: Outputs and texts of calls of 1 run would go now, 1 result" in run_command(
        "retention"
    )
    run_command("retention", "--suite", "support", "--outputs", "never", "--details", "never")
    assert "Nothing would be removed now." in run_command("retention")
    run_command("retention", "--suite", "support", "--like-site")
    assert RetentionRule.objects.count() == 1
    assert "support #1: Outputs and texts of calls removed." in run_command("retention", "--apply")
    assert run.results.get().output.text == ""


def test_a_failed_removal_is_named_with_its_reason_and_retried() -> None:
    run = make_scored_run(verdicts=["pass"])
    selection = Selection(
        RemovalPart.OUTPUTS,
        run.suite,
        [run],
    )
    removal = begin_removal(selection, by=None, in_background=False)
    Removal.objects.update(failed_at=database_now(), error="ValueError: a surprise")

    shown = (
        f"{removal.name}: could not be removed (ValueError: a surprise); --retry tries it again."
    )
    assert shown in run_command("retention")
    assert f"{removal.name}: Outputs and texts of calls removed." in run_command(
        "retention", "--retry"
    )
    assert not Removal.objects.exists()


@pytest.mark.parametrize("days", ["0", "-3", "x", "40000"])
def test_other_days_are_refused(days: str) -> None:
    assert "is not a number of days" in refusal("retention", f"--outputs={days}")[0]
    reason, _ = refusal("retention", "--outputs", "90", "--details", "30")
    assert "give them fewer days" in reason

"""The demo: it loads every example and runs every target once, however often it is started."""

from __future__ import annotations

from itertools import groupby

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from evaluators.models import LanguageModel
from runs import tasks
from runs.charts.drift import drift_picture
from runs.execution.run_worker import work_on_run
from runs.management.commands import load_examples
from runs.management.commands.load_examples import SUITES
from runs.models.jobs import ModelJob
from runs.models.runs import Campaign, Run
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.results.judge_figures import version_warnings
from runs.results.pairwise import run_pairwise
from runs.reviews.alignment.documents import AlignmentDoc
from runs.reviews.alignment.services import alignments
from runs.reviews.judges import judged_outputs
from runs.reviews.people import people_decisions
from tests.examples.reading import EXAMPLES
from tests.examples.scripted_server import started

pytestmark = pytest.mark.django_db(transaction=True)


def demo(url="http://127.0.0.1:9/v1"):
    call_command("load_examples", "--judge-url", url)


def test_the_examples_are_loaded_and_every_target_run_once(capsys):
    demo()

    slugs = set(Suite.objects.values_list("slug", flat=True))
    assert slugs == {one.slug for one in SUITES}
    runs = Run.objects.order_by("pk").values_list(
        "target_name", "status", "is_scripted", "execution_count"
    )
    assert list(runs) == [
        ("support-agent 1.4.0", "queued", True, 30),
        ("support-agent 1.5.0", "queued", True, 30),
        ("travel-agent 2.1", "queued", True, 24),
        ("travel-agent 2.2", "queued", True, 24),
        ("travel-agent 3.0", "queued", True, 24),
        ("chores 0.9", "queued", True, 60),
        ("chores 1.0", "queued", True, 60),
    ]
    together = Run.objects.order_by("pk").values_list("campaign", flat=True)
    assert [len(list(group)) for _, group in groupby(together)] == [2, 3, 2]
    assert list(Campaign.objects.order_by("pk").values_list("name", flat=True)) == [
        "1.5.0 against 1.4.0",
        "Three releases compared",
        "1.0 against 0.9",
    ]
    admin = User.objects.get()
    assert admin.has_perm("runs.start_run")
    # Confirming who it is must not ask for a password that nobody has.
    assert not admin.has_usable_password()
    messages = capsys.readouterr().err.splitlines()
    assert messages[:2] == [
        "Customer support, core: 2 runs started.",
        "Travel desk, by metrics: 3 runs started.",
    ]
    for place, title in ((2, "Harbour office, by tasks"), (4, "Returns desk")):
        assert messages[place].startswith(f"{title}: not run. ")
        assert "EVALSITE_SCRIPTS" in messages[place]


def test_the_command_agent_runs_if_scripts_are_allowed(settings, capsys):
    settings.SCRIPTS, settings.AGENTS_DIR = True, str(EXAMPLES)
    demo()
    run = Run.objects.get(suite__slug="returns-desk")
    assert (run.status, run.execution_count) == ("queued", 14)
    messages = capsys.readouterr().err
    assert "Returns desk: 1 run started." in messages
    assert "Harbour office, by tasks: 2 runs started." in messages

    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.error_count) == ("completed", 0)
    other = run.results.exclude(verdict="pass").values_list("case__key", "verdict")
    assert list(other.order_by("case__key")) == [("RD-11", "borderline"), ("RD-12", "fail")]
    assert "order is TW-1190, not TW-1042" in str(
        run.results.get(case__key="RD-11").scores.values_list("findings", flat=True)
    )


def test_repeating_the_demo_duplicates_nothing_and_updates_addresses(capsys):
    demo()
    tables = (Suite, Case, Target, RecordedOutput, Run, User, LanguageModel)
    before = [table.objects.count() for table in tables]
    LanguageModel.objects.update(name="My judge")
    demo("http://127.0.0.1:10/v1/")

    assert [table.objects.count() for table in tables] == before
    judges = set(LanguageModel.objects.values_list("base_url", "name"))
    assert judges == {("http://127.0.0.1:10/v1", "My judge")}
    agent = Target.objects.get(name="chores 1.0")
    assert agent.config["url"] == "http://127.0.0.1:10/agents/chores-1.0"
    assert "Customer support, core: already run; nothing started." in capsys.readouterr().err


def test_a_key_in_the_environment_adds_a_model_to_evaluate(settings):
    settings.MODEL_KEYS = {"OPENAI_API_KEY": "sk-test"}
    settings.OPENAI_BASE_URL = "http://127.0.0.1:11/v1"
    demo()

    target = Target.objects.get(kind="chat")
    assert (target.model.base_url, target.model.key_variable) == (
        "http://127.0.0.1:11/v1",
        "OPENAI_API_KEY",
    )


@pytest.mark.one_database
def test_a_first_run_is_judged_again_and_a_judge_measured_once(monkeypatch, tmp_path, capsys):
    def work_on_all():
        slugs = ("support-agent", "travel-desk")
        for run in Run.objects.filter(suite__slug__in=slugs, status="queued"):
            work_on_run(run.pk)

    monkeypatch.setattr(load_examples, "_input_ends", work_on_all)
    with started(tmp_path) as server:
        for _ in range(2):
            call_command(
                "load_examples", "--follow-ups", "--judge-url", server.base_url, "--verbosity", "0"
            )
        work_on_all()
        alignment = ModelJob.objects.get()
        tasks.work_on_job(alignment.pk)
    assert capsys.readouterr().err == ""
    found = AlignmentDoc.make(alignments(alignment.suite).get())
    assert (found.state, found.evaluator, found.today.agreed, found.today.of) == (
        "done", "metrics", 3, 12,
    )  # fmt: skip
    assert [each.finding for each in found.candidates] == ["better", "better", "unproven"]
    assert found.conclusion.startswith(
        "Candidate 2 agrees with people on 12 of 12 held-out results, today's instructions with 3"
    )
    again = (
        Run.objects.exclude(source_run=None).exclude(suite__slug="travel-desk").order_by("number")
    )
    assert list(again.values_list("number", "source_run__number", "judge_name")) == [
        (3, 2, "Scripted judge, strict"),
        (4, 2, "Scripted judge, moody"),
        (5, 2, "Scripted judge, moody"),
        (6, 4, "Scripted judge, moody"),
        (7, 2, "Scripted judge, moody"),
    ]
    strict, moody, later, measurement, sampled = again
    # Two people decided each result, a third where they differ.
    decided = people_decisions(strict.suite)
    assert (decided.results, decided.later) == (29, 4)
    assert len(judged_outputs(strict.suite, 0).judgings) == 5
    assert [row.cells[1] for row in drift_picture(strict.suite).rows[:2]] == ["#5", "#4"]
    [change] = version_warnings(later)
    assert change.startswith("The model behind Scripted judge, moody changed since run #4: ")
    assert strict.score_sum < Run.objects.get(number=2, suite=strict.suite).score_sum
    assert (strict.status, moody.status) == ("completed", "completed")
    assert measurement.summary["judge_spread"]["whole"]["flips"] > 0
    # The samples of one run show the same without a measurement, and one version gave all of them.
    by_samples = sampled.summary["judge_spread"]
    assert (by_samples["basis"], by_samples["drawn"]) == ("samples", 30)
    assert by_samples["whole"]["flips"] > 0
    assert version_warnings(sampled) == []

    [pairwise] = Run.objects.filter(suite__slug="travel-desk").exclude(source_run=None)
    assert (pairwise.status, pairwise.snapshot["baseline"]["run"]) == ("completed", 1)
    found = run_pairwise(pairwise)
    assert found is not None
    careful, hasty = found.rows
    # The later release is better, and only the hasty judge prefers a place.
    assert careful.figures.win_rate > 0.5
    assert (careful.is_biased, hasty.is_biased) == (False, True)
    assert careful.figures.inconclusive == 0

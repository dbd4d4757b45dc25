from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from evaluators.models import LanguageModel
from runs.execution.running import work_on_run
from runs.models import Case, RecordedOutput, Run, Suite, Target
from tests.examples.reading import EXAMPLES

pytestmark = pytest.mark.django_db(transaction=True)


def demo(url="http://127.0.0.1:9/v1"):
    call_command("demo", "--judge-url", url)


def test_the_examples_are_loaded_and_both_versions_started_once(capsys):
    demo()

    slugs = set(Suite.objects.values_list("slug", flat=True))
    assert slugs == {"support-agent", "quick-check", "returns-desk"}
    runs = Run.objects.order_by("number").values_list("target_name", "status", "is_scripted")
    assert list(runs) == [
        ("support-agent 1.4.0", "queued", True),
        ("support-agent 1.5.0", "queued", True),
    ]
    admin = User.objects.get()
    assert admin.has_perm("runs.start_run")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Customer support, core: 2 runs started."
    assert told[1].startswith("Returns desk: not run. ")
    assert "EVALSITE_SCRIPTS" in told[1]


def test_the_agent_that_is_a_program_is_run_where_programs_may_run(settings, capsys):
    settings.SCRIPTS, settings.AGENTS_DIR = True, str(EXAMPLES)
    demo()
    run = Run.objects.get(suite__slug="returns-desk")
    assert (run.status, run.execution_count) == ("queued", 14)
    assert "Returns desk: 1 run started." in capsys.readouterr().err

    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.error_count) == ("completed", 0)
    other = run.results.exclude(verdict="pass").values_list("case__key", "verdict")
    assert list(other.order_by("case__key")) == [("RD-11", "borderline"), ("RD-12", "fail")]
    assert "order is TW-1190, not TW-1042" in str(
        run.results.get(case__key="RD-11").scores.values_list("findings", flat=True)
    )


def test_repeating_it_duplicates_nothing_and_finds_the_judge_at_its_new_address(capsys):
    demo()
    tables = (Suite, Case, Target, RecordedOutput, Run, User, LanguageModel)
    before = [table.objects.count() for table in tables]
    LanguageModel.objects.update(name="My judge")
    demo("http://127.0.0.1:10/v1/")

    assert [table.objects.count() for table in tables] == before
    judge = LanguageModel.objects.get()
    assert (judge.base_url, judge.name) == ("http://127.0.0.1:10/v1", "My judge")
    assert "Customer support, core: was run before; nothing is started." in capsys.readouterr().err


def test_a_key_at_hand_brings_a_model_to_check(settings):
    settings.MODEL_KEYS = {"OPENAI_API_KEY": "sk-test"}
    settings.OPENAI_BASE_URL = "http://127.0.0.1:11/v1"
    demo()

    target = Target.objects.get(kind="chat")
    assert (target.model.base_url, target.model.key_variable) == (
        "http://127.0.0.1:11/v1",
        "OPENAI_API_KEY",
    )

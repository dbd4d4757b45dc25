from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from evaluators.models import LanguageModel
from runs.models import Case, RecordedOutput, Run, Suite, Target

pytestmark = pytest.mark.django_db


def demo(url="http://127.0.0.1:9/v1"):
    call_command("demo", "--judge-url", url)


def test_the_examples_are_loaded_and_both_versions_started_once(capsys):
    demo()

    assert set(Suite.objects.values_list("slug", flat=True)) == {"support-agent", "quick-check"}
    runs = Run.objects.order_by("number").values_list("target_name", "status", "is_scripted")
    assert list(runs) == [
        ("support-agent 1.4.0", "queued", True),
        ("support-agent 1.5.0", "queued", True),
    ]
    admin = User.objects.get()
    assert admin.has_perm("runs.start_run")
    assert capsys.readouterr().err.strip() == "Customer support, core: 2 runs started."


def test_repeating_it_duplicates_nothing_and_finds_the_judge_at_its_new_address(capsys):
    demo()
    tables = (Suite, Case, Target, RecordedOutput, Run, User, LanguageModel)
    before = [table.objects.count() for table in tables]
    LanguageModel.objects.update(name="My judge")
    demo("http://127.0.0.1:10/v1/")

    assert [table.objects.count() for table in tables] == before
    judge = LanguageModel.objects.get()
    assert (judge.base_url, judge.name) == ("http://127.0.0.1:10/v1", "My judge")
    assert "nothing is started again" in capsys.readouterr().err


def test_a_key_at_hand_brings_a_model_to_check(settings):
    settings.MODEL_KEYS = {"OPENAI_API_KEY": "sk-test"}
    settings.OPENAI_BASE_URL = "http://127.0.0.1:11/v1"
    demo()

    target = Target.objects.get(kind="chat")
    assert (target.model.base_url, target.model.key_variable) == (
        "http://127.0.0.1:11/v1",
        "OPENAI_API_KEY",
    )

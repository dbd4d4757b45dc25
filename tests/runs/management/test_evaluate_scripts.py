"""Suites with scripts at the command line: refused before a run exists, carried out where they may."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command

from runs.management import own_hands
from runs.models import Run
from tests.factories import make_case, make_suite, make_target
from tests.runs.trees import LEAF, tree

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = "#!/bin/sh\necho '{\"score\": 100}'"
SCRIPT = {**LEAF, "name": "fine", "kind": "script", "config": {"script": ECHO}}


@pytest.fixture(autouse=True)
def suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a suite that a script scores."""
    monkeypatch.setattr(own_hands, "LOOK_AGAIN_S", 0.01)
    made = make_suite(slug="scripted", tree=tree(SCRIPT))
    make_case(suite=made, key="A", recorded_output={"output": "hi"})
    make_target(name="agent")


def test_with_the_switch_off_nothing_is_started_and_the_remedy_is_said(settings: Any) -> None:
    settings.SCRIPTS = False

    with pytest.raises(CommandError, match="EVALSITE_SCRIPTS=1") as refused:
        call_command("evaluate", "scripted", "--target", "agent")

    assert refused.value.returncode == 3
    assert "For this command: EVALSITE_SCRIPTS=1 evalsite evaluate …" in str(refused.value)
    assert "on this site" not in str(refused.value)
    assert not Run.objects.exists()


def test_whoever_has_the_shell_may_run_scripts(settings: Any) -> None:
    settings.SCRIPTS = True

    call_command("evaluate", "scripted", "--target", "agent")

    run = Run.objects.get()
    assert (run.status, run.pass_count, run.error_count) == ("completed", 1, 0)

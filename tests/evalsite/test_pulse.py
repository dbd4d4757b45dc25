from __future__ import annotations

import pytest

from evalsite.pulse import Pulse
from evaluators.sandbox.probe import sandbox_offered
from runs.models import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_shows_itself_with_version_and_sandbox() -> None:
    Pulse().beat()
    shown = WorkerProcess.objects.get()
    assert shown.sandbox == sandbox_offered().in_words
    assert shown.version

from __future__ import annotations

from typing import Any

import pytest

from evalsite.pulse import Pulse
from evaluators.sandbox.probe import sandbox_offered
from runs.models import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("switch", "before"), [(True, ""), (False, "scripts off; ")])
def test_a_worker_shows_itself_with_version_and_sandbox(
    settings: Any, switch: bool, before: str
) -> None:
    settings.SCRIPTS = switch
    Pulse().beat()
    shown = WorkerProcess.objects.get()
    assert shown.sandbox == f"{before}{sandbox_offered().in_words}"[:100]
    assert shown.version

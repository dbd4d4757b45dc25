"""A check after every test: the stored case states match the results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pytest
from django.forms.models import model_to_dict

from runs.models.run_cases import RunCase

WRITERS = ("execution", "running", "reviews", "files", "what_if", "faults")


@pytest.fixture(autouse=True)
def case_states_follow_results(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a stored case state differs from the rule applied to its results.

    It guards the tests of every feature that writes results and so has to call
    `RunCase.objects.refresh`. The mark `writes_results` exempts tests that write results themselves.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    is_writer = request.path.parent.name in WRITERS
    if "django_db" not in marks or "writes_results" in marks or not is_writer:
        yield
        return
    # Requested here, the database outlives this fixture.
    request.getfixturevalue("_django_db_helper")
    yield
    stored = _states()
    for run_id, cases in groupby(sorted(stored), key=itemgetter(0)):
        RunCase.objects.refresh(run_id, [case_id for _, case_id in cases])
    assert _states() == stored, "results were written without RunCase.objects.refresh"


def _states() -> dict[tuple[int, int], dict[str, object]]:
    rows = RunCase.objects.order_by("pk")
    return {(row.run_id, row.case_id): model_to_dict(row) for row in rows}

"""Every part of the attack runs, and finds nothing in a small share of its requests."""

from __future__ import annotations

import pytest

from tests.attacks.rounds import PARTS, run_part
from tests.attacks.site import AttackedSite

pytestmark = pytest.mark.one_database


# The workers of a run see only what is committed.
COMMITTED = {"replies"}
# What a part does after others that are counted as well.
MADE = {"forms": "forms: ", "files": "shapes: "}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.django_db(transaction=name in COMMITTED))
        for name in PARTS
    ],
)
def test_a_part_finds_nothing(name: str) -> None:
    line, findings = run_part(name, AttackedSite(), seed="test", share=0.002)
    assert findings == []
    assert " 0 requests" not in line
    assert MADE.get(name, "") in line

"""Every part of the attack runs, and finds nothing in a small share of its requests."""

from __future__ import annotations

import pytest

from tests.attacks.rounds import PARTS, run_part
from tests.attacks.site import AttackedSite

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_finds_nothing(name: str) -> None:
    line, findings = run_part(name, AttackedSite(), seed="test", share=0.005)
    assert findings == []
    assert " 0 requests" not in line

"""Every test runs in one lane of `scripts/test`, and lanes read little more than they run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.services.processes import ROOT
from tests.support.groups import is_spared, pytest_collection_modifyitems

PROCESSES, OTHERS = "processes", "not browser and not processes"


@pytest.mark.parametrize(
    ("path", "spared_by"),
    [
        ("tests/browser", OTHERS),
        ("tests/faults/test_clocks.py", ""),
        ("tests/production/test_backup.py", ""),
        ("tests/production/test_compose.py", ""),
        ("tests/engine/test_plan.py", PROCESSES),
    ],
)
def test_a_lane_leaves_unread_what_holds_none_of_its_tests(path: str, spared_by: str) -> None:
    assert [
        marks for marks in (PROCESSES, OTHERS, "slow", "") if is_spared(ROOT / path, marks=marks)
    ] == [*([spared_by] if spared_by else [])]


@pytest.mark.parametrize(
    ("mark", "path"),
    [("browser", "tests/engine/test_plan.py"), ("processes", "tests/engine/test_plan.py")],
)
def test_a_test_that_no_lane_would_run_is_refused(mark: str, path: str) -> None:
    item: Any = SimpleNamespace(
        path=ROOT / path, nodeid=path, get_closest_marker=lambda name: name == mark
    )
    with pytest.raises(pytest.UsageError, match=path):
        pytest_collection_modifyitems([item])

"""Every test is in one group of `scripts/test`, and a group reads only the files it needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.services.processes import ROOT
from tests.support.groups import can_skip, pytest_collection_modifyitems

PROCESSES, OTHERS = "processes", "not browser and not processes"


@pytest.mark.parametrize(
    ("path", "skipped_by"),
    [
        ("tests/browser", OTHERS),
        ("tests/faults/test_clocks.py", ""),
        ("tests/production/test_backup.py", ""),
        ("tests/production/test_compose.py", ""),
        ("tests/engine/test_plan.py", PROCESSES),
    ],
)
def test_a_group_skips_files_without_its_tests(path: str, skipped_by: str) -> None:
    assert [
        marks for marks in (PROCESSES, OTHERS, "slow", "") if can_skip(ROOT / path, marks=marks)
    ] == ([skipped_by] if skipped_by else [])


@pytest.mark.parametrize(
    ("mark", "path"),
    [("browser", "tests/engine/test_plan.py"), ("processes", "tests/engine/test_plan.py")],
)
def test_a_test_without_a_group_is_refused(mark: str, path: str) -> None:
    item: Any = SimpleNamespace(
        path=ROOT / path, nodeid=path, get_closest_marker=lambda name: name == mark
    )
    with pytest.raises(pytest.UsageError, match=path):
        pytest_collection_modifyitems([item])

"""The groups of `scripts/test`: each reads only files whose tests it may run, and every test is in a group."""

from __future__ import annotations

from pathlib import Path

import pytest

BROWSER_FOLDER = "browser"
PROCESSES_MARK = "mark.processes"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of the group: importing all of them takes seconds."""
    return True if can_skip(collection_path, marks=config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that no group would run; the conftests of folders have set their marks before."""
    for item in items:
        if item.get_closest_marker("browser") and BROWSER_FOLDER not in item.path.parts:
            raise pytest.UsageError(f"{item.nodeid} drives a browser: move it to tests/browser.")
        if item.get_closest_marker("processes") and can_skip(item.path, marks="processes"):
            raise pytest.UsageError(
                f"{item.nodeid}: write @pytest.{PROCESSES_MARK} in the same file."
            )


def can_skip(path: Path, *, marks: str) -> bool:
    """Tell whether `-m` selects no test of a file or folder."""
    if path.name == BROWSER_FOLDER:
        return marks.startswith("not browser")
    if marks != "processes" or not path.name.startswith("test_"):
        return False
    # The conftest of a folder may mark all its tests.
    files = (path, path.with_name("conftest.py"))
    return not any(PROCESSES_MARK in file.read_text() for file in files if file.exists())

"""The lanes of `scripts/test`: each reads only the files it may run, and no test falls between them."""

from __future__ import annotations

from pathlib import Path

import pytest

BROWSER_FOLDER = "browser"
BY_ITSELF = "mark.processes"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread what holds no test of the lane: to read everything takes seconds."""
    return True if is_spared(collection_path, marks=config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that no lane would run; deeper folders have set their marks before."""
    for item in items:
        if item.get_closest_marker("browser") and BROWSER_FOLDER not in item.path.parts:
            raise pytest.UsageError(
                f"{item.nodeid} drives a browser: it has to lie in tests/browser."
            )
        if item.get_closest_marker("processes") and is_spared(item.path, marks="processes"):
            raise pytest.UsageError(f"{item.nodeid}: write @pytest.{BY_ITSELF} in the same file.")


def is_spared(path: Path, *, marks: str) -> bool:
    """Tell whether none of a file's or a folder's tests can be among those that `-m` asks for."""
    if path.name == BROWSER_FOLDER:
        return marks.startswith("not browser")
    if marks != "processes" or not path.name.startswith("test_"):
        return False
    # A folder's tests may all be marked by its conftest.
    marking = (path, path.with_name("conftest.py"))
    return not any(BY_ITSELF in each.read_text() for each in marking if each.exists())

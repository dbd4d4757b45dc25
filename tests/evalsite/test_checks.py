from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from evalsite.checks import check_environment
from evaluators.sandbox.probe import SandboxOffer

LENGTH = 64


def setting_problems(settings: Settings, key: str) -> list[str]:
    settings.SECRET_KEY = key
    return [
        check.id or ""
        for check in check_environment()
        if check.id == "evalsite.E.EVALSITE_SECRET_KEY"
    ]


def test_a_random_key_with_three_equal_characters_passes(settings: Settings) -> None:
    # One key in five hundred contains "xxx" in upper or lower case.
    key = "RLqg6aNb5hWnflRdrho03XXxmAIXs_ZgZ2L4fLFt0E941r9wUWWO4deZjY33I_p8"
    assert setting_problems(settings, key) == []


@pytest.mark.parametrize(
    "key", ["x" * LENGTH, "change-me-" * 7, "Your-secret-key-stands-here-please".ljust(LENGTH, "!")]
)
def test_a_long_placeholder_is_refused(settings: Settings, key: str) -> None:
    assert setting_problems(settings, key) == ["evalsite.E.EVALSITE_SECRET_KEY"]


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (SandboxOffer("bubblewrap"), None),
        (SandboxOffer("limits", closed=("files", "network")), None),
        (SandboxOffer("limits", closed=("network",)), "leave files open"),
        (SandboxOffer("limits", reason="no bwrap"), "leave files and network open: no bwrap"),
        (SandboxOffer("none", reason="no prlimit"), "no sandbox works on this machine: no prlimit"),
    ],
)
def test_scripts_without_a_complete_sandbox_cause_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, offer: SandboxOffer, expected: str | None
) -> None:
    settings.SCRIPTS = True
    monkeypatch.setattr("evalsite.checks.sandbox_offered", lambda: offer)
    warnings = [
        check.msg for check in check_environment() if check.id == "evalsite.W.EVALSITE_SCRIPTS"
    ]
    assert len(warnings) == (expected is not None)
    assert all(expected in warning for warning in warnings)


def test_without_scripts_the_sandbox_is_not_checked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SCRIPTS = False
    monkeypatch.delattr("evalsite.checks.sandbox_offered")
    check_environment()


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "warns"),
    [(0o755, 0o644, True), (0o700, 0o644, False), (0o755, 0o600, False), (0o750, 0o644, False)],
)
def test_a_database_that_every_user_can_read_causes_a_warning(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    folder_mode: int,
    file_mode: int,
    warns: bool,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "evalsite.sqlite3"
    path.touch()
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    # The folders above belong to the test's own user alone.
    monkeypatch.setattr("evalsite.checks.Path.parents", (folder,))
    monkeypatch.setitem(settings.DATABASES, "default", {"ENGINE": "sqlite3", "NAME": path})
    messages = [check.msg for check in check_environment() if "EVALSITE_DATA_DIR" in str(check.id)]
    assert messages == [f"Every user of this machine can read the database {path}."] * warns

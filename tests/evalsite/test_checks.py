from __future__ import annotations

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

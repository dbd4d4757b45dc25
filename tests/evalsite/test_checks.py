from __future__ import annotations

import pytest
from pytest_django import Settings

from evalsite.checks import check_environment
from evaluators.sandbox.probe import SandboxOffer

LENGTH = 64


def complaints(settings: Settings, key: str) -> list[str]:
    settings.SECRET_KEY = key
    return [
        found.id or ""
        for found in check_environment()
        if found.id == "evalsite.E.EVALSITE_SECRET_KEY"
    ]


def test_a_random_key_passes_also_with_three_alike_in_a_row(settings: Settings) -> None:
    # One key in five hundred holds "xxx" in some spelling.
    key = "RLqg6aNb5hWnflRdrho03XXxmAIXs_ZgZ2L4fLFt0E941r9wUWWO4deZjY33I_p8"
    assert complaints(settings, key) == []


@pytest.mark.parametrize(
    "key", ["x" * LENGTH, "change-me-" * 7, "Your-secret-key-stands-here-please".ljust(LENGTH, "!")]
)
def test_a_placeholder_is_refused_however_long_it_is(settings: Settings, key: str) -> None:
    assert complaints(settings, key) == ["evalsite.E.EVALSITE_SECRET_KEY"]


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (SandboxOffer("bubblewrap"), None),
        (SandboxOffer("limits", closed=("files", "network")), None),
        (SandboxOffer("limits", closed=("network",)), "leave files open"),
        (SandboxOffer("limits", reason="no bwrap"), "leave files and network open: no bwrap"),
        (SandboxOffer("none", reason="no prlimit"), "no sandbox works on this machine: no prlimit"),
    ],
)
def test_scripts_that_are_switched_on_without_a_whole_sandbox_are_warned_of(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, offer: SandboxOffer, said: str | None
) -> None:
    settings.SCRIPTS = True
    monkeypatch.setattr("evalsite.checks.sandbox_offered", lambda: offer)
    found = [
        found.msg for found in check_environment() if found.id == "evalsite.W.EVALSITE_SCRIPTS"
    ]
    assert [said is not None and said in message for message in found] == ([True] if said else [])


def test_without_the_switch_nobody_asks_for_a_sandbox(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SCRIPTS = False
    monkeypatch.delattr("evalsite.checks.sandbox_offered")
    check_environment()

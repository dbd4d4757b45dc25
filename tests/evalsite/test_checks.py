from __future__ import annotations

import pytest
from pytest_django import Settings

from evalsite.checks import check_environment

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

"""Find the browser the tests drive."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed_chromium() -> Path | None:
    """Return the system's browser, else the one playwright has downloaded."""
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    return own if own.exists() else None

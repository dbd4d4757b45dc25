"""Find the browser the tests drive."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from playwright.sync_api import sync_playwright

# The first has no window system, and needs half of the processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def installed_chromium() -> Path | None:
    """Return the system's browser, else the one playwright has downloaded."""
    for name in NAMES:
        found = shutil.which(name)
        if found and _starts(found):
            return Path(found)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    return own if own.exists() else None


def _starts(program: str) -> bool:
    # Ubuntu's package is a stub that only says which other store has the browser.
    return subprocess.run([program, "--version"], capture_output=True).returncode == 0

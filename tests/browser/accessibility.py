"""Look for barriers on a page with axe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Page

# What nobody reads takes half of the time: passed checks, selectors, sheets loaded once more.
LEAN = {"resultTypes": ["violations"], "selectors": False, "preload": False, "iframes": False}
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
EVERY_RULE = {"runOnly": LEVELS}
# What the other theme can change.
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
RUN = "options => axe.run(document, options).then(results => results.violations)"


def violations(page: Page, rules: Mapping[str, Any] = EVERY_RULE) -> list[tuple[str, str, str]]:
    """Return what a page breaks, with its address: rules of axe, and that it never scrolls sideways."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_script())
    broken = page.evaluate(RUN, {**LEAN, **rules})
    found = [(page.url, rule["id"], rule["nodes"][0]["html"][:160]) for rule in broken]
    broad = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [*found, *([(page.url, "sideways", str(broad))] if broad > 0 else [])]


@cache
def _script() -> str:
    return Path(AXE_FILE_PATH).read_text(encoding="utf-8")

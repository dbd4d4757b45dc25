"""Look for barriers on a page with axe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Page, ViewportSize

# What nobody reads takes half of the time: passed checks, selectors, sheets loaded once more.
LEAN = {"resultTypes": ["violations"], "selectors": False, "preload": False, "iframes": False}
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
EVERY_RULE = {"runOnly": LEVELS}
# What the other theme can change.
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
ALL_BUT_CONTRAST = {**EVERY_RULE, "rules": {"color-contrast": {"enabled": False}}}
# As high as the page: otherwise elements under a sticky bar count as too close to it.
WIDE, NARROW = ViewportSize(width=1440, height=6000), ViewportSize(width=360, height=6000)
RUN = "options => axe.run(document, options).then(results => results.violations)"
# The rule about contrast takes most of the time of all rules. Its answer depends on the colours and the size of a text
# and on what is painted around and behind it, so of texts that look the same it is asked about one. They are chosen and
# handed to axe at once: a live part of the page may be replaced at any time.
RUN_ON_NEW_LOOKS = """async ([checked, options]) => {
    const paint = element => {
        const {backgroundColor, backgroundImage, opacity, filter} = getComputedStyle(element);
        const own = [backgroundColor, backgroundImage, opacity, filter].join(" ");
        return own === "rgba(0, 0, 0, 0) none 1 none" ? "" : own + "; ";
    };
    const around = new Map([[null, ""]]);
    const paintAround = element => {
        if (!around.has(element)) around.set(element, paint(element) + paintAround(element.parentElement));
        return around.get(element);
    };
    const paintBehind = element => {
        const {x, y, width, height} = element.getBoundingClientRect();
        const there = document.elementsFromPoint(x + width / 2, y + height / 2);
        return there.filter(other => !other.contains(element) && !element.contains(other)).map(paint).join("");
    };
    const hasText = element => element.matches("input, select, textarea")
        || [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const looks = new Map();
    for (const element of document.body.querySelectorAll("*")) {
        if (!hasText(element) || !element.checkVisibility()) continue;
        const {color, fontSize, fontWeight} = getComputedStyle(element);
        const look = [color, fontSize, fontWeight, paintAround(element), paintBehind(element)].join("; ");
        looks.set(look, element);
    }
    checked.forEach(look => looks.delete(look));
    if (!looks.size) return [[], []];
    const results = axe.run({include: [...looks.values()]}, options);
    return [[...looks.keys()], (await results).violations];
}"""

Found = list[tuple[str, str, str]]
Theme = Literal["light", "dark"]


def violations(page: Page, rules: Mapping[str, Any] = EVERY_RULE) -> Found:
    """Return what a page breaks, with its address: rules of axe, and that it never scrolls sideways."""
    # What is measured before styles and scripts are there is another page.
    page.wait_for_load_state()
    _load_axe(page)
    found = _named(page, page.evaluate(RUN, {**LEAN, **rules}))
    broad = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [*found, *([(page.url, "sideways", str(broad))] if broad > 0 else [])]


def violations_in_every_look(page: Page, checked: set[str]) -> Found:
    """Return what a page breaks wide and narrow, light and dark.

    Contrast is checked of texts that look like none before; `checked` holds their looks from page to page.
    Every other rule is checked in both widths.
    """
    found = []
    for size, *themes in ((WIDE, "light", "dark"), (NARROW, "dark", "light")):
        page.set_viewport_size(size)
        for theme in themes:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += _contrasts(page, checked)
            if theme == themes[0]:
                found += violations(page, ALL_BUT_CONTRAST)
    return found


def _contrasts(page: Page, checked: set[str]) -> Found:
    """Check the texts whose look is not among those checked, and add it."""
    _load_axe(page)
    looks, broken = page.evaluate(RUN_ON_NEW_LOOKS, [[*checked], {**LEAN, **CONTRAST}])
    checked.update(looks)
    return _named(page, broken)


def _named(page: Page, broken: list[dict[str, Any]]) -> Found:
    return [(page.url, rule["id"], rule["nodes"][0]["html"][:160]) for rule in broken]


def _load_axe(page: Page) -> None:
    if not page.evaluate("'axe' in window"):
        page.evaluate(_script())


@cache
def _script() -> str:
    return Path(AXE_FILE_PATH).read_text(encoding="utf-8")

"""Whether the look for barriers sees those that are there only in one theme, at one width."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.accessibility import violations_in_every_look

PAGE = """<!doctype html><html lang="en"><title>Page</title><meta name="viewport" content="width=device-width">
<style>:root {{ color-scheme: light dark }} main {{ font-size: 16px; color: CanvasText; background: Canvas }} {style}
</style><main><h1>Page</h1><ul><li>One</li><li class="b">Two</li></ul></main>"""


def rules_broken(page: Page, style: str, checked: set[str]) -> list[str]:
    page.set_content(PAGE.format(style=style))
    return [rule for _, rule, _ in violations_in_every_look(page, checked)]


@pytest.mark.parametrize(
    "condition",
    [
        "(prefers-color-scheme: light) and (width > 500px)",
        "(prefers-color-scheme: dark) and (width > 500px)",
        "(prefers-color-scheme: light) and (width < 500px)",
        "(prefers-color-scheme: dark) and (width < 500px)",
    ],
)
def test_a_text_that_is_hard_to_read_in_one_look_is_found(page: Page, condition: str) -> None:
    checked: set[str] = set()
    assert rules_broken(page, "", checked) == []
    style = f"@media {condition} {{ .b {{ color: #777; background: #888 }} }}"
    assert "color-contrast" in rules_broken(page, style, checked)


def test_a_page_that_is_too_broad_on_a_phone_is_found(page: Page) -> None:
    assert "sideways" in rules_broken(page, "main { min-width: 500px }", set())

"""Whether the look for barriers sees those that are there only in one theme, at one width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from tests.browser.accessibility import violations_in_every_look
from tests.support.queue import queued_run

PAGE = """<!doctype html><html lang="en"><title>Page</title><meta name="viewport" content="width=device-width">
<style>:root {{ color-scheme: light dark }} main {{ font-size: 16px; color: CanvasText; background: Canvas }} {style}
</style><main><i></i><h1>Page</h1><ul><li>One</li><li class="b">Two</li></ul></main>"""


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


def test_a_text_that_another_part_lies_behind_has_a_look_of_its_own(page: Page) -> None:
    checked: set[str] = set()
    raised = ".b { position: relative; z-index: 1 }"
    assert rules_broken(page, raised, checked) == []
    behind = "i { position: absolute; inset: 0; background: #888 }"
    assert "color-contrast" in rules_broken(page, raised + behind, checked)


def test_a_page_that_is_too_broad_on_a_phone_is_found(page: Page) -> None:
    assert "sideways" in rules_broken(page, "main { min-width: 500px }", set())


LOOKS = """(part) => {
  const { outlineStyle, outlineColor, borderBottomColor } = getComputedStyle(part);
  return [outlineStyle, outlineStyle === "none" ? "" : outlineColor, borderBottomColor].join(" ");
}"""


@pytest.mark.django_db(transaction=True)
def test_in_forced_colours_what_is_current_looks_different(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    log_in("editor")
    run = queued_run(["borderline", "fail"])
    page.emulate_media(forced_colors="active")
    suite = f"{live_server.url}/suites/{run.suite.slug}"
    for address, current, other in (
        (f"{suite}/", ".tabs [aria-current]", ".tabs a:not([aria-current])"),
        (f"{suite}/", ".sidebar nav [aria-current]", ".sidebar nav a:not([aria-current])"),
        (f"{suite}/", ".segment label:has(:checked)", ".segment label:not(:has(:checked))"),
        (f"{suite}/runs/{run.number}/", ".chip[aria-current]", ".chip:not([aria-current])"),
        (
            f"{live_server.url}/review/",
            ".choice label:has(:checked)",
            ".choice label:has([value=pass])",
        ),
    ):
        if page.url != address:
            page.goto(address)
        if ".choice" in current:
            page.keyboard.press("f")
            page.evaluate("() => document.activeElement.blur()")
        looks = [page.locator(part).first.evaluate(LOOKS) for part in (current, other)]
        assert looks[0] != looks[1], current

"""Walk a page with the Tab key, held to a focus that is seen at every stop."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

MAX_STOPS = 150
# Where the focus is, and whether somebody sees it: on the page, in view, drawn around it or what holds it,
# and not all of it under something that sticks (WCAG 2.4.11).
STOP = """() => {
  const here = document.activeElement;
  // A radio button without a size of its own is its label.
  const box = (here.type === "radio" && here.closest("label") || here).getBoundingClientRect();
  const drawn = (e) => e && (parseFloat(getComputedStyle(e).outlineWidth) > 0
    && getComputedStyle(e).outlineStyle !== "none" || getComputedStyle(e).boxShadow !== "none");
  const isIn = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  const isBare = [0.1, 0.5, 0.9].some((at) => {
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height * at);
    return top && (here.contains(top) || top.contains(here) || here.parentElement.contains(top));
  });
  return [here !== document.body, isBare, isIn && box.width > 0, Boolean(drawn(here) || drawn(here.parentElement)),
    here.outerHTML.slice(0, 160)];
}"""


def tab_to(page: Page, place: Locator, *, back: bool = False) -> None:
    """Press Tab until the place has the focus; fail where it is lost, out of view or not drawn."""
    expect(place).to_be_visible()
    # A page that has just been opened may lack its styles yet.
    page.wait_for_load_state()
    stops = []
    for _ in range(MAX_STOPS):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        *seen, what = page.evaluate(STOP)
        stops.append(what)
        assert seen == [True, True, True, True], stops
        # In one look: an answer that comes may put another element in its place.
        if place.and_(page.locator(":focus")).count():
            return
    raise AssertionError(f"{place} was not reached in {MAX_STOPS} stops")


def press(page: Page, place: Locator, key: str = "Enter", *, back: bool = False) -> None:
    """Tab to a link or button and press it."""
    tab_to(page, place, back=back)
    page.keyboard.press(key)


def enter(page: Page, place: Locator, text: str, *, back: bool = False) -> None:
    """Tab to a field and put the text in place of what it holds."""
    tab_to(page, place, back=back)
    retype(page, text)


def retype(page: Page, text: str) -> None:
    """Put the text in place of what the focused field holds.

    It comes at once: between single keys a slow machine may ask the server for what half of the text means.
    """
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)

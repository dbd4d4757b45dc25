"""Take the pictures of the README from a served demo: `python -m tests.scripts.readme_pictures URL`.

Its data folder is in EVALSITE_DATA_DIR. Pillow is needed, see scripts/pictures.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.services.chromium import installed_chromium
from tests.services.processes import ROOT
from tests.services.site import is_healthy

FOLDER = ROOT / "examples" / "screens"
WINDOW = {"width": 1280, "height": 880}
# The page beside the menu and below the banner of the demo.
CLIP = {"x": 216, "y": 41, "width": 1064, "height": 730}
# The same, from the tabs of a suite on.
LOWER_CLIP = {**CLIP, "y": 142}
PATIENCE_S = 300
COMPARISON = "/compare/?baseline=support-agent:1&candidate=support-agent:2"
EVALUATORS = "/suites/support-agent/evaluators/"
RAISED = 0.97
STEPS = 8
STILLS = {
    "run": "/suites/support-agent/runs/2/",
    "compare": COMPARISON,
    "what-if": EVALUATORS,
    "review": "/review/",
    "campaign": "/campaigns/1/",
    "charts": "/suites/travel-desk/charts/",
    "heat-map": "/suites/support-agent/runs/2/heat-map/",
}


class Film:
    """The frames of a moving picture, each with its time in milliseconds."""

    def __init__(self, page: Page) -> None:
        """Begin without frames."""
        self.page = page
        self.frames: list[Image.Image] = []
        self.times_ms: list[int] = []

    def take(
        self, ms: int, clip: dict[str, int], pointer: tuple[float, float] | None = None
    ) -> None:
        """Add the page as it is, with the pointer at a place of the window."""
        frame = Image.open(io.BytesIO(self.page.screenshot(clip=clip))).convert("RGB")
        if pointer:
            x, y = pointer[0] - clip["x"], pointer[1] - clip["y"]
            arrow = [(0, 0), (0, 19), (4.5, 15), (8, 22), (11, 20.5), (7.8, 14), (13.5, 14)]
            ImageDraw.Draw(frame).polygon(
                [(x + right, y + down) for right, down in arrow], fill="black", outline="white"
            )
        self.frames.append(frame)
        self.times_ms.append(ms)

    def save(self, name: str) -> None:
        """Write the frames as an endless animated WebP."""
        first, *more = self.frames
        first.save(
            FOLDER / f"{name}.webp",
            save_all=True,
            append_images=more,
            duration=self.times_ms,
            loop=0,
            lossless=True,
            method=6,
        )


def main(url: str) -> None:
    """Wait for the demo and take all pictures."""
    _wait_for(url)
    link = subprocess.run(
        [sys.executable, "manage.py", "login_link"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[-1]
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=installed_chromium(), args=["--no-sandbox"]
        )
        page = _open(browser, url, "light")
        page.goto(link)
        page.locator("main form button").click()
        page.wait_for_url(f"{url}/")
        _wait_for_runs(page)
        _film(page)
        state = page.context.storage_state()
        for scheme in ("light", "dark"):
            _stills(_open(browser, url, scheme, state), scheme)
        browser.close()


def _wait_for(url: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_healthy(url):
        if time.monotonic() > end:
            sys.exit(f"No demo answered at {url} within {PATIENCE_S} s.")
        time.sleep(1)


def _wait_for_runs(page: Page) -> None:
    """Wait until the runs of the demo are over; the home page counts them."""
    end = time.monotonic() + PATIENCE_S
    while "Running now\n0\n" not in page.locator("main").inner_text():
        if time.monotonic() > end:
            sys.exit(f"The runs of the demo did not end within {PATIENCE_S} s.")
        time.sleep(1)
        page.goto("/")


def _open(browser: Browser, url: str, scheme: str, state: object = None) -> Page:
    context = browser.new_context(
        base_url=url,
        viewport=WINDOW,
        color_scheme=scheme,
        reduced_motion="reduce",
        storage_state=state,
    )
    return context.new_page()


def _go(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("networkidle")


def _film(page: Page) -> None:
    """Raise a threshold until cases flip; then compare two runs and open what got worse."""
    film = Film(page)
    _go(page, EVALUATORS)
    expect(page.locator("#what-if-title")).to_have_text("No case would flip")
    handle = page.locator("#pass_threshold-wide")
    x, y = _middle(handle.locator("circle"))
    low, high = (
        page.locator("#histogram svg.wide .axis").evaluate(
            f"axis => axis.getBoundingClientRect().{side}"
        )
        for side in ("left", "right")
    )
    begin = float(handle.get_attribute("aria-valuenow") or 0)
    film.take(1800, LOWER_CLIP, (x, y))
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, STEPS + 1):
        value = begin + (RAISED - begin) * step / STEPS
        x = low + (high - low) * value
        page.mouse.move(x, y)
        film.take(120, LOWER_CLIP, (x, y))
    page.mouse.up()
    expect(page.locator("#what-if-title")).to_contain_text("would flip")
    expect(page.locator("#what-if-title")).not_to_contain_text("No case")
    page.wait_for_load_state("networkidle")
    film.take(3600, LOWER_CLIP, (x, y))
    _go(page, COMPARISON)
    chip = page.get_by_role("link", name="Regressed")
    film.take(2600, CLIP)
    film.take(700, CLIP, _middle(chip))
    chip.click()
    expect(chip).to_have_attribute("aria-current", "true")
    page.wait_for_load_state("networkidle")
    film.take(2400, CLIP, _middle(chip))
    case = page.locator("#changes tbody a").first
    film.take(700, CLIP, _middle(case))
    case.click()
    page.wait_for_load_state("networkidle")
    film.take(3600, CLIP)
    film.save("evalsite")


def _middle(part: Locator) -> tuple[float, float]:
    box = part.bounding_box()
    if box is None:
        raise AssertionError(f"{part} is not on the page.")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def _stills(page: Page, scheme: str) -> None:
    for name, path in STILLS.items():
        _go(page, path)
        _still(page, name, scheme)
    _go(page, "/suites/support-agent/runs/2/")
    _go(page, page.get_by_role("link", name="CS-011").first.get_attribute("href") or "")
    _still(page, "result", scheme)


def _still(page: Page, name: str, scheme: str) -> None:
    Image.open(io.BytesIO(page.screenshot(clip=CLIP))).convert("RGB").save(
        FOLDER / f"{name}-{scheme}.webp", lossless=True, method=6
    )


if __name__ == "__main__":
    main(sys.argv[1])

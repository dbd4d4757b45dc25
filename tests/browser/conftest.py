"""Chromium against a live site; a message on the console of a page fails the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)
from pytest_django.live_server_helper import LiveServer

from tests.services.chromium import installed_chromium
from tests.services.site import Site, running_site
from tests.support.members import make_member

# How long to wait for what must happen before a test fails; long, so that a slow machine fails none.
PATIENCE_MS = 120_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder and put them last."""
    for item in items:
        if "/tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
    # Playwright keeps an event loop running in the thread of the tests, so tests that start their own
    # loop must run before these.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


class Console:
    """The unexpected messages of a page: errors, warnings, policy violations."""

    def __init__(self) -> None:
        """Start without messages."""
        self.messages: list[str] = []
        # Chromium tells that it obeyed.
        self.allowed: list[str] = ["Clear-Site-Data header"]

    def allow(self, text: str) -> None:
        """Expect messages that contain the text, such as the status of a page that is refused."""
        self.allowed.append(text)

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))

    def unexpected(self) -> list[str]:
        """Return the messages that were not allowed."""
        return [
            message
            for message in self.messages
            if not any(allowed in message for allowed in self.allowed)
        ]

    def _hear(self, message: ConsoleMessage) -> None:
        self.messages.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")


# Playwright's loop runs in the test's own thread, so it must not outlive this folder's tests:
# `asyncio.run` in others would refuse.
@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium once."""
    executable = installed_chromium()
    if executable is None:
        pytest.fail("No Chromium: apt-get install chromium, or run scripts/test.")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    # Otherwise a second process is started beside that of each page, for the next one.
    arguments = ["--renderer-process-limit=1"]
    arguments += ["--no-sandbox"] if os.getuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def console() -> Iterator[Console]:
    """Fail the test if a page wrote an unexpected message."""
    watched = Console()
    yield watched
    assert watched.unexpected() == []


@contextmanager
def opened_profile(browser: Browser) -> Iterator[BrowserContext]:
    """Open a browser profile with the width of a laptop."""
    profile = browser.new_context(viewport={"width": 1440, "height": 900})
    profile.set_default_timeout(PATIENCE_MS)
    # It stays open, and what tests leave behind is removed from there.
    profile.new_page()
    yield profile
    profile.close()


@pytest.fixture(scope="session")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """Open a profile that keeps the scripts and styles of the site from test to test."""
    with opened_profile(browser) as profile:
        yield profile


@pytest.fixture
def context(profile: BrowserContext, console: Console) -> Iterator[BrowserContext]:
    """Give the profile with nothing of other tests in it but files of the site.

    Tests that change it for good, as `page.clock` does, open profiles of their own.
    """
    profile.on("page", console.watch)
    yield profile
    blank, *opened = profile.pages
    for page in opened:
        page.close()
    profile.remove_listener("page", console.watch)
    profile.clear_cookies()
    everything = {"origin": "*", "storageTypes": "all"}
    profile.new_cdp_session(blank).send("Storage.clearDataForOrigin", everything)


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Open an empty page."""
    return context.new_page()


@pytest.fixture
def log_in(context: BrowserContext, live_server: LiveServer) -> Callable[[str], User]:
    """Log the browser in to the live server as a new member with the given role."""

    def log_in_as(role: str) -> User:
        member = make_member(role)
        client = Client()
        client.force_login(member)
        name = settings.SESSION_COOKIE_NAME
        context.add_cookies(
            [{"name": name, "value": client.cookies[name].value, "url": live_server.url}]
        )
        return member

    return log_in_as


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Run the whole site as its users do: gunicorn, embedded worker, its own database."""
    with running_site() as started:
        yield started

"""A real provider of accounts for tests of signing in, and a person who walks there and back."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookiejar import CookieJar
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, Request, build_opener

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from tests.services.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
)

SITE = "http://testserver"


@pytest.fixture(scope="session")
def _provider_process() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def provider(_provider_process: IdentityProvider, settings: Settings) -> IdentityProvider:
    """Return a provider that tells the truth and knows the test client's site, which uses it."""
    _provider_process.lie()
    _provider_process.register(SITE)
    use_provider(settings, _provider_process)
    return _provider_process


def use_provider(settings: Settings, provider: IdentityProvider) -> None:
    """Let the site's members sign in with the provider; only those who were invited."""
    settings.OIDC_ISSUER = provider.issuer
    settings.OIDC_NAME = "Harbour ID"
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET


class _StopsAtTheSite(HTTPRedirectHandler):
    """Follows no redirect back to the site."""

    def redirect_request(self, request: Request, *others: object) -> Request | None:
        if str(others[-1]).startswith(SITE):
            return None
        return super().redirect_request(request, *others)


def go_to_provider(client: Client, person: str, *, start: str = "/sign-in/?next=/account/") -> str:
    """Start to sign in and log in at the provider; return the path that it leads back to."""
    sent_there = client.get(start)
    assert sent_there.status_code == 302, sent_there.text
    browser = build_opener(HTTPCookieProcessor(CookieJar()), _StopsAtTheSite())
    login_form = browser.open(sent_there["Location"])
    form = urlencode({"name": person}).encode()
    try:
        browser.open(login_form.url, data=form)
    except OSError as stopped:
        back = stopped.headers["Location"]
    parts = urlsplit(back)
    return f"{parts.path}?{parts.query}"


def sign_in(client: Client, person: str, *, next_path: str = "/account/") -> HttpResponse:
    """Sign in as a person whom the provider knows; return the site's answer when the browser comes back."""
    start = f"/sign-in/?{urlencode({'next': next_path})}"
    return client.get(go_to_provider(client, person, start=start))


def query_of(address: str) -> dict[str, str]:
    """Return the parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}

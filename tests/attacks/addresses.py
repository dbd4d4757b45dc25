"""Every address for every role, method and kind of token: nobody reads or changes what they may not."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product

from django.contrib.auth.models import Group
from django.test import Client

from evalsite.access.roles import Role, Scope
from tests.api.site import token_of
from tests.api.test_scopes import NEEDS
from tests.attacks.site import (
    FORM,
    JSON,
    SAFE_METHODS,
    SENDERS,
    Answer,
    AttackedSite,
    Finding,
    exceeded_rights,
)
from tests.evalsite.test_every_url import LOGGED_IN, PAGES, ROLES
from tests.support.members import make_member

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
BODIES = (
    (FORM, b"nonsense=1"),
    (FORM, b""),
    (JSON, b"{}"),
    (JSON, b"["),
    (JSON, b'{"a":1}'),
    ("multipart/form-data; boundary=x", b"--x--"),
    ("text/plain", b"a=1"),
)
SCOPES = ((), *((scope,) for scope in Scope), tuple(Scope))
# What a call answers that a token may not make; 404 and 405 come first where there is nothing to call.
FORBIDDEN = {401, 403, 404, 405}


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Send every method to every address as every role, and to the API with every kind of token."""
    yield from attack_as_members(site, chance, share)
    yield from attack_with_tokens(site, chance, share)


def attack_as_members(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    for name, role, method, is_htmx in product(PAGES, SENDERS, METHODS, (False, True)):
        if chance.random() >= share:
            continue
        content_type, body = (FORM, b"") if method in SAFE_METHODS else chance.choice(BODIES)
        with site.ask(
            site.client(role),
            method,
            site.address(name),
            body,
            content_type=content_type,
            is_htmx=is_htmx,
            about=f"as {role} {body!r} {content_type}",
        ) as answer:
            yield from answer.findings
            yield from exceeded_rights(role, method, answer)


def attack_with_tokens(
    site: AttackedSite, chance: random.Random, share: float
) -> Iterator[Finding]:
    calls = [name for name, page in PAGES.items() if page.is_api]
    for role, scopes in product(ROLES, SCOPES):
        # Made while its owner may do everything: a token does what its owner may now.
        owner = make_member("admin", f"token-{role}-{'-'.join(scopes)}")
        secret = token_of(owner, scopes=scopes)
        owner.groups.set([] if role == LOGGED_IN else [Group.objects.get(name=role)])
        client = Client(
            headers={"authorization": f"Bearer {secret}"}, raise_request_exception=False
        )
        for name, method in product(calls, METHODS):
            if chance.random() >= share:
                continue
            body = b"" if method in SAFE_METHODS else b"{}"
            about = f"with a token of a {role} for {[*map(str, scopes)]}"
            with site.ask(
                client, method, site.address(name), body, content_type=JSON, about=about
            ) as answer:
                yield from answer.findings
                yield from wrong_for_token(role, scopes, method, answer)


def wrong_for_token(
    role: str, scopes: tuple[Scope, ...], method: str, answer: Answer
) -> Iterator[Finding]:
    """Yield what a call gave to a token that may not make it, or refused to one that may."""
    if method == "OPTIONS":
        return
    path = answer.request.split()[1].partition("?")[0]
    needs = (Role.VIEWER, Scope.READ) if method in SAFE_METHODS else needed(method, path)
    if needs is None:
        if answer.status < 400 or answer.written:
            yield answer.find("Took a method it does not have", answer.status)
        return
    lowest, scope = needs
    is_allowed = ROLES.index(role) >= ROLES.index(lowest) and scope in (Scope.READ, *scopes)
    if not is_allowed and (answer.status not in FORBIDDEN or answer.written):
        yield answer.find("Did what the token may not", f"{answer.status}, {answer.written}")
    if is_allowed and answer.status == 403:
        yield answer.find("Refused what the token may", answer.status)


def needed(method: str, path: str) -> tuple[Role, Scope] | None:
    """Return the role and the scope that a changing call needs, if there is such a call."""
    for (listed, form), needs in NEEDS.items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(form))
        if listed == method.lower() and re.fullmatch(pattern, path):
            return needs
    return None

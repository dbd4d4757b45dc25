"""Every form of every role: each field in turn with hostile values, and fields that the form does not have."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from django.contrib.auth.models import User

from tests.attacks import states
from tests.attacks.crawl import Crawl, Data, DrawnForm
from tests.attacks.site import (
    HALFWAY,
    SENDERS,
    SMUGGLED,
    AttackedSite,
    Finding,
    encode,
    exceeded_rights,
    shorten,
)
from tests.attacks.values import LONG_TEXTS, MANY, SHORT
from tests.evalsite.test_every_url import NOT_ALLOWED, PAGES, VISITOR
from tests.support.members import PASSWORD

# Each sees forms that the others do not.
CRAWLERS = (VISITOR, HALFWAY, "reviewer", "editor", "admin")
# Columns that no form of a member but an admin may set.
PRIVILEGES = (
    *("is_staff", "is_superuser", "is_active", "role", "groups", "user_permissions", "scripts"),
    *("owner", "owner_id", "user", "user_id", "member", "asked_by", "created_by", "author", "by"),
    *("reviewer", "imported_by", "suite_id", "run_id", "target_id", "status", "state", "id", "pk"),
    *("is_current", "is_shared", "archived_at", "scopes", "machine_verdict", "content", "snapshot"),
    *("kind", "script", "encrypted_key", "key_variable", "base_url", "token", "expires_at", "hash"),
)
# What a text that must be filled is filled with, by its name.
PLAUSIBLE = {
    "email": "a@b.example",
    "url": "http://127.0.0.1:9/v1",
    "count|budget|days|min|max|weight|repet|times|price": "1",
    "": "plausible",
}
NEW_PASSWORD = "tent-pole-42-in-the-wind"
# What else a form needs to be accepted, by its address.
NEEDED: Mapping[str, Data] = {
    "access:login": {"username": ["a-viewer"], "password": [PASSWORD]},
    "access:password": {
        "old_password": [PASSWORD],
        "new_password1": [NEW_PASSWORD],
        "new_password2": [NEW_PASSWORD],
    },
    "access:password-set": {"new_password1": [NEW_PASSWORD], "new_password2": [NEW_PASSWORD]},
    "evaluators:kind": {"name": ["right"]},
    "evaluators:language-model-new": {"name": ["Nova"], "model_id": ["nova"]},
    "runs:evaluator-try": {"try-output": ["Rome"]},
    **{f"runs:target-{place}": {"try-text": ["Hi"]} for place in ("try", "new-try", "edit-try")},
    **{
        f"runs:run-{action}": {"everything": ["1"]}
        for action in ("retry-ask", "reviews", "tags", "suite", "selected-file", "judge-again")
    },
}
# Sent by browsers themselves, and drawn where members sign in with a provider.
UNDRAWN = {"csp-report", "access:member-unlink"}
SHORT_VALUES_A_FIELD = 5


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Crawl as each role, and send each form it meets with one field changed."""
    crawls = {role: Crawl() for role in CRAWLERS}
    more = states.fill(site)
    for role, crawl in crawls.items():
        yield from crawl.visit(site, role, chance, share, more)
    others = defaultdict(set)
    for crawl in crawls.values():
        for kind, form in crawl.forms.items():
            others[kind[0]].update(form.fields)
    if share * 10 >= 1:
        met = {
            name
            for crawl in crawls.values()
            for name, method, *_ in crawl.forms
            if method == "post"
        }
        for name, page in PAGES.items():
            takes_form = page.post != NOT_ALLOWED and not page.is_api and name not in UNDRAWN
            if takes_form and name not in met:
                yield Finding(f"No page draws its form ({name})", site.address(name), "not met")
    for role, crawl in crawls.items():
        posts = [(kind[0], form) for kind, form in crawl.forms.items() if form.method == "post"]
        chosen = [post for post in posts if chance.random() < share * 10]
        for address, form in chosen or chance.sample(posts, min(1, len(posts))):
            names = others[address].union(PRIVILEGES) - {*form.fields}
            yield from attack_form(site, role, form, sorted(names), chance, share)


def attack_form(
    site: AttackedSite,
    role: str,
    form: DrawnForm,
    foreign: Sequence[str],
    chance: random.Random,
    share: float,
) -> Iterator[Finding]:
    """Send a form unchanged, by those who may not, with foreign fields, and with hostile ones."""
    base = accepted_data(site, role, form)
    for name, value in form.buttons[1:]:
        yield from send(site, role, form, {**base, name: [value]}, "")
    for sender in SENDERS[: SENDERS.index(role)]:
        yield from send(site, sender, form, base, "")
    if role != "admin":
        yield from send(site, role, form, {**base, **{key: [SMUGGLED] for key in foreign}}, "")
    for name in form.fields:
        if name == "csrfmiddlewaretoken":
            continue
        for values in hostile_values(base.get(name, ()), chance):
            if chance.random() >= share:
                continue
            about = f"{name}={shorten(values)}"
            data = {**base, name: values}
            yield from send(site, role, form, data, about, is_htmx=chance.random() < 0.2)


def hostile_values(usual: Sequence[str], chance: random.Random) -> Iterator[Sequence[str]]:
    """Yield what to send of a field: nothing, twice, far too often, and hostile values."""
    often: list[list[str]] = [[], [*usual, "zz"], ["9"] * MANY]
    yield from chance.sample([*often, *([value] for value in SHORT)], k=SHORT_VALUES_A_FIELD)
    yield [chance.choice(LONG_TEXTS)]


def accepted_data(site: AttackedSite, role: str, form: DrawnForm) -> Data:
    """Return what the site accepts of a form as it is drawn, or filled in, or else as it is drawn."""
    button = {name: [value] for name, value in form.buttons[:1]}
    drawn = {**form.data, **button}
    filled = {
        name: [plausible(name)] if values == [""] else values for name, values in drawn.items()
    }
    completed = {**drawn, **NEEDED.get(form.kind[0], {})}
    for data in (drawn, completed, filled):
        with site.ask(site.client(role), "POST", form.action, encode(data)) as answer:
            if answer.status < 400:
                return data
    return drawn


def plausible(name: str) -> str:
    return next(value for pattern, value in PLAUSIBLE.items() if re.search(pattern, name))


def send(
    site: AttackedSite,
    role: str,
    form: DrawnForm,
    data: Data,
    about: str,
    *,
    is_htmx: bool = False,
) -> Iterator[Finding]:
    """Send a form; yield what is wrong with its answer, and with the pages that show what it stored."""
    before = rights(role)
    with site.ask(
        site.client(role),
        "POST",
        form.action,
        encode(data),
        is_htmx=is_htmx,
        about=f"as {role} {about}",
    ) as answer:
        site.outcomes["forms"]["refused" if answer.is_refused else "accepted"] += 1
        yield from answer.findings
        yield from exceeded_rights(role, "POST", answer)
        if answer.smuggled:
            yield answer.find("Stored a field it does not have", answer.smuggled)
        if role != "admin" and rights(role) != before:
            yield answer.find("Changed the rights of its sender", rights(role))
        if answer.status < 400 and not answer.leads_to_login:
            place = answer.headers.get("Location", form.page)
            # Its next request may have no session left, which a client made now has.
            yield from site.open(role, [place, form.page], after=answer)


def rights(role: str) -> list[tuple[object, ...]]:
    """Return what the site lets a member of this role do."""
    columns = ("is_staff", "is_superuser", "is_active", "groups__name", "user_permissions")
    return [*User.objects.filter(username=f"a-{role}").values_list(*columns)]

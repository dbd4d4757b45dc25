"""Every form of every role: each field in turn with hostile values, and fields that the form does not have."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from evalsite.access.tokens import make_token
from runs.models.results import Result
from runs.models.saved_views import SavedView
from runs.models.suites import Suite
from runs.suites.drafts import change_draft, get_draft
from runs.suites.edits import SetPolicy
from tests.attacks import bodies
from tests.attacks.crawl import Crawl, Data, DrawnForm
from tests.attacks.files import REVIEW, TABLE
from tests.attacks.site import (
    JSON,
    SENDERS,
    SMUGGLED,
    AttackedSite,
    Finding,
    encode,
    exceeded_rights,
    shorten,
)
from tests.attacks.values import LONG_TEXTS, MANY, SHORT
from tests.evalsite.test_every_url import SUITE, VISITOR

# Each sees forms that the others do not.
CRAWLERS = (VISITOR, "reviewer", "editor", "admin")
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
SHORT_VALUES_A_FIELD = 5


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Crawl as each role, and send each form it meets with one field changed."""
    crawls = {role: Crawl() for role in CRAWLERS}
    more = fill(site)
    for role, crawl in crawls.items():
        yield from crawl.visit(site, role, chance, share, more)
    others = defaultdict(set)
    for crawl in crawls.values():
        for kind, form in crawl.forms.items():
            others[kind[0]].update(form.fields)
    for role, crawl in crawls.items():
        posts = [(kind[0], form) for kind, form in crawl.forms.items() if form.method == "post"]
        chosen = [post for post in posts if chance.random() < share * 10]
        for address, form in chosen or chance.sample(posts, min(1, len(posts))):
            names = others[address].union(PRIVILEGES) - {*form.fields}
            yield from attack_form(site, role, form, sorted(names), chance, share)


def fill(site: AttackedSite) -> list[str]:
    """Make what only an admin sees who owns it, and objects in states of their own; return their pages."""
    place = bodies.fill(site)
    admin, suite = User.objects.get(username="a-admin"), Suite.objects.get(**SUITE)
    view = SavedView.objects.create(suite=suite, owner=admin, page="results", name="Failed")
    make_token(owner=admin, name="Nightly", scopes=(), expires_at=None)
    client = site.client("admin")
    client.post("/api/shares", {"kind": "run", "run": "support:1"}, JSON)
    client.post("/v1/traces", bodies.TRACES, JSON)
    towns = {**bodies.SUITE_FILE, "name": "towns"}
    client.post("/api/suites", towns, JSON)
    client.put("/api/suites/towns", {**towns, "title": "Towns"}, JSON)
    client.delete("/api/suites/towns/cases/france")
    draft = get_draft(suite, admin)
    change_draft(draft, draft.stamp, SetPolicy({"pass_threshold": 0.95}))
    uploads = (
        ("runs:case-import", SUITE, "t.csv", TABLE),
        ("runs:review-import", {}, "r.jsonl", json.dumps(REVIEW)),
    )
    sent = [
        client.post(reverse(name, kwargs=kwargs), {"file": SimpleUploadedFile(file, text.encode())})
        for name, kwargs, file, text in uploads
    ]
    result = Result.objects.get(pk=place["result"])
    run = {"slug": "aligned", "number": 1}
    return [
        *(answer["Location"] for answer in sent),
        reverse("runs:saved-view-edit", kwargs={**SUITE, "pk": view.pk}),
        f"{reverse('runs:run', kwargs=SUITE | {'number': 1})}?view={view.pk}",
        *(reverse("runs:run", kwargs={"slug": "pushed", "number": number}) for number in (1, 2)),
        reverse("runs:run", kwargs=run),
        reverse("runs:result", kwargs={**run, "key": result.case.key, "repetition": 1}),
        reverse("runs:alignment", kwargs={"slug": "aligned", "pk": place["alignment"]}),
        reverse("runs:case", kwargs={"slug": "towns", "key": "france"}),
        reverse("runs:version-restore", kwargs={"slug": "towns", "number": 1}),
        reverse("runs:case-proposal", kwargs={"pk": place["proposal"]}),
    ]


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
    for data in (drawn, filled):
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

"""Upload mutated files of every format, take each to the end that its pages offer, and open the pages of what is stored."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models import Model
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.urls import reverse

from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Case, Suite, Target
from runs.models.traces import Trace
from tests.attacks.crawl import drawn_forms
from tests.attacks.files import Example, families
from tests.attacks.site import JSON, Answer, AttackedSite, Finding, encode, shorten
from tests.evalsite.test_every_url import NOT_ALLOWED, PAGES, SUITE

UPLOADS_A_FAMILY = 40
# Of each kind, so many of the objects that an upload made, and so many pages of each.
MAX_MADE, MAX_OBJECTS, MAX_PAGES = 20, 2, 5
# Only they may bring suites with programs, which most examples have.
ROLE = "admin"
TRACES = "/v1/traces"
# By the beginning of a family: where its files are sent, in which field, and with what else.
FORMS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "suites": (reverse("runs:suite-import"), "suite_files", {}),
    "results": (reverse("runs:results-import"), "results", {}),
    "outputs": (
        reverse("runs:target-new") + "?kind=recorded",
        "file",
        {"kind": "recorded", "name": "Recorded"},
    ),
    "reviews": (reverse("runs:review-import"), "file", {}),
    "tables": (reverse("runs:case-import", kwargs=SUITE), "file", {}),
    "documents": (
        reverse("runs:case-drafting", kwargs=SUITE),
        "documents",
        {"source": "documents", "model": "juno", "count": "2"},
    ),
}
OTLP = {"OTLP JSON": JSON, "OTLP protobuf": "application/x-protobuf"}
# What an upload can make, with the addresses that show it and how they name it.
MADE: Sequence[tuple[type[Model], str, Callable[[Any], Mapping[str, Any]]]] = (
    (Suite, "runs:", lambda suite: {"slug": suite.slug}),
    (Case, "runs:", lambda case: {"slug": case.suite.slug, "key": case.key}),
    (Run, "runs:", lambda run: {"slug": run.suite.slug, "number": run.number}),
    (Run, "runs:api-", lambda run: {"run": f"{run.suite.slug}:{run.number}"}),
    (
        Result,
        "runs:",
        lambda result: {
            "slug": result.run.suite.slug,
            "number": result.run.number,
            "key": result.case.key,
            "repetition": result.repetition,
        },
    ),
    (Result, "runs:api-", lambda result: {"result": result.pk}),
    (Target, "runs:target", lambda target: {"pk": target.pk}),
    (Trace, "runs:trace", lambda trace: {"pk": trace.pk}),
)


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Upload mutated examples of every family, most of which the site refuses."""
    for family, (_, examples) in families().items():
        for _ in range(max(1, round(UPLOADS_A_FAMILY * share))):
            one = chance.choice(examples)
            sent_one = one.mutated(chance) if chance.random() < 0.9 else one
            yield from upload(site, family, sent_one, chance)


def upload(
    site: AttackedSite, family: str, one: Example, chance: random.Random
) -> Iterator[Finding]:
    """Send a file; if it is taken, send the forms that follow, and open pages of what was made."""
    before = {kind: {*kind._default_manager.values_list("pk", flat=True)} for kind, *_ in MADE}
    path, body, content_type = sent(family, one)
    about = f"{family} {one.path} {shorten(one.content)}"
    with site.ask(
        site.client(ROLE), "POST", path, body, content_type=content_type, about=about
    ) as answer:
        site.outcomes[family]["refused" if answer.is_refused else "taken"] += 1
        yield from answer.findings
        if answer.status >= 400:
            return
        place = answer.headers.get("Location", "")
        if place:
            yield from follow(site, place, answer)
        yield from site.open(ROLE, pages_made(before, chance), after=answer)


def sent(family: str, one: Example) -> tuple[str, bytes, str]:
    """Return the address, body and type of the request that sends a file as a member or a program does."""
    if family in OTLP:
        return TRACES, one.content, OTLP[family]
    path, name, fields = FORMS[family.partition(":")[0]]
    file = SimpleUploadedFile(one.path, one.content)
    if one.around and name == "suite_files":
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as files:
            for beside, content in {**one.around, one.path: one.content}.items():
                files.writestr(beside, content)
        file = SimpleUploadedFile("suites.zip", packed.getvalue())
    return path, encode_multipart(BOUNDARY, {name: file, **fields}), MULTIPART_CONTENT


def follow(site: AttackedSite, place: str, after: Answer) -> Iterator[Finding]:
    """Open the page that an upload leads to, and send its own forms as they are drawn."""
    with site.ask(site.client(ROLE), "GET", place, about=f"after {after.request}") as page:
        yield from page.findings
        forms = [*drawn_forms(place, page.body.decode())] if page.is_page else []
    for form in forms:
        if form.method == "post" and form.action.startswith(place.partition("?")[0]):
            data = {**form.data, "leave_out": ["on"]}
            with site.ask(
                site.client(ROLE), "POST", form.action, encode(data), about=f"after {after.request}"
            ) as stored:
                site.outcomes["next form"]["refused" if stored.is_refused else "taken"] += 1
                yield from stored.findings
                if stored.status == 302:
                    yield from site.open(ROLE, [stored.headers["Location"]], after=stored)


def pages_made(before: Mapping[type[Model], set[Any]], chance: random.Random) -> Iterator[str]:
    """Yield addresses of some of the objects that were not there before."""
    for kind, prefix, place_of in MADE:
        made = [*kind._default_manager.exclude(pk__in=before[kind])[:MAX_MADE]]
        for one in chance.sample(made, min(MAX_OBJECTS, len(made))):
            place = place_of(one)
            names = [
                name
                for name, page in PAGES.items()
                if name.startswith(prefix) and page.get != NOT_ALLOWED and {*page.place} == {*place}
            ]
            for name in chance.sample(names, min(MAX_PAGES, len(names))):
                yield reverse(name, kwargs=place) + PAGES[name].query

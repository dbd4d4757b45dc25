"""Every page and every list of the API with hostile places, filters, orders, columns and numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

from tests.api.site import schema
from tests.attacks.crawl import Crawl
from tests.attacks.site import AttackedSite, Finding, encode, shorten
from tests.attacks.values import COLUMNS, FILTERS, PLACES, SHORT
from tests.evalsite.test_every_url import PAGES, list_parameters

CRAWLERS = ("editor", "admin")
# Those that most lists have, whether or not a link of the pages has them.
PLACE_NAMES, FILTER_NAMES = ("after", "before", "cursor"), ("filter", "q")
REQUESTS_AN_ADDRESS = 60
MAX_AT_ONCE = 5
MAX_VALUE_LENGTH = 6_000


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Ask each address for parameters it knows, a few at once, and for some that others know."""
    crawl = Crawl()
    for role in CRAWLERS:
        yield from crawl.visit(site, role, chance, share)
    elsewhere = sorted({*list_parameters(), *api_parameters(), *PLACE_NAMES, *FILTER_NAMES})
    for name in PAGES:
        path, _, query = site.address(name).partition("?")
        known = sorted({*crawl.parameters.get(name, ()), *PLACE_NAMES, *FILTER_NAMES})
        for _ in range(REQUESTS_AN_ADDRESS):
            if chance.random() >= share:
                continue
            names = chance.choices(known, k=chance.randint(1, MAX_AT_ONCE))
            names += chance.choices(elsewhere, k=chance.randint(0, MAX_AT_ONCE))
            given = {parameter: hostile_value(parameter, chance) for parameter in names}
            data = {**dict(parse_qsl(query)), **given}
            yield from ask(site, chance, path, {key: [value] for key, value in data.items()})


def ask(
    site: AttackedSite, chance: random.Random, path: str, data: Mapping[str, list[str]]
) -> Iterator[Finding]:
    role = chance.choice(CRAWLERS)
    about = f"as {role} {shorten(data)}"
    address = f"{path}?{encode(data).decode()}"
    is_htmx = chance.random() < 0.25
    with site.ask(site.client(role), "GET", address, is_htmx=is_htmx, about=about) as answer:
        yield from answer.findings


def hostile_value(name: str, chance: random.Random) -> str:
    """Return a value that fits the parameter half of the time, and is hostile anyway."""
    if chance.random() < 0.2:
        return chance.choice(SHORT)[:MAX_VALUE_LENGTH]
    if name in PLACE_NAMES:
        return "~".join(chance.choices(PLACES, k=chance.randint(1, 4)))
    if name in FILTER_NAMES:
        return chance.choice(FILTERS)
    if name in ("sort", "column", "columns", "by", "order", "group"):
        return chance.choice(COLUMNS)
    return chance.choice((*SHORT, *COLUMNS))[:MAX_VALUE_LENGTH]


def api_parameters() -> Iterator[str]:
    """Yield the names of the parameters that the schema of the API describes."""
    for calls in schema()["paths"].values():
        for call in calls.values():
            described = call.get("parameters", ()) if isinstance(call, dict) else ()
            yield from (each["name"] for each in described if each["in"] == "query")

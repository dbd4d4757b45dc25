"""The forms and the parameters that the pages of a role lead to."""

from __future__ import annotations

import html
import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

from tests.attacks.site import Answer, AttackedSite, Finding, address_name
from tests.evalsite.test_every_url import PAGES
from tests.support.sent_forms import Sent

FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
ATTRIBUTE = re.compile(r'([\w:-]+)="([^"]*)"')
NAMED = re.compile(r'<(?:input|select|textarea)\b[^>]*\bname="([^"]+)"')
BUTTON = re.compile(r'<button\b[^>]*\bname="[^"]*"[^>]*>')
LINK = re.compile(r'\b(?:href|hx-get)="([^"]+)"')
POSTING = re.compile(r'\b(?:hx-post|formaction)="([^"]+)"')

# A page that shows what two people changed at once is a conflict.
DRAWN = {200, 409}
Data = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class DrawnForm:
    """A form as a page draws it: where it is sent, what is sent unchanged, and all its fields."""

    page: str
    action: str
    method: str
    data: Data
    fields: tuple[str, ...]
    buttons: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> tuple[str, ...]:
        """What two forms have in common that the same code reads."""
        fields = {re.sub(r"\d+", "N", name) for name in self.fields}
        return (address_name(self.action), self.method, *sorted(fields))


@dataclass
class Crawl:
    """What was found: one form of each kind, and the parameters of each address."""

    forms: dict[tuple[str, ...], DrawnForm] = field(default_factory=dict)
    parameters: dict[str, set[str]] = field(default_factory=dict)

    def visit(
        self,
        site: AttackedSite,
        role: str,
        chance: random.Random,
        share: float,
        more: Sequence[str] = (),
    ) -> Iterator[Finding]:
        """Open `more`, and each address that a role sees once for each set of parameters; yield what is wrong.

        A tenth of all requests, or less, sees a part of the pages.
        """
        named = (site.address(name) for name, page in PAGES.items() if not page.is_api)
        waiting = deque([*more, *named])
        unseen, seen = {*more}, set()
        while waiting:
            path = waiting.popleft()
            query = urlsplit(path).query
            kind = (address_name(path), *sorted(dict(parse_qsl(query, keep_blank_values=True))))
            if (kind in seen and path not in unseen) or kind[0] == "no address":
                continue
            seen.add(kind)
            unseen.discard(path)
            if chance.random() >= share * 10:
                continue
            # Some forms are drawn only into a page that is open already.
            for is_htmx in (False, True):
                with site.ask(
                    site.client(role), "GET", path, is_htmx=is_htmx, about=f"as {role}"
                ) as answer:
                    yield from answer.findings
                    if answer.status in DRAWN and answer.is_page:
                        waiting += self.read(path, answer)

    def read(self, path: str, answer: Answer) -> list[str]:
        """Note the forms and parameters of a page, and return where it leads."""
        text = answer.body.decode()
        for form in drawn_forms(path, text):
            self.forms.setdefault(form.kind, form)
            if form.method == "get":
                self.parameters.setdefault(address_name(form.action), set()).update(form.fields)
        links = [urljoin(path, html.unescape(link)) for link in LINK.findall(text)]
        ours = [link.partition("#")[0] for link in links if not urlsplit(link).netloc]
        for link in ours:
            given = parse_qsl(urlsplit(link).query, keep_blank_values=True)
            self.parameters.setdefault(address_name(link), set()).update(dict(given))
        return ours


def drawn_forms(page: str, text: str) -> Iterator[DrawnForm]:
    """Yield the forms of a page, and what htmx sends of each to other addresses."""
    for tag, inside in FORM.findall(text):
        attributes = attributes_of(tag)
        if "id" in attributes:
            inside += "".join(fields_elsewhere(text, attributes["id"]))
        method = attributes.get("method", "post" if "hx-post" in attributes else "get").lower()
        action = attributes.get("action") or attributes.get("hx-post") or page
        others = POSTING.findall(tag + inside)
        targets = dict.fromkeys([(method, action), *(("post", other) for other in others)])
        buttons = [attributes_of(button) for button in BUTTON.findall(inside)]
        for kind, address in targets:
            yield DrawnForm(
                page=page,
                action=urldefrag(urljoin(page, html.unescape(address))).url,
                method=kind,
                data=dict(Sent(inside).data.lists()),
                fields=tuple(dict.fromkeys(map(html.unescape, NAMED.findall(inside)))),
                buttons=tuple((button["name"], button.get("value", "")) for button in buttons),
            )


def fields_elsewhere(text: str, form_id: str) -> Iterator[str]:
    """Yield the fields that belong to a form and stand outside of it."""
    owned = rf'[^>]*\bform="{re.escape(form_id)}"[^>]*>'
    pattern = rf"<(?:input|button)\b{owned}|<(select|textarea)\b{owned}.*?</\1>"
    return (found[0] for found in re.finditer(pattern, text, re.DOTALL))


def attributes_of(tag: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in ATTRIBUTE.findall(tag)}

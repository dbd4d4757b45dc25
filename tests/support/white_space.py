"""Collapse the white space of pages in tests, so that line breaks in templates do not matter; read their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.test import Client

_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body br caption circle col colgroup datalist dd defs details dialog div dl"
        " dt fieldset figcaption figure footer form g h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li line link"
        " main menu meta nav ol optgroup option p path polyline rect section select summary svg symbol table tbody td"
        " template text tfoot th thead title tr ul use",
    )
)
_TRIMMED_BEFORE = {*_BLOCKS, *(f"/{name}" for name in _BLOCKS), "/button"}
_TRIMMED_AFTER = _TRIMMED_BEFORE - {"/button"} | {"button"}
# White space is kept in these, by HTML or by the style sheet.
_KEPT = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)", re.DOTALL)
_TAG = re.compile(r"""(<(/?[a-zA-Z][\w-]*)(?:[^>"']++|"[^"]*"|'[^']*')*>)""")


def collapse_white_space(html: str) -> str:
    """Write a run of white space as one space, and none inside a tag's end or beside a block."""
    parts = _KEPT.split(html)
    # The pattern has two groups: text, element, its name, text, element, its name, text ...
    return "".join(
        part if index % 3 == 1 else _collapse(part)
        for index, part in enumerate(parts)
        if index % 3 != 2
    )


def _collapse(html: str) -> str:
    # Bytes are split at white space that HTML collapses, text also at non-breaking spaces.
    words = f"|{html}|".encode().split()
    parts = _TAG.split(b" ".join(words).decode()[1:-1])
    # Text, tag, its name, text, tag, its name, text ...
    for at in range(1, len(parts), 3):
        tag, name, parts[at + 1] = parts[at], parts[at + 1], ""
        if tag.endswith((" >", " />")):
            parts[at] = "".join(tag.rsplit(" ", 1))
        if name in _TRIMMED_BEFORE:
            parts[at - 1] = parts[at - 1].rstrip()
        if name in _TRIMMED_AFTER:
            parts[at + 2] = parts[at + 2].lstrip()
    return "".join(parts)


def text_of(response: HttpResponse) -> str:
    """Return what a reader sees of a page, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.text)).split())


def render_collapsed(template: str, context: Mapping[str, object]) -> str:
    """Render a template with its white space collapsed."""
    return collapse_white_space(render_to_string(template, dict(context)))


class CollapsedPage(HttpResponse):
    """A page whose white space is collapsed when a test reads it, which many never do."""

    is_collapsed = False

    @property
    def content(self) -> bytes:
        """Return the page, collapsed."""
        if not self.is_collapsed:
            self.is_collapsed = True
            self._container = [collapse_white_space(super().content.decode()).encode()]
        return super().content

    @content.setter
    def content(self, value: bytes) -> None:
        self._container = [value]


def collapse_pages_of_clients() -> None:
    """Let every test client collapse the white space of its pages."""
    request = Client.request

    def collapsing_request(client: Client, **environ: Any) -> HttpResponse:
        response = request(client, **environ)
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if not is_page or response.streaming or "Content-Encoding" in response:
            return response
        if type(response) is HttpResponse:
            response.__class__ = CollapsedPage
        else:
            response.content = collapse_white_space(response.content.decode()).encode()
        return response

    Client.request = collapsing_request

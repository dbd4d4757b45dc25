"""Turn a model's Markdown into HTML that is safe to show: no raw HTML, no pictures, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

LONGEST = 100_000
TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}


class Renderer(RendererHTML):
    """Write headings as strong paragraphs, so that an answer never enters the page's outline."""

    def heading_open(self, *_: Any) -> str:
        """Open a paragraph."""
        return "<p><strong>"

    def heading_close(self, *_: Any) -> str:
        """Close it."""
        return "</strong></p>\n"

    def table_open(self, *_: Any) -> str:
        """Open a table."""
        return "<table>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Open a head cell without the alignment, which would be a style attribute."""
        return "<th>"

    def td_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Open a cell without the alignment."""
        return "<td>"


@cache
def reader() -> MarkdownIt:
    """Return the reader: CommonMark with tables, HTML and pictures off."""
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=Renderer)
    return made.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])


def markdown(text: str) -> SafeString:
    """Return the text as safe HTML; a text too long to read as Markdown stays as it is written."""
    if len(text) > LONGEST:
        return format_html("<pre>{}</pre>", text)
    html = reader().render(text)
    return mark_safe(  # noqa: S308 - cleaned on this line
        nh3.clean(
            html,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )

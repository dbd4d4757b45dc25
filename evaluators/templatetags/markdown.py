"""Turn a model's Markdown into safe HTML: without raw HTML, pictures and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

# A text made for it takes 20 microseconds of a processor for each of its characters, and as many times more for each
# bracket that could begin a link: it is looked at once for every level of nesting.
MAX_LENGTH, BRACKET = 50_000, 20
# Empty cells that the short rows of a table get, so that they are as long as its head. The library's 65,536 make two
# megabytes of a comment. Its package has a function of this module's name.
tables: Any = import_module("markdown_it.rules_block.table")
tables.MAX_AUTOCOMPLETED_CELLS = 50
TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}


class Renderer(RendererHTML):
    """Writes headings as strong paragraphs, so that they stay out of the page's outline."""

    def heading_open(self, *_: Any) -> str:
        """Open a paragraph."""
        return "<p><strong>"

    def heading_close(self, *_: Any) -> str:
        """Close the paragraph."""
        return "</strong></p>\n"

    def table_open(self, *_: Any) -> str:
        """Open a table."""
        return "<table>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Open a head cell without alignment, which would be a style attribute."""
        return "<th>"

    def td_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Open a cell without alignment."""
        return "<td>"


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables, without HTML and pictures."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=Renderer)
    return parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])


class PageMarkdown:
    """Formats the texts of a page until they are MAX_LENGTH together; those after that stay as they were written."""

    def __init__(self) -> None:
        """Begin a page."""
        self._left = MAX_LENGTH

    def html(self, text: str) -> SafeString:
        """Return the next text as safe HTML."""
        self._left -= _effort(text)
        return markdown(text) if self._left >= 0 else _as_written(text)


def _effort(text: str) -> int:
    """Return how long a text without brackets takes as long to read."""
    return len(text) + BRACKET * text.count("[")


def _as_written(text: str) -> SafeString:
    return format_html("<pre>{}</pre>", text)


def markdown(text: str) -> SafeString:
    """Return the text as safe HTML; a very long text is shown unformatted."""
    if _effort(text) > MAX_LENGTH:
        return _as_written(text)
    html = markdown_parser().render(text)
    return mark_safe(  # noqa: S308 - cleaned on this line
        nh3.clean(
            html,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )

"""Block tags that the templates of every page build from, loaded with `ui`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from django import template
from django.template.base import NodeList, Parser, TextNode, Token
from django.template.context import Context
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

register = template.Library()

# Stands in front of punctuation of a template while a `prose` block is rendered.
_JOIN = "\0"
_STARTS_WITH_PUNCTUATION = re.compile(r"\s*(?=[,;:.)])")
_BEFORE_JOIN = re.compile(rf"\s*{_JOIN}")


class ProseNode(template.Node):
    """Text put together from pieces, each on lines of its own in the template."""

    def __init__(self, nodelist: NodeList) -> None:
        """Mark the places where a piece begins with punctuation."""
        self.nodelist = nodelist
        for node in nodelist.get_nodes_by_type(TextNode):
            if isinstance(node, TextNode) and node.s.strip():
                node.s = _STARTS_WITH_PUNCTUATION.sub(_JOIN, node.s, count=1)

    def render(self, context: Context) -> SafeString:
        """Join the pieces, with no white space before punctuation of the template or around the whole."""
        text = self.nodelist.render(context)
        return SafeString(_BEFORE_JOIN.sub("", text).strip())


@register.tag
def prose(parser: Parser, token: Token) -> ProseNode:
    """Write a sentence whose parts depend on conditions: `{% if a %}, with {{ a }}{% endif %}` joins what precedes it."""
    nodelist = parser.parse(("endprose",))
    parser.delete_first_token()
    return ProseNode(nodelist)


class Piece(Protocol):
    """A run of words of a text that is compared with another."""

    @property
    def text(self) -> str: ...

    @property
    def is_changed(self) -> bool: ...


@register.simple_tag
def diff_line(tone: str, pieces: Iterable[Piece], label: str = "") -> SafeString:
    """Draw a line of a diff: "bad" was taken out, "good" was put in, "same" is in both.

    The style sheet keeps the white space of a line, so there is none but that of the text.
    """
    if tone == "same":
        return format_html("<p>{}</p>", "".join(piece.text for piece in pieces))
    element, name = ("del", "before") if tone == "bad" else ("ins", "after")
    text = SafeString(
        "".join(
            format_html("<{0}>{1}</{0}>", SafeString(element), piece.text)
            if piece.is_changed
            else escape(piece.text)
            for piece in pieces
        )
    )
    return format_html(
        '<p data-tone="{}"><span class="unseen">{}: </span>{}</p>', tone, label or name, text
    )

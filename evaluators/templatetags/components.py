"""Block tags that the templates of every page build from, loaded with `ui`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from django import template
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.template.base import NodeList, Parser, TextNode, Token
from django.template.context import Context
from django.template.loader import render_to_string
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()

# Stands in front of punctuation of a template while a `prose` block is rendered.
_JOIN = "\0"
_STARTS_WITH_PUNCTUATION = re.compile(r"\s*(?=[,;:.)])")
# A no-break space is none of it.
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")
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
        """Join the pieces on one line, with no white space before punctuation of the template."""
        text = _BEFORE_JOIN.sub("", self.nodelist.render(context))
        return SafeString(_WHITE_SPACE.sub(" ", text).strip(" "))


@register.tag
def prose(parser: Parser, token: Token) -> ProseNode:
    """Write a sentence whose parts depend on conditions: `{% if a %}, with {{ a }}{% endif %}` joins what precedes it."""
    nodelist = parser.parse(("endprose",))
    parser.delete_first_token()
    return ProseNode(nodelist)


@register.simple_tag
def style_sheets() -> SafeString:
    """Link the site's style sheets: one file where they were collected, else each from its source."""
    bundle = getattr(staticfiles_storage, "bundle", "")
    paths = [bundle] if bundle else [f"css/{name}.css" for name in settings.STYLE_SHEETS]
    links = ((staticfiles_storage.url(path),) for path in paths)
    return format_html_join("\n", '<link rel="stylesheet" href="{}">', links)


@register.simple_block_tag
def banner(
    content: str, tone: str, icon: str, title: str, url: str = "", action: str = ""
) -> SafeString:
    """Say what happened and what it means; `tone` is good, warn, bad, error or live."""
    context = {"tone": tone, "icon": icon, "title": title, "url": url, "action": action}
    return _draw("banner", content, context)


@register.simple_block_tag
def empty_state(
    content: str,
    icon: str,
    title: str,
    url: str = "",
    action: str = "",
    second_url: str = "",
    second_action: str = "",
) -> SafeString:
    """Say why there is nothing here and offer one or two next steps."""
    steps = [step for step in ((url, action), (second_url, second_action)) if step[0]]
    return _draw("empty_state", content, {"icon": icon, "title": title, "steps": steps})


@register.simple_block_tag(takes_context=True)
def confirm(
    context: Context, content: str, name: str, title: str, url: str, action: str, keep: str
) -> SafeString:
    """Ask before something is done: a dialog that the button with `commandfor` this name opens."""
    own = {"name": name, "title": title, "url": url, "action": action, "keep": keep}
    return _draw("confirm", content, {**own, "csrf_token": context.get("csrf_token", "")})


def _draw(component: str, content: str, context: dict[str, Any]) -> SafeString:
    content = SafeString(content.strip())
    return render_to_string(f"components/{component}.html", {**context, "content": content})


class DiffPiece(Protocol):
    """A run of words of a text that is compared with another."""

    @property
    def text(self) -> str: ...

    @property
    def is_changed(self) -> bool: ...


@register.simple_tag
def diff_line(tone: str, pieces: Iterable[DiffPiece], label: str = "") -> SafeString:
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

"""The text of comments: whom it mentions, and how a page shows it."""

from __future__ import annotations

import re
from collections.abc import Collection

from django.utils.safestring import SafeString, mark_safe

from evaluators.templatetags.markdown import PageMarkdown

# The characters of user names, of which some also end a sentence.
_MENTION = re.compile(r"(?<![\w@.+-])@([\w.@+-]+)")
_ENDS = ".+-@"
_TAG = re.compile(r"(<[^>]*>)")
_VERBATIM = ("code", "pre", "a")


def mentioned_names(text: str) -> set[str]:
    """Return every name behind an @, also without the punctuation that ends it."""
    found = set(_MENTION.findall(text))
    return {name for word in found for name in (word, word.rstrip(_ENDS)) if name}


def comment_html(text: str, names: Collection[str], page: PageMarkdown) -> SafeString:
    """Return a text of a page as safe HTML, in which these names stand out; none inside code and links."""
    html = page.html(text)
    if not names:
        return html
    parts, depth = _TAG.split(html), 0
    for place, part in enumerate(parts):
        if part.startswith("<"):
            name = part.strip("</>").split(" ")[0]
            depth += (name in _VERBATIM) * (-1 if part.startswith("</") else 1)
        elif not depth:
            parts[place] = _MENTION.sub(lambda match: _marked(match, names), part)
    return mark_safe("".join(parts))  # noqa: S308 - the HTML is clean, and a name has no sign of HTML


def _marked(match: re.Match[str], names: Collection[str]) -> str:
    word = match[1]
    for name in (word, word.rstrip(_ENDS)):
        if name in names:
            return f'<strong class="mention">@{name}</strong>{word[len(name) :]}'
    return match[0]


def without_name(text: str, name: str, instead: str) -> str:
    """Return a text in which nobody of this name is mentioned."""
    return re.sub(rf"(?<![\w@.+-])@{re.escape(name)}(?![\w@+-]|\.\w)", instead, text)

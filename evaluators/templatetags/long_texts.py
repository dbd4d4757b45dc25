"""Texts of judges and programs, which may be as long as they like, in a place of a bounded height."""

from __future__ import annotations

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

# About twenty lines of a phone.
LONGEST_OPEN = 1_000


def whole(text: object, name: str = "Whole text") -> SafeString:
    """Return a text; one of more than a thousand characters in a region that scrolls, by keyboard too.

    Nothing of it is left out. `name` is what the region is called when it is read aloud.
    """
    shown = str(text)
    if len(shown) <= LONGEST_OPEN:
        return escape(shown)
    return format_html(
        '<span class="long-text" tabindex="0" role="region" aria-label="{}">{}</span>', name, shown
    )

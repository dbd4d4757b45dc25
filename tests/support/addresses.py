"""Every address of the site."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver


def all_patterns(resolver: URLResolver, space: str = "") -> list[tuple[str, URLPattern]]:
    """Return all patterns below a resolver, each with the full name of its address."""
    patterns: list[tuple[str, URLPattern]] = []
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            patterns += all_patterns(
                entry, f"{space}{entry.namespace}:" if entry.namespace else space
            )
        else:
            patterns.append((f"{space}{entry.name}", entry))
    return patterns

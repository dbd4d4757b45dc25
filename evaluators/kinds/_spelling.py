"""One form for names that files write in snake_case, kebab-case or camelCase."""

from __future__ import annotations

import re


def normal_spelling(spelling: str) -> str:
    """Return a name in snake_case."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spelling.strip())
    return re.sub(r"[-\s]+", "_", parted).lower()

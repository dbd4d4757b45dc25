"""One form for names that files write in snake_case, kebab-case or camelCase."""

from __future__ import annotations

import re
from functools import lru_cache

WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
BETWEEN = re.compile(r"[-\s]+")


# Files repeat the same few names in each of their cases.
@lru_cache(maxsize=4_096)
def normal_spelling(spelling: str) -> str:
    """Return a name in snake_case."""
    return BETWEEN.sub("_", WORD_BEGINS.sub("_", spelling.strip())).lower()

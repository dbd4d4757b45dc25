"""Commands that work against a site elsewhere, by its API; without Django and without a database."""

from __future__ import annotations

# The exit codes that the commands share.
DONE, MISUSED, FAILED = 0, 2, 3

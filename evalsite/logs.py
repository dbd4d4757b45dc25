"""Keep the log to what somebody has to read."""

from __future__ import annotations

import logging


def is_no_probe(record: logging.LogRecord) -> bool:
    """Tell whether a record is more than the health page saying what it is asked for."""
    return getattr(getattr(record, "request", None), "path", "") != "/healthz"

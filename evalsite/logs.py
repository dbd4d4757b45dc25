"""Keep the log to what somebody has to read."""

from __future__ import annotations

import logging
import re

SERVER_ERROR, OUTAGE = 500, 503
# Whoever reads one of these addresses to its end can open what it leads to.
LINK = re.compile(r"(?<=\s)(/(?:s|login|password)/)(?=\S).*")


def is_no_probe(record: logging.LogRecord) -> bool:
    """Tell whether a record is more than the health page saying what it is asked for."""
    return getattr(getattr(record, "request", None), "path", "") != "/healthz"


def hides_links(record: logging.LogRecord) -> bool:
    """Take out of a record what opens a share link or logs somebody in; every record goes on."""
    said = record.getMessage()
    hidden = LINK.sub(r"\1…", said)
    if hidden != said:
        record.msg, record.args = hidden, ()
    return True


def is_news(record: logging.LogRecord) -> bool:
    """Tell whether a record says what nothing else does, and take the traceback off a refusal.

    Refusing is what a page should do; where it did so in our code, the address tells. An outage is
    told in one line by the page that met it.
    """
    status = getattr(record, "status_code", 500)
    if status < SERVER_ERROR:
        record.exc_info = None
    return status != OUTAGE

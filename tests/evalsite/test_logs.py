from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from evalsite.logs import is_news


def record(**facts: Any) -> logging.LogRecord:
    try:
        raise PermissionError("for a test")
    except PermissionError:
        facts["exc_info"] = sys.exc_info()
    return logging.makeLogRecord({"name": "django.request", "msg": "Refused", **facts})


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refusal_is_one_line(status: int) -> None:
    refusal = record(status_code=status)
    assert is_news(refusal)
    assert refusal.exc_info is None


@pytest.mark.parametrize("facts", [{"status_code": 500}, {}])
def test_an_error_keeps_its_traceback(facts: dict[str, int]) -> None:
    error = record(**facts)
    assert is_news(error)
    assert error.exc_info


def test_an_outage_is_told_by_the_page_alone() -> None:
    assert not is_news(record(status_code=503))

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from evalsite.logs import hides_links, is_news


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


@pytest.mark.parametrize(
    ("name", "facts", "shown"),
    [
        ("runs:shared", ["SECRET"], "/s/…"),
        ("runs:shared-file", ["SECRET"], "/s/…"),
        ("runs:shared", ["SECRET more"], "/s/…"),
        ("access:login-once", ["MQ", "SECRET"], "/login/…"),
        ("access:password-set", ["MQ", "SECRET"], "/password/…"),
    ],
)
def test_no_link_that_opens_something_stands_in_the_log(
    name: str, facts: list[str], shown: str
) -> None:
    message, address = "Method Not Allowed (%s): %s", reverse(name, args=facts)
    refusal = logging.makeLogRecord({"msg": message, "args": ("PUT", address.replace("%20", " "))})
    assert hides_links(refusal)
    assert refusal.getMessage() == f"Method Not Allowed (PUT): {shown}"
    told: Any = settings.LOGGING
    wired = [told["filters"][one]["callback"] for one in told["handlers"]["stderr"]["filters"]]
    assert hides_links in wired


@pytest.mark.parametrize("address", ["/suites/s/runs/1/", "/login/", "/runs/", "/assets/x.css"])
def test_other_addresses_stand_in_the_log_as_they_are(address: str) -> None:
    said = logging.makeLogRecord({"msg": "Not Found: %s", "args": (address,)})
    assert hides_links(said)
    assert said.getMessage() == f"Not Found: {address}"

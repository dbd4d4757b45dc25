from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from evalsite.settings import mask_secret_paths, shorten_refusals


def record(**facts: Any) -> logging.LogRecord:
    try:
        raise PermissionError("for a test")
    except PermissionError:
        facts["exc_info"] = sys.exc_info()
    return logging.makeLogRecord({"name": "django.request", "msg": "Refused", **facts})


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refusal_is_logged_in_one_line(status: int) -> None:
    refusal = record(status_code=status)
    assert shorten_refusals(refusal)
    assert refusal.exc_info is None


@pytest.mark.parametrize("facts", [{"status_code": 500}, {}])
def test_an_error_keeps_its_traceback(facts: dict[str, int]) -> None:
    error = record(**facts)
    assert shorten_refusals(error)
    assert error.exc_info


def test_an_outage_is_logged_only_by_its_page() -> None:
    assert not shorten_refusals(record(status_code=503))


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
def test_links_are_masked_in_the_log(name: str, facts: list[str], shown: str) -> None:
    message, address = "Method Not Allowed (%s): %s", reverse(name, args=facts)
    refusal = logging.makeLogRecord({"msg": message, "args": ("PUT", address.replace("%20", " "))})
    assert mask_secret_paths(refusal)
    assert refusal.getMessage() == f"Method Not Allowed (PUT): {shown}"
    config: Any = settings.LOGGING
    wired = [config["filters"][one]["callback"] for one in config["handlers"]["stderr"]["filters"]]
    assert mask_secret_paths in wired


@pytest.mark.parametrize("address", ["/suites/s/runs/1/", "/login/", "/runs/", "/assets/x.css"])
def test_other_addresses_are_logged_unchanged(address: str) -> None:
    message = logging.makeLogRecord({"msg": "Not Found: %s", "args": (address,)})
    assert mask_secret_paths(message)
    assert message.getMessage() == f"Not Found: {address}"

"""What the log says of requests, and what it leaves out."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from evalsite.settings import LogLine, mask_secret_paths, shorten_refusals
from evaluators.models import AuditEntry
from tests.support.members import make_client


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


def test_a_line_has_its_time_with_the_offset_and_nothing_breaks_it() -> None:
    facts = {"msg": "Not Found: %s", "args": ("/a\n2026 ERROR\x1b[31m \u2028b",), "created": 0.25}
    line = LogLine("%(asctime)s %(message)s").format(logging.makeLogRecord(facts))
    shown = r"Not Found: /a\x0a2026 ERROR\x1b[31m \x2028b"
    assert line == f"1970-01-01T00:00:00.250+00:00 {shown}"
    assert settings.LOGGING["formatters"]["line"]["()"] is LogLine


def test_a_traceback_keeps_its_lines() -> None:
    assert "\nTraceback" in LogLine("%(message)s").format(record())


@pytest.mark.django_db
def test_the_log_has_the_audit_only_where_it_is_asked_for(
    admin: User,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    caplog.set_level(logging.INFO, "evalsite.audit")
    make_client(admin).get("/audit/audit.jsonl")
    assert not [record for record in caplog.records if record.name == "evalsite.audit"]
    settings.AUDIT_LOG = True
    with django_capture_on_commit_callbacks(execute=True):
        make_client(admin).get("/audit/audit.jsonl?q=\u2028")
    [line] = [record for record in caplog.records if record.name == "evalsite.audit"]
    logged = json.loads(line.getMessage())
    assert logged == AuditEntry.objects.latest("pk").as_values()
    assert (logged["actor"], logged["action"]) == ("admin", "download")
    assert line.getMessage().isascii()

"""What every page is protected by: login, headers, content security policy."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import get_resolver, reverse
from django.utils.http import content_disposition_header
from pytest_django import Settings

from evalsite import views
from evalsite.access.tokens import MayView, make_token
from evalsite.middleware import for_members
from evalsite.serving import MEMBER
from evaluators.models import AuditEntry
from tests.support.addresses import all_patterns
from tests.support.clock import Clock
from tests.support.members import PASSWORD, make_client

pytestmark = pytest.mark.django_db

OPEN_PAGES = {
    *("healthz", "csp-report", "access:login", "access:login-once", "access:password-set"),
    *("access:login-second", "access:login-passkey", "access:login-question"),
    *("access:sign-in", "access:sign-in-return"),
    *("runs:shared", "runs:shared-file"),
}


def test_every_page_needs_a_login_except_the_login_pages() -> None:
    is_open = {
        name
        for name, pattern in all_patterns(get_resolver())
        if not getattr(pattern.callback, "login_required", True)
        # Calls of the API lead nobody to the login: their permission asks who one is.
        and not is_guarded_call(pattern.callback)
    }
    assert is_open == OPEN_PAGES


def is_guarded_call(view: Callable[..., Any]) -> bool:
    return getattr(getattr(view, "cls", None), "permission_classes", None) == [MayView]


def test_a_visitor_returns_to_the_page_after_logging_in(client: Client) -> None:
    response = client.get("/account/")
    assert response.status_code == 302
    assert response["Location"] == "/login/?next=/account/"


def test_the_content_security_policy_allows_only_this_site(client: Client) -> None:
    policy = client.get("/login/")["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "report-uri": "/csp-report",
    }


def report(client: Client, *, type: str = "application/csp-report", **parts: Any) -> int:
    sent = {"document-uri": "http://testserver/runs/?q=x", "violated-directive": "script-src-elem"}
    sent = (
        sent | {"blocked-uri": "inline"} | {name.replace("_", "-"): parts[name] for name in parts}
    )
    return client.post("/csp-report", json.dumps({"csp-report": sent}), type).status_code


@pytest.fixture
def reports(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[], list[str]]:
    """Return the reports of the log since the beginning of the test."""
    monkeypatch.setattr(views, "REPORTS", views.ReportLog())
    return lambda: [
        record.getMessage().partition("(anyone can send this): ")[2]
        for record in caplog.records
        if record.name == views.logger.name
    ]


Reports = Callable[[], list[str]]


def test_a_browser_reports_what_the_policy_refused(client: Client, reports: Reports) -> None:
    assert Client(enforce_csrf_checks=True).post("/csp-report").status_code == 400
    assert report(client) == 204
    assert reports() == ["on '/runs/', 'script-src-elem' refused 'inline'"]
    assert report(client, blocked_uri="https://evil.example/a?b=c") == 204
    assert reports()[1] == "on '/runs/', 'script-src-elem' refused 'https://evil.example'"


def test_reports_fill_no_log(client: Client, reports: Reports, clock: Clock) -> None:
    for n in range(30):
        assert report(client, blocked_uri=f"https://{n}.example") == 204
        assert report(client) == 204
    assert len(reports()) == 20
    clock.advance(minutes=61)
    report(client)
    assert len(reports()) == 21


def test_a_report_smuggles_no_lines_and_no_secrets_into_the_log(
    client: Client, reports: Reports
) -> None:
    report(client, violated_directive="img\n2026 ERROR \x1b[31m", blocked_uri="x" * 5_000)
    report(client, document_uri="http://testserver/login/MQ/c0ffee/")
    report(client, document_uri="http://[bad", blocked_uri="\ud800\0")
    first, second, third = reports()
    assert r"'img\n2026 ERROR \x1b[31m'" in first
    assert len(first) < 300
    assert second.startswith(r"on '/login/\u2026',")
    assert third.startswith("on 'an address'")
    assert all(line.isascii() and line.isprintable() for line in reports())


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"csp-report": 1}', "[" * 9_000, "\xff"])
def test_what_is_no_report_is_refused(client: Client, reports: Reports, body: str) -> None:
    sent = client.post("/csp-report", body.encode("latin-1"), "application/csp-report")
    assert (sent.status_code, reports()) == (400, [])
    assert report(client, blocked_uri="x" * 20_000) == 413


def test_responses_have_the_security_headers(client: Client) -> None:
    response = client.get("/login/")
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in response["Permissions-Policy"]
    assert response["Server"] == "Evalsite"


def test_pages_are_sent_compressed_and_their_size_varies(viewer_client: Client) -> None:
    accepts = {"Accept-Encoding": "gzip, deflate, br"}
    pages = [viewer_client.get("/", headers=accepts) for _ in range(20)]
    assert {page["Content-Encoding"] for page in pages} == {"gzip"}
    assert b"<h1>Suites</h1>" in gzip.decompress(pages[0].content)
    assert len(gzip.decompress(pages[0].content)) > 3 * len(pages[0].content)
    # What a page contains cannot be guessed from its size.
    assert len({len(page.content) for page in pages}) > 1
    assert "Accept-Encoding" in pages[0]["Vary"]
    plain = viewer_client.get("/")
    assert "Content-Encoding" not in plain
    part = viewer_client.get(reverse("runs:recent-suites"), headers=accepts)
    assert "Content-Encoding" not in part


def test_no_cache_keeps_what_members_see(viewer_client: Client, viewer: User) -> None:
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    program = Client(headers={"authorization": f"Bearer {secret}"})
    for client in (viewer_client, program):
        assert client.get("/api/runs")["Cache-Control"] == "private, no-store"
    # Going back to a form finds what was typed, until one logs out.
    assert viewer_client.get("/")["Cache-Control"] == "private, no-cache"
    assert viewer_client.post("/logout/")["Clear-Site-Data"] == '"cache"'


def test_downloads_are_in_the_audit(editor_client: Client, editor: User) -> None:
    download = editor_client.get("/audit/audit.jsonl?kind=suite")
    assert download.status_code == 200
    # The server counts the downloads of each member.
    assert download.wsgi_request.META[MEMBER] == editor.pk
    assert editor_client.get("/audit/").status_code == 200
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.object_name) == ("download", editor, "audit.jsonl")
    assert entry.after == {"address": "/audit/audit.jsonl?kind=suite"}


def test_a_download_outside_ascii_has_its_name_in_the_audit(
    rf: RequestFactory, editor: User
) -> None:
    disposition = content_disposition_header(True, "Fälle “neu”.csv")
    request = rf.get("/cases/rejected.csv")
    request.user = editor
    request.COOKIES[settings.SESSION_COOKIE_NAME] = "x"

    for_members(lambda _: HttpResponse(headers={"Content-Disposition": disposition}))(request)

    assert AuditEntry.objects.get().object_name == "Fälle “neu”.csv"


def refusals() -> list[tuple[str, str, object]]:
    entries = AuditEntry.objects.filter(object_type="refusal").order_by("pk")
    return [(entry.actor_name, entry.object_name, entry.after) for entry in entries]


def test_what_a_member_may_not_do_is_in_the_audit_once_an_hour(
    viewer_client: Client, viewer: User, clock: Clock
) -> None:
    for pk in (1, 2, 3):
        assert viewer_client.post(f"/members/{pk}/link/").status_code == 403
    first = ("viewer", "/members/<int:pk>/link/", {"method": "POST", "address": "/members/1/link/"})
    assert refusals() == [first]
    viewer_client.get("/members/")
    second = ("viewer", "/members/", {"method": "GET", "address": "/members/"})
    assert refusals() == [first, second]
    AuditEntry.objects.update(at=clock.now - timedelta(minutes=61))
    viewer_client.get("/members/")
    assert refusals() == [first, second, second]


def test_what_a_token_may_not_do_is_in_the_audit_of_its_owner(viewer: User) -> None:
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    viewer.groups.clear()
    refused = Client().get("/api/runs", headers={"authorization": f"Bearer {secret}"})
    assert refused.status_code == 403
    assert refusals() == [("viewer", "/api/runs", {"method": "GET", "address": "/api/runs"})]


def test_a_form_of_another_site_is_in_the_audit_and_no_secret_of_its_address(viewer: User) -> None:
    client = make_client(viewer)
    client.handler.enforce_csrf_checks = True
    assert client.post("/logout/").status_code == 403
    assert client.post("/login/MQ/c0ffee/").status_code == 403
    reasons = [after for _, _, after in refusals()]
    assert reasons == [
        {"method": "POST", "address": "/logout/", "reason": "CSRF cookie not set."},
        {"method": "POST", "address": "/login/…", "reason": "CSRF token missing."},
    ]


def test_refusals_of_visitors_are_left_to_the_log(client: Client) -> None:
    assert client.get("/api/runs").status_code == 401
    assert Client(enforce_csrf_checks=True).post("/login/").status_code == 403
    assert refusals() == []


def test_only_who_may_change_members_sees_refusals(
    editor_client: Client, admin_client: Client
) -> None:
    editor_client.get("/members/7/")
    assert "was not allowed" not in editor_client.get("/audit/").text
    assert "was not allowed /members/7/" in admin_client.get("/audit/").text


def test_outside_debug_pages_redirect_to_https_with_hsts(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    client = Client()
    response = client.get("/login/")
    assert response.status_code == 301
    assert response["Location"].startswith("https://")
    secure = client.get("/login/", secure=True)
    assert secure["Strict-Transport-Security"] == "max-age=31536000"
    settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    below = Client().get("/login/", secure=True)["Strict-Transport-Security"]
    assert below == "max-age=31536000; includeSubDomains"
    assert client.get("/healthz").status_code != 301
    assert client.get("/api/docs/").status_code == 301


def test_calls_by_http_are_refused_where_pages_are_redirected(
    viewer: User, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    program = Client(headers={"authorization": f"Bearer {secret}"})
    refused = program.get("/api/runs")
    assert refused.status_code == 403
    assert refused["Content-Type"] == "application/problem+json"
    assert "by https" in refused.json()["detail"]
    assert "default-src 'none'" in refused["Content-Security-Policy"]
    assert program.get("/api/runs", secure=True).status_code == 200


def test_cookies_are_secure_and_http_only(client: Client, viewer: User) -> None:
    client.post("/login/", {"username": "viewer", "password": PASSWORD})
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_another_host_name_is_refused(client: Client) -> None:
    response = client.get("/login/", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert "This request was refused" in response.text
    assert "EVALSITE_ALLOWED_HOSTS" in response.text
    assert "default-src 'none'" in response["Content-Security-Policy"]


def test_a_request_that_is_too_large_is_refused_with_an_explanation(
    viewer_client: Client, settings: Settings
) -> None:
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 3
    response = viewer_client.post("/account/password/", {str(n): "x" for n in range(5)})
    assert response.status_code == 400
    assert "This request was refused" in response.text


@pytest.mark.parametrize("address", ["/login/", "/no-such-page/"])
def test_a_form_in_another_encoding_is_refused_with_an_explanation(address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.get("/login/")
    utf_7 = "application/x-www-form-urlencoded; charset=utf-7"
    response = client.post(address, "username=%ff", content_type=utf_7)
    assert response.status_code == (404 if "no-such" in address else 400)
    assert "<h1>" in response.text


def test_a_form_without_its_token_is_refused_with_an_explanation() -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post(reverse("access:login"), {"username": "a", "password": "b"})
    assert response.status_code == 403
    assert "This form expired" in response.text


def test_a_missing_page_answers_visitors_and_members(client: Client, viewer_client: Client) -> None:
    for visitor in (client, viewer_client):
        response = visitor.get("/nothing/here/")
        assert response.status_code == 404
        assert "/nothing/here/" in response.text


def test_the_error_page_needs_no_database(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer_client.raise_request_exception = False
    monkeypatch.setattr("evalsite.access.views.highest_role", lambda user: 1 / 0)
    response = viewer_client.get("/account/")
    assert response.status_code == 500
    assert "Something went wrong on our side" in response.text

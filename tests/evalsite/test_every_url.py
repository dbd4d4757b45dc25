"""Every address of the site for every role: what GET and POST answer, and with which headers.

An address that is not listed here fails the first test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import DjangoDbBlocker

from evalsite.access.roles import Role
from runs.comments.queries import case_subject
from runs.comments.services import add_comment
from runs.finishing import summarise_run
from runs.lists import ListQuery
from runs.reviews.services import ask_for_review
from tests.reviews.aligning import make_alignment
from tests.support.addresses import all_patterns
from tests.support.factories import (
    make_call,
    make_campaign,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
    make_trial,
)
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db
ONE_DATABASE = pytest.mark.one_database

ANYBODY, LOGGED_IN = "anybody", "nobody"
VISITOR = "visitor"
ROLES = (LOGGED_IN, *Role.values)
PAGE, MOVED, NOT_ALLOWED, CONFLICT, REFUSED, GONE = 200, 302, 405, 409, 422, 410
UNKNOWN, FORBIDDEN, NOT_JSON = 401, 403, 415
STOP_POLLING = 286
SUITE = {"slug": "support"}
CASE = SUITE | {"key": "C-1"}
RUN = SUITE | {"number": 1}
RESULT = RUN | {"key": "C-1", "repetition": 1}
MODEL = {"slug": "juno"}
LINK = {"user_code": "MQ", "token": "c0-ffee"}


@dataclass(frozen=True)
class Page:
    """The lowest role that may use an address, and its answers to GET and to a POST of nonsense.

    `known` is the answer to logged-in members, if it differs. `post_role` is the lowest role that may change
    something there, if it differs.
    """

    role: str
    get: int = PAGE
    post: int = NOT_ALLOWED
    place: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    known: int = 0
    is_api: bool = False
    post_role: str = ""


def form(role: str, place: Mapping[str, Any] | None = None) -> Page:
    return Page(role, post=REFUSED, place=place or {})


def action(role: str, place: Mapping[str, Any]) -> Page:
    return Page(role, get=NOT_ALLOWED, post=MOVED, place=place)


def read(**place: Any) -> Page:
    return Page("viewer", place=place, is_api=True)


def write(role: str, post: int, get: int = NOT_ALLOWED, **place: Any) -> Page:
    """Return a call that changes something; its answer to a POST of a form is `post`."""
    return Page("viewer", get=get, post=post, post_role=role, place=place, is_api=True)


PAGES: Mapping[str, Page] = {
    "healthz": Page(ANYBODY, get=503),
    "csp-report": Page(ANYBODY, get=NOT_ALLOWED, post=400),
    "access:login": Page(ANYBODY, post=REFUSED, known=MOVED),
    "access:login-once": Page(ANYBODY, get=GONE, post=GONE, place=LINK),
    "access:password-set": Page(ANYBODY, get=GONE, post=GONE, place=LINK),
    # Nobody has given a password.
    "access:login-second": Page(ANYBODY, get=MOVED, post=MOVED),
    "access:login-question": Page(ANYBODY),
    "access:login-passkey": Page(ANYBODY, get=NOT_ALLOWED, post=REFUSED),
    # The tests' site has no provider.
    "access:sign-in": Page(ANYBODY, get=404),
    "access:sign-in-return": Page(ANYBODY, get=404),
    "access:logout": action(LOGGED_IN, {}),
    "access:account": Page(LOGGED_IN),
    "access:sessions-end": action(LOGGED_IN, {}),
    "access:password": form(LOGGED_IN),
    # Their logins are recent, so they need no proof.
    "access:confirm": Page(LOGGED_IN, post=MOVED),
    "access:confirm-question": Page(LOGGED_IN),
    "access:factors": Page(LOGGED_IN),
    "access:app": form(LOGGED_IN),
    "access:app-remove": action(LOGGED_IN, {}),
    "access:recovery-codes": action(LOGGED_IN, {}),
    "access:passkey-question": Page(LOGGED_IN),
    "access:passkey-add": Page(LOGGED_IN, get=NOT_ALLOWED, post=REFUSED),
    # Members remove their own passkeys, and there is none yet.
    "access:passkey-remove": Page(LOGGED_IN, get=NOT_ALLOWED, post=404, place={"pk": 1}),
    "access:tokens": form(LOGGED_IN),
    # Members revoke their own tokens, and there is none yet.
    "access:token-revoke": Page(LOGGED_IN, get=404, post=404, place={"pk": 1}),
    "access:members": Page("admin"),
    "access:member-add": form("admin"),
    "access:member": form("admin", {"pk": 0}),
    "access:member-status": action("admin", {"pk": 0}),
    "access:member-erase": Page("admin", post=MOVED, place={"pk": 0}),
    "access:member-email": Page("admin", post=MOVED, place={"pk": 0}),
    "access:member-unlink": action("admin", {"pk": 0}),
    "access:member-link": action("admin", {"pk": 0}),
    "access:member-scripts": action("admin", {"pk": 0}),
    "access:member-sessions-end": action("admin", {"pk": 0}),
    "access:member-factors-remove": action("admin", {"pk": 0}),
    "evaluators:gallery": Page(LOGGED_IN),
    "evaluators:kind": form(LOGGED_IN, {"name": "expected_output"}),
    "evaluators:language-models": Page("viewer"),
    "evaluators:language-model": Page("viewer", place=MODEL),
    "evaluators:language-model-test": Page("viewer", place=MODEL),
    "evaluators:language-model-new": form("admin"),
    "evaluators:language-model-edit": form("admin", MODEL),
    "evaluators:language-model-delete": action("admin", MODEL),
    "evaluators:language-model-test-start": action("admin", MODEL),
    "home": Page("viewer"),
    "runs:dashboard": Page("viewer"),
    "runs:suite-rows": Page("viewer"),
    "runs:suite": Page("viewer", place=SUITE),
    "runs:suite-cases": Page("viewer", place=SUITE),
    "runs:case-rows": Page("viewer", place=SUITE),
    "runs:case-suggestions": Page("viewer", place=SUITE),
    "runs:case": Page("viewer", place=SUITE | {"key": "C-1"}),
    "runs:case-bulk": action("editor", SUITE),
    "runs:case-export": action("viewer", SUITE),
    "runs:case-new": form("editor", SUITE),
    "runs:case-edit": form("editor", CASE),
    "runs:case-delete": Page("editor", post=MOVED, place=CASE),
    "runs:case-restore": action("editor", CASE),
    "runs:result-case": action("editor", RESULT),
    "runs:result-expected": action("editor", RESULT),
    "runs:result-outcome": action("editor", RESULT),
    "runs:suite-agreement": Page("viewer", place=SUITE),
    "runs:agreement-file": Page("viewer", place=SUITE),
    "runs:people-agreement": Page("viewer", place=SUITE),
    "runs:people-file": Page("viewer", place=SUITE),
    "runs:judges": Page("viewer", place=SUITE),
    "runs:judges-file": Page("viewer", place=SUITE),
    "runs:agreement-bands": action("editor", SUITE),
    "runs:alignments": Page("viewer", post=REFUSED, place=SUITE, post_role="editor"),
    "runs:alignment": Page("viewer", place=SUITE | {"pk": 0}),
    "runs:alignment-stop": action("editor", SUITE | {"pk": 0}),
    "runs:alignment-resume": action("editor", SUITE | {"pk": 0}),
    "runs:alignment-take": action("editor", SUITE | {"pk": 0}),
    "runs:suite-charts": Page("viewer", place=SUITE),
    "runs:chart-panels": Page("viewer", place=SUITE),
    "runs:suite-breakdown": Page("viewer", place=SUITE),
    "runs:score-cost-file": Page("viewer", place=SUITE),
    "runs:suite-trend-file": Page("viewer", place=SUITE),
    "runs:suite-picture": Page("viewer", place=SUITE | {"name": "trend"}),
    "runs:suite-picture-file": Page("viewer", place=SUITE | {"name": "trend"}),
    "runs:suite-new": form("editor"),
    "runs:suite-new-from-table": form("editor"),
    "runs:case-import": form("editor", SUITE),
    "runs:case-drafting": form("editor", SUITE),
    "runs:case-proposal": Page("editor", get=404, post=404, place={"pk": 0}),
    "runs:case-proposal-state": Page("editor", get=404, place={"pk": 0}),
    "runs:case-proposal-store": Page("editor", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:case-proposal-stop": Page("editor", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:case-proposal-discard": Page("editor", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:run-draft-cases": action("editor", RUN),
    # Uploads are their owner's alone.
    "runs:case-table": Page("editor", get=404, post=404, place={"pk": 0}),
    "runs:case-table-store": Page("editor", get=404, post=404, place={"pk": 0}),
    "runs:case-table-rejected": Page("editor", get=404, place={"pk": 0}),
    "runs:suite-settings": form("editor", SUITE),
    "runs:suite-sample": action("editor", {}),
    "runs:suite-archive": action("editor", SUITE),
    "runs:suite-delete": form("editor", SUITE),
    "runs:run-delete": form("editor", RUN),
    "runs:campaign-delete": form("editor", {"pk": 0}),
    "runs:exports": Page("viewer"),
    "runs:export-rows": Page("viewer", get=STOP_POLLING),
    # Members see only their own, and there is none yet.
    "runs:export": Page("viewer", get=404, place={"pk": 0}),
    "runs:export-state": Page("viewer", get=STOP_POLLING, place={"pk": 0}),
    "runs:export-file": Page("viewer", get=404, place={"pk": 0}),
    "runs:export-cancel": Page("viewer", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:export-retry": Page("viewer", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:retention": Page("editor"),
    "runs:retention-rule": action("admin", {}),
    "runs:suite-retention": form("editor", SUITE),
    "runs:suite-disk-use": Page("editor", place=SUITE),
    "runs:removals": Page("editor", get=STOP_POLLING),
    "runs:removal-retry": action("admin", {"pk": 0}),
    "runs:evaluator-try": form("editor", SUITE | {"node": "n1"}),
    # Tries are of drafts, which nobody else sees.
    "runs:evaluator-trial": Page("editor", get=404, place=SUITE | {"node": "n1", "pk": 1}),
    "runs:draft-save": action("editor", SUITE),
    "runs:draft-discard": action("editor", SUITE),
    "runs:suite-evaluators": Page("viewer", place=SUITE),
    "runs:evaluators-keep": Page("editor", get=MOVED, post=CONFLICT, place=SUITE),
    "runs:what-if": Page("editor", post=CONFLICT, place=SUITE),
    "runs:what-if-file": Page("editor", place=SUITE),
    "runs:what-if-matrix-file": Page("editor", place=SUITE),
    "runs:what-if-histogram-file": Page("editor", place=SUITE),
    "runs:what-if-score": Page("editor", get=NOT_ALLOWED, post=REFUSED, place=SUITE),
    "runs:evaluator-kinds": Page("editor", place=SUITE),
    "runs:evaluator-add": form("editor", SUITE | {"kind": "llm_judge"}),
    "runs:evaluator": form("editor", SUITE | {"node": "n1"}),
    "runs:draft-problems": Page("editor", place=SUITE),
    "runs:draft-conflict": Page("editor", get=MOVED, post=MOVED, place=SUITE),
    "runs:suite-import": form("editor"),
    "runs:suite-imported": Page("editor", get=MOVED),
    "runs:suite-file": Page("viewer", place=SUITE),
    "runs:suite-versions": Page("viewer", place=SUITE),
    "runs:version-compare": Page("viewer", place=SUITE),
    "runs:version": Page("viewer", place=SUITE | {"number": 1}),
    "runs:version-restore": form("editor", SUITE | {"number": 1}),
    "runs:results-import": form("editor"),
    "runs:review-import": form("editor"),
    "runs:review-upload": Page("editor", get=404, post=404, place={"pk": 0}),
    "runs:review-export": Page("viewer"),
    "runs:review-export-table": Page("viewer"),
    "runs:run-start-any": Page("editor"),
    "runs:run-new": form("editor", SUITE),
    "runs:run-estimate": Page("editor", post=200, place=SUITE),
    "runs:run-cases": Page("editor", post=200, place=SUITE),
    "runs:compare": Page("viewer"),
    "runs:compare-score": Page("editor", get=NOT_ALLOWED, post=404),
    # Without two runs in the address there is no case to show.
    "runs:compare-step": Page("viewer", get=404),
    "runs:compare-case": Page("viewer", get=404),
    "runs:compare-breakdown": Page("viewer", get=404),
    "runs:compare-display": Page("viewer", get=404),
    "runs:compare-many": Page("viewer"),
    "runs:many-table": Page("viewer", get=404),
    "runs:comparison-table": Page("viewer", get=404),
    "runs:comparison-lines": Page("viewer", get=404),
    # Without two runs in the address there is nothing to draw.
    "runs:comparison-picture": Page("viewer", get=404, place={"name": "scores"}),
    "runs:comparison-picture-file": Page("viewer", get=404, place={"name": "scores"}),
    "runs:run-list": Page("viewer"),
    "runs:run-rows": Page("viewer", get=STOP_POLLING),
    "runs:run": Page("viewer", place=RUN),
    "runs:run-head": Page("viewer", place=RUN),
    "runs:run-live": Page("viewer", get=STOP_POLLING, place=RUN),
    "runs:run-evaluators": Page("viewer", place=RUN),
    "runs:comparison-heat-map": Page("viewer", get=404),
    "runs:comparison-heat-map-file": Page("viewer", get=404),
    "runs:run-breakdown": Page("viewer", place=RUN),
    "runs:run-heat-map": Page("viewer", place=RUN),
    "runs:run-heat-map-file": Page("viewer", place=RUN),
    "runs:run-picture": Page("viewer", place=RUN | {"name": "scores"}),
    "runs:run-picture-file": Page("viewer", place=RUN | {"name": "scores"}),
    "runs:run-results": Page("viewer", place=RUN),
    "runs:run-display": Page("viewer", place=RUN),
    "runs:run-displayed-table": Page("viewer", place=RUN),
    "runs:filter-suggestions": Page("viewer", place=RUN),
    "runs:filter-help": Page("viewer"),
    "runs:run-results-file": Page("viewer", place=RUN),
    "runs:run-results-table": Page("viewer", place=RUN),
    "runs:run-junit": Page("viewer", place=RUN),
    "runs:run-summary-file": Page("viewer", place=RUN),
    "runs:run-cases-file": Page("viewer", place=RUN),
    "runs:run-baseline": action("editor", RUN),
    "runs:run-stop": action("editor", RUN),
    "runs:run-close": action("editor", RUN),
    "runs:run-resume": action("editor", RUN),
    "runs:run-retry": form("editor", RUN),
    "runs:run-judge-again": form("editor", RUN),
    "runs:run-measure-judge": form("editor", RUN),
    "runs:runs-judge-again": Page("editor", get=MOVED, post=MOVED),
    "runs:run-chosen": action("editor", RUN),
    "runs:run-reviews": Page("reviewer", get=NOT_ALLOWED, post=REFUSED, place=RUN),
    "runs:run-tags": Page("editor", get=NOT_ALLOWED, post=REFUSED, place=RUN),
    "runs:run-suite": Page("editor", get=NOT_ALLOWED, post=REFUSED, place=RUN),
    "runs:run-selected-file": Page("viewer", get=NOT_ALLOWED, post=REFUSED, place=RUN),
    "runs:case-suite": action("editor", SUITE),
    "runs:run-retry-ask": Page("editor", get=NOT_ALLOWED, post=REFUSED, place=RUN),
    "runs:result": Page("viewer", place=RESULT),
    "runs:result-calls": Page("viewer", place=RESULT),
    "runs:result-call": Page("viewer", place=RESULT | {"pk": 0}),
    "runs:result-output": Page("viewer", place=RESULT),
    "runs:result-file": Page("viewer", place=RESULT | {"file": "report/page.html"}),
    "runs:result-progress": Page("viewer", get=STOP_POLLING, place=RESULT),
    "runs:result-retry": Page("editor", post=MOVED, place=RESULT),
    # No attempt is named.
    "runs:result-attempt": Page("editor", get=NOT_ALLOWED, post=404, place=RESULT),
    "runs:campaign-list": Page("viewer"),
    "runs:campaign": Page("viewer", place={"pk": 0}),
    "runs:campaign-head": Page("viewer", place={"pk": 0}),
    "runs:campaign-live": Page("viewer", get=STOP_POLLING, place={"pk": 0}),
    "runs:campaign-chart": Page("viewer", place={"pk": 0}),
    "runs:campaign-cases": Page("viewer", place={"pk": 0}),
    "runs:campaign-stop": action("editor", {"pk": 0}),
    "runs:campaign-name": action("editor", {"pk": 0}),
    "runs:campaign-file": Page("viewer", place={"pk": 0}),
    "runs:campaign-json": Page("viewer", place={"pk": 0}),
    "runs:campaign-cost-file": Page("viewer", place={"pk": 0}),
    "runs:target-list": Page("viewer"),
    "runs:target-new": form("editor"),
    "runs:target": Page("viewer", place={"pk": 0}),
    "runs:target-edit": form("editor", {"pk": 0}),
    "runs:target-outputs-delete": Page("editor", post=MOVED, place={"pk": 0}),
    "runs:target-try": Page("editor", get=NOT_ALLOWED, post=REFUSED, place={"pk": 0}),
    "runs:target-new-try": Page("editor", get=NOT_ALLOWED, post=REFUSED),
    "runs:target-edit-try": Page("editor", get=NOT_ALLOWED, post=REFUSED, place={"pk": 0}),
    "runs:target-try-cases": Page("editor"),
    # A try belongs to the member who asked for it.
    "runs:target-trial": Page("editor", get=404, place={"pk": 0}),
    "runs:traces": Page("viewer"),
    "runs:trace-rows": Page("viewer"),
    "runs:trace-use": action("editor", {}),
    "runs:trace": Page("viewer", get=404, place={"pk": 1}),
    "runs:workers": Page("viewer"),
    "runs:workers-live": Page("viewer"),
    "runs:audit": Page("editor"),
    "runs:audit-file": Page("editor"),
    "runs:search": Page("viewer"),
    "runs:search-suggestions": Page("viewer"),
    "runs:share-list": Page("editor"),
    "runs:share-new": form("editor"),
    "runs:share-preview": Page("editor"),
    # A link is its maker's alone; admins revoke those of others too.
    "runs:share-revoke": Page("editor", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:shared": Page(ANYBODY, get=404, place={"token": "c0-ffee"}),
    "runs:shared-file": Page(ANYBODY, get=404, place={"token": "c0-ffee"}),
    "runs:review": Page("viewer"),
    "runs:result-comments": form("viewer", RESULT),
    "runs:suite-views": form("viewer", SUITE),
    # Members open and change their own views and those that are shared, and there is none.
    "runs:saved-view": Page("viewer", get=404, place={**SUITE, "pk": 0}),
    "runs:saved-view-edit": Page("viewer", get=404, post=404, place={**SUITE, "pk": 0}),
    "runs:saved-view-update": Page("viewer", get=NOT_ALLOWED, post=404, place={**SUITE, "pk": 0}),
    "runs:saved-view-delete": Page("viewer", get=NOT_ALLOWED, post=404, place={**SUITE, "pk": 0}),
    "runs:case-comments": form("viewer", CASE),
    "runs:run-comments": form("viewer", RUN),
    "runs:compare-comments": Page(
        "viewer", post=REFUSED, query="?baseline=support:1&candidate=support:2"
    ),
    "runs:comment": Page("viewer", get=MOVED, place={"pk": 0}),
    # Members edit and delete their own comments, and this is another member's, that one deleted.
    "runs:comment-edit": Page("viewer", get=FORBIDDEN, post=FORBIDDEN, place={"pk": 0}),
    "runs:comment-delete": Page("viewer", get=NOT_ALLOWED, post=404, place={"pk": 0}),
    "runs:comment-resolve": action("viewer", {"pk": 0}),
    "runs:comment-members": Page("viewer"),
    "runs:mentions": Page("viewer"),
    "runs:mentions-read": action("viewer", {}),
    "runs:review-undo": action("reviewer", {}),
    "runs:review-assign": action("reviewer", {}),
    "runs:review-judge": action("reviewer", {}),
    "runs:review-item": Page("viewer", place={"pk": 0}),
    "runs:review-decide": Page("reviewer", get=NOT_ALLOWED, post=REFUSED, place={"pk": 0}),
    "runs:review-skip": action("reviewer", {"pk": 0}),
    "runs:review-release": action("reviewer", {"pk": 0}),
    "runs:review-hold": Page("reviewer", get=NOT_ALLOWED, post=PAGE, place={"pk": 0}),
    "runs:result-review": action("reviewer", RESULT),
    "runs:recent-suites": Page("viewer"),
    "runs:palette": Page("viewer"),
    "runs:api": read(),
    "runs:api-schema": read(),
    "runs:api-docs": Page("viewer"),
    "runs:api-suites": write("editor", NOT_JSON, get=PAGE),
    "runs:api-suite-check": write("viewer", NOT_JSON),
    "runs:api-suite-baseline": Page("viewer", get=NOT_ALLOWED, place=SUITE, is_api=True),
    "runs:api-suite": read(**SUITE),
    "runs:api-suite-file": read(**SUITE),
    "runs:api-suite-versions": read(**SUITE),
    "runs:api-people-agreement": read(**SUITE),
    "runs:api-suite-alignments": write("editor", NOT_JSON, get=PAGE, **SUITE),
    "runs:api-suite-alignments-estimate": write("editor", NOT_JSON, **SUITE),
    "runs:api-alignment": read(**SUITE, alignment=0),
    "runs:api-alignment-stop": write("editor", PAGE, **SUITE, alignment=0),
    "runs:api-alignment-resume": write("editor", NOT_JSON, **SUITE, alignment=0),
    "runs:api-alignment-take": write("editor", NOT_JSON, **SUITE, alignment=0),
    "runs:api-judges": read(**SUITE),
    "runs:api-judge-drift": read(**SUITE),
    "runs:api-suite-views": read(**SUITE),
    "runs:api-suite-version": read(**SUITE, number=1),
    "runs:api-suite-cases": write("editor", NOT_JSON, get=PAGE, **SUITE),
    "runs:api-suite-case": read(**CASE),
    "runs:api-targets": write("editor", NOT_JSON, get=PAGE),
    "runs:api-target": read(target=0),
    "runs:api-models": write("admin", NOT_JSON, get=PAGE),
    "runs:api-model": read(**MODEL),
    "runs:api-reviews": read(),
    "runs:api-result-review": write("reviewer", NOT_JSON, result=0),
    "runs:api-result-attempt": write("editor", NOT_JSON, result=0),
    "runs:api-result-review-ask": write("reviewer", PAGE, result=0),
    "runs:api-shares": write("editor", NOT_JSON, get=PAGE),
    "runs:api-share": Page("viewer", get=NOT_ALLOWED, place={"share": 1}, is_api=True),
    "runs:api-runs": write("editor", NOT_JSON, get=PAGE),
    "runs:api-runs-estimate": write("editor", NOT_JSON),
    # The run is over, and asks its target itself.
    "runs:api-run-stop": write("editor", CONFLICT, run="support:1"),
    "runs:api-run-resume": write("editor", NOT_JSON, run="support:1"),
    "runs:api-runs-judge-again": write("editor", NOT_JSON),
    "runs:api-runs-judge-again-estimate": write("editor", NOT_JSON),
    "runs:api-draft-cases": write("editor", NOT_JSON, **SUITE),
    "runs:api-draft-cases-estimate": write("editor", NOT_JSON, **SUITE),
    "runs:api-case-proposal": Page("viewer", get=404, place={"proposal": 0}, is_api=True),
    "runs:api-case-proposal-store": write("editor", NOT_JSON, proposal=0),
    "runs:api-case-proposal-stop": write("editor", 404, proposal=0),
    "runs:api-run-measure-judge": write("editor", NOT_JSON, run="support:1"),
    "runs:api-run-measure-judge-estimate": write("editor", NOT_JSON, run="support:1"),
    "runs:api-run-retry": write("editor", NOT_JSON, run="support:1"),
    "runs:api-run-outputs": write("editor", NOT_JSON, run="support:1"),
    "runs:api-traces": write("editor", NOT_JSON),
    "runs:api-run-scores": write("editor", NOT_JSON, run="support:1"),
    "runs:api-run-awaited": read(run="support:1"),
    "runs:api-run-close": write("editor", CONFLICT, run="support:1"),
    "runs:api-compare": Page(
        "viewer",
        query="?baseline_run_id=support:1&candidate_run_id=support:2",
        is_api=True,
    ),
    "runs:api-comparison-report": Page(
        "viewer",
        query="?baseline_run_id=support:1&candidate_run_id=support:2",
        is_api=True,
    ),
    "runs:api-compare-many": Page("viewer", query="?runs=support:1,support:2", is_api=True),
    "runs:api-comparison-table": Page(
        "viewer",
        query="?baseline_run_id=support:1&candidate_run_id=support:2",
        is_api=True,
    ),
    "runs:api-comparison-lines": Page(
        "viewer",
        query="?baseline_run_id=support:1&candidate_run_id=support:2",
        is_api=True,
    ),
    "runs:api-compare-case": Page(
        "viewer",
        place={"key": "C-1"},
        query="?baseline_run_id=support:1&candidate_run_id=support:2",
        is_api=True,
    ),
    "runs:api-run": read(run="support:1"),
    "runs:api-run-report": read(run="support:1"),
    "runs:api-run-results": read(run="support:1"),
    "runs:api-run-results-file": read(run="support:1"),
    "runs:api-run-results-table": read(run="support:1"),
    "runs:api-run-junit": read(run="support:1"),
    "runs:api-run-cases-file": read(run="support:1"),
    "runs:api-comments": read(),
    "runs:api-reviews-lines": read(),
    "runs:api-reviews-table": read(),
    "runs:api-export": Page("viewer", get=404, place={"export": 0}, is_api=True),
    "runs:api-export-file": Page("viewer", get=404, place={"export": 0}, is_api=True),
    "runs:api-result": read(result=0),
    "runs:api-result-output": read(result=0),
    "runs:api-campaigns": read(),
    "runs:api-campaign": read(campaign=0),
    "runs:api-nothing": Page("viewer", get=404, post=404, place={"rest": "no"}, is_api=True),
}
FILES = (
    "runs:result-call",
    "runs:result-output",
    "runs:result-file",
    "runs:run-results-file",
    "runs:run-results-table",
    "runs:run-displayed-table",
    "runs:run-cases-file",
    "runs:run-summary-file",
    "runs:suite-file",
    "runs:score-cost-file",
    "runs:suite-trend-file",
    "runs:suite-picture-file",
    "runs:run-picture-file",
    "runs:run-heat-map-file",
    "runs:review-export",
    "runs:review-export-table",
    "runs:api-suite-file",
    "runs:api-run-results-file",
    "runs:api-run-results-table",
    "runs:run-junit",
    "runs:api-run-junit",
    "runs:api-run-cases-file",
    "runs:api-comparison-table",
    "runs:api-comparison-lines",
    "runs:api-reviews-lines",
    "runs:api-reviews-table",
    "runs:campaign-file",
    "runs:campaign-json",
    "runs:campaign-cost-file",
)


@dataclass(frozen=True)
class Site:
    """A site with data: the ids of its objects by address name, and one session for each role."""

    numbers: Mapping[str, Any]
    sessions: dict[str, str]
    visitor: Client = field(default_factory=Client)

    def client(self, role: str) -> Client:
        """Return a client with only the cookies of a role's session."""
        self.visitor.cookies.clear()
        if role in self.sessions:
            self.visitor.cookies[settings.SESSION_COOKIE_NAME] = self.sessions[role]
        return self.visitor


# Filling it for every address would take longer than all requests.
@pytest.fixture(scope="module")
def site(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    """Fill a site once for the whole module, and roll it back at the end."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield fill_site()
        transaction.set_rollback(True)


def fill_site() -> Site:
    """Make members of each role with a session, and one object of every kind."""
    sessions = {}
    for role in ROLES:
        client = make_client(make_member("" if role == LOGGED_IN else role, f"a-{role}"))
        sessions[role] = client.cookies[settings.SESSION_COOKIE_NAME].value
    return Site(fill(), sessions)


@pytest.fixture
def numbers(site: Site) -> Mapping[str, Any]:
    """Return the ids of the site's objects."""
    return site.numbers


def fill() -> Mapping[str, Any]:
    """Make one object of every kind and return their ids by address name."""
    model = make_model(slug="juno", encrypted_key="", key_variable="")
    suite = make_suite(slug="support")
    target = make_target(name="agent", kind="chat", model=make_model(slug="other"))
    campaign = make_campaign(suite=suite)
    run = make_run(suite=suite, target=target, campaign=campaign)
    make_run(suite=suite, target=target)
    case = make_case(suite=suite, key="C-1")
    output = {"text": "<b>hi</b>", "files": {"report/page.html": b"<script>"}}
    result = make_result(run=run, case=case, verdict="pass", score=0.9, output=output)
    call = make_call(result=result)
    assert summarise_run(run.pk)
    member = make_member("viewer", "somebody")
    assert model.pk
    trial = make_trial(target=target, asked_by=member)
    named = {"runs:result-call": call.pk, "runs:target-trial": trial.pk}
    item = ask_for_review(result, by=None)
    named |= {name: item.pk for name in PAGES if name.startswith("runs:review-")}
    aligned = [name for name in PAGES if name.startswith(("runs:alignment", "runs:api-alignment"))]
    named |= dict.fromkeys(aligned, make_alignment(suite).pk)
    named["runs:api-target"] = target.pk
    named |= {f"runs:target{action}": target.pk for action in ("", "-edit", "-try", "-edit-try")}
    named |= {name: uuid4() for name in PAGES if name.startswith("runs:case-table")}
    named |= {"runs:review-upload": uuid4()}
    named |= {
        name: uuid4() for name in PAGES if name.startswith(("runs:export", "runs:api-export"))
    }
    named |= {name: result.pk for name in PAGES if name.startswith("runs:api-result")}
    of_campaign = [
        name for name in PAGES if name.startswith(("runs:campaign", "runs:api-campaign"))
    ]
    named |= dict.fromkeys(of_campaign, campaign.pk)
    comment = add_comment(case_subject(suite, "C-1"), "Is this right?", by=member)
    named |= {f"runs:comment{action}": comment.pk for action in ("", "-edit", "-resolve")}
    named["runs:comment-delete"] = comment.pk + 1
    actions = ("status", "link", "scripts", "sessions-end", "factors-remove")
    members = ("access:member", *(f"access:member-{action}" for action in actions))
    return named | dict.fromkeys(members, member.pk)


def address_of(name: str, numbers: Mapping[str, int]) -> str:
    page = PAGES[name]
    place = {
        part: numbers.get(name, 1) if value == 0 or part == "pk" else value
        for part, value in page.place.items()
    }
    return reverse(name, kwargs=place) + page.query


def answers(client: Client, address: str) -> Iterator[HttpResponseBase]:
    """Yield the answers to GET and to a POST of nonsense, whose changes are rolled back."""
    yield client.get(address)
    with transaction.atomic():
        yield client.post(address, {"nonsense": "1"})
        transaction.set_rollback(True)


def assert_is_guarded(response: HttpResponseBase, name: str = "") -> None:
    """Check the headers that every answer must have."""
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    # A share link never sends its address as a referrer, not even to this site.
    is_anonymous = name.startswith("runs:shared")
    assert response["Referrer-Policy"] == ("no-referrer" if is_anonymous else "same-origin")


def expected(page: Page, role: str) -> tuple[set[int], set[int]]:
    """Return the expected statuses of GET and POST for a role.

    Visitors are redirected to the login; the API answers them 401.
    """
    allowed = {page.get}, {page.post}
    if page.known and role != VISITOR:
        return {page.known}, {page.known}
    if page.role == ANYBODY:
        return allowed
    if role == VISITOR:
        status = UNKNOWN if page.is_api else MOVED
        return {status}, {status}
    if page.post_role and ROLES.index(page.role) <= ROLES.index(role) < ROLES.index(page.post_role):
        return allowed[0], {FORBIDDEN}
    if ROLES.index(role) >= ROLES.index(page.role):
        return allowed
    forbidden = [
        {FORBIDDEN} if page.is_api else {FORBIDDEN, *statuses & {NOT_ALLOWED}}
        for statuses in allowed
    ]
    return forbidden[0], forbidden[1]


def test_every_address_is_listed() -> None:
    assert {name for name, _ in all_patterns(get_resolver())} == set(PAGES)


def list_parameters(query: type[ListQuery] = ListQuery) -> Iterator[str]:
    """Yield the names of the parameters of every list."""
    for list_query in query.__subclasses__():
        yield from (param.name for param in list_query.params().values())
        yield from list_parameters(list_query)


ODD_VALUES = (
    "9" * 30,
    "~",
    "0001-01-01T00:00:00+23:59",
    "support:99999999999",
    "%00",
    "\u0661",
)


@pytest.mark.every_page
@pytest.mark.parametrize("name", [name for name in PAGES if name != "healthz"])
def test_no_odd_parameter_breaks_an_address(site: Site, name: str) -> None:
    path = address_of(name, site.numbers).partition("?")[0]
    parameters = sorted({*list_parameters(), "case", "member", "repetition", "run", "version"})
    client = site.client("admin")
    for start in range(len(ODD_VALUES)):
        values = cycle(ODD_VALUES[start:] + ODD_VALUES[:start])

        response = client.get(path, dict(zip(parameters, values, strict=False)))

        assert response.status_code < 500, (start, response.status_code)
        if "GET" not in vars(response.wsgi_request):
            return  # Nothing has read a parameter.


def test_odd_values_are_not_refused_before_they_reach_a_page(site: Site) -> None:
    for value in ODD_VALUES:
        assert site.client("viewer").get(reverse("runs:search"), {"q": value}).status_code == 200


@ONE_DATABASE
@pytest.mark.parametrize("name", PAGES)
def test_each_role_can_open_exactly_its_pages(site: Site, name: str) -> None:
    page, address = PAGES[name], address_of(name, site.numbers)
    for role in (VISITOR, *ROLES):
        client = site.client(role)
        for response, statuses in zip(answers(client, address), expected(page, role), strict=True):
            assert_is_guarded(response, name)
            assert response.status_code in statuses, (role, response.status_code)
            if response.status_code == MOVED and role == VISITOR:
                assert response["Location"].startswith(f"{reverse('access:login')}?next=")
        if role == VISITOR:
            assert settings.SESSION_COOKIE_NAME not in client.cookies


@ONE_DATABASE
def test_files_are_sent_as_downloads(site: Site) -> None:
    application = ("json", "jsonl", "octet-stream", "xml", "yaml", "zip")
    types = ("text/plain", "text/csv", *(f"application/{kind}" for kind in application))
    for name in FILES:
        response = site.client("viewer").get(address_of(name, site.numbers))
        assert response["Content-Disposition"].startswith("attachment; filename="), name
        assert response["Content-Type"].split(";")[0] in types, name


@ONE_DATABASE
def test_a_form_of_another_site_is_refused(site: Site) -> None:
    # A browser sends its report without a form, and no session or row changes by it.
    forms = {name for name in PAGES if PAGES[name].post != NOT_ALLOWED} - {"csp-report"}
    for name in forms:
        client = Client(enforce_csrf_checks=True)
        client.cookies[settings.SESSION_COOKIE_NAME] = site.sessions["admin"]
        response = client.post(address_of(name, site.numbers), {"nonsense": "1"})
        assert response.status_code == 403, name
        assert_is_guarded(response)


@ONE_DATABASE
@pytest.mark.parametrize("name", [name for name in PAGES if PAGES[name].post == REFUSED])
def test_an_empty_form_is_refused_with_its_errors(site: Site, name: str) -> None:
    sender = site.client(VISITOR if PAGES[name].role == ANYBODY else "admin")
    response = sender.post(address_of(name, site.numbers), {})
    assert response.status_code == REFUSED
    page = response.content.decode()
    assert 'role="alert"' in page or "This field is required." in page


@pytest.mark.parametrize(
    "address",
    ["/?q=%00", "/search/?q=a%00b", "/suites/support/cases/a%2500b/", "/suites/support/?x=%00"],
)
def test_an_address_with_nul_is_not_found(
    viewer_client: Client, numbers: Mapping[str, int], address: str
) -> None:
    assert viewer_client.get(address).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/members/99999999999999999999/",
        "/targets/99999999999999999999/",
        "/campaigns/99999999999999999999/",
        "/suites/support/runs/99999999999999999999/",
        "/suites/support/runs/1/C-1/99999999999999999999/",
        "/suites/support/runs/1/C-1/1/calls/99999999999999999999/",
        "/suites/support/runs/1/%F0%9F%98%80/1/",
        "/suites/support/cases/C-1/?revision=99999999999999999999",
    ],
)
def test_an_unknown_number_is_not_found(
    admin_client: Client, numbers: Mapping[str, int], address: str
) -> None:
    assert admin_client.get(address).status_code == 404

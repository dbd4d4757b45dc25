"""Objects in states of their own, whose pages draw forms that those of other objects do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from evalsite.access.factors import add_app, new_secret
from evalsite.access.members import login_path, password_path
from evalsite.access.models import Passkey
from evalsite.access.tokens import make_token
from evaluators.scoring.types import Verdict
from runs.comments.queries import case_subject
from runs.comments.services import add_comment
from runs.finishing import summarise_run
from runs.models.jobs import ModelJob
from runs.models.removals import Removal
from runs.models.results import Result
from runs.models.saved_views import SavedView
from runs.models.suites import Suite
from runs.models.temporary import Export, ExportRequest
from runs.reviews.services import ReviewDecision, decide
from runs.suites.drafts import change_draft, get_draft
from runs.suites.edits import SetPolicy
from tests.attacks import bodies
from tests.attacks.files import TABLE
from tests.attacks.site import JSON, AttackedSite
from tests.evalsite.test_every_url import SUITE
from tests.support.authenticator import Authenticator, shown_code
from tests.support.factories import (
    make_campaign,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    make_target,
)
from tests.support.members import make_client
from tests.support.queue import item_of, queued_run
from tests.support.trees import CHECK, tree

SCORED = {"slug": "scored"}
REVIEW = {"suite": "support", "run": 1, "case": "C-1", "reviewer": "a-admin", "verdict": "fail"}


def fill(site: AttackedSite) -> list[str]:
    """Make what only an admin sees who owns it, and objects in states of their own; return their pages."""
    admin = User.objects.get(username="a-admin")
    return [
        *make_members(admin),
        *make_suites(site, admin),
        *make_runs(site),
        *make_reviews(admin),
        *make_files(site, admin),
        *make_jobs(site, admin),
    ]


def make_members(admin: User) -> Iterator[str]:
    """Give members tokens, second factors, sessions and one-time links."""
    somebody = User.objects.get(username="somebody")
    make_token(owner=admin, name="Nightly", scopes=(), expires_at=None)
    for member in (admin, somebody):
        assert add_app(member, secret := new_secret(), shown_code(secret), now=timezone.now())
        Passkey.objects.create(
            user=member,
            name="Laptop",
            credential_id=member.username,
            credential=Authenticator().credential,
        )
        make_client(member)
    yield login_path(somebody)
    yield password_path(somebody)


def make_suites(site: AttackedSite, admin: User) -> Iterator[str]:
    """Make a suite of three versions with a deleted case, and drafts: one of another version than the last."""
    suite, client = Suite.objects.get(**SUITE), site.client("admin")
    towns = {**bodies.SUITE_FILE, "name": "towns"}
    client.post("/api/suites", towns, JSON)
    late = get_draft(Suite.objects.get(slug="towns"), admin)
    change_draft(late, late.stamp, SetPolicy({"pass_threshold": 0.95}))
    client.put("/api/suites/towns", {**towns, "title": "Towns"}, JSON)
    site.client("editor").delete("/api/suites/towns/cases/france")
    draft = get_draft(suite, admin)
    change_draft(draft, draft.stamp, SetPolicy({"pass_threshold": 0.95}))
    yield reverse("runs:case", kwargs={"slug": "towns", "key": "france"})
    yield reverse("runs:version-restore", kwargs={"slug": "towns", "number": 1})
    yield reverse("runs:draft-conflict", kwargs={"slug": "towns"})
    yield reverse("runs:suite-delete", kwargs={"slug": "towns"})
    view = SavedView.objects.create(suite=suite, owner=admin, page="results", name="Failed")
    yield reverse("runs:saved-view-edit", kwargs={**SUITE, "pk": view.pk})
    run = reverse("runs:run", kwargs=SUITE | {"number": 1})
    yield f"{run}?view={view.pk}"
    yield f"{reverse('runs:suite-views', kwargs=SUITE)}?run=1&view={view.pk}&sort=-score"
    own = add_comment(case_subject(suite, "C-1"), "Mine, @a-admin", by=admin)
    somebody = User.objects.get(username="somebody")
    add_comment(case_subject(suite, "C-1"), "@a-admin, is this right?", by=somebody)
    yield reverse("runs:comment-edit", args=[own.pk])


def make_runs(site: AttackedSite) -> Iterator[str]:
    """Make runs that can be resumed, stopped together, and scored again."""
    place = bodies.fill(site)
    for number in (1, 2):
        yield reverse("runs:run", kwargs={"slug": "pushed", "number": number})
    aligned = {"slug": "aligned", "number": 1}
    yield reverse("runs:run", kwargs=aligned)
    result = Result.objects.get(pk=place["result"])
    yield reverse("runs:result", kwargs={**aligned, "key": result.case.key, "repetition": 1})
    stopped = make_scored_run(
        suite=make_suite(slug="stopped"), verdicts=("pass", "error", "cancelled"), status="stopped"
    )
    for page in ("run", "run-delete"):
        yield reverse(f"runs:{page}", kwargs={"slug": "stopped", "number": stopped.number})
    campaign = make_campaign(suite=stopped.suite)
    make_run(suite=stopped.suite, campaign=campaign, status="running")
    yield reverse("runs:campaign", args=[campaign.pk])
    yield reverse("runs:campaign-delete", args=[make_campaign(suite=stopped.suite).pk])
    suite, target = make_suite(**SCORED, tree=tree(CHECK)), make_target()
    for threshold in (0.8, 0.9):
        run = make_scored_run(suite=suite, target=target, verdicts=("pass", "fail"))
        for result in run.results.all():
            make_score(result=result, path="mentions_refund", kind="text_check", score=result.score)
        run.snapshot["evaluators"] = suite.spec.evaluators.as_json()
        run.snapshot["policy"]["pass_threshold"] = threshold
        run.save()
        assert summarise_run(run.pk)
    yield f"{reverse('runs:compare')}?baseline=scored:1&candidate=scored:2"
    yield f"{reverse('runs:what-if', kwargs=SCORED)}?run=1"


def make_reviews(admin: User) -> Iterator[str]:
    """Decide on results, so that the last decision can be undone and other thresholds agree better."""
    run = queued_run(["borderline"] * 4, slug="reviewed")
    for number, (score, verdict) in enumerate(
        ((0.72, "pass"), (0.75, "pass"), (0.65, "borderline"), (0.62, "borderline")), 1
    ):
        item = item_of(run, f"C-{number:03}")
        run.results.filter(pk=item.result_id).update(score=score)
        decide(item, ReviewDecision(Verdict(verdict)), by=admin)
    yield reverse("runs:review")
    yield reverse("runs:suite-agreement", kwargs={"slug": "reviewed"})


def make_files(site: AttackedSite, admin: User) -> Iterator[str]:
    """Make a link, a trace, previews that wait, exports under way and failed, and a removal that failed."""
    client = site.client("admin")
    client.post("/api/shares", {"kind": "run", "run": "support:1"}, JSON)
    client.post("/v1/traces", bodies.TRACES, JSON)
    uploads = (
        ("runs:case-import", SUITE, "t.csv", TABLE),
        ("runs:review-import", {}, "r.jsonl", json.dumps(REVIEW)),
    )
    for name, kwargs, file, text in uploads:
        data = {"file": SimpleUploadedFile(file, text.encode())}
        yield client.post(reverse(name, kwargs=kwargs), data)["Location"]
    for state in ("waiting", "failed"):
        export = Export.objects.create(
            kind="run-results",
            params={"slug": "support", "number": 1},
            digest=state,
            name="results.jsonl",
            media_type="application/jsonl",
            state=state,
            expires_at=timezone.now() + timedelta(days=1),
        )
        asked = ExportRequest.objects.create(owner=admin, export=export)
        yield reverse("runs:export", args=[asked.pk])
    Removal.objects.create(part="outputs", name="support #1", failed_at=timezone.now(), error="?")


def make_jobs(site: AttackedSite, admin: User) -> Iterator[str]:
    """Make drafts that a worker writes; return their page, and those of drafts and alignments that are over."""
    place = bodies.fill(site)
    drafts = ModelJob.objects.get(pk=place["proposal"])
    drafts.pk, drafts.state, drafts.outcome = None, "running", None
    drafts.save()
    for pk in (place["proposal"], drafts.pk):
        yield reverse("runs:case-proposal", kwargs={"pk": pk})
    yield reverse("runs:alignment", kwargs={"slug": "aligned", "pk": place["alignment"]})
    yield site.address("runs:alignment")

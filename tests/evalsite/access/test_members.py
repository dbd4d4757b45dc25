"""The pages where admins add and change members."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html import unescape
from typing import Any

import pytest
from django.apps import apps as django_apps
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from evalsite.access.forms import MemberForm
from evalsite.access.members import (
    allow_scripts,
    change_email,
    change_role,
    erase_member,
    reactivate,
    record_link,
)
from evalsite.access.roles import Role, highest_role
from evalsite.access.tokens import make_token
from evaluators.models import AuditEntry, ErasedMemberError
from runs.finishing import summarise_run
from runs.models.jobs import ModelJob
from runs.models.results import Attempt
from runs.models.reviews import Review
from runs.models.runs import Run, RunEvent
from runs.models.suites import SuiteDraft
from runs.reviews.alignment.services import stop_alignment
from runs.reviews.services import assign
from runs.running.retrying import retry_results, stop_run
from tests.reviews.aligning import make_alignment
from tests.support.factories import again, make_model, make_scored_run, make_suite
from tests.support.members import PASSWORD, make_client, make_member
from tests.support.queue import item_of, queued_run
from tests.support.threads import at_once, in_thread

ADMIN_PAGES = ["/members/", "/members/add/", "/members/{pk}/", "/members/{pk}/erase/"]
ADMIN_POSTS = [
    "/members/add/",
    *(f"/members/{{pk}}/{action}" for action in ("", "status/", "link/", "scripts/", "erase/")),
]


@pytest.mark.parametrize("role", ["viewer", "reviewer", "editor", ""])
@pytest.mark.parametrize("path", ADMIN_PAGES)
def test_only_admins_see_members(role: str, path: str, admin: User) -> None:
    response = make_client(make_member(role)).get(path.format(pk=admin.pk))
    assert response.status_code == 403
    assert "You are not allowed to do this" in response.text
    assert "admin can change that" in response.text


def test_who_may_do_nothing_reads_whom_to_ask(admin: User) -> None:
    for name in ("ada", "grace"):
        make_member("admin", name)
    page = " ".join(make_client(make_member("")).get("/members/").text.split())
    assert "ada, admin or grace can change that." in page


@pytest.mark.parametrize("role", ["viewer", "reviewer", "editor", ""])
@pytest.mark.parametrize("path", ADMIN_POSTS)
def test_only_admins_change_members(role: str, path: str, admin: User) -> None:
    sent = {"username": "eve", "role": "admin", "active": "0"}
    response = make_client(make_member(role)).post(path.format(pk=admin.pk), sent)
    assert response.status_code == 403
    admin.refresh_from_db()
    assert admin.is_active
    assert not User.objects.filter(username="eve").exists()


@pytest.mark.parametrize("path", ADMIN_PAGES)
def test_admins_see_the_members(path: str, admin: User, admin_client: Client) -> None:
    response = admin_client.get(path.format(pk=admin.pk))
    assert response.status_code == 200
    assert "admin" in response.text


def test_the_list_needs_the_same_queries_for_any_number_of_members(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        make_member("viewer", f"viewer-{number}")
    with django_assert_max_num_queries(10):
        assert "viewer-19" in admin_client.get("/members/").text


def shown_link(text: str) -> str:
    match = re.search(r'value="(http://testserver/password/[^"]+)"', text)
    assert match, "no link is shown"
    return unescape(match[1]).removeprefix("http://testserver")


def test_the_review_queue_leads_an_admin_to_a_form_for_a_reviewer(admin_client: Client) -> None:
    assert 'href="/members/add/?role=reviewer"' in admin_client.get("/review/").text
    form = admin_client.get("/members/add/?role=reviewer").text
    assert re.search(r'value="reviewer"[^>]*checked', form)
    assert re.search(r'value="viewer"[^>]*checked', admin_client.get("/members/add/?role=x").text)


def test_a_new_member_sets_a_password_by_a_link_shown_once(
    admin: User, admin_client: Client, client: Client
) -> None:
    sent = {"username": "mira", "email": "mira@example.com", "role": "editor"}
    response = admin_client.post("/members/add/", sent, follow=True)
    link = shown_link(response.text)
    mira = User.objects.get(username="mira")
    assert highest_role(mira) == Role.EDITOR
    assert not mira.has_usable_password()
    assert link not in admin_client.get(f"/members/{mira.pk}/").text

    assert "For mira" in client.get(link).text
    weak = client.post(link, {"new_password1": "1", "new_password2": "1"})
    assert weak.status_code == 422
    assert client.post(link, {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert client.get("/account/").status_code == 200
    assert Client().get(link).status_code == 410
    entries = AuditEntry.objects.filter(object_type="user", object_name="mira").order_by("pk")
    assert [(entry.action, entry.actor_name) for entry in entries] == [
        ("member.added", "admin"),
        ("member.password_changed", "mira"),
    ]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"username": "ADMIN", "role": "viewer"}, "already a member named ADMIN"),
        (
            {"username": "\N{FULLWIDTH LATIN CAPITAL LETTER A}dmin", "role": "viewer"},
            "already a member named Admin",
        ),
        (
            {"username": "\N{LATIN SMALL LIGATURE FFI}" * 150, "role": "viewer"},
            "at most 150 characters",
        ),
        ({"username": "with space", "role": "viewer"}, "valid username"),
        ({"username": "", "role": "viewer"}, "required"),
        ({"username": "mira", "role": "emperor"}, "not one of the available choices"),
        ({"username": "mira", "role": "viewer", "email": "no"}, "valid email"),
    ],
)
def test_an_invalid_member_answers_422_and_is_not_added(
    sent: dict[str, str], words: str, admin_client: Client
) -> None:
    response = admin_client.post("/members/add/", sent)
    assert response.status_code == 422
    assert words in response.text
    assert User.objects.count() == 1


def test_a_new_role_applies_at_once_and_is_audited(viewer: User, admin_client: Client) -> None:
    response = admin_client.post(f"/members/{viewer.pk}/", {"role": "admin"}, follow=True)
    assert "viewer is now admin" in response.text
    assert make_client(viewer).get("/members/").status_code == 200
    entry = AuditEntry.objects.get()
    assert (entry.before, entry.after) == ({"role": "viewer"}, {"role": "admin"})


def test_setting_the_same_role_changes_nothing(viewer: User, admin_client: Client) -> None:
    admin_client.post(f"/members/{viewer.pk}/", {"role": "viewer"})
    assert not AuditEntry.objects.exists()


def test_an_unknown_role_answers_422(viewer: User, admin_client: Client) -> None:
    assert admin_client.post(f"/members/{viewer.pk}/", {"role": "x"}).status_code == 422


def test_a_deactivated_member_is_logged_out_and_can_be_reactivated(
    viewer: User, viewer_client: Client, admin_client: Client
) -> None:
    admin_client.post(f"/members/{viewer.pk}/status/", {"active": "0"})
    assert viewer_client.get("/account/").status_code == 302
    assert "Deactivated" in admin_client.get("/members/").text
    assert admin_client.post(f"/members/{viewer.pk}/link/").status_code == 404
    admin_client.post(f"/members/{viewer.pk}/status/", {"active": "1"})
    assert make_client(viewer).get("/account/").status_code == 200
    actions = AuditEntry.objects.order_by("id").values_list("action", flat=True)
    assert list(actions) == ["member.deactivated", "member.reactivated"]


@pytest.mark.parametrize(
    ("path", "sent"), [("/members/{pk}/", {"role": "viewer"}), ("/members/{pk}/status/", {})]
)
def test_the_last_active_admin_cannot_be_removed(
    path: str, sent: dict[str, str], admin: User, admin_client: Client
) -> None:
    other = make_member("admin", "away")
    User.objects.filter(pk=other.pk).update(is_active=False)
    response = admin_client.post(path.format(pk=admin.pk), sent)
    assert response.status_code == 422
    assert "admin is the last active admin. Make another member an admin first." in response.text
    admin.refresh_from_db()
    assert admin.is_active
    assert highest_role(admin) == Role.ADMIN
    assert not AuditEntry.objects.exists()


def test_one_of_two_admins_can_be_removed(admin: User, admin_client: Client) -> None:
    other = make_member("admin", "other")
    assert admin_client.post(f"/members/{other.pk}/", {"role": "viewer"}).status_code == 302
    assert highest_role(User.objects.get(pk=other.pk)) == Role.VIEWER


def test_a_superuser_who_gets_a_role_is_no_superuser_any_more(admin_client: Client) -> None:
    root = User.objects.create_superuser("root")
    admin_client.post(f"/members/{root.pk}/", {"role": "viewer"})
    root = User.objects.get(pk=root.pk)
    assert highest_role(root) == Role.VIEWER
    assert not root.has_perm("auth.change_user")


def test_a_new_link_replaces_a_forgotten_password(
    viewer: User, admin_client: Client, client: Client
) -> None:
    response = admin_client.post(f"/members/{viewer.pk}/link/", follow=True)
    link = shown_link(response.text)
    new = "another fine passphrase"
    assert client.post(link, {"new_password1": new, "new_password2": new}).status_code == 302
    viewer.refresh_from_db()
    assert viewer.check_password(new)
    entries = AuditEntry.objects.filter(object_type="user").order_by("pk")
    actions = [entry.action for entry in entries]
    assert actions == ["member.link_made", "member.password_changed"]


def test_an_unknown_member_answers_404(admin_client: Client) -> None:
    assert admin_client.get("/members/999999/").status_code == 404


def test_a_name_taken_meanwhile_is_refused(
    admin_client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemberForm, "clean_username", lambda form: form.cleaned_data["username"])
    response = admin_client.post("/members/add/", {"username": viewer.username, "role": "viewer"})
    assert response.status_code == 422
    assert "There is already a member named viewer." in response.text


def test_a_single_member_may_be_allowed_to_run_scripts(admin_client: Client, admin: User) -> None:
    member = make_member("editor")
    page = f"/members/{member.pk}/"
    assert not member.has_perm("runs.run_scripts")

    answer = admin_client.post(f"{page}scripts/", {"run_scripts": "on"}, follow=True)
    assert "editor may run scripts." in answer.text
    assert "checked" in answer.text.partition('name="run_scripts"')[2].partition(">")[0]
    assert User.objects.get(pk=member.pk).has_perm("runs.run_scripts")

    answer = admin_client.post(f"{page}scripts/", {}, follow=True)
    assert "editor may not run scripts." in answer.text
    assert not User.objects.get(pk=member.pk).has_perm("runs.run_scripts")
    actions = AuditEntry.objects.filter(object_id=str(member.pk)).order_by("id")
    assert [(entry.action, entry.actor) for entry in actions] == [
        ("member.scripts_allowed", admin),
        ("member.scripts_forbidden", admin),
    ]


def test_an_admin_may_run_scripts_by_role(admin_client: Client, admin: User) -> None:
    assert admin.has_perm("runs.run_scripts")
    page = admin_client.get(f"/members/{admin.pk}/").text
    assert "May run scripts, like every admin." in page
    assert "run_scripts" not in page


def test_the_page_says_whether_scripts_are_on(admin_client: Client, settings: Any) -> None:
    page = f"/members/{make_member('editor').pk}/"
    settings.SCRIPTS = False
    assert "EVALSITE_SCRIPTS=1" in admin_client.get(page).text
    settings.SCRIPTS = True
    assert "EVALSITE_SCRIPTS=1" not in admin_client.get(page).text


def test_allowing_scripts_twice_is_recorded_once(admin_client: Client) -> None:
    member = make_member("editor")
    for _ in range(2):
        admin_client.post(f"/members/{member.pk}/scripts/", {"run_scripts": "on"})
    assert AuditEntry.objects.filter(object_id=str(member.pk)).count() == 1


@pytest.mark.parametrize(("page", "sent"), [("status/", {"active": "0"}), ("", {"role": "viewer"})])
def test_others_decide_what_was_assigned_to_a_member_who_may_not_any_more(
    admin: User, page: str, sent: dict[str, str]
) -> None:
    member, other = make_member("reviewer", "ada"), make_member("reviewer", "bob")
    item = item_of(queued_run(["borderline"]), "C-001")
    assign([item.pk], member, by=admin)
    assert "Nothing left for you" in make_client(other).get("/review/").text

    make_client(admin).post(f"/members/{member.pk}/{page}", sent)
    assert "C-001" in make_client(other).get("/review/").text


@pytest.mark.parametrize(("page", "sent"), [("status/", {"active": "0"}), ("", {"role": "viewer"})])
def test_no_model_goes_on_drafting_for_a_member_who_may_not_any_more(
    admin: User, page: str, sent: dict[str, str]
) -> None:
    member = make_member("editor", "ada")
    facts = {"purpose": "drafting", "request": {}, "model_name": "Mock", "state": "running"}
    job = ModelJob.objects.create(suite=make_suite(), asked_by=member, **facts)
    make_client(admin).post(f"/members/{member.pk}/", {"role": "admin"})
    assert again(job).is_open

    make_client(admin).post(f"/members/{member.pk}/{page}", sent)
    assert not again(job).is_open
    assert not again(job).keep()


def test_a_reviewer_who_becomes_an_editor_keeps_what_was_assigned(admin: User) -> None:
    member = make_member("reviewer", "ada")
    item = item_of(queued_run(["borderline"]), "C-001")
    assign([item.pk], member, by=admin)
    change_role(member, actor=admin, role=Role.EDITOR)
    assert again(item).assigned_to == member


NAME, EMAIL = "ada.lovelace", "ada@engine.example"


def stored_rows() -> str:
    """Return every value of every table."""
    models = django_apps.get_models()
    return repr([list(model._base_manager.values_list()) for model in models])


def busy_member() -> User:
    """Return a member who left a trace wherever members do."""
    member = make_member("editor", NAME)
    member.email, member.first_name = EMAIL, "Ada"
    member.save()
    run = make_scored_run(verdicts=["pass"], status="running", created_by=member)
    stop_run(run, stopped_by=member)
    summarise_run(run.pk)
    retry_results(run, asked_by=member, which="all", result_ids=[run.results.get().pk])
    Review.objects.create(result=run.results.get(), reviewer=member, verdict="pass")
    assert Attempt.objects.update(counted_by=NAME)
    make_token(owner=member, name="ci", scopes=(), expires_at=None)
    job = make_alignment(run.suite)
    stop_alignment(job, by=member)
    RunEvent.objects.create(run=run, kind="judged", text=f"1 result judged again by {NAME}. More.")
    SuiteDraft.objects.create(suite=run.suite, author=member, base_version=1, content={})
    make_client(member).get("/")
    return member


def test_the_person_behind_a_member_is_erased_everywhere(admin: User) -> None:
    member = busy_member()
    client, session = make_client(admin), make_client(member)
    client.post(f"/members/{member.pk}/", {"role": "reviewer"})
    client.post(f"/members/{member.pk}/status/", {"active": "0"})
    client.post(f"/members/{member.pk}/status/", {"active": "1"})
    page = client.get(f"/members/{member.pk}/erase/").text
    assert "1 API token, 1 draft" in page
    assert "1 decision of reviews, 0 comments, 1 run" in page
    assert NAME in stored_rows()

    assert client.post(f"/members/{member.pk}/erase/").status_code == 302
    assert NAME not in stored_rows()
    assert EMAIL not in stored_rows()
    erased = f"deleted member {member.pk}"
    review = Review.objects.get()
    assert review.reviewer_word == erased
    assert session.get("/").status_code == 302
    assert client.get(f"/members/{member.pk}/").status_code == 404
    assert NAME not in client.get("/members/").text
    assert erased in client.get("/audit/").text


def test_what_a_member_is_doing_when_erased_is_not_done(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = busy_member()
    run, client = Run.objects.get(), make_client(member)

    def stop_late(run: Run, *, stopped_by: User) -> object:
        erase_member(User.objects.get(pk=member.pk), actor=admin)
        return stop_run(run, stopped_by=stopped_by)

    monkeypatch.setattr("runs.running.views.stop_run", stop_late)
    response = client.post(f"/suites/{run.suite.slug}/runs/{run.number}/stop/")
    assert response.status_code == 403
    assert again(run).is_active
    assert NAME not in stored_rows()


@pytest.mark.each_database
@pytest.mark.django_db(transaction=True)
def test_erasing_a_member_waits_for_what_the_member_is_doing(admin: User) -> None:
    member = busy_member()
    run, person = Run.objects.get(), User.objects.get(pk=member.pk)
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            stop_run(run, stopped_by=member)
            erasing = in_thread(threads, partial(erase_member, person, actor=admin))
        erasing.result()
    assert not again(run).is_active
    assert NAME not in stored_rows()


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (reactivate, {}),
        (change_role, {"role": Role.ADMIN}),
        (change_email, {"email": "ada@other.example"}),
        (allow_scripts, {"allowed": True}),
        (record_link, {}),
    ],
)
def test_nothing_changes_about_a_member_whom_another_admin_has_just_erased(
    admin: User, change: Callable[..., object], values: dict[str, object]
) -> None:
    member = make_member("editor", NAME)
    shown = User.objects.get(pk=member.pk)
    erase_member(member, actor=admin)
    with pytest.raises(ErasedMemberError):
        change(shown, actor=admin, **values)
    erased = User.objects.get(pk=member.pk)
    assert (erased.is_active, erased.email, highest_role(erased)) == (False, "", None)
    assert NAME not in stored_rows()


def test_an_admin_who_is_erased_by_nobody_else_leaves_no_name(admin: User) -> None:
    member = make_member("admin", NAME)
    response = make_client(member).post(f"/members/{member.pk}/erase/")
    assert response.status_code == 302
    assert NAME not in stored_rows()


def test_who_asked_for_a_test_is_erased_while_a_worker_tests(admin: User) -> None:
    member, model = make_member("admin", NAME), make_model()
    model.request_test(actor=member)
    tested = again(model)
    assert tested.begin_test()
    erase_member(member, actor=admin)
    tested.finish_test({"reply": "ok"})
    assert again(model).last_test["state"] == "done"
    assert NAME not in stored_rows()


def test_the_last_admin_is_not_erased(admin: User) -> None:
    response = make_client(admin).post(f"/members/{admin.pk}/erase/")
    assert response.status_code == 422
    assert "is the last active admin" in response.text
    admin.refresh_from_db()
    assert admin.is_active


@pytest.mark.django_db(transaction=True)
def test_a_role_that_two_admins_change_at_once_is_one_of_both(admin: User, viewer: User) -> None:
    for before, *chosen in (
        (Role.VIEWER, Role.REVIEWER, Role.EDITOR),
        (Role.ADMIN, Role.VIEWER, Role.EDITOR),
        (Role.EDITOR, Role.ADMIN, Role.VIEWER),
    ):
        for _ in range(3):
            change_role(viewer, actor=admin, role=before)
            member = User.objects.get(pk=viewer.pk)
            at_once(*[partial(change_role, member, actor=admin, role=role) for role in chosen])
            assert [Role(group.name) for group in viewer.groups.all()] in [
                [role] for role in chosen
            ]


@pytest.mark.each_database
@pytest.mark.django_db(transaction=True)
def test_the_audit_tells_each_address_that_two_admins_replace_at_once(
    admin: User, viewer: User
) -> None:
    emails = ("ada@b.example", "eve@b.example")
    at_once(*[partial(change_email, viewer, actor=admin, email=email) for email in emails])
    first, second = AuditEntry.objects.filter(action="member.email_changed").order_by("pk")
    assert (first.before, second.before) == ({"email": ""}, first.after)

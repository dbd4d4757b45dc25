"""Comments: who sees, writes, changes and resolves them, whom they mention, and where they never appear."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from evalsite.access.members import erase_member
from evaluators.models import AuditEntry
from evaluators.scoring.types import Verdict
from evaluators.templatetags import markdown
from evaluators.templatetags.markdown import PageMarkdown
from runs.comments import services
from runs.comments.queries import (
    ThreadsQuery,
    case_subject,
    comments_page,
    comparison_subject,
    result_subject,
    run_subject,
    visible_comments,
)
from runs.comments.services import (
    CommentChangedError,
    CommentRefusedError,
    add_comment,
    delete_comment,
    edit_comment,
    resolve_comment,
)
from runs.comments.text import comment_html, mentioned_names, without_name
from runs.models.comments import Comment, Mention
from runs.models.removals import RemovalPart
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.results.result_state import hidden_parts, review_item
from runs.retention.queries import Selection
from runs.retention.services import begin_removal
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.support.factories import make_scored_run, make_suite
from tests.support.members import make_member

pytestmark = pytest.mark.django_db
RESULT, COMMENTS = "/suites/support/runs/1/C-1/1/", "/suites/support/runs/1/C-1/1/comments/"


@pytest.fixture
def suite(db: None) -> Suite:
    return make_suite(slug="support", title="Customer support")


@pytest.fixture
def run(suite: Suite) -> Run:
    return make_scored_run(suite=suite, verdicts=["pass", "fail"])


@pytest.fixture
def result(run: Run) -> Result:
    return Result.objects.select_related("case").filter(run=run).order_by("pk")[0]


def page_of(client: Client, address: str, **headers: str) -> str:
    return client.get(address, follow=True, headers=headers).content.decode()


def address_of(result: Result) -> str:
    return f"/suites/support/runs/{result.run.number}/{result.case.key}/1/comments/"


def test_every_member_comments_replies_and_resolves_without_a_script(
    result: Result, viewer_client: Client, editor_client: Client
) -> None:
    address = address_of(result)
    sent = viewer_client.post(address, {"text": "Is **this** right?"}, follow=True)
    root = Comment.objects.get()
    assert sent.redirect_chain[-1][0] == f"{address}?page=1#comment-{root.pk}"
    assert "Comment added." in sent.content.decode()
    editor_client.post(address, {"text": "It is.", "parent": root.pk})
    page = page_of(viewer_client, address)
    assert "<strong>this</strong>" in page
    assert page.index("It is.") > page.index("Is <strong>")
    editor_client.post(f"/comments/{root.pk}/resolve/")
    assert "Resolved by editor" in page_of(viewer_client, address)
    viewer_client.post(f"/comments/{root.pk}/resolve/", {"reopen": "1"})
    assert "Resolved by" not in page_of(viewer_client, address)
    entries = AuditEntry.objects.filter(object_type="comment").order_by("pk")
    actions = [(entry.actor_name, entry.action) for entry in entries]
    viewer, editor = "viewer", "editor"
    assert actions == [
        (viewer, "create"),
        (editor, "create"),
        (editor, "resolve"),
        (viewer, "reopen"),
    ]
    # What is deleted must be gone, so the audit never has the text.
    assert "right" not in str([entry.as_values() for entry in entries])


@pytest.mark.django_db(transaction=True)
def test_a_comment_on_what_is_deleted_meanwhile_is_not_found(
    result: Result, viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_first(text: str, by: User) -> list[User]:
        Result.objects.filter(pk=result.pk).delete()
        return []

    monkeypatch.setattr(services, "_mentioned", delete_first)
    assert viewer_client.post(address_of(result), {"text": "Is this right?"}).status_code == 404
    assert not Comment.objects.exists()


def test_each_page_has_the_comments_of_its_own_subject(
    suite: Suite, result: Result, viewer: User, viewer_client: Client
) -> None:
    second, key = make_scored_run(suite=suite, verdicts=["pass"]), result.case.key
    subjects = {
        f"/suites/support/runs/1/{key}/1/": result_subject(result, result.run),
        f"/suites/support/cases/{key}/": case_subject(suite, key),
        "/suites/support/runs/1/": run_subject(result.run),
        "/compare/?baseline=support:1&candidate=support:2": comparison_subject(result.run, second),
    }
    for address, subject in subjects.items():
        add_comment(subject, f"About the {subject.kind}.", by=viewer)
        assert f'hx-get="{subject.url}"'.replace("&", "&amp;") in page_of(viewer_client, address)
    for subject in subjects.values():
        panel = page_of(viewer_client, subject.url, HX_Request="true")
        assert "<html" not in panel
        summary = panel[panel.index("<summary") : panel.index("</summary>")]
        assert ">1</span>" in summary.replace(" ", ""), "the closed line says how many there are"
        assert '<details id="comments-fold">' in panel
        assert '<details id="comments-fold" open>' in page_of(viewer_client, subject.url)
        assert [
            other.kind for other in subjects.values() if f"About the {other.kind}." in panel
        ] == [subject.kind]
        comment = subject.comments().get()
        lead = viewer_client.get(f"/comments/{comment.pk}/", follow=True)
        assert lead.status_code == 200
        assert lead.redirect_chain[-1][0].endswith(f"#comment-{comment.pk}")


def test_only_the_author_edits_and_two_windows_never_overwrite_each_other(
    result: Result, viewer_client: Client, viewer: User, editor_client: Client
) -> None:
    comment = add_comment(result_subject(result, result.run), "First", by=viewer)
    address = f"/comments/{comment.pk}/edit/"
    assert editor_client.post(address, {"text": "Mine", "revision": 1}).status_code == 403
    assert editor_client.post(f"/comments/{comment.pk}/delete/").status_code == 403
    assert viewer_client.post(address, {"text": "Second", "revision": 1}).status_code == 302
    late = viewer_client.post(address, {"text": "Third", "revision": 1})
    assert late.status_code == 422
    page = late.content.decode()
    assert "You changed this comment elsewhere meanwhile." in page
    assert "Second" in page
    assert "Third" in page
    comment.refresh_from_db()
    assert (comment.text, comment.revision) == ("Second", 2)
    assert "edited" in page_of(viewer_client, address_of(result))


def test_a_deleted_comment_keeps_its_place_while_replies_hang_on_it(
    result: Result, viewer: User, editor: User, admin: User, viewer_client: Client
) -> None:
    subject = result_subject(result, result.run)
    root = add_comment(subject, "Secret @editor", by=viewer)
    reply = add_comment(subject, "Reply", by=editor, parent=root)
    delete_comment(root, by=viewer)
    page = page_of(viewer_client, address_of(result))
    assert "This comment was deleted" in page
    assert "Reply" in page
    assert "Secret" not in page
    assert not Mention.objects.exists()
    # An admin deletes every comment; with its last reply the empty place goes too.
    delete_comment(reply, by=admin)
    assert not Comment.objects.exists()
    with pytest.raises(CommentChangedError, match="Your reply was not stored"):
        add_comment(subject, "Too late", by=editor, parent=root)


def test_a_mention_is_counted_until_it_is_read(
    result: Result, viewer: User, editor: User, editor_client: Client, viewer_client: Client
) -> None:
    text = "Look, @editor. Mail to a@viewer and @nobody; `@editor`"
    comment = add_comment(result_subject(result, result.run), text, by=viewer)
    assert "1 unread mention" in page_of(editor_client, "/")
    mentions = page_of(editor_client, "/mentions/")
    assert '<strong class="mention">@editor</strong>' in mentions
    assert "<code>@editor</code>" in mentions
    assert "No mentions yet" in page_of(viewer_client, "/mentions/")
    editor_client.get(f"/comments/{comment.pk}/")
    assert "unread mention" not in page_of(editor_client, "/")
    edit_comment(comment, "@editor @viewer", revision=1, by=viewer)
    assert Mention.objects.get().read_at is not None
    edit_comment(comment, "Nobody", revision=2, by=viewer)
    assert not Mention.objects.exists()


def test_suggestions_are_members_who_may_see_the_comment(
    viewer_client: Client, editor: User
) -> None:
    make_member("", "edgar")
    User.objects.filter(pk=make_member("viewer", "edda").pk).update(is_active=False)
    offers = viewer_client.get("/comments/members/?q=@ED").json()["suggestions"]
    assert offers == [{"text": "@editor", "help": "", "start": 0}]
    for word in ("", "ed", "@v"):
        assert viewer_client.get("/comments/members/", {"q": word}).json() == {"suggestions": []}


@pytest.mark.parametrize("is_blind", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
def test_comments_are_hidden_where_the_decisions_of_others_are(
    run: Run, result: Result, reviewer: User, viewer: User, is_blind: bool, is_closed: bool
) -> None:
    run.snapshot["policy"] = {**run.snapshot["policy"], "review_blind": is_blind}
    run.save()
    add_comment(result_subject(result, run), "It is a pass", by=viewer)
    other = make_member("reviewer", "second")
    item = ask_for_review(result, by=None)
    if is_closed:
        decide(item, ReviewDecision(verdict=Verdict.PASS), by=other)
    else:
        # A decision of another member, with which the item still waits.
        decide(item, ReviewDecision(verdict=Verdict.PASS), by=other)
        type(item).objects.filter(pk=item.pk).update(closed_at=None)
    for member in (viewer, reviewer, other):
        member = User.objects.get(pk=member.pk)
        hidden = hidden_parts(member, result, review_item(result), run.policy).people
        assert visible_comments(member).exists() is not hidden


def test_a_blind_reviewer_learns_of_comments_but_not_what_they_say(
    result: Result, viewer: User, reviewer_client: Client, reviewer: User
) -> None:
    comment = add_comment(result_subject(result, result.run), "A clear pass @reviewer", by=viewer)
    ask_for_review(result, by=None)
    for address in (address_of(result), "/mentions/", "/api/comments", f"/comments/{comment.pk}/"):
        assert "clear pass" not in page_of(reviewer_client, address)
    assert "1 comment is hidden until you review" in page_of(reviewer_client, address_of(result))
    assert reviewer_client.post(f"/comments/{comment.pk}/resolve/").status_code == 404
    assert Mention.objects.get().read_at is None, "what was not shown is not read"
    reviewer_client.post(address_of(result), {"text": "My own"})
    assert "My own" in page_of(reviewer_client, address_of(result))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * 5_000_000, "at most 5,000 characters"),
        (" ".join(f"@m{number}" for number in range(25)), "at most 20 members"),
        (" \n ", "Write something first."),
        ("a\0b", "Null characters are not allowed."),
    ],
)
def test_a_comment_that_cannot_be_is_refused_and_kept_in_its_field(
    result: Result, viewer_client: Client, text: str, problem: str
) -> None:
    User.objects.bulk_create(User(username=f"m{number}") for number in range(25))
    Group.objects.get(name="viewer").user_set.add(*User.objects.filter(username__startswith="m"))
    refused = viewer_client.post(address_of(result), {"text": text})
    assert refused.status_code == 422
    page = refused.content.decode()
    assert problem in page
    assert len(page) < 200_000
    assert not Comment.objects.exists()


def test_hostile_text_stays_text() -> None:
    html = comment_html(
        "<script>x()</script> [a](javascript:x) ![p](http://p) @ann <b>@ann</b> [@ann](http://a)",
        {"ann"},
        PageMarkdown(),
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "javascript:" not in html.replace("[a](javascript:x)", "")
    assert html.count('class="mention"') == 2
    names = mentioned_names(" ".join(f"@a{number}" for number in range(10_000)))
    assert len(names) == 10_000
    assert mentioned_names("@a.b, (@c) x@y @d. @") >= {"a.b", "c", "d"}
    assert "y" not in mentioned_names("x@y")
    assert without_name("@ann. @anna @ann.b ann", "ann", "X") == "X. @anna @ann.b ann"


def test_many_comments_are_paged_in_as_many_queries(
    result: Result, viewer: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    subject = result_subject(result, result.run)
    viewer = User.objects.get(pk=viewer.pk)
    viewer.has_perm("runs.view_run")
    add_comment(subject, "One", by=viewer)
    with django_assert_num_queries(5):
        comments_page(subject, ThreadsQuery(), viewer)
    for number in range(12):
        root = add_comment(subject, f"Number {number}", by=viewer)
        add_comment(subject, "Reply", by=viewer, parent=root)
    with django_assert_num_queries(5):
        page = comments_page(subject, ThreadsQuery(page=2), viewer)
    assert (page.total, page.pages.pages, len(page.threads)) == (25, 2, 3)
    assert page.threads[0].comment.text == "Number 1"


def test_of_many_long_comments_a_page_formats_the_first(
    result: Result, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markdown, "MAX_LENGTH", 12)
    subject = result_subject(result, result.run)
    root = add_comment(subject, "**one**", by=viewer)
    add_comment(subject, "**two <b>**", by=viewer, parent=root)

    (thread,) = comments_page(subject, ThreadsQuery(), viewer).threads

    (reply,) = thread.replies
    assert thread.html == "<p><strong>one</strong></p>\n"
    assert reply.html == "<pre>**two &lt;b&gt;**</pre>"


def test_a_thread_has_an_end(result: Result, viewer: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_REPLIES", 1)
    subject = result_subject(result, result.run)
    root = add_comment(subject, "One", by=viewer)
    add_comment(subject, "Two", by=viewer, parent=root)
    with pytest.raises(CommentRefusedError, match="at most 1 replies"):
        add_comment(subject, "Three", by=viewer, parent=root)


def test_a_thread_has_only_so_many_characters_so_that_its_page_stays_small(
    result: Result, viewer: User, editor: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MAX_THREAD_LENGTH", 20)
    subject = result_subject(result, result.run)
    root = add_comment(subject, "a" * 8, by=viewer)
    reply = add_comment(subject, "b" * 8, by=editor, parent=root)
    with pytest.raises(CommentRefusedError, match="at most 20 characters together.*would have 21"):
        add_comment(subject, "c" * 5, by=viewer, parent=root)
    with pytest.raises(CommentRefusedError, match="would have 21"):
        edit_comment(reply, "b" * 13, revision=reply.revision, by=editor)
    with pytest.raises(CommentRefusedError, match="would have 21"):
        edit_comment(root, "a" * 13, revision=root.revision, by=viewer)
    edit_comment(reply, "b" * 12, revision=reply.revision, by=editor)
    monkeypatch.setattr(services, "MAX_THREAD_LENGTH", 5)
    edit_comment(root, "a" * 7, revision=root.revision, by=viewer)
    assert add_comment(subject, "d" * 8, by=viewer).text == "d" * 8, "another comment has its own"


def test_comments_go_with_their_run_its_details_and_their_author(
    suite: Suite, run: Run, result: Result, viewer: User, editor: User, admin: User
) -> None:
    second = make_scored_run(suite=suite, verdicts=["pass"])
    subjects: list[Any] = [
        result_subject(result, run),
        run_subject(run),
        comparison_subject(run, second),
        case_subject(suite, result.case.key),
        run_subject(second),
    ]
    for subject in subjects:
        root = add_comment(subject, "Ask @editor", by=viewer)
        add_comment(subject, "Reply", by=editor, parent=root)
    resolve_comment(root, is_resolved=True, by=editor)
    erase_member(editor, actor=admin)
    assert not Mention.objects.exists()
    root.refresh_from_db()
    assert root.text == f"Ask deleted member {editor.pk}"
    selection = Selection(suite=suite, part=RemovalPart.DETAILS, runs=(run,))
    begin_removal(selection, by=admin, in_background=False)
    assert [subject.comments().count() for subject in subjects] == [0, 0, 0, 2, 2]
    whole = Selection(suite=suite, part=RemovalPart.RUN, runs=(second,))
    begin_removal(whole, by=admin, in_background=False)
    assert list(Comment.objects.values_list("case_key", flat=True)) == [result.case.key] * 2


def test_the_api_lists_comments_by_what_they_are_about(
    run: Run, result: Result, viewer: User, editor: User, viewer_client: Client
) -> None:
    root = add_comment(result_subject(result, run), "Ask @editor", by=viewer)
    add_comment(result_subject(result, run), "Reply", by=editor, parent=root)
    add_comment(run_subject(run), "On the run", by=viewer)
    resolve_comment(root, is_resolved=True, by=viewer)
    found = viewer_client.get(f"/api/comments?run={run.pk}").json()["results"]
    assert [row["text"] for row in found] == ["On the run", "Reply", "Ask @editor"]
    assert found[-1] | {"created_at": "", "resolved_at": ""} == {
        "id": root.pk,
        "about": "result",
        "suite": "support",
        "case": result.case.key,
        "run_id": run.pk,
        "baseline_run_id": None,
        "result_id": result.pk,
        "reply_to": None,
        "author": "viewer",
        "text": "Ask @editor",
        "mentions": ["editor"],
        "created_at": "",
        "edited_at": None,
        "resolved_at": "",
        "url": f"/comments/{root.pk}/",
    }
    still_open = viewer_client.get("/api/comments?open=true&suite=support").json()["results"]
    assert [row["text"] for row in still_open] == ["On the run"]


def test_no_file_has_comments(
    run: Run, result: Result, viewer: User, viewer_client: Client
) -> None:
    add_comment(result_subject(result, run), "Between us", by=viewer)
    add_comment(run_subject(run), "Between us", by=viewer)
    for name in (
        "results.jsonl",
        "cases.jsonl",
        "summary.json",
        "results.csv?texts=1",
        "junit.xml",
    ):
        answer = viewer_client.get(f"/suites/support/runs/1/{name}")
        assert b"Between us" not in answer.getvalue()

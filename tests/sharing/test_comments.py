"""The comments of share links: only where chosen, without addresses, and only while anybody may read them."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from evalsite.access.members import erase_member
from evaluators.models import AuditEntry
from runs.comments.queries import comparison_subject, result_subject, run_subject
from runs.comments.services import add_comment, delete_comment
from runs.models.comments import Comment
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from runs.reviews.services import ask_for_review
from tests.sharing.linked import share, subject
from tests.support.members import make_member
from tests.support.white_space import text_of

WRITTEN = "It **fell**, @mia-mark and @jo@example.com. <script>alert(1)</script>"


@pytest.fixture
def jo(db: None) -> User:
    return make_member("editor", "jo@example.com")


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_comments_are_shared_only_where_chosen_and_without_addresses(
    editor_client: Client, runs: tuple[Run, Run], editor: User, jo: User, kind: str
) -> None:
    about = {
        "comparison": comparison_subject(*runs),
        "run": run_subject(runs[1]),
        "result": result_subject(runs[1].results.select_related("case").get(), runs[1]),
    }
    for other, place in about.items():
        thread = add_comment(place, f"{WRITTEN} COMMENT-{other}", by=jo)
        add_comment(place, f"REPLY-{other}", by=editor, parent=thread)
    plain = share(editor_client, subject(runs, kind))
    assert "COMMENT" not in Client().get(plain).text
    link = share(editor_client, subject(runs, kind), comments="on")
    for path in (link, f"{link}download"):
        page = Client().get(path).text
        assert f"COMMENT-{kind}" in page
        assert page.count("COMMENT-") == 1, "those on other things are theirs"
        assert "<strong>fell</strong>" in page
        assert f"REPLY-{kind}" in page
        assert "example.com" not in page
        assert "a member" in page
        assert "Comments may quote them." in page
        assert "<script>alert" not in page
        assert "<textarea" not in page
    assert "with comments" in text_of(editor_client.get(reverse("runs:share-list")))
    made = AuditEntry.objects.filter(object_type="share", action="share").order_by("pk")
    assert ["comments" in (entry.after or {}) for entry in made] == [False, True]


def test_a_comment_that_is_deleted_hidden_or_of_an_erased_member_leaves_the_link(
    editor_client: Client,
    runs: tuple[Run, Run],
    editor: User,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    ann = make_member("editor", "ann")
    result = runs[1].results.select_related("case").get()
    about = result_subject(result, runs[1])
    gone = add_comment(about, "GONE", by=editor)
    thread = add_comment(about, "EMPTY", by=ann)
    add_comment(about, "REPLY to @ann", by=editor, parent=thread)
    delete_comment(add_comment(about, "NEVER", by=editor), by=editor)
    link = share(editor_client, subject(runs, "result"), comments="on")
    page = Client().get(link).text
    assert "NEVER" not in page
    assert "GONE" in page
    assert "EMPTY" in page
    delete_comment(gone, by=editor)
    delete_comment(thread, by=ann)
    erase_member(ann, actor=make_member("admin", "root"))
    assert not re.search(r"\bann\b", str(ShareLink.objects.get().frozen))
    page = Client().get(link).text
    assert "GONE" not in page
    assert "EMPTY" not in page
    assert "This comment was deleted." in page
    assert "ann" not in page.partition("This comment was deleted.")[2].partition("</section>")[0]
    item = ask_for_review(result, by=None)
    assert "REPLY" not in Client().get(link).text, "a reviewer has to decide on their own"
    preview = editor_client.get(
        reverse("runs:share-preview"), subject(runs, "result") | {"comments": "on"}
    ).text
    assert "REPLY" not in preview
    assert "no comments to include" in preview
    ReviewItem.objects.filter(pk=item.pk).update(closed_at=item.created_at)
    assert "REPLY" in Client().get(link).text
    add = [add_comment(about, f"More {n}", by=editor) for n in range(30)]
    assert Comment.objects.count() == len(add) + 2
    many = share(editor_client, subject(runs, "result"), comments="on")
    assert ShareLink.objects.filter(has_comments=True).count() == 2
    with django_assert_max_num_queries(12):
        Client().get(many)


def test_of_very_long_comments_a_link_has_the_newest(
    editor_client: Client, runs: tuple[Run, Run], editor: User
) -> None:
    comments = [
        add_comment(run_subject(runs[1]), f"COMMENT-{number} {'w ' * 2_400}", by=editor)
        for number in range(30)
    ]
    preview = reverse("runs:share-preview")
    place = subject(runs, "run") | {"comments": "on"}
    assert "The newest 20 of 30 comments." in text_of(editor_client.get(preview, place))
    link = share(editor_client, subject(runs, "run"), comments="on")
    page = Client().get(link).text
    assert "COMMENT-29" in page
    assert "COMMENT-5 " not in page
    assert page.count("COMMENT-") == 20
    delete_comment(comments[-1], by=editor)
    for path in (link, f"{link}download"):
        assert "The newest 19 of 29 comments." in text_of(Client().get(path))
    add_comment(run_subject(runs[1]), "REPLY", by=editor, parent=comments[0])
    assert "The newest 20 of 30 comments." in text_of(editor_client.get(preview, place)), (
        "a reply needs its thread"
    )


def test_a_link_with_all_comments_says_nothing_of_older_ones(
    editor_client: Client, runs: tuple[Run, Run], editor: User
) -> None:
    thread = add_comment(run_subject(runs[1]), "THREAD", by=editor)
    add_comment(run_subject(runs[1]), "REPLY", by=editor, parent=thread)
    delete_comment(thread, by=editor)
    page = text_of(Client().get(share(editor_client, subject(runs, "run"), comments="on")))
    assert "REPLY" in page
    assert "newest" not in page.lower().replace("newest first", "")

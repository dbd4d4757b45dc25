"""Threads of comments with what a member may see of them, mentions, and the comments that the API lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from evaluators.templatetags.markdown import PageMarkdown
from runs import lists
from runs.comments.text import comment_html
from runs.lists import NEWEST_FIRST, ListQuery, NumberedPage, Page, numbered_page
from runs.models.comments import Comment, CommentQuerySet, Mention
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.requests import CHANGE_MEMBERS, MAY_REVIEW, VIEW
from runs.results.result_state import result_address

SubjectKind = Literal["result", "case", "run", "comparison"]
BACKEND = "django.contrib.auth.backends.ModelBackend"
THREADS_A_PAGE = 10
MENTIONS_A_PAGE = 20
MAX_SUGGESTED = 8
MAX_LISTED_MEMBERS = 100
NEEDED = ("author", "resolved_by", "suite", "run__suite", "baseline__suite", "result__case")
HEAVY = tuple(
    f"{run}__{column}"
    for run in ("run", "baseline")
    for column in ("snapshot", "summary", "leaf_scores")
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is commented on: a result, a case, a run or a comparison of two runs.

    `columns` are those of its comments that find them. `url` is where its comments are, `page_url` its own page.
    """

    kind: SubjectKind
    name: str
    page_url: str
    url: str
    columns: Mapping[str, Any]

    def comments(self) -> CommentQuerySet:
        """Return its comments with replies."""
        others = {"run": None, "baseline": None, "result": None}
        return Comment.objects.filter(**(others | dict(self.columns)))

    def generation(self) -> int:
        """Return that of the output which counts for a result, 0 for others; one query for a retried result."""
        result: Result | None = self.columns.get("result")
        return 0 if result is None else result.counted_generation()

    def page_of_comments(self, number: int) -> str:
        """Return the address of a page of its comments."""
        mark = "&" if "?" in self.url else "?"
        return f"{self.url}{mark}page={number}"


def result_subject(result: Result, run: Run) -> Subject:
    """Return a result of a run as what is commented on."""
    slug, key = run.suite.slug, result.case.key
    place = (slug, run.number, key, result.repetition)
    return Subject(
        kind="result",
        name=f"{slug} #{run.number} {key}",
        page_url=result_address(*place),
        url=reverse("runs:result-comments", args=place),
        columns={"suite": run.suite, "case_key": key, "run": run, "result": result},
    )


def case_subject(suite: Suite, key: str) -> Subject:
    """Return a case, in all its revisions, as what is commented on."""
    return Subject(
        kind="case",
        name=f"{suite.slug} {key}",
        page_url=reverse("runs:case", args=[suite.slug, key]),
        url=reverse("runs:case-comments", args=[suite.slug, key]),
        columns={"suite": suite, "case_key": key},
    )


def run_subject(run: Run) -> Subject:
    """Return a run as what is commented on."""
    place = [run.suite.slug, run.number]
    return Subject(
        kind="run",
        name=f"{run.suite.slug} #{run.number}",
        page_url=reverse("runs:run", args=place),
        url=reverse("runs:run-comments", args=place),
        columns={"suite": run.suite, "run": run},
    )


def comparison_subject(baseline: Run, candidate: Run) -> Subject:
    """Return the comparison of a run with its baseline as what is commented on."""
    names = {
        role: f"{run.suite.slug}:{run.number}"
        for role, run in (("baseline", baseline), ("candidate", candidate))
    }
    query = urlencode(names).replace("%3A", ":")
    return Subject(
        kind="comparison",
        name=f"{baseline.suite.slug} #{baseline.number} and "
        + (f"{candidate.suite.slug} " * (baseline.suite != candidate.suite))
        + f"#{candidate.number}",
        page_url=f"{reverse('runs:compare')}?{query}",
        url=f"{reverse('runs:compare-comments')}?{query}",
        columns={"suite": candidate.suite, "run": candidate, "baseline": baseline},
    )


def comment_subject(comment: Comment) -> Subject:
    """Return what a comment is about."""
    if comment.run is None:
        return case_subject(comment.suite, comment.case_key)
    if comment.result is not None:
        return result_subject(comment.result, comment.run)
    if comment.baseline is not None:
        return comparison_subject(comment.baseline, comment.run)
    return run_subject(comment.run)


def visible_comments(user: User) -> CommentQuerySet:
    """Return the comments that a member may see: all, but for a reviewer who has to decide on their own.

    Comments of others on a result are hidden by the rule that hides their decisions
    (`runs.results.result_state.hidden_parts`).
    """
    comments = Comment.objects.all()
    if not user.has_perm(MAY_REVIEW):
        return comments
    decided = Review.objects.standing().filter(result=OuterRef("result"), reviewer=user)
    alone = _decided_alone().exclude(Exists(decided))
    return comments.filter(Q(result=None) | Q(author=user) | ~Exists(alone))


def public_comments() -> CommentQuerySet:
    """Return the comments that are hidden from no reviewer, so that anybody may read them."""
    return Comment.objects.filter(Q(result=None) | ~Exists(_decided_alone()))


def _decided_alone() -> QuerySet[ReviewItem]:
    """Return the reviews of a comment's result that reviewers decide on their own."""
    return ReviewItem.objects.filter(
        Q(closed_at=None) | Q(run__snapshot__policy__review_blind=True), result=OuterRef("result")
    )


@dataclass(frozen=True, slots=True)
class CommentRow:
    """A comment as its page shows it."""

    comment: Comment
    html: SafeString
    is_own: bool
    may_delete: bool
    is_of_other_output: bool
    replies: tuple[CommentRow, ...] = ()

    @property
    def title(self) -> str:
        """Return the beginning of the text on one line, for the names of buttons."""
        line = " ".join(self.comment.text.split())
        return line if len(line) <= 40 else f"{line[:39]}…"


@dataclass(frozen=True, slots=True)
class ThreadsQuery(ListQuery):
    """Which page of the threads is shown; of a comparison also its runs."""

    baseline: str = lists.setting()
    candidate: str = lists.setting()
    page: int = lists.page_number()


@dataclass(frozen=True)
class CommentsPage:
    """One page of the comments on a subject: the newest threads first, replies in order.

    `total` counts the comments that the reader may see, `hidden` those that they may not yet.
    """

    subject: Subject
    threads: tuple[CommentRow, ...]
    pages: NumberedPage[int]
    total: int
    resolved: int
    hidden: int

    @property
    def open(self) -> int:
        """Return the number of threads that are not resolved."""
        return self.pages.total - self.resolved

    @property
    def path(self) -> str:
        """Return the address of the comments, behind which the number of a page goes."""
        return self.subject.url.partition("?")[0]

    @property
    def here(self) -> str:
        """Return the address of this page of the comments."""
        return self.subject.page_of_comments(self.pages.number)


def comments_page(subject: Subject, query: ThreadsQuery, user: User) -> CommentsPage:
    """Return the comments on a subject that a member may see; five queries, however many there are."""
    visible = visible_comments(user).filter(pk__in=subject.comments().order_by().values("pk"))
    roots = list(visible.filter(parent=None).order_by("-pk").values_list("pk", "resolved_at"))
    pages = numbered_page([pk for pk, _ in roots], query, THREADS_A_PAGE)
    stood = Q(deleted_at=None)
    total = visible.filter(stood).count()
    shown = visible.filter(Q(pk__in=pages.rows) | Q(parent__in=pages.rows)).order_by("pk")
    return CommentsPage(
        subject=subject,
        threads=_threads(list(shown.select_related("author", "resolved_by")), subject, user),
        pages=pages,
        total=total,
        resolved=sum(resolved_at is not None for _, resolved_at in roots),
        hidden=subject.comments().filter(stood).count() - total,
    )


def _threads(comments: Sequence[Comment], subject: Subject, user: User) -> tuple[CommentRow, ...]:
    """Return the rows of comments in order, replies below what they reply to, the newest thread first."""
    names: dict[int, set[str]] = defaultdict(set)
    mentions = Mention.objects.filter(comment__in=comments)
    for comment_id, name in mentions.values_list("comment", "member__username"):
        names[comment_id].add(name)
    deletes_all, generation = user.has_perm(CHANGE_MEMBERS), subject.generation()
    replies: dict[int, list[Comment]] = defaultdict(list)
    roots: list[Comment] = []
    page = PageMarkdown()

    def row(comment: Comment) -> CommentRow:
        is_own = comment.author_id == user.pk
        return CommentRow(
            comment=comment,
            html=comment_html(comment.text, names[comment.pk], page),
            is_own=is_own,
            may_delete=is_own or deletes_all,
            is_of_other_output=comment.generation != generation,
            replies=tuple(map(row, replies[comment.pk])),
        )

    for comment in comments:
        if comment.parent_id is None:
            roots.append(comment)
        else:
            replies[comment.parent_id].append(comment)
    return tuple(row(comment) for comment in reversed(roots))


def thread_page(comment: Comment, user: User) -> int:
    """Return the number of the page that shows a comment, from 1."""
    own = comment_subject(comment).comments().values("pk")
    later = visible_comments(user).filter(pk__in=own, parent=None)
    return later.filter(pk__gt=comment.parent_id or comment.pk).count() // THREADS_A_PAGE + 1


def get_comments() -> CommentQuerySet:
    """Return comments with what tells their subjects."""
    return Comment.objects.select_related(*NEEDED).defer(*HEAVY)


@dataclass(frozen=True, slots=True)
class MentionRow:
    """A comment that mentions the reader; `is_hidden` where they have to review its result first."""

    comment: Comment
    subject: Subject
    html: SafeString
    is_read: bool
    is_hidden: bool


@dataclass(frozen=True, slots=True)
class MentionsQuery(ListQuery):
    """Which mentions are listed."""

    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class MentionsPage:
    """One page of a member's mentions, newest first."""

    rows: tuple[MentionRow, ...]
    unread: int
    next_address: str


def mentions_page(member: User, query: MentionsQuery) -> MentionsPage:
    """Return the comments that mention a member; four queries."""
    own = Mention.objects.filter(member=member)
    page: Page[Mention] = NEWEST_FIRST.page(own, query.after, size=MENTIONS_A_PAGE)
    ids = [mention.comment_id for mention in page.rows]
    comments = {comment.pk: comment for comment in get_comments().filter(pk__in=ids)}
    visible = set(visible_comments(member).filter(pk__in=ids).values_list("pk", flat=True))
    text = PageMarkdown()
    rows = tuple(
        MentionRow(
            comment=comment,
            subject=comment_subject(comment),
            html=comment_html(comment.text, {member.get_username()}, text),
            is_read=mention.read_at is not None,
            is_hidden=comment.pk not in visible,
        )
        for mention in page.rows
        if (comment := comments.get(mention.comment_id)) is not None
    )
    unread = own.filter(read_at=None).count()
    return MentionsPage(rows, unread, page.next_address(query))


def members() -> QuerySet[User]:
    """Return the members who can see comments, and so can be mentioned, by name."""
    users = User.objects.with_perm(VIEW, backend=BACKEND).filter(is_active=True)
    return users.order_by("username").distinct()


def suggest_members(text: str, by: User) -> list[dict[str, str | int]]:
    """Return the members whose names begin as the @word does that was typed, for a list of suggestions."""
    if not text.startswith("@"):
        return []
    begun = members().filter(username__istartswith=text[1:]).exclude(pk=by.pk)
    names = begun.values_list("username", "first_name", "last_name")[:MAX_SUGGESTED]
    return [
        {"text": f"@{name}", "help": f"{first} {last}".strip(), "start": 0}
        for name, first, last in names
    ]


@dataclass(frozen=True, slots=True)
class CommentsQuery(ListQuery):
    """Which comments the API lists."""

    suite: str = lists.text(help="Comments in the suite with this short name.")
    case: str = lists.text(help="Comments on the case with this key and on its results.")
    run: int | None = lists.integer(
        help="Comments on the run with this id, its results, and comparisons with a baseline."
    )
    result: int | None = lists.integer(help="Comments on the result with this id.")
    open: bool = lists.flag(help="Only comments that are not resolved, and replies to them.")

    def comments(self, user: User) -> CommentQuerySet:
        """Return the comments that match and that a member may see; one query."""
        columns = {"suite": "suite__slug", "case": "case_key", "run": "run", "result": "result"}
        filters = {columns[name]: getattr(self, name) for name in self.filters if name in columns}
        found = visible_comments(user).filter(deleted_at=None, **filters)
        if self.open:
            found = found.filter(resolved_at=None, parent__resolved_at=None)
        return found.select_related(*NEEDED).defer(*HEAVY).prefetch_related("mentions__member")

"""The page behind a share link, made only from its frozen document, and the list of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from runs import lists
from runs.documents import DetailLevel
from runs.lists import NEWEST_FIRST, ListQuery
from runs.models.sharing import ShareLink
from runs.results.pairwise import PairwiseRow, pairwise_rows
from runs.scan import Scan, document_texts, scan
from runs.sharing.comments import count_comments, standing_comments
from runs.sharing.documents import WHITELISTS
from runs.sharing.services import live_digest, preview_digest
from runs.sharing.whitelist import fill_missing

TEMPLATES = {
    "comparison": "sharing/_shared_comparison.html",
    "run": "sharing/_shared_run.html",
    "result": "sharing/_shared_result.html",
}
LEFT_OUT = {
    DetailLevel.FIGURES: (
        "Inputs, outputs and the names of cases and suites are left out. "
        "Cases are numbered in the order of their suite."
    ),
    DetailLevel.CASE_NAMES: "Inputs and outputs are left out.",
    DetailLevel.OUTPUTS: "Traces are left out. Evaluators may quote them.",
    DetailLevel.TRACES: "",
}


@dataclass(frozen=True, slots=True)
class SharedPage:
    """A frozen document with its title; `has_changed` tells whether the live rows differ now."""

    document: Mapping[str, Any]
    title: str
    made_at: datetime
    expires_at: datetime | None
    has_changed: bool

    @property
    def template(self) -> str:
        """Return the template that draws the kind of document."""
        return TEMPLATES[self.document["kind"]]

    @property
    def verdict(self) -> str:
        """Return the verdict in a sentence, for previews of the link."""
        verdict = self.document["verdict"]
        return f"{verdict['headline'] or verdict['word']}. {verdict['sentence']}"

    @property
    def left_out(self) -> str:
        """Say what the detail level leaves out, which comments may quote all the same."""
        left_out = LEFT_OUT[DetailLevel(self.document["depth"])]
        has_more = left_out and self.document["comments"]
        return f"{left_out} Comments may quote them." if has_more else left_out

    @property
    def comment_count(self) -> int:
        """Return the number of comments that are shown."""
        return count_comments(self.document["comments"])

    @property
    def pairwise(self) -> Sequence[PairwiseRow]:
        """Return how often the outputs of a run are better than its baseline's, by evaluator."""
        return pairwise_rows(self.document["figures"]["pairwise"])

    @property
    def has_reasons(self) -> bool:
        """Tell whether a result shows texts of its evaluators."""
        rows = self.document.get("evaluators", ())
        has_texts = any(row.get("reasoning") or row.get("note") for row in rows)
        return has_texts or bool(self.document.get("remarks"))


@dataclass(frozen=True, slots=True)
class SharePreview:
    """What anonymous readers will see: the document to freeze, its page, its secrets, and its digest.

    `lacks_comments` tells whether comments are wanted where there are none to share.
    """

    document: Mapping[str, Any]
    page: SharedPage
    scan: Scan
    seen: str
    has_looked: bool
    lacks_comments: bool


def shared_page(link: ShareLink) -> SharedPage:
    """Return the page of a link. Live rows are read only to tell whether they have changed. Two queries.

    One more tells which of its comments still stand.
    """
    document = _complete(link.frozen)
    if document["comments"]:
        document = {**document, "comments": standing_comments(document["comments"])}
    return SharedPage(
        document=document,
        title=link.title,
        made_at=datetime.fromisoformat(link.frozen["made_at"]),
        expires_at=link.expires_at,
        has_changed=live_digest(link.sources) != link.sources["digest"],
    )


def _complete(document: Mapping[str, Any]) -> Mapping[str, Any]:
    completed: Mapping[str, Any] = fill_missing(document, WHITELISTS[document["kind"]])
    return completed


def share_preview(
    document: Mapping[str, Any],
    title: str,
    *,
    expires_at: datetime | None = None,
    has_looked: bool = False,
    lacks_comments: bool = False,
) -> SharePreview:
    """Return the preview of a share. The scan for secrets includes the title."""
    page = SharedPage(
        document=_complete(document),
        title=title,
        made_at=datetime.fromisoformat(document["made_at"]),
        expires_at=expires_at,
        has_changed=False,
    )
    secrets = scan(document_texts({"title": title, **document}))
    seen = preview_digest(document)
    return SharePreview(document, page, secrets, seen, has_looked, lacks_comments)


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One link: `state` is open, expired or revoked."""

    link: ShareLink
    state: str
    maker: str
    again_url: str

    @property
    def is_open(self) -> bool:
        """Tell whether the link opens anything."""
        return self.state == "open"


@dataclass(frozen=True, slots=True)
class SharesQuery(ListQuery):
    """Which page of the share links."""

    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class ShareListPage:
    """A page of links, newest first."""

    rows: Sequence[ShareRow]
    next_address: str
    is_of_all: bool


def share_list(
    links: QuerySet[ShareLink], query: SharesQuery, *, is_of_all: bool, now: datetime
) -> ShareListPage:
    """Return 50 links without their documents; one query."""
    page = NEWEST_FIRST.page(links.select_related("created_by").defer("frozen"), query.after)
    rows = [_row(link, now) for link in page.rows]
    return ShareListPage(rows, page.next_address(query), is_of_all)


def _row(link: ShareLink, now: datetime) -> ShareRow:
    is_expired = link.expires_at is not None and link.expires_at <= now
    return ShareRow(
        link=link,
        state="revoked" if link.revoked_at else "expired" if is_expired else "open",
        maker=link.created_by.get_username() if link.created_by else "a former member",
        again_url=reverse("runs:share-new") + str(link.sources.get("address", "")),
    )

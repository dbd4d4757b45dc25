"""The page that lists share links: a member's own, or everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.urls import reverse

from runs.models import ShareLink

PAGE_SIZE = 50
LONGEST_NUMBER = 18


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One link: `state` is open, expired or revoked, `url` the live page it was made of."""

    link: ShareLink
    state: str
    maker: str
    again_url: str

    @property
    def is_open(self) -> bool:
        """Tell whether the link opens anything."""
        return self.state == "open"


@dataclass(frozen=True, slots=True)
class ShareListPage:
    """A page of links, newest first; `later` begins the next one, 0 for none."""

    rows: Sequence[ShareRow]
    later: int
    is_of_all: bool


def share_list(
    links: QuerySet[ShareLink], after: str, *, is_of_all: bool, now: datetime
) -> ShareListPage:
    """Return 50 links from an address's `after` on; one query, and no document is read."""
    rows = links.select_related("created_by").defer("frozen").order_by("-pk")
    if after.isdecimal() and len(after) < LONGEST_NUMBER:
        rows = rows.filter(pk__lt=int(after))
    found = list(rows[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    return ShareListPage(
        rows=[_row(one, now) for one in shown],
        later=shown[-1].pk if len(found) > PAGE_SIZE else 0,
        is_of_all=is_of_all,
    )


def _row(link: ShareLink, now: datetime) -> ShareRow:
    is_expired = link.expires_at is not None and link.expires_at <= now
    return ShareRow(
        link=link,
        state="revoked" if link.revoked_at else "expired" if is_expired else "open",
        maker=link.created_by.get_username() if link.created_by else "a former member",
        again_url=reverse("runs:share-new") + str(link.sources.get("address", "")),
    )

"""The page behind a share link, drawn from what was frozen alone, and its preview before there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runs.models import ShareLink
from runs.reports.shared_subjects import live_digest, seen_digest
from runs.sharing import SHAPES, Depth, Scan, filled_out, scan, texts_of

TEMPLATES = {
    "comparison": "shares/_shared_comparison.html",
    "run": "shares/_shared_run.html",
    "result": "shares/_shared_result.html",
}
LEFT_OUT = {
    Depth.FIGURES: "Inputs, outputs and the names of cases and suites are left out.",
    Depth.CASE_NAMES: "Inputs and outputs are left out.",
    Depth.OUTPUTS: "Traces are left out.",
    Depth.TRACES: "",
}


@dataclass(frozen=True, slots=True)
class SharedPage:
    """A frozen document with its title; `has_changed` tells that the live rows differ by now."""

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
        """Return the verdict with its gates and a sentence, for a preview of the link."""
        verdict = self.document["verdict"]
        return f"{verdict['headline'] or verdict['word']}. {verdict['sentence']}"

    @property
    def left_out(self) -> str:
        """Say what the depth keeps back."""
        return LEFT_OUT[Depth(self.document["depth"])]

    @property
    def has_reasons(self) -> bool:
        """Tell whether a result says what its evaluators wrote."""
        rows = self.document.get("evaluators", ())
        said = any(one.get("reasoning") or one.get("note") for one in rows)
        return said or bool(self.document.get("remarks"))


@dataclass(frozen=True, slots=True)
class SharePreview:
    """What a stranger will see, what in it looks secret, and the digest of what was looked at.

    `document` is what will be frozen.
    """

    document: Mapping[str, Any]
    page: SharedPage
    scan: Scan
    seen: str
    has_looked: bool


def shared_page(link: ShareLink) -> SharedPage:
    """Return the page of a link. Of live rows it is only told that they have changed; two queries."""
    return SharedPage(
        document=_drawn(link.frozen),
        title=link.title,
        made_at=datetime.fromisoformat(link.frozen["made_at"]),
        expires_at=link.expires_at,
        has_changed=live_digest(link.sources) != link.sources["digest"],
    )


def _drawn(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = filled_out(document, SHAPES[document["kind"]])
    return found


def share_preview(
    document: Mapping[str, Any],
    title: str,
    *,
    expires_at: datetime | None = None,
    has_looked: bool = False,
) -> SharePreview:
    """Return the preview of what is about to be shared, its title searched like the rest."""
    page = SharedPage(
        document=_drawn(document),
        title=title,
        made_at=datetime.fromisoformat(document["made_at"]),
        expires_at=expires_at,
        has_changed=False,
    )
    found = scan(texts_of({"title": title, **document}))
    return SharePreview(document, page, found, seen_digest(document), has_looked)

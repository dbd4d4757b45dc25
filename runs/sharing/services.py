"""Make and revoke share links, which open a frozen snapshot without an account, and count their views."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.urls import reverse

from evaluators.models import AuditEntry
from evaluators.reading.json import storable
from evaluators.scoring.types import DomainError
from runs.compare.changes import ComparisonQuery
from runs.compare.comparison import SameRunError, build_comparison
from runs.compare.page import tolerances_form
from runs.compare.rules import Tolerances
from runs.documents import DetailLevel
from runs.lists import read_integer, read_run_name
from runs.models.results import OPEN_RESULT_STATUSES, Result
from runs.models.runs import Run
from runs.models.sharing import ShareLink, token_hash
from runs.requests import SHARED
from runs.results.runs import run_word
from runs.sharing.comments import commented_subject, shared_comments
from runs.sharing.documents import WHITELISTS, SharedDoc
from runs.sharing.frozen import shared_comparison, shared_result, shared_run
from runs.sharing.parts import comparison_title
from runs.sharing.whitelist import document_digest, filter_document

COMPARISON, RUN, RESULT = "comparison", "run", "result"
WORDS = {COMPARISON: "comparison", RUN: "run", RESULT: "result"}
VERDICTS = ("pass", "borderline", "fail")
# Who has this permission sees and revokes the links of others too.
CHANGES_ALL = "runs.change_sharelink"
# How long a link may stay open.
MAX_DAYS = 365


class NothingToShareError(DomainError):
    """The address does not name a comparison, run or result that can be shared."""

    code = "nothing_to_share"


@dataclass(frozen=True, slots=True)
class ShareSubject:
    """The comparison or run that a link shares, or the result of `key` and `repetition`."""

    kind: str
    runs: tuple[Run, ...]
    query: ComparisonQuery
    tolerances: Tolerances
    key: str = ""
    repetition: int = 0

    @property
    def word(self) -> str:
        """Return the word for its kind."""
        return WORDS[self.kind]

    @property
    def title(self) -> str:
        """Return the default title of a link, without names of cases."""
        if self.kind == COMPARISON:
            return comparison_title(self.runs)
        number = f"#{self.runs[-1].number}"
        return f"Run {number}" if self.kind == RUN else f"A result of run {number}"

    @property
    def url(self) -> str:
        """Return the address of its page for members."""
        if self.kind == COMPARISON:
            return reverse("runs:compare") + self.query.address()
        place = {"slug": self.runs[0].suite.slug, "number": self.runs[0].number}
        if self.kind == RUN:
            return reverse("runs:run", kwargs=place)
        case = {"key": self.key, "repetition": self.repetition}
        return reverse("runs:result", kwargs=place | case)

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Return the fields that identify it in an address or a form."""
        if self.kind == COMPARISON:
            return (("kind", COMPARISON), *self.query.run_fields, *self.query.limits)
        named_run = (("kind", self.kind), ("run", run_word(self.runs[0])))
        if self.kind == RUN:
            return named_run
        return (*named_run, ("case", self.key), ("repetition", str(self.repetition)))

    @property
    def address(self) -> str:
        """Return the query string of the page that makes a link to it."""
        return "?" + urlencode(self.fields, safe=":")


def share_document(
    subject: ShareSubject, detail_level: DetailLevel, *, with_comments: bool = False, now: datetime
) -> Any:
    """Return exactly what anonymous readers see of a subject at a detail level, perhaps with the comments on it."""
    run = subject.runs[-1]
    if subject.kind == COMPARISON:
        limits, query = subject.tolerances, subject.query
        is_shared = query.cases == SHARED
        comparison = build_comparison(subject.runs[0], run, limits, only_shared=is_shared)
        document: SharedDoc = shared_comparison(
            comparison, query, detail_level=detail_level, now=now
        )
    elif subject.kind == RUN:
        document = shared_run(run, detail_level=detail_level, now=now)
    else:
        document = shared_result(
            run, subject.key, subject.repetition, detail_level=detail_level, now=now
        )
    if with_comments:
        about = commented_subject(subject.runs, subject.key, subject.repetition)
        document = document.model_copy(update=shared_comments(about))
    # SQLite stores lone surrogates in JSON, but no page can be sent with one.
    values = document.model_dump(mode="json", exclude_unset=True)
    return storable(filter_document(values, WHITELISTS[subject.kind], detail_level))


def preview_digest(document: Mapping[str, Any]) -> str:
    """Return the digest that tells whether a document is the one of the preview."""
    return document_digest({name: value for name, value in document.items() if name != "made_at"})


def share_sources(subject: ShareSubject) -> dict[str, Any]:
    """Return the live rows of a subject and their digest, as a link stores them."""
    places = {"runs": [run.pk for run in subject.runs]}
    if subject.kind == RESULT:
        results = subject.runs[0].results.filter(
            case__key=subject.key, repetition=subject.repetition
        )
        places["results"] = list(results.values_list("pk", flat=True))
    return {**places, "address": subject.address, "digest": live_digest(places)}


def live_digest(places: Mapping[str, Any]) -> str:
    """Return a digest of the current state of runs or results. Two queries, which read no texts.

    It sums no floats, since a database may add them in any order.
    """
    columns = (
        *("pk", "status", "snapshot_hash", "execution_count", "done_count", "pass_count"),
        *("borderline_count", "fail_count", "error_count", "score_sum", "score_count"),
        *("run_cost_usd", "evaluation_cost_usd", "finished_at"),
    )
    runs, ids = Run.objects.filter(pk__in=places["runs"]).order_by("pk"), places.get("results")
    if ids is not None:
        own = ("pk", "status", "verdict", "reviewed_verdict", "score", "generation", "finished_at")
        values = Result.objects.filter(pk__in=ids).order_by("pk").values_list(*own)
        return document_digest([[str(value) for value in row] for row in values])
    sums = {
        "ended": Max("finished_at"),
        "generations": Sum("generation"),
        "attempts": Sum("attempt"),
        "latency": Sum("latency_ms"),
        **{f"is_{word}": Count("pk", filter=Q(verdict=word)) for word in ("pass", "fail")},
        **{f"reviewed_{word}": Count("pk", filter=Q(reviewed_verdict=word)) for word in VERDICTS},
        # The counts alone miss two results that swap their reviews.
        **{f"reviewed_ids_{word}": Sum("pk", filter=Q(reviewed_verdict=word)) for word in VERDICTS},
    }
    results = Result.objects.filter(run__in=places["runs"]).order_by("run").values("run")
    rows = [*runs.values_list(*columns), *results.annotate(**sums).values_list("run", *sums)]
    return document_digest([[str(value) for value in row] for row in rows])


def read_subject(values: Mapping[str, str]) -> ShareSubject:
    """Return the subject of an address.

    Raises NothingToShareError if the subject does not exist or has not ended, because its snapshot would soon be
    outdated, and SameRunError.
    """
    kind = values.get("kind", "")
    if kind not in WORDS:
        raise NothingToShareError("Share a comparison, a run or a result from its own page.")
    query = ComparisonQuery.read(values)
    words = (query.baseline, query.candidate) if kind == COMPARISON else (values.get("run", ""),)
    runs = tuple(_run(word) for word in words)
    for run in runs:
        if run.is_active:
            raise NothingToShareError(
                f"Run #{run.number} is still running. Share it when it has ended: a snapshot of it would "
                "soon be outdated."
            )
    if len(set(runs)) != len(runs):
        raise SameRunError
    key, repetition = values.get("case", ""), read_integer(values.get("repetition", "1")) or 0
    if kind == RESULT:
        _check_result(runs[0], key, repetition)
    return ShareSubject(
        kind, runs, query, tolerances_form(query, runs[-1]).tolerances, key, repetition
    )


def _run(word: str) -> Run:
    place = read_run_name(word)
    runs = Run.objects.select_related("suite").defer("leaf_scores")
    run = runs.filter(suite__slug=place[0], number=place[1]).first() if place else None
    if run is None:
        raise NothingToShareError("That run does not exist.")
    return run


def _check_result(run: Run, key: str, repetition: int) -> None:
    results = run.results.filter(case__key=key, repetition=repetition)
    if not results.exclude(status__in=OPEN_RESULT_STATUSES).exists():
        raise NothingToShareError("That result does not exist or has not ended.")


# 256 bits cannot be guessed.
TOKEN_BYTES = 32


def make_share(
    *,
    by: User,
    kind: str,
    title: str,
    document: Mapping[str, Any],
    sources: Mapping[str, Any],
    expires_at: datetime | None,
    has_comments: bool = False,
) -> tuple[ShareLink, str]:
    """Freeze a document behind a new token. The token is returned, and only its hash is stored."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        link = ShareLink.objects.create(
            token_hash=token_hash(token),
            kind=kind,
            title=title,
            detail_level=document["depth"],
            has_comments=has_comments,
            sources=dict(sources),
            created_by=by,
            expires_at=expires_at,
            frozen=dict(document),
        )
        until = expires_at.isoformat(timespec="seconds") if expires_at else None
        after = {"detail_level": link.detail_level, "expires_at": until}
        _record(link, by, "share", after | ({"comments": "included"} if has_comments else {}))
    return link, token


def revoke_share(link: ShareLink, *, by: User, now: datetime) -> bool:
    """Close a link at once; False if it was closed already."""
    with transaction.atomic():
        open_ = ShareLink.objects.filter(pk=link.pk, revoked_at=None)
        if not open_.update(revoked_at=now):
            return False
        _record(link, by, "revoke", {"revoked_at": now.isoformat(timespec="seconds")})
    return True


def find_share(token: str, *, now: datetime) -> ShareLink | None:
    """Return the link that a token opens; None if the token is wrong, expired or revoked."""
    link = _open(now).filter(token_hash=token_hash(token)).first()
    # Its copy is gone where the clock was ahead for a while, and it had expired by it.
    return link if link and link.frozen else None


def count_opening(link: ShareLink, *, now: datetime, is_view: bool) -> bool:
    """Count a view of a link, or else a fetch by a program; False if it was closed meanwhile."""
    open_links = _open(now).filter(pk=link.pk)
    if is_view:
        return bool(open_links.update(view_count=F("view_count") + 1, last_viewed_at=now))
    return bool(open_links.update(fetch_count=F("fetch_count") + 1))


OPENING_IS_RECORDED_EVERY = timedelta(hours=1)


def record_opening(link: ShareLink, *, now: datetime, is_counted: bool) -> None:
    """Write the first opening of a link in an hour to the audit, previews of programs too."""
    known = AuditEntry.objects.filter(
        object_type="share",
        object_id=str(link.pk),
        action="open",
        at__gt=now - OPENING_IS_RECORDED_EVERY,
        after__counted=is_counted,
    )
    if not known.exists():
        AuditEntry.objects.record(
            "open",
            by=None,
            nobody="a visitor",
            object_type="share",
            object_id=link.pk,
            object_name=link.title,
            after={"counted": is_counted},
        )


def _open(now: datetime) -> QuerySet[ShareLink]:
    return ShareLink.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


def _record(link: ShareLink, by: User, action: str, after: Mapping[str, Any]) -> None:
    AuditEntry.objects.record(
        action,
        by=by,
        object_type="share",
        object_id=link.pk,
        object_name=link.title,
        after=after,
    )

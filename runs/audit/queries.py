"""Who changed what, newest first: one page of the audit, each entry with its values before and after."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Max, Model, QuerySet
from django.urls import reverse
from django.utils.dateformat import format as date_format
from django.utils.dateparse import parse_datetime
from django.utils.timezone import localtime

from evaluators.models import AuditEntry, LanguageModel
from evaluators.reading.json import storable
from runs import lists
from runs.exports.specs import ExportSpec, file_kind
from runs.lists import NEWEST_FIRST, Control, ListQuery, read_integer
from runs.models.comments import Comment
from runs.models.database import read_ids
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.saved_views import SavedView
from runs.models.suites import Suite, Target
from runs.requests import CHANGE_MEMBERS, SEE_AUDIT

CHUNK = 1_000
# What an entry takes in the file.
ENTRY_BYTES = 300
# How many changes, and how many characters of a value, a folded row shows.
SHOWN_CHANGES, SHOWN_LENGTH = 2, 40
# Entries about members, tokens, sessions and refusals contain email addresses, roles, login times and what somebody
# tried, so only those who may change members see them.
ABOUT_MEMBERS, ABOUT_TOKENS, ABOUT_SESSIONS, REFUSALS = "user", "api_token", "session", "refusal"
PRIVATE = (ABOUT_MEMBERS, ABOUT_TOKENS, ABOUT_SESSIONS, REFUSALS)
NAMES = {
    "suite": "Suite",
    "comment": "Comment",
    "run": "Run",
    "target": "Target",
    "result": "Result",
    "share": "Share link",
    "language_model": "Language model",
    ABOUT_MEMBERS: "Member",
    ABOUT_TOKENS: "API token",
    "recorded_outputs": "Recorded outputs",
    "traces": "Traces",
    "removal": "Removal",
    "saved_view": "Saved view",
    ABOUT_SESSIONS: "Session",
    REFUSALS: "Refusal",
    "file": "File",
    "evaluator": "Evaluator",
    "alignment": "Alignment",
}
# Each actor with each kind of object once, a step in the index for each pair: DISTINCT reads all entries.
ACTORS_WITH_KINDS = """
WITH RECURSIVE first (id) AS (
    SELECT (SELECT id FROM "evaluators_auditentry" ORDER BY actor_name, object_type LIMIT 1)
    UNION ALL
    SELECT COALESCE(
        (
            SELECT later.id FROM "evaluators_auditentry" AS later
            WHERE later.actor_name = entry.actor_name AND later.object_type > entry.object_type
            ORDER BY later.object_type LIMIT 1
        ),
        (
            SELECT later.id FROM "evaluators_auditentry" AS later
            WHERE later.actor_name > entry.actor_name
            ORDER BY later.actor_name, later.object_type LIMIT 1
        )
    )
    FROM first JOIN "evaluators_auditentry" AS entry ON entry.id = first.id
)
SELECT entry.id, entry.actor_name, entry.object_type
FROM first JOIN "evaluators_auditentry" AS entry ON entry.id = first.id
ORDER BY entry.actor_name, entry.object_type
"""
OVERRIDE = "override"
ACTIONS = {
    "add": "added",
    "ask_reviews": "added to the review queue:",
    "assign_reviews": "assigned reviews of",
    "begin": "began",
    "close": "closed",
    "download": "downloaded",
    "open": "opened",
    "change": "changed",
    "create": "added",
    "delete": "deleted",
    "delete_draft": "deleted drafted cases of",
    "draft": "asked for drafted cases of",
    "import": "imported",
    "rename": "renamed",
    "reopen": "reopened",
    "resolve": "resolved",
    "restore": "restored",
    "resume": "resumed",
    "revoke": "revoked",
    "retry": "reran results of",
    "choose_attempt": "chose which attempt counts for",
    "refused": "was not allowed",
    "save": "saved",
    "score": "added scores of other tools to",
    "share": "shared",
    "start": "started",
    "stop": "cancelled",
    "stop_draft": "cancelled the drafting of cases for",
    "try": "tried",
    "override": "reviewed",
    "linked": "linked an account to",
    "link_made": "created a link for",
    "guessed": "sent many",
    "app_added": "set up an authenticator app for",
    "app_removed": "removed the authenticator app of",
    "passkey_added": "added a passkey of",
    "passkey_removed": "removed a passkey of",
    "recovery_codes_made": "created recovery codes for",
    "recovery_code_used": "used a recovery code of",
    "codes_paused": "entered too many wrong codes for",
    "factors_removed": "removed the second factor of",
    "confirmed": "confirmed to be",
    "email_changed": "changed the email address of",
    "erased": "deleted the personal data of",
    "locked_out": "was locked out of",
    "logged_in": "logged in as",
    "logged_out": "logged out as",
    "login_failed": "failed to log in as",
    "made": "created",
    "made_admin": "made admin:",
    "role_changed": "changed the role of",
    "role_kept": "would have changed the role of the last admin,",
    "remove_outputs": "removed the outputs of",
    "remove_details": "removed all but the figures of",
    "scripts_allowed": "allowed scripts to",
    "password_changed": "changed the password of",
    "scripts_forbidden": "forbade scripts to",
    "sessions_ended": "ended sessions of",
    "sign_in_refused": "was refused as",
    "unlinked": "ended the link of an account to",
}
# Values that have a name only here; the keys in settings and policies are those of files and forms.
LABELS = {
    "assigned_to": "assigned to",
    "base_url": "address of the server",
    "bytes": "size in bytes",
    "cached_price_usd_per_mtok": "$ per million cached tokens",
    "calls": "model calls",
    "counted": "counts as a view",
    "detail_level": "level of detail",
    "details_days": "days until details are removed",
    "dry": "dry run",
    "email": "email address",
    "expires_at": "expires",
    "form": "id of the form",
    "is_reply": "is a reply",
    "is_default": "default of the suite",
    "is_own_default": "own default",
    "is_shared": "shared",
    "has_stored_key": "has a stored key",
    "input_price_usd_per_mtok": "$ per million input tokens",
    "key_variable": "variable with the key",
    "known": "already there",
    "left": "codes left",
    "mentions": "mentioned members",
    "model": "language model",
    "model_id": "model id",
    "output_price_usd_per_mtok": "$ per million output tokens",
    "outputs_days": "days until outputs are removed",
    "query": "filter and order",
    "reply_mode": "form of replies",
    "requests_per_minute": "requests per minute",
    "revoked_at": "revoked",
    "role": "role of the member",
    "secrets_entered": "secret headers entered",
    "send_trace_headers": "sends trace headers",
    "sha256": "SHA-256 of the file",
    "text": "results",
    "timeout_s": "longest wait (s)",
    "together_with": "deleted together with it",
    "with": "method",
}
MOMENTS = ("expires_at", "revoked_at")


@dataclass(frozen=True, slots=True)
class AuditQuery(ListQuery):
    """Which entries are listed: by kind of object, member, and text in the object's name."""

    kind: str = lists.text()
    who: str = lists.text()
    q: str = lists.search()
    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class AuditChange:
    """One value before and after, as JSON if it is not text; None if there was or is no value."""

    name: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """Return the change on one line, long values cut."""
        if self.before is None:
            return f"{self.name}: {_cut(self.after)}"
        return f"{self.name}: {_cut(self.before)} → {_cut(self.after)}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry: who did what to which object; `url` is "" if the object no longer exists."""

    at: datetime
    who: str
    action: str
    kind: str
    name: str
    url: str
    changes: tuple[AuditChange, ...]

    @property
    def shown(self) -> str:
        """Return the first changes on one line."""
        return ", ".join(change.words for change in self.changes[:SHOWN_CHANGES])

    @property
    def more(self) -> int:
        """Return how many changes that line leaves out."""
        return max(len(self.changes) - SHOWN_CHANGES, 0)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of entries with its filters."""

    query: AuditQuery
    rows: tuple[AuditRow, ...]
    controls: tuple[Control, ...]
    next_address: str
    file_address: str


def audit_page(query: AuditQuery, *, with_members: bool) -> AuditPage:
    """Return 50 entries, newest first, in a fixed number of queries."""
    # Only the entries of the page are read; to find them, an index is enough.
    ids = _matching(query, with_members=with_members).values("pk")
    page = NEWEST_FIRST.page(ids, query.after)
    shown = AuditEntry.objects.filter(pk__in=[row["pk"] for row in page.rows])
    pairs = [
        (entry.actor_name, entry.object_type)
        for entry in AuditEntry.objects.raw(ACTORS_WITH_KINDS)
        if with_members or entry.object_type not in PRIVATE
    ]
    kinds = sorted({kind for _, kind in pairs})
    members = dict.fromkeys(name for name, _ in pairs if name)
    return AuditPage(
        query=query,
        rows=tuple(_rows(list(NEWEST_FIRST.order(shown)))),
        controls=(
            query.search_box("q", "Name of what was changed"),
            query.select(
                "kind", "Kind of object", ((kind, _kind_name(kind)) for kind in kinds), "Everything"
            ),
            query.select("who", "Who", ((name, name) for name in members), "Everyone"),
        ),
        next_address=page.next_address(query),
        file_address=query.address(),
    )


def audit_lines(query: AuditQuery, *, with_members: bool) -> Iterator[str]:
    """Yield every matching entry as a line of JSON, newest first."""
    entries = NEWEST_FIRST.order(_matching(query, with_members=with_members))
    ids = read_ids(entries)
    for start in range(0, len(ids), CHUNK):
        for entry in NEWEST_FIRST.order(
            AuditEntry.objects.filter(pk__in=ids[start : start + CHUNK])
        ):
            yield json.dumps(storable(entry.as_values()), ensure_ascii=False) + "\n"


@file_kind("audit")
def audit_file(*, query: Mapping[str, str], with_members: bool) -> ExportSpec:
    """Describe the file of the entries that match the parameters of an address."""
    wanted = AuditQuery.read(query)
    counts = _matching(wanted, with_members=with_members).aggregate(Count("pk"), Max("pk"))
    return ExportSpec(
        name="audit.jsonl",
        rows=counts["pk__count"],
        row_bytes=ENTRY_BYTES,
        write=lambda: audit_lines(wanted, with_members=with_members),
        fingerprint=tuple(counts.values()),
        permissions=(SEE_AUDIT, *((CHANGE_MEMBERS,) if with_members else ())),
    )


def changes_between(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[AuditChange, ...]:
    """Return the differences, with the names of nested values joined by dots, in order of appearance."""
    old, new = (dict(_flat(storable(values or {}))) for values in (before, after))
    names = list(dict.fromkeys((*old, *new)))
    return tuple(
        AuditChange(LABELS.get(name, name), _format(old, name), _format(new, name))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    )


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping) and value:
            yield from _flat(value, path)
        else:
            yield path, value


def _format(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if name in MOMENTS and isinstance(value, str) and (at := parse_datetime(value)):
        return date_format(localtime(at), "j M Y, H:i")
    if value is None or isinstance(value, str):
        return value
    if name in LABELS and isinstance(value, bool):
        return "yes" if value else "no"
    if name in LABELS and isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return json.dumps(value, ensure_ascii=False)


def _cut(value: str | None) -> str:
    if value is None:
        return "–"
    line = " ".join(value.split())
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"


def _matching(query: AuditQuery, *, with_members: bool) -> QuerySet[AuditEntry]:
    entries = AuditEntry.objects.all()
    if query.kind:
        entries = entries.filter(object_type=query.kind)
    if query.who:
        entries = entries.filter(actor_name=query.who)
    if query.q:
        entries = entries.filter(object_name__icontains=query.q)
    # Last: a search rejects nearly all entries, and PostgreSQL then does not compare their kinds.
    return entries if with_members else entries.exclude(object_type__in=PRIVATE)


def _rows(entries: Sequence[AuditEntry]) -> Iterator[AuditRow]:
    urls = _urls(entries)
    for entry in entries:
        yield AuditRow(
            at=entry.at,
            who=entry.actor_name,
            action=_action(entry.action),
            kind=_kind_name(entry.object_type),
            name=_name(entry),
            url=urls.get((entry.object_type, entry.object_id), ""),
            changes=_changes(entry),
        )


def _name(entry: AuditEntry) -> str:
    """Return the name of the object; of a refusal, the address that was refused: its name is the kind of address."""
    if entry.object_type != REFUSALS:
        return entry.object_name
    return str((entry.after or {}).get("address") or entry.object_name)


def _changes(entry: AuditEntry) -> tuple[AuditChange, ...]:
    if not entry.action.endswith(OVERRIDE):
        return changes_between(entry.before, entry.after)
    # Both sides contain the machine's verdict, which a review overrides without changing it.
    before, after = entry.before or {}, entry.after or {}
    machine = before.get("verdict") or "errored"
    sides = [side.get("reviewed_verdict") or machine for side in (before, after)]
    return (AuditChange("verdict", *sides), AuditChange("automatic verdict", None, machine))


def _urls(entries: Iterable[AuditEntry]) -> dict[tuple[str, str], str]:
    """Return the pages of the objects that still exist, with one query for each kind of object."""
    ids: dict[str, set[int]] = {}
    for entry in entries:
        if (number := read_integer(entry.object_id)) is not None:
            ids.setdefault(entry.object_type, set()).add(number)
    pages: dict[str, tuple[type[Model], str, tuple[str, ...]]] = {
        "suite": (Suite, "runs:suite", ("slug",)),
        "run": (Run, "runs:run", ("suite__slug", "number")),
        "target": (Target, "runs:target", ("pk",)),
        "comment": (Comment, "runs:comment", ("pk",)),
        "saved_view": (
            SavedView,
            "runs:saved-view",
            ("suite__slug", "pk"),
        ),
        "result": (
            Result,
            "runs:result",
            ("run__suite__slug", "run__number", "case__key", "repetition"),
        ),
        "language_model": (LanguageModel, "evaluators:language-model", ("slug",)),
        ABOUT_MEMBERS: (User, "access:member", ("pk",)),
        ABOUT_SESSIONS: (User, "access:member", ("pk",)),
    }
    urls = {}
    for kind, pks in ids.items():
        if kind not in pages:
            continue
        model, view, columns = pages[kind]
        rows = model._default_manager.filter(pk__in=pks).values_list("pk", *columns)
        for pk, *parts in rows:
            urls[kind, str(pk)] = reverse(view, args=parts)
    return urls


def _action(action: str) -> str:
    """Return an action as a verb, which is shown between member and object."""
    name = action.rpartition(".")[2]
    return ACTIONS.get(name, name.replace("_", " "))


def _kind_name(kind: str) -> str:
    return NAMES.get(kind, kind.replace("_", " ").capitalize())

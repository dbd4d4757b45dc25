"""Sessions of members, stored under a hash of their key, so that a copy of the database logs nobody in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from evalsite.access.models import MemberSession
from evaluators.model_calls.models import KeyUnreadableError, decrypt, encrypt

# A session ends when nobody has used it for so long, and in any case after SESSION_COOKIE_AGE.
IDLE_FOR = timedelta(days=3)
# Recording every use would turn each page into a write.
USE_IS_NOTED_EVERY = timedelta(minutes=5)
# Names in a session's data.
STARTED_AT, CLIENT, CONFIRMED_AT = "started_at", "client", "confirmed_at"
# The address that also ends the member's session at the provider; a secret, as it says who the member is there.
LOGOUT_URL = "access.logout_url"
# Where to go on once a second factor is set up; until then nothing else is shown.
MUST_SET_UP = "access.must_set_up"
MAX_CLIENT_LENGTH = 200
# Marks in the description that a browser sends. Most describe themselves as several others too, which come later.
BROWSERS = (
    *(("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox", "Firefox"), ("FxiOS", "Firefox")),
    *(("Chrome", "Chrome"), ("CriOS", "Chrome"), ("Safari", "Safari")),
)
SYSTEMS = (
    *(("Windows", "Windows"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Mac OS", "macOS")),
    *(("Android", "Android"), ("CrOS", "ChromeOS"), ("Linux", "Linux")),
)


def stored_key(session_key: str) -> str:
    """Return what the database keeps of the key in a cookie; only with the site's secret key can it be checked."""
    return salted_hmac("evalsite.sessions", session_key, algorithm="sha256").hexdigest()


class SessionStore(DatabaseStore):
    """Django's sessions in the database, with limits, the member and a hash in place of the key."""

    @classmethod
    def get_model_class(cls) -> type[MemberSession]:
        """Return the table."""
        return MemberSession

    def _get_session_from_db(self) -> MemberSession | None:
        now = timezone.now()
        # Every page asks, so the query is short and the times are compared here.
        try:
            row = MemberSession.objects.get(pk=stored_key(self.session_key or ""))
        except MemberSession.DoesNotExist:
            row = None
        if row is None or row.expire_date <= now or row.seen_at <= now - IDLE_FOR:
            self._session_key = None
            return None
        if now - row.seen_at >= USE_IS_NOTED_EVERY:
            # Pages can be read while nothing can be stored.
            with suppress(DatabaseError):
                MemberSession.objects.filter(pk=row.pk).update(seen_at=now)
        return row

    def exists(self, session_key: str) -> bool:
        """Tell whether a key is taken."""
        return super().exists(stored_key(session_key))

    def create_model_instance(self, data: Mapping[str, Any]) -> MemberSession:
        """Return the row of the session as it is now."""
        now = timezone.now()
        started = datetime.fromisoformat(data[STARTED_AT]) if STARTED_AT in data else now
        return MemberSession(
            session_key=stored_key(self._get_or_create_session_key()),  # type: ignore[attr-defined]  # of the base
            session_data=self.encode(dict(data)),
            expire_date=started + timedelta(seconds=self.get_session_cookie_age()),
            user_id=data.get(SESSION_KEY),
            started_at=started,
            seen_at=now,
            client=data.get(CLIENT, ""),
        )

    def delete(self, session_key: str | None = None) -> None:
        """End a session, by default this one."""
        if key := session_key or self.session_key:
            MemberSession.objects.filter(session_key=stored_key(key)).delete()


def begin_session(session: SessionBase, *, client: str) -> None:
    """Note when a member logged in, and with which browser; remove sessions that are over."""
    MemberSession.objects.filter(expire_date__lt=timezone.now()).delete()
    session[STARTED_AT] = timezone.now().isoformat()
    session[CLIENT] = client[:MAX_CLIENT_LENGTH]
    mark_confirmed(session)


def mark_confirmed(session: SessionBase, *, at: datetime | None = None) -> None:
    """Note that the member proved who it is, now or earlier, so that sensitive actions ask nothing for a while."""
    session[CONFIRMED_AT] = min(at or timezone.now(), timezone.now()).isoformat()


def is_confirmed(session: SessionBase) -> bool:
    """Tell whether the member has proved who it is within EVALSITE_CONFIRM_MINUTES, or nobody needs to."""
    if not settings.CONFIRM_MINUTES:
        return True
    confirmed = session.get(CONFIRMED_AT)
    if not confirmed:
        return False
    # It is in the future where the clock was set back since.
    age = abs(timezone.now() - datetime.fromisoformat(confirmed))
    return age <= timedelta(minutes=settings.CONFIRM_MINUTES)


def end_sessions(member: User, *, but: str | None = None) -> int:
    """End all sessions of a member, but for the one with the key `but`; return how many."""
    rows = MemberSession.objects.filter(user=member)
    if but:
        rows = rows.exclude(session_key=stored_key(but))
    return rows.delete()[0]


def keep_secret(session: SessionBase, name: str, text: str) -> None:
    """Keep a secret for a later page; encrypted, because sessions are stored and must not hold readable secrets."""
    session[name] = encrypt(text)


def read_kept(session: SessionBase, name: str) -> str:
    """Return a secret that `keep_secret` kept; "" if there is none or it cannot be read any more."""
    stored = session.get(name, "")
    try:
        return decrypt(stored) if stored else ""
    except KeyUnreadableError:
        return ""


def take_kept(request: HttpRequest, name: str) -> str:
    """Return a secret once, on a page that is opened, and forget it; "" if there is none."""
    if request.method != "GET":
        return ""
    text = read_kept(request.session, name)
    request.session.pop(name, None)
    return text


def browser_name(client: str) -> str:
    """Return the usual name of the browser and its system, as far as a browser's description has them."""
    browser = next((name for mark, name in BROWSERS if mark in client), "A browser")
    system = next((name for mark, name in SYSTEMS if mark in client), "")
    return f"{browser} on {system}" if system else browser


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in the list of a member; `client` is a browser's own description, "" if unknown."""

    started_at: datetime
    seen_at: datetime
    client: str
    is_this: bool

    @property
    def browser(self) -> str:
        """Return the usual name of the browser and its system."""
        return browser_name(self.client)


def session_rows(member: User, *, current: str | None) -> Sequence[SessionRow]:
    """Return the sessions that a member could go on with, the one with the key `current` first."""
    now = timezone.now()
    rows = MemberSession.objects.filter(
        user=member, expire_date__gt=now, seen_at__gt=now - IDLE_FOR
    )
    this = stored_key(current or "")
    every = [
        SessionRow(row.started_at, row.seen_at, row.client, row.session_key == this)
        for row in rows.order_by("-seen_at")
    ]
    return sorted(every, key=lambda row: not row.is_this)

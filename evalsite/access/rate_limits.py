"""How often programs may use the API: requests of each token or member, and wrong tokens of each address."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from evalsite.access.logins import client_address
from evaluators.models import NOT_LOGGED_IN, AuditEntry
from runs import waiting

if TYPE_CHECKING:
    from rest_framework.views import APIView

# Where a call of the API leaves the headers that say what is left of its limit.
RATE_LIMIT = "evalsite.rate_limit"
WINDOW = timedelta(minutes=1)
# More clients than this at once share the memory of the ones that came first.
MAX_CLIENTS = 10_000
WRONG_TOKENS_ARE_RECORDED_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """How much of a limit a client has used; the count begins again in `resets_in_s` seconds."""

    limit: int
    used: int
    resets_in_s: int

    @property
    def is_exceeded(self) -> bool:
        """Tell whether this was one too many."""
        return self.used > self.limit

    def headers(self, name: str) -> dict[str, str]:
        """Return the fields of the IETF's draft on rate limits."""
        remaining = max(self.limit - self.used, 0)
        return {
            "RateLimit-Policy": f'"{name}";q={self.limit};w={int(WINDOW.total_seconds())}',
            "RateLimit": f'"{name}";r={remaining};t={self.resets_in_s}',
        }


class MinuteCounter:
    """Counts how often each client does something in the minute after its first time; each process counts alone."""

    def __init__(self) -> None:
        """Know no client."""
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[datetime, int]] = {}

    def count(self, client: str, *, limit: int, now: datetime) -> LimitUsage:
        """Count one more time."""
        with self._lock:
            since, used = self._windows.pop(client, (now, 0))
            # A clock that was set back would hold a client up until it is where it was.
            if abs(now - since) >= WINDOW:
                since, used = now, 0
            if len(self._windows) >= MAX_CLIENTS:
                self._forget(now)
            self._windows[client] = since, used + 1
        return LimitUsage(limit, used + 1, math.ceil((since + WINDOW - now).total_seconds()))

    def _forget(self, now: datetime) -> None:
        self._windows = {
            client: window
            for client, window in self._windows.items()
            if abs(now - window[0]) < WINDOW
        }
        if len(self._windows) >= MAX_CLIENTS:
            del self._windows[next(iter(self._windows))]


REQUESTS, WRONG_TOKENS = MinuteCounter(), MinuteCounter()


class TooManyRequests(APIException):
    """A client has done something too often."""

    status_code = 429

    def __init__(self, detail: str, usage: LimitUsage) -> None:
        """Say when to go on."""
        super().__init__(f"{detail} Try again in {usage.resets_in_s} seconds.")
        self.wait = usage.resets_in_s


class RequestLimit(BaseThrottle):
    """Limits the requests of each token, and of each member with a session."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count a request; raises TooManyRequests."""
        limit = settings.API_REQUESTS_PER_MINUTE
        is_counted = waiting.ASKED_AGAIN not in request.META
        if not (limit and is_counted and request.user.is_authenticated):
            return True
        is_token = request.auth is not None
        client = f"member {request.user.pk}"
        if is_token:
            client = f"token {request.auth.token.pk}"  # type: ignore[union-attr]  # a grant
        usage = REQUESTS.count(client, limit=limit, now=timezone.now())
        request.META[RATE_LIMIT] = usage.headers("requests")
        if usage.is_exceeded:
            whom = "a token" if is_token else "a member"
            raise TooManyRequests(f"The limit is {limit} requests a minute for {whom}.", usage)
        return True


def count_wrong_token(request: HttpRequest) -> None:
    """Count a wrong token for the address it came from; raises TooManyRequests.

    A right token is not refused for the wrong ones of its neighbours: no number of tries guesses one.
    """
    limit = settings.API_WRONG_TOKENS_PER_MINUTE
    if not limit:
        return
    address, now = client_address(request) or "", timezone.now()
    usage = WRONG_TOKENS.count(address, limit=limit, now=now)
    request.META[RATE_LIMIT] = usage.headers("wrong-tokens")
    if not usage.is_exceeded:
        return
    if usage.used == limit + 1:
        _record_wrong_tokens(address, now=now)
    raise TooManyRequests(f"The limit is {limit} wrong tokens a minute for an address.", usage)


def _record_wrong_tokens(address: str, *, now: datetime) -> None:
    action = "api_token.guessed"
    known = AuditEntry.objects.filter(
        action=action, after__address=address, at__gt=now - WRONG_TOKENS_ARE_RECORDED_EVERY
    )
    if not known.exists():
        AuditEntry.objects.record(
            action,
            by=None,
            nobody=NOT_LOGGED_IN,
            object_type="api_token",
            object_name="wrong tokens",
            after={"address": address},
        )

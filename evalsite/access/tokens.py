"""API tokens: making, revoking, authenticating with one, and what it may do."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from evalsite.access.models import ACTIVE, ApiToken
from evalsite.access.rate_limits import count_wrong_token
from evalsite.access.roles import SCOPE_PERMISSIONS, Scope, highest_role, role_scopes
from evalsite.access.sessions import MUST_SET_UP, is_confirmed
from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models.sharing import token_hash
from runs.requests import VIEW

if TYPE_CHECKING:
    from rest_framework.views import APIView

# People and secret scanners recognise a token by this prefix.
PREFIX = "evs_"
RANDOM_BYTES = 32
# Of one member, expired and revoked ones not counted.
MAX_TOKENS = 20
SHOWN_LENGTH = len(PREFIX) + 4


class ScopeNotAllowedError(DomainError):
    """The token's scope allows only what its owner's role does not."""

    code = "scope_not_allowed"


class TooManyTokensError(DomainError):
    """A member has as many tokens as anybody can keep an eye on."""

    code = "too_many_tokens"


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A valid token: one of its scopes and its owner's role must both include a permission."""

    token: ApiToken

    def allows(self, permission: str) -> bool:
        """Tell whether a scope of the token includes a permission."""
        return any(permission in SCOPE_PERMISSIONS[scope] for scope in self.token.scope_list)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token in the list; `barred` are those of its scopes that its owner's role does not allow."""

    token: ApiToken
    owner: str
    scopes: Sequence[Scope]
    barred: Sequence[Scope]
    state: str

    @property
    def can_be_revoked(self) -> bool:
        """Tell whether it is not revoked yet."""
        return self.token.revoked_at is None

    @property
    def is_active(self) -> bool:
        """Tell whether it gives access to the API now."""
        return self.state == ACTIVE and len(self.barred) < len(self.scopes)


@transaction.atomic
def make_token(
    *, owner: User, name: str, scopes: Collection[Scope], expires_at: datetime | None
) -> tuple[ApiToken, str]:
    """Make a token and return it with its secret, which is not stored; whatever its scopes, it may read.

    Raises:
        ScopeNotAllowedError: the owner's role allows nothing that one of the scopes allows.
        TooManyTokensError: the owner has MAX_TOKENS that work.

    """
    # Several that are made at once are counted one after the other.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    working = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    if owner.api_tokens.filter(working, revoked_at=None).count() >= MAX_TOKENS:
        raise TooManyTokensError(
            f"You have {MAX_TOKENS} tokens that work, which is the limit. Revoke one that you no longer use."
        )
    granted = [scope for scope in Scope if scope == Scope.READ or scope in scopes]
    barred = [scope.label for scope in granted if scope not in role_scopes(highest_role(owner))]
    if barred:
        raise ScopeNotAllowedError(f"Your role does not allow the scopes {', '.join(barred)}.")
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        prefix=secret[:SHOWN_LENGTH],
        token_hash=token_hash(secret),
        scopes=" ".join(granted),
        expires_at=expires_at,
    )
    expiry = expires_at.isoformat() if expires_at else "never"
    _record(owner, "api_token.made", token, after={"scopes": token.scopes, "expires_at": expiry})
    return token, secret


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: User, now: datetime) -> bool:
    """Revoke a token at once; False if it was revoked before."""
    if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        return False
    _record(actor, "api_token.revoked", token, after={"owner": token.owner.get_username()})
    return True


def revoke_tokens(owner: User, *, now: datetime) -> int:
    """Revoke all tokens of a member, and return how many worked until then; the caller records why."""
    return ApiToken.objects.filter(owner=owner, revoked_at=None).update(revoked_at=now)


def find_grant(secret: str, *, now: datetime) -> TokenGrant | None:
    """Return the grant of a secret and record its use; None for an invalid secret."""
    token = ApiToken.objects.working(secret, now=now)
    if token is None:
        return None
    ApiToken.objects.note_use(token, now=now)
    return TokenGrant(token)


def token_rows(*, now: datetime, owner: User | None = None) -> Sequence[TokenRow]:
    """Return the tokens of one member, or of all members, newest first; two queries."""
    tokens = ApiToken.objects.select_related("owner").prefetch_related("owner__groups")
    if owner is not None:
        tokens = tokens.filter(owner=owner)
    return [_row(token, now) for token in tokens]


def _row(token: ApiToken, now: datetime) -> TokenRow:
    allowed = role_scopes(highest_role(token.owner))
    scopes = token.scope_list
    return TokenRow(
        token=token,
        owner=token.owner.get_username(),
        scopes=scopes,
        barred=[scope for scope in scopes if scope not in allowed],
        state=token.state(now=now),
    )


def _record(actor: User, action: str, token: ApiToken, *, after: dict[str, str]) -> None:
    AuditEntry.objects.record(
        action,
        by=actor,
        object_type="api_token",
        object_id=token.pk,
        object_name=f"{token.name} ({token.prefix}…)",
        after=after,
    )


SCHEME = "Bearer"
PLAIN_CALL = (
    "Call the API by https. Others may have read this request on its way: revoke the token in it."
)


def bearer_secret(request: HttpRequest | Request) -> str | None:
    """Return the secret of the token that a request brings; None without a token."""
    scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
    return secret.strip() if scheme.lower() == SCHEME.lower() else None


class TokenAuthentication(BaseAuthentication):
    """Authenticate a request by its token; without one, session authentication is tried."""

    def authenticate(self, request: Request) -> tuple[User, TokenGrant] | None:
        """Return the owner and the grant, None without a token; raises an APIException."""
        secret = bearer_secret(request)
        if secret is None:
            return None
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            raise PermissionDenied(PLAIN_CALL)
        grant = find_grant(secret, now=timezone.now())
        if grant is None:
            count_wrong_token(request._request)
            # The exact reason would only help somebody who found the token.
            raise AuthenticationFailed("This token is wrong, expired or revoked.")
        return grant.token.owner, grant

    def authenticate_header(self, request: Request) -> str:
        """Return the WWW-Authenticate header, which makes the refusal a 401."""
        return f'{SCHEME} realm="Evalsite"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base registers subclasses
    """Describe API tokens in the schema."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme of OpenAPI."""
        return {
            "type": "http",
            "scheme": SCHEME.lower(),
            "description": "A token from the page “API tokens”; it begins with evs_.",
        }


class MayView(BasePermission):
    """Allow members who may see runs to read the API; with a token, its scopes must include it too.

    Changes by a session, from the page that tries calls, need what sensitive pages need: that the member has
    confirmed lately who it is. No page changes anything by the API.
    """

    message = "Your role may not see runs. An admin can change your role."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether both the member and the token have the permission; raises PermissionDenied with a remedy."""
        grant: TokenGrant | None = request.auth  # type: ignore[assignment]  # the site's authentication gives it
        is_granted = grant.allows(VIEW) if grant else MUST_SET_UP not in request.session
        if not (request.user.is_authenticated and is_granted and request.user.has_perm(VIEW)):
            return False
        if (
            grant is None
            and request.method not in SAFE_METHODS
            and not is_confirmed(request.session)
        ):
            raise PermissionDenied(
                f"Confirm that it is you first, at {reverse('access:confirm')}, or call with a token."
            )
        return True

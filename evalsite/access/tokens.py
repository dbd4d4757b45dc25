"""API tokens: making, revoking, authenticating with one, and what it may do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from evalsite.access.models import ACTIVE, ApiToken
from evalsite.access.rate_limits import count_wrong_token
from evalsite.access.roles import Role, highest_role, role_permissions
from evalsite.access.sessions import MUST_SET_UP
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


class RoleTooHighError(DomainError):
    """The token's role is above its owner's."""

    code = "role_too_high"


class TooManyTokensError(DomainError):
    """A member has as many tokens as anybody can keep an eye on."""

    code = "too_many_tokens"


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A valid token: both its role and its owner must have a permission."""

    token: ApiToken
    permissions: frozenset[str]

    def allows(self, permission: str) -> bool:
        """Tell whether the role of the token has a permission."""
        return permission in self.permissions


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token in the list; `acts_as` is the lesser of its role and its owner's, None if the owner has none."""

    token: ApiToken
    owner: str
    role: Role
    acts_as: Role | None
    state: str

    @property
    def can_be_revoked(self) -> bool:
        """Tell whether it is not revoked yet."""
        return self.token.revoked_at is None

    @property
    def is_active(self) -> bool:
        """Tell whether it gives access to the API now."""
        return self.state == ACTIVE and self.acts_as is not None

    @property
    def is_limited_by_owner(self) -> bool:
        """Tell whether its owner's role limits it."""
        return self.acts_as != self.role


def roles_up_to(role: Role | None) -> tuple[Role, ...]:
    """Return the roles that a member with this role can give a token, lowest first."""
    if role is None:
        return ()
    return (*takewhile(lambda lesser: lesser != role, Role), role)


@transaction.atomic
def make_token(
    *, owner: User, name: str, role: Role, expires_at: datetime | None
) -> tuple[ApiToken, str]:
    """Make a token and return it with its secret, which is not stored.

    Raises:
        RoleTooHighError: the role is above the owner's.
        TooManyTokensError: the owner has MAX_TOKENS that work.

    """
    working = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    if owner.api_tokens.filter(working, revoked_at=None).count() >= MAX_TOKENS:
        raise TooManyTokensError(
            f"You have {MAX_TOKENS} tokens that work, which is the limit. Revoke one that you no longer use."
        )
    if role not in roles_up_to(highest_role(owner)):
        raise RoleTooHighError(f"{role.label} is above your own role.")
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        prefix=secret[:SHOWN_LENGTH],
        token_hash=token_hash(secret),
        role=role.value,
        expires_at=expires_at,
    )
    expiry = expires_at.isoformat() if expires_at else "never"
    _record(owner, "api_token.made", token, after={"role": role.value, "expires_at": expiry})
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
    return TokenGrant(token, frozenset(role_permissions(Role(token.role))))


def token_rows(*, now: datetime, owner: User | None = None) -> Sequence[TokenRow]:
    """Return the tokens of one member, or of all members, newest first; two queries."""
    tokens = ApiToken.objects.select_related("owner").prefetch_related("owner__groups")
    if owner is not None:
        tokens = tokens.filter(owner=owner)
    return [_row(token, now) for token in tokens]


def _row(token: ApiToken, now: datetime) -> TokenRow:
    role, owner_role = Role(token.role), highest_role(token.owner)
    roles = list(Role)
    return TokenRow(
        token=token,
        owner=token.owner.get_username(),
        role=role,
        acts_as=min(role, owner_role, key=roles.index) if owner_role else None,
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


class TokenAuthentication(BaseAuthentication):
    """Authenticate a request by its token; without one, session authentication is tried."""

    def authenticate(self, request: Request) -> tuple[User, TokenGrant] | None:
        """Return the owner and the grant, None without a token; raises an APIException."""
        scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            raise PermissionDenied(PLAIN_CALL)
        grant = find_grant(secret.strip(), now=timezone.now())
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
    """Allow members who may see runs to read the API; with a token, its role must allow it too."""

    message = "Your role may not see runs. An admin can change your role."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether both the member and the token have the permission."""
        grant: TokenGrant | None = request.auth  # type: ignore[assignment]  # the site's authentication gives it
        is_granted = grant.allows(VIEW) if grant else MUST_SET_UP not in request.session
        return request.user.is_authenticated and is_granted and request.user.has_perm(VIEW)

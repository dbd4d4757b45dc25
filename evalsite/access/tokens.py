"""The tokens of the API: made, revoked, what a token may do, and how a program sends it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from evalsite.access.roles import Role, role_of, role_permissions
from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models.sharing import ACTIVE, ApiToken, token_hash

if TYPE_CHECKING:
    from rest_framework.views import APIView

VIEW = "runs.view_run"
# A reader, or a scanner for secrets, recognises a token by this prefix.
PREFIX = "evs_"
RANDOM_BYTES = 32
SHOWN = len(PREFIX) + 4


class RoleTooHighError(DomainError):
    """Nobody gives a token more than the own role."""

    code = "role_too_high"


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A token in use: its role sets what it may do, and its owner must be allowed each action too."""

    token: ApiToken
    permissions: frozenset[str]

    def allows(self, permission: str) -> bool:
        """Tell whether the role of the token holds a permission."""
        return permission in self.permissions


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token as the page lists it; `acts_as` is the lesser of its role and its owner's, None without."""

    token: ApiToken
    owner: str
    role: Role
    acts_as: Role | None
    state: str

    @property
    def can_be_revoked(self) -> bool:
        """Tell whether revoking it changes anything."""
        return self.token.revoked_at is None

    @property
    def is_active(self) -> bool:
        """Tell whether it opens the API now."""
        return self.state == ACTIVE and self.acts_as is not None

    @property
    def is_lessened(self) -> bool:
        """Tell whether its owner's role holds it back."""
        return self.acts_as != self.role


def roles_up_to(role: Role | None) -> tuple[Role, ...]:
    """Return the roles that a member with this role can give a token, the least first."""
    if role is None:
        return ()
    return (*takewhile(lambda lesser: lesser != role, Role), role)


@transaction.atomic
def make_token(
    *, owner: User, name: str, role: Role, expires_at: datetime | None
) -> tuple[ApiToken, str]:
    """Make a token and return it with its secret, which is kept nowhere.

    Raises:
        RoleTooHighError: the role is above the owner's.

    """
    if role not in roles_up_to(role_of(owner)):
        raise RoleTooHighError(f"{role.label} is above your own role.")
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        beginning=secret[:SHOWN],
        token_hash=token_hash(secret),
        role=role.value,
        expires_at=expires_at,
    )
    expiry = expires_at.isoformat() if expires_at else "never"
    _record(owner, "api_token.made", token, after={"role": role.value, "expires_at": expiry})
    return token, secret


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: User, now: datetime) -> bool:
    """End a token at once and for good; False when it was revoked before."""
    if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        return False
    _record(actor, "api_token.revoked", token, after={"owner": token.owner.get_username()})
    return True


def find_grant(secret: str, *, now: datetime) -> TokenGrant | None:
    """Return what a secret opens and note that it was used; None for one that opens nothing."""
    token = ApiToken.objects.working(secret, now=now)
    if token is None:
        return None
    ApiToken.objects.note_use(token, now=now)
    return TokenGrant(token, frozenset(role_permissions(Role(token.role))))


def token_rows(*, now: datetime, owner: User | None = None) -> Sequence[TokenRow]:
    """Return the tokens of one member, else of all, newest first; two queries."""
    tokens = ApiToken.objects.select_related("owner").prefetch_related("owner__groups")
    found = tokens if owner is None else tokens.filter(owner=owner)
    return [_row(token, now) for token in found]


def _row(token: ApiToken, now: datetime) -> TokenRow:
    role, of_owner = Role(token.role), role_of(token.owner)
    roles = list(Role)
    return TokenRow(
        token=token,
        owner=token.owner.get_username(),
        role=role,
        acts_as=min(role, of_owner, key=roles.index) if of_owner else None,
        state=token.state(now=now),
    )


def _record(actor: User, action: str, token: ApiToken, *, after: dict[str, str]) -> None:
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username(),
        action=action,
        object_type="api_token",
        object_id=str(token.pk),
        object_name=f"{token.name} ({token.beginning}…)",
        after=after,
    )


SCHEME = "Bearer"


class TokenAuthentication(BaseAuthentication):
    """Let a request act for the owner of its token, with no more than the token's role.

    A request without a token may have a session.
    """

    def authenticate(self, request: Request) -> tuple[User, TokenGrant] | None:
        """Return the owner and the grant, None without a token; raises AuthenticationFailed."""
        scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        grant = find_grant(secret.strip(), now=timezone.now())
        if grant is None:
            # The exact reason would only help somebody who found the token.
            raise AuthenticationFailed("This token is wrong, expired or revoked.")
        return grant.token.owner, grant

    def authenticate_header(self, request: Request) -> str:
        """Return how to ask rightly, which makes the refusal a 401."""
        return f'{SCHEME} realm="Evalsite"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base registers subclasses
    """Tell the schema of tokens."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return what OpenAPI says of it."""
        return {
            "type": "http",
            "scheme": SCHEME.lower(),
            "description": "A token of the page “API tokens”; it begins with evs_.",
        }


class MayView(BasePermission):
    """Members who may see runs may read the API; a token and its owner's role both have to allow it."""

    message = "Your role may not see runs. An admin can give you another."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether both allow it."""
        grant: TokenGrant | None = request.auth  # type: ignore[assignment]  # the site's authentication gives it
        is_granted = grant is None or grant.allows(VIEW)
        return request.user.is_authenticated and is_granted and request.user.has_perm(VIEW)

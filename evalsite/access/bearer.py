"""How a program says which token it has: `Authorization: Bearer evs_…`."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from evalsite.access.tokens import Grant, grant_of

SCHEME = "Bearer"


class TokenAuthentication(BaseAuthentication):
    """Let a request act for the owner of its token, with no more than the token's role.

    Whoever sends none may have a session.
    """

    def authenticate(self, request: Request) -> tuple[User, Grant] | None:
        """Return the owner and the grant, None without a token; raises AuthenticationFailed."""
        scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        grant = grant_of(secret.strip(), now=timezone.now())
        if grant is None:
            # Which of these it is would only help whoever found it.
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

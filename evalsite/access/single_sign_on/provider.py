"""The provider of accounts, an OpenID Connect server: sending people there, and who they are when they come back.

Authlib does the protocol: authorization code with PKCE, state and nonce, keys and checks of the ID token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import DjangoIntegration, DjangoOAuth2App
from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from joserfc.errors import JoseError
from requests import ConnectionError, RequestException, Response, Timeout
from requests.exceptions import SSLError

from evalsite.access.single_sign_on.identity import (
    Identity,
    Journey,
    ProviderDownError,
    ProviderError,
)
from evaluators.reading.json import is_storable, storable

# Calls at once, and seconds to wait for a turn. The other threads serve pages, however long the provider takes.
MAX_CALLS, TURN_WITHIN_S = 2, 0.25
CALLS = threading.BoundedSemaphore(MAX_CALLS)
# For a connection, and for each answer to begin.
TIMEOUT_S = (3.05, 10)
MAX_ANSWER_BYTES = 1_000_000
# Addresses and keys of the provider are read again after this time, and whenever a key is unknown.
METADATA_AGE_S = 3600
# How far the provider's clock may be off.
LEEWAY_S = 60
# The client's secret must sign nothing: only the provider has the other half of these keys.
SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
MAX_SUBJECT_LENGTH, MAX_EMAIL_LENGTH = 255, 254
# What a provider writes that leaves out a claim because it would be too long.
LEFT_OUT = "_claim_names"
MAX_REASON_LENGTH = 300


class _Session(OAuth2Session):  # type: ignore[misc]  # Authlib has no types
    """Calls the provider, within limits of time and size, and follows no redirect."""

    def request(self, method: str, url: str, **options: Any) -> Response:
        options |= {"timeout": TIMEOUT_S, "allow_redirects": False, "stream": True}
        if not CALLS.acquire(timeout=TURN_WITHIN_S):
            raise RequestException("others are waiting for its answers; try again soon")
        try:
            response: Response = super().request(method, url, **options)
            with response:
                content = b"".join(_limited(response))
        finally:
            CALLS.release()
        # What a response keeps once it has been read; there is no public way to set it.
        response._content = content
        return response


def _limited(response: Response) -> Iterator[bytes]:
    length = 0
    for chunk in response.iter_content(chunk_size=65_536):
        length += len(chunk)
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer is longer than {MAX_ANSWER_BYTES:,} bytes")
        yield chunk


class _Client(DjangoOAuth2App):  # type: ignore[misc]  # Authlib has no types
    client_cls = _Session


def metadata() -> Mapping[str, Any]:
    """Return how the provider describes itself; raises ProviderError if it cannot be used."""
    client: DjangoOAuth2App = _client()
    described: Mapping[str, Any] = client.server_metadata
    return described


def begin(redirect_uri: str, *, next_path: str, confirms: bool) -> tuple[str, Journey]:
    """Return the provider's address to send a browser to, and what the browser has to keep meanwhile.

    With `confirms` the provider is asked to check again who is there. Raises ProviderError.
    """
    client = _client()
    again = {"prompt": "login", "max_age": 0} if confirms else {}
    with _explained("cannot be asked to sign members in"):
        started = client.create_authorization_url(redirect_uri, **again)
    journey = Journey(
        state=started["state"],
        nonce=started["nonce"],
        code_verifier=started["code_verifier"],
        next_path=next_path,
        began_at=int(time.time()),
        confirms=confirms,
    )
    return started["url"], journey


def complete(journey: Journey, code: str, redirect_uri: str, *, back_at: str) -> Identity:
    """Exchange the code that a browser brought back for the identity of the person.

    `back_at` is where the provider sends a browser after its logout. Raises ProviderError.
    """
    client = _client()
    with _explained("did not confirm who this is"):
        token = client.fetch_access_token(
            redirect_uri=redirect_uri, code=code, code_verifier=journey.code_verifier
        )
    with _explained("sent an ID token that is refused"):
        issuer = client.server_metadata["issuer"]
        claims = client.parse_id_token(
            token,
            nonce=journey.nonce,
            claims_options={
                "iss": {"essential": True, "value": issuer},
                "aud": {"essential": True, "value": settings.OIDC_CLIENT_ID},
            },
            leeway=LEEWAY_S,
        )
        if claims is None:
            raise ValueError("there is none in its answer")
        if journey.confirms and claims.get("auth_time", 0) < journey.began_at - LEEWAY_S:
            raise ValueError("it does not confirm a recent login there (auth_time)")
    with _explained("sent claims that cannot be used"):
        identity = _identity(issuer, _with_userinfo(client, token, dict(claims)))
    return _with_logout(client, identity, token["id_token"], back_at)


@contextmanager
def _explained(failure: str) -> Iterator[None]:
    """Turn whatever goes wrong between us and the provider into a ProviderError."""
    try:
        yield
    except RequestException as error:
        raise ProviderDownError(
            f"{settings.OIDC_NAME} does not answer as it should: {_outage(error)}."
        ) from error
    # Authlib and its parts let through whatever a malformed answer causes.
    except (
        *(AuthlibBaseError, JoseError, ValueError, TypeError, KeyError),
        *(AttributeError, RuntimeError, OverflowError),
    ) as error:
        raise ProviderError(f"{settings.OIDC_NAME} {failure}: {_reason(error)}.") from error


def _outage(error: RequestException) -> str:
    """Return what failed on the way, without the addresses and objects that the library's message is made of."""
    if error.response is not None:
        return f"status {error.response.status_code} for {urlsplit(error.response.url).path}"
    if isinstance(error, SSLError):
        return "its certificate is not one that this server trusts (REQUESTS_CA_BUNDLE)"
    if isinstance(error, Timeout):
        return f"no answer within {TIMEOUT_S[1]} seconds"
    if isinstance(error, ConnectionError):
        return "no connection"
    return _reason(error)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return str(storable(text[:MAX_REASON_LENGTH].rstrip(".")))


def _client() -> DjangoOAuth2App:
    return _discovered(
        settings.OIDC_ISSUER,
        settings.OIDC_CLIENT_ID,
        settings.OIDC_CLIENT_SECRET,
        settings.OIDC_SCOPES,
        int(time.monotonic() // METADATA_AGE_S),
    )


@lru_cache(maxsize=1)
def _discovered(
    issuer: str, client_id: str, secret: str, scopes: str, hour: int
) -> DjangoOAuth2App:
    """Return a client that has read the provider's description; a failure is not remembered."""
    client = _Client(
        DjangoIntegration("provider"),
        client_id=client_id,
        client_secret=secret or None,
        client_kwargs={"scope": scopes, "code_challenge_method": "S256"},
        server_metadata_url=f"{issuer}/.well-known/openid-configuration",
    )
    with _explained("describes itself in a way that cannot be used"):
        described = client.load_server_metadata()
        if str(described["issuer"]).rstrip("/") != issuer:
            raise ValueError(
                f"it is the issuer {described['issuer']}, and EVALSITE_OIDC_ISSUER is {issuer}"
            )
        for name in ENDPOINTS:
            if urlsplit(described[name]).scheme not in ("https", urlsplit(issuer).scheme):
                raise ValueError(f"its {name} is not https")
        offered = described.get("id_token_signing_alg_values_supported", ["RS256"])
        described["id_token_signing_alg_values_supported"] = [
            name for name in SIGNATURES if name in offered
        ]
        if not described["id_token_signing_alg_values_supported"]:
            raise ValueError(f"it signs with none of {', '.join(SIGNATURES)}")
        ways = described.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if secret and "client_secret_basic" not in ways:
            client.client_kwargs |= {"token_endpoint_auth_method": "client_secret_post"}
        client.fetch_jwk_set()
    return client


def _with_userinfo(
    client: DjangoOAuth2App, token: Mapping[str, Any], claims: dict[str, Any]
) -> dict[str, Any]:
    """Return the claims of the ID token, with those that only the userinfo endpoint has."""
    is_complete = "email" in claims and (
        not settings.OIDC_ROLES or _claim(claims, settings.OIDC_GROUPS_CLAIM) is not None
    )
    if is_complete or "userinfo_endpoint" not in client.server_metadata:
        return claims
    userinfo = client.userinfo(token=token)
    if userinfo.get("sub") != claims["sub"]:
        raise ValueError("its userinfo is about another person")
    both = {**userinfo, **claims}
    if userinfo.get("email") != claims.get("email"):
        # An address is verified only by the answer that names it.
        named = claims if "email" in claims else userinfo
        both["email_verified"] = named.get("email_verified")
    return both


def _identity(issuer: str, claims: dict[str, Any]) -> Identity:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH:
        raise ValueError(f"sub is not a text of 1 to {MAX_SUBJECT_LENGTH} characters")
    if not is_storable(subject):
        raise ValueError("sub contains a character that cannot be stored")
    name = claims.get("preferred_username") or claims.get("name")
    verified = claims.get("email_verified")
    is_verified = settings.OIDC_TRUST_EMAIL or verified is True or verified == "true"
    return Identity(
        issuer=issuer,
        subject=subject,
        name=storable(name) if isinstance(name, str) else "",
        email=_email(claims.get("email")) if is_verified else "",
        groups=_groups(claims),
        checked_at=max(0, min(int(claims.get("auth_time", 0)), int(time.time()))),
    )


def _email(value: object) -> str:
    """Return an email address that can be stored; "" for anything else."""
    if not isinstance(value, str) or not is_storable(value) or len(value) > MAX_EMAIL_LENGTH:
        return ""
    try:
        validate_email(value)
    except ValidationError:
        return ""
    return value


def _groups(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups; none if the claim is missing.

    Some providers write roles as keys of an object, where one with the value false or null is not held.
    """
    name = settings.OIDC_GROUPS_CLAIM
    if settings.OIDC_ROLES and name in (claims.get(LEFT_OUT) or ()):
        raise ValueError(
            f"the claim {name} was left out because there are too many; let the provider send only "
            "the groups that are assigned to this site"
        )
    value = _claim(claims, name)
    if value is None:
        return ()
    if isinstance(value, Mapping):
        value = [group for group, held in value.items() if held not in (False, None)]
    groups = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(group, str) for group in groups):
        raise ValueError(f"the claim {name} is not a list of names")
    return groups


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim of that name, or of that path with dots (`realm_access.roles`); None if missing."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _with_logout(
    client: DjangoOAuth2App, identity: Identity, id_token: str, back_at: str
) -> Identity:
    """Add the address that ends the session at the provider too, where it offers one."""
    if "end_session_endpoint" not in client.server_metadata:
        return identity
    with _explained("offers a logout that cannot be used"):
        logout = client.create_logout_url(
            post_logout_redirect_uri=back_at,
            id_token_hint=id_token,
            client_id=settings.OIDC_CLIENT_ID,
        )
    return replace(identity, logout_url=logout["url"])

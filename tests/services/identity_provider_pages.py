"""The addresses of the provider's process: those of django-oauth-toolkit, a login by name, and what tests tell it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from jwcrypto import jwk, jwt
from oauth2_provider.models import Application
from oauth2_provider.oauth2_validators import OAuth2Validator

from tests.services.identity_provider import CLIENT_ID, CLIENT_SECRET

PEOPLE: dict[str, dict[str, Any]] = {}
LIES: dict[str, Any] = {}
FORM = """<!DOCTYPE html><title>Provider</title><form method="post"><label>Name <input name="name"></label>
<button>Log in at the provider</button></form>"""


class Validator(OAuth2Validator):
    """Says about people what the tests want."""

    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        """Return the claims of ID token and userinfo alike."""
        return dict(PEOPLE[request.user.get_username()]["claims"])

    def get_userinfo_claims(self, request: Any) -> dict[str, Any]:
        """Add what is said only here."""
        asked = PEOPLE[request.user.get_username()]["asked"]
        return super().get_userinfo_claims(request) | asked | LIES.get("userinfo", {})

    def finalize_id_token(self, id_token: dict[str, Any], *others: Any) -> str:
        """Sign the ID token, after lies."""
        signed: str = super().finalize_id_token(id_token, *others)
        if not ({"claims", "signature"} & LIES.keys()):
            return signed
        key, header = others[-1].client.jwk_key, jwt.JWT(jwt=signed).token.jose_header
        claims = json.loads(jwt.JWT(jwt=signed, key=key).claims) | LIES.get("claims", {})
        claims = {name: value for name, value in claims.items() if value is not None}
        return SIGNATURES[LIES.get("signature", "own")](header, claims, key)


def _signed(header: dict[str, Any], claims: dict[str, Any], key: jwk.JWK) -> str:
    token = jwt.JWT(header=header, claims=claims)
    token.make_signed_token(key)
    return str(token.serialize())


def _with_secret(header: dict[str, Any], claims: dict[str, Any], key: jwk.JWK) -> str:
    secret = jwk.JWK(kty="oct", k=urlsafe_b64encode(CLIENT_SECRET.encode()).decode().rstrip("="))
    return _signed({"typ": "JWT", "alg": "HS256"}, claims, secret)


def _unsigned(header: dict[str, Any], claims: dict[str, Any], key: jwk.JWK) -> str:
    parts = ({"typ": "JWT", "alg": "none"}, claims)
    return (
        ".".join(
            urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
        )
        + "."
    )


SIGNATURES: dict[str, Callable[[dict[str, Any], dict[str, Any], jwk.JWK], str]] = {
    "own": _signed,
    "another key": lambda header, claims, key: _signed(
        header, claims, jwk.JWK.generate(kty="RSA", size=2048)
    ),
    "secret": _with_secret,
    "none": _unsigned,
}


def misbehave(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Answer something else at the addresses that LIES["answers"] names, and describe the provider otherwise."""

    def answer(request: HttpRequest) -> HttpResponse:
        if lie := LIES.get("answers", {}).get(request.path):
            return HttpResponse(lie["body"] * lie.get("times", 1), status=lie.get("status", 200))
        response = get_response(request)
        if request.path.endswith("/openid-configuration") and "description" in LIES:
            return JsonResponse(json.loads(response.content) | LIES["description"])
        return response

    return answer


def log_in(request: HttpRequest) -> HttpResponse:
    """Ask for a name, and go on where the person came from."""
    if request.method != "POST":
        return HttpResponse(FORM)
    person = User.objects.get(username=request.POST["name"])
    login(request, person, backend="django.contrib.auth.backends.ModelBackend")
    return HttpResponseRedirect(request.GET["next"])


def tell_people(request: HttpRequest) -> HttpResponse:
    """Learn what to say about a person."""
    person = json.loads(request.body)
    PEOPLE[person["name"]] = person
    User.objects.get_or_create(username=person["name"])
    return HttpResponse()


def tell_client(request: HttpRequest) -> HttpResponse:
    """Learn where the client is."""
    site = json.loads(request.body)["site"]
    Application.objects.update_or_create(
        client_id=CLIENT_ID,
        defaults={
            "client_secret": CLIENT_SECRET,
            "client_type": Application.CLIENT_CONFIDENTIAL,
            "authorization_grant_type": Application.GRANT_AUTHORIZATION_CODE,
            "redirect_uris": f"{site}/sign-in/return/",
            "post_logout_redirect_uris": f"{site}/login/",
            "algorithm": Application.RS256_ALGORITHM,
            "skip_authorization": True,
        },
    )
    return HttpResponse()


def tell_lies(request: HttpRequest) -> HttpResponse:
    """Learn how to misbehave from now on."""
    LIES.clear()
    LIES.update(json.loads(request.body))
    return HttpResponse()


urlpatterns = [
    path("login/", log_in),
    path("tell/people/", csrf_exempt(tell_people)),
    path("tell/client/", csrf_exempt(tell_client)),
    path("tell/lies/", csrf_exempt(tell_lies)),
    path("favicon.ico", lambda _: HttpResponse(status=204)),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]

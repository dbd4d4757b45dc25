"""Passkeys (WebAuthn): challenges, new passkeys, and logging in or confirming with one.

No challenge is stored: it leaves the site signed, with its purpose and time, and a passkey answers only challenges
that are newer than the last one it answered. Every passkey is found by the browser alone and unlocked by its
owner (user verification), so it stands for two factors.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from fido2.server import Fido2Server
from fido2.utils import websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    AuthenticatorData,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from evalsite.access.factors import member_handle
from evalsite.access.models import Passkey, record_change
from evaluators.reading.json import read_json
from evaluators.scoring.types import DomainError

SITE_NAME = "Evalsite"
ANSWER_WITHIN = timedelta(minutes=5)
CHALLENGE_BYTES = 32
MAX_PASSKEYS = 20
MAX_ANSWER_LENGTH = 65_536
# The parts of an answer that the library makes bytes of: a number would become as many of them.
AS_BYTES = (
    *("id", "rawId", "clientDataJSON", "attestationObject", "authenticatorData", "signature"),
    "userHandle",
)
VERIFIED = UserVerificationRequirement.REQUIRED
# What the library raises for answers that no authenticator gives.
MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(NotImplementedError, RecursionError, struct.error),
)
LOGIN = "login"


class PasskeyRefusedError(DomainError):
    """A passkey was not accepted; the message says why."""

    code = "passkey_refused"

    def __init__(self, message: str, member: User | None = None) -> None:
        """Take the member whose passkey it is, if it is a known one."""
        super().__init__(message)
        self.member = member


def confirm_purpose(member: User) -> str:
    """Return the purpose of a challenge that confirms who is at the browser of a member."""
    return f"confirm {member.pk}"


def add_purpose(member: User) -> str:
    """Return the purpose of a challenge that adds a passkey of a member."""
    return f"add {member.pk}"


def site_origin(request: HttpRequest) -> str:
    """Return scheme, host and port of the site as a browser names them; of EVALSITE_URL where it is set."""
    if not settings.SITE_URL:
        return f"{request.scheme}://{request.get_host()}"
    parts = urlsplit(settings.SITE_URL)
    return f"{parts.scheme}://{parts.netloc}"


def passkeys_problem(request: HttpRequest) -> str:
    """Return why browsers offer no passkeys for this site; "" if they do."""
    origin = urlsplit(site_origin(request))
    host = origin.hostname or ""
    if ":" in host or host.replace(".", "").isdigit():
        return (
            f"Browsers keep passkeys for names, and {host} is a number. Open the site by its name"
            f"{', such as localhost' if host in ('127.0.0.1', '::1') else ''}."
        )
    if origin.scheme != "https" and host != "localhost" and not host.endswith(".localhost"):
        return "Browsers keep passkeys only for sites with https."
    return ""


def question(request: HttpRequest, purpose: str, member: User | None = None) -> dict[str, Any]:
    """Return what a browser needs to answer by a passkey: `options` for it, and the signed `state`."""
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    credentials = (
        [_credential(key) for key in Passkey.objects.filter(user=member)] if member else None
    )
    options, _ = _server(request).authenticate_begin(
        credentials, user_verification=VERIFIED, challenge=challenge
    )
    return {"options": dict(options)["publicKey"], "state": _sign(challenge, purpose)}


def question_for_new(request: HttpRequest, member: User) -> dict[str, Any]:
    """Return what a browser needs to make a passkey of the member."""
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    name = member.get_username()
    options, _ = _server(request).register_begin(
        PublicKeyCredentialUserEntity(id=member_handle(member), name=name, display_name=name),
        [_credential(key) for key in Passkey.objects.filter(user=member)],
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=VERIFIED,
        challenge=challenge,
    )
    return {"options": dict(options)["publicKey"], "state": _sign(challenge, add_purpose(member))}


def add_passkey(
    request: HttpRequest, member: User, *, name: str, answer: str, state: str
) -> Passkey:
    """Store the passkey that a browser has made.

    Raises:
        PasskeyRefusedError: the answer is malformed, late, for another site or person, or known, or the member has
            as many passkeys as one may have.

    """
    challenge, _ = _read_state(state, add_purpose(member))
    try:
        data = _server(request).register_complete(challenge, _read_answer(answer))
    except MALFORMED as error:
        raise PasskeyRefusedError(_reason(error)) from error
    credential = data.credential_data
    if credential is None:
        raise PasskeyRefusedError("The passkey was not accepted: it has no key.")
    try:
        with transaction.atomic():
            # Several that are added at once are counted one after the other.
            User.objects.select_for_update(no_key=True).get(pk=member.pk)
            if Passkey.objects.filter(user=member).count() >= MAX_PASSKEYS:
                raise PasskeyRefusedError(f"You have {MAX_PASSKEYS} passkeys, which is the limit.")
            passkey = Passkey.objects.create(
                user=member,
                name=name,
                credential_id=websafe_encode(credential.credential_id),
                credential=bytes(credential),
                sign_count=data.counter,
            )
            record_change(member, "member.passkey_added", member, after={"passkey": name})
    except IntegrityError as error:
        raise PasskeyRefusedError("This passkey is stored already.") from error
    return passkey


def use_passkey(
    request: HttpRequest, *, purpose: str, answer: str, state: str, member: User | None = None
) -> Passkey:
    """Return the passkey that answered a challenge, which it will not answer again; its member is active.

    Raises:
        PasskeyRefusedError: the answer is malformed, late, given before, for another site or purpose, of an unknown
            passkey, or of another member's than `member`.

    """
    challenge, asked_at = _read_state(state, purpose)
    passkey = None
    try:
        response = AuthenticationResponse.from_dict(_read_answer(answer))
        passkey = _find(response.id)
        _server(request).authenticate_complete(challenge, [_credential(passkey)], response)
        data = response.response.authenticator_data
    except MALFORMED as error:
        member = passkey.user if passkey else None
        raise PasskeyRefusedError(_reason(error), member) from error
    _note_use(passkey, data, asked_at)
    if member is not None and passkey.user_id != member.pk:
        raise PasskeyRefusedError("This passkey is another member's.", member)
    return passkey


def _reason(error: BaseException) -> str:
    is_told = type(error) is ValueError and str(error)
    reason = str(error).rstrip(".") if is_told else "its answer is malformed"
    return f"The passkey was not accepted: {reason}."


def _find(credential_id: str) -> Passkey:
    known = Passkey.objects.select_related("user").filter(user__is_active=True)
    passkey = known.filter(credential_id=credential_id).first()
    if passkey is None:
        raise PasskeyRefusedError(
            "This site does not know the passkey. It may have been removed from your account."
        )
    return passkey


def _note_use(passkey: Passkey, data: AuthenticatorData, asked_at: datetime) -> None:
    """Store the use, so that neither this answer nor an older one works again."""
    if passkey.sign_count and data.counter <= passkey.sign_count:
        raise PasskeyRefusedError(
            "The passkey's counter went back, so there may be a copy of it. Log in another way and remove it.",
            passkey.user,
        )
    older = Q(last_challenge_at=None) | Q(last_challenge_at__lt=asked_at)
    unused = Passkey.objects.filter(older, pk=passkey.pk)
    used = {"last_challenge_at": asked_at, "last_used_at": timezone.now()}
    if not unused.update(**used, sign_count=data.counter):
        raise PasskeyRefusedError("This answer was used before. Try again.", passkey.user)


def _server(request: HttpRequest) -> Fido2Server:
    origin = site_origin(request)

    # By default any subdomain would do, and the refusal names neither address.
    def verify_origin(answered: str) -> bool:
        if answered != origin:
            raise ValueError(f"it was used at {answered}, and this site is {origin}")
        return True

    party = PublicKeyCredentialRpEntity(id=urlsplit(origin).hostname, name=SITE_NAME)
    return Fido2Server(party, verify_origin=verify_origin)


def _credential(passkey: Passkey) -> AttestedCredentialData:
    return AttestedCredentialData(bytes(passkey.credential))


def _sign(challenge: bytes, purpose: str) -> str:
    asked_at = timezone.now().isoformat()
    return signing.dumps([websafe_encode(challenge), asked_at], salt=f"evalsite.passkeys.{purpose}")


def _read_state(state: str, purpose: str) -> tuple[dict[str, Any], datetime]:
    """Return the challenge as the library takes it, and when it was made."""
    try:
        challenge, asked = signing.loads(state, salt=f"evalsite.passkeys.{purpose}")
    except signing.BadSignature as error:
        raise PasskeyRefusedError(
            "The passkey's answer does not belong to this page. Try again."
        ) from error
    asked_at = datetime.fromisoformat(asked)
    if timezone.now() - asked_at > ANSWER_WITHIN:
        raise PasskeyRefusedError("The passkey was used too late. Try again.")
    return {"challenge": challenge, "user_verification": VERIFIED}, asked_at


def _read_answer(answer: str) -> Mapping[str, Any]:
    if len(answer) > MAX_ANSWER_LENGTH:
        raise ValueError("the answer is too long")
    read = read_json(answer)
    if not isinstance(read, dict):
        raise ValueError("the answer is not a JSON object")
    response = read.get("response")
    for part in (read, response if isinstance(response, dict) else {}):
        for name in AS_BYTES:
            if not isinstance(part.get(name), str | None):
                raise ValueError(f"{name} is not a text")
    return read

"""Second factors in software: passkeys that answer challenges as browsers do, and an app that shows codes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from fido2.cose import ES256
from fido2.utils import sha256, websafe_encode
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

from evalsite.access import factors
from tests.support.clock import Clock

FLAG = AuthenticatorData.FLAG
VERIFIED = FLAG.UP | FLAG.UV


class Authenticator:
    """One passkey for one site; `counter` is what it reports next."""

    def __init__(self, origin: str = "http://testserver", *, rp_id: str = "testserver") -> None:
        """Make the key."""
        self.origin, self.rp_id = origin, rp_id
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = sha256(self.key.private_numbers().private_value.to_bytes(32, "big"))
        self.counter = 0

    @property
    def credential(self) -> bytes:
        """Return its id and public key, as a site stores them."""
        public = ES256.from_cryptography_key(self.key.public_key())
        return bytes(AttestedCredentialData.create(b"\0" * 16, self.id, public))

    def make(self, options: Mapping[str, Any], **changes: Any) -> str:
        """Return the answer to a question for a new passkey."""
        data = AuthenticatorData.create(
            sha256(self.rp_id.encode()),
            changes.get("flags", VERIFIED) | FLAG.AT,
            self.counter,
            self.credential,
        )
        client = self._client_data("webauthn.create", options, changes)
        response = {
            "clientDataJSON": websafe_encode(client),
            "attestationObject": websafe_encode(AttestationObject.create("none", data, {})),
        }
        return self._answer(response)

    def answer(self, options: Mapping[str, Any], **changes: Any) -> str:
        """Return the answer to a question for a login or confirmation."""
        data = AuthenticatorData.create(
            sha256(self.rp_id.encode()), changes.get("flags", VERIFIED), self.counter
        )
        client = self._client_data("webauthn.get", options, changes)
        signature = self.key.sign(data + sha256(client), ec.ECDSA(SHA256()))
        response = {
            "clientDataJSON": websafe_encode(client),
            "authenticatorData": websafe_encode(data),
            "signature": websafe_encode(changes.get("signature", signature)),
        }
        return self._answer(response)

    def _client_data(
        self, kind: str, options: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> bytes:
        return CollectedClientData.create(
            type=changes.get("type", kind),
            challenge=changes.get("challenge", options["challenge"]),
            origin=changes.get("origin", self.origin),
        )

    def _answer(self, response: Mapping[str, str]) -> str:
        credential_id = websafe_encode(self.id)
        return json.dumps(
            {
                "id": credential_id,
                "rawId": credential_id,
                "type": "public-key",
                "response": response,
                "clientExtensionResults": {},
            }
        )


def shown_code(secret: str, now: datetime | None = None) -> str:
    """Return what an app shows, computed by the library itself."""
    app = TOTP(base64.b32decode(secret), 6, SHA1(), 30)
    return app.generate(int((now or timezone.now()).timestamp())).decode()


def give_app(member: User, clock: Clock) -> str:
    """Set up an app and go on to its next code."""
    secret = factors.new_secret()
    assert factors.add_app(member, secret, shown_code(secret), now=timezone.now())
    clock.advance(seconds=60)
    return secret


def ask_passkey(client: Client, path: str) -> tuple[dict[str, Any], str]:
    """Return the options for the browser, and the state that goes back."""
    question = client.get(path).json()
    return question["options"], question["state"]

"""An authenticator in software: makes passkeys and answers challenges as browsers send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import sha256, websafe_encode
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

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

    def make(self, options: Mapping[str, Any], **changes: Any) -> str:
        """Return the answer to a question for a new passkey."""
        public = ES256.from_cryptography_key(self.key.public_key())
        credential = AttestedCredentialData.create(b"\0" * 16, self.id, public)
        data = AuthenticatorData.create(
            sha256(self.rp_id.encode()),
            changes.get("flags", VERIFIED) | FLAG.AT,
            self.counter,
            bytes(credential),
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

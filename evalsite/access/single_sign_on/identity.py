"""Who somebody is at the provider, and what a browser keeps while it is there."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.scoring.types import DomainError


class ProviderError(DomainError):
    """The provider does not answer, answers what it must not, or does not fit the settings."""

    code = "provider"


class ProviderDownError(ProviderError):
    """The provider cannot be reached, or fails; nothing that was sent to it was wrong."""

    code = "provider_down"


@dataclass(frozen=True, slots=True)
class Journey:
    """What the browser keeps while it is at the provider, and the path it continues to.

    `confirms` if somebody who is logged in proves again who it is; `began_at` in seconds of Unix time.
    """

    state: str
    nonce: str
    code_verifier: str
    next_path: str
    began_at: int
    confirms: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is, according to the provider; `email` is "" unless it is verified.

    `checked_at` is when the provider last saw a password or the like, in seconds of Unix time; 0 if it does not say.
    """

    issuer: str
    subject: str
    name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()
    checked_at: int = 0
    logout_url: str = ""

    @property
    def shown(self) -> str:
        """Return what an admin recognises the person by."""
        return self.email or self.name or self.subject

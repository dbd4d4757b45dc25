"""Keys of language models: encrypted at rest, or named by an environment variable; never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from evaluators.models import LanguageModel

VARIABLE_PREFIX = "EVALSITE_MODEL_KEY_"
OPENAI_VARIABLE = "OPENAI_API_KEY"


class KeyUnreadableError(DomainError):
    """A stored key was encrypted with another encryption key than the one in force."""

    code = "key_unreadable"


@dataclass(frozen=True, slots=True)
class ModelKey:
    """The key to send, hidden from every representation, or why there is none to send."""

    value: str
    problem: str = ""

    def __repr__(self) -> str:
        """Return whether there is a key, never the key."""
        return f"ModelKey({'set' if self.value else 'none'}, problem={self.problem!r})"


def encrypt(key: str) -> str:
    """Return the key as the database may hold it."""
    return _cipher().encrypt(key.encode()).decode("ascii")


def decrypt(stored: str) -> str:
    """Return the key; raises KeyUnreadableError when the encryption key is another one."""
    try:
        return _cipher().decrypt(stored.encode("ascii")).decode()
    except InvalidToken as error:
        raise KeyUnreadableError(
            "The stored key cannot be read: EVALSITE_ENCRYPTION_KEY is not the one it was "
            "stored with. Enter the key again."
        ) from error


def is_allowed_variable(name: str) -> bool:
    """Return whether a key may be taken from this environment variable.

    Only these: any other would let an editor of models send a secret of the server to an address
    of his choice.
    """
    return name == OPENAI_VARIABLE or (name.startswith(VARIABLE_PREFIX) and name != VARIABLE_PREFIX)


def key_of(model: LanguageModel) -> ModelKey:
    """Return the model's key; a model that needs none has an empty one and no problem."""
    if model.encrypted_key:
        try:
            return ModelKey(decrypt(model.encrypted_key))
        except KeyUnreadableError as error:
            return ModelKey("", str(error))
    if not model.key_variable:
        return ModelKey("")
    if not is_allowed_variable(model.key_variable):
        return ModelKey("", f"{model.key_variable} may not be used as a model's key.")
    value = settings.MODEL_KEYS.get(model.key_variable, "")
    if not value:
        return ModelKey("", f"The variable {model.key_variable} is not set.")
    if not is_sendable(value):
        return ModelKey("", f"{model.key_variable} holds characters that no key has.")
    return ModelKey(value)


def is_sendable(key: str) -> bool:
    """Return whether the key can travel in a header: visible ASCII characters only."""
    return key.isascii() and key.isprintable() and " " not in key


def key_source(model: LanguageModel) -> str:
    """Return where the key comes from in words for a page: stored, from a variable, or none."""
    if model.encrypted_key:
        return "stored"
    return f"from {model.key_variable}" if model.key_variable else "none"


def _cipher() -> MultiFernet:
    # The first key encrypts, all of them decrypt: so the key can be changed without entering all again.
    return MultiFernet([Fernet(key.strip()) for key in settings.ENCRYPTION_KEY.split(",")])

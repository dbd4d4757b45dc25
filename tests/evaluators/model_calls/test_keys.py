"""Keys at rest: encrypted, changeable, and only from variables meant for them."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.conf import settings

from evaluators.model_calls.models import (
    KeyUnreadableError,
    ModelKey,
    decrypt,
    encrypt,
    is_allowed_variable,
    is_sendable,
    key_source,
    model_key,
)
from evaluators.models import LanguageModel

SECRET = "sk-very-secret-0123456789"


def test_a_key_is_encrypted_and_comes_back() -> None:
    assert SECRET not in encrypt(SECRET)
    assert encrypt(SECRET) != encrypt(SECRET)
    assert decrypt(encrypt(SECRET)) == SECRET


def test_a_changed_encryption_key_still_reads_what_the_old_one_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    monkeypatch.setattr(settings, "ENCRYPTION_KEY", old)
    stored = encrypt(SECRET)

    monkeypatch.setattr(settings, "ENCRYPTION_KEY", f"{new}, {old}")
    assert decrypt(stored) == SECRET
    rewritten = encrypt(SECRET)
    monkeypatch.setattr(settings, "ENCRYPTION_KEY", new)
    assert decrypt(rewritten) == SECRET
    with pytest.raises(KeyUnreadableError, match="Enter the key again"):
        decrypt(stored)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_KEY", True),
        ("EVALSITE_MODEL_KEY_HOUSE", True),
        ("EVALSITE_MODEL_KEY_", False),
        ("EVALSITE_SECRET_KEY", False),
        ("DATABASE_URL", False),
        ("openai_api_key", False),
        ("", False),
    ],
)
def test_only_variables_meant_for_keys_may_be_named(name: str, expected: bool) -> None:
    assert is_allowed_variable(name) is expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [("sk-abc_123.=/+", True), ("sk abc", False), ("sk-\n", False), ("ключ", False)],
)
def test_only_visible_ascii_travels_in_a_header(key: str, expected: bool) -> None:
    assert is_sendable(key) is expected


def test_a_key_is_hidden_from_representations() -> None:
    assert SECRET not in repr(ModelKey(SECRET))


def test_each_way_to_have_a_key_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        settings, "MODEL_KEYS", {"OPENAI_API_KEY": SECRET, "EVALSITE_MODEL_KEY_BAD": "a b"}
    )

    def found(**columns: str) -> tuple[str, str, str]:
        model = LanguageModel(**columns)
        key = model_key(model)
        return key.value, key.problem, key_source(model)

    assert found() == ("", "", "none")
    assert found(encrypted_key=encrypt(SECRET)) == (SECRET, "", "stored")
    assert found(key_variable="OPENAI_API_KEY") == (SECRET, "", "from OPENAI_API_KEY")
    assert "not set" in found(key_variable="EVALSITE_MODEL_KEY_GONE")[1]
    assert "not allowed in a key" in found(key_variable="EVALSITE_MODEL_KEY_BAD")[1]
    assert "may not be used" in found(key_variable="EVALSITE_SECRET_KEY")[1]

"""The keys of a site: made once, readable by their owner alone."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from evalsite.data_folder import new_encryption_key, new_secret_key, read_or_make_key


def test_a_key_is_made_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret_key"
    key = read_or_make_key(path, new_secret_key)
    assert len(key) >= 50
    assert read_or_make_key(path, new_secret_key) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


def test_simultaneous_first_starts_share_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(
            pool.map(lambda _: read_or_make_key(tmp_path / "key", new_secret_key), range(32))
        )
    assert len(keys) == 1


def test_the_encryption_key_encrypts() -> None:
    cipher = Fernet(new_encryption_key())
    assert cipher.decrypt(cipher.encrypt(b"hush")) == b"hush"


def test_a_folder_that_cannot_be_created_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        read_or_make_key(tmp_path / "file" / "key", new_secret_key)

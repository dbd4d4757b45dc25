"""Prompts that stand in files of the suite instead of in the evaluator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import normpath
from typing import TypeGuard

REFERENCE = re.compile(r"\A(?:file:(?://)?)?(\.{1,2}/\S+|[\w./-]+\.(?:md|txt|prompt|j2))\Z")


def is_reference(value: object) -> TypeGuard[str]:
    """Tell a file's name (`./prompts/tone.md`, `file://tone.md`) from a text."""
    return isinstance(value, str) and bool(REFERENCE.match(value.strip()))


def path_of(reference: str, folder: str = "") -> str:
    """Return the path a reference means, seen from a folder of the suite; "" when it leads outside."""
    match = REFERENCE.match(reference.strip())
    named = match.group(1) if match else reference.strip()
    path = normpath(f"{folder}/{named}" if folder else named)
    return "" if path.startswith(("..", "/")) else path


def text_of(reference: str, files: Mapping[str, bytes]) -> str:
    """Return the text of the file; raises ValueError naming a file that is missing or no text."""
    path = path_of(reference)
    if path not in files:
        raise ValueError(f"the file {reference.strip()!r} is not among the files of the suite")
    try:
        return files[path].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {reference.strip()!r} is not text in UTF-8") from error


def text_or_file(value: str, files: Mapping[str, bytes]) -> str:
    """Return a prompt: the text itself or that of the file it names; raises ValueError like text_of."""
    return text_of(value, files) if is_reference(value) else value

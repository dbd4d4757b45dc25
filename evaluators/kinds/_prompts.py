"""The several ways suite files give a judge its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WRITTEN_AS = ("prompt", "value", "criteria")
TEXTS = ("text", "value")
FILES = ("file", "path")
PROGRAMS = ("command", "script")


def lists_criteria(mapping: Mapping[str, Any]) -> bool:
    """Tell whether the settings of a judge are those of a rubric: criteria in a list."""
    return "rubrics" in mapping or any(
        isinstance(mapping.get(name), list) for name in ("value", "criteria")
    )


def read_prompt(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the prompt under its own name, whichever way it is written.

    Raises ValueError for two of them, and for a prompt that a program is to write.
    """
    found = dict(mapping)
    given = [name for name in WRITTEN_AS if found.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]} both say what to judge by; keep one of them")
    for name in given:
        found["prompt"] = _text(found.pop(name))
    return found


def _text(prompt: Any) -> Any:
    """Return the text or the name of the file that a prompt is."""
    if not isinstance(prompt, Mapping):
        return prompt
    if any(name in prompt for name in PROGRAMS):
        said = "a prompt that a program writes is not supported"
        raise ValueError(f"prompt: {said}; write it as a text or name its file")
    texts = [prompt[name] for name in TEXTS if isinstance(prompt.get(name), str)]
    files = [prompt[name] for name in FILES if isinstance(prompt.get(name), str)]
    if len(texts) + len(files) != 1 or len(prompt.keys() - {"type"}) != 1:
        raise ValueError("prompt: is no text; write a text, a file's name or {file: its name}")
    return texts[0] if texts else _reference(files[0])


def _reference(name: str) -> str:
    return name if name.startswith((".", "file:")) else f"./{name}"

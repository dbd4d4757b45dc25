"""Which secret header values a form of a target has: typed now, typed for a try, or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from evaluators.judging.keys import encrypt
from runs.models import Target, TargetTrial
from runs.targets._headers import origin_of

Secrets = Mapping[str, str]


def kept_secrets(target: Target | None, trial: TargetTrial | None) -> dict[str, tuple[str, str]]:
    """Return encrypted values by name, each with the server it was entered for.

    What was typed for the last try stands before what the target stores.
    """
    found: dict[str, tuple[str, str]] = {}
    for holder in (target, trial):
        if holder is not None:
            origin = origin_of(holder.config.get("url", ""))
            found |= {name: (value, origin) for name, value in holder.encrypted_secrets.items()}
    return found


def settled_secrets(
    rows: Sequence[Mapping[str, Any]], kept: Mapping[str, tuple[str, str]], url: Any
) -> dict[str, str]:
    """Return the encrypted values that the secret headers have now.

    Raises ValidationError for a header without a value, and for one whose value was entered for
    another server: it is not sent where nobody meant it to go.
    """
    settled: dict[str, str] = {}
    for row in rows:
        if not row["secret"]:
            continue
        name = row["name"].lower()
        if row["value"]:
            settled[name] = encrypt(row["value"])
            continue
        if name not in kept:
            raise forms.ValidationError(f"{row['name']} is secret and has no value yet. Enter it.")
        value, origin = kept[name]
        if origin != origin_of(url):
            raise forms.ValidationError(
                f"The value of {row['name']} was entered for {origin} and is not sent to "
                f"{origin_of(url)}. Enter it again."
            )
        settled[name] = value
    return settled


def header_settings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as a config holds them: secret ones by name alone."""
    return [
        {"name": row["name"], "secret": True}
        if row["secret"]
        else {"name": row["name"], "value": row["value"]}
        for row in rows
    ]

"""Values with their keys in camelCase, for readers who go by those names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What stands under these goes by names of evaluators and dimensions, which are no keys of ours.
OWN_NAMES = {"weights", "deterministic_dimensions", "judge_dimensions", "final_dimensions"}


def in_camel_case(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with their keys in camelCase; names that users gave stay as they are."""
    return {
        _camel(key): value if key in OWN_NAMES else _parts_in_camel_case(value)
        for key, value in values.items()
    }


def _parts_in_camel_case(value: Any) -> Any:
    if isinstance(value, Mapping):
        return in_camel_case(value)
    return [_parts_in_camel_case(one) for one in value] if isinstance(value, list) else value


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)

"""Fields of a JSON answer as suite files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds._spelling import normal_spelling

AGGREGATIONS = {"weighted_average": "average"}
MATCHES = {"numeric": "numeric_tolerance", "equals": "exact"}
EXPECTED_NAMES = ("value", "pattern")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of a field."""
    found = dict(mapping)
    aggregation = found.get("aggregation")
    if isinstance(aggregation, str):
        found["aggregation"] = AGGREGATIONS.get(aggregation, aggregation)
    if isinstance(found.get("fields"), list):
        found["fields"] = [_field(one) for one in found["fields"]]
    return found


def _field(given: Any) -> Any:
    """Return a field of a file under our names; `required: 0.7` is its least score."""
    if not isinstance(given, Mapping):
        return given
    found = {normal_spelling(str(key)): value for key, value in given.items()}
    for spelling in EXPECTED_NAMES:
        if spelling in found and "expected" not in found:
            found["expected"] = found.pop(spelling)
    if isinstance(found.get("match"), str):
        found["match"] = MATCHES.get(found["match"], found["match"])
    required = found.get("required")
    if isinstance(required, int | float) and not isinstance(required, bool):
        found["min_score"] = found.pop("required")
    return found

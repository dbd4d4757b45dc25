"""The settings of an evaluator of fields, read as they are written."""

from __future__ import annotations

from typing import Any

from evaluators.kinds import read_config
from evaluators.kinds.field_accuracy import FieldAccuracyConfig

KIND = "field_accuracy"


def read(fields: list[Any]) -> FieldAccuracyConfig:
    found = read_config(KIND, {"fields": fields})
    assert isinstance(found, FieldAccuracyConfig)
    return found

"""The generations of suite files: what the same words meant in AgentV's, and what cannot be done here.

Evalsite's own files list their evaluators under `evaluators` at the top, or set what only they have. AgentV's
early files hold `evalcases`; the later ones hold `tests`, which they grade by `assertions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.text_check import TRIMMABLE
from runs.formats.lines import CASES_KEYS

OWN_KEYS = {"evaluators", "aggregator", "policy", "verdicts", "judge", "profile", "title"}
AGENTV_KEYS = {"dataset", "target", "targets", "providers", "prompts", "workspace", "experiment"}
EARLY_KEYS = {"evalcases", "eval_cases"}
EARLY_CASE_KEYS = {"input_messages", "expected_messages", "expected_outcome"}
AGENTV_FILE = re.compile(r"(\A|\.)eval\.ya?ml\Z", re.IGNORECASE)
# Cases of one file are written alike.
CASES_READ = 20
# The score at which an evaluator passes there.
PASSING_SCORE = 0.8
ENVIRONMENT_VARIABLE = re.compile(r"\$\{\{\s*[A-Za-z_][A-Za-z0-9_]*\s*\}\}")


class Generation(Enum):
    """Who wrote a suite file: Evalsite, or AgentV before or after its cases were called tests."""

    OWN = "own"
    EARLY = "early"
    LATER = "later"


def find_generation(value: Any, file: str) -> Generation:
    """Return the generation of a suite file by its keys and its name; Evalsite's own without any sign."""
    if not isinstance(value, Mapping):
        return Generation.OWN
    suite = {normal_spelling(str(key)): part for key, part in value.items()}
    if suite.keys() & OWN_KEYS:
        return Generation.OWN
    cases = {key for case in _first_cases(suite) for key in map(normal_spelling, map(str, case))}
    if suite.keys() & EARLY_KEYS or cases & EARLY_CASE_KEYS:
        return Generation.EARLY
    execution = suite.get("execution")
    names_target = isinstance(execution, Mapping) and {"target", "targets"} & execution.keys()
    is_named = AGENTV_FILE.search(PurePosixPath(file).name)
    is_theirs = bool(suite.keys() & AGENTV_KEYS or names_target or is_named)
    return Generation.LATER if is_theirs else Generation.OWN


def _first_cases(suite: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in CASES_KEYS:
        cases = suite.get(name)
        if isinstance(cases, list):
            yield from (case for case in islice(cases, CASES_READ) if isinstance(case, Mapping))


def with_meaning(
    generation: Generation, kind: str, preset: Mapping[str, Any], settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the settings of an evaluator in a file, with what its generation means by their words.

    `preset` is what the name of its kind in the file sets by itself. AgentV compares texts without the white
    space at their ends, and its later files compare arguments exactly. There a required field is one that may
    not be missing; it fails no result. Execution metrics score the share of limits kept; token usage scores 0
    for any breach, as here.
    """
    if generation is Generation.OWN:
        return settings
    if kind == "text_check" and settings.get("operator") in TRIMMABLE:
        return {"trim": True, **settings}
    if kind == "tool_trajectory" and generation is Generation.LATER:
        return {"args_match": "exact", **settings}
    if (
        kind == "execution_metrics"
        and not preset
        and not (settings.get("proportional") or settings.get("zero_at"))
    ):
        return {"share_kept": True, **settings}
    if kind == "field_accuracy" and isinstance(settings.get("fields"), list):
        return {**settings, "fields": [_field(field) for field in settings["fields"]]}
    return settings


def _field(field: Any) -> Any:
    if not isinstance(field, Mapping) or not isinstance(field.get("required"), bool):
        return field
    rest = {key: value for key, value in field.items() if key != "required"}
    return rest if field["required"] else {"optional": True, **rest}


def environment_variables(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, str]]:
    """Yield the place of each text with a `${{ VARIABLE }}`, and the first such variable in it."""
    if isinstance(value, str):
        if match := ENVIRONMENT_VARIABLE.search(value):
            yield path, match.group()
        return
    parts = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, Mapping) else parts:
        yield from environment_variables(part, (*path, key))

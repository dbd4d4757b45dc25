"""The several ways suite files write checks, dimensions and expectations of a hybrid judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds import text_check
from evaluators.kinds._hybrid_checks import SCRIPT, TAKES
from evaluators.kinds._hybrid_dimensions import default_dimensions
from evaluators.kinds._metrics import key_of
from evaluators.kinds._scripts import named_settings
from evaluators.kinds._spelling import normal_spelling

RENAMED = {
    **{"iterations": "samples", "judge_iterations": "samples", "repetitions": "samples"},
    **{"deterministic_checks": "checks", "policies": "dimension_policies"},
}
EXPECTATIONS = ("hard_expectations", "soft_expectations")
CHECK_NAMES = {
    **{"check_id": "name", "id": "name", "kind": "type", "operator": "type"},
    **{"file": "path", "artifact": "path", "tool_name": "tool", "dimension": "dimensions"},
    **{"min_calls": "min", "max_calls": "max", "pattern": "value", "text": "value"},
    **{"contains": "value", "schema": "json_schema", "expected": "value"},
}
# Scripts that read JSON, as evaluators of these types do.
STDIN_SCRIPTS = ("code_judge", "code_grader")
CHECK_TYPES = {
    **{"final_response": "final_response_present", "tool_calls": "tool_call_count"},
    **{"path_exists": "file_exists", "artifact_exists": "file_exists"},
    **{"output_artifact_present": "file_exists", "file_present": "file_exists"},
    **{"artifact_contains": "file_contains", "status": "status_is"},
    **dict.fromkeys(STDIN_SCRIPTS, SCRIPT),
}
SCRIPT_NAMES = {
    name: meant for name, meant in CHECK_NAMES.items() if meant in ("name", "type", "dimensions")
}
NESTED = ("declarative", "python", "with", "config")
EXACT_COUNT = ("count", "exactly", "equals")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of a hybrid judge.

    Raises ValueError for what stands twice and for a dimension that is not among those judged.
    """
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        name = RENAMED.get(key, key)
        if name in found:
            raise ValueError(f"{key} says the same as {name}; keep one of them")
        found[name] = value
    found = _with_expectations(found)
    if isinstance(found.get("checks"), list):
        found["checks"] = [_check(one) for one in found["checks"]]
    if "dimensions" in found:
        found["dimensions"] = _dimensions(found["dimensions"])
    if (policies := found.pop("dimension_policies", None)) is not None:
        found["dimensions"] = _changed(found.get("dimensions"), policies, "policy")
    if (weights := found.pop("dimension_weights", None)) is not None:
        found["dimensions"] = _changed(found.get("dimensions"), weights, "weight")
        found.setdefault("score_from", "dimension_weights")
    return found


def _with_expectations(found: dict[str, Any]) -> dict[str, Any]:
    given = found.pop("expectations", None)
    if given is None:
        return found
    if not isinstance(given, Mapping):
        raise ValueError(
            "expectations: is no mapping; write hard_expectations and soft_expectations"
        )
    for key, value in given.items():
        name = normal_spelling(str(key))
        name = name if name in EXPECTATIONS else f"{name}_expectations"
        if name in found:
            raise ValueError(f"expectations: {key} stands beside {name}; keep one of them")
        found[name] = value
    return found


def _check(one: Any) -> Any:
    if isinstance(one, str):
        return {"type": _type(one)}
    if not isinstance(one, Mapping):
        return one
    spelt = _flat(_spelt(one))
    if "type" not in spelt and not {"kind", "operator"} & spelt.keys():
        spelt = _named_by_type(spelt)
    found: dict[str, Any] = {}
    # The path of a script is its program, and what it is told under config is for it alone.
    names = CHECK_NAMES if _type(str(spelt.get("type", ""))) != SCRIPT else SCRIPT_NAMES
    for key, value in spelt.items():
        name = names.get(key, key)
        if name in found:
            raise ValueError(f"checks: {key} says the same as {name}; keep one of them")
        found[name] = value
    return _meant(found)


def _flat(spelt: dict[str, Any]) -> dict[str, Any]:
    """Return a check with what it nests under a word of its own beside the rest."""
    is_script = _type(str(spelt.get("type", ""))) == SCRIPT
    for name in () if is_script else NESTED:
        inner = spelt.get(name)
        if isinstance(inner, Mapping):
            del spelt[name]
            spelt |= _spelt(inner)
    return spelt


def _spelt(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {normal_spelling(str(key)): value for key, value in mapping.items()}


def _named_by_type(spelt: dict[str, Any]) -> dict[str, Any]:
    """Return a check whose type is the key of its value (`contains: refund`) in the long form."""
    known = {*TAKES, *CHECK_TYPES, *text_check.NEEDS, "equals", "contains", "regex"}
    named = [key for key in spelt if key in known | {"starts_with", "ends_with"}]
    if len(named) != 1:
        return spelt
    value = spelt.pop(named[0])
    kind = _type(named[0])
    if isinstance(value, Mapping) and kind != "json_schema":
        return {"type": kind, **_spelt(value), **spelt}
    settings = {"script": "script", "status_is": "status", "tool_call_count": "count"}
    at = "path" if kind == "file_exists" else settings.get(kind, "value")
    return {"type": kind, **({} if value in (True, None) else {at: value}), **spelt}


def _meant(found: dict[str, Any]) -> dict[str, Any]:
    kind = _type(str(found.get("type", "")))
    exact = [name for name in EXACT_COUNT if name in found]
    if kind == "tool_call_count" and exact:
        found |= {"min": found[exact[0]], "max": found.pop(exact[0])}
    if isinstance(found.get("name"), int):
        found["name"] = str(found["name"])
    if isinstance(found.get("dimensions"), str):
        found["dimensions"] = [found["dimensions"]]
    if isinstance(found.get("dimensions"), list):
        found["dimensions"] = [key_of(str(name)) for name in found["dimensions"]]
    if kind == SCRIPT:
        is_stdin = normal_spelling(str(found["type"])) in STDIN_SCRIPTS
        protocol = {"protocol": "stdin"} if is_stdin else {}
        return {**protocol, **named_settings(found), "type": kind}
    if kind in TAKES or "type" not in found:
        return {**found, "type": kind} if "type" in found else found
    spellings = text_check.score.kind_facts["spellings"]  # type: ignore[attr-defined]  # set by its mark
    preset = {"operator": kind, **spellings.get(kind, {})}
    read_as = text_check.read({**found, **preset})
    operator = read_as.pop("operator")
    return {**read_as, "type": operator}


def _type(name: str) -> str:
    spelt = normal_spelling(name)
    return CHECK_TYPES.get(spelt, spelt)


def _dimensions(given: Any) -> Any:
    """Return dimensions as a list: a mapping gives each its policy, weight or facts by its key."""
    if isinstance(given, Mapping):
        return [
            {"key": str(key), **_facts(facts, "policy" if isinstance(facts, str) else "weight")}
            for key, facts in given.items()
        ]
    if not isinstance(given, list):
        return given
    return [_facts(one, "") if isinstance(one, Mapping) else one for one in given]


def _changed(given: Any, facts: Any, name: str) -> Any:
    """Return the dimensions with a policy or weight of some of them changed."""
    if not isinstance(facts, Mapping):
        raise ValueError(f"dimension {name}: is no mapping; write it by the key of its dimension")
    listed = [one.key for one in default_dimensions()] if given is None else given
    if not isinstance(listed, list):
        return given
    rows = [{"key": one} if isinstance(one, str) else one for one in listed]
    known = {key_of(str(row.get("key"))) for row in rows if isinstance(row, Mapping)}
    told = {key_of(str(key)): _facts(value, name) for key, value in facts.items()}
    if unknown := sorted(told.keys() - known):
        raise ValueError(f"{unknown[0]!r} is not one of the dimensions {', '.join(sorted(known))}")
    return [
        {**row, **told.get(key_of(str(row.get("key"))), {})} if isinstance(row, Mapping) else row
        for row in rows
    ]


def _facts(facts: Any, name: str) -> dict[str, Any]:
    if not isinstance(facts, Mapping):
        return {name: facts}
    spelt = _spelt(facts)
    for other in ("name", "id", "dimension"):
        if other in spelt and "key" not in spelt:
            spelt["key"] = spelt.pop(other)
    return spelt

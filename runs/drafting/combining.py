"""What a composite says of its children by name: their weights, and which of them are gates.

Names are the only thing that ties an aggregator to the children, so whoever renames, moves or
removes one has to carry this along.
"""

from __future__ import annotations

from typing import Any


def options_of(composite: dict[str, Any]) -> dict[str, Any]:
    """Return the aggregator of a composite, to be changed in place."""
    options: dict[str, Any] = composite["config"].setdefault("aggregator", {})
    return options


def weight_in_force(composite: dict[str, Any], child: dict[str, Any]) -> float:
    """Return what a child weighs: the aggregator's word, else its own (SCORING §3)."""
    weights = options_of(composite).get("weights") or {}
    weight: float = weights.get(child["name"], child["weight"])
    return weight


def weigh(composite: dict[str, Any], child: dict[str, Any], weight: float) -> None:
    """Set the weight where it is in force: with the aggregator if that names the child."""
    weights = options_of(composite).get("weights") or {}
    if child["name"] in weights:
        options_of(composite)["weights"] = {**weights, child["name"]: weight}
    else:
        child["weight"] = weight


def is_gate(composite: dict[str, Any], child: dict[str, Any]) -> bool:
    """Tell whether the composite names the child as a gate."""
    return child["name"] in (options_of(composite).get("required") or ())


def guard(composite: dict[str, Any], child: dict[str, Any], *, gate: bool) -> None:
    """Name the child as a gate, or no longer."""
    names = [*(options_of(composite).get("required") or ())]
    if gate and child["name"] not in names:
        names.append(child["name"])
    elif not gate:
        names = [name for name in names if name != child["name"]]
    _put(options_of(composite), "required", names)


def follow(composite: dict[str, Any], old: str, new: str) -> None:
    """Have the aggregator mean by another name the child it meant before."""
    options = options_of(composite)
    weights = options.get("weights") or {}
    _put(options, "weights", {new if name == old else name: w for name, w in weights.items()})
    names = options.get("required") or ()
    _put(options, "required", [new if name == old else name for name in names])


def forget(composite: dict[str, Any], child: dict[str, Any]) -> None:
    """Have the aggregator say nothing more of a child; the child takes its weight along."""
    child["weight"] = weight_in_force(composite, child)
    options = options_of(composite)
    weights = options.get("weights") or {}
    _put(options, "weights", {name: w for name, w in weights.items() if name != child["name"]})
    guard(composite, child, gate=False)


def _put(options: dict[str, Any], key: str, value: Any) -> None:
    """Set an option, or take it away where it would say nothing."""
    if value:
        options[key] = value
    else:
        options.pop(key, None)

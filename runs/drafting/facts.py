"""An evaluator tree as facts: what each evaluator is and counts, one value a name, to be compared.

Names of facts: `kind`, `weight` (the one in force), `required` (False, True or a number of 0 to 1),
`negate`, `gate` (named by a safety gate), `config.<setting>`, `aggregator.<option>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.scoring.tree import ROOT_PATH, Node, below
from runs.drafting.combining import guard, options_of, weigh

AGGREGATOR = "aggregator."
CONFIG = "config."
# What is said with the children, as `weight` and `gate`.
OF_CHILDREN = ("weights", "required")
Facts = Mapping[str, Any]


def facts_of(root: Node) -> dict[str, dict[str, Any]]:
    """Return the facts of every evaluator by path, in tree order; names and places are not among them."""
    found: dict[str, dict[str, Any]] = {}
    _gather(root, ROOT_PATH, None, found)
    return found


def _gather(node: Node, path: str, above: Node | None, found: dict[str, dict[str, Any]]) -> None:
    found[path] = _facts(node, above)
    for child in node.children:
        _gather(child, below(path, child.name), node, found)


def _facts(node: Node, above: Node | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": node.kind}
    if above is not None:
        facts["weight"] = above.weight_of(node)
        gates = above.aggregator.required if above.aggregator else ()
        facts["gate"] = node.name in gates
    below_which = node.required_below
    facts["required"] = node.required if below_which is None else below_which
    facts["negate"] = node.negate
    stored = node.as_json()["config"]
    options = stored.pop("aggregator", None) or {}
    facts |= {f"{CONFIG}{name}": value for name, value in stored.items()}
    return facts | {
        f"{AGGREGATOR}{name}": value for name, value in options.items() if name not in OF_CHILDREN
    }


def put_fact(parent: dict[str, Any] | None, node: dict[str, Any], name: str, facts: Facts) -> None:
    """Give an evaluator of a draft one of the facts, or take it away where there is none of the name."""
    if name.startswith(AGGREGATOR):
        _put(options_of(node), name.removeprefix(AGGREGATOR), name, facts)
    elif name.startswith(CONFIG):
        _put(node["config"], name.removeprefix(CONFIG), name, facts)
    elif name == "weight" and parent is not None:
        weigh(parent, node, facts[name])
    elif name == "gate" and parent is not None:
        guard(parent, node, gate=facts[name])
    elif name == "required":
        value = facts[name]
        is_flag = isinstance(value, bool)
        node |= {"required": is_flag and value, "required_below": None if is_flag else value}
    elif name == "negate":
        node["negate"] = facts[name]


def _put(settings: dict[str, Any], key: str, name: str, facts: Facts) -> None:
    if name in facts:
        settings[key] = facts[name]
    else:
        settings.pop(key, None)

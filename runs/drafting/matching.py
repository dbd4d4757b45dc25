"""Find the same evaluators in two trees: by path, else by what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evaluators.scoring.tree import ROOT_PATH, Node, walk
from runs.drafting.facts import CONFIG, facts_of


def matched(before: Node, after: Node) -> dict[str, str]:
    """Return by path of the one tree the path of the same evaluator in the other.

    The same are two at one path; of the others those of one name and kind, which were moved; then
    those of one kind and settings, which were renamed; then those of one kind in one composite. What
    would fit several fits none.
    """
    old, new = dict(walk(before)), dict(walk(after))
    pairs = {path: path for path in old if path in new}
    pairs[ROOT_PATH] = ROOT_PATH
    facts = facts_of(before), facts_of(after)
    likenesses: tuple[Callable[[str, Node, Mapping[str, Any]], Any], ...] = (
        lambda _, node, __: (node.name, node.kind),
        lambda path, node, said: (path.rpartition("/")[0], node.kind, _settings(said)),
        lambda _, node, said: (node.kind, _settings(said)),
        lambda path, node, _: (path.rpartition("/")[0], node.kind),
    )
    for like in likenesses:
        left = [path for path in old if path not in pairs]
        right = [path for path in new if path not in pairs.values()]
        ours = _by_likeness(left, old, facts[0], like)
        theirs = _by_likeness(right, new, facts[1], like)
        pairs |= {
            ours[key][0]: theirs[key][0]
            for key in ours
            if len(ours[key]) == 1 and len(theirs.get(key, ())) == 1
        }
    return pairs


def _by_likeness(
    paths: list[str],
    nodes: Mapping[str, Node],
    facts: Mapping[str, Mapping[str, Any]],
    like: Callable[[str, Node, Mapping[str, Any]], Any],
) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for path in paths:
        found.setdefault(like(path, nodes[path], facts[path]), []).append(path)
    return found


def _settings(facts: Mapping[str, Any]) -> str:
    """Return the settings of the kind as something that can be compared and looked up."""
    return repr(sorted((name, repr(value)) for name, value in facts.items() if CONFIG in name))

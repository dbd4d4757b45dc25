"""Three trees of one suite, seen from the oldest: where each of its evaluators stands in the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.tree import ROOT_PATH, Node, below, walk
from runs.drafting.content import Content, content_of, nodes_with_paths, origins, tree_of
from runs.drafting.facts import facts_of
from runs.drafting.matching import matched

Place = tuple[dict[str, Any] | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SeenTree:
    """One tree: `at` has by the paths of the base where its evaluators stand here, those that do.

    `facts` are theirs, by the paths of the base as well.
    """

    root: Node
    at: Mapping[str, str]
    nodes: Mapping[str, Node]
    facts: Mapping[str, Mapping[str, Any]]
    arrangement: tuple[Any, ...]

    @classmethod
    def read(cls, root: Node, at: Mapping[str, str], base: Mapping[str, Node]) -> SeenTree:
        """Return the tree; another kind at a place is another evaluator."""
        nodes = dict(walk(root))
        same = {old: new for old, new in at.items() if base[old].kind == nodes[new].kind}
        found = facts_of(root)
        facts = {old: found[new] for old, new in same.items()}
        base_of = {new: old for old, new in same.items()}
        return cls(root, same, nodes, facts, _arranged(root, ROOT_PATH, base_of))


def _arranged(node: Node, path: str, base_of: Mapping[str, str]) -> tuple[Any, ...]:
    """Return nested names, with the base's path of what the base has; of what is new, all it is."""
    children = (_arranged(child, below(path, child.name), base_of) for child in node.children)
    own = node.name if path in base_of else repr(node.as_json())
    return (base_of.get(path), own, *children)


@dataclass(frozen=True, slots=True)
class ThreeTrees:
    """The tree of a version, the tree others made of it, and the tree of a draft."""

    base: SeenTree
    theirs: SeenTree
    mine: SeenTree
    their_content: Content
    my_content: Content

    @classmethod
    def read(cls, base: Content, theirs: Content, mine: Content) -> ThreeTrees:
        """Return the three; a draft says itself where its evaluators come from."""
        root, their_root, my_root = tree_of(base), tree_of(theirs), tree_of(mine)
        nodes = dict(walk(root))
        came = {old: new for new, old in origins(mine).items() if old in nodes}
        # Of their version it can only be guessed, unless both made the same of the suite.
        is_alike = their_root.as_json() == my_root.as_json()
        at = came if is_alike else matched(root, their_root)
        return cls(
            base=SeenTree.read(root, {path: path for path in nodes}, nodes),
            theirs=SeenTree.read(their_root, at, nodes),
            mine=SeenTree.read(my_root, came, nodes),
            their_content=theirs,
            my_content=mine,
        )

    def missing(self, there: SeenTree, here: SeenTree) -> Iterator[str]:
        """Yield the paths here of the evaluators that are not there."""
        shared = {path for base, path in here.at.items() if base in there.at}
        yield from (path for path in here.nodes if path not in shared)

    def draft(self, *, of_mine: bool) -> dict[str, Any]:
        """Return a draft of their version with one side's arrangement and settings.

        What the draft had keeps its id, and `origin` is where it stands in their version.
        """
        mine = dict(nodes_with_paths(self.my_content["evaluators"]))
        if of_mine:
            content = deepcopy(dict(self.my_content))
            for _, node in nodes_with_paths(content["evaluators"]):
                node["origin"] = self.theirs.at.get(node["origin"])
            return content
        content = content_of(self.their_content)
        last = max(self.my_content["last_id"], content["last_id"])
        base_of = {new: old for old, new in self.theirs.at.items()}
        for path, node in nodes_with_paths(content["evaluators"]):
            known = self.mine.at.get(base_of.get(path, "/"))
            if known is None:
                last += 1
            node["id"] = f"n{last}" if known is None else mine[known]["id"]
        return {**content, "last_id": last}

    def places(self, content: Content) -> dict[str, Place]:
        """Return by the paths of the base what holds an evaluator of a draft of theirs, and itself."""
        back = {new: old for old, new in self.theirs.at.items()}
        found: dict[str, Place] = {}

        def look(node: dict[str, Any], parent: dict[str, Any] | None) -> None:
            base = back.get(node["origin"])
            if base is not None:
                found[base] = parent, node
            for child in node["children"]:
                look(child, node)

        look(content["evaluators"], None)
        return found

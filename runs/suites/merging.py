"""A draft and what others saved meanwhile, value by value, and one content made of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, below, walk
from evaluators.scoring.types import DomainError
from runs.suites.differences import SAID, facts_of, matched, put_fact
from runs.suites.edits import Content, content_of, edited_parts, nodes_with_paths, origins, tree_of

Place = tuple[dict[str, Any] | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SeenTree:
    """One tree: `at` has by the paths of the base where its evaluators stand here, those that do.

    `facts` are theirs, by the paths of the base as well.
    """

    root: EvaluatorSpec
    at: Mapping[str, str]
    nodes: Mapping[str, EvaluatorSpec]
    facts: Mapping[str, Mapping[str, Any]]
    arrangement: tuple[Any, ...]

    @classmethod
    def read(
        cls, root: EvaluatorSpec, at: Mapping[str, str], base: Mapping[str, EvaluatorSpec]
    ) -> SeenTree:
        """Return the tree; another kind at a place is another evaluator."""
        nodes = dict(walk(root))
        same = {old: new for old, new in at.items() if base[old].kind == nodes[new].kind}
        found = facts_of(root)
        facts = {old: found[new] for old, new in same.items()}
        base_of = {new: old for old, new in same.items()}
        return cls(root, same, nodes, facts, _arranged(root, ROOT_PATH, base_of))


def _arranged(node: EvaluatorSpec, path: str, base_of: Mapping[str, str]) -> tuple[Any, ...]:
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


ARRANGEMENT = "arrangement"
POLICY = "policy."
EVALUATORS = "evaluators."


class Side(StrEnum):
    """Whose value it is; where both changed one, whose is to be kept."""

    MINE = "mine"
    THEIRS = "theirs"


class Who(StrEnum):
    """Who changed a value since the version the draft is based on."""

    MINE = "mine"
    THEIRS = "theirs"
    SAME = "same"
    BOTH = "both"


class UndecidedError(DomainError):
    """A value that both changed was not decided by mine or theirs; `key` names it."""

    code = "undecided"

    def __init__(self, key: str) -> None:
        """Say which value."""
        self.key = key
        super().__init__(f"Both changed {key}. Choose whose is to be kept.")


@dataclass(frozen=True, slots=True)
class Field:
    """One value that somebody changed: what it was, what it is now, and what it is in the draft.

    `key` names it in forms. `evaluator` is its path in the base version, None for a value of no
    evaluator; `name` is that of the value: `title`, `pass_threshold`, `weight`, `config.prompt`. None
    stands where there is no value. Of the `arrangement` the values are the paths there are, in order.
    """

    key: str
    name: str
    evaluator: str | None
    base: Any
    theirs: Any
    mine: Any
    who: Who

    @property
    def is_open(self) -> bool:
        """Tell whether both changed it, each otherwise, so that somebody has to decide."""
        return self.who is Who.BOTH


@dataclass(frozen=True, slots=True)
class Merge:
    """Base, theirs and mine side by side: every value that somebody changed.

    `only_mine` and `only_theirs` are the paths of evaluators that the other side lacks: it removed
    them, or never had them. With the other side's arrangement they are left out.
    """

    fields: tuple[Field, ...]
    only_mine: tuple[str, ...] = ()
    only_theirs: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[Field, ...]:
        """Return the values somebody has to decide."""
        return tuple(one for one in self.fields if one.is_open)


def merge_of(base: Content, theirs: Content, mine: Content) -> Merge:
    """Return every value that somebody changed since the base version, and who did."""
    trees = ThreeTrees.read(base, theirs, mine)
    fields = (*_described(base, theirs, mine), _arrangement(trees), *_settings(trees))
    return Merge(
        fields=tuple(one for one in fields if one is not None),
        only_mine=tuple(trees.missing(trees.theirs, trees.mine)),
        only_theirs=tuple(trees.missing(trees.mine, trees.theirs)),
    )


def merged(
    base: Content, theirs: Content, mine: Content, choices: Mapping[str, str]
) -> dict[str, Any]:
    """Return a draft of their version that holds what either changed, and of both what was chosen.

    `choices` has "mine" or "theirs" for the key of each open field. Raises UndecidedError. Whether
    the tree that comes of it can be scored is left to `check`.
    """
    trees = ThreeTrees.read(base, theirs, mine)
    taken = {one.key: (one, _side(one, choices)) for one in merge_of(base, theirs, mine).fields}
    arranged = taken.get(ARRANGEMENT)
    content = trees.draft(of_mine=arranged is not None and arranged[1] is Side.MINE)
    content |= {name: theirs.get(name) for name in SAID}
    content["policy"] = dict(edited_parts(theirs)["policy"])
    places = trees.places(content)
    for key, (one, side) in taken.items():
        value = one.mine if side is Side.MINE else one.theirs
        if key.startswith(POLICY):
            content["policy"][one.name] = value
        elif one.evaluator is None:
            content |= {} if key == ARRANGEMENT else {one.name: value}
        elif one.evaluator in places:
            facts = (trees.mine if side is Side.MINE else trees.theirs).facts[one.evaluator]
            put_fact(*places[one.evaluator], one.name, facts)
    return content


def _side(one: Field, choices: Mapping[str, str]) -> Side:
    if not one.is_open:
        return Side.MINE if one.who is Who.MINE else Side.THEIRS
    chosen = choices.get(one.key)
    if chosen not in tuple(Side):
        raise UndecidedError(one.key)
    return Side(chosen)


def _described(base: Content, theirs: Content, mine: Content) -> Iterator[Field | None]:
    sides = [edited_parts(one) for one in (base, theirs, mine)]
    for name in SAID:
        yield _field(name, name, None, [side[name] for side in sides])
    for name in sides[0]["policy"]:
        yield _field(f"{POLICY}{name}", name, None, [side["policy"][name] for side in sides])


def _arrangement(trees: ThreeTrees) -> Field | None:
    """Return how the evaluators stand; open too where one side changed what the other removed."""
    forms = [side.arrangement for side in (trees.base, trees.theirs, trees.mine)]
    who = _who(*forms)
    if who is None:
        return None
    one_sided = {
        Who.MINE: (trees.theirs, trees.mine),
        Who.THEIRS: (trees.mine, trees.theirs),
    }
    if who in one_sided:
        kept, arranged = one_sided[who]
        gone = [path for path in kept.facts if path not in arranged.facts]
        if any(kept.facts[path] != trees.base.facts[path] for path in gone):
            who = Who.BOTH
    base, theirs, mine = (list(side.nodes) for side in (trees.base, trees.theirs, trees.mine))
    return Field(ARRANGEMENT, ARRANGEMENT, None, base, theirs, mine, who)


def _settings(trees: ThreeTrees) -> Iterator[Field | None]:
    """Yield the facts of the evaluators that all three have."""
    for path, facts in trees.base.facts.items():
        if path not in trees.theirs.facts or path not in trees.mine.facts:
            continue
        sides = [facts, trees.theirs.facts[path], trees.mine.facts[path]]
        for name in dict.fromkeys(name for side in sides for name in side):
            key = f"{EVALUATORS}{path}.{name}"
            yield _field(key, name, path, [side.get(name) for side in sides])


def _field(key: str, name: str, evaluator: str | None, values: Sequence[Any]) -> Field | None:
    base, theirs, mine = values
    who = _who(base, theirs, mine)
    return None if who is None else Field(key, name, evaluator, base, theirs, mine, who)


def _who(base: Any, theirs: Any, mine: Any) -> Who | None:
    if theirs == mine:
        return None if mine == base else Who.SAME
    if theirs == base:
        return Who.MINE
    return Who.THEIRS if mine == base else Who.BOTH

"""What the buttons beside an evaluator ask for: `<id> <deed>`, as `n3 up` or `n3 move n1 2`; and `save`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runs.drafting import (
    ChangeRefusedError,
    Content,
    Duplicate,
    Group,
    Move,
    Operation,
    Remove,
    Shift,
)
from runs.drafting.content import nodes_with_paths
from runs.drafting.placing import WAYS

GOING = ("edit", "add", "try")
SAVE = "save"
# What stands in addresses.
NODE = re.compile(r"n\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing to do with an evaluator; `word` is edit, add or try where another page is meant, save for the whole draft."""

    node: str
    word: str
    operation: Operation | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Return what changes the draft."""
        return () if self.operation is None else (self.operation,)

    def said(self, before: Content, after: Content) -> str:
        """Say what was done, by the evaluator's name and place."""
        name = next(
            (
                node["name"]
                for _, node in nodes_with_paths(before["evaluators"])
                if node["id"] == self.node
            ),
            "",
        )
        if self.word == "remove":
            return f"{name} is removed from the draft."
        place = _place(after, self.node)
        if self.word == "duplicate":
            return f"{name} has a copy after it."
        if self.word == "group":
            return f"{name} stands in a composite of its own now, {place[2]}."
        position, count, parent = place
        return f"{name} is {position} of {count} in {parent} now."


def read_deed(text: str) -> Deed | None:
    """Return what a button asks for, None without one; raises ChangeRefusedError for what is none."""
    node, _, rest = text.strip().partition(" ")
    word, *more = rest.split() or [""]
    if not text.strip():
        return None
    if node == SAVE:
        return Deed("", SAVE)
    if word in GOING and NODE.fullmatch(node):
        return Deed(node, word)
    if word in WAYS:
        return Deed(node, word, Shift(node, word))
    if word in ("duplicate", "group", "remove"):
        made: dict[str, Operation] = {
            "duplicate": Duplicate(node),
            "group": Group(node),
            "remove": Remove(node),
        }
        return Deed(node, word, made[word])
    if word == "move" and len(more) == len(("parent", "position")) and more[1].isdecimal():
        return Deed(node, word, Move(node, more[0], int(more[1][:6])))
    raise ChangeRefusedError("What that button asks for is not known here. Open the page again.")


def _place(content: Content, node_id: str) -> tuple[int, int, str]:
    for _, node in nodes_with_paths(content["evaluators"]):
        ids = [child["id"] for child in node["children"]]
        if node_id in ids:
            return ids.index(node_id) + 1, len(ids), str(node["name"])
    return 0, 0, ""

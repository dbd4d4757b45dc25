"""Evaluator trees between rows and values: a root row with everything under it is one Node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.db import models

from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from evaluators.models import Evaluator

COLUMNS = ("name", "kind", "weight", "required", "required_below", "negate", "config")
# Rows know their parent alone, so the database climbs down from the root: one query a tree.
BELOW = """
WITH RECURSIVE below(id) AS (
    SELECT id FROM {table} WHERE id = %s
    UNION ALL
    SELECT child.id FROM {table} child JOIN below ON child.parent_id = below.id
)
SELECT evaluator.* FROM {table} evaluator JOIN below ON evaluator.id = below.id
ORDER BY evaluator.position, evaluator.id
"""


class BrokenTreeError(DomainError):
    """The rows do not make one tree."""

    code = "broken_tree"


def node_from_rows(rows: Iterable[Evaluator]) -> Node:
    """Return the tree of these rows, siblings by position; raises BrokenTreeError without one root."""
    ordered = sorted(rows, key=lambda row: (row.position, row.pk))
    known = {row.pk for row in ordered}
    children: dict[int | None, list[Evaluator]] = defaultdict(list)
    for row in ordered:
        children[row.parent_id if row.parent_id in known else None].append(row)
    roots = children[None]
    if len(roots) != 1:
        raise BrokenTreeError(f"The rows make {len(roots)} trees, not one.")

    def node(row: Evaluator) -> Node:
        facts = {name: getattr(row, name) for name in COLUMNS}
        return Node(**facts, children=tuple(node(child) for child in children[row.pk]))

    return node(roots[0])


def rows_from_node(node: Node, model: type[Evaluator]) -> list[list[Evaluator]]:
    """Return unsaved rows of a tree level by level: a level is saved before the one under it."""
    levels: list[list[Evaluator]] = []
    above: list[tuple[Evaluator | None, int, Node]] = [(None, 0, node)]
    while above:
        rows = [_row(part, model, parent, position) for parent, position, part in above]
        levels.append(rows)
        above = [
            (row, position, child)
            for row, (_, _, part) in zip(rows, above, strict=True)
            for position, child in enumerate(part.children)
        ]
    return levels


def _row(node: Node, model: type[Evaluator], parent: Evaluator | None, position: int) -> Evaluator:
    facts = {name: getattr(node, name) for name in COLUMNS}
    return model(parent=parent, position=position, **{**facts, "config": node.as_json()["config"]})


class EvaluatorQuerySet(models.QuerySet["Evaluator"]):
    """Trees of evaluators, read and written whole."""

    def tree(self, root: Evaluator) -> Node:
        """Return the tree under a root as a value, in one query."""
        statement = BELOW.format(table=self.model._meta.db_table)
        return node_from_rows(self.raw(statement, [root.pk]))

    def plant(self, node: Node) -> Evaluator:
        """Store a tree, one insert a level, and return its root."""
        levels = rows_from_node(node, self.model)
        for rows in levels:
            self.bulk_create(rows)
        return levels[0][0]

    def replant(self, root: Evaluator, node: Node) -> None:
        """Put another tree in place of the one under a root; the root row stays."""
        self.filter(parent=root).delete()
        for name in COLUMNS:
            setattr(root, name, getattr(node, name))
        root.config = node.as_json()["config"]
        root.save()
        first, *below = rows_from_node(node, self.model)
        for rows in below:
            for row in rows:
                row.parent = root if row.parent is first[0] else row.parent
            self.bulk_create(rows)

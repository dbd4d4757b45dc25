"""Which stored scores are still to be turned round, so that more is better in every mean."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.scoring.tree import Node, walk
from runs.models import Case, Run
from runs.plan import tree_of_case


def turned_paths(root: Node) -> frozenset[str]:
    """Return the paths of negated evaluators whose stored score is the one before 1 − score."""
    return frozenset(path for path, node in walk(root) if node.is_stored_unturned)


def turned_paths_of_cases(run: Run, root: Node) -> Mapping[str, frozenset[str]]:
    """Return those paths by the key of each case with evaluators of its own; one query."""
    own = Case.objects.filter(pk__in=run.results.values("case"), evaluators__isnull=False)
    return {
        key: turned_paths(tree_of_case(root, evaluators, append=append))
        for key, evaluators, append in own.values_list("key", "evaluators", "evaluators_append")
    }

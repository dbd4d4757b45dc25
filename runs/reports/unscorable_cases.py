"""Which evaluators have nothing to score by in cases that a run would be of: known before it starts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts
from evaluators.scoring.tree import Node, walk
from runs.models import Suite
from runs.plan import tree_of_case

MOST_NAMED = 4
# What stands for a text or a list that is there: what it says does not matter here.
THERE = "there"


def unscorable_warnings(
    suite: Suite,
    root: Node,
    *,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each evaluator that lacks what it scores by, with n of N cases.

    `root` is the tree the run is scored by. With `tags` the cases are those that have one of them,
    with `keys` those that are named.
    """
    lacking: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    # Cases are mostly alike in this: each sort is looked at once.
    for (written, append, *has), count in _sorts(suite, tags, keys).items():
        tree = root if written is None else tree_of_case(root, json.loads(written), append=append)
        for path, lack in _leaves(tree, _facts(*has)):
            asked[path] += count
            if lack:
                lacking[path, lack] += count
    told = [
        f"Evaluator {path} has nothing to score by in {count} of {asked[path]} cases: "
        f"{'they have' if count > 1 else 'it has'} no {lack}. There it will be an error."
        for (path, lack), count in lacking.most_common()
    ]
    more = len(told) - MOST_NAMED
    return (*told[:MOST_NAMED], *([f"So it is with {more} more evaluators."] if more > 0 else ()))


def _leaves(tree: Node, case: CaseFacts) -> Iterator[tuple[str, str]]:
    kinds = all_kinds()
    for path, node in walk(tree):
        if node.is_composite or node.kind not in kinds:
            continue
        lacks = kinds[node.kind].lacks
        yield path or node.name, lacks(node.config, case) if lacks is not None else ""


def _facts(has_criteria: bool, has_output: bool, has_outcomes: bool) -> CaseFacts:
    return CaseFacts(
        key="",
        input=(),
        criteria=THERE if has_criteria else "",
        expected_output=THERE if has_output else "",
        expected_outcomes=(THERE,) if has_outcomes else (),
    )


def _sorts(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> Counter[tuple[Any, ...]]:
    rows = (
        suite.cases.filter(is_current=True)
        .order_by()
        .annotate(
            written=Cast("evaluators", TextField()),
            has_criteria=Q(criteria__gt=""),
            has_output=Q(expected_output__gt=""),
        )
        .values_list(
            *("key", "tags", "written", "evaluators_append"),
            *("has_criteria", "has_output", "expected_outcomes"),
        )
    )
    wanted, named = set(tags), None if keys is None else set(keys)
    return Counter(
        (written, append, has_criteria, has_output, bool(outcomes))
        for key, own, written, append, has_criteria, has_output, outcomes in rows
        if (not wanted or wanted & set(own)) and (named is None or key in named)
    )

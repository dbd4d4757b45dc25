"""How many judge calls a run would make, of which judge, cases with evaluators of their own included."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

from django.db.models import TextField
from django.db.models.functions import Cast

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Node
from runs.models import Suite
from runs.plan import judges_asked, tree_of_case

Judges = Counter[tuple[str, str]]


def planned_judge_calls(
    suite: Suite,
    root: Node,
    *,
    cases: int,
    with_outcomes: int,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> Judges:
    """Return by judge, as judges_asked names it, the calls of one repetition when no gate fails.

    `root` is the tree the run is scored by. Of so many cases `with_outcomes` have expected outcomes.
    With `tags` the cases are those that have one of them, with `keys` those that are named.
    """
    kinds, found = all_kinds(), Judges()
    # Trees of many cases are mostly the same few: each is read once.
    for (written, append, has_outcomes), count in _own_trees(suite, tags, keys).items():
        tree = tree_of_case(root, json.loads(written), append=append)
        _add(found, judges_asked(tree, kinds, has_outcomes=has_outcomes), count)
        cases, with_outcomes = cases - count, with_outcomes - count * has_outcomes
    _add(found, judges_asked(root, kinds, has_outcomes=True), with_outcomes)
    _add(found, judges_asked(root, kinds, has_outcomes=False), cases - with_outcomes)
    return +found


def _add(found: Judges, asked: Judges, count: int) -> None:
    for judge, calls in asked.items():
        found[judge] += calls * count


def _own_trees(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> Counter[tuple[str, bool, bool]]:
    """Return the cases' own trees as they are written, with how they join and whether outcomes are expected."""
    own = suite.cases.filter(is_current=True, evaluators__isnull=False)
    rows = own.annotate(written=Cast("evaluators", TextField())).values_list(
        "key", "tags", "written", "evaluators_append", "expected_outcomes"
    )
    wanted, named = set(tags), None if keys is None else set(keys)
    return Counter(
        (written, append, bool(outcomes))
        for key, has, written, append, outcomes in rows
        if (not wanted or wanted & set(has)) and (named is None or key in named)
    )

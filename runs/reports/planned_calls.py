"""How many judge calls a run would make, cases with evaluators of their own included."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from django.db.models import TextField
from django.db.models.functions import Cast

from evaluators.kinds import all_kinds
from evaluators.models import Evaluator
from runs.models import Suite
from runs.plan import judge_calls, tree_of_case


def planned_judge_calls(
    suite: Suite, *, cases: int, with_outcomes: int, tags: Sequence[str] = ()
) -> int:
    """Return the judge calls of one repetition of so many cases when no gate fails.

    `with_outcomes` of them have expected outcomes. With `tags` the cases are those that have one of them.
    """
    root, kinds = Evaluator.objects.tree(suite.root), all_kinds()
    found = 0
    # Trees of many cases are mostly the same few: each is read once.
    for (written, append, has_outcomes), count in _own_trees(suite, tags).items():
        tree = tree_of_case(root, json.loads(written), append=append)
        found += count * judge_calls(tree, kinds, has_outcomes=has_outcomes)
        cases, with_outcomes = cases - count, with_outcomes - count * has_outcomes
    with_them, without = (judge_calls(root, kinds, has_outcomes=one) for one in (True, False))
    return found + with_outcomes * with_them + (cases - with_outcomes) * without


def _own_trees(suite: Suite, tags: Sequence[str]) -> Counter[tuple[str, bool, bool]]:
    """Return the cases' own trees as they are written, with how they join and whether outcomes are expected."""
    own = suite.cases.filter(is_current=True, evaluators__isnull=False)
    rows = own.annotate(written=Cast("evaluators", TextField())).values_list(
        "tags", "written", "evaluators_append", "expected_outcomes"
    )
    wanted = set(tags)
    return Counter(
        (written, append, bool(outcomes))
        for has, written, append, outcomes in rows
        if not wanted or wanted & set(has)
    )

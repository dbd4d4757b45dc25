"""Judges that may favour what they judge: of the target's own model family, or the target itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from evaluators.kinds import all_kinds
from evaluators.models import Evaluator, LanguageModel
from evaluators.scoring.numbers import listed
from runs.models import Suite, Target
from runs.plan import agent_paths, tree_of_case


def family_warning(judge: LanguageModel | None, targets: Iterable[Target]) -> str:
    """Point out targets of the judge's own model family; "" when there are none."""
    if judge is None:
        return ""
    family = model_family(judge.model_id)
    alike = [t.name for t in targets if t.model and model_family(t.model.model_id) == family]
    if not alike:
        return ""
    return (
        f"The judge is of the same family as target {', '.join(alike)}. "
        "Judges tend to favour their own family."
    )


def agent_warning(agents: Mapping[str, Sequence[str]], targets: Iterable[Target]) -> str:
    """Point out targets that would judge themselves or their own model family; "" when there are none.

    `agents` are the targets that judge, by name, with the evaluators that ask them.
    """
    own = [
        f"Target {t.name} would judge its own answers, asked by {listed(agents[t.name])}."
        for t in targets
        if t.name in agents
    ]
    if own:
        return " ".join([*own, "Agents tend to favour what they wrote."])
    named = Target.objects.filter(name__in=agents).select_related("model") if agents else ()
    judges = [one.model for one in named if one.model is not None]
    return next((said for one in judges if (said := family_warning(one, targets))), "")


def agents_of(suite: Suite) -> dict[str, list[str]]:
    """Return by name the targets that judge, with the paths of the evaluators that ask them."""
    root = Evaluator.objects.tree(suite.root)
    trees = [root]
    asking = [name for name, kind in all_kinds().items() if kind.asked_targets]
    # Trees of cases may be many and long: only those that can hold such an evaluator are read.
    written = suite.cases.annotate(written=Cast("evaluators", TextField()))
    named = reduce(or_, (Q(written__contains=name) for name in asking))
    own = written.filter(named, is_current=True, evaluators__isnull=False)
    for evaluators, append in own.values_list("evaluators", "evaluators_append"):
        trees.append(tree_of_case(root, evaluators, append=append))
    found: dict[str, list[str]] = {}
    for tree in trees:
        for path, name in agent_paths(tree, all_kinds()).items():
            if path not in found.setdefault(name, []):
                found[name].append(path)
    return found


def model_family(model_id: str) -> str:
    """Return the family a model's id begins with: `gpt` of `openai/gpt-4o-mini`."""
    name = model_id.rpartition("/")[2].lower()
    found = re.match(r"[a-z]+", name)
    return found.group() if found else name

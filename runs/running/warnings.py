"""Warnings before a run starts: about its judges, recorded outputs and cases."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts
from evaluators.models import LanguageModel
from evaluators.scoring.numbers import quote_names
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.engine.plan import agent_paths, tree_of_case
from runs.models.suites import Case, Suite
from runs.models.targets import RecordedOutput, Target
from runs.target_kinds import target_kinds


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
        f"Target {t.name} would judge its own answers, asked by {quote_names(agents[t.name])}."
        for t in targets
        if t.name in agents
    ]
    if own:
        return " ".join([*own, "Agents tend to favour what they wrote."])
    named = Target.objects.filter(name__in=agents).select_related("model") if agents else ()
    judges = [one.model for one in named if one.model is not None]
    return next((said for one in judges if (said := family_warning(one, targets))), "")


def agents_that_judge(suite: Suite) -> dict[str, list[str]]:
    """Return by name the targets that judge, with the paths of the evaluators that ask them."""
    root = suite.spec.evaluators
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


def recorded_counts(
    suite: Suite,
    targets: Sequence[Target],
    *,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> Mapping[int, int]:
    """Return by target's id the current cases with an output; only targets that replay are in it.

    With `tags` only cases with one of them count, with `keys` only those named. A target with
    uploads has those alone, one without has what stands with the cases.
    """
    kinds = target_kinds()
    replaying = [one.pk for one in targets if one.kind in kinds and kinds[one.kind].replays]
    if not replaying:
        return {}
    wanted, with_output = _cases(suite, tags, keys)
    uploads = RecordedOutput.objects.filter(target__in=replaying)
    uploading = set(uploads.order_by().values_list("target", flat=True).distinct())
    counts = {pk: 0 if pk in uploading else with_output for pk in replaying}
    if uploading:
        current = Case.objects.filter(suite=suite, is_current=True).values("key")
        hits = uploads.filter(case_key__in=current)
        for pk, key in hits.values_list("target", "case_key").distinct():
            counts[pk] += key in wanted
    return counts


def _cases(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> tuple[set[str], int]:
    rows = (
        Case.objects.filter(suite=suite, is_current=True)
        .order_by()
        .annotate(has_output=Q(recorded_output__isnull=False))
        .values_list("key", "tags", "has_output")
    )
    named = None if keys is None else set(keys)
    found = {
        key: has_output
        for key, own, has_output in rows
        if (not tags or set(tags) & set(own)) and (named is None or key in named)
    }
    return set(found), sum(found.values())


def recorded_warning(target: str, recorded: int, cases: int) -> str:
    """Return what becomes of the cases without an output, "" where all have one or none is chosen."""
    if recorded >= cases:
        return ""
    if not recorded:
        return (
            f"Target {target} has no recorded output for any of the {cases} cases, so it cannot be "
            "started. Upload outputs whose ids are keys of these cases."
        )
    return (
        f"Target {target} has recorded outputs for {recorded} of {cases} cases. The other "
        f"{cases - recorded} will be errors; the estimate leaves them out."
    )


MAX_NAMED = 4
# What stands for a text or a list that is there: what it says does not matter here.
THERE = "there"


def unscorable_warnings(
    suite: Suite,
    root: EvaluatorSpec,
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
    sentences = [
        f"Evaluator {path} has nothing to score by in {count} of {asked[path]} cases: "
        f"{'they have' if count > 1 else 'it has'} no {lack}. There it will be an error."
        for (path, lack), count in lacking.most_common()
    ]
    more = len(sentences) - MAX_NAMED
    return (
        *sentences[:MAX_NAMED],
        *([f"The same holds for {more} more evaluators."] if more > 0 else ()),
    )


def _leaves(tree: EvaluatorSpec, case: CaseFacts) -> Iterator[tuple[str, str]]:
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

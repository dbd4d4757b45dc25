"""What somebody who edits evaluators should be told, though it may be saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from evaluators.kinds import all_kinds, read_config
from evaluators.kinds._prompts import literal_variable
from evaluators.kinds._refusals import InvalidConfigError, UnknownKindError
from evaluators.scoring.numbers import format_weight
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, below, walk
from runs.engine.plan import judge_models
from runs.specs.suites import SuiteSpec
from runs.suites.edits import Content

# Rules under which no weight of a child moves the score (SCORING §3).
WEIGHTLESS = {
    "minimum": "the lowest score counts",
    "maximum": "the highest score counts",
    "threshold": "passes are counted",
}
OUTCOMES_GATE = "expected_outcomes"
JUDGE_OVERALL = "judge_overall"
HYBRID = "hybrid_judge"
NOBODY: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class TreeWarning:
    """One thing pointed out, in a sentence.

    `code` is no_effect, zero_sum, never_decides, own_model, literal or unfinished; `path` that of the evaluator
    in the draft, "" for the whole; `field` the setting it speaks of, "" for none in particular.
    """

    code: str
    path: str
    text: str
    field: str = ""


def remarks(
    content: Content, *, target_models: Mapping[str, Collection[str]] = NOBODY
) -> list[TreeWarning]:
    """Return what is to be pointed out, in the order of the tree.

    `target_models` has by slug of a language model the names of the targets that are that model, so
    that a judge who would judge itself is told.
    """
    spec = SuiteSpec.model_validate(content)
    root, policy = spec.evaluators, spec.policy
    nodes = dict(walk(root))
    overall = _overall_judge(root, policy)
    reach = _reach(root, policy, overall)
    found: list[TreeWarning] = []
    if overall is not None:
        text = f"The final score is the overall score of “{overall}”, so weights change nothing."
        found.append(TreeWarning("no_effect", ROOT_PATH, text, "weight"))
    for path, node in nodes.items():
        above = nodes[path.rpartition("/")[0]] if path != ROOT_PATH else None
        found += _unfinished(path, node)
        found += _literal(path, node)
        found += _zero_sums(path, node)
        if above is not None and overall is None:
            found += _no_effect(path, node, above)
        if above is not None:
            found += _never_decides(path, node, above, reach)
    found += _own_models(root, spec.judge, target_models)
    return found


def unfinished(content: Content) -> list[TreeWarning]:
    """Return what has to be filled in before the draft can be saved: settings that kinds cannot do without."""
    return [
        one
        for path, node in walk(SuiteSpec.model_validate(content).evaluators)
        for one in _unfinished(path, node)
    ]


def _unfinished(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    try:
        read_config(node.kind, node.as_json()["config"], evaluator=path or node.name)
    except UnknownKindError as error:
        yield TreeWarning("unfinished", path, str(error), "kind")
    except InvalidConfigError as error:
        for refusal in error.refusals:
            setting = f"{refusal.setting}: " if refusal.setting else ""
            text = f"“{path or node.name}”: {setting}{refusal.reason}."
            yield TreeWarning("unfinished", path, text, refusal.setting)


def _literal(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    """Point out a variable of prompts in a text that is looked for as it stands."""
    if found := literal_variable(node.kind, node.config):
        text = f"“{path or node.name}” {found.text}."
        yield TreeWarning("literal", path, text, found.setting)


def _zero_sums(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    aggregator = node.aggregator
    if aggregator is None or not node.children:
        return
    counted = [child for child in node.children if not _is_gate_alone(node, child)]
    if sum(node.weight_of(child) for child in counted) == 0:
        if aggregator.is_judging:
            text = f"All weights in “{path or node.name}” are 0, and its judge reads them."
        else:
            text = f"The weights in “{path or node.name}” sum to 0, so it has no score. Raise one."
        yield TreeWarning("zero_sum", path, text, "weight")


def _no_effect(path: str, node: EvaluatorSpec, above: EvaluatorSpec) -> Iterator[TreeWarning]:
    """Point out a weight other than 1 that cannot move the score."""
    aggregator, weight = above.aggregator, above.weight_of(node)
    if aggregator is None or weight in (0, 1):
        return
    told = f"The weight {format_weight(weight)} of “{path}” changes nothing:"
    if aggregator.type in WEIGHTLESS:
        yield TreeWarning("no_effect", path, f"{told} {WEIGHTLESS[aggregator.type]}.", "weight")
    elif _is_gate_alone(above, node):
        said = "it is a gate alone and left out of the average"
        yield TreeWarning("no_effect", path, f"{told} {said}.", "weight")
    elif not aggregator.is_judging and _counts_alone(above, node):
        yield TreeWarning("no_effect", path, f"{told} nothing else counts beside it.", "weight")


def _never_decides(
    path: str, node: EvaluatorSpec, above: EvaluatorSpec, reach: Mapping[str, bool]
) -> Iterator[TreeWarning]:
    """Point out an evaluator that no verdict depends on, of a branch the outermost alone."""
    if reach[path] or not reach[path.rpartition("/")[0]]:
        return
    why = "its weight is 0" if above.weight_of(node) == 0 else "no score counts but the judge's own"
    said = f"“{path}” can never change a verdict: {why}, and it is neither required nor a gate"
    yield TreeWarning("never_decides", path, f"{said}. It is only recorded.")


def _overall_judge(root: EvaluatorSpec, policy: PolicySpec) -> str | None:
    """Return the path of the judge whose overall score is the final one, None without one (SCORING §4.4)."""
    if policy.final_score != JUDGE_OVERALL:
        return None
    return next((path for path, node in walk(root) if node.kind == HYBRID), None)


def _reach(root: EvaluatorSpec, policy: PolicySpec, overall: str | None) -> dict[str, bool]:
    """Return by path whether an evaluator, or one under it, can change a verdict."""
    kinds = all_kinds()
    found: dict[str, bool] = {}

    def look(node: EvaluatorSpec, path: str, *, counts: bool) -> bool:
        inner = [
            look(child, below(path, child.name), counts=_counts(node, child, counts, overall))
            for child in node.children
        ]
        kind = kinds.get(node.kind)
        supplies = kind is not None and kind.supplies_outcomes and policy.case_gate == OUTCOMES_GATE
        found[path] = counts or node.is_required or supplies or path == overall or any(inner)
        return found[path]

    look(root, ROOT_PATH, counts=True)
    return found


def _counts(
    above: EvaluatorSpec, node: EvaluatorSpec, above_counts: bool, overall: str | None
) -> bool:
    if _is_gate(above, node):
        return above_counts
    return above_counts and overall is None and above.weight_of(node) > 0


def _is_gate(above: EvaluatorSpec, node: EvaluatorSpec) -> bool:
    aggregator = above.aggregator
    return (
        aggregator is not None
        and aggregator.type == "safety_gate"
        and node.name in aggregator.required
    )


def _is_gate_alone(above: EvaluatorSpec, node: EvaluatorSpec) -> bool:
    aggregator = above.aggregator
    return _is_gate(above, node) and aggregator is not None and aggregator.remainder == "remaining"


def _counts_alone(above: EvaluatorSpec, node: EvaluatorSpec) -> bool:
    others = (child for child in above.children if child is not node)
    return all(above.weight_of(one) == 0 or _is_gate_alone(above, one) for one in others)


def _own_models(
    root: EvaluatorSpec, judge: str, target_models: Mapping[str, Collection[str]]
) -> Iterator[TreeWarning]:
    for path, node in walk(root):
        alone = EvaluatorSpec(name=node.name, kind=node.kind, config=node.as_json()["config"])
        for slug in sorted(judge_models(alone, all_kinds(), default=judge)):
            if slug in target_models:
                names = " and ".join(sorted(target_models[slug]))
                text = f"“{path or node.name}” asks {slug}, which is the model of {names}: it judges itself."
                yield TreeWarning("own_model", path, text, "model")

"""Whom the tree of a case asks, and how often: judges, agents and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from evaluators.kinds._base import Kind, models_of_samples
from evaluators.scoring.tree import Node, walk

OUTCOMES_PATH = "@outcomes"
OUTCOMES_KIND = "outcomes"
METRICS_KIND = "metrics_judge"
DELIBERATION_KIND = "deliberation"
JUDGING_AGGREGATOR = "llm_judge"
SCRIPT_AGGREGATOR = "code_judge"


def needs_outcomes_call(root: Node, kinds: Mapping[str, Kind]) -> bool:
    """Tell whether a case's expected outcomes need a call of their own beside the tree (SCORING §5)."""
    return not any(
        node.kind in kinds and kinds[node.kind].supplies_outcomes for _, node in walk(root)
    )


def outcome_samples(root: Node) -> int:
    """Return how often a call beside the tree judges the outcomes: as the evaluator that asks most."""
    settings = (
        node.config.get("aggregator") or {} if node.is_composite else node.config
        for _, node in walk(root)
    )
    # Settings that a kind refuses are its to name.
    return max(one["samples"] if isinstance(one.get("samples"), int) else 1 for one in settings)


def judge_calls(root: Node, kinds: Mapping[str, Kind], *, has_outcomes: bool) -> int:
    """Return how many judge calls one execution makes when no gate fails and nothing is repeated.

    Agents that judge count like models.
    """
    return judges_asked(root, kinds, has_outcomes=has_outcomes).total()


def judges_asked(
    root: Node, kinds: Mapping[str, Kind], *, has_outcomes: bool
) -> Counter[tuple[str, str]]:
    """Return by judge the calls that `judge_calls` counts.

    A judge is ("model", slug), with "" for the one of the run, or ("agent", name of the target).
    """
    asked = Counter(("model", slug) for _, node in walk(root) for slug in _models_of(node, kinds))
    asked.update(("agent", name) for _, node in walk(root) for name in _agents_of(node, kinds))
    if has_outcomes and needs_outcomes_call(root, kinds):
        asked["model", ""] += outcome_samples(root)
    return asked


def judge_calls_again(
    root: Node, kinds: Mapping[str, Kind], path: str, *, has_outcomes: bool
) -> int:
    """Return how many judge calls one execution makes when only the evaluator at the path scores again.

    Judges above it, which look at its score, are asked again too.
    """
    if path == OUTCOMES_PATH:
        return outcome_samples(root) if has_outcomes and needs_outcomes_call(root, kinds) else 0
    in_line = (node for place, node in walk(root) if is_in_line(place, path))
    return sum(_calls_of(node, kinds) for node in in_line)


def is_in_line(path: str, place: str) -> bool:
    """Tell whether one of the two evaluators holds the other, or both are the same."""
    return _is_at(path, place) or _is_at(place, path)


def _is_at(path: str, place: str) -> bool:
    return path == place or place == "" or path.startswith(f"{place}/")


def judge_models(root: Node, kinds: Mapping[str, Kind], *, default: str) -> set[str]:
    """Return the slugs of the models that the tree asks; "" stands for a judge that is not set."""
    return {slug or default for _, node in walk(root) for slug in _models_of(node, kinds)}


def agent_paths(root: Node, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return by path, in tree order, the name of the target that an evaluator asks for a judgement."""
    named = ((path, _agents_of(node, kinds)) for path, node in walk(root))
    return {path: names[0] for path, names in named if names}


def script_paths(root: Node, kinds: Mapping[str, Kind]) -> list[str]:
    """Return the paths of the evaluators that run programs of the suite's author, in tree order."""
    return [path for path, node in walk(root) if _runs_script(node, kinds)]


def _runs_script(node: Node, kinds: Mapping[str, Kind]) -> bool:
    if node.is_composite:
        return node.aggregator is not None and node.aggregator.type == SCRIPT_AGGREGATOR
    found = kinds.get(node.kind)
    if found is None or found.runs_programs is None:
        return found is not None and found.uses_sandbox
    return found.runs_programs(node.config)


def _calls_of(node: Node, kinds: Mapping[str, Kind]) -> int:
    return len(_models_of(node, kinds)) + len(_agents_of(node, kinds))


def _agents_of(node: Node, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the name of the target of each call that one evaluator makes of a target that judges."""
    found = None if node.is_composite else kinds.get(node.kind)
    return found.targets_asked(node.config) if found else ()


def _models_of(node: Node, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the slug of the model of each judge call of one evaluator, "" for the suite's judge."""
    if node.is_composite:
        if node.aggregator is None or node.aggregator.type != JUDGING_AGGREGATOR:
            return ()
        return models_of_samples(node.config.get("aggregator") or {})
    found = kinds.get(node.kind)
    return found.models_asked(node.config) if found else ()

"""Read --metric and --metric-weight, for a suite of this site or of one elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from evaluators.kinds.metrics_judge import FACTS, metric_key
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.cli.options import ContradictoryOptionsError
from runs.engine.plan import METRICS_KIND
from runs.running.rules import judge_metrics
from runs.suites.numbers import WrongNumberError, read_weight


def metric_choices(
    suite: str, evaluators: EvaluatorSpec, only: Sequence[str], weights: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Return the metrics that count in a run of a suite, as RunRules has them, from --metric and --metric-weight.

    Raises ContradictoryOptionsError naming the option.
    """
    judges = {
        path: {metric.key for metric in judge_metrics(node.config, evaluator=path)}
        for path, node in walk(evaluators)
        if node.kind == METRICS_KIND
    }
    choices: dict[str, dict[str, float | None]] = {}
    for text in only:
        path, key, weight = _named_metric(text, "--metric", suite, judges)
        chosen = choices.setdefault(path, dict.fromkeys(judges[path]))
        if weight is None and key in judges[path]:
            chosen.pop(key, None)
        else:
            # A metric that no judge knows is refused with the rules of the run.
            usual = FACTS[key].weight if key in FACTS else 0.0
            chosen[key] = usual if weight is None else weight
    for text in weights:
        path, key, weight = _named_metric(text, "--metric-weight", suite, judges)
        if weight is None:
            raise ContradictoryOptionsError(
                f"--metric-weight {text} has no weight; write {key}=0.3."
            )
        choices.setdefault(path, {})[key] = weight
    return choices


def _named_metric(
    text: str, option: str, suite: str, judges: Collection[str]
) -> tuple[str, str, float | None]:
    """Return evaluator, key and weight of an option: KEY=WEIGHT, or EVALUATOR/KEY=WEIGHT."""
    name, _, number = text.partition("=")
    path, _, key = name.strip().rpartition("/")
    paths = list(judges)
    if not paths:
        raise ContradictoryOptionsError(f"{option}: {suite} has no metrics judge.")
    if not path and len(paths) > 1:
        raise ContradictoryOptionsError(
            f"{option} {text}: {suite} has the metrics judges {', '.join(paths)}; name one, as in "
            f"{paths[0]}/{text}."
        )
    if path and path not in judges:
        raise ContradictoryOptionsError(
            f"{option} {text}: {suite} has no metrics judge {path}; there is {', '.join(paths)}."
        )
    try:
        weight = read_weight(number) if number else None
    except WrongNumberError as error:
        raise ContradictoryOptionsError(f"{option} {text}: {error}") from error
    return path or paths[0], metric_key(key), weight

"""What differs between two runs beside their targets, before any change is told (SCORING §9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from evaluators.scoring.numbers import quote_names
from evaluators.scoring.tree import EvaluatorSpec, walk

# What moves the verdict of a result; thresholds of gates and tolerances do not.
VERDICT_SETTINGS = (
    *("pass_threshold", "borderline_threshold", "case_gate", "fallback_threshold", "final_score"),
    *("on_unscored", "count_reviews"),
)
JUDGE_SETTINGS = ("model_id", "reply_mode", "parameters")
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What decided the verdicts of a run: its snapshot, and by key the content hash of its cases."""

    snapshot: Mapping[str, Any]
    repetitions: int = 1
    cases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that differs. `spoils` tells that verdicts can differ for it and not for the target."""

    what: str
    text: str
    spoils: bool = True


def differences(baseline: RunFacts, candidate: RunFacts) -> tuple[Difference, ...]:
    """Return what differs, from the suite down to the judge.

    Another version of the suite and another number of repetitions are told and spoil nothing: what
    a version changes is told by itself.
    """
    sides = (baseline.snapshot, candidate.snapshot)
    found = (
        _suite(*sides),
        _version(*sides),
        _cases(baseline.cases, candidate.cases),
        _evaluators(*(EvaluatorSpec.model_validate(side["evaluators"]) for side in sides)),
        _policy(*(side["policy"] for side in sides)),
        *_changes(*sides),
        _files(*(side.get("files") or {} for side in sides)),
        *_judges(*sides),
        _repetitions(baseline.repetitions, candidate.repetitions),
    )
    return tuple(one for one in found if one is not None)


def _suite(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    slugs = before["suite"]["slug"], after["suite"]["slug"]
    return None if slugs[0] == slugs[1] else Difference("suite", f"{slugs[0]} and {slugs[1]}")


def _version(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    old, new = before["suite"], after["suite"]
    if old["slug"] != new["slug"] or old["version"] == new["version"]:
        return None
    text = f"version {old['version']} and version {new['version']}"
    return Difference("suite version", text, spoils=False)


def _cases(before: Mapping[str, str], after: Mapping[str, str]) -> Difference | None:
    counts = (
        ("added", [key for key in after if key not in before]),
        ("removed", [key for key in before if key not in after]),
        ("changed", [key for key in after if before.get(key, after[key]) != after[key]]),
    )
    parts = [f"{len(keys)} {word} ({_some(keys)})" for word, keys in counts if keys]
    return Difference("cases", ", ".join(parts)) if parts else None


def _evaluators(before: EvaluatorSpec, after: EvaluatorSpec) -> Difference | None:
    old, new = _nodes(before), _nodes(after)
    counts = (
        ("added", [path for path in new if path not in old]),
        ("removed", [path for path in old if path not in new]),
        ("changed", [path for path in new if old.get(path, new[path]) != new[path]]),
    )
    parts = [f"{_some(paths)} {word}" for word, paths in counts if paths]
    return Difference("evaluators", ", ".join(parts)) if parts else None


def _nodes(root: EvaluatorSpec) -> dict[str, Any]:
    """Return by path what each evaluator is, without those under it; the root's name is no setting."""
    facts = {}
    for path, node in walk(root):
        stored = node.as_json()
        del stored["children"]
        facts[path or "the whole"] = stored if path else stored["config"]
    return facts


def _policy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    changed = [
        f"{name.replace('_', ' ')} {before.get(name)} and {after.get(name)}"
        for name in VERDICT_SETTINGS
        if before.get(name) != after.get(name)
    ]
    return Difference("policy", ", ".join(changed)) if changed else None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield what was changed for one of the runs alone; what moves verdicts is told as policy or evaluators."""
    for who, side in (("baseline", before), ("candidate", after)):
        texts = [
            f"{one['evaluator'] or ''} {one['name'].replace('_', ' ')} {one['old']} → {one['new']}".strip()
            for one in side.get("changed") or ()
        ]
        if texts:
            more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
            named = ", ".join(texts[:MAX_NAMED])
            yield Difference("this run only", f"{who}: {named}{more}", spoils=False)


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> Difference | None:
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Difference("files", f"{_some(changed)} changed") if changed else None


def _judges(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the judge of the run, and models that evaluators name, where they differ."""
    old, new = before.get("judge"), after.get("judge")
    if _judge(old) != _judge(new):
        yield Difference("judge", f"{_name(old)} and {_name(new)}")
    targets = {side["target"].get("model") for side in (before, after)}
    told = {model["slug"] for model in (old, new) if model}
    shared = {*before.get("models", {})} & {*after.get("models", {})}
    for slug in sorted(shared - targets - told):
        if _judge(before["models"][slug]) != _judge(after["models"][slug]):
            yield Difference("judge", f"the model {slug} was set up anew")
    agents = before.get("agents") or {}, after.get("agents") or {}
    for name in sorted({*agents[0]} & {*agents[1]}):
        if _agent(agents[0][name]) != _agent(agents[1][name]):
            yield Difference("judge", f"the agent {name} was set up anew")


def _judge(model: Mapping[str, Any] | None) -> Any:
    """Return what makes a judge the same: what is asked, and where; not its price, nor a port."""
    if model is None:
        return None
    host = urlsplit(model.get("base_url", "")).hostname
    return (host, *(model.get(name) for name in JUDGE_SETTINGS))


def _agent(agent: Mapping[str, Any]) -> Any:
    """Return what makes an agent that judges the same; a model it asks is compared with the models."""
    return [agent[name] for name in ("kind", "config", "model")]


def _name(model: Mapping[str, Any] | None) -> str:
    return "none" if model is None else str(model.get("name") or model["slug"])


def _repetitions(before: int, after: int) -> Difference | None:
    return None if before == after else Difference("repetitions", f"{before} and {after}", False)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{quote_names(names[:MAX_NAMED])}{more}"

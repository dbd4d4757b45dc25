"""The rules of a comparison: what makes runs comparable, how each case changed, and which tolerances are exceeded.

SCORING §9 defines them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from evaluators.scoring.numbers import format_number, percent, quote_names, rounded, sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import SCORE_DIGITS, ScoreOutOfRangeError, Verdict
from evaluators.templatetags.figures import duration, plain, points
from runs.engine.plan import BASELINE, judge_settings

# The settings that can change the verdict of a result; thresholds of gates and tolerances cannot.
VERDICT_SETTINGS = (
    *("pass_threshold", "borderline_threshold", "case_gate", "fallback_threshold", "final_score"),
    *("on_unscored", "count_reviews"),
)
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that decide the verdicts of a run: its snapshot, and the content hash of each case by key."""

    snapshot: Mapping[str, Any]
    repetitions: int = 1
    cases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two runs; with `spoils` it can change verdicts, so the target is not the only cause."""

    what: str
    text: str
    spoils: bool = True


def differences(baseline: RunFacts, candidate: RunFacts) -> tuple[Difference, ...]:
    """Return the differences between two runs, from the suite down to the judge.

    The version of the suite and the number of repetitions spoil nothing: what a new version changes is
    a difference of its own.
    """
    sides = (baseline.snapshot, candidate.snapshot)
    candidates = (
        _suite(*sides),
        _version(*sides),
        _cases(baseline.cases, candidate.cases),
        _evaluators(*(side["evaluators"] for side in sides)),
        _policy(*(side["policy"] for side in sides)),
        *_changes(*sides),
        _files(*(side.get("files") or {} for side in sides)),
        *_judges(*sides),
        _baseline(*(side.get(BASELINE) for side in sides)),
        _repetitions(baseline.repetitions, candidate.repetitions),
    )
    return tuple(difference for difference in candidates if difference is not None)


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


def _evaluators(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    if before == after:
        return None
    old, new = _nodes(before), _nodes(after)
    counts = (
        ("added", [path for path in new if path not in old]),
        ("removed", [path for path in old if path not in new]),
        ("changed", [path for path in new if old.get(path, new[path]) != new[path]]),
    )
    parts = [f"{_some(paths)} {word}" for word, paths in counts if paths]
    return Difference("evaluators", ", ".join(parts)) if parts else None


def _nodes(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of each evaluator by path, without its children; the name of the root is no setting."""
    facts = {}
    for path, node in walk(EvaluatorSpec.model_validate(root)):
        stored = node.as_json()
        del stored["children"]
        # It changes no score and no verdict.
        stored.pop("pass_mark", None)
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
    """Yield the settings changed for one run; those that change verdicts also count as policy or evaluators."""
    for role, side in (("baseline", before), ("candidate", after)):
        texts = [
            f"{change['evaluator'] or ''} {change['name'].replace('_', ' ')} {_set(change['old'])} → {_set(change['new'])}".strip()
            for change in side.get("changed") or ()
        ]
        if texts:
            more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
            named = ", ".join(texts[:MAX_NAMED])
            yield Difference("this run only", f"{role}: {named}{more}", spoils=False)


def _set(value: Any) -> str:
    return "none" if value is None else str(value)


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> Difference | None:
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Difference("files", f"{_some(changed)} changed") if changed else None


def _judges(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield differences of the run's judge, and of models and agents that evaluators name."""
    old, new = before.get("judge"), after.get("judge")
    yield from _judge(old, new, f"{_name(old)} and {_name(new)}")
    targets = {side["target"].get("model") for side in (before, after)}
    judges = {model["slug"] for model in (old, new) if model}
    shared = {*before.get("models", {})} & {*after.get("models", {})}
    for slug in sorted(shared - targets - judges):
        was, now = before["models"][slug], after["models"][slug]
        yield from _judge(was, now, f"settings of the model {slug} differ")
    agents = before.get("agents") or {}, after.get("agents") or {}
    for name in sorted({*agents[0]} & {*agents[1]}):
        if _agent(agents[0][name]) != _agent(agents[1][name]):
            yield Difference("judge", f"settings of the agent {name} differ")


def _judge(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, text: str
) -> Iterator[Difference]:
    """Yield the difference between two judges, if there is one.

    The same model at another port is mostly the same server, started again, so the port alone spoils nothing.
    Where it has another model, its replies say so (`judge_changes`).
    """
    if judge_settings(old, sees_port=False) != judge_settings(new, sees_port=False):
        yield Difference("judge", text)
    elif judge_settings(old) != judge_settings(new):
        yield Difference("judge", f"{_name(new)} at another port", spoils=False)


def _baseline(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Difference | None:
    """Return the difference if evaluators compared the outputs with those of different runs.

    The usual baseline has none itself, which makes no difference to the run that is compared with it.
    """
    if not (before and after) or before["run"] == after["run"]:
        return None
    return Difference("pairwise baseline", f"run #{before['run']} and run #{after['run']}")


def _agent(agent: Mapping[str, Any]) -> Any:
    """Return the settings that make a judging agent the same; its model is compared with the models."""
    return [agent[name] for name in ("kind", "config", "model")]


def _name(model: Mapping[str, Any] | None) -> str:
    return "none" if model is None else str(model.get("name") or model["slug"])


def _repetitions(before: int, after: int) -> Difference | None:
    return None if before == after else Difference("repetitions", f"{before} and {after}", False)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{quote_names(names[:MAX_NAMED])}{more}"


# No float has more digits.
WIDE = Context(prec=400)


def difference(before: float | None, after: float | None) -> float | None:
    """Return after − before, to 9 decimals; None where a side has no figure."""
    return None if before is None or after is None else rounded(after - before)


def format_change(size: float, digits: int) -> str:
    """Format the size of a change with so many decimals, rounded to the nearest, halves away from zero."""
    exact = Decimal(repr(rounded(size)))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=WIDE):f}"


# What a tolerance in a form or at the command line is divided by: the mean score is entered in points of 100.
UNITS = {"max_pass_rate_drop": 1.0, "max_avg_score_drop": 100.0, "max_latency_increase_pct": 1.0}


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much worse a run may be: drops as shares from 0 to 1, latency in percent; reaching one is allowed.

    Raises ScoreOutOfRangeError naming the field and the value.
    """

    max_pass_rate_drop: float = 0.0
    max_avg_score_drop: float = 0.05
    max_latency_increase_pct: float = 20.0

    def __post_init__(self) -> None:
        """Refuse values that are no tolerances."""
        for name, maximum in (
            ("max_pass_rate_drop", 1.0),
            ("max_avg_score_drop", 1.0),
            ("max_latency_increase_pct", math.inf),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= maximum):
                bounds = "0 or more" if math.isinf(maximum) else "a number from 0 to 1"
                raise ScoreOutOfRangeError(f"{name} {value!r} is not {bounds}")

    @classmethod
    def from_policy(cls, policy: PolicySpec) -> Tolerances:
        """Return the tolerances that a policy sets."""
        return cls(
            policy.max_pass_rate_drop, policy.max_avg_score_drop, policy.max_latency_increase_pct
        )

    def with_entered(self, values: Mapping[str, float | None]) -> Tolerances:
        """Return the tolerances with the values entered in a form or at the command line."""
        entered = {name: value for name in UNITS if (value := values.get(name)) is not None}
        return replace(self, **{name: value / UNITS[name] for name, value in entered.items()})


@dataclass(frozen=True, slots=True)
class RunSide:
    """The figures of one run over all its executions; scores are 0 to 1, None where there is none."""

    passed: int
    total: int
    mean_score: float | None = None
    mean_latency_ms: float | None = None

    @property
    def pass_rate(self) -> float | None:
        """Return passed ÷ total, where errors have not passed; None without executions."""
        return self.passed / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class Reason:
    """A tolerance that was exceeded: `change` beyond `limit`, as shares, or percent for latency."""

    measure: str
    baseline: float
    candidate: float
    change: float
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The changes from baseline to candidate; a change is None where a side has no figure."""

    regression_detected: bool
    reasons: tuple[Reason, ...]
    pass_rate_change: float | None
    score_change: float | None
    latency_change_pct: float | None


def compare_runs(
    baseline: RunSide, candidate: RunSide, tolerances: Tolerances = Tolerances()
) -> RunComparison:
    """Return the changes of pass rate, mean score and latency, and which tolerances they exceed."""
    rate = difference(baseline.pass_rate, candidate.pass_rate)
    score = difference(baseline.mean_score, candidate.mean_score)
    latency = _increase_pct(baseline.mean_latency_ms, candidate.mean_latency_ms)
    exceeded = (
        _drop(
            "pass rate", (baseline.pass_rate, candidate.pass_rate), tolerances.max_pass_rate_drop
        ),
        _drop(
            "mean score", (baseline.mean_score, candidate.mean_score), tolerances.max_avg_score_drop
        ),
        _slower(baseline, candidate, latency, tolerances.max_latency_increase_pct),
    )
    reasons = tuple(reason for reason in exceeded if reason is not None)
    return RunComparison(bool(reasons), reasons, rate, score, latency)


def _increase_pct(before: float | None, after: float | None) -> float | None:
    """Return the growth in percent; None where a value is missing or there is no base."""
    if before is None or after is None or before <= 0:
        return None
    return rounded((after / before - 1.0) * 100)


def _drop(measure: str, sides: tuple[float | None, float | None], limit: float) -> Reason | None:
    before, after = sides
    change = difference(before, after)
    if before is None or after is None or change is None or -change <= rounded(limit):
        return None
    fall = percent(-change)
    digits = _digits_beyond(fall, percent(limit))
    was, now = format_number(percent(before), digits), format_number(percent(after), digits)
    text = (
        f"{measure} fell by {format_change(fall, digits)} pts, from {was}% to {now}% "
        f"({format_drop_limit(limit)})"
    )
    return Reason(measure, before, after, change, limit, text)


def _slower(
    baseline: RunSide, candidate: RunSide, change: float | None, limit: float
) -> Reason | None:
    before, after = baseline.mean_latency_ms, candidate.mean_latency_ms
    if change is None or before is None or after is None or change <= rounded(limit):
        return None
    text = (
        f"mean latency grew by {format_change(change, _digits_beyond(change, limit))}%, "
        f"from {duration(before)} to {duration(after)} ({format_growth_limit(limit)})"
    )
    return Reason("mean latency", before, after, change, limit, text)


def _digits_beyond(change: float, limit: float) -> int:
    """Return the number of decimals at which a change, rounded down, still shows as more than its limit."""
    return next((d for d in range(1, SCORE_DIGITS) if float(format_number(change, d)) > limit), 1)


def format_drop_limit(limit: float) -> str:
    """Format the limit of a drop, a share: `limit: drop of 5 pts`, `limit: no drop`."""
    return f"limit: drop of {points(limit)}" if limit else "limit: no drop"


def format_growth_limit(limit: float) -> str:
    """Format the limit of a growth in percent: `limit: +20%`."""
    return f"limit: +{plain(limit)}%"


CASE_TOLERANCE = 0.05


def rounded_change(before: float | None, after: float | None) -> float | None:
    """Return after minus before; None without both."""
    return None if before is None or after is None else rounded(after - before)


UNCHANGED, REGRESSION, IMPROVEMENT = "unchanged", "regression", "improvement"
ERROR, ADDED, REMOVED = "error", "added", "removed"
HARM = (REGRESSION, ERROR, UNCHANGED, IMPROVEMENT, ADDED, REMOVED)
VERDICT_RANKS = {Verdict.FAIL: 0, Verdict.BORDERLINE: 1, Verdict.PASS: 2}


@dataclass(frozen=True, slots=True)
class CaseSide:
    """How a case did in one run, without what is its own: thousands of cases did alike, and share one.

    Without a verdict it is errored. `executions`, `scored` and `passed` count its executions. `state` is its verdict,
    or why it has none. It `is_flaky` when the verdicts of its executions differ. Where reviewers decided, `reviewed`
    is its verdict with their decisions and `machine` the one without; both are None elsewhere.
    """

    verdict: Verdict | None
    mean_score: float | None = None
    passed: int = 0
    scored: int = 0
    executions: int = 0
    state: str = ""
    is_flaky: bool = False
    machine: Verdict | None = None
    reviewed: Verdict | None = None

    @property
    def pass_share(self) -> float | None:
        """Return the share of its scored executions that passed; None without any."""
        return self.passed / self.scored if self.scored else None


# Not frozen, as ExecutionRecord: a file of a comparison creates forty thousand.
@dataclass(slots=True)
class CaseSideFigures:
    """What a case took in one run, and its expected outcomes; costs and latency are None where none was reported.

    `outcomes_met` of its `outcomes` were met in every repetition that judged them.
    """

    latency_ms: float | None = None
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    outcomes: int = 0
    outcomes_met: int = 0

    @property
    def cost_usd(self) -> Decimal | None:
        """Return both costs together; None when neither is known."""
        return sum_known((self.run_cost_usd, self.evaluation_cost_usd))


# Not frozen, as CaseSideFigures.
@dataclass(slots=True)
class CaseChange:
    """How a case changed: regression, improvement, unchanged, error, added or removed.

    `has_flipped` marks a change from pass to not-pass or back; `score_change` is candidate minus
    baseline, −1 to 1.
    """

    case: str
    status: str
    has_flipped: bool = False
    score_change: float | None = None
    baseline: CaseSide | None = None
    candidate: CaseSide | None = None


def compare_case(case: str, baseline: CaseSide | None, candidate: CaseSide | None) -> CaseChange:
    """Return how one case changed; a side is None where its run does not have the case."""
    if baseline is None:
        return CaseChange(case, ADDED, candidate=candidate)
    if candidate is None:
        return CaseChange(case, REMOVED, baseline=baseline)
    change = difference(baseline.mean_score, candidate.mean_score)
    if baseline.verdict is None or candidate.verdict is None:
        return CaseChange(case, ERROR, False, change, baseline, candidate)
    was, now = baseline.verdict is Verdict.PASS, candidate.verdict is Verdict.PASS
    status = _status(was, now, change)
    return CaseChange(case, status, was != now, change, baseline, candidate)


def compare_cases(
    baseline: Mapping[str, CaseSide], candidate: Mapping[str, CaseSide]
) -> tuple[CaseChange, ...]:
    """Return the change of every case, in the candidate's order, removed cases last."""
    names: Iterable[str] = dict.fromkeys((*candidate, *baseline))
    # Cases that share both sides changed alike.
    known: dict[tuple[int, int], CaseChange] = {}
    changes = []
    for name in names:
        before, after = baseline.get(name), candidate.get(name)
        sides = id(before), id(after)
        if (alike := known.get(sides)) is None:
            alike = known[sides] = compare_case(name, before, after)
        changes.append(
            CaseChange(name, alike.status, alike.has_flipped, alike.score_change, before, after)
        )
    return tuple(changes)


def _status(was: bool, now: bool, change: float | None) -> str:
    if was != now:
        return IMPROVEMENT if now else REGRESSION
    if change is None or abs(change) <= CASE_TOLERANCE:
        return UNCHANGED
    return IMPROVEMENT if change > 0 else REGRESSION


ERRORED = "error"
Standing = tuple[str, float | None]
RANKS_WITH_ERROR = {ERRORED: -1} | {verdict.value: rank for verdict, rank in VERDICT_RANKS.items()}


def repetition_standing(status: str, verdict: str, score: float | None) -> Standing:
    """Return what `most_changed_repetition` compares of a result with this status."""
    return (ERRORED if status == ERRORED else verdict, score)


def most_changed_repetition(
    repetitions: Mapping[int, tuple[Standing | None, Standing | None]],
) -> int:
    """Return the repetition of a case that got worst, else the one that improved most, else the first.

    Each has the verdict ("error" if it errored) and the score of the baseline and of the candidate, None where a run
    lacks it. A change of verdict weighs more than any change of score.
    """
    numbers = sorted(repetitions)
    harms = {number: _fall(*repetitions[number]) for number in numbers}
    worst = max(numbers, key=harms.__getitem__)
    return worst if harms[worst] > NO_FALL else min(numbers, key=harms.__getitem__)


NO_FALL = (0, 0.0)


def _fall(before: Standing | None, after: Standing | None) -> tuple[int, float]:
    """Return by how many verdicts and by how much score a repetition fell."""
    ranks = [RANKS_WITH_ERROR.get(side[0]) if side else None for side in (before, after)]
    if before is None or after is None or ranks[0] is None or ranks[1] is None:
        return NO_FALL
    fall = 0.0 if before[1] is None or after[1] is None else before[1] - after[1]
    return ranks[0] - ranks[1], fall


def by_harm(changes: Iterable[CaseChange]) -> tuple[CaseChange, ...]:
    """Return the cases, the worst first: flipped regressions by the fall of their score, then the others."""
    return tuple(sorted(changes, key=_harm))


def _harm(change: CaseChange) -> tuple[int, bool, int, float, str]:
    now = change.candidate.verdict if change.candidate else None
    rank = -1 if now is None else VERDICT_RANKS[now]
    return (
        HARM.index(change.status),
        not change.has_flipped,
        rank,
        change.score_change or 0.0,
        change.case,
    )

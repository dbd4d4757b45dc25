"""Tries of evaluators as their pages show them: their state, scores and calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import named_agents
from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, below, walk
from evaluators.templatetags.figures import age
from runs.engine.plan import (
    OUTCOMES_PATH,
    baseline_paths,
    judge_calls,
    judge_models,
    script_paths,
)
from runs.models.results import (
    ANSWERED,
    CallStatus,
    EvaluatorScore,
    Result,
    ResultStatus,
    ScoreState,
    VerdictChoice,
)
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Case, Suite
from runs.models.temporary import EvaluatorTrial
from runs.results.result_tree import TreeNode, result_tree, walk_rows


@dataclass(frozen=True, slots=True)
class TrialCall:
    """One call of a judge; `occasion` tells it from other calls of the same evaluator."""

    path: str
    occasion: str
    model: str
    status: str
    is_ok: bool
    http_status: int | None
    error: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    latency_ms: int | None
    request: str
    reply: str


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """One request that a dry run did not send, with its messages and settings.

    A run sends it `times` times. `in_all` is the limit of calls of its evaluator if the replies decide how
    many follow, else None. `is_beside` marks the judge of the expected outcomes, who is not in the tree.
    """

    path: str
    model: str
    address: str
    messages: Sequence[Mapping[str, Any]]
    settings: str
    mode: str
    tokens: int
    cost_usd: Decimal | None
    times: int
    in_all: int | None
    is_beside: bool


def read_call(call: Mapping[str, Any]) -> TrialCall:
    """Return a stored call of a try."""
    cost = call["cost_usd"]
    return TrialCall(
        path=call["path"],
        occasion=_occasion(call),
        model=call["model"],
        status=CallStatus(call["status"]).label,
        is_ok=call["status"] == CallStatus.OK,
        http_status=call["http_status"],
        error=call["error"],
        input_tokens=call["input_tokens"],
        output_tokens=call["output_tokens"],
        cost_usd=None if cost is None else Decimal(cost),
        latency_ms=call["latency_ms"],
        request=call["request"],
        reply=call["reply"],
    )


def _occasion(call: Mapping[str, Any]) -> str:
    """Return what tells a call from other calls of its evaluator, such as “sample 2, round 1”."""
    parts = (
        (f"sample {call['sample'] + 1}", call["sample"]),
        (f"round {call['round'] + 1}", call["round"]),
        (f"repair {call['repair']}", call["repair"]),
    )
    return ", ".join(text for text, number in parts if number)


def read_request(request: Mapping[str, Any]) -> TrialRequest:
    """Return a stored request of a dry run."""
    body = json.loads(request["body"])
    messages = body.pop("messages", ()) if request["is_chat"] else ()
    response_format = body.get("response_format") or {}
    cost = request["cost_usd"]
    return TrialRequest(
        path=request["path"],
        model=request["model"],
        address=request["address"],
        messages=messages,
        settings=_json_text(body),
        mode=str(response_format.get("type", "text")) if request["is_chat"] else "",
        tokens=request["tokens"],
        cost_usd=None if cost is None else Decimal(cost),
        times=request["times"],
        in_all=request["in_all"],
        is_beside=request["path"] == OUTCOMES_PATH,
    )


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


NEW_MARKS = "Only the random marks around quoted texts are new each time."
NOBODY = "Trying it would call no model or target for this output."
BESIDE = "A run also asks a judge about the expected outcomes; trying it does not."
OVER_OTHERS = "A judge over other evaluators receives their scores; evaluators that a dry run does not ask have none."
OVER_PROGRAMS = "A judge sees the results of its checks; checks by scripts have none, as a dry run starts no script."


def dry_run_text(outcome: Mapping[str, Any], root: EvaluatorSpec) -> str:
    """Return sentences on what a dry run of a tree shows and how a try would differ, "" if it shows nothing."""
    paths = {request["path"] for request in outcome.get("requests") or ()}
    scripts = bool(outcome.get("scripts"))
    if not paths and not scripts:
        return ""
    return " ".join(_sentences(outcome, root, paths, has_scripts=scripts))


def _sentences(
    outcome: Mapping[str, Any], root: EvaluatorSpec, paths: set[str], *, has_scripts: bool
) -> Iterator[str]:
    sends = bool(paths - {OUTCOMES_PATH})
    actions = [verb for verb, is_done in (("send", sends), ("start", has_scripts)) if is_done]
    yield f"This is exactly what trying it would {' and '.join(actions)}." if actions else NOBODY
    if paths:
        yield NEW_MARKS
    if OUTCOMES_PATH in paths:
        yield BESIDE
    if _judges_over_unasked(outcome, root):
        yield OVER_OTHERS
    if any(path in paths and _runs_programs(node) for path, node in walk(root)):
        yield OVER_PROGRAMS


def _judges_over_unasked(outcome: Mapping[str, Any], root: EvaluatorSpec) -> bool:
    """Tell whether a judge or a script combines scores, some of which a dry run does not have."""
    scores = outcome.get("scores") or ()
    unasked = {row["path"] for row in scores if row["state"] == ScoreState.SKIPPED}
    return any(
        inner in unasked
        for path, node in walk(root)
        if node.aggregator is not None and node.aggregator.is_judging
        for child in node.children
        for inner, _ in walk(child, below(path, child.name))
    )


def _runs_programs(node: EvaluatorSpec) -> bool:
    kind = all_kinds().get(node.kind)
    return kind is not None and kind.runs_programs is not None and kind.runs_programs(node.config)


MAX_RUNS = 30
MAX_CASES = 200
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunOption:
    """A run with outputs to score."""

    number: int
    label: str


@dataclass(frozen=True, slots=True)
class TryPage:
    """The page to try one evaluator: its calls, its needs, and the choices of the form.

    `calls` is the limit of judge calls of a try, without repairs and retries. `missing` names what
    no output can supply, such as a judge that is not chosen.
    """

    name: str
    path: str
    kind_label: str
    kind_icon: str
    calls: int
    models: Sequence[str]
    agents: Sequence[str]
    scripts: int
    needs: Sequence[str]
    missing: Sequence[str]
    needs_baseline: bool
    runs: tuple[RunOption, ...]
    cases: Sequence[tuple[str, str]]

    @property
    def costs(self) -> bool:
        """Tell whether a try makes calls or starts scripts."""
        return bool(self.calls or self.scripts)


def try_page(suite: Suite, path: str, node: Mapping[str, Any], *, judge: str) -> TryPage:
    """Return the page of an evaluator of a draft; `judge` is the slug of the draft's judge, "" for none."""
    root, kinds = EvaluatorSpec.model_validate(node), all_kinds()
    kind = kinds.get(root.kind)
    models = judge_models(root, kinds, default=judge)
    cases = Case.objects.filter(suite=suite, is_current=True).values_list("key", "title")
    return TryPage(
        name=root.name,
        path=path,
        kind_label=kind.label if kind else root.kind,
        kind_icon=kind.icon if kind else "e-composite",
        calls=judge_calls(root, kinds),
        models=sorted(models - {""}),
        agents=sorted({agent.name for agent in named_agents(root, kinds)}),
        scripts=len(script_paths(root, kinds)),
        needs=tuple(_needs(root)),
        missing=("a judge: choose one under Settings",) if "" in models else (),
        needs_baseline=bool(baseline_paths(root, kinds)),
        runs=run_options(suite),
        cases=tuple(cases[:MAX_CASES]),
    )


def run_options(suite: Suite) -> tuple[RunOption, ...]:
    """Return the finished runs of a suite, newest first."""
    runs = Run.objects.filter(suite=suite).exclude(status__in=ACTIVE_RUN_STATUSES)
    rows = runs.order_by("-number").only("number", "target_name", "created_at")[:MAX_RUNS]
    now = timezone.now()
    return tuple(
        RunOption(run.number, f"#{run.number}, {run.target_name}, {age(run.created_at, now)}")
        for run in rows
    )


def initial_choice(suite: Suite, last: EvaluatorTrial | None) -> dict[str, Any]:
    """Return the initial values of the form: those of the last try, else the latest run's first borderline result.

    Without a borderline result, its first scored result; without one, the suite's first case.
    """
    if last is not None:
        return _repeat_choice(last)
    result = _first_worth_trying(suite)
    if result is not None:
        facts = {"run": str(result.run.number), "repetition": result.repetition}
        return {"source": "stored", "case": result.case.key, **facts}
    case = Case.objects.filter(suite=suite, is_current=True).values_list("key", flat=True).first()
    return {"source": "pasted", "case": case or ""}


def _repeat_choice(last: EvaluatorTrial) -> dict[str, Any]:
    choice: dict[str, Any] = {"case": last.case.key, "baseline": last.baseline}
    if last.result is not None:
        facts = {"run": str(last.result.run.number), "repetition": last.result.repetition}
        return {**choice, "source": "stored", **facts}
    pasted = last.pasted or {}
    choice |= {"source": "pasted", "output": pasted.get("output", "")}
    return {**choice, "trace": _trace_text(pasted["trace"])} if "trace" in pasted else choice


def _trace_text(trace: Any) -> str:
    return json.dumps(trace, ensure_ascii=False, indent=1)


def _first_worth_trying(suite: Suite) -> Result | None:
    run = (
        Run.objects.filter(suite=suite, status=RunStatus.COMPLETED)
        .order_by("-number")
        .only("pk")
        .first()
    )
    if run is None:
        return None
    results = Result.objects.filter(
        run=run, status=ResultStatus.SCORED, output__isnull=False, output__removed_at=None
    )
    ordered = results.select_related("run", "case").order_by("position", "repetition", "id")
    return ordered.filter(verdict=VerdictChoice.BORDERLINE).first() or ordered.first()


def _needs(root: EvaluatorSpec) -> Iterator[str]:
    """Yield each need of the evaluators in the tree, with the evaluators that have it."""
    kinds, by_need = all_kinds(), dict[str, list[str]]()
    for path, node in walk(root):
        for need in kinds[node.kind].needs if node.kind in kinds else ():
            by_need.setdefault(need, []).append(path or node.name)
    for need, paths in by_need.items():
        yield f"{need} ({', '.join(paths[:MAX_NAMED])}{' …' if len(paths) > MAX_NAMED else ''})"


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a try: the nodes to draw, and the policy with the scale of the scores."""

    nodes: tuple[TreeNode, ...]
    policy: PolicySpec

    @property
    def top(self) -> TreeNode:
        """Return the evaluator that was tried."""
        return self.nodes[0]

    @property
    def page(self) -> Any:
        """Return what the templates of a result's tree expect as its page."""
        return SimpleNamespace(policy=self.policy, is_open=False, has_answer=False)

    @property
    def run(self) -> Any:
        """Return what the templates of a result's tree expect as its run."""
        return SimpleNamespace(scale=self.policy.scale)

    @property
    def warnings(self) -> list[str]:
        """Return the warnings of the evaluators, each with the evaluator's name."""
        return [
            f"{node.name}: {warning}"
            for top in self.nodes
            for node in walk_rows(top)
            if node.row is not None
            for warning in node.row.warnings
        ]


@dataclass(frozen=True, slots=True)
class TrialShown:
    """The state of a try and its scores; `is_current` tells whether the draft still has the tried settings.

    `foreword` introduces what a try would send and start, "" if that is nothing.
    """

    trial: EvaluatorTrial
    state: str
    problem: str
    duration_ms: int | None
    scored: Scored | None
    calls: tuple[TrialCall, ...]
    call_count: int
    requests: tuple[TrialRequest, ...]
    scripts: tuple[Mapping[str, Any], ...]
    foreword: str
    is_current: bool

    @property
    def is_open(self) -> bool:
        """Tell whether the try is not over yet."""
        return self.state in ("waiting", "untaken", "running")

    @property
    def activity(self) -> str:
        """Return what a worker is doing."""
        return "Finding out what would be sent" if self.trial.is_dry else "Scoring"

    @property
    def input_tokens(self) -> int | None:
        """Return the input tokens, None if no call reports them."""
        return _sum(call.input_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int | None:
        """Return the output tokens, None if no call reports them."""
        return _sum(call.output_tokens for call in self.calls)

    @property
    def unpriced(self) -> int:
        """Return the number of answered calls without a known price."""
        return sum(call.cost_usd is None and call.status in ANSWERED_LABELS for call in self.calls)

    @property
    def repairs(self) -> int:
        """Return the number of calls that repaired a reply."""
        return sum("repair" in call.occasion for call in self.calls)

    @property
    def models(self) -> list[str]:
        """Return the models that were called, each once."""
        return list(dict.fromkeys(call.model for call in self.calls))


ANSWERED_LABELS = {CallStatus(status).label for status in ANSWERED}


def read_trial(trial: EvaluatorTrial, tree: Mapping[str, Any] | None = None) -> TrialShown:
    """Return the state of a try and its scores; `tree` is the evaluator in the current draft."""
    outcome: Mapping[str, Any] = trial.outcome or {}
    return TrialShown(
        trial=trial,
        state=trial.stage(),
        problem=str(outcome.get("problem", "")),
        duration_ms=outcome.get("duration_ms"),
        scored=_scored(trial, outcome) if "decision" in outcome else None,
        calls=tuple(read_call(call) for call in outcome.get("calls") or ()),
        call_count=int(outcome.get("call_count") or 0),
        requests=tuple(read_request(request) for request in outcome.get("requests") or ()),
        scripts=tuple(
            {**script, "command": _json_text(script["command"])}
            for script in outcome.get("scripts") or ()
        ),
        foreword=dry_run_text(outcome, trial.root),
        is_current=tree is None or EvaluatorSpec.model_validate(tree).as_json() == trial.tree,
    )


def _scored(trial: EvaluatorTrial, outcome: Mapping[str, Any]) -> Scored | None:
    """Return the whole tree; for a dry run that would make calls, the evaluators that scored without them."""
    policy = trial.rules
    rows = {row["path"]: _row(row) for row in outcome["scores"]}
    decision = Decision.from_json(outcome["decision"])
    tree = _as_top(result_tree(trial.root, decision, rows, policy), trial.path)
    if not (outcome.get("requests") or outcome.get("scripts")):
        return Scored((tree,), policy)
    scored = tuple(
        replace(node, is_decisive=False)
        for node in walk_rows(tree)
        if not node.children and node.row is not None and node.row.state != ScoreState.SKIPPED
    )
    return Scored(scored, policy) if scored else None


def _as_top(tree: TreeNode, path: str) -> TreeNode:
    """Return the tried evaluator as the root of the drawing."""
    top = next(node for node in walk_rows(tree) if node.path == path)
    return replace(top, is_root=True, is_open=True)


def _row(stored: Mapping[str, Any]) -> EvaluatorScore:
    cost = stored["cost_usd"]
    return EvaluatorScore(**{**stored, "cost_usd": None if cost is None else Decimal(cost)})


def _sum(numbers: Any) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None

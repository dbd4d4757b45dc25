"""Refuse to start what cannot be carried out, saying what is in the way and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.conf import settings
from pydantic import ValidationError

from evaluators.judging.specs import spec_of
from evaluators.kinds import all_kinds, read_config
from evaluators.models import LanguageModel
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, TreeError, validate, walk
from evaluators.scoring.types import DomainError
from runs.models import Case, RecordedOutput, Target
from runs.plan import agent_paths, judge_models, tree_of_case
from runs.targets import target_kind_named
from runs.targets._base import Header, TargetKind
from runs.targets._headers import variables_of

OUTCOMES_GATE = "expected_outcomes"
CANNOT_JUDGE = (
    "which has recorded outputs: it answers no question. Name a chat model, an agent over HTTP or a "
    "command."
)


class TargetNotReadyError(DomainError):
    """The target cannot answer the cases."""

    code = "target_not_ready"


class NoOutputsError(TargetNotReadyError):
    """No output is recorded for the cases; `reason` says so without the remedy."""

    def __init__(self, reason: str) -> None:
        """Add what is right in the browser."""
        super().__init__(f"{reason} Upload outputs whose ids are keys of these cases.")
        self.reason = reason


class JudgeMissingError(DomainError):
    """An evaluator needs a judge and there is none."""

    code = "judge_missing"


class NoJudgeChosenError(JudgeMissingError):
    """Evaluators ask the judge of the run, which has none; `reason` says so without the remedy."""

    def __init__(self, reason: str) -> None:
        """Add what is right in the browser."""
        super().__init__(f"{reason} Choose a language model as judge.")
        self.reason = reason


class AgentNotReadyError(TargetNotReadyError):
    """An evaluator asks a target for a judgement that cannot give one."""

    code = "agent_not_ready"


def check_target(target: Target, cases: Sequence[Case]) -> None:
    """Raise DomainError unless the target can be asked."""
    _check_settings(target)
    if target_kind(target).replays:
        _check_recorded(target, cases)


def check_agents(trees: Iterable[Node]) -> list[Target]:
    """Return the targets that evaluators of the trees ask for a judgement, by name.

    Raises AgentNotReadyError, naming evaluator and remedy, for one that is missing, archived, replays
    recorded outputs or cannot be asked as it is set up.
    """
    asking: dict[str, str] = {}
    for tree in trees:
        for path, name in agent_paths(tree, all_kinds()).items():
            asking.setdefault(name, path)
    known = {
        row.name: row for row in Target.objects.filter(name__in=asking).select_related("model")
    }
    for name, path in sorted(asking.items()):
        who = f"Evaluator {path} asks the target {name!r} to judge"
        if name not in known:
            raise AgentNotReadyError(
                f"{who}, and there is no target of that name. Add it under Targets, or name another."
            )
        _check_agent(known[name], who)
    return [known[name] for name in sorted(asking)]


def _check_agent(agent: Target, who: str) -> None:
    if target_kind(agent).replays:
        raise AgentNotReadyError(f"{who}, {CANNOT_JUDGE}")
    try:
        _check_settings(agent)
    except TargetNotReadyError as error:
        raise AgentNotReadyError(f"{who}. {error} Or name another target.") from error
    model = agent.model if target_kind(agent).uses_model else None
    if model is not None and (problem := spec_of(model).key_problem):
        raise AgentNotReadyError(f"{who}. {model.name}: {problem}")


def _check_settings(target: Target) -> None:
    kind = target_kind(target)
    if target.archived_at is not None:
        raise TargetNotReadyError(f"Target {target.name} is archived.")
    try:
        config = kind.config.model_validate(target.config)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TargetNotReadyError(f"Target {target.name}, {place}: {first['msg']}.") from error
    if kind.uses_model and target.model is None:
        raise TargetNotReadyError(f"Target {target.name} has no language model. Choose one for it.")
    if problem := _headers_problem(getattr(config, "headers", ()), target):
        raise TargetNotReadyError(f"Target {target.name}: {problem}")


def _headers_problem(headers: Sequence[Header], target: Target) -> str:
    """Return why the headers cannot be filled, "" when they can."""
    for header in headers:
        if header.secret and not target.encrypted_secrets.get(header.name.lower()):
            return f"the secret header {header.name} has no value stored. Enter it in the target."
        for variable in variables_of(header.value):
            if variable not in settings.TARGET_SECRETS:
                return f"the variable {variable} is not set on the server."
    return ""


def _check_recorded(target: Target, cases: Sequence[Case]) -> None:
    uploads = RecordedOutput.objects.filter(target=target)
    if uploads.exists():
        recorded = not {case.key for case in cases}.isdisjoint(
            uploads.values_list("case_key", flat=True)
        )
    else:
        ids = {case.pk for case in cases}
        with_output = Case.objects.filter(suite_id=_suite_of(cases), recorded_output__isnull=False)
        recorded = not ids.isdisjoint(with_output.values_list("pk", flat=True))
    if not recorded:
        which = f"any of the {len(cases)} cases" if len(cases) > 1 else f"the case {cases[0].key}"
        raise NoOutputsError(f"Target {target.name} has no recorded output for {which}.")


def _suite_of(cases: Sequence[Case]) -> int:
    return Case.objects.values_list("suite_id", flat=True).get(pk=cases[0].pk)


def check_trees(root: Node, cases: Sequence[Case]) -> list[Node]:
    """Return every tree the run scores by; raises DomainError naming the evaluator that cannot."""
    own = (case for case in cases if case.evaluators)
    joined = ((c.key, tree_of_case(root, c.evaluators, append=c.evaluators_append)) for c in own)
    trees = []
    for key, tree in (("", root), *joined):
        trees.append(tree)
        try:
            validate(tree)
        except DomainError as error:
            raise TreeError(f"case {key}: {error}" if key else str(error)) from error
        for path, node in walk(tree):
            read_config(node.kind, node.config, evaluator=path or node.name)
    return trees


def check_models(
    trees: Iterable[Node],
    cases: Sequence[Case],
    target: Target,
    judge: LanguageModel | None,
    policy: Policy,
    *,
    agents: Sequence[Target] = (),
) -> list[LanguageModel]:
    """Return the language models the run calls; raises DomainError for one that is missing or has no key.

    `agents` are the targets that judge.
    """
    default = judge.slug if judge else ""
    slugs = {slug for tree in trees for slug in judge_models(tree, all_kinds(), default=default)}
    needs_outcomes = any(case.expected_outcomes for case in cases)
    if "" in slugs or (needs_outcomes and policy.case_gate == OUTCOMES_GATE and judge is None):
        raise NoJudgeChosenError("The suite's evaluators ask a judge and none is chosen.")
    if needs_outcomes and judge is not None:
        slugs.add(judge.slug)
    asked = (one for one in (target, *agents) if target_kind(one).uses_model)
    slugs |= {one.model.slug for one in asked if one.model is not None}
    models = list(LanguageModel.objects.filter(slug__in=slugs).order_by("slug"))
    for slug in sorted(slugs - {model.slug for model in models}):
        raise JudgeMissingError(
            f"An evaluator asks the language model {slug!r}, which does not exist."
        )
    for model in models:
        if problem := spec_of(model).key_problem:
            raise JudgeMissingError(f"{model.name}: {problem}")
    return models


def target_kind(target: Target) -> TargetKind:
    """Return the target's kind."""
    return target_kind_named(target.kind)

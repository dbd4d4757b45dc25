"""Refuse to start runs that are not possible, with the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from pydantic import ValidationError

from evaluators.kinds import all_kinds, read_config
from evaluators.kinds._judging import named_agents
from evaluators.kinds._prompts import variables_in
from evaluators.model_calls.models import model_spec
from evaluators.models import LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, TreeError, validate, walk
from evaluators.scoring.types import DomainError
from runs.engine.plan import (
    case_tree,
    judge_models,
    needs_outcomes_call,
    read_plan,
    script_paths,
)
from runs.models.runs import Run
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.scripts import script_obstacle
from runs.target_kinds import get_target_kind, target_kinds
from runs.target_kinds._base import Header, TargetKind

MAX_SHOWN_LENGTH = 60


class CannotStartError(DomainError):
    """A run cannot be started as it was asked for."""

    code = "cannot_start"


def chosen_cases(
    suite: Suite, keys: Sequence[str] | None, tags: Sequence[str] | None
) -> list[Case]:
    """Return the chosen current cases without their long texts; None chooses all.

    Raises CannotStartError for an unknown key, and when no case is left.
    """
    if suite.archived_at is not None:
        raise CannotStartError(f"{suite.title} is archived. Restore it first.")
    current = Case.objects.filter(suite=suite, is_current=True).order_by("position", "id")
    light = current.only(
        *("id", "key", "content_hash", "evaluators", "evaluators_append", "expected_outcomes"),
        *([] if tags is None else ["tags"]),
    )
    cases = list(light)
    if not cases:
        raise CannotStartError(f"{suite.title} has no cases yet. Import some first.")
    if keys is not None:
        wanted = set(keys)
        if missing := sorted(wanted - {case.key for case in cases}):
            more = f" and {len(missing) - 1} more of those named" if len(missing) > 1 else ""
            raise CannotStartError(
                f"{suite.title} has no case {missing[0][:MAX_SHOWN_LENGTH]}{more}."
            )
        cases = [case for case in cases if case.key in wanted]
    if tags is not None:
        cases = [case for case in cases if set(tags) & set(case.tags)]
    if not cases:
        raise CannotStartError("No case is chosen. Choose at least one tag or case that exists.")
    return cases


MAX_NAMED = 3


class ScriptsRefusedError(DomainError):
    """The run would start a user's program, which is not allowed."""

    code = "scripts_refused"


def check_scripts(
    trees: Iterable[EvaluatorSpec], target: TargetKind | None, user: User | AnonymousUser | None
) -> None:
    """Raise ScriptsRefusedError when trees or target run programs that the user may not run."""
    if problem := scripts_problem(trees, target, user):
        raise ScriptsRefusedError(problem)


def scripts_problem(
    trees: Iterable[EvaluatorSpec], target: TargetKind | None, user: User | AnonymousUser | None
) -> str:
    """Return why the user may not run the programs of trees and target, with the remedy, or ""."""
    obstacle = script_obstacle(user)
    if not obstacle:
        return ""
    trees = list(trees)
    named = {agent.name for tree in trees for agent in named_agents(tree, all_kinds())}
    agents = Target.objects.filter(name__in=named).values_list("name", "kind") if named else ()
    programs = _who_runs_programs(_named(trees, dict(agents)), target)
    return f"{programs}, and {obstacle}" if programs else ""


def check_run_scripts(run: Run, user: User | None, *, asks_target: bool = True) -> None:
    """Raise ScriptsRefusedError when continuing a run could start programs that the user may not run.

    A retry of one evaluator can do so too: if its gate passes now, scripts that were skipped run.
    """
    if problem := run_scripts_problem(run, user, asks_target=asks_target):
        raise ScriptsRefusedError(problem)


def run_scripts_problem(
    run: Run, user: User | AnonymousUser | None, *, asks_target: bool = True
) -> str:
    """Return the message that check_run_scripts would raise, or ""."""
    obstacle = script_obstacle(user)
    if not obstacle:
        return ""
    asks_target = asks_target and not run.is_judged_again
    plan = read_plan(run.snapshot)
    trees = _trees_of_cases(plan.root, Case.objects.filter(pk__in=run.results.values("case")))
    kind = plan.target.kind
    target = get_target_kind(kind) if asks_target and kind in target_kinds() else None
    agents = {name: agent.kind for name, agent in plan.agents.items()}
    programs = _who_runs_programs(_named(trees, agents), target)
    return f"{programs}, and {obstacle}" if programs else ""


def _trees_of_cases(root: EvaluatorSpec, cases: QuerySet[Case]) -> list[EvaluatorSpec]:
    """Return the trees that score the cases, the shared one only if it scores any."""
    own = cases.filter(evaluators__isnull=False).values_list("evaluators", "evaluators_append")
    trees = [case_tree(root, evaluators, append=append) for evaluators, append in own]
    return [root, *trees] if cases.filter(evaluators__isnull=True).exists() else trees


def _named(trees: Iterable[EvaluatorSpec], agents: Mapping[str, str]) -> list[str]:
    """Return the paths of evaluators that run programs; `agents` are kinds of judging targets by name."""
    kinds = target_kinds()
    programs = {name for name, kind in agents.items() if kind in kinds and kinds[kind].uses_sandbox}
    paths: list[str] = []
    for tree in trees:
        paths += script_paths(tree, all_kinds())
        paths += (
            f"{agent.path} by the target {agent.name}"
            for agent in named_agents(tree, all_kinds())
            if agent.name in programs
        )
    return list(dict.fromkeys(paths))


def _who_runs_programs(paths: Sequence[str], target: TargetKind | None) -> str:
    """Return what runs programs, as the beginning of a sentence; "" when nothing does."""
    if paths:
        shown = [path or "the whole suite's aggregator" for path in paths[:MAX_NAMED]]
        more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
        noun = "evaluator runs a script" if len(paths) == 1 else "evaluators run scripts"
        return f"{len(paths)} {noun} ({', '.join(shown)}{more})"
    if target is not None and target.uses_sandbox:
        return "The target runs a program of its own"
    return ""


CANNOT_JUDGE = (
    "which has recorded or pushed outputs: it cannot answer. Name a chat model, an agent over HTTP "
    "or a command."
)


class TargetNotReadyError(DomainError):
    """The target cannot answer the cases."""

    code = "target_not_ready"


class NoOutputsError(TargetNotReadyError):
    """No output is recorded for the cases; `reason` is the message without the remedy."""

    def __init__(self, reason: str) -> None:
        """Add the remedy for the browser."""
        super().__init__(f"{reason} Upload outputs whose ids are keys of these cases.")
        self.reason = reason


class JudgeMissingError(DomainError):
    """An evaluator needs a judge and there is none."""

    code = "judge_missing"


class NoJudgeChosenError(JudgeMissingError):
    """Evaluators ask the run's judge, and it has none; `reason` is the message without the remedy."""

    def __init__(self, reason: str) -> None:
        """Add the remedy for the browser."""
        super().__init__(f"{reason} Choose a language model as judge.")
        self.reason = reason


class AgentNotReadyError(TargetNotReadyError):
    """An evaluator asks a target that cannot judge."""

    code = "agent_not_ready"


def check_agents(trees: Iterable[EvaluatorSpec]) -> list[Target]:
    """Return the targets that evaluators of the trees ask for a judgement, by name.

    Raises AgentNotReadyError, naming evaluator and remedy, for a target that is missing, archived,
    cannot judge, or has wrong settings.
    """
    asking: dict[str, str] = {}
    for tree in trees:
        for agent in named_agents(tree, all_kinds()):
            asking.setdefault(agent.name, agent.path)
    known = {
        row.name: row for row in Target.objects.filter(name__in=asking).select_related("model")
    }
    for name, path in sorted(asking.items()):
        request = f"Evaluator {path} asks the target {name!r} to judge"
        if name not in known:
            raise AgentNotReadyError(
                f"{request}, and there is no target of that name. Add it under Targets, or name another."
            )
        _check_agent(known[name], request)
    return [known[name] for name in sorted(asking)]


def _check_agent(agent: Target, request: str) -> None:
    if not target_kind(agent).can_judge:
        raise AgentNotReadyError(f"{request}, {CANNOT_JUDGE}")
    try:
        check_settings(agent)
    except TargetNotReadyError as error:
        raise AgentNotReadyError(f"{request}. {error} Or name another target.") from error
    model = agent.model if target_kind(agent).uses_model else None
    if model is not None and (problem := model_spec(model).key_problem):
        raise AgentNotReadyError(f"{request}. {model.name}: {problem}")


def check_settings(target: Target) -> None:
    """Raise TargetNotReadyError for a target with wrong settings, without its model or archived."""
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
    """Return why the headers cannot be filled, or ""."""
    for header in headers:
        if header.secret and not target.encrypted_secrets.get(header.name.lower()):
            return f"the secret header {header.name} has no value stored. Enter it in the target."
        for variable in variables_in(header.value):
            if variable not in settings.TARGET_SECRETS:
                return f"the variable {variable} is not set on the server."
    return ""


def check_recorded(target: Target, cases: Sequence[Case]) -> None:
    """Raise NoOutputsError for a target that replays outputs and has none for the cases.

    Nobody deletes the outputs until the caller's transaction, which makes the run, has ended.
    """
    if not target_kind(target).replays:
        return
    Target.objects.select_for_update(no_key=True).get(pk=target.pk)
    uploads = RecordedOutput.objects.filter(target=target)
    if uploads.exists():
        recorded = not {case.key for case in cases}.isdisjoint(
            uploads.values_list("case_key", flat=True)
        )
    else:
        ids = {case.pk for case in cases}
        suite = Case.objects.filter(pk=cases[0].pk).values("suite")
        with_output = Case.objects.filter(suite__in=suite, recorded_output__isnull=False)
        recorded = not ids.isdisjoint(with_output.values_list("pk", flat=True))
    if not recorded:
        which = f"any of the {len(cases)} cases" if len(cases) > 1 else f"the case {cases[0].key}"
        raise NoOutputsError(f"Target {target.name} has no recorded output for {which}.")


SHARED = ""


def check_trees(root: EvaluatorSpec, cases: Sequence[Case]) -> dict[str, EvaluatorSpec]:
    """Return the trees that score the run: those of single cases by key, the suite's under SHARED.

    The suite's is checked too, but left out if every case has its own. Raises DomainError naming a
    wrong evaluator.
    """
    own = [case for case in cases if case.evaluators]
    joined = {c.key: case_tree(root, c.evaluators, append=c.evaluators_append) for c in own}
    for key, tree in {SHARED: root, **joined}.items():
        try:
            validate(tree)
        except DomainError as error:
            raise TreeError(f"case {key}: {error}" if key else str(error)) from error
        for path, node in walk(tree):
            read_config(node.kind, node.config, evaluator=path or node.name)
    return joined if len(own) == len(cases) else {SHARED: root, **joined}


def check_models(
    trees: Mapping[str, EvaluatorSpec],
    cases: Sequence[Case],
    target: Target | None,
    judge: LanguageModel | None,
    policy: PolicySpec,
    *,
    agents: Sequence[Target] = (),
) -> list[LanguageModel]:
    """Return the language models that the run calls; raises DomainError for one without row or key.

    `trees` are those of `check_trees`; `agents` are the targets that judge. Without a target none is asked.
    """
    kinds, default = all_kinds(), judge.slug if judge else ""
    slugs = {slug for tree in trees.values() for slug in judge_models(tree, kinds, default=default)}
    if "" in slugs:
        raise NoJudgeChosenError("The suite's evaluators ask a judge and none is chosen.")
    listing = {case.key if case.evaluators else SHARED for case in cases if case.expected_outcomes}
    needs_outcomes = any(needs_outcomes_call(trees[key], kinds, policy) for key in listing)
    must_be_judged = policy.outcomes_decide or policy.judge_outcomes == "always"
    if needs_outcomes and judge is None and must_be_judged:
        raise NoJudgeChosenError("The expected outcomes need a judge and none is chosen.")
    if needs_outcomes and judge is not None:
        slugs.add(judge.slug)
    asked = agents if target is None else (target, *agents)
    callers = (caller for caller in asked if target_kind(caller).uses_model)
    slugs |= {caller.model.slug for caller in callers if caller.model is not None}
    models = list(LanguageModel.objects.filter(slug__in=slugs).order_by("slug"))
    for slug in sorted(slugs - {model.slug for model in models}):
        raise JudgeMissingError(
            f"An evaluator asks the language model {slug!r}, which does not exist."
        )
    for model in models:
        if problem := model_spec(model).key_problem:
            raise JudgeMissingError(f"{model.name}: {problem}")
    return models


def target_kind(target: Target) -> TargetKind:
    """Return the target's kind."""
    return get_target_kind(target.kind)

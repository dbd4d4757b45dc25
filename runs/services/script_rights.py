"""Let programs of users run only where the administrator allows it, and only for who may start them.

Three things are needed: the switch `EVALSITE_SCRIPTS`, a sandbox that works here, and the right to
run scripts. A run started by nobody comes from a shell of the machine, which has that right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet

from evaluators.kinds import all_kinds
from evaluators.models import Evaluator
from evaluators.sandbox import probe
from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError
from runs.models import Case, Run, Suite, Target, WorkerProcess
from runs.models.clock import database_now
from runs.plan import agent_paths, read_plan, script_paths, tree_of_case
from runs.targets import target_kind_named, target_kinds
from runs.targets._base import TargetKind

RUN_SCRIPTS = "runs.run_scripts"
MOST_NAMED = 3
# How workers show that they run no programs: switched off, or without a sandbox.
UNABLE = ("scripts off", "none")


class ScriptsRefusedError(DomainError):
    """What is to be started would run a program of a user, and that may not be."""

    code = "scripts_refused"


def check_scripts(
    trees: Iterable[Node], target: TargetKind | None, user: User | AnonymousUser | None
) -> None:
    """Raise ScriptsRefusedError when the trees or the target run programs and the user may not have that."""
    if problem := scripts_problem(trees, target, user):
        raise ScriptsRefusedError(problem)


def scripts_problem(
    trees: Iterable[Node], target: TargetKind | None, user: User | AnonymousUser | None
) -> str:
    """Return why the trees or the target may not be carried out for the user, and the remedy; "" if they may."""
    obstacle = _obstacle(user)
    if not obstacle:
        return ""
    trees = list(trees)
    named = {name for tree in trees for name in agent_paths(tree, all_kinds()).values()}
    agents = Target.objects.filter(name__in=named).values_list("name", "kind") if named else ()
    who = _who_runs_programs(_named(trees, dict(agents)), target)
    return f"{who}, and {obstacle}" if who else ""


def scripts_problem_of_suite(
    suite: Suite, targets: Iterable[TargetKind], user: User | AnonymousUser | None
) -> str:
    """Return why no run of the suite against these targets may start for the user; "" if one may."""
    if not _obstacle(user):
        return ""
    root = Evaluator.objects.tree(suite.root)
    own = suite.cases.filter(is_current=True, evaluators__isnull=False)
    trees = [root, *_trees_of(root, own)]
    problems = (scripts_problem(trees, target, user) for target in (None, *targets))
    return next((problem for problem in problems if problem), "")


def check_scripts_again(run: Run, user: User | None, *, asks_target: bool = True) -> None:
    """Raise ScriptsRefusedError when going on with a run could start programs the user may not start.

    That holds for one evaluator too: where it lets a gate pass, scripts that were skipped run now.
    """
    if problem := scripts_problem_again(run, user, asks_target=asks_target):
        raise ScriptsRefusedError(problem)


def scripts_problem_again(
    run: Run, user: User | AnonymousUser | None, *, asks_target: bool = True
) -> str:
    """Return what check_scripts_again would raise, "" if nothing."""
    obstacle = _obstacle(user)
    if not obstacle:
        return ""
    plan = read_plan(run.snapshot)
    own = Case.objects.filter(pk__in=run.results.values("case"), evaluators__isnull=False)
    trees = [plan.root, *_trees_of(plan.root, own)]
    kind = plan.target.kind
    target = target_kind_named(kind) if asks_target and kind in target_kinds() else None
    agents = {name: agent.kind for name, agent in plan.agents.items()}
    who = _who_runs_programs(_named(trees, agents), target)
    return f"{who}, and {obstacle}" if who else ""


def _trees_of(root: Node, cases: QuerySet[Case]) -> Iterator[Node]:
    for evaluators, append in cases.values_list("evaluators", "evaluators_append"):
        yield tree_of_case(root, evaluators, append=append)


def _named(trees: Iterable[Node], agents: Mapping[str, str]) -> list[str]:
    """Return the paths of what runs scripts, each once; `agents` are the kinds of targets that judge by name."""
    kinds = target_kinds()
    programs = {name for name, kind in agents.items() if kind in kinds and kinds[kind].uses_sandbox}
    found: list[str] = []
    for tree in trees:
        found += script_paths(tree, all_kinds())
        asking = agent_paths(tree, all_kinds()).items()
        found += (f"{path} by the target {name}" for path, name in asking if name in programs)
    return list(dict.fromkeys(found))


def _who_runs_programs(paths: Sequence[str], target: TargetKind | None) -> str:
    """Say who it is, in words that begin a sentence; "" for nobody."""
    if paths:
        shown = [path or "the whole suite's aggregator" for path in paths[:MOST_NAMED]]
        more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
        noun = "evaluator runs a script" if len(paths) == 1 else "evaluators run scripts"
        return f"{len(paths)} {noun} ({', '.join(shown)}{more})"
    if target is not None and target.uses_sandbox:
        return "The target runs a program of its own"
    return ""


def _obstacle(user: User | AnonymousUser | None) -> str:
    """Return what keeps programs from running for the user, as the end of a sentence; "" for nothing."""
    if not settings.SCRIPTS and user is None:
        return (
            "scripts are switched off for this command, which runs them itself. For this command: "
            "EVALSITE_SCRIPTS=1 evalsite evaluate …"
        )
    if not settings.SCRIPTS:
        return (
            "scripts are switched off on this site. Whoever runs the site can switch them on: set "
            "EVALSITE_SCRIPTS=1 for the site and its workers and start them again."
        )
    if user is not None and not user.has_perm(RUN_SCRIPTS):
        return (
            "you may not run scripts. An admin can allow it on your page under Members: "
            "“May run scripts”."
        )
    return _lack_of_a_sandbox(is_own_hands=user is None)


def _lack_of_a_sandbox(*, is_own_hands: bool) -> str:
    """Look where the programs would run: in this process, or at the workers that are alive."""
    remedy = "Scripts run on Linux with bubblewrap or prlimit; install one of them and start the site again."
    if settings.IS_EMBEDDED or is_own_hands:
        offer = probe.sandbox_offered()
        lacks = offer.kind == "none"
        return f"no sandbox works on this machine ({offer.reason}). {remedy}" if lacks else ""
    workers = WorkerProcess.objects.alive(now=database_now())
    shown = list(workers.order_by("name").values_list("sandbox", flat=True))
    if shown and all(words.startswith(UNABLE) for words in shown):
        return f"no worker that is alive can run them ({shown[0]}). {remedy}"
    return ""

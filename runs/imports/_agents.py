"""The targets a suite asks for judgements, as far as they are here already."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.kinds import all_kinds
from runs.formats import Problem, SuiteContent
from runs.models import Target
from runs.plan import agent_paths
from runs.targets import target_kinds


def unfit_agents(content: SuiteContent, *, file: str = "") -> Iterator[Problem]:
    """Yield a problem for each evaluator that asks a target which answers no question.

    One that is not here yet is no problem of the import: `absent_agents` tells of it.
    """
    asking = _asking(content)
    replaying = [name for name, kind in target_kinds().items() if kind.replays]
    named = {name for _, _, name in asking}
    rows = (
        Target.objects.filter(name__in=named, kind__in=replaying)
        if named
        else Target.objects.none()
    )
    unfit = set(rows.values_list("name", flat=True))
    for case, path, name in asking:
        if name in unfit:
            said = (
                f"the target {name!r} has recorded outputs and answers no question; name a chat model, "
                "an agent over HTTP or a command"
            )
            yield Problem(said, file, 0, case, f"evaluator {path}: agent")


def absent_agents(content: SuiteContent, *, file: str = "") -> Iterator[Problem]:
    """Yield a note for each target a suite asks for judgements that is not here yet, where it is first named."""
    first: dict[str, tuple[str, str]] = {}
    for case, path, name in _asking(content):
        first.setdefault(name, (case, path))
    here = Target.objects.filter(name__in=first).values_list("name", flat=True) if first else ()
    known = set(here)
    for name, (case, path) in first.items():
        if name in known:
            continue
        said = (
            f"no target is called {name!r} yet; add it under Targets before a run is started, or name "
            "another"
        )
        yield Problem(said, file, 0, case, f"evaluator {path}: agent")


def _asking(content: SuiteContent) -> list[tuple[str, str, str]]:
    """Return case ("" for the suite's own tree), path and name for each evaluator that asks a target."""
    trees = [("", content.root)]
    trees += [(case.key, case.evaluators) for case in content.cases if case.evaluators]
    return [(case, *one) for case, tree in trees for one in agent_paths(tree, all_kinds()).items()]

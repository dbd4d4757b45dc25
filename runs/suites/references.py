"""Check the language models and agents that a suite names: which of them are not set up on this site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import NamedJudge, named_agents, named_models
from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.models.suites import Target
from runs.specs.problems import Problem
from runs.specs.suites import ModelPlace, SuiteWithCases
from runs.target_kinds import target_kinds


def unfit_agents(content: SuiteWithCases, *, file: str = "") -> Iterator[Problem]:
    """Yield a problem for each evaluator that asks a target whose outputs are stored, which cannot judge.

    A target that does not exist yet is only a note, which `absent_agents` yields.
    """
    unable = [name for name, kind in target_kinds().items() if not kind.can_judge]
    judging = _judging_targets(content)
    unfit = _existing(judging, kind__in=unable)
    for case, agent in judging:
        if agent.name in unfit:
            message = (
                f"the target {agent.name!r} has recorded or pushed outputs and cannot judge; name a chat model, "
                "an agent over HTTP or a command"
            )
            yield Problem(message, file, 0, case, _key(agent))


def absent_agents(content: SuiteWithCases, *, file: str = "") -> Iterator[Problem]:
    """Yield a note for each judging target that does not exist yet, at the place that names it first."""
    judging = _judging_targets(content)
    known = _existing(judging)
    for case, agent in judging:
        if agent.name in known:
            continue
        known.add(agent.name)
        message = (
            f"no target is called {agent.name!r} yet; add it under Targets before starting a run, or "
            "name another"
        )
        yield Problem(message, file, 0, case, _key(agent))


def _judging_targets(content: SuiteWithCases) -> list[tuple[str, NamedJudge]]:
    """Return the targets that evaluators ask to judge, each with the case, "" for the suite's tree."""
    trees = _trees(content)
    return [(case, agent) for case, tree in trees for agent in named_agents(tree, all_kinds())]


def _existing(judging: Sequence[tuple[str, NamedJudge]], **facts: Any) -> set[str]:
    """Return which of the targets exist, and have these facts; no query without targets."""
    names = {agent.name for _, agent in judging}
    rows = Target.objects.filter(name__in=names, **facts) if names else Target.objects.none()
    return set(rows.values_list("name", flat=True))


def _trees(content: SuiteWithCases) -> Iterator[tuple[str, EvaluatorSpec]]:
    """Yield the tree of the suite under "", then those of cases by their key."""
    yield "", content.evaluators
    yield from ((case.key, case.evaluators) for case in content.cases if case.evaluators)


def _key(judge: NamedJudge) -> str:
    return f"evaluator {judge.path}: {judge.setting}" if judge.path else judge.setting


class UnknownJudgeError(DomainError):
    """Suites name judges that are not set up here or cannot judge; `problems` says where."""

    code = "unknown_judge"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Put each problem on its own line."""
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def check_judge(slug: str) -> None:
    """Raise UnknownJudgeError unless a language model has the slug."""
    if not LanguageModel.objects.filter(slug=slug).exists():
        raise UnknownJudgeError((Problem(_missing(slug), key="judge"),))


def missing_models(
    content: SuiteWithCases, *, judge: str | None = None, file: str = ""
) -> Iterator[Problem]:
    """Yield a problem for each place in a suite that names a language model which is not set up here."""
    known = set(LanguageModel.objects.values_list("slug", flat=True))
    judge_slug = content.judge if judge is None else judge
    if judge_slug and judge_slug not in known:
        places = [place for place in _places(content, "", judge_slug) if place.is_suite_judge]
        place = places[0] if places and judge is None else ModelPlace(file, 0)
        yield Problem(_missing(judge_slug), place.file or file, place.line, key="judge")
    named: Counter[tuple[str, str]] = Counter()
    for case, tree in _trees(content):
        for model in named_models(tree, all_kinds()):
            if (slug := model.name) not in known:
                places = [
                    place for place in _places(content, case, slug) if not place.is_suite_judge
                ]
                # The same slug, named again, is at the next of its places.
                at = min(named[case, slug], len(places) - 1)
                place = places[at] if places else ModelPlace(file, 0)
                named[case, slug] += 1
                yield Problem(_missing(slug), place.file or file, place.line, case, _key(model))


def _places(content: SuiteWithCases, case: str, slug: str) -> Sequence[ModelPlace]:
    return content.model_places.get((case, slug), ())


def _missing(slug: str) -> str:
    known = ", ".join(LanguageModel.objects.order_by("slug").values_list("slug", flat=True))
    there_are = f"there are {known}" if known else "there are none yet"
    return (
        f"no language model has the short name {slug!r}; {there_are}. "
        "Add it under Language models, or name another."
    )

"""The language models a suite names, looked up here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from evaluators.kinds import all_kinds, models_named
from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.formats import ModelPlace, Problem, SuiteContent


class UnknownJudgeError(DomainError):
    """Suites name judges that are not set up here or cannot judge; `problems` says which and where."""

    code = "unknown_judge"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Say every problem on a line of its own."""
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def judge_of(slug: str) -> LanguageModel | None:
    """Return the language model, None for ""; raises UnknownJudgeError."""
    if not slug:
        return None
    found = LanguageModel.objects.filter(slug=slug).first()
    if found is None:
        raise UnknownJudgeError((Problem(_missing(slug), key="judge"),))
    return found


def missing_models(
    content: SuiteContent, *, judge: str | None = None, file: str = ""
) -> Iterator[Problem]:
    """Yield a problem for each place of a suite that names a language model which is not set up here."""
    known = set(LanguageModel.objects.values_list("slug", flat=True))
    chosen = content.judge if judge is None else judge
    if chosen and chosen not in known:
        places = [one for one in _places(content, "", chosen) if one.is_suite_judge]
        place = places[0] if places and judge is None else ModelPlace(file, 0)
        yield Problem(_missing(chosen), place.file or file, place.line, key="judge")
    named: Counter[tuple[str, str]] = Counter()
    trees = [("", content.root)]
    trees += [(case.key, case.evaluators) for case in content.cases if case.evaluators]
    for case, tree in trees:
        for path, setting, slug in models_named(tree, all_kinds()):
            if slug not in known:
                places = [one for one in _places(content, case, slug) if not one.is_suite_judge]
                # The same slug named again stands at the next of its places.
                at = min(named[case, slug], len(places) - 1)
                place = places[at] if places else ModelPlace(file, 0)
                named[case, slug] += 1
                key = f"evaluator {path}: {setting}" if path else setting
                yield Problem(_missing(slug), place.file or file, place.line, case, key)


def _places(content: SuiteContent, case: str, slug: str) -> Sequence[ModelPlace]:
    return content.model_places.get((case, slug), ())


def _missing(slug: str) -> str:
    known = ", ".join(LanguageModel.objects.order_by("slug").values_list("slug", flat=True))
    there_are = f"there are {known}" if known else "there is none yet"
    return (
        f"no language model has the slug {slug!r}; {there_are}. "
        "Add it under Language models, or name another."
    )

"""What keeps a case from being stored, field by field: the rules suite files are held to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds import all_kinds, models_named
from evaluators.models import Evaluator, LanguageModel
from evaluators.scoring.tree import Node, validate
from evaluators.scoring.types import DomainError
from runs.formats import CaseContent, SuiteContent
from runs.formats._cases import LONGEST_KEY, LONGEST_TITLE
from runs.formats._turns import ROLES
from runs.imports._agents import unfit_agents
from runs.imports.case_columns import columns_of
from runs.models import Suite
from runs.plan import tree_of_case
from runs.services.draft_problems import missing_model

LONGEST_TAG = 200
MOST_SHOWN = 20
# NUL and halves of surrogate pairs: JSON can spell them, no database keeps them.
UNSTORABLE = re.compile("[\\x00\ud800-\udfff]")
UNSTORABLE_SAID = "It holds a NUL character or half a surrogate pair, which cannot be stored."

Problems = Mapping[str, tuple[str, ...]]


class InvalidCaseError(DomainError):
    """Cases cannot be stored as they are; `problems` says by key and field everything in the way."""

    code = "invalid_case"

    def __init__(self, problems: Mapping[str, Problems]) -> None:
        """Say the first problems, each on a line of its own."""
        self.problems = problems
        lines = [
            f"Case {key[:LONGEST_KEY]}, {field}: {said}"
            for key, fields in problems.items()
            for field, messages in fields.items()
            for said in messages
        ]
        more = len(lines) - MOST_SHOWN
        shown = lines[:MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        super().__init__("\n".join(shown))


class CaseChecks:
    """The checks of one suite; what they look up is asked for once, when the first case needs it."""

    def __init__(self, suite: Suite) -> None:
        """Know nothing of the suite yet."""
        self._suite = suite
        self._root: Node | None = None
        self._models: set[str] | None = None

    def problems(self, case: CaseContent) -> Problems:
        """Return by field what is wrong with a case; nothing when it can be stored."""
        found: dict[str, list[str]] = {}
        for field, said in (*_key_problems(case.key), *_plain_problems(case), *self._own(case)):
            found.setdefault(field, []).append(said)
        for field, value in columns_of(case).items():
            if holds_unstorable(value):
                found.setdefault(field, []).append(UNSTORABLE_SAID)
        return {field: tuple(said) for field, said in found.items()}

    def _own(self, case: CaseContent) -> Iterator[tuple[str, str]]:
        if case.evaluators is None:
            return
        if self._root is None or self._models is None:
            self._root = Evaluator.objects.tree(self._suite.root)
            self._models = set(LanguageModel.objects.values_list("slug", flat=True))
        for path, _, slug in models_named(case.evaluators, all_kinds()):
            if slug not in self._models:
                yield "evaluators", f"Evaluator {path}: {missing_model(slug)}"
        alone = SuiteContent(slug="", title="", root=case.evaluators, cases=())
        for problem in unfit_agents(alone):
            yield "evaluators", f"{problem}."
        own = case.evaluators.as_json()
        try:
            validate(tree_of_case(self._root, own, append=case.evaluators_append))
        except DomainError as error:
            yield "evaluators", f"{str(error).rstrip('.')}."


def check_cases(suite: Suite, cases: tuple[CaseContent, ...]) -> None:
    """Raise InvalidCaseError with everything that is wrong with any of the cases."""
    checks = CaseChecks(suite)
    found = {case.key: said for case in cases if (said := checks.problems(case))}
    keys: set[str] = set()
    for case in cases:
        if case.key in keys:
            found[case.key] = {"key": ("It stands twice; give each case its own.",)}
        keys.add(case.key)
    if found:
        raise InvalidCaseError(found)


def holds_unstorable(value: Any) -> bool:
    """Tell whether a plain value holds, at any depth, characters that no database keeps."""
    match value:
        case str():
            return UNSTORABLE.search(value) is not None
        case Mapping():
            return any(holds_unstorable(part) for pair in value.items() for part in pair)
        case list() | tuple():
            return any(holds_unstorable(part) for part in value)
        case _:
            return False


def _key_problems(key: str) -> Iterator[tuple[str, str]]:
    if not key.strip():
        yield "key", "Write a key that no other case has."
    elif len(key) > LONGEST_KEY:
        yield "key", f"It has {len(key)} characters, and {LONGEST_KEY} is the most."
    if UNSTORABLE.search(key):
        yield "key", UNSTORABLE_SAID


def _plain_problems(case: CaseContent) -> Iterator[tuple[str, str]]:
    if len(case.title) > LONGEST_TITLE:
        yield "title", f"It has {len(case.title)} characters, and {LONGEST_TITLE} is the most."
    if any(not tag.strip() or len(tag) > LONGEST_TAG for tag in case.tags):
        yield "tags", f"A tag has 1 to {LONGEST_TAG} characters."
    if not case.input:
        yield "input", "Write what the case asks: one message at least."
    if odd := [turn["role"] for turn in case.input if turn["role"] not in ROLES]:
        yield "input", f"“{str(odd[0])[:40]}” is no role; choose one of {', '.join(ROLES)}."
    if any(not outcome.strip() for outcome in case.expected_outcomes):
        yield "expected_outcomes", "An expected outcome is empty; write it or remove it."

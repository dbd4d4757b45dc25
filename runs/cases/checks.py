"""Check cases field by field before they are stored, by the rules of suite files, and read fields from text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import named_models
from evaluators.models import LanguageModel
from evaluators.reading.json import is_storable
from evaluators.reading.yaml import FIELD_LIMITS, YamlLimits, write_yaml
from evaluators.scoring.tree import EvaluatorSpec, check_size, validate
from evaluators.scoring.types import DomainError
from runs.engine.plan import case_tree
from runs.formats.reading import Fields, Reading
from runs.formats.recorded_outputs import read_recorded
from runs.formats.suite_cases import MAX_KEY_LENGTH, MAX_TITLE_LENGTH, ROLES
from runs.formats.suite_evaluators import (
    check_composite,
    make_root,
    read_aggregator,
    read_evaluators,
)
from runs.formats.suite_files import own_values
from runs.formats.yaml import YamlDocument, describe_value, read_document
from runs.models.suites import Suite
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import (
    CASE_LISTS,
    MAX_CASE_TAG_LENGTH,
    CaseSpec,
    SuiteWithCases,
    too_many,
)
from runs.suites.drafts import missing_model
from runs.suites.references import unfit_agents

RECORDED_LIMITS = YamlLimits(100_000, "import it with a file of recorded outputs", 0)
MAX_SHOWN = 20
UNSTORABLE_MESSAGE = "It contains a NUL character or half a surrogate pair, which cannot be stored."

Problems = Mapping[str, tuple[str, ...]]


class InvalidCaseError(DomainError):
    """Cases cannot be stored as they are; `problems` are all the reasons, by key and field."""

    code = "invalid_case"

    def __init__(self, problems: Mapping[str, Problems]) -> None:
        """List the first problems, one per line."""
        self.problems = problems
        lines = [
            f"Case {key[:MAX_KEY_LENGTH]}, {field}: {message}"
            for key, fields in problems.items()
            for field, messages in fields.items()
            for message in messages
        ]
        more = len(lines) - MAX_SHOWN
        shown = lines[:MAX_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        super().__init__("\n".join(shown))


class CaseChecks:
    """The checks of one suite's cases; lookups are made once, when the first case needs them."""

    def __init__(self, suite: Suite) -> None:
        """Take the suite without reading anything."""
        self._suite = suite
        self._root: EvaluatorSpec | None = None
        self._models: set[str] | None = None

    def problems(self, case: CaseSpec) -> Problems:
        """Return the problems of a case by field, none when it can be stored."""
        problems: dict[str, list[str]] = {}
        for field, message in (*_key_problems(case.key), *_plain_problems(case), *self._own(case)):
            problems.setdefault(field, []).append(message)
        for field, value in case.columns().items():
            if not is_storable(value):
                problems.setdefault(field, []).append(UNSTORABLE_MESSAGE)
        return {field: tuple(message) for field, message in problems.items()}

    def _own(self, case: CaseSpec) -> Iterator[tuple[str, str]]:
        if case.evaluators is None:
            return
        if self._root is None or self._models is None:
            self._root = self._suite.spec.evaluators
            self._models = set(LanguageModel.objects.values_list("slug", flat=True))
        for model in named_models(case.evaluators, all_kinds()):
            if model.name not in self._models:
                yield "evaluators", f"Evaluator {model.path}: {missing_model(model.name)}"
        alone = SuiteWithCases(slug="", evaluators=case.evaluators)
        for problem in unfit_agents(alone):
            yield "evaluators", f"{problem}."
        own = case.evaluators.as_json()
        try:
            check_size(case.evaluators)
            validate(case_tree(self._root, own, append=case.evaluators_append))
        except DomainError as error:
            yield "evaluators", f"{str(error).rstrip('.')}."


def check_cases(suite: Suite, cases: tuple[CaseSpec, ...]) -> None:
    """Raise InvalidCaseError with every problem of every case."""
    checks = CaseChecks(suite)
    problems = {case.key: message for case in cases if (message := checks.problems(case))}
    keys: set[str] = set()
    for case in cases:
        if case.key in keys:
            problems[case.key] = {"key": ("Two cases have this key; give each its own.",)}
        keys.add(case.key)
    if problems:
        raise InvalidCaseError(problems)


def _key_problems(key: str) -> Iterator[tuple[str, str]]:
    if not key.strip():
        yield "key", "Enter a key that no other case has."
    elif len(key) > MAX_KEY_LENGTH:
        yield "key", f"It has {len(key)} characters; {MAX_KEY_LENGTH} is the limit."
    if not is_storable(key):
        yield "key", UNSTORABLE_MESSAGE


def _plain_problems(case: CaseSpec) -> Iterator[tuple[str, str]]:
    if len(case.title) > MAX_TITLE_LENGTH:
        yield "title", f"It has {len(case.title)} characters; {MAX_TITLE_LENGTH} is the limit."
    if any(not tag.strip() or len(tag) > MAX_CASE_TAG_LENGTH for tag in case.tags):
        yield "tags", f"A tag has 1 to {MAX_CASE_TAG_LENGTH} characters."
    for name in CASE_LISTS:
        if text := too_many(name, getattr(case, name)):
            yield name, f"It {text}."
    if not case.input:
        yield "input", "Enter at least one message."
    if not all(map(_is_message, case.input)):
        yield (
            "input",
            "A message has a role and a content, both texts, and blocks only of type and value.",
        )
    elif odd := [turn["role"] for turn in case.input if turn["role"] not in ROLES]:
        yield "input", f"“{str(odd[0])[:40]}” is not a role; choose one of {', '.join(ROLES)}."
    if any(not outcome.strip() for outcome in case.expected_outcomes):
        yield "expected_outcomes", "An expected outcome is empty; fill it in or remove it."


def _is_message(turn: Mapping[str, Any]) -> bool:
    blocks = turn.get("blocks", [])
    parts = [turn.get("role"), turn.get("content")]
    for block in blocks if isinstance(blocks, list) else [None]:
        parts += [block.get("type"), block.get("value")] if isinstance(block, Mapping) else [None]
    return all(isinstance(part, str) for part in parts)


OUTPUT = "output"
LISTED = "evaluators"


def mapping_text(value: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, "" for an empty one."""
    return write_yaml(value) if value else ""


def read_mapping(text: str) -> dict[str, Any]:
    """Return the mapping of a YAML or JSON text; raises UnreadableFileError naming the line."""
    if not text.strip():
        return {}
    value = read_document(text, limits=FIELD_LIMITS).value
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = (
            f"expected names with values, such as plan: pro, but found {describe_value(value)}"
        )
        raise UnreadableFileError([Problem(message, line=1)])
    return value


def own_text(own: EvaluatorSpec | None) -> str:
    """Return a case's own evaluators as a YAML list, or a mapping if it has an aggregator; "" for none."""
    if own is None:
        return ""
    values = own_values(own)
    return write_yaml(values if "aggregator" in values else values[LISTED])


def read_own(
    text: str, *, root: EvaluatorSpec, append: bool, files: Mapping[str, bytes] | None = None
) -> EvaluatorSpec | None:
    """Return the evaluators of a list, or of a mapping of `evaluators` and `aggregator`; None for an empty text.

    With `append` they join those of `root`, so they need other names. `files` are the suite's, by
    path. Raises UnreadableFileError with every problem, unknown keys included.
    """
    if not text.strip():
        return None
    document = read_document(text, limits=FIELD_LIMITS)
    reading = Reading(document, files or {})
    is_list = isinstance(document.value, list)
    fields = Fields(
        reading,
        (),
        aliases={LISTED: ("assertions", "assert")},
        value={} if is_list else document.value,
    )
    key, items = ("", document.value) if is_list else fields.items(LISTED)
    aggregator_key, options = fields.mapping("aggregator")
    for key_left in fields.rest():
        fields.refuse(key_left, "is unknown here; known are evaluators and aggregator")
    if options and append:
        message = (
            "comes from the suite; only evaluators that replace the suite's can have their own"
        )
        fields.refuse(aggregator_key, message)
    beside = root.children if append else ()
    listed = read_evaluators(reading, fields.place(key), items, beside=beside)
    aggregator = (
        read_aggregator(reading, fields.place(aggregator_key), options) if options else None
    )
    if not listed and not reading.problems:
        reading.refuse((), "no evaluator is listed; add one, such as - type: contains")
    own = make_root(listed, aggregator)
    check_composite(reading, (), own)
    if problems := reading.in_order() or (reading.warnings if reading.kept else []):
        raise UnreadableFileError(problems)
    return own


def recorded_text(recorded: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Return a recorded output as text, and whether the text is JSON rather than the answer itself."""
    if recorded is None:
        return "", False
    if recorded.keys() == {OUTPUT} and isinstance(recorded[OUTPUT], str):
        return recorded[OUTPUT], False
    return json.dumps(recorded, ensure_ascii=False, indent=2), True


def read_recorded_json(text: str, files: Mapping[str, bytes] | None = None) -> Mapping[str, Any]:
    """Return the recorded output of a JSON text; raises UnreadableFileError naming line and key."""
    parsed = read_document(text, limits=RECORDED_LIMITS)
    document = YamlDocument(
        value={OUTPUT: parsed.value},
        lines={(OUTPUT, *path): line for path, line in parsed.lines.items()},
        written={(OUTPUT, *path): written for path, written in parsed.written.items()},
    )
    reading = Reading(document, files or {})
    recorded = read_recorded(Fields(reading, (), value=document.value))
    if recorded is None and not reading.problems:
        reading.refuse((OUTPUT,), "this is null; leave the field empty for no recorded output")
    if reading.problems or recorded is None:
        raise UnreadableFileError(reading.in_order())
    return recorded

"""Cases of a suite file, in it or in a file of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import normal_spelling
from evaluators.scoring.tree import EvaluatorSpec
from runs.formats.bundles import OUTSIDE, absent
from runs.formats.lines import (
    CASES_KEYS,
    LINES_SUFFIXES,
    YAML_SUFFIXES,
    Form,
    LinedCases,
    misplaced,
    read_lined,
)
from runs.formats.reading import Fields, Reading
from runs.formats.recorded_outputs import read_recorded
from runs.formats.suite_evaluators import (
    check_composite,
    default_children,
    read_aggregator,
    read_evaluators,
    root_of,
)
from runs.formats.suite_turns import Shared, read_expected, read_input
from runs.formats.yaml import Path, YamlDocument, decoded, named, read_document
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import CaseSpec


def cases_file_of(document: YamlDocument) -> str:
    """Return the path of the file of cases that a suite file's `tests` name, "" when they name none."""
    return (
        reference_path(_reference(document), folder_of(document.file))
        if _reference(document)
        else ""
    )


def with_cases(
    document: YamlDocument, files: Mapping[str, bytes]
) -> tuple[YamlDocument, tuple[str, ...]]:
    """Return the document with the cases of the file its `tests` name, and the path of that file.

    The file is YAML or JSON Lines. Each value keeps its place in its own file; what else `tests` may
    hold is left as it is. Raises UnreadableFileError for a file that is missing or holds no list of cases.
    """
    reference, path, key = _reference(document), cases_file_of(document), _key_of(document)
    if not reference:
        return document, ()
    if path not in files:
        said = absent(reference, files) if path else f"the file {reference!r} {OUTSIDE}"
        raise UnreadableFileError([_problem(document, key, said)])
    read = _lined if path.lower().endswith(LINES_SUFFIXES) else _listed
    cases = read(files[path], path, key)
    found = replace(
        document,
        value={**document.value, key: cases.cases},
        lines={**document.lines, **cases.lines},
        written={**document.written, **cases.written},
        elsewhere={**document.elsewhere, key: path},
    )
    return found, (path,)


def folder_of(file: str) -> str:
    """Return the folder a file lies in, "" for the top."""
    parent = str(PurePosixPath(file).parent)
    return "" if parent == "." else parent


def _listed(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of a YAML file."""
    found = read_document(decoded(content, path), path)
    if not isinstance(found.value, list):
        said = f"{named(found.value)} stands where a list of cases is expected"
        raise UnreadableFileError([Problem(said, path, 1)])
    return LinedCases(
        cases=found.value,
        lines={(key, *place): line for place, line in found.lines.items()},
        written={(key, *place): text for place, text in found.written.items()},
    )


def _lined(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of JSON Lines."""
    found = read_lined(content, path, key)
    if not found.cases and not found.problems:
        found.problems.append(Problem("the file holds no cases", path))
    only = misplaced(content, path, Form.CASES)
    if only or found.problems:
        raise UnreadableFileError([only] if only else found.problems)
    return found


def _reference(document: YamlDocument) -> str:
    key = _key_of(document)
    reference = document.value[key].strip() if key else ""
    return reference if reference.lower().endswith((*YAML_SUFFIXES, *LINES_SUFFIXES)) else ""


def _key_of(document: YamlDocument) -> str:
    """Return the key that names a file of cases, "" when none does."""
    if not isinstance(document.value, dict):
        return ""
    keys = (key for key in document.value if normal_spelling(key) in CASES_KEYS)
    return next((key for key in keys if isinstance(document.value[key], str)), "")


def _problem(document: YamlDocument, key: str, message: str) -> Problem:
    return Problem(message, document.file, document.line_of((key,)), key=key)


MAX_KEY_LENGTH = 200
MAX_TITLE_LENGTH = 300
ALIASES = {
    "id": ("key", "case_id", "eval_id", "test_id"),
    "title": ("name",),
    "criteria": ("expected_outcome", "outcome"),
    "input": ("input_messages",),
    "expected_output": ("expected_messages", "reference_answer"),
    "assertions": ("assert",),
    "output": ("recorded_output",),
}
WITHIN = {"assertions": ("assert",)}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a suite gives each of its cases: what goes before their input, and its evaluators.

    `is_default` tells that the suite lists no evaluators, so that a case's own stand alone.
    """

    root: EvaluatorSpec
    is_default: bool
    shared: Shared


def read_cases(
    reading: Reading, path: Path, items: list[Any], defaults: Defaults
) -> tuple[CaseSpec, ...]:
    """Return the cases of a list; ids must be unique, what cannot be read is noted and left out."""
    found: dict[str, CaseSpec] = {}
    first_lines: dict[str, int] = {}
    for n, item in enumerate(items):
        at = (*path, n)
        if isinstance(item, str):
            said = f"{item[:100]!r} names no case; cases stand here themselves, with id and input"
            reading.refuse(at, said)
            continue
        case = _Case(reading, at, item, defaults).content()
        if case is None:
            continue
        if case.key in found:
            said = f"the id {case.key!r} stands twice, first on line {first_lines[case.key]}"
            reading.refuse((*at, "id"), f"{said}; give each case its own", case=case.key)
            continue
        found[case.key] = case
        first_lines[case.key] = reading.document.line_of(at)
    return tuple(found.values())


class _Case:
    """One case of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, defaults: Defaults) -> None:
        self.reading = reading
        self.path = path
        self.fields = Fields(reading, path, aliases=ALIASES, value=item)
        self.defaults = defaults

    def content(self) -> CaseSpec | None:
        """Return the case, None when it has no usable id."""
        key = self.fields.text("id")
        if not key.strip():
            self.fields.refuse("", "the case has no id; give it one that no other case has")
            return None
        if len(key) > MAX_KEY_LENGTH:
            self.fields.refuse(
                "id", f"the id is longer than {MAX_KEY_LENGTH} characters; shorten it"
            )
        self.fields.case = key
        title = self.fields.text("title")
        if len(title) > MAX_TITLE_LENGTH:
            said = f"the title is longer than {MAX_TITLE_LENGTH} characters; shorten it"
            self.fields.refuse("title", said)
        execution_key, block = self.fields.mapping("execution")
        place = self.fields.place(execution_key)
        inner = Fields(self.reading, place, aliases=WITHIN, value=block, case=key)
        skips = bool(inner.flag("skip_defaults")) | bool(self.fields.flag("skip_defaults"))
        evaluators, append = self._evaluators(inner, skips=skips)
        expected, kept = read_expected(self.fields)
        rest = inner.keep_rest()
        own = self.reading.kept.pop(key, {})
        content = CaseSpec(
            key=key,
            title=title,
            tags=self.fields.texts("tags"),
            input=read_input(self.fields, Shared() if skips else self.defaults.shared),
            expected_output=expected,
            expected_outcomes=self.fields.texts("expected_outcomes"),
            criteria=self.fields.text("criteria"),
            recorded_output=read_recorded(self.fields),
            evaluators=evaluators,
            evaluators_append=append,
            metadata=self.fields.metadata(
                {"execution": rest} if rest else {}, {"evaluators": own} if own else {}, kept
            ),
        )
        if any(not outcome.strip() for outcome in content.expected_outcomes):
            self.fields.refuse(
                "expected_outcomes", "an expected outcome is empty; write it or remove it"
            )
        return content

    def _evaluators(self, inner: Fields, *, skips: bool) -> tuple[EvaluatorSpec | None, bool]:
        """Return the case's own tree and whether it joins the suite's (`assertions`) or replaces it."""
        own = self._listed(self.fields, "evaluators", ())
        own += self._listed(inner, "evaluators", own)
        joins = not own and not skips and not self.defaults.is_default
        beside = self.defaults.root.children if joins else own
        joined = self._listed(self.fields, "assertions", beside)
        joined += self._listed(inner, "assertions", (*beside, *joined))
        for fields in (self.fields, inner):
            joined += self._listed(fields, "rubrics", (*beside, *joined))
        aggregator_key, options = self.fields.mapping("aggregator")
        place = self.fields.place(aggregator_key)
        aggregator = read_aggregator(self.reading, place, options, case=self.fields.case)
        if options and (joins or not (own or joined)):
            said = "is taken from the suite, unless the case lists evaluators of its own"
            self.fields.refuse(aggregator_key, said)
        if not own and not joined:
            return (root_of(default_children()), False) if skips else (None, False)
        root = root_of((*own, *joined), aggregator if options else None)
        check_composite(self.reading, self.path, root, case=self.fields.case)
        return root, joins

    def _listed(
        self, fields: Fields, name: str, beside: tuple[EvaluatorSpec, ...]
    ) -> tuple[EvaluatorSpec, ...]:
        key, items = fields.items(name)
        if name == "rubrics" and items:
            items = [{"type": "rubric", "rubrics": items}]
        return read_evaluators(
            self.reading, fields.place(key), items, case=self.fields.case, beside=beside
        )

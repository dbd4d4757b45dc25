"""Scenarios of AgentV's newest files: every row of a matrix with every test becomes a case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any

from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import normal_spelling
from evaluators.reading.yaml import Path
from runs.formats.bundles import missing_file_message
from runs.formats.lines import CASES_KEYS
from runs.formats.shared_texts import VALUES_OF_A_PLACE, include_all, include_values
from runs.formats.suite_cases import parent_folder
from runs.formats.yaml import YamlDocument, decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError

SCENARIOS, FILE = "scenarios", "file://"
ASSERTIONS = ("assert", "assertions")
MAX_CASES = 20_000
MAX_ID_LENGTH = 80


@dataclass(frozen=True, slots=True)
class _Scenario:
    """A matrix, with the place it is written at."""

    document: YamlDocument
    path: Path
    value: Mapping[str, Any]

    def refusal(self, message: str) -> UnreadableFileError:
        return UnreadableFileError(
            [Problem(message, self.document.file, self.document.line_at(self.path), key=SCENARIOS)]
        )

    def cases(self) -> Iterator[tuple[dict[str, Any], Mapping[Path, int]]]:
        """Yield the cases, each with the lines of its parts; raises UnreadableFileError."""
        rows, tests = self.value.get("config", [{}]), self.value.get("tests")
        if not _are_mappings(rows) or not _are_mappings(tests) or not tests:
            raise self.refusal("a scenario has a list of rows under config, and a list of tests")
        lines = self._lines()
        for n, row in enumerate(rows):
            for k, test in enumerate(tests):
                case = self._case(row, n, test)
                include_all(case)
                yield case, lines.get(k, {})

    def _case(self, row: Mapping[str, Any], number: int, test: Mapping[str, Any]) -> dict[str, Any]:
        """Return a test with the values of a row; both of their assertions count."""
        variables = {**_mapping(row.get("vars")), **_mapping(test.get("vars"))}
        name = str(test.get("id") or test.get("description") or "test")
        key = f"{row.get('id') or number + 1}-{_plain(name)}"
        listed = [part for of in (test, row) for each in ASSERTIONS for part in of.get(each) or ()]
        rest = {
            name: part for name, part in test.items() if name not in ("description", *ASSERTIONS)
        }
        own = {"title": str(test["description"])} if test.get("description") else {}
        return {**own, **rest, "id": key, "vars": variables, ASSERTIONS[0]: listed}

    def _lines(self) -> dict[int, dict[Path, int]]:
        """Return the lines of the parts of each test, by its place."""
        before = (*self.path, "tests")
        lines: dict[int, dict[Path, int]] = {}
        for path, line in self.document.lines.items():
            if path[: len(before)] == before and len(path) > len(before):
                number, *inner = path[len(before) :]
                lines.setdefault(int(number), {})[tuple(inner)] = line
        return lines


def with_scenarios(
    document: YamlDocument, files: Mapping[str, bytes]
) -> tuple[YamlDocument, tuple[str, ...]]:
    """Return the document with the cases of its scenarios, and the paths of the files they stand in.

    Raises UnreadableFileError for a file that is missing, and for what is no scenario.
    """
    names = {normal_spelling(str(key)): key for key in _mapping(document.value)}
    key = names.get(SCENARIOS, "")
    if not key:
        return document, ()
    cases_key = next((names[name] for name in CASES_KEYS if name in names), "tests")
    cases = list(document.value.get(cases_key) or [])
    lines, elsewhere, read_with = dict(document.lines), dict(document.elsewhere), dict[str, None]()
    for scenario in _scenarios(document, key, files):
        for case, parts in scenario.cases():
            place = (cases_key, len(cases))
            if len(cases) >= MAX_CASES:
                raise scenario.refusal(f"makes more than {MAX_CASES:,} cases; give a part of them")
            include_values(VALUES_OF_A_PLACE * len(parts))
            lines |= {(*place, *path): line for path, line in parts.items()}
            if scenario.document.file != document.file:
                elsewhere[place] = scenario.document.file
                read_with[scenario.document.file] = None
            cases.append(case)
    value = {name: part for name, part in document.value.items() if name != key}
    value[cases_key] = cases
    return replace(document, value=value, lines=lines, elsewhere=elsewhere), tuple(read_with)


def _scenarios(document: YamlDocument, key: str, files: Mapping[str, bytes]) -> Iterator[_Scenario]:
    given, seen = document.value[key], set[str]()
    for n, item in enumerate(given if isinstance(given, list) else [given]):
        place = (key, n) if isinstance(given, list) else (key,)
        if isinstance(item, Mapping):
            yield _Scenario(document, place, item)
            continue
        problem = Problem("", document.file, document.line_at(place), key=SCENARIOS)
        if not isinstance(item, str):
            raise UnreadableFileError(
                [replace(problem, message="is neither a scenario nor the name of its file")]
            )
        wanted = reference_path(item.removeprefix(FILE), parent_folder(document.file))
        paths = sorted(path for path in files if fnmatch(path, wanted)) if wanted else []
        if not paths:
            message = missing_file_message(item, files, parent_folder(document.file))
            raise UnreadableFileError([replace(problem, message=message)])
        for path in paths:
            if path in seen:
                message = f"names {path} again; name each file once"
                raise UnreadableFileError([replace(problem, message=message)])
            seen.add(path)
            named = read_document(decode_text(files[path], path), path)
            listed = named.value if isinstance(named.value, list) else [named.value]
            for k, part in enumerate(listed):
                at = (k,) if isinstance(named.value, list) else ()
                scenario = _Scenario(named, at, _mapping(part))
                if not scenario.value:
                    raise scenario.refusal("a scenario is a mapping with config and tests")
                yield scenario


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, Mapping) for part in value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "-", text.casefold()).strip("-")[:MAX_ID_LENGTH].strip("-") or "test"

"""Where a suite file names language models, for whoever finds that one is not set up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from evaluators.kinds import normal_spelling
from runs.formats._content import CaseContent, ModelPlace
from runs.formats._document import Document, Path

CASES = ("tests", "cases", "evalcases", "eval_cases")
JUDGE = "judge"
NAMES = ("model", JUDGE)
# A panel of judges is named in a list.
LISTS = ("models", "judges", "agents", "participants")


def model_places(
    document: Document, cases: tuple[CaseContent, ...]
) -> Mapping[tuple[str, str], tuple[ModelPlace, ...]]:
    """Return by case, "" for the suite, and slug in which files and lines it is named, in their order."""
    found: dict[tuple[str, str], list[ModelPlace]] = {}
    for path, slug in _named(document.value, ()):
        place = ModelPlace(document.file_of(path), document.line_of(path), len(path) == 1)
        found.setdefault((_case(path, cases), slug), []).append(place)
    return {named: tuple(places) for named, places in found.items()}


def seen_from(
    places: Mapping[tuple[str, str], tuple[ModelPlace, ...]], before: str
) -> Mapping[tuple[str, str], tuple[ModelPlace, ...]]:
    """Return the places with what goes before the paths of their files."""
    return {
        named: tuple(replace(one, file=f"{before}{one.file}") for one in found)
        for named, found in places.items()
    }


def _named(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    for name, part in enumerate(value) if isinstance(value, list) else parts:
        if isinstance(part, dict | list):
            yield from _named(part, (*path, name))
            if isinstance(part, list) and normal_spelling(str(name)) in LISTS:
                yield from _listed(part, (*path, name))
        elif isinstance(part, str) and part and normal_spelling(str(name)) in NAMES:
            yield (*path, name), part


def _listed(panel: list[Any], path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each text of a list where it stands first: it is missing once, however often it votes."""
    first: dict[str, int] = {}
    for at, slug in enumerate(panel):
        if isinstance(slug, str) and slug:
            first.setdefault(slug, at)
    yield from (((*path, at), slug) for slug, at in first.items())


def _case(path: Path, cases: tuple[CaseContent, ...]) -> str:
    if normal_spelling(str(path[0])) not in CASES or len(path) < 2:
        return ""
    number = path[1]
    return cases[number].key if isinstance(number, int) and number < len(cases) else ""

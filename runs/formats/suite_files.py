"""The suites among files that were given together, and what became of all the other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._searching import SUFFIXES, FoundSuite, Search
from runs.formats.bundles import Bundle
from runs.profiles import profile_named

__all__ = ["SUFFIXES", "FoundSuite", "FoundSuites", "read_suites"]

NONE_FOUND = (
    "there is no suite among these files: one ends in .yaml or .yml and lists cases under tests, or "
    "ends in .jsonl and holds a case a line; a spreadsheet comes in under New suite, From a spreadsheet"
)


@dataclass(frozen=True, slots=True)
class FoundSuites:
    """Every suite that was given, in the order of their paths, and what is to be said of the rest."""

    suites: tuple[FoundSuite, ...]
    notes: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Return what is to be said of the suites, then of what was not used."""
        return (*(warning for one in self.suites for warning in one.content.warnings), *self.notes)


def read_suites(bundles: Sequence[Bundle], *, profile: str = "") -> FoundSuites:
    """Return the suites of all bundles; what is no suite is named in the notes.

    A YAML file that lists no cases, JSON Lines that hold none, and what a suite names as its own file
    are no suites, unless nothing else was given. With the name of a `profile` its policy and evaluators
    stand where a file says nothing; a profile that the file names itself goes before it, with a note.
    Raises UnknownProfileError, and UnreadableFileError with the problems of every suite when one of
    them cannot be used, when two have one name, and when there is none.
    """
    chosen = profile_named(profile) if profile else None
    searches = [Search(bundle, chosen) for bundle in bundles]
    for search in searches:
        search.look()
    suites = tuple(suite for search in searches for suite in search.suites())
    problems = [problem for search in searches for problem in search.problems()]
    notes = tuple(note for search in searches for note in search.notes)
    if problems or not suites:
        raise UnreadableFileError(problems or [Problem(NONE_FOUND), *notes])
    if doubled := list(_doubled(suites)):
        raise UnreadableFileError(doubled)
    return FoundSuites(suites, notes)


def _doubled(suites: Sequence[FoundSuite]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for suite in suites:
        slug = suite.content.slug
        if slug in first:
            said = f"the suite {slug!r} stands in {first[slug]} too; give one of them another name"
            yield Problem(said, suite.path, key="name")
        first.setdefault(slug, suite.path)

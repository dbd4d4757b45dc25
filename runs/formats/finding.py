"""Find the suites among files that were given together, and report the files that were left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from evaluators.kinds.script.program import INTERPRETERS
from runs.formats import suite_files
from runs.formats.bundles import Bundle, Origin, Subfolder, folder_for, summarise_paths
from runs.formats.lines import (
    LINES_SUFFIXES,
    REMEDIES,
    YAML_SUFFIXES,
    Form,
    detect_form,
    is_meant_as_suite,
)
from runs.formats.suite_cases import cases_file_paths
from runs.formats.suite_evaluators import with_file_prefix
from runs.formats.tools import recognise
from runs.formats.tools._base import (
    ToolFile,
    ToolFormat,
    open_document,
    open_file,
    open_lines,
)
from runs.formats.yaml import decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.profiles import Profile, get_profile
from runs.specs.suites import SuiteWithCases

SUFFIXES = (*YAML_SUFFIXES, *LINES_SUFFIXES)
# Files that are a suite only where another tool wrote them.
OTHER_SUFFIXES = (".json", ".csv", ".tsv", ".eval")
MAX_BYTES = 50 * 1024 * 1024
# A file that does not parse was probably meant as a suite if a line begins with one of these.
MEANT = re.compile(rb"^(tests|cases|eval_?cases|evaluators|assert(ions)?)['\"]?\s*:", re.I | re.M)

NEEDED = "; where a script needs them, choose the folder or a zip, which keep them beside it"


@dataclass(frozen=True, slots=True)
class FoundSuite:
    """A suite and the path of its file, as people write it."""

    path: str
    content: SuiteWithCases


@dataclass(slots=True)
class SuiteSearch:
    """The search of one bundle, with the suites found in it by path."""

    bundle: Bundle
    profile: Profile | None = None
    notes: list[Problem] = field(default_factory=list)
    found: dict[str, SuiteWithCases] = field(default_factory=dict)
    refused: dict[str, Sequence[Problem]] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    mentioned: dict[str, set[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Read every suite, and note what was left out."""
        candidates = [path for path in self.bundle.paths if path.lower().endswith(SUFFIXES)]
        others = [path for path in self.bundle.paths if path.lower().endswith(OTHER_SUFFIXES)]
        is_only = len(candidates) + len(others) == 1
        for path in others:
            self._look_at_other(path, is_only=is_only)
        is_only = len(candidates) == 1
        # JSON Lines come first, because the YAML next to them is part of their suite.
        for path in sorted(candidates, key=lambda path: (not _holds_lines(path), path)):
            if path in self.described:
                continue
            read = self._read_lines if _holds_lines(path) else self._read_yaml
            try:
                content = read(path, is_only=is_only)
            except UnreadableFileError as error:
                self.refused[path] = error.problems
            else:
                self.found |= {path: content} if content else {}
        own = {f"{self.bundle.place}{name}" for name in self.named}
        self.notes = [note for note in self.notes if note.file not in own]
        rest = set(self.bundle.paths) - self.named - self.described - set(candidates)
        rest -= self.found.keys() | self.refused.keys()
        if rest and self.found:
            some = f"{len(rest)} files" if len(rest) > 1 else "1 file"
            message = f"{some} that no suite names {'were' if len(rest) > 1 else 'was'} left out"
            more = NEEDED if self.bundle.origin is Origin.LOOSE and _has_scripts(rest) else ""
            message = f"{message}: {summarise_paths(rest)}{more}"
            self.notes.append(Problem(message, self.bundle.place.rstrip("/")))
        self.notes += self.bundle.left_out

    def _look_at_other(self, path: str, *, is_only: bool) -> None:
        """Read a file that is no suite of ours, if another tool wrote it."""
        try:
            content = self.bundle.files[path]
            opened = open_file(path, content)
            if opened and (tool := recognise(opened)):
                suite = self._read_tool(path, opened, tool, content, is_only=is_only)
                self.found |= {path: suite} if suite else {}
        except UnreadableFileError as error:
            self.refused[path] = error.problems

    def _read_tool(
        self, path: str, opened: ToolFile, tool: ToolFormat, content: bytes, *, is_only: bool
    ) -> SuiteWithCases | None:
        """Return the suite in a file of another tool, None with a note for one that holds none."""
        if tool.read_suite is None:
            remedy = tool.refusal or REMEDIES[Form.RESULTS]
            if is_only:
                raise UnreadableFileError(
                    [self._placed(Problem(f"the file is {tool.label}, no cases; {remedy}", path))]
                )
            self._note(path, f"is {tool.label} and was left out; {remedy}")
            return None
        read_suite = tool.read_suite

        def read(file: str, files: Mapping[str, bytes]) -> SuiteWithCases:
            draft = read_suite(replace(opened, path=file), files)
            content = suite_files.parse_suite(draft.document(), files, self.profile)
            return content.replace(
                warnings=(*draft.notes, *content.warnings), read_with=tuple(draft.read_with)
            )

        return self._seen_from(path, read, content)

    def suites(self) -> list[FoundSuite]:
        """Return the suites, without files that belong to another suite."""
        others = self._of_others()
        own = [path for path in sorted(self.found) if path not in others]
        return [FoundSuite(f"{self.bundle.place}{path}", self.found[path]) for path in own]

    def problems(self) -> list[Problem]:
        """Return the problems of the suites."""
        others = self._of_others()
        own = [path for path in sorted(self.refused) if path not in others]
        return [problem for path in own for problem in self.refused[path]]

    def _of_others(self) -> set[str]:
        """Return the files that suites mention, starting with suites nearest to the top; they are not suites."""
        mentioned: set[str] = set()
        for path in sorted(self.mentioned, key=lambda path: (path.count("/"), path)):
            if path not in mentioned:
                mentioned |= self.mentioned[path] - {path}
        return mentioned

    def _read_lines(self, path: str, *, is_only: bool) -> SuiteWithCases | None:
        opened = open_lines(path, self.bundle.beginning(path))
        if opened and (tool := recognise(opened)):
            content = self.bundle.files[path]
            opened = replace(opened, content=content)
            return self._read_tool(path, opened, tool, content, is_only=is_only)
        form = detect_form(self.bundle.beginning(path))
        if form is not Form.CASES and not is_only:
            held = "no cases" if form is Form.OTHER else f"{form}, no cases,"
            self._note(path, f"holds {held} and was left out; {REMEDIES[form]}")
            return None
        beside = suite_files.sidecar_path(path, self.bundle.files)
        self.described |= {beside} - {""}
        content = self.bundle.files[path]

        def read(file: str, files: Mapping[str, bytes]) -> SuiteWithCases:
            return suite_files.read_case_lines(
                content, file=file, files=files, profile=self.profile
            )

        head = self.bundle.files[beside] if beside else b""
        return self._seen_from(path, read, content, head)

    def _read_yaml(self, path: str, *, is_only: bool) -> SuiteWithCases | None:
        content = self.bundle.files[path]
        try:
            document = read_document(decode_text(content, path), path)
        except UnreadableFileError as error:
            if is_only or MEANT.search(content):
                problems = [self._placed(problem) for problem in error.problems]
                raise UnreadableFileError(problems) from error
            self._note(path, f"is not a suite file and was left out: {error.problems[0].message}")
            return None
        if tool := recognise(opened := open_document(document, content)):
            return self._read_tool(path, opened, tool, content, is_only=is_only)
        if not is_only and not is_meant_as_suite(document.value):
            self._note(
                path, "is not a suite file, because it lists no cases under tests, and was left out"
            )
            return None

        # Even if the suite is refused: problems of its cases are reported once, as part of it.
        named = filter(None, cases_file_paths(document))
        self.mentioned[path] = set(map(self.bundle.given_as, named))

        def read(file: str, files: Mapping[str, bytes]) -> SuiteWithCases:
            return suite_files.parse_suite(replace(document, file=file), files, self.profile)

        return self._seen_from(path, read, content)

    def _seen_from(
        self, path: str, read: Callable[[str, Mapping[str, bytes]], SuiteWithCases], *texts: bytes
    ) -> SuiteWithCases:
        """Return the suite read from its base folder, with every place relative to the top folder."""
        folder = folder_for(path, *texts)
        before = f"{folder}/" if folder else ""
        try:
            content = read(path.removeprefix(before), self._below(folder))
        except UnreadableFileError as error:
            problems = [self._placed(problem, before) for problem in error.problems]
            raise UnreadableFileError(problems) from error
        if sum(map(len, content.files.values())) > MAX_BYTES:
            message = (
                f"the files the suite names are larger than {MAX_BYTES // 1024**2} MB together; "
                "name smaller or fewer ones"
            )
            raise UnreadableFileError([self._placed(Problem(message, path))])
        named = (f"{before}{name}" for name in (*content.files, *content.read_with))
        names = set(map(self.bundle.given_as, named))
        self.named |= names
        # A script brings files from around it; only files named in the text count as mentioned.
        self.mentioned[path] = {
            name
            for name in names
            if any(PurePosixPath(name).name.encode() in part for part in texts)
        }
        warnings = tuple(self._placed(warning, before) for warning in content.warnings)
        places = with_file_prefix(content.model_places, f"{self.bundle.place}{before}")
        return content.replace(warnings=warnings, model_places=places)

    def _below(self, folder: str) -> Subfolder:
        return Subfolder(self.bundle.files, folder, self.bundle.origin)

    def _note(self, path: str, message: str) -> None:
        self.notes.append(self._placed(Problem(message, path)))

    def _placed(self, problem: Problem, before: str = "") -> Problem:
        return replace(problem, file=f"{self.bundle.place}{before}{problem.file}")


def _has_scripts(paths: set[str]) -> bool:
    return any(path.endswith(tuple(INTERPRETERS)) for path in paths)


def _holds_lines(path: str) -> bool:
    return path.lower().endswith(LINES_SUFFIXES)


NONE_FOUND = (
    "there is no suite among these files: a suite file ends in .yaml or .yml and lists cases under tests, "
    "or ends in .jsonl and has a case per line; import a spreadsheet under New suite, From a spreadsheet"
)


@dataclass(frozen=True, slots=True)
class FoundSuites:
    """All suites that were found, ordered by path, with notes about the other files."""

    suites: tuple[FoundSuite, ...]
    notes: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Return the warnings of the suites, then the notes about other files."""
        return (
            *(warning for suite in self.suites for warning in suite.content.warnings),
            *self.notes,
        )


def read_suites(bundles: Sequence[Bundle], *, profile: str = "") -> FoundSuites:
    """Return the suites of all bundles; the notes name files that are not suites.

    A YAML file without cases, JSON Lines without cases, and a file that another suite names are not suites,
    unless nothing else was given. With the name of a `profile`, its policy and evaluators apply where a file
    has none; a profile that the file itself names takes precedence, with a note. Raises UnknownProfileError,
    and UnreadableFileError with the problems of every suite if one of them cannot be used, if two have the
    same name, or if there is none.
    """
    chosen = get_profile(profile) if profile else None
    searches = [SuiteSearch(bundle, chosen) for bundle in bundles]
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
            message = f"the suite {slug!r} is in {first[slug]} too; give one of them another name"
            yield Problem(message, suite.path, key="name")
        first.setdefault(slug, suite.path)

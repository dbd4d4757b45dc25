"""Find the suites among files that were given together, and report the files that were left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from runs.formats.prompt_programs import RunProgram, run_no_program
from runs.formats.shared_texts import count_cases, limit_import
from runs.formats.suite_cases import cases_file_paths
from runs.formats.suite_evaluators import with_file_prefix
from runs.formats.tools import recognise
from runs.formats.tools._base import (
    NothingToReadError,
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


# The suites of one file: one, several in a file of another tool, none in a file that holds something else.
Suites = tuple[SuiteWithCases, ...]
Reader = Callable[[str, Mapping[str, bytes]], Sequence[SuiteWithCases]]


@dataclass(frozen=True, slots=True)
class FoundSuite:
    """A suite and the path of its file, as people write it."""

    path: str
    content: SuiteWithCases

    def unrelated_problem(self, stored: Collection[str]) -> Problem | None:
        """Return what is wrong with replacing the suite of this name; `stored` are the keys of its cases.

        A suite that shares no case with the file merely happens to have the same name.
        """
        slug = self.content.slug
        if not stored or any(case.key in stored for case in self.content.cases):
            return None
        message = (
            f"there is already a suite {slug!r}, and it shares no case with this file; write another "
            f"name in the file or choose one for this import (--slug NAME), or choose {slug} itself to "
            "replace all its cases"
        )
        return Problem(message, self.path, key="name")


@dataclass(slots=True)
class SuiteSearch:
    """The search of one bundle, with the suites found in it by path."""

    bundle: Bundle
    profile: Profile | None = None
    run: RunProgram = run_no_program
    notes: list[Problem] = field(default_factory=list)
    found: dict[str, Suites] = field(default_factory=dict)
    refused: dict[str, Sequence[Problem]] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    mentioned: dict[str, set[str]] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Read every suite, and note what was left out."""
        candidates = [path for path in self.bundle.paths if path.lower().endswith(SUFFIXES)]
        others = [path for path in self.bundle.paths if path.lower().endswith(OTHER_SUFFIXES)]
        is_only = len(candidates) + len(others) == 1
        for path in others:
            self._look_at_other(path, is_only=is_only)
        if (
            is_only
            and others
            and not self.found
            and not self.refused
            and others[0].endswith(".json")
        ):
            # A suite can be JSON too, which is YAML.
            candidates = others
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
        rest -= self.found.keys() | self.refused.keys() | self.noted
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
            opened = open_file(path, self.bundle.files[path])
            if opened and (tool := recognise(opened)):
                suites = self._read_tool(opened, tool, is_only=is_only)
                self.found |= {path: suites} if suites else {}
        except UnreadableFileError as error:
            self.refused[path] = error.problems

    def _read_tool(self, opened: ToolFile, tool: ToolFormat, *, is_only: bool) -> Suites:
        """Return the suites in a file of another tool, none with a note for a file that holds no cases."""
        path = opened.path
        if tool.read_suites is None:
            remedy = tool.refusal or REMEDIES[Form.RESULTS]
            if is_only:
                message = f"the file is {tool.label}, no cases; {remedy}"
                raise UnreadableFileError([self._placed(Problem(message, path))])
            self._note(path, f"is {tool.label} and was left out; {remedy}")
            return ()

        def read(file: str, files: Mapping[str, bytes]) -> Sequence[SuiteWithCases]:
            suites = []
            for draft in tool.suites(replace(opened, path=file, run=self.run), files):
                content = suite_files.parse_suite(draft.document(), files, self.profile)
                warnings = (*draft.notes, *content.warnings)
                suites.append(content.replace(warnings=warnings, read_with=tuple(draft.read_with)))
            return suites

        try:
            return self._seen_from(path, read, opened.content, b"../" * tool.levels_up)
        except NothingToReadError as error:
            if is_only:
                raise
            self._note(path, f"is {tool.label} and was left out: {error.problems[0].message}")
            return ()

    def suites(self) -> list[FoundSuite]:
        """Return the suites, without files that belong to another suite."""
        others = self._of_others()
        own = [path for path in sorted(self.found) if path not in others]
        return [
            FoundSuite(f"{self.bundle.place}{path}", content)
            for path in own
            for content in self.found[path]
        ]

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

    def _read_lines(self, path: str, *, is_only: bool) -> Suites:
        opened = open_lines(path, self.bundle.beginning(path))
        if opened and (tool := recognise(opened)):
            whole = replace(opened, content=self.bundle.files[path])
            return self._read_tool(whole, tool, is_only=is_only)
        form = detect_form(self.bundle.beginning(path))
        if form is not Form.CASES and not is_only:
            held = "no cases" if form is Form.OTHER else f"{form}, no cases,"
            self._note(path, f"contains {held} and was left out; {REMEDIES[form]}")
            return ()
        beside = suite_files.sidecar_path(path, self.bundle.files)
        self.described |= {beside} - {""}
        content = self.bundle.files[path]

        def read(file: str, files: Mapping[str, bytes]) -> Suites:
            read = suite_files.read_case_lines
            return (read(content, file=file, files=files, profile=self.profile, run=self.run),)

        head = self.bundle.files[beside] if beside else b""
        return self._seen_from(path, read, content, head)

    def _read_yaml(self, path: str, *, is_only: bool) -> Suites:
        content = self.bundle.files[path]
        try:
            document = read_document(decode_text(content, path), path)
        except UnreadableFileError as error:
            if is_only or MEANT.search(content):
                problems = [self._placed(problem) for problem in error.problems]
                raise UnreadableFileError(problems) from error
            self._note(path, f"is not a suite file and was left out: {error.problems[0].message}")
            return ()
        if tool := recognise(opened := open_document(document, content)):
            return self._read_tool(opened, tool, is_only=is_only)
        if not is_only and not is_meant_as_suite(document.value):
            self._note(
                path, "is not a suite file, because it lists no cases under tests, and was left out"
            )
            return ()

        # Even if the suite is refused: problems of its cases are reported once, as part of it.
        named = [self.bundle.given_as(name) for name in cases_file_paths(document) if name]
        self.mentioned[path] = set(named)

        def read(file: str, files: Mapping[str, bytes]) -> Suites:
            document_here = replace(document, file=file)
            return (suite_files.parse_suite(document_here, files, self.profile, self.run),)

        cases = (self.bundle.files[name] for name in named if name in self.bundle.files)
        return self._seen_from(path, read, content, *cases)

    def _seen_from(self, path: str, read: Reader, *texts: bytes) -> Suites:
        """Return the suites read from their base folder, with every place relative to the top folder."""
        folder = folder_for(path, *texts)
        before = f"{folder}/" if folder else ""
        try:
            suites = read(path.removeprefix(before), self._below(folder))
        except UnreadableFileError as error:
            raise type(error)(
                [self._placed(problem, before) for problem in error.problems]
            ) from error
        count_cases(sum(len(suite.cases) for suite in suites), f"{self.bundle.place}{path}")
        kept = {name: content for suite in suites for name, content in suite.files.items()}
        if sum(map(len, kept.values())) > MAX_BYTES:
            message = (
                f"the files the suite names are larger than {MAX_BYTES // 1024**2} MB together; "
                "name smaller or fewer ones"
            )
            raise UnreadableFileError([self._placed(Problem(message, path))])
        read_with = [name for suite in suites for name in suite.read_with]
        names = {self.bundle.given_as(f"{before}{name}") for name in (*kept, *read_with)}
        self.named |= names
        # A script brings files from around it; only files named in the text count as mentioned, and those that
        # another tool's file was read with.
        whole = {self.bundle.given_as(f"{before}{name}") for name in read_with}
        self.mentioned[path] = {
            name
            for name in names
            if name in whole or any(PurePosixPath(name).name.encode() in part for part in texts)
        }
        return tuple(
            suite.replace(
                warnings=tuple(self._placed(warning, before) for warning in suite.warnings),
                model_places=with_file_prefix(suite.model_places, f"{self.bundle.place}{before}"),
            )
            for suite in suites
        )

    def _below(self, folder: str) -> Subfolder:
        return Subfolder(self.bundle.files, folder, self.bundle.origin)

    def _note(self, path: str, message: str) -> None:
        self.noted.add(path)
        self.notes.append(self._placed(Problem(message, path)))

    def _placed(self, problem: Problem, before: str = "") -> Problem:
        return replace(problem, file=f"{self.bundle.place}{before}{problem.file}")


def _has_scripts(paths: set[str]) -> bool:
    return any(path.endswith(tuple(INTERPRETERS)) for path in paths)


def _holds_lines(path: str) -> bool:
    return path.lower().endswith(LINES_SUFFIXES)


NONE_FOUND = (
    "there is no suite among these files: a suite file ends in .yaml or .yml and lists cases under tests, "
    "or ends in .jsonl and has a case per line; import a spreadsheet under New suite, From a spreadsheet, "
    "or with evalsite import FILE --suite SUITE"
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


def read_suites(
    bundles: Sequence[Bundle], *, profile: str = "", run: RunProgram = run_no_program
) -> FoundSuites:
    """Return the suites of all bundles; the notes name files that are not suites.

    A YAML file without cases, JSON Lines without cases, and a file that another suite names are not suites,
    unless nothing else was given. With the name of a `profile`, its policy and evaluators apply where a file
    has none; a profile that the file itself names takes precedence, with a note. `run` runs the programs that
    write prompts. Raises UnknownProfileError, and UnreadableFileError with the problems of every suite if one of
    them cannot be used, if two have the same name, or if there is none.
    """
    chosen = get_profile(profile) if profile else None
    searches = [SuiteSearch(bundle, chosen, run) for bundle in bundles]
    with limit_import():
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

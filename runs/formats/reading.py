"""Read one suite file by its known keys, with the places of its values, the files around it, and its problems."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.script.program import locate_script
from evaluators.reading.yaml import Path
from runs.formats import shared_texts
from runs.formats.bundles import OUTSIDE, missing_file_message
from runs.formats.generations import PASSING_SCORE, Generation, environment_variables
from runs.formats.yaml import YamlDocument, describe_value
from runs.specs.problems import Problem, UnreadableFileError, did_you_mean, most_similar

MAX_PROBLEMS = 500
MAX_WARNINGS = 1_000
MAX_KEYS = 1_000
MAX_MISTYPED_KEYS = 100


@dataclass(slots=True)
class Reading:
    """A file while it is read: its document and its problems so far.

    `passing_score` is what an evaluator must reach in a file of AgentV. `kept` are unused keys of evaluators, by case
    ("" for the suite) and evaluator path.
    """

    document: YamlDocument
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder: str = ""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    used_files: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[Path] = field(default_factory=list)
    shared_characters: int = 0
    warnings_left_out: int = 0
    generation: Generation = Generation.OWN
    passing_score: float = PASSING_SCORE

    def problem(self, path: Path, message: str, *, case: str = "") -> Problem:
        """Return a problem with the place of a value."""
        key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        place = self.document.file_at(path), self.document.line_at(path)
        return Problem(message, *place, case, key)

    def refuse(self, path: Path, message: str, *, case: str = "") -> None:
        """Note a problem that keeps the file from being used; raises UnreadableFileError when there are too many."""
        self.problems.append(self.problem(path, message, case=case))
        self.refused.append(path)
        if len(self.problems) >= MAX_PROBLEMS:
            raise UnreadableFileError(self.in_order())

    def in_order(self) -> list[Problem]:
        """Return the problems in the order of the file."""
        return sorted(self.problems, key=lambda problem: (problem.file, problem.line))

    def warnings_in_order(self) -> tuple[Problem, ...]:
        """Return the warnings in the order of the file, and last how many were left out."""
        noted = sorted(self.warnings, key=lambda warning: (warning.file, warning.line))
        if not self.warnings_left_out:
            return tuple(noted)
        message = f"{self.warnings_left_out:,} more notes like these are left out"
        return (*noted, Problem(message, self.document.file))

    def warn(self, path: Path, message: str, *, case: str = "") -> None:
        """Note something that was kept without being understood; of very many only the first are noted."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(self.problem(path, message, case=case))
        else:
            self.warnings_left_out += 1

    def check_environment(self, value: Any, path: Path, *, case: str = "") -> None:
        """Refuse what AgentV fills in from the environment; in other files, note that it is not filled in.

        The environment of a server is none of a suite's business: it holds keys.
        """
        for place, variable in environment_variables(value, path):
            if self.generation is Generation.OWN:
                message = f"{variable} is kept as it is written; nothing is put in its place"
                self.warn(place, message, case=case)
            else:
                message = (
                    f"{variable} is an environment variable. Evalsite does not read those into suites. "
                    "Write its value instead"
                )
                self.refuse(place, message, case=case)

    def use(self, reference: str, *, is_kept: bool = True) -> str:
        """Return the path of a file that the suite file names; with `is_kept` the suite keeps the file.

        Raises ValueError with the reason if it cannot be used.
        """
        path, shown = reference_path(reference, self.folder), repr(reference.strip())
        if not path:
            raise ValueError(f"the file {shown} {OUTSIDE}")
        if path not in self.files:
            raise ValueError(missing_file_message(reference, self.files, self.folder))
        if is_kept:
            self.used_files[path] = self.files[path]
        return path

    def weigh(self, text: str, path: Path, *, case: str = "") -> None:
        """Count a part with this text that another case includes; raises UnreadableFileError when there is too much.

        Otherwise a few lines that include a large file again and again could fill the memory.
        """
        self.shared_characters += len(text) + shared_texts.VALUE
        if self.shared_characters > shared_texts.MAX_SHARED:
            self.refuse(path, shared_texts.too_much_message(), case=case)
            raise UnreadableFileError(self.in_order())

    def keep(self, references: Iterable[str]) -> None:
        """Keep files with the suite, named by their paths in it."""
        for path in (reference_path(reference) for reference in references):
            self.used_files[path] = self.files[path]

    def place_script(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a script's settings as stored, and keep the files it may read with the suite.

        Raises ValueError naming a file that is missing.
        """
        script = locate_script(config, self.folder, self.files)
        if script.outside:
            raise ValueError(f"the file {script.outside[0]!r} {OUTSIDE}")
        if script.missing:
            raise ValueError(missing_file_message(script.missing[0], self.files, self.folder))
        self.used_files |= script.files
        return script.config


Aliases = Mapping[str, tuple[str, ...]]
# Keys of a case's metadata that evaluators read.
READ_BY_EVALUATORS = ("expectations", "hard_expectations", "soft_expectations")


class Fields:
    """The keys of one mapping; each `take` removes one, `rest` returns those that are left.

    A key is found by its name and its aliases, in snake_case, kebab-case or camelCase. A value of the
    wrong type is noted as a problem and read as missing.
    """

    def __init__(
        self,
        reading: Reading,
        path: Path,
        *,
        aliases: Aliases | None = None,
        value: Any = None,
        case: str = "",
    ) -> None:
        """Read the mapping at a path; anything but a mapping is a problem."""
        self.reading = reading
        self.path = path
        self.case = case
        self._aliases = aliases or {}
        self._left: dict[str, tuple[str, Any]] = {}
        self._asked: set[str] = set()
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self.refuse("", f"expected a mapping of keys, but found {describe_value(value)}")
            return
        if len(value) > MAX_KEYS:
            message = f"has {len(value):,} keys; {MAX_KEYS:,} is the limit. Put data of your own under metadata"
            self.refuse("", message)
            raise UnreadableFileError(reading.in_order())
        for key, part in value.items():
            name = normal_spelling(key)
            if name in self._left:
                self.refuse(
                    key, f"is repeated, as {self._left[name][0]!r} and {key!r}; keep one of them"
                )
                continue
            self._left[name] = (key, part)

    @staticmethod
    def in_snake_case(mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return a mapping with its keys in snake_case."""
        return {normal_spelling(key): part for key, part in mapping.items()}

    def place(self, key: str) -> Path:
        """Return the path of a key."""
        return (*self.path, key) if key else self.path

    def refuse(self, key: str, message: str) -> None:
        """Note a problem with a key of this mapping, or with the mapping itself."""
        self.reading.refuse(self.place(key), message, case=self.case)

    def warn(self, key: str, message: str) -> None:
        """Note a warning about a key."""
        self.reading.warn(self.place(key), message, case=self.case)

    def take(self, name: str) -> tuple[str, Any]:
        """Return the key as written and its value; ("", None) if it is missing or null."""
        # Most of the time that a large file takes is spent on keys that are not there.
        return self.take_as(name, *self._aliases.get(name, ())) if self._left else ("", None)

    def peek(self, name: str) -> tuple[str, Any]:
        """Return what `take` would, without removing it."""
        names = (name, *self._aliases.get(name, ()))
        return next((self._left[name] for name in names if name in self._left), ("", None))

    def take_as(self, *names: str) -> tuple[str, Any]:
        """Do what `take` does, for a key with any of these names."""
        if not self._left:
            return "", None
        self._asked.update(names)
        if self._left.keys().isdisjoint(names):
            return "", None
        held = [self._left.pop(spelling) for spelling in names if spelling in self._left]
        present = [(key, value) for key, value in held if value is not None]
        if len(present) > 1:
            self.refuse(present[1][0], f"says the same as {present[0][0]!r}; keep one of them")
        return present[0] if present else ("", None)

    def text(self, name: str) -> str:
        """Return a text; an unquoted number is returned as written."""
        key, value = self.take(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._as_written(self.place(key), value)
        if value is not None and not isinstance(value, str):
            self.refuse(key, f"expected a text, but found {describe_value(value)}")
            return ""
        return value or ""

    def written(self, key: str, value: Any) -> Any:
        """Return the value of a key; a number as written in the file."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return self._as_written(self.place(key), value) if is_number else value

    def texts(self, name: str, *, longest: float = math.inf) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one, and one over `longest` characters a problem."""
        key, value = self.take(name)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list):
            self.refuse(key, f"expected a list of texts, but found {describe_value(value)}")
            return ()
        return tuple(self._listed(key, values, longest))

    def _as_written(self, path: Path, value: str | float) -> str:
        return (
            value if isinstance(value, str) else self.reading.document.written.get(path, str(value))
        )

    def _listed(self, key: str, values: list[Any], longest: float) -> Iterator[str]:
        for n, part in enumerate(values):
            path = (*self.place(key), n)
            if isinstance(part, str | int | float) and not isinstance(part, bool):
                text = self._as_written(path, part)
                if len(text) <= longest:
                    yield text
                    continue
                message = f"has {len(text):,} characters; {longest} is the limit. Shorten it"
            else:
                message = f"expected a text, but found {describe_value(part)}"
            self.reading.refuse(path, message, case=self.case)

    def number(self, name: str) -> float | None:
        """Return a finite number, None when it is missing."""
        key, value = self.take(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            self.refuse(key, f"{value!r} is not a number; write one, such as 0.8")
            return None
        return float(value)

    def flag(self, name: str) -> bool | None:
        """Return true or false, None when it is missing."""
        key, value = self.take(name)
        if value is None or isinstance(value, bool):
            return value
        self.refuse(key, f"{value!r} is not true or false")
        return None

    def mapping(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return a mapping with its key; empty when it is missing."""
        key, value = self.take(name)
        if value is None:
            return key, {}
        if not isinstance(value, dict):
            self.refuse(key, f"expected a mapping of keys, but found {describe_value(value)}")
            return key, {}
        return key, value

    def items(self, name: str) -> tuple[str, list[Any]]:
        """Return a list with its key; empty when it is missing."""
        key, value = self.take(name)
        if value is None:
            return key, []
        if not isinstance(value, list):
            self.refuse(key, f"expected a list, but found {describe_value(value)}")
            return key, []
        return key, value

    def suggestion(self, name: str) -> str:
        """Return the end of a sentence that suggests an unused key for a missing one."""
        similar = most_similar(name, self._left)
        return f"; was {self._left[similar][0]!r} meant to be it?" if similar else ""

    def rest(self) -> dict[str, Any]:
        """Return the keys that were not taken, as written."""
        return dict(self._left.values())

    def keep_rest(self) -> dict[str, Any]:
        """Return the keys that were not taken, with a warning for each unless evaluators read it there."""
        known = self._alternatives()
        for key in self.rest():
            name = normal_spelling(key)
            if not (self.case and name in READ_BY_EVALUATORS):
                message = "is not used by Evalsite and is kept with the metadata"
                is_noted = len(self.reading.warnings) < MAX_WARNINGS
                self.warn(key, message + did_you_mean(name, known) if is_noted else message)
        return self.rest()

    def metadata(self, *more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata with the keys that were not taken and more; a repeated key is a problem."""
        _, metadata = self.mapping("metadata")
        for kept in (*more, self.keep_rest()):
            for key in kept.keys() & metadata.keys():
                self.refuse(key, f"{key!r} is in the metadata too; keep one of them")
            metadata = {**metadata, **kept}
        return metadata

    def refuse_rest(self, known: str) -> None:
        """Refuse the keys that were not taken, listing the known ones."""
        alternatives = self._alternatives()
        for key in self.rest():
            message = f"is not known here; known are {known}"
            self.refuse(key, message + did_you_mean(normal_spelling(key), alternatives))

    def _alternatives(self) -> Collection[str]:
        """Return the keys that one that was not taken may have been meant to be."""
        # More are no typing mistakes, and comparing each of them with all known keys would take minutes.
        return self._asked if len(self._left) <= MAX_MISTYPED_KEYS else ()

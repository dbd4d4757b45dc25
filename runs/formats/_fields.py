"""Reading a mapping of a file by its known keys, whatever their spelling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds import normal_spelling
from runs.formats._document import Path, named
from runs.formats._meant import did_you_mean, near
from runs.formats._reading import Reading

Aliases = Mapping[str, tuple[str, ...]]
# What evaluators read of the metadata of a case.
READ_BY_EVALUATORS = ("expectations", "hard_expectations", "soft_expectations")


class Fields:
    """The keys of one mapping; every `take` removes one, `rest` is what nobody took.

    A key is found under its own name and its aliases, in snake_case, kebab-case or camelCase. A
    value of the wrong type is noted as a problem and read as missing.
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
        """Read the mapping at a path; anything else than a mapping is a problem."""
        self.reading = reading
        self.path = path
        self.case = case
        self._aliases = aliases or {}
        self._left: dict[str, tuple[str, Any]] = {}
        self._asked: set[str] = set()
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self.refuse("", f"{named(value)} stands where a mapping of keys is expected")
            return
        for key, part in value.items():
            name = normal_spelling(key)
            if name in self._left:
                self.refuse(key, f"stands twice, as {self._left[name][0]!r} and {key!r}")
                continue
            self._left[name] = (key, part)

    @staticmethod
    def names_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return a mapping with its keys in snake_case."""
        return {normal_spelling(key): part for key, part in mapping.items()}

    def place(self, key: str) -> Path:
        """Return the path of a key."""
        return (*self.path, key) if key else self.path

    def refuse(self, key: str, message: str) -> None:
        """Note a problem with a key of this mapping, or with the mapping itself."""
        self.reading.refuse(self.place(key), message, case=self.case)

    def warn(self, key: str, message: str) -> None:
        """Note something about a key that does not keep the file from being used."""
        self.reading.warn(self.place(key), message, case=self.case)

    def take(self, name: str) -> tuple[str, Any]:
        """Return the key as it is spelt and its value; ("", None) when it is missing or null."""
        return self.take_as(name, *self._aliases.get(name, ()))

    def peek(self, name: str) -> tuple[str, Any]:
        """Return what take would, and leave it."""
        names = (name, *self._aliases.get(name, ()))
        return next((self._left[one] for one in names if one in self._left), ("", None))

    def take_as(self, *names: str) -> tuple[str, Any]:
        """Return what take does for a key that stands under one of the names."""
        self._asked.update(names)
        held = [self._left.pop(spelling) for spelling in names if spelling in self._left]
        found = [(key, value) for key, value in held if value is not None]
        if len(found) > 1:
            self.refuse(found[1][0], f"says the same as {found[0][0]!r}; keep one of them")
        return found[0] if found else ("", None)

    def text(self, name: str) -> str:
        """Return a text; numbers, which YAML makes of unquoted digits, are written out."""
        key, value = self.take(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._as_written(self.place(key), value)
        if value is not None and not isinstance(value, str):
            self.refuse(key, f"{named(value)} stands where a text is expected")
            return ""
        return value or ""

    def written(self, key: str, value: Any) -> Any:
        """Return the value of a key, a number as it is written in the file."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return self._as_written(self.place(key), value) if is_number else value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone is a list of one."""
        key, value = self.take(name)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list):
            self.refuse(key, f"{named(value)} stands where a list of texts is expected")
            return ()
        return tuple(self._listed(key, values))

    def _as_written(self, path: Path, value: str | float) -> str:
        return (
            value if isinstance(value, str) else self.reading.document.written.get(path, str(value))
        )

    def _listed(self, key: str, values: list[Any]) -> Iterator[str]:
        for n, part in enumerate(values):
            if isinstance(part, str | int | float) and not isinstance(part, bool):
                yield self._as_written((*self.place(key), n), part)
                continue
            message = f"{named(part)} stands where a text is expected"
            self.reading.refuse((*self.place(key), n), message, case=self.case)

    def number(self, name: str) -> float | None:
        """Return a finite number, None when it is missing."""
        key, value = self.take(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            self.refuse(key, f"{value!r} is not a number")
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
            self.refuse(key, f"{named(value)} stands where a mapping of keys is expected")
            return key, {}
        return key, value

    def items(self, name: str) -> tuple[str, list[Any]]:
        """Return a list with its key; empty when it is missing."""
        key, value = self.take(name)
        if value is None:
            return key, []
        if not isinstance(value, list):
            self.refuse(key, f"{named(value)} stands where a list is expected")
            return key, []
        return key, value

    def misspelt(self, name: str) -> str:
        """Return the end of a sentence that asks for a key nobody took in place of a missing one."""
        found = near(name, self._left)
        return f"; was {self._left[found][0]!r} meant to be it?" if found else ""

    def rest(self) -> dict[str, Any]:
        """Return the keys nobody took, as they are spelt."""
        return dict(self._left.values())

    def keep_rest(self) -> dict[str, Any]:
        """Return the keys nobody took and say of each that it is kept, unless evaluators read it there."""
        for key in self.rest():
            name = normal_spelling(key)
            if not (self.case and name in READ_BY_EVALUATORS):
                said = "is not used by Evalsite and is kept with the metadata"
                self.warn(key, said + did_you_mean(name, self._asked))
        return self.rest()

    def metadata(self, *more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata with the keys nobody took and more that is kept; it says each thing once."""
        _, found = self.mapping("metadata")
        for kept in (*more, self.keep_rest()):
            for key in kept.keys() & found.keys():
                self.refuse(key, f"{key!r} stands in the metadata too; keep one of them")
            found = {**found, **kept}
        return found

    def refuse_rest(self, known: str) -> None:
        """Refuse the keys nobody took, naming those that are known."""
        for key in self.rest():
            said = f"is not known here; known are {known}"
            self.refuse(key, said + did_you_mean(normal_spelling(key), self._asked))

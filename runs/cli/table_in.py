"""Read a table of cases for a suite, of this site or of one elsewhere, and say what became of its rows."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluators.scoring.types import DomainError
from runs.formats.table_cases import Existing, ReadCases, TableReading, check_rejected
from runs.formats.table_mapping import CaseMapping, CasePart, find_part, guessed_input, suggest
from runs.formats.tables import Table, read_table
from runs.formats.tools import refuse_results
from runs.specs.problems import Problem, UnreadableFileError


class UnknownPartError(DomainError):
    """--map names a part that no case has."""

    code = "unknown_part"


class UnknownColumnError(DomainError):
    """--map names a column that the table does not have."""

    code = "unknown_column"


def add_table_options(parser: ArgumentParser) -> None:
    """Add the suite of a table, and how the table is read."""
    parser.add_argument(
        "--suite",
        metavar="SLUG",
        help="Suite that gets the cases of a table: CSV, JSON Lines or a JSON list.",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="PART=COLUMN",
        help="What a column of the table contains, if its name does not say: "
        f"{', '.join(part for part in CasePart if part is not CasePart.IGNORED)}, or ignored; repeatable.",
    )
    parser.add_argument(
        "--existing",
        choices=[choice.value for choice in Existing],
        default=Existing.UPDATE,
        help="How to treat rows whose key exists in the suite: update (default), skip or refuse.",
    )
    parser.add_argument(
        "--leave-out-rejected",
        action="store_true",
        help="Store the other rows of a table if some are rejected.",
    )


@dataclass(frozen=True, slots=True)
class TableIn:
    """A table of cases, and how the options say to read it."""

    path: Path
    table: Table
    reading: TableReading
    is_mapped: bool
    leaves_out: bool

    @classmethod
    def read(cls, path: Path, content: bytes, options: Mapping[str, Any]) -> TableIn:
        """Return the table; raises UnreadableFileError, UnknownPartError and UnknownColumnError."""
        refuse_results(content, str(path))
        table = read_table(content, file=str(path))
        mapping = _mapping(table, options["map"])
        if problems := mapping.problems():
            columns = ", ".join(table.columns)
            raise UnreadableFileError(
                [
                    Problem(f"{problem} with --map; columns are {columns}", str(path))
                    for problem in problems
                ]
            )
        return cls(
            path,
            table,
            TableReading(mapping, Existing(options["existing"])),
            is_mapped=bool(options["map"]),
            leaves_out=options["leave_out_rejected"],
        )

    def cases(self, keys: Collection[str], titles: Mapping[str, str]) -> ReadCases:
        """Return the cases for a suite with these keys and with these titles written by people.

        Raises UnreadableFileError with every rejected row unless they are left out, and NoCasesError.
        """
        found = self.reading.cases(self.table, keys, titles)
        if found.rejected and not self.leaves_out:
            raise UnreadableFileError(self.problems(found))
        check_rejected(found, leaves_out=True)
        return found

    def problems(self, found: ReadCases) -> list[Problem]:
        """Return why rows are rejected."""
        return [
            Problem(row.reason, str(self.path), row.line, key=row.column) for row in found.rejected
        ]

    def sentences(self, slug: str, stored: Mapping[str, int], found: ReadCases) -> Iterable[str]:
        """Yield what became of the rows, and how the table was read."""
        counts = ", ".join(f"{stored[name]} {name}" for name in ("added", "changed", "unchanged"))
        skipped = f", {found.skipped_rows} skipped" if found.skipped_rows else ""
        rejected = f", {len(found.rejected)} rejected" if found.rejected else ""
        yield f"{slug}: version {stored['version']}. {counts}{skipped}{rejected}. From {self.path}"
        pairs = zip(self.table.columns, self.reading.mapping.parts, strict=True)
        yield f"Read as {', '.join(f'{part}={column}' for column, part in pairs)}"
        if not self.is_mapped and (guessed := guessed_input(self.table)):
            yield (
                f"No column is named like an input, so {guessed} was taken for its long texts. If that is wrong, "
                "choose another with --map input=COLUMN."
            )


def _mapping(table: Table, words: Sequence[str]) -> CaseMapping:
    """Return the suggested mapping, overridden by --map; raises UnknownPartError and UnknownColumnError."""
    suggested = suggest(table)
    chosen: dict[int, CasePart] = {}
    for word in words:
        name, _, column = word.partition("=")
        part = find_part(name)
        if part is None:
            raise UnknownPartError(f"--map {word}: {name!r} is not one of {', '.join(CasePart)}.")
        if column not in table.columns:
            columns = ", ".join(table.columns)
            raise UnknownColumnError(
                f"--map {word}: there is no column {column!r}; there are {columns}."
            )
        chosen[table.columns.index(column)] = part
    # A suggested column loses its part if another was chosen for it and a case can have only one.
    taken = {
        part for part in chosen.values() if CaseMapping((CasePart.INPUT, part, part)).problems()
    }
    parts = tuple(
        chosen.get(index, CasePart.METADATA if part in taken else part)
        for index, part in enumerate(suggested.parts)
    )
    return replace(suggested, parts=parts)

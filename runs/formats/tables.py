"""Read tables with the line of each row, and write CSV in which no spreadsheet runs a formula."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

from evaluators.reading.json import storable
from runs.formats.lines import (
    UnreadableLineError,
    numbered_lines,
    read_object,
    refuse_values,
    with_plain_numbers,
)
from runs.formats.yaml import CONTAINS_NUL, refuse_size
from runs.specs.problems import Problem, UnreadableFileError

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# What spreadsheets may pass over before a formula.
PASSED_OVER = "' \n\xa0\u3000\ufeff"
# The last columns of a file of rejected rows, by which it is recognized when it is uploaded again.
REASON_COLUMNS = ("rejected because", "rejected on line")
# The first columns of a file of cases, by which it is recognized when it is read back.
CASE_COLUMNS = (
    *("key", "title", "tags", "input", "expected_output", "expected_outcomes", "criteria"),
    *("metadata", "recorded_output"),
)


def escape_formula(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula, with an apostrophe if it begins like one."""
    return f"'{text}" if text.lstrip(PASSED_OVER).startswith(FORMULAS) else text


def unescape_formula(text: str) -> str:
    """Undo `escape_formula`."""
    return text[1:] if text.startswith("'") and escape_formula(text) != text else text


DIGITS = 9
ROWS_A_PART, LETTERS_A_PART = 200, 1_000_000


def csv_text(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV; numbers have up to 9 decimals, missing values are empty, never zero."""
    return "".join(csv_parts(columns, lines))


def csv_parts(
    columns: Sequence[str], lines: Iterable[Sequence[Any]], *, digits: int | None = DIGITS
) -> Iterator[str]:
    """Yield the same table in parts of ROWS_A_PART lines, or fewer long ones; without `digits` floats are not rounded."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([_cell(name, digits) for name in columns])
    for count, line in enumerate(lines, 1):
        writer.writerow([_cell(value, digits) for value in line])
        if count % ROWS_A_PART == 0 or file.tell() > LETTERS_A_PART:
            yield file.getvalue()
            file.seek(0)
            file.truncate()
    yield file.getvalue()


def _cell(value: Any, digits: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value if digits is None else round(value, digits):f}"
    if isinstance(value, float):
        return repr(value if digits is None else round(value, digits))
    return escape_formula(str(value))


MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
Row = TypeVar("Row")
SAVE_AS = "open it in the spreadsheet and save the sheet as CSV in UTF-8"
# File types that people rename to .csv, by their first bytes.
OTHERS = (
    (b"PK\x03\x04", f"the file is a zip or an Excel workbook (.xlsx); {SAVE_AS}"),
    (b"\xd0\xcf\x11\xe0", f"the file is an old Excel workbook (.xls); {SAVE_AS}"),
    (b"%PDF", "the file is a PDF; a table in CSV or JSON Lines is read"),
    (b"\x1f\x8b", "the file is compressed; unpack it first"),
)
LOOKED_AT = 4096


def table_text(content: bytes, file: str) -> tuple[str, str]:
    """Return the text of a table and a description of its encoding, which says if it was guessed.

    Raises UnreadableFileError for a file that is too large, empty, or not text.
    """
    refuse_size(content, file)
    for start, message in OTHERS:
        if content.startswith(start):
            raise UnreadableFileError([Problem(message, file)])
    text, encoding = _decoded(content, file)
    if not text.strip():
        raise UnreadableFileError([Problem("the file is empty", file)])
    return text, encoding


def _decoded(content: bytes, file: str) -> tuple[str, str]:
    for mark, codec, name in MARKS:
        if content.startswith(mark):
            return _read(content, codec, name, file), name
    for codec, every in (("utf-16-le", content[1::2]), ("utf-16-be", content[0::2])):
        if _is_mostly_nul(every):
            return _read(content, codec, "UTF-16", file), "UTF-16, guessed: it has no mark"
    try:
        return content.decode("utf-8"), "UTF-8"
    except UnicodeDecodeError:
        return _read(content, "cp1252", "UTF-8 nor Windows-1252", file), (
            "Windows-1252, guessed: it is no UTF-8"
        )


def _is_mostly_nul(every_other: bytes) -> bool:
    looked = every_other[:LOOKED_AT]
    return len(looked) > 1 and looked.count(0) * 2 > len(looked)


def _read(content: bytes, codec: str, name: str, file: str) -> str:
    try:
        return content.decode(codec)
    except UnicodeDecodeError as error:
        message = f"the file is not text in {name.replace('UTF-8 nor', 'UTF-8 or')}; {SAVE_AS}"
        raise UnreadableFileError([Problem(message, file)]) from error


DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MAX_COLUMNS, MAX_ROWS, MAX_CELLS = 200, 200_000, 4_000_000
ROWS_TRIED = 50
TEXT_TRIED = 200_000
MAX_NAME_LENGTH = 100
# The reader's own limit of 128 kB is for the whole process. It takes four bytes for each letter of a cell.
MAX_CELL_LENGTH = 16_000_000
csv.field_size_limit(MAX_CELL_LENGTH)
# As Python's files end lines; they would copy a text of megabytes.
LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its first line, from 1, and its cells; texts in CSV, any values in JSON.

    `unread` is the reason why the row is unreadable, "" if it is readable; its only cell is then its text.
    """

    line: int
    cells: tuple[Any, ...]
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: unique column names and its rows.

    `notes` tell how it was read, such as the encoding and the delimiter; `blank` counts empty rows.
    """

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    blank: int = 0
    notes: tuple[str, ...] = ()
    is_json: bool = field(default=False)


def read_table(content: bytes, *, file: str = "cases.csv") -> Table:
    """Return the table of a file: JSON if it begins like JSON, else CSV; its name does not matter.

    Raises UnreadableFileError if it is not text, has no rows, or too many columns, rows or cells.
    """
    text, encoding = table_text(content, file)
    begins = text.lstrip()[:1]
    if begins in ("{", "["):
        refuse_values(text, file)
    if begins == "{":
        table = _table_from_objects(_lined(text), ("JSON Lines", encoding), file)
    elif begins == "[":
        table = _table_from_objects(_listed(text, file), ("a JSON list", encoding), file)
    else:
        table = _read_csv(text, encoding, file)
    if table.rows and not table.columns:
        raise UnreadableFileError([Problem(row.unread, file, row.line) for row in table.rows])
    if not table.rows:
        raise UnreadableFileError(
            [Problem("the table has a header and no rows; add a row for each case", file)]
        )
    return table


def _within_limits(rows: Iterable[Row], width: int, file: str) -> Iterator[Row]:
    """Yield rows that get a cell in each of `width` columns; raises UnreadableFileError for too many.

    Short rows and objects with few keys would otherwise unfold to far more cells than the file has.
    """
    if width > MAX_COLUMNS:
        message = f"the table has {width:,} columns; {MAX_COLUMNS} is the limit"
        raise UnreadableFileError([Problem(message, file)])
    for count, row in enumerate(rows, 1):
        if count > MAX_ROWS or count * width > MAX_CELLS:
            message = f"the table has more than {MAX_ROWS:,} rows or {MAX_CELLS:,} cells; split it into several files"
            raise UnreadableFileError([Problem(message, file)])
        yield row


def _read_csv(text: str, encoding: str, file: str) -> Table:
    text, delimiter, first = _declared_delimiter(text)
    delimiter = delimiter or _delimiter(text)
    rows_read = _csv_rows(text, delimiter, first)
    header = next((row for row in rows_read if row.unread or _is_filled(row)), TableRow(1, ()))
    if header.unread:
        raise UnreadableFileError([Problem(f"the header: {header.unread}", line=header.line)])
    names = list(header.cells)
    while names and not names[-1].strip():
        names.pop()
    within = _within_limits(rows_read, len(names), file)
    every = [row if row.unread else _fitted(row, len(names), delimiter) for row in within]
    rows = [row for row in every if row.unread or _is_filled(row)]
    blank = len(every) - len(rows)
    is_case_file = tuple(names[: len(CASE_COLUMNS)]) == CASE_COLUMNS
    if is_case_file or tuple(names[-2:]) == REASON_COLUMNS:
        names = list(map(unescape_formula, names))
        rows = [replace(row, cells=tuple(map(unescape_formula, row.cells))) for row in rows]
    message = ("CSV", f"{DELIMITERS[delimiter]} between cells", encoding)
    return Table(_unique(names), tuple(rows), blank, message)


def _declared_delimiter(text: str) -> tuple[str, str, int]:
    """Return the text after a line such as sep=; with that delimiter and the text's first line number."""
    first_line, _, rest = text.partition("\n")
    name, _, delimiter = first_line.strip("\r\n ").partition("=")
    if name.lower() == "sep" and delimiter in DELIMITERS:
        return rest, delimiter, 2
    return text, "", 1


def _is_filled(row: TableRow) -> bool:
    return any(cell and not cell.isspace() for cell in row.cells)


def _csv_rows(text: str, delimiter: str, first: int = 1) -> Iterator[TableRow]:
    taken: list[str] = []
    reader = csv.reader(_noted(text, taken), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        line = reader.line_num + first
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield TableRow(
                line, ("".join(taken).strip(),), _broken(str(error), reader.line_num + first - line)
            )
        else:
            nul = next((place for place, cell in enumerate(cells, 1) if "\0" in cell), 0)
            if nul:
                text = storable("".join(taken).strip())
                yield TableRow(line, (text,), f"cell {nul} {CONTAINS_NUL}")
            else:
                yield TableRow(line, tuple(cells))


def _noted(text: str, taken: list[str]) -> Iterator[str]:
    """Yield the lines of a text, each noted as taken."""
    for found in LINE.finditer(text):
        taken.append(line := found[0])
        yield line


def _broken(error: str, lines: int) -> str:
    if "end of data" in error:
        more = f", so that {lines} lines were taken for one row" if lines > 1 else ""
        return f"a quotation mark opens here and is never closed{more}"
    if "expected after" in error:
        return "a quoted cell contains a quotation mark; write it twice"
    if "field limit" in error:
        return f"a cell has more than {MAX_CELL_LENGTH:,} characters; shorten it"
    return f"not readable as CSV: {error}"


def _fitted(row: TableRow, width: int, delimiter: str) -> TableRow:
    """Return a row with as many cells as there are columns; extra cells that are not empty are refused."""
    cells = row.cells
    if len(cells) == width:
        return row
    if any(cell.strip() for cell in cells[width:]):
        message = (
            f"the row has {len(cells)} cells and the header {width}; put a text that contains the delimiter "
            "in quotes"
        )
        return TableRow(
            row.line, (*cells[: width - 1], delimiter.join(cells[width - 1 :])), message
        )
    return TableRow(row.line, (*cells[:width], *("",) * (width - len(cells))))


def _delimiter(text: str) -> str:
    """Return the delimiter that splits the first rows into the most columns, equally many in each."""
    sample = text[:TEXT_TRIED]

    def splits(delimiter: str) -> float:
        rows = [row for row in islice(_csv_rows(sample, delimiter), ROWS_TRIED) if row.cells]
        if not rows or len(rows[0].cells) < 2:
            return 0
        width = len(rows[0].cells)
        return width * sum(len(row.cells) == width for row in rows) / len(rows)

    return max(DELIMITERS, key=splits)


def _lined(text: str) -> Iterator[tuple[int, Any, str]]:
    for line, raw in numbered_lines(text.encode("utf-8", "surrogatepass")):
        try:
            yield line, with_plain_numbers(read_object(raw)), ""
        except UnreadableLineError as error:
            yield line, raw.decode("utf-8", "replace").strip(), str(error)


def _listed(text: str, file: str) -> Iterator[tuple[int, Any, str]]:
    """Yield the objects of a list, each with the line it begins on."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] == "]":
            return
        line, counted = line + text.count("\n", counted, at), at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            message = "not readable as JSON from here on; correct it, or save the table as CSV"
            raise UnreadableFileError([Problem(message, file, line)]) from error
        try:
            raw = text[at:end].encode("utf-8", "surrogatepass")
            yield line, with_plain_numbers(read_object(raw)), ""
        except UnreadableLineError as error:
            yield line, text[at:end], str(error)
        at = end


def _table_from_objects(
    objects: Iterable[tuple[int, Any, str]], message: tuple[str, ...], file: str
) -> Table:
    rows = list(_within_limits(objects, 1, file))
    names = tuple(
        dict.fromkeys(name for _, values, unread in rows if not unread for name in values)
    )
    blank = sum(not values and not unread for _, values, unread in rows)
    made = (
        TableRow(
            line, (values,) if unread else tuple(values.get(name, "") for name in names), unread
        )
        for line, values, unread in _within_limits(rows, len(names), file)
        if values or unread
    )
    return Table(_unique(names), tuple(made), blank, message, is_json=True)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return unique names: an empty one gets its position, a repeated one a number."""
    unique_names: dict[str, None] = {}
    for place, given in enumerate(names, 1):
        name = " ".join(given.split())[:MAX_NAME_LENGTH].replace("\x00", "") or f"column {place}"
        unique, count = name, 1
        while unique in unique_names:
            count += 1
            unique = f"{name} ({count})"
        unique_names[unique] = None
    return tuple(unique_names)

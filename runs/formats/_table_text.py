"""The text of a table that a spreadsheet saved: its encoding found, and named where it was guessed."""

from __future__ import annotations

import codecs

from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._text import refuse_size

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
SAVE_AS = "open it in the spreadsheet and save the sheet as CSV in UTF-8"
# What people rename to .csv, by the bytes it begins with.
OTHERS = (
    (b"PK\x03\x04", f"the file is a zip or an Excel workbook (.xlsx); {SAVE_AS}"),
    (b"\xd0\xcf\x11\xe0", f"the file is an old Excel workbook (.xls); {SAVE_AS}"),
    (b"%PDF", "the file is a PDF; a table in CSV or JSON Lines is read"),
    (b"\x1f\x8b", "the file is compressed; unpack it first"),
)
LOOKED_AT = 4096


def table_text(content: bytes, file: str) -> tuple[str, str]:
    """Return the text of a table and its encoding in words, which say where it was guessed.

    Raises UnreadableFileError for a file too large, empty, or of another kind than text.
    """
    refuse_size(content, file)
    for start, said in OTHERS:
        if content.startswith(start):
            raise UnreadableFileError([Problem(said, file)])
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
        said = f"the file is not text in {name.replace('UTF-8 nor', 'UTF-8 or')}; {SAVE_AS}"
        raise UnreadableFileError([Problem(said, file)]) from error

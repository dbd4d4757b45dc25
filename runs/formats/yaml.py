"""Read the text of a file, and YAML as a document whose problems name file and line."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.reading.yaml import FILE_LIMITS, Path, UnreadableYamlError, YamlLimits, read_yaml
from runs.formats.shared_texts import count_read
from runs.specs.problems import Problem, UnreadableFileError

MAX_BYTES = 50_000_000
CONTAINS_NUL = "contains the character NUL, which cannot be stored; remove it"


def refuse_size(content: bytes, file: str) -> None:
    """Raise UnreadableFileError for a file that is too large to be a suite, or is read too often."""
    count_read(content, file)
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1_000_000} MB; split its cases into several suites"
        raise UnreadableFileError([Problem(message, file)])


def decode_text(content: bytes, file: str) -> str:
    """Return the text of a file; raises UnreadableFileError for one too large, not in UTF-8, or with the character NUL."""
    refuse_size(content, file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\0" in content and not content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            message = "is not a text file; a suite is written as text, in YAML or JSON Lines"
            raise UnreadableFileError([Problem(message, file)]) from error
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableFileError(
            [Problem("not text in UTF-8; save it as UTF-8", file, line)]
        ) from error
    before, nul, _ = text.partition("\0")
    if nul:
        raise UnreadableFileError([Problem(CONTAINS_NUL, file, before.count("\n") + 1)])
    return text


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A file's values; by path the line of each, and numbers as written.

    `elsewhere` names the file of each value that comes from another file: that of an outermost key, or an
    item of its list.
    """

    value: Any
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)
    elsewhere: Mapping[Path, str] = field(default_factory=dict)

    def file_at(self, path: Path) -> str:
        """Return the file a value stands in."""
        return self.elsewhere.get(path[:2]) or self.elsewhere.get(path[:1]) or self.file

    def line_at(self, path: Path) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def read_document(text: str, file: str = "", limits: YamlLimits = FILE_LIMITS) -> YamlDocument:
    """Return the one document of a YAML text.

    Dates stay as written. Raises UnreadableFileError with the line if the text is not YAML, has several
    documents, repeats a key, uses custom tags, cannot be stored, nests too deeply, or unfolds without end.
    """
    try:
        content = read_yaml(text, limits)
    except UnreadableYamlError as error:
        raise UnreadableFileError([Problem(str(error), file, error.line)]) from error
    if content is None:
        raise UnreadableFileError(
            [Problem("the file is empty; a suite names its cases under tests", file)]
        )
    return YamlDocument(content.value, file, content.lines, content.written)


def describe_value(value: Any) -> str:
    """Describe a value in words."""
    match value:
        case bool():
            return "true or false"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return f"{value!r}"

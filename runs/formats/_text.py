"""The text of a suite file."""

from __future__ import annotations

from runs.formats._problems import Problem, UnreadableFileError

MOST_BYTES = 50_000_000


def refuse_size(content: bytes, file: str) -> None:
    """Raise UnreadableFileError for a file that is too large to be a suite."""
    if len(content) > MOST_BYTES:
        said = f"the file is larger than {MOST_BYTES // 1_000_000} MB"
        raise UnreadableFileError([Problem(said, file)])


def decoded(content: bytes, file: str) -> str:
    """Return the text of a file; raises UnreadableFileError for one too large or not in UTF-8."""
    refuse_size(content, file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableFileError(
            [Problem("not text in UTF-8; save it as UTF-8", file, line)]
        ) from error

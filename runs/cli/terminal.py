"""Write to a terminal, a pipe or a log: one changing line of progress, and text that the stream can encode."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from django.core.management.base import OutputWrapper

PLAIN_EVERY_S = 5.0
BAR_CELLS = 10
# Names of cases and targets may contain anything: commands to a terminal, a way back to the beginning of the line, and
# characters that let a line be read in another order than it was written.
COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)

Clock = Callable[[], float]


class ProgressLine:
    """One line that changes in a terminal; otherwise a new line every few seconds if anything changed."""

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        """Print nothing yet."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._is_line_open = False
        self._last_line = ""
        self._last_at = float("-inf")

    def show(self, line: str, *, done: int, total: int) -> None:
        """Show how far something is, with a bar in a terminal."""
        if self._is_terminal:
            cells = int(done / max(1, total) * BAR_CELLS)
            width = shutil.get_terminal_size().columns - 1
            bar = "#" * cells + "." * (BAR_CELLS - cells)
            self._write(f"{f'[{bar}] {line}'[:width]:<{width}}", start="\r")
            self._is_line_open = True
        elif line != self._last_line and self._clock() - self._last_at >= PLAIN_EVERY_S:
            self._write(f"{line}\n")
            self._last_line, self._last_at = line, self._clock()

    def say(self, sentence: str) -> None:
        """Print a sentence on its own line."""
        self.close()
        self._write(f"{sentence}\n")

    def close(self) -> None:
        """End the changing line."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def _write(self, text: str, *, start: str = "") -> None:
        try:
            self._stream.write(start + printable(self._stream, text))
            self._stream.flush()
        except OSError:
            # The terminal is gone; the run continues.
            self._is_terminal = False


def print_line(stream: TextIO | OutputWrapper, text: str) -> None:
    """Write a line that the stream can encode; a closed pipe is ignored.

    `evaluate … | head -1` must not change the exit code.
    """
    try:
        stream.write(printable(stream, f"{text}\n"))
        stream.flush()
    except OSError:
        _discard(stream)


def not_text(error: UnicodeEncodeError) -> str:
    """Return a message for a name whose bytes are no text, as a shell may pass them."""
    shown = ascii(error.object[max(0, error.start - 20) : error.start + 20])
    return f"{shown} is not text in UTF-8. Write it in UTF-8."


def _discard(stream: TextIO | OutputWrapper) -> None:
    """Redirect a stream to nowhere: flushing a closed pipe at exit would fail again."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def printable(stream: TextIO | OutputWrapper, text: str) -> str:
    """Return the text in characters the stream can encode, without commands to a terminal."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = COMMANDS.sub("\ufffd", text)
    try:
        "≥".encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("≥", ">=")
    return text.encode(encoding, "replace").decode(encoding)


def import_message(slug: str, version: int, version_before: int | None, note: str) -> str:
    """Return one line about an imported suite."""
    if version_before is None:
        return f"{slug}: new, at version {version}. {note}."
    if version_before == version:
        return f"{slug}: unchanged, still at version {version}."
    return f"{slug}: version {version}, was {version_before}. {note}."

"""Problems of a file, each with its place; all are collected before the file is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from evaluators.scoring.types import DomainError

CLOSE = 0.8


def most_similar(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to a name, "" if none is."""
    return next(iter(get_close_matches(name, list(known), 1, CLOSE)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests a similar known name, "" without one."""
    similar = most_similar(name, known)
    return f"; did you mean {similar}?" if similar else ""


MAX_SHOWN = 20
MAX_MESSAGE_LENGTH = 1_500
MAX_KEY_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing in a file that cannot be used, or that was kept without being understood.

    `line` counts from 1 and is 0 for the whole file; `case` and `key` are "" for none.
    """

    message: str
    file: str = ""
    line: int = 0
    case: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Cut out the middle of long texts, because the remedy is at the end."""
        for name, most in (("message", MAX_MESSAGE_LENGTH), ("key", MAX_KEY_LENGTH)):
            text = getattr(self, name)
            if len(text) > most:
                short = f"{text[: most // 2]} … {text[-most // 2 :]}"
                object.__setattr__(self, name, short)

    def __str__(self) -> str:
        """Return place and message as one line."""
        places = (
            self.file,
            f"line {self.line}" if self.line else "",
            f"case {self.case}" if self.case else "",
            self.key,
        )
        place = ", ".join(part for part in places if part)
        return f"{place}: {self.message}" if place else self.message


class UnreadableFileError(DomainError):
    """A file was refused; `problems` are all its problems, in the order of the file."""

    code = "unreadable_file"

    def __init__(self, problems: Sequence[Problem]) -> None:
        """List the first problems; the rest are in `problems`."""
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines))

"""What is left out of a folder or zip, and how that is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from runs.formats._problems import Problem, UnreadableFileError

LONGEST_PATH = 300
CACHES = ("node_modules", "__pycache__", "__MACOSX", "venv", "Thumbs.db", "desktop.ini")
COMPILED = (".pyc", ".pyo")
MOST_NAMED = 8


@dataclass(slots=True)
class LeftOut:
    """Gathers what is passed over: folders once, whatever lies in them."""

    hidden: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)

    def takes(self, path: str, *, is_link: bool = False) -> bool:
        """Tell whether a path is passed over, and remember it if so."""
        parts = PurePosixPath(path).parts
        for n, part in enumerate(parts, 1):
            if _is_ignored(part):
                self.hidden.add("/".join(parts[:n]) + ("/" if n < len(parts) else ""))
                return True
        if is_link:
            self.links.add(path)
        return is_link

    def problems(self, place: str = "") -> list[Problem]:
        """Return what was passed over in at most two sentences."""
        said = {
            "hidden files and caches are not read": self.hidden,
            "links that lead out of the folder are not followed": self.links,
        }
        return [
            Problem(f"{sentence}: {named(paths)}", place.rstrip("/"))
            for sentence, paths in said.items()
            if paths
        ]


def checked_path(path: str, source: str) -> str:
    """Return a path with plain slashes; raises UnreadableFileError for one that leads out or is endless."""
    found = PurePosixPath(path.replace("\\", "/"))
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise UnreadableFileError([Problem(f"the path {path[:60]!r} leads out of it", source)])
    if len(str(found)) > LONGEST_PATH:
        said = f"the path {str(found)[:60]}… is longer than {LONGEST_PATH} characters"
        raise UnreadableFileError([Problem(said, source)])
    return str(found)


def named(paths: set[str] | list[str]) -> str:
    """Return the first of some paths and how many more there are."""
    listed = sorted(paths)
    rest = len(listed) - MOST_NAMED
    return ", ".join(listed[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _is_ignored(part: str) -> bool:
    return part.startswith(".") or part in CACHES or part.endswith(COMPILED)

"""What was given together: a folder, a zip, one file or several, taken apart into contents by path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from runs.formats import _zips
from runs.formats._folders import FolderFiles, listed
from runs.formats._ignoring import LeftOut, checked_path
from runs.formats._origins import LooseFiles, Origin
from runs.formats._problems import Problem, UnreadableFileError

ENOUGH_TO_TELL = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by path.

    `paths` are those that were given; `files` may know more, such as what lies beside a file named at
    a command line. `place` goes before a path where people read it. `left_out` says what was passed
    over, `origin` where the files were given.
    """

    files: Mapping[str, bytes]
    paths: tuple[str, ...]
    place: str = ""
    left_out: tuple[Problem, ...] = ()
    origin: Origin = Origin.UPLOAD

    def beginning(self, path: str) -> bytes:
        """Return as much of a file as tells what it holds; raises UnreadableFileError."""
        if isinstance(self.files, FolderFiles):
            return self.files.beginning(path, ENOUGH_TO_TELL)
        return self.files[path][:ENOUGH_TO_TELL]

    def given_as(self, path: str) -> str:
        """Return the path under which a file was given."""
        return self.files.given_as(path) if isinstance(self.files, LooseFiles) else path


def bundles_at(paths: Sequence[Path]) -> tuple[Bundle, ...]:
    """Return what stands at some paths of this machine: each zip by itself, folders and files together.

    A file alone may refer to those beside it. Raises UnreadableFileError for a path where nothing is, a
    zip that cannot be taken apart, and too many files.
    """
    missing = [path for path in paths if not (path.is_file() or path.is_dir())]
    if missing:
        said = "there is no file or folder of this name"
        raise UnreadableFileError([Problem(said, str(path)) for path in missing])
    zips = [path for path in paths if _is_zip(path.name) and path.is_file()]
    others = [path for path in paths if path not in zips]
    return (*map(_zip_at, zips), *([_folder_of(others)] if others else []))


def bundles_of(parts: Sequence[tuple[str, IO[bytes]]]) -> tuple[Bundle, ...]:
    """Return what was uploaded under some names: several zips each by itself, everything else together.

    Raises UnreadableFileError for a zip that cannot be taken apart, a path that leads out or stands
    twice, and too much of anything.
    """
    zips = [part for part in parts if _is_zip(part[0])]
    if len(zips) < 2:
        return (_merged(parts),)
    rest = [part for part in parts if part not in zips]
    bundles: list[Bundle] = []
    for one, place in [*(([part], f"{part[0]}/") for part in zips), (rest, "")]:
        bundles += [_merged(one, place)] if one else []
        # Each zip is looked at before the next is opened: small ones can hold much together.
        _refuse_much(sum(_size(bundle.files) for bundle in bundles))
    return tuple(bundles)


def _is_zip(name: str) -> bool:
    return name.lower().endswith(_zips.SUFFIX)


def _zip_at(path: Path) -> Bundle:
    left_out, place = LeftOut(), f"{path}/"
    try:
        with path.open("rb") as stream:
            found = _zips.unzipped(stream, str(path), left_out)
    except OSError as error:
        said = f"the file cannot be read: {error.strerror}"
        raise UnreadableFileError([Problem(said, str(path))]) from error
    return Bundle(found.files, _given(found), place, tuple(left_out.problems(place)), Origin.ZIP)


def _given(found: _zips.Unzipped) -> tuple[str, ...]:
    return (found.suite,) if found.suite else tuple(sorted(found.files))


def _folder_of(paths: Sequence[Path]) -> Bundle:
    """Return folders and files as parts of the folder that holds them all."""
    # What is named is followed, be it a link; what it holds is not.
    named = [path.resolve() for path in paths]
    root = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in named]))
    found, told = dict[str, None](), list[Problem]()
    for path in named:
        below, left_out = path.relative_to(root), LeftOut()
        inside = listed(path, left_out) if path.is_dir() else [""]
        found.update(dict.fromkeys((below / part).as_posix() for part in inside))
        told += left_out.problems(_shown(path))
    return Bundle(FolderFiles(root), tuple(found), _shown(root), tuple(told), Origin.DISK)


def _shown(root: Path) -> str:
    """Return a folder as whoever stands in the current one would write it before a path."""
    near = os.path.relpath(root)
    return "" if near == "." else f"{root if near.startswith('..') else near}/"


def _merged(parts: Sequence[tuple[str, IO[bytes]]], place: str = "") -> Bundle:
    left_out, files, paths = LeftOut(), dict[str, bytes](), list[str]()
    for name, stream in parts:
        found = _members(name, stream, left_out)
        paths += _given(found)
        for path, content in found.files.items():
            if path in files:
                raise UnreadableFileError([Problem("was uploaded twice", path)])
            files[path] = content
        _refuse_much(_size(files))
    if len(files) > _zips.MOST_FILES:
        said = f"these are {len(files)} files; an import takes up to {_zips.MOST_FILES}"
        raise UnreadableFileError([Problem(said)])
    origin = _origin_of([name for name, _ in parts], files)
    held = LooseFiles(files) if origin is Origin.LOOSE else files
    return Bundle(held, tuple(sorted(paths)), place, tuple(left_out.problems(place)), origin)


def _origin_of(names: Sequence[str], files: Mapping[str, bytes]) -> Origin:
    if all(map(_is_zip, names)):
        return Origin.ZIP
    return Origin.UPLOAD if any("/" in path for path in files) else Origin.LOOSE


def _size(files: Mapping[str, bytes]) -> int:
    return sum(map(len, files.values()))


def _refuse_much(size: int) -> None:
    if size > _zips.MOST_BYTES:
        most = _zips.MOST_BYTES // 1024**2
        said = f"the files hold more than {most} MB, the most an import takes"
        raise UnreadableFileError([Problem(said)])


def _members(name: str, stream: IO[bytes], left_out: LeftOut) -> _zips.Unzipped:
    if _is_zip(name):
        return _zips.unzipped(stream, name, left_out)
    path = checked_path(name, name)
    # Whoever chooses a file or folder that is hidden means it; what lies in a folder is another matter.
    inside = PurePosixPath(path).parts[1:]
    if inside and left_out.takes("/".join(inside)):
        return _zips.Unzipped({})
    return _zips.Unzipped({path: stream.read()})

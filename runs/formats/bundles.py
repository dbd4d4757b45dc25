"""Files that were given together: read a folder, a zip, one file or several into contents by path."""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from posixpath import basename
from typing import IO, NoReturn

from evaluators.kinds._prompts import MAX_PATH_LENGTH, reference_path
from runs.specs.problems import Problem, UnreadableFileError

# File systems take no longer ones.
MAX_NAME_BYTES = 255
CACHES = ("node_modules", "__pycache__", "__MACOSX", "venv", "Thumbs.db", "desktop.ini")
COMPILED = (".pyc", ".pyo")
MAX_NAMED = 8


@dataclass(slots=True)
class SkippedFiles:
    """Collects the files that are skipped; a skipped folder is listed once."""

    hidden: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)

    def takes(self, path: str, *, is_link: bool = False) -> bool:
        """Tell whether a path is skipped, and remember it if so."""
        parts = PurePosixPath(path).parts
        for n, part in enumerate(parts, 1):
            if _is_ignored(part):
                self.hidden.add("/".join(parts[:n]) + ("/" if n < len(parts) else ""))
                return True
        if is_link:
            self.links.add(path)
        return is_link

    def problems(self, place: str = "") -> list[Problem]:
        """Return the skipped files in at most two sentences."""
        message = {
            "hidden files and caches are not read": self.hidden,
            "links that lead out of the folder are not followed": self.links,
        }
        return [
            Problem(f"{sentence}: {summarise_paths(paths)}", place.rstrip("/"))
            for sentence, paths in message.items()
            if paths
        ]


def checked_path(path: str, source: str) -> str:
    """Return a path with forward slashes; raises UnreadableFileError if it leads outside or is too long."""
    pure_path = PurePosixPath(path.replace("\\", "/"))
    if pure_path.is_absolute() or ".." in pure_path.parts or not pure_path.parts or "\0" in path:
        raise UnreadableFileError(
            [Problem(f"the path {path[:60]!r} leads out of it; give the files below it", source)]
        )
    longest = max(len(part.encode(errors="surrogatepass")) for part in pure_path.parts)
    if len(str(pure_path)) > MAX_PATH_LENGTH or longest > MAX_NAME_BYTES:
        limits = f"{MAX_PATH_LENGTH} characters, or a name in it than {MAX_NAME_BYTES} bytes"
        message = f"the path {str(pure_path)[:60]}… is longer than {limits}; shorten its names"
        raise UnreadableFileError([Problem(message, source)])
    return str(pure_path)


def summarise_paths(paths: set[str] | list[str]) -> str:
    """Return the first of some paths and how many more there are."""
    listed = sorted(paths)
    rest = len(listed) - MAX_NAMED
    return ", ".join(listed[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _is_ignored(part: str) -> bool:
    return part.startswith(".") or part in CACHES or part.endswith(COMPILED)


MAX_FOLDER_BYTES = 50 * 1024 * 1024
MAX_FOLDER_FILES = 20_000


class FolderFiles(Mapping[str, bytes]):
    """The regular files in a folder by their path; files outside cannot be reached, even by links.

    Reading one raises UnreadableFileError if it is too large or unreadable.
    """

    def __init__(self, root: Path) -> None:
        """Take the folder without reading it."""
        self._root = root.resolve()
        self._paths: list[str] | None = None

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file; raises KeyError."""
        return self.beginning(path, MAX_FOLDER_BYTES)

    def __contains__(self, path: object) -> bool:
        """Tell whether there is such a file, without reading it."""
        return isinstance(path, str) and self._place(path) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the paths without hidden files and caches, as of the first call."""
        if self._paths is None:
            self._paths = list_files(self._root, SkippedFiles())
        return iter(self._paths)

    def __len__(self) -> int:
        """Return how many files there are."""
        return sum(1 for _ in self)

    def beginning(self, path: str, size: int) -> bytes:
        """Return the first bytes of a file; with MAX_FOLDER_BYTES, the whole file."""
        place = self._place(path)
        if place is None:
            raise KeyError(path)
        try:
            if size == MAX_FOLDER_BYTES and place.stat().st_size > MAX_FOLDER_BYTES:
                message = f"the file is larger than {MAX_FOLDER_BYTES // 1024**2} MB; split it, or leave it out"
                raise UnreadableFileError([Problem(message, path)])
            with place.open("rb") as stream:
                return stream.read(size)
        except OSError as error:
            message = f"the file cannot be read: {error.strerror}"
            raise UnreadableFileError([Problem(message, path)]) from error

    def _place(self, path: str) -> Path | None:
        try:
            place = (self._root / path).resolve()
            is_inside = place.is_relative_to(self._root) and place.is_file()
        # A link that leads to itself is a RuntimeError before Python 3.13.
        except (OSError, ValueError, RuntimeError):
            return None
        return place if is_inside else None


def list_files(root: Path, left_out: SkippedFiles) -> list[str]:
    """Return the paths of the regular files in a folder, sorted; raises UnreadableFileError for too many."""
    files: list[str] = []
    inside = FolderFiles(root)
    for folder, folders, names in os.walk(root, onerror=_refuse):
        at = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if _is_wanted(root, at / name, left_out))
        paths = [(at / name).as_posix() for name in names]
        files += [
            path
            for path in paths
            if not left_out.takes(path, is_link=(root / path).is_symlink() and path not in inside)
        ]
        if len(files) > MAX_FOLDER_FILES:
            message = (
                f"contains more than {MAX_FOLDER_FILES} files; name the folder of the suites in it"
            )
            raise UnreadableFileError([Problem(message, str(root))])
    unnameable = [path for path in files if not _is_text(path)]
    if unnameable:
        message = f"the name {unnameable[0]!r} is not text in UTF-8; rename the file"
        raise UnreadableFileError([Problem(message, str(root))])
    return sorted(path for path in files if path in inside)


def _refuse(error: OSError) -> NoReturn:
    message = f"the folder cannot be read: {error.strerror}"
    raise UnreadableFileError([Problem(message, str(error.filename))]) from error


def _is_text(path: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in path)


def _is_wanted(root: Path, path: Path, left_out: SkippedFiles) -> bool:
    # Links to folders are never followed: they may lead outside or form a loop.
    inside = f"{path.as_posix()}/"
    return not left_out.takes(inside + "x", is_link=(root / path).is_symlink())


ZIP_SUFFIX = ".zip"
WRITTEN_BY = "Evalsite suite: "
MAX_ZIP_BYTES = 50 * 1024 * 1024
MAX_ZIP_FILES = 2_000
# Including those that are skipped: even listing more takes long.
MAX_ZIP_ENTRIES = 50_000
ENTRY = b"PK\x01\x02"
# Every error that unpacking a damaged zip can raise.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError,
    LookupError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unzipped:
    """The contents of a zip by path. `suite` names the one suite among them in a zip we wrote."""

    files: dict[str, bytes]
    suite: str = ""


def comment_for(suite: str) -> bytes:
    """Return the zip comment that names the suite, because its files may look like suites too."""
    return f"{WRITTEN_BY}{suite}".encode()


# zipfile knows it from Python 3.14 on.
ZSTANDARD = 93


def open_zip(stream: IO[bytes], *methods: int) -> zipfile.ZipFile:
    """Return an open zip; raises one of DAMAGE, also for too many entries, before it lists them.

    Its members are stored, deflated or packed by one of `methods`. Of any but Deflate, zipfile unpacks at once all that
    a part of the file becomes: gigabytes of a kilobyte.
    """
    # Each entry begins with these bytes. The number of entries that a zip names may be false.
    parts = iter(lambda: stream.read(1024 * 1024), b"")
    if sum(part.count(ENTRY) for part in parts) > MAX_ZIP_ENTRIES:
        raise ValueError(f"it contains more than {MAX_ZIP_ENTRIES:,} files")
    packed = zipfile.ZipFile(stream)
    for member in packed.infolist():
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, *methods):
            packed.close()
            raise ValueError(f"{member.filename[:60]} is packed by another method than Deflate")
    return packed


def unzip(stream: IO[bytes], name: str, left_out: SkippedFiles) -> Unzipped:
    """Return the contents of a zip by path; hidden files, caches and links are noted as left out.

    Raises UnreadableFileError for a damaged or encrypted zip, a path that leads outside or is repeated,
    and too many or too large files.
    """
    try:
        with open_zip(stream) as packed:
            files = _contents(packed, name, left_out)
            message = packed.comment.decode(errors="replace")
            suite = message.removeprefix(WRITTEN_BY) if message.startswith(WRITTEN_BY) else ""
            return Unzipped(files, suite if suite in files else "")
    except UnreadableFileError:
        raise
    except DAMAGE as error:
        raise UnreadableFileError(
            [Problem(f"cannot be unpacked: {error}; pack it again", name)]
        ) from None


def _contents(packed: zipfile.ZipFile, name: str, left_out: SkippedFiles) -> dict[str, bytes]:
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in packed.infolist():
        if member.is_dir():
            continue
        path = checked_path(member.filename, name)
        if left_out.takes(path, is_link=stat.S_ISLNK(member.external_attr >> 16)):
            continue
        if path in wanted:
            raise UnreadableFileError(
                [Problem(f"contains {path} twice; pack each file once", name)]
            )
        wanted[path] = member
    folders = {str(folder) for path in wanted for folder in PurePosixPath(path).parents}
    if both := sorted(folders & wanted.keys()):
        message = f"contains {both[0]} as a file and as a folder; rename one of them"
        raise UnreadableFileError([Problem(message, name)])
    _refuse_large_zip(wanted, name)
    return {path: _read(packed, member) for path, member in wanted.items()}


def _refuse_large_zip(wanted: dict[str, zipfile.ZipInfo], name: str) -> None:
    """Refuse a zip by the sizes it claims; reading checks that they are true."""
    if (
        len(wanted) > MAX_ZIP_FILES
        or sum(part.file_size for part in wanted.values()) > MAX_ZIP_BYTES
    ):
        limits = f"{MAX_ZIP_FILES} files or {MAX_ZIP_BYTES // 1024**2} MB"
        message = f"contains more than {limits}; pack only suites and the files that they name"
        raise UnreadableFileError([Problem(message, name)])


def _read(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with packed.open(member) as stream:
        return stream.read(member.file_size + 1)


STEPS_UP = re.compile(r"\A(?:file://)?(?:\.\./)+")
OUTSIDE = "is outside the folder of the suite; give the folder that contains both"


class Origin(Enum):
    """Where files come from, with the message for a name that leads to none of them."""

    DISK = (
        "there is no file {} from the folder of this file on, and folders above are not searched; "
        "correct the name, or create the file"
    )
    ZIP = "the file {} is not in the zip; add it there"
    UPLOAD = "the file {} is not among the files given; add it to the upload"
    LOOSE = (
        "the file {} is not among the files given; add it, or choose the folder or a zip of it: "
        "browsers send single files without their folders"
    )


class LooseFiles(Mapping[str, bytes]):
    """Files that were given without their folders.

    A path in a folder is found by its file name. Each file stands for only one path, because two files with
    the same name cannot both have been given.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Hold files by name."""
        self._files = files
        self._stands_for: dict[str, str] = {}

    def __getitem__(self, path: str) -> bytes:
        """Return a content, which belongs to this path from now on; raises KeyError."""
        name = self.given_as(path)
        if name != path:
            self._stands_for[name] = path
        return self._files[name]

    def __contains__(self, path: object) -> bool:
        """Tell whether a file of this name can stand for the path."""
        return isinstance(path, str) and self.given_as(path) in self._files

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._files)

    def __len__(self) -> int:
        """Return how many files there are."""
        return len(self._files)

    def given_as(self, path: str) -> str:
        """Return the name of the file that stands for a path, the path itself where none does."""
        name = basename(path)
        is_free = self._stands_for.get(name, path) == path
        return name if name in self._files and is_free else path


def files_origin(files: Mapping[str, bytes]) -> Origin:
    """Return where files come from."""
    origin = getattr(files, "origin", Origin.UPLOAD)
    return origin if isinstance(origin, Origin) else Origin.UPLOAD


def missing_file_message(reference: str, files: Mapping[str, bytes], folder: str = "") -> str:
    """Return the message that a file is missing which a file in a folder refers to, with the remedy.

    AgentV also searches from the folders above. Here what a name means must not depend on what else was given, so
    a file that is there among those given is only proposed.
    """
    shown = repr(reference.strip())
    path = reference_path(STEPS_UP.sub("", reference.strip()))
    above = files.find_above(path, folder) if isinstance(files, Subfolder) else ""
    if above:
        return f"the file {shown} is not here but in a folder above, which is not searched; write {above!r}"
    return files_origin(files).value.format(shown)


# A pattern that begins with plain characters is found 50 times as fast.
UPWARDS = re.compile(rb"\.\./(?:\.\./)*")
STEP = len(b"../")


class Subfolder(Mapping[str, bytes]):
    """The files under one folder of others, by their path from there."""

    def __init__(
        self, files: Mapping[str, bytes], folder: str, origin: Origin = Origin.UPLOAD
    ) -> None:
        """Look from a folder; "" is the top."""
        self.origin = origin
        self._files = files
        self._before = f"{folder}/" if folder else ""

    def find_above(self, path: str, folder: str) -> str:
        """Return how a file in `folder` refers to a path under the nearest folder above; "" if none has it."""
        parts = PurePosixPath(f"{self._before}{folder}").parts
        for up in range(1, len(parts) + 1) if path else ():
            if "/".join((*parts[:-up], path)) in self._files:
                return "../" * up + path
        return ""

    def __getitem__(self, path: str) -> bytes:
        """Return a content; raises KeyError, or UnreadableFileError that names the path from here."""
        try:
            return self._files[f"{self._before}{path}"]
        except UnreadableFileError as error:
            raise UnreadableFileError(
                [replace(problem, file=path) for problem in error.problems]
            ) from error

    def __contains__(self, path: object) -> bool:
        """Tell whether there is such a file, without reading it."""
        return f"{self._before}{path}" in self._files

    def __iter__(self) -> Iterator[str]:
        """Yield the paths."""
        inside = (path for path in self._files if path.startswith(self._before))
        return (path.removeprefix(self._before) for path in inside)

    def __len__(self) -> int:
        """Return how many files there are."""
        return sum(1 for _ in self)


def folder_for(path: str, *contents: bytes) -> str:
    """Return the folder that contains everything a suite may refer to; "" is the top.

    It is the suite's own folder unless its files say `../`. So a suite is the same whether it comes alone,
    in a zip of its folder, or with the folders around it.
    """
    parts = PurePosixPath(path).parent.parts
    return "/".join(parts[: max(0, len(parts) - _levels_up(contents))])


def _levels_up(contents: Sequence[bytes]) -> int:
    """Return how many folders up the furthest reference of some files leads."""
    return max((len(m) // STEP for part in contents for m in UPWARDS.findall(part)), default=0)


ENOUGH_TO_TELL = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by path.

    `paths` are those that were given; `files` may have more, such as the files next to one named on the
    command line. `place` is put before a path that people read. `left_out` names skipped files, `origin`
    tells where the files come from.
    """

    files: Mapping[str, bytes]
    paths: tuple[str, ...]
    place: str = ""
    left_out: tuple[Problem, ...] = ()
    origin: Origin = Origin.UPLOAD

    def beginning(self, path: str) -> bytes:
        """Return enough of a file to tell what it contains; raises UnreadableFileError."""
        if isinstance(self.files, FolderFiles):
            return self.files.beginning(path, ENOUGH_TO_TELL)
        return self.files[path][:ENOUGH_TO_TELL]

    def given_as(self, path: str) -> str:
        """Return the path under which a file was given."""
        return self.files.given_as(path) if isinstance(self.files, LooseFiles) else path


def bundles_at(paths: Sequence[Path]) -> tuple[Bundle, ...]:
    """Return the files at some paths of this machine: each zip on its own, folders and files together.

    A single file may refer to those next to it, and with `../` to those above it, as far up as the current
    folder or its repository. Raises UnreadableFileError for a missing path, a damaged
    zip, and too many files.
    """
    missing = [path for path in paths if not (path.is_file() or path.is_dir())]
    if missing:
        message = "there is no file or folder of this name; correct it"
        raise UnreadableFileError([Problem(message, str(path)) for path in missing])
    zips = [path for path in paths if _is_zip(path.name) and path.is_file()]
    others = [path for path in paths if path not in zips]
    return (*map(_zip_at, zips), *([_disk_bundle(others)] if others else []))


def read_uploads(parts: Sequence[tuple[str, IO[bytes]]]) -> tuple[Bundle, ...]:
    """Return uploaded files: of several zips each on its own, everything else together.

    Raises UnreadableFileError for a damaged zip, a path that leads outside or is repeated, and too many or
    too large files.
    """
    zips = [part for part in parts if _is_zip(part[0])]
    if len(zips) < 2:
        return (_merged(parts),)
    rest = [part for part in parts if part not in zips]
    bundles: list[Bundle] = []
    for group, place in [*(([part], f"{part[0]}/") for part in zips), (rest, "")]:
        bundles += [_merged(group, place)] if group else []
        # Check the size before opening the next zip: small zips can unpack to large files.
        _refuse_large(sum(_size(bundle.files) for bundle in bundles))
    return tuple(bundles)


def _is_zip(name: str) -> bool:
    return name.lower().endswith(ZIP_SUFFIX)


def _zip_at(path: Path) -> Bundle:
    left_out, place = SkippedFiles(), f"{path}/"
    try:
        with path.open("rb") as stream:
            archive = unzip(stream, str(path), left_out)
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        raise UnreadableFileError([Problem(message, str(path))]) from error
    return Bundle(
        archive.files, _given(archive), place, tuple(left_out.problems(place)), Origin.ZIP
    )


def _given(archive: Unzipped) -> tuple[str, ...]:
    return (archive.suite,) if archive.suite else tuple(sorted(archive.files))


def _disk_bundle(paths: Sequence[Path]) -> Bundle:
    """Return folders and files as parts of their common folder."""
    # Links are followed if they are named, but not inside a folder.
    named = [path.resolve() for path in paths]
    root = Path(os.path.commonpath([path if path.is_dir() else _base(path) for path in named]))
    files, problems = dict[str, None](), list[Problem]()
    for path in named:
        below, left_out = path.relative_to(root), SkippedFiles()
        inside = list_files(path, left_out) if path.is_dir() else [""]
        files.update(dict.fromkeys((below / part).as_posix() for part in inside))
        problems += left_out.problems(_shown(path))
    return Bundle(FolderFiles(root), tuple(files), _shown(root), tuple(problems), Origin.DISK)


def _base(file: Path) -> Path:
    """Return the folder that holds what a file may refer to, its own unless the file says `../`.

    A file may come from anywhere, so it reaches nothing above the current folder and the repository it is
    in; outside of both, nothing above its own folder.
    """
    try:
        beside = {file, *(file.with_suffix(suffix) for suffix in (".yaml", ".yml"))}
        texts = [path.read_bytes() for path in beside if _is_small(path)]
    except OSError:
        # Reading it as a suite says why.
        return file.parent
    folders = [file.parent, *file.parent.parents]
    repository = [folder for folder in folders if (folder / ".git").exists()][:1]
    tops = [Path.cwd(), *repository]
    reach = [folder for folder in folders if any(folder.is_relative_to(top) for top in tops)]
    return reach[min(_levels_up(texts), len(reach) - 1)] if reach else file.parent


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= MAX_FOLDER_BYTES


def _shown(root: Path) -> str:
    """Return a folder relative to the current one, to put before a path."""
    near = os.path.relpath(root)
    return "" if near == "." else f"{root if near.startswith('..') else near}/"


def _merged(parts: Sequence[tuple[str, IO[bytes]]], place: str = "") -> Bundle:
    left_out, files, paths = SkippedFiles(), dict[str, bytes](), list[str]()
    for name, stream in parts:
        archive = _members(name, stream, left_out)
        paths += _given(archive)
        for path, content in archive.files.items():
            if path in files:
                raise UnreadableFileError([Problem("was uploaded twice; give it once", path)])
            files[path] = content
        _refuse_large(_size(files))
    if len(files) > MAX_ZIP_FILES:
        message = f"these are {len(files)} files; an import takes up to {MAX_ZIP_FILES}, so give a part of them"
        raise UnreadableFileError([Problem(message)])
    origin = _upload_origin([name for name, _ in parts], files)
    held = LooseFiles(files) if origin is Origin.LOOSE else files
    return Bundle(held, tuple(sorted(paths)), place, tuple(left_out.problems(place)), origin)


def _upload_origin(names: Sequence[str], files: Mapping[str, bytes]) -> Origin:
    if all(map(_is_zip, names)):
        return Origin.ZIP
    return Origin.UPLOAD if any("/" in path for path in files) else Origin.LOOSE


def _size(files: Mapping[str, bytes]) -> int:
    return sum(map(len, files.values()))


def _refuse_large(size: int) -> None:
    if size > MAX_ZIP_BYTES:
        most = MAX_ZIP_BYTES // 1024**2
        message = f"the files contain more than {most} MB, which is the limit of an import; give a part of them"
        raise UnreadableFileError([Problem(message)])


def _members(name: str, stream: IO[bytes], left_out: SkippedFiles) -> Unzipped:
    if _is_zip(name):
        return unzip(stream, name, left_out)
    path = checked_path(name, name)
    # A hidden file or folder that was chosen itself is wanted; hidden files inside a folder are not.
    inside = PurePosixPath(path).parts[1:]
    if inside and left_out.takes("/".join(inside)):
        return Unzipped({})
    return Unzipped({path: stream.read()})

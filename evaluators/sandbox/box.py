"""The folder in which one program runs: filled before, collected and removed after, even if its worker was killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evaluators.kinds._base import SandboxRefusal
from evaluators.sandbox.processes import (
    all_processes,
    has_ended,
    own_process_key,
    place_of_processes,
    process_environment,
    process_user,
    start_time,
)

# Far above the users of any machine: a block for each worker process, a user for each slot.
FIRST = 2**30
BLOCK = 1024
BLOCKS = 2**20
# In containers with few users, their upper half without nobody, who is the last but one.
SMALL_BLOCK = 64
LAST_USERS = 3


def slot_user(slot: int) -> int | None:
    """Return the user for the program in a slot; None unless we are root and there are other users.

    Nobody else is this user, so its processes count separately and no other program may touch them.
    """
    if os.geteuid() != 0:
        return None
    user = FIRST + (os.getpid() % BLOCKS) * BLOCK + slot % BLOCK
    end = _end_of_users()
    if user < end:
        return user
    count = end - LAST_USERS - end // 2
    if count < SMALL_BLOCK:
        return None
    return end // 2 + (os.getpid() * SMALL_BLOCK + slot) % count


def _end_of_users() -> int:
    """Return the number after the last user; containers may have few."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return 2**16
    return max(int(first) + int(count) for first, _, count in map(str.split, lines))


# How programs begin; these files are made executable.
PROGRAM_STARTS = (b"#!", b"\x7fELF")
# A user's line as in /etc/passwd; it works for /etc/group too.
USER_LINE = "script:x:{user}:{user}::/tmp:/bin/sh\n"
# Followed by place, pid and start of the owning process, and a random part.
PREFIX = "evalsite-script-"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Box:
    """The folders of one program: where it starts, its workspace, its /tmp, and names for Python."""

    root: Path

    @property
    def start(self) -> Path:
        """Return the folder in which the program starts."""
        return self.root / "start"

    @property
    def workspace(self) -> Path:
        """Return the folder named by EVAL_WORKSPACE."""
        return self.root / "workspace"

    @property
    def temporary(self) -> Path:
        """Return the program's /tmp."""
        return self.root / "tmp"

    @property
    def environment(self) -> Path:
        """Return the file of the program's variables."""
        return self.root / "environment"

    @property
    def names(self) -> Path:
        """Return the folder of links to Python."""
        return self.root / "bin"

    @property
    def written(self) -> tuple[Path, ...]:
        """Return the folders that the program may write to."""
        return (self.start, self.workspace, self.temporary)


@contextlib.contextmanager
def open_box(
    *, files: Mapping[str, bytes], workspace: Mapping[str, bytes], user: int | None
) -> Iterator[Box]:
    """Make a box for the user (None: our own) and remove it with its contents afterwards.

    Raises SandboxRefusal for a path that leads outside, and if the disk is full.
    """
    box = Box(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{'-'.join(map(str, own_process_key()))}-")))
    try:
        try:
            # The program's user may pass through, but change nothing.
            box.root.chmod(0o711)
            for folder in box.written:
                folder.mkdir(mode=0o700)
            _write_files(box.start, files)
            _write_files(box.workspace, workspace)
            if user is not None:
                _give_to(box, user)
        except OSError as error:
            raise SandboxRefusal(f"the files could not be written: {error.strerror}") from error
        yield box
    finally:
        remove(box.root)


def write_names(box: Box, user: int) -> None:
    """Write a list of users with the program's user only, in place of the machine's."""
    for name in ("passwd", "group"):
        (box.root / name).write_text(USER_LINE.format(user=user))


def write_environment(box: Box, variables: Mapping[str, str], user: int | None) -> None:
    """Write the variables to a file for the shell that starts the program; nobody else may read them.

    The programs that confine it must not see them, because some variables change what a program does.
    Raises SandboxRefusal for an invalid name or value.
    """
    lines = []
    for name, value in variables.items():
        if not VARIABLE.match(name) or "\0" in value:
            raise SandboxRefusal(f"{name!r} cannot be a variable of the environment")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    box.environment.touch(mode=0o600)
    box.environment.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    if user is not None:
        os.chown(box.environment, user, user)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = PurePosixPath(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
            raise SandboxRefusal(f"the file {name!r} has a path that leads outside its folder")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if content.startswith(PROGRAM_STARTS):
            place.chmod(0o755)


def _give_to(box: Box, user: int) -> None:
    for top in box.written:
        # The program that confines it enters the folder before it becomes that user.
        os.chown(top, user, os.getegid())
        top.chmod(0o710)
        for folder, folders, names in os.walk(top):
            for name in (*folders, *names):
                os.chown(Path(folder, name), user, user)


def remove(root: Path) -> None:
    """Remove a box or a file, even with rights removed or folders nested very deep."""
    try:
        if root.is_dir() and not root.is_symlink():
            shutil.rmtree(root)
        else:
            root.unlink(missing_ok=True)
    except (OSError, RecursionError):
        for command in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
            subprocess.run(  # noqa: S603 - commands of this module alone
                [*command, "--", str(root)], stderr=subprocess.DEVNULL, check=False
            )


SHARED_MEMORY = "/dev/shm"  # noqa: S108 - cleared here, not written to
FOLDERS = (SHARED_MEMORY, "/tmp", "/var/tmp")  # noqa: S108 - as above
IPC_REMOVE = 0
IPC_NUMBER_AT = 1
libc = ctypes.CDLL(None)
IPC_REMOVALS: Mapping[str, Callable[[int], int]] = {
    "shm": lambda number: libc.shmctl(number, IPC_REMOVE, None),
    "msg": lambda number: libc.msgctl(number, IPC_REMOVE, None),
    "sem": lambda number: libc.semctl(number, 0, IPC_REMOVE),
}


def public_folders(*, closed: Collection[str]) -> tuple[str, ...]:
    """Return the public folders that a program can reach after it gave up what is `closed`."""
    return (SHARED_MEMORY,) if "files" in closed else FOLDERS


def user_files(user: int, folders: Iterable[str] = FOLDERS) -> Iterator[str]:
    """Yield the paths in public folders that belong to a user."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        yield entry.path


def clear_after(user: int, folders: Iterable[str] = FOLDERS) -> None:
    """Remove what a user left in public folders and shared memory, once all its processes have ended."""
    for path in list(user_files(user, folders)):
        remove(Path(path))
    for kind, remove_by_number in IPC_REMOVALS.items():
        for number in _ipc_numbers(kind, user):
            remove_by_number(number)


def _ipc_numbers(kind: str, user: int) -> list[int]:
    """Return the numbers of a user's System V shared memory, message queues or semaphores."""
    try:
        head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except (OSError, ValueError):
        return []
    user_column, rows = head.split().index("cuid"), map(str.split, lines)
    return [int(fields[IPC_NUMBER_AT]) for fields in rows if int(fields[user_column]) == user]


# The most that is kept of the files a program left: they are stored with every result.
KEPT_BYTES = 20_000_000
KEPT_FILES = 500
MAX_DEPTH = 30
MAX_PATH_LENGTH = 300


class KeptFilesError(Exception):
    """The files that a program left cannot be kept; the message says why."""


def collect(folder: int) -> dict[str, bytes]:
    """Return the regular files below an open folder by path, without links and devices.

    Raises KeptFilesError if they are too many, too large, too deep or have a name that is not text.
    """
    files: dict[str, bytes] = {}
    for path, size, handle in _regular_files(folder, "", MAX_DEPTH):
        kept = sum(map(len, files.values()))
        if len(files) >= KEPT_FILES:
            raise KeptFilesError(f"it left more than {KEPT_FILES} files in its workspace")
        if kept + size > KEPT_BYTES:
            raise KeptFilesError(f"it left more than {KEPT_BYTES // 1_000_000} MB in its workspace")
        files[path] = _content(handle, KEPT_BYTES - kept)
    return dict(sorted(files.items()))


def _regular_files(folder: int, above: str, depth: int) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and handle of each file; never follows a link, not even one made just now."""
    if not depth:
        raise KeptFilesError(f"folders of its workspace are more than {MAX_DEPTH} deep")
    for name in os.listdir(folder):
        path = f"{above}{name}"
        _check_name(path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                continue
            handle = os.open(name, flags, dir_fd=folder)
        except OSError as error:
            raise KeptFilesError(f"{path} cannot be read: {error.strerror}") from error
        try:
            facts = os.fstat(handle)
            if stat.S_ISDIR(facts.st_mode):
                yield from _regular_files(handle, f"{path}/", depth - 1)
            elif stat.S_ISREG(facts.st_mode):
                yield path, facts.st_size, handle
        finally:
            os.close(handle)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise KeptFilesError("a file in its workspace has a name that is not UTF-8 text") from error
    if len(path) > MAX_PATH_LENGTH:
        raise KeptFilesError(f"a path in its workspace is longer than {MAX_PATH_LENGTH} characters")


def _content(handle: int, most: int) -> bytes:
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read(most)


NAME = re.compile(rf"{PREFIX}(?P<place>\w*)-(?P<pid>\d+)-(?P<start>\d+)-")
# No program runs longer than an hour, so an older box is dead, even one of a container that is gone.
MAX_AGE_S = 7200
MAX_ROUNDS = 1000


def remove_dead_boxes() -> None:
    """Kill the programs of dead workers on this machine and remove their boxes.

    Several workers may do this at once.
    """
    boxes = _own_boxes()
    dead = [box for box in boxes if _is_over(box)]
    # Containers may have so few users that two workers share some.
    living_users = {_box_user(box) for box in boxes if box not in dead}
    for box in dead:
        user = _box_user(box)
        is_own = user not in (None, os.geteuid()) and user not in living_users
        _kill_all(box, user if is_own else None)
        remove(box.root)
        if user is not None and is_own:
            clear_after(user)


def _own_boxes() -> list[Box]:
    """Return the boxes that our user made; anybody could make a folder of that name."""
    with os.scandir(tempfile.gettempdir()) as entries:
        named = [entry for entry in entries if entry.name.startswith(PREFIX)]
    boxes = []
    for entry in named:
        with contextlib.suppress(FileNotFoundError):
            is_ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if is_ours and entry.is_dir(follow_symlinks=False):
                boxes.append(Box(Path(entry.path)))
    return boxes


def _is_over(box: Box) -> bool:
    name = NAME.match(box.root.name)
    if name and name["place"] == place_of_processes():
        return has_ended(name["place"], int(name["pid"]), name["start"])
    try:
        return box.root.stat().st_mtime < time.time() - MAX_AGE_S
    except FileNotFoundError:
        return False


def _box_user(box: Box) -> int | None:
    try:
        return box.start.lstat().st_uid
    except OSError:
        return None


def _kill_all(box: Box, user: int | None) -> None:
    """Kill every process that runs as the user or has the box in its environment, until none is left."""
    mark = f"EVAL_WORKSPACE={box.workspace}\0".encode()
    for _ in range(MAX_ROUNDS):
        left = [pid for pid in all_processes() if _belongs(pid, mark, user)]
        if not left:
            return
        # Stop all before any is killed: otherwise a fork bomb would fork as fast as it dies.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                _send(pid, number, mark, user)


def _belongs(pid: int, mark: bytes, user: int | None) -> bool:
    belongs = (user is not None and process_user(pid) == user) or mark in process_environment(pid)
    return belongs and bool(start_time(pid))


def _send(pid: int, number: signal.Signals, mark: bytes, user: int | None) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The pid may be reused by now, but the handle still means the checked process.
        if _belongs(pid, mark, user):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)

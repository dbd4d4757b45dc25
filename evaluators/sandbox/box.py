"""The folder in which one program runs: laid out before, looked through and removed after, even when its worker was killed."""

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
    is_over,
    own_life,
    place_of_processes,
    process_environment,
    process_user,
    started,
)

# Far above the users of any machine; a block for every worker process, a user for every slot.
FIRST = 2**30
BLOCK = 1024
BLOCKS = 2**20


def user_of_slot(slot: int) -> int | None:
    """Return the user for the program in a slot, None where only root could change users.

    It is nobody else's: its processes are counted apart and no other program may touch them.
    """
    if os.geteuid() != 0:
        return None
    user = FIRST + (os.getpid() % BLOCKS) * BLOCK + slot % BLOCK
    end = _end_of_users()
    return user if user < end else end - 2 - slot % (end // 2)


def _end_of_users() -> int:
    """Return the number behind the last user there is; containers may have few."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return 2**16
    return max(int(first) + int(count) for first, _, count in map(str.split, lines))


# What is started by its name needs the right to be; these are how programs begin.
PROGRAM_STARTS = (b"#!", b"\x7fELF")
# A user's line as in /etc/passwd, which serves for /etc/group too.
USER_LINE = "script:x:{user}:{user}::/tmp:/bin/sh\n"
# Then whose box it is (place, pid and start of the process) and what makes it one of a kind.
PREFIX = "evalsite-script-"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Box:
    """The folders of one program: where it starts, its workspace, its /tmp, and a few names for it."""

    root: Path

    @property
    def start(self) -> Path:
        """Return the fresh directory in which it starts."""
        return self.root / "start"

    @property
    def workspace(self) -> Path:
        """Return the folder that EVAL_WORKSPACE names."""
        return self.root / "workspace"

    @property
    def temporary(self) -> Path:
        """Return its own /tmp."""
        return self.root / "tmp"

    @property
    def environment(self) -> Path:
        """Return the file of its variables."""
        return self.root / "environment"

    @property
    def names(self) -> Path:
        """Return the folder of the names by which it finds Python."""
        return self.root / "bin"

    @property
    def written(self) -> tuple[Path, ...]:
        """Return the folders it may write to."""
        return (self.start, self.workspace, self.temporary)


@contextlib.contextmanager
def open_box(
    *, files: Mapping[str, bytes], workspace: Mapping[str, bytes], user: int | None
) -> Iterator[Box]:
    """Lay a box out for the user (None: the one we are) and remove it with all that is in it then.

    Raises SandboxRefusal for a path that leads outside, and when there is no room.
    """
    box = Box(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{'-'.join(map(str, own_life()))}-")))
    try:
        try:
            # The program's user passes through and changes nothing.
            box.root.chmod(0o711)
            for folder in box.written:
                folder.mkdir(mode=0o700)
            _lay_out(box.start, files)
            _lay_out(box.workspace, workspace)
            if user is not None:
                _give_to(box, user)
        except OSError as error:
            raise SandboxRefusal(f"the files could not be laid out: {error.strerror}") from error
        yield box
    finally:
        remove(box.root)


def write_names(box: Box, user: int) -> None:
    """Write who the program's user is, in place of the machine's own list."""
    for name in ("passwd", "group"):
        (box.root / name).write_text(USER_LINE.format(user=user))


def write_environment(box: Box, variables: Mapping[str, str], user: int | None) -> None:
    """Write the variables down for the shell that starts the program; nobody else may read them.

    They reach the program alone: what shuts it in must not see them, because some change what a
    program does. Raises SandboxRefusal for a name or value that is none.
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


def _lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
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
        # Whoever shuts the program in goes there before becoming that user.
        os.chown(top, user, os.getegid())
        top.chmod(0o710)
        for folder, folders, names in os.walk(top):
            for name in (*folders, *names):
                os.chown(Path(folder, name), user, user)


def remove(root: Path) -> None:
    """Remove a box or a file, whatever a program made of it: rights taken away, folders within folders."""
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


def folders_open_to(*, closed: Collection[str]) -> tuple[str, ...]:
    """Return the public folders that a program reaches that has given up what is `closed`."""
    return (SHARED_MEMORY,) if "files" in closed else FOLDERS


def user_files(user: int, folders: Iterable[str] = FOLDERS) -> Iterator[str]:
    """Give what in public folders is a user's."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        yield entry.path


def clear_after(user: int, folders: Iterable[str] = FOLDERS) -> None:
    """Remove what a user whose processes have all ended has left for the next of that number."""
    for path in list(user_files(user, folders)):
        remove(Path(path))
    for kind, remove_by_number in IPC_REMOVALS.items():
        for number in _ipc_of(kind, user):
            remove_by_number(number)


def _ipc_of(kind: str, user: int) -> list[int]:
    """Return the numbers of what a user has made of System V's shared memory, messages and semaphores."""
    try:
        head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except (OSError, ValueError):
        return []
    user_at, rows = head.split().index("cuid"), map(str.split, lines)
    return [int(fields[IPC_NUMBER_AT]) for fields in rows if int(fields[user_at]) == user]


# The most that is kept of the files a program left: they are stored with every result.
KEPT_BYTES = 20_000_000
KEPT_FILES = 500
DEEPEST = 30
MAX_PATH_LENGTH = 300


class KeptFilesError(Exception):
    """What a program left cannot be kept; says why."""


def collect(folder: int) -> dict[str, bytes]:
    """Return the regular files below an open folder by path; links and devices are left out.

    Raises KeptFilesError when they are too many, too large, too deep or not named in text.
    """
    found: dict[str, bytes] = {}
    for path, size, handle in _regular_files(folder, "", DEEPEST):
        kept = sum(map(len, found.values()))
        if len(found) >= KEPT_FILES:
            raise KeptFilesError(f"it left more than {KEPT_FILES} files in its workspace")
        if kept + size > KEPT_BYTES:
            raise KeptFilesError(f"it left more than {KEPT_BYTES // 1_000_000} MB in its workspace")
        found[path] = _content(handle, KEPT_BYTES - kept)
    return dict(sorted(found.items()))


def _regular_files(folder: int, above: str, depth: int) -> Iterator[tuple[str, int, int]]:
    """Give path, size and an open file of each; never follows a link, not even one made just now."""
    if not depth:
        raise KeptFilesError(f"folders of its workspace are more than {DEEPEST} deep")
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
        raise KeptFilesError(
            "a file in its workspace has a name that is no text in UTF-8"
        ) from error
    if len(path) > MAX_PATH_LENGTH:
        raise KeptFilesError(f"a path in its workspace is longer than {MAX_PATH_LENGTH} characters")


def _content(handle: int, most: int) -> bytes:
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read(most)


NAME = re.compile(rf"{PREFIX}(?P<place>\w*)-(?P<pid>\d+)-(?P<start>\d+)-")
# No program may run longer than an hour: a box so old is over, also one of a container that is gone.
OLDEST_S = 7200
MAX_ROUNDS = 1000


def clear_after_the_dead() -> None:
    """Kill the programs of dead workers of this machine and remove their boxes.

    Any number of workers may do it at once, again and again.
    """
    boxes = _own_boxes()
    dead = [box for box in boxes if _is_over(box)]
    # Containers may have so few users that two workers give programs the same.
    users_of_living = {_user_of(box) for box in boxes if box not in dead}
    for box in dead:
        user = _user_of(box)
        is_own = user not in (None, os.geteuid()) and user not in users_of_living
        _kill_all(box, user if is_own else None)
        remove(box.root)
        if user is not None and is_own:
            clear_after(user)


def _own_boxes() -> list[Box]:
    """Return the boxes that our user laid out: anybody may make a folder of that name."""
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
        return is_over(name["place"], int(name["pid"]), name["start"])
    try:
        return box.root.stat().st_mtime < time.time() - OLDEST_S
    except FileNotFoundError:
        return False


def _user_of(box: Box) -> int | None:
    try:
        return box.start.lstat().st_uid
    except OSError:
        return None


def _kill_all(box: Box, user: int | None) -> None:
    """Kill whoever runs as the user or carries the box in its environment, until nobody does."""
    mark = f"EVAL_WORKSPACE={box.workspace}\0".encode()
    for _ in range(MAX_ROUNDS):
        left = [pid for pid in all_processes() if _belongs(pid, mark, user)]
        if not left:
            return
        # Stopped before any is killed: else a fork bomb would bring forth as fast as it dies.
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                _send(pid, sent, mark, user)


def _belongs(pid: int, mark: bytes, user: int | None) -> bool:
    belongs = (user is not None and process_user(pid) == user) or mark in process_environment(pid)
    return belongs and bool(started(pid))


def _send(pid: int, sent: signal.Signals, mark: bytes, user: int | None) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The number may be another's by now; what the handle holds is not.
        if _belongs(pid, mark, user):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, sent)
    finally:
        os.close(handle)

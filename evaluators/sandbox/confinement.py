"""The limits of a user's program, and the command lines that confine it: in bubblewrap or by limits alone."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from evaluators.sandbox.box import SHARED_MEMORY, Box
from evaluators.sandbox.processes import user_task_count
from evaluators.sandbox.system_calls import call_filter

MEGABYTE = 1024 * 1024
# What programs print when they fail because of a limit.
OUT_OF_MEMORY = re.compile(
    r"MemoryError|[Cc]annot allocate memory|bad_alloc|OutOfMemoryError|heap out of memory"
    r"|runtime: out of memory"
)
OUT_OF_PROCESSES = re.compile(
    r"Resource temporarily unavailable|[Cc]annot fork|can't start new thread|unable to create thread"
)
OUT_OF_DISK = re.compile(r"File too large|File size limit exceeded")
# Shells report death by a signal as 128 plus its number: SIGXFSZ is 25, SIGXCPU is 24.
FILE_SIZE_EXIT = 128 + 25
PROCESSOR_TIME_EXIT = 128 + 24


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one program may use, with all its processes.

    `output_kb` applies to standard output and to errors separately. `disk_mb` and `files` limit what it
    writes; `processes` includes threads.
    """

    seconds: float = 60.0
    memory_mb: int = 1024
    processes: int = 64
    output_kb: int = 8192
    disk_mb: int = 256
    files: int = 1000

    @property
    def time_words(self) -> str:
        """Name the limit on time."""
        return f"the time limit of {self.seconds:g} s"

    @property
    def memory_words(self) -> str:
        """Name the limit on memory."""
        return f"the memory limit of {self.memory_mb} MB"

    @property
    def process_words(self) -> str:
        """Name the limit on processes."""
        return f"the limit of {self.processes} processes and threads"

    @property
    def output_words(self) -> str:
        """Name the limit on output."""
        return f"the output limit of {self.output_kb} KB"

    @property
    def disk_words(self) -> str:
        """Name the limit on files written."""
        return f"the limit of {self.disk_mb} MB and {self.files} files written"

    def hit_by(self, exit_code: int, stderr: str) -> str:
        """Return the limit that made a program fail, by its exit code and its errors; "" for none."""
        if exit_code == 0:
            return ""
        end = stderr[-2000:]
        if OUT_OF_MEMORY.search(end):
            return self.memory_words
        if OUT_OF_PROCESSES.search(end):
            return self.process_words
        if OUT_OF_DISK.search(end) or exit_code == FILE_SIZE_EXIT:
            return self.disk_words
        return self.time_words if exit_code == PROCESSOR_TIME_EXIT else ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the administrator allows. `python` and the folders are absolute paths, "" for none.

    No program sees the `hidden` folders.
    """

    limits: ProgramLimits = field(default_factory=ProgramLimits)
    allows_network: bool = False
    concurrency: int = 0
    python: str = ""
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    agents_dir: str = ""

    @property
    def at_once(self) -> int:
        """Return how many programs one process runs at once."""
        return self.concurrency or 2 * (os.cpu_count() or 1)


NAMES = ("python", "python3")
SYSTEM_PYTHON = "/usr/bin/python3"
ASK_S = 10.0
PRINT_FOLDERS = "import sys; print(sys.prefix, sys.base_prefix, sys.base_exec_prefix, sep='\\n')"
# What every program sees.
MACHINE = ("/usr", "/bin", "/sbin", "/lib")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: its program, and the folders it needs that are not part of the system."""

    program: str
    folders: tuple[str, ...]

    @property
    def missing_names(self) -> tuple[str, ...]:
        """Return which of python and python3 are missing from its folder."""
        folder = Path(self.program).parent
        return tuple(name for name in NAMES if not (folder / name).exists())


@cache
def interpreter(named: str = "", *, for_everybody: bool = False) -> Interpreter:
    """Return the Python of this name; without a name, the one this installation is built on.

    Scripts do not get the packages of this installation. If the Python must work `for_everybody` but
    lies in a private folder, it is the system's.
    """
    program = named or _own_program()
    if for_everybody and not named and not is_open_to_all(program) and Path(SYSTEM_PYTHON).exists():
        program = SYSTEM_PYTHON
    folders = _interpreter_folders(program)
    needed = dict.fromkeys(folder for folder in folders if not _is_system_folder(folder))
    return Interpreter(program, tuple(needed))


def is_open_to_all(path: str) -> bool:
    """Tell whether every user of the machine can reach and read a file or folder."""
    place = Path(os.path.realpath(path))
    try:
        reachable = all(parent.stat().st_mode & 0o001 for parent in place.parents)
        return reachable and place.stat().st_mode & 0o005 == 0o005
    except OSError:
        return False


def _own_program() -> str:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(sys.base_prefix, "bin")
    programs = (folder / name for name in (version, *NAMES) if (folder / name).exists())
    return str(next(programs, sys.executable))


def _interpreter_folders(program: str) -> list[str]:
    """Return the folders that an interpreter reports, and the one it really lies in."""
    real = str(Path(os.path.realpath(program)).parent.parent)
    try:
        reported = subprocess.run(  # noqa: S603 - the program the administrator named
            [program, "-I", "-c", PRINT_FOLDERS],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            env={},
            check=False,
        ).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        reported = []
    return [folder for folder in (*reported, real) if folder and folder != "/"]


def _is_system_folder(folder: str) -> bool:
    return any(folder == top or folder.startswith(f"{top}/") for top in MACHINE)


# Only the parts of /etc that programs need; the rest describes the machine or is secret.
ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/ca-trust", "pki/tls/certs", "protocols", "services"),
)
ETC_OF_NETWORK = ("hosts", "nsswitch.conf", "resolv.conf")
TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class StartingPlace:
    """The environment in which a program starts; `folder` is the folder of an agent, "" for none.

    The program runs as `user`, None for our own. Without a view of its own it gives up what is `closed`:
    files, network.
    """

    box: Box
    python: Interpreter
    limits: ProgramLimits
    user: int | None = None
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    folder: str = ""
    has_network: bool = False
    closed: tuple[str, ...] = ()


class Mounts:
    """A view of the machine that starts empty."""

    def __init__(self) -> None:
        """Show nothing."""
        self.words: list[str] = []
        self._shown: list[tuple[PurePosixPath, PurePosixPath]] = []
        self._folders = {"/"}
        self._hidden: list[str] = []

    def copy(self) -> Mounts:
        """Return a copy that can be extended."""
        view = Mounts()
        view.words, view._shown, view._folders = [*self.words], [*self._shown], {*self._folders}
        return view

    def add(self, *words: str) -> None:
        """Add arguments of bubblewrap."""
        self.words += words

    def below(self, folder: str) -> None:
        """Make a folder and its parents readable to all; those that bubblewrap makes belong to root."""
        for part in (*reversed(PurePosixPath(folder).parents), PurePosixPath(folder)):
            if str(part) not in self._folders:
                self._folders.add(str(part))
                self.add("--perms", "0755", "--dir", str(part))

    def read_only(self, source: str, place: str) -> None:
        """Show a file or folder of the machine, if it exists."""
        if Path(source).exists():
            self.below(str(PurePosixPath(place).parent))
            self.add("--ro-bind-try", source, place)
            self._folders.add(place)
            self._shown.append((PurePosixPath(os.path.realpath(source)), PurePosixPath(place)))

    def writable(self, source: Path, place: str) -> None:
        """Show a folder of the box."""
        self.add("--bind", str(source), place)

    def hide(self, folder: str) -> None:
        """Put an empty folder over a folder of the machine wherever it would be visible.

        Later mounts may lie inside it; `seal` makes it read-only.
        """
        for source, place in self._shown:
            if PurePosixPath(folder).is_relative_to(source) and Path(folder).is_dir():
                path = str(place / PurePosixPath(folder).relative_to(source))
                self.add("--perms", "0755", "--tmpfs", path)
                self._hidden.append(path)

    def seal(self) -> None:
        """Make the empty folders over hidden ones read-only."""
        for place in self._hidden:
            self.add("--remount-ro", place)

    def as_on_machine(self, place: str) -> None:
        """Show a top folder as the machine has it: itself, or a link into /usr."""
        if Path(place).is_symlink():
            self.add("--symlink", str(Path(place).readlink()), place)
        else:
            self.read_only(place, place)


# The devices a program may use where it sees those of the machine.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")


def restraint_command(python: str) -> list[str]:
    """Return the command that runs restraint.py, even for a user who may not read the file."""
    return [python, "-I", "-S", "-c", _restraint()]


@cache
def _restraint() -> str:
    return Path(__file__).with_name("restraint.py").read_text()


def _restrained(place: StartingPlace) -> list[str]:
    """Return the command that gives up files and network before a program starts.

    With or without the network, it gives up the system calls that lead out of a sandbox.
    """
    calls = ""
    if "network" in place.closed:
        calls = call_filter(cuts_network=not place.has_network).hex()
    if not place.closed:
        return []
    box = place.box
    etc = (*ETC, *ETC_OF_NETWORK, "passwd", "group", "nsswitch.conf")
    shown = ("/usr", *(f"/{top}" for top in TOPS), *place.python.folders, *place.folders)
    readable = (
        *("/proc", "/sys", str(box.names), str(box.environment)),
        *(os.path.realpath(f"/etc/{name}") for name in etc),
        *(
            path
            for top in (*shown, *filter(None, [place.folder]))
            for path in visible_paths(top, place.hidden)
        ),
    )
    writable = (*map(str, box.written), *(f"/dev/{name}" for name in DEVICES))
    if place.user is not None:
        # Files that the program's own user leaves there are counted and removed.
        writable += (SHARED_MEMORY,)
    python = interpreter(for_everybody=place.user is not None).program
    kept = ("\n".join(writable), "\n".join(readable)) if "files" in place.closed else ("", "")
    return [*restraint_command(python), calls, *kept]


def visible_paths(folder: str, hidden: Iterable[str]) -> Iterator[str]:
    """Yield the readable paths of a folder without hidden ones; the folder itself if nothing in it is hidden.

    A right to a folder covers everything in it, so a parent of a hidden folder is replaced by its other entries.
    """
    real = os.path.realpath(folder)
    inside = [path for path in hidden if PurePosixPath(path).is_relative_to(real)]
    if not inside:
        yield folder
    elif real not in inside:
        with contextlib.suppress(OSError), os.scandir(real) as entries:
            # The target of a link has its own rights.
            siblings = [entry.path for entry in entries if not entry.is_symlink()]
            for path in siblings:
                yield from visible_paths(path, inside)


SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
# The program's user inside a user namespace.
INNER_USER = 1000
SHARED_MEMORY_BYTES = 64 * MEGABYTE
OPEN_FILES = 1024
NOTHING = ("/bin/sh", "-c", ":")
END_OF_TRIAL = len(NOTHING)
INNER_NAMES, INNER_ENVIRONMENT = "/run/bin", "/run/environment"
WITH_VARIABLES = '. "$0" && exec "$@"'
# Two processes of bubblewrap count towards the limit of the program.
BUBBLEWRAP_PROCESSES = 2
# From this kernel on, a user namespace counts its own processes only.
COUNTS_APART_FROM = (5, 14)


def namespaces(*, user: int | None, has_network: bool = False) -> list[str]:
    """Return the arguments that isolate a program: processes, network, host name, rights.

    Root needs no user namespace for this, and runs the program as a user that nobody else is.
    """
    own = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    words = [*own, "--hostname", "sandbox", "--die-with-parent", "--cap-drop", "ALL"]
    if not has_network:
        words.append("--unshare-net")
    if user is None:
        inner = str(INNER_USER)
        return [*words, "--unshare-user", "--disable-userns", "--uid", inner, "--gid", inner]
    return [*words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def boxed_command(
    bubblewrap: str, command: Sequence[str], place: StartingPlace, filter_handle: int | None = None
) -> list[str]:
    """Return the command line that runs a command with a view of only what it needs.

    The open file of `filter_handle` holds the filter of system calls.
    """
    box, mounts = place.box, _view_of_machine(has_network=place.has_network).copy()
    mounts.read_only(str(box.root / "passwd"), "/etc/passwd")
    mounts.read_only(str(box.root / "group"), "/etc/group")
    for name in place.python.missing_names:
        mounts.below(INNER_NAMES)
        mounts.add("--symlink", place.python.program, f"{INNER_NAMES}/{name}")
    mounts.read_only(str(box.environment), INNER_ENVIRONMENT)
    mounts.writable(box.start, "/script")
    mounts.writable(box.workspace, "/workspace")
    mounts.writable(box.temporary, "/tmp")  # noqa: S108 - that of the box
    if place.folder:
        mounts.read_only(place.folder, "/agent")
    shown = {*place.python.folders, *place.folders}
    # Deeper paths come later: a folder may be shown inside a hidden one, or the reverse.
    for folder in sorted({*shown, *place.hidden}, key=lambda path: path.count("/")):
        if folder in shown:
            mounts.read_only(folder, folder)
        if folder in place.hidden:
            mounts.hide(folder)
    mounts.seal()
    isolation = namespaces(user=place.user, has_network=place.has_network)
    start = "/agent" if place.folder else "/script"
    # The rest of the view is in memory, which the program could fill.
    last = ("--remount-ro", "/", "--remount-ro", "/dev", "--chdir", start, "--")
    inner = _limited(command, place, is_boxed=True)
    calls = [] if filter_handle is None else ["--seccomp", str(filter_handle)]
    return [bubblewrap, *isolation, *calls, *mounts.words, *last, *inner]


@cache
def _view_of_machine(*, has_network: bool) -> Mounts:
    """Return the part of the view that every program shares."""
    mounts = Mounts()
    mounts.read_only("/usr", "/usr")
    for top in TOPS:
        mounts.as_on_machine(f"/{top}")
    mounts.add("--proc", "/proc", "--dev", "/dev")
    mounts.add("--size", str(SHARED_MEMORY_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108 - that of the box
    for name in (*ETC, *(ETC_OF_NETWORK if has_network else ())):
        mounts.read_only(os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
    return mounts


def limited_command(command: Sequence[str], place: StartingPlace) -> list[str]:
    """Return the command line that runs a command under limits alone; it ends when we do."""
    return _limited(command, place, is_boxed=False)


def own_environment(place: StartingPlace, *, is_boxed: bool) -> dict[str, str]:
    """Return the variables that every program gets."""
    box = place.box
    workspace, temporary = ("/workspace", "/tmp") if is_boxed else (box.workspace, box.temporary)  # noqa: S108 - of the box
    own = {"HOME": str(temporary), "LANG": "C.UTF-8", "EVAL_WORKSPACE": str(workspace)}
    if not is_boxed:
        own["TMPDIR"] = str(temporary)
    names = INNER_NAMES if is_boxed else str(box.names)
    path = (str(Path(place.python.program).parent), *SYSTEM_PATH, names)
    return {**own, "PATH": ":".join(dict.fromkeys(path))}


def _limited(command: Sequence[str], place: StartingPlace, *, is_boxed: bool) -> list[str]:
    words = [*_privileges(place.user, is_boxed=is_boxed), *_rlimits(place, is_boxed=is_boxed), "--"]
    if not is_boxed:
        words += _restrained(place)
    if place.box.environment.exists():
        variables = INNER_ENVIRONMENT if is_boxed else str(place.box.environment)
        words += ["/bin/sh", "-c", WITH_VARIABLES, variables]
    return [*words, *command]


def _privileges(user: int | None, *, is_boxed: bool) -> list[str]:
    """Return the command that takes all further rights from a program, and kills it when we end.

    In a box it runs the program as the user too; elsewhere it is started as that user.
    """
    if is_boxed and user is None:
        return []
    words = [_program_path("setpriv"), "--no-new-privs"]
    words += [] if user is None else ["--inh-caps=-all"]
    if not is_boxed:
        words += ["--pdeathsig", "KILL"]
    elif user is not None:
        words += ["--reuid", str(user), "--regid", str(user), "--clear-groups"]
    return [*words, "--"]


def _program_path(program: str) -> str:
    """Return the path of a program in the system's folders; a script may put its own earlier in PATH."""
    return shutil.which(program, path=":".join((*SYSTEM_PATH, "/usr/sbin", "/sbin"))) or program


def _rlimits(place: StartingPlace, *, is_boxed: bool) -> list[str]:
    limits = place.limits
    processes = limits.processes + (BUBBLEWRAP_PROCESSES if is_boxed else 0)
    if place.user is None and not (is_boxed and _kernel() >= COUNTS_APART_FROM):
        # The limit counts all processes of our user, including our own.
        processes += user_task_count(os.geteuid())
    # Reserved but unused memory does not count, and the guard measures what is used: this is the outer limit.
    memory = 2 * limits.memory_mb * MEGABYTE
    seconds = int(limits.seconds * (os.cpu_count() or 1)) + 1
    return [
        *(_program_path("prlimit"), f"--nproc={processes}", f"--data={memory}", f"--cpu={seconds}"),
        *(f"--fsize={limits.disk_mb * MEGABYTE}", f"--nofile={OPEN_FILES}", "--core=0"),
    ]


def _kernel() -> tuple[int, ...]:
    numbers = platform.release().split("-", 1)[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def trial_command(user: int | None, *, is_boxed: bool) -> list[str]:
    """Return the command line of a program that does nothing, under limits."""
    limits = ["--nofile=64", "--core=0", "--cpu=5"]
    words = _privileges(user, is_boxed=is_boxed)
    return [*words, _program_path("prlimit"), *limits, "--", *NOTHING]


def missing_program() -> str:
    """Return a program that is needed to set limits and missing, "" if none is."""
    return next(
        (name for name in ("setpriv", "prlimit") if not Path(_program_path(name)).exists()), ""
    )

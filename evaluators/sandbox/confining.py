"""The command lines that shut a program in: under bubblewrap, or under limits alone."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from evaluators.sandbox.closing import giving_up
from evaluators.sandbox.limits import MEGABYTE
from evaluators.sandbox.mounts import Mounts
from evaluators.sandbox.places import ETC, ETC_OF_NETWORK, TOPS, Place
from evaluators.sandbox.processes import tasks_of_user

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
# The program's user inside, where there are users of its own.
INNER_USER = 1000
SHARED_MEMORY = 64 * MEGABYTE
OPEN_FILES = 1024
NOTHING = ("/bin/sh", "-c", ":")
END_OF_TRIAL = len(NOTHING)
INNER_NAMES, INNER_ENVIRONMENT = "/run/bin", "/run/environment"
WITH_VARIABLES = '. "$0" && exec "$@"'
# Two processes of bubblewrap count among the program's.
OURS = 2
# Since then a namespace of users counts its processes apart from those outside.
COUNTED_APART = (5, 14)


def namespaces(*, user: int | None, has_network: bool = False) -> list[str]:
    """Return what is taken from a program: processes, network, names of others, rights.

    Root needs no users of their own to do so, and makes the program a user that is nobody's.
    """
    own = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    words = [*own, "--hostname", "sandbox", "--die-with-parent", "--cap-drop", "ALL"]
    if not has_network:
        words.append("--unshare-net")
    if user is None:
        inner = str(INNER_USER)
        return [*words, "--unshare-user", "--disable-userns", "--uid", inner, "--gid", inner]
    return [*words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def boxed(
    bubblewrap: str, command: Sequence[str], place: Place, filter_handle: int | None = None
) -> list[str]:
    """Return the command line that runs a command with a view of only what it needs.

    Calls to the kernel are refused by the filter that can be read from an open file.
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
    # What lies deeper says more: a folder that is shown within one that is hidden, or the reverse.
    for folder in sorted({*shown, *place.hidden}, key=lambda path: path.count("/")):
        if folder in shown:
            mounts.read_only(folder, folder)
        if folder in place.hidden:
            mounts.hide(folder)
    mounts.seal()
    shut = namespaces(user=place.user, has_network=place.has_network)
    start = "/agent" if place.folder else "/script"
    # What is left of the view is memory, which the program could fill.
    last = ("--remount-ro", "/", "--remount-ro", "/dev", "--chdir", start, "--")
    inner = _limited(command, place, is_boxed=True)
    calls = [] if filter_handle is None else ["--seccomp", str(filter_handle)]
    return [bubblewrap, *shut, *calls, *mounts.words, *last, *inner]


@cache
def _view_of_machine(*, has_network: bool) -> Mounts:
    """Return the part of a view that is the same for every program."""
    mounts = Mounts()
    mounts.read_only("/usr", "/usr")
    for top in TOPS:
        mounts.as_on_machine(f"/{top}")
    mounts.add("--proc", "/proc", "--dev", "/dev")
    mounts.add("--size", str(SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108 - that of the box
    for name in (*ETC, *(ETC_OF_NETWORK if has_network else ())):
        mounts.read_only(os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
    return mounts


def limited(command: Sequence[str], place: Place) -> list[str]:
    """Return the command line that runs a command under limits alone; it ends with us."""
    return _limited(command, place, is_boxed=False)


def own_environment(place: Place, *, is_boxed: bool) -> dict[str, str]:
    """Return what a program sees of an environment besides what it is given."""
    box = place.box
    workspace, temporary = ("/workspace", "/tmp") if is_boxed else (box.workspace, box.temporary)  # noqa: S108 - of the box
    own = {"HOME": str(temporary), "LANG": "C.UTF-8", "EVAL_WORKSPACE": str(workspace)}
    if not is_boxed:
        own["TMPDIR"] = str(temporary)
    names = INNER_NAMES if is_boxed else str(box.names)
    path = (str(Path(place.python.program).parent), *SYSTEM_PATH, names)
    return {**own, "PATH": ":".join(dict.fromkeys(path))}


def _limited(command: Sequence[str], place: Place, *, is_boxed: bool) -> list[str]:
    words = [*_privileges(place.user, is_boxed=is_boxed), *_rlimits(place, is_boxed=is_boxed), "--"]
    if not is_boxed:
        words += giving_up(place)
    if place.box.environment.exists():
        variables = INNER_ENVIRONMENT if is_boxed else str(place.box.environment)
        words += ["/bin/sh", "-c", WITH_VARIABLES, variables]
    return [*words, *command]


def _privileges(user: int | None, *, is_boxed: bool) -> list[str]:
    """Return what makes a program the user's, without any right that programs lend, dying with us."""
    if is_boxed and user is None:
        return []
    words = [_path_of("setpriv"), "--no-new-privs"]
    words += [] if is_boxed else ["--pdeathsig", "KILL"]
    if user is not None:
        words += ["--reuid", str(user), "--regid", str(user), "--clear-groups", "--inh-caps=-all"]
    return [*words, "--"]


def _path_of(program: str) -> str:
    """Return where a program lies: a script may have put one of that name before it."""
    return shutil.which(program, path=":".join((*SYSTEM_PATH, "/usr/sbin", "/sbin"))) or program


def _rlimits(place: Place, *, is_boxed: bool) -> list[str]:
    limits = place.limits
    processes = limits.processes + (OURS if is_boxed else 0)
    if place.user is None and not (is_boxed and _kernel() >= COUNTED_APART):
        # The limit counts all that our user runs, ourselves included.
        processes += tasks_of_user(os.geteuid())
    # Room that is asked for and not used is not memory: the guard sees what is. This is the far end.
    memory = 2 * limits.memory_mb * MEGABYTE
    seconds = int(limits.seconds * (os.cpu_count() or 1)) + 1
    return [
        *(_path_of("prlimit"), f"--nproc={processes}", f"--data={memory}", f"--cpu={seconds}"),
        *(f"--fsize={limits.disk_mb * MEGABYTE}", f"--nofile={OPEN_FILES}", "--core=0"),
    ]


def _kernel() -> tuple[int, ...]:
    numbers = platform.release().split("-", 1)[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def trial(user: int | None, *, is_boxed: bool) -> list[str]:
    """Return the command line of a program that does nothing, under limits as any other."""
    limits = ["--nofile=64", "--core=0", "--cpu=5"]
    words = _privileges(user, is_boxed=is_boxed)
    return [*words, _path_of("prlimit"), *limits, "--", *NOTHING]


def missing_program() -> str:
    """Return a program without which no limits can be set and that is not there; "" when all are."""
    return next((name for name in ("setpriv", "prlimit") if not Path(_path_of(name)).exists()), "")

"""Give up the files and the network of the machine, then become a program.

Runs by itself, by its path and before the program, where no namespaces may be made: any process may
restrict itself. `offered` words are asked for with the argument --offered.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

FILES, NETWORK = "files", "network"
NOT_RESTRAINED = 125
PR_SET_SECCOMP, FILTER_MODE = 22, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
ASK_VERSION, PATH_BENEATH = 1, 1
# Rights of Landlock, by bit; the later ones came with later versions.
EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
ALL_OF_FIRST, MOVE, TRUNCATE, DEVICES = (1 << 13) - 1, 1 << 13, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE | READ | TRUNCATE
SIGNALS_AND_ABSTRACT_SOCKETS = 3
# By machine: how the kernel names it, and its numbers of socket, connect and of the calls by which one
# process reaches into another.
MACHINES = {
    "x86_64": (0xC000003E, 41, 42, (101, 310, 311)),
    "aarch64": (0xC00000B7, 198, 203, (117, 270, 271)),
}
# The same everywhere: pidfd_getfd, and io_uring_setup, which opens sockets past any filter.
OTHERS = (438, 425)
AF_UNIX = 1
LOAD, JUMP_IF_EQUAL, JUMP_IF_GREATER, RETURN = 0x20, 0x15, 0x25, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16
# Above it begin the calls of another kind of program (x32), which a filter of numbers does not know.
LAST_NUMBER = 0x3FFFFFFF

libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return which Landlock the kernel has, 0 for none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE, None, 0, ASK_VERSION)))


def offered() -> str:
    """Return in words what can be given up here: files, network."""
    words = [FILES] if landlock_version() else []
    return " ".join([*words, NETWORK] if os.uname().machine in MACHINES else words)


def give_up_files(writable: list[str], readable: list[str]) -> None:
    """Keep only the named files and folders; raises OSError."""
    version = landlock_version()
    rights = ALL_OF_FIRST | (MOVE if version > 1 else 0) | (TRUNCATE if version > 2 else 0)
    scope = SIGNALS_AND_ABSTRACT_SOCKETS if version > 5 else 0
    size = 24 if version > 5 else 16 if version > 3 else 8
    asked = struct.pack("QQQ", rights, 0, scope)
    rules = _checked(libc.syscall(LANDLOCK_CREATE, asked, size, 0))
    for paths, allowed in ((writable, rights), (readable, EXECUTE | READ | LIST)):
        for path in paths:
            _allow(rules, path, allowed & rights)
    _checked(libc.syscall(LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib takes a third of the time this may take
        rights &= OF_FILES
    rule = struct.pack("=Qi", rights, handle)
    _checked(libc.syscall(LANDLOCK_ADD, rules, PATH_BENEATH, rule, 0))
    os.close(handle)


def give_up_network() -> None:
    """Open no more sockets but those between own processes, and reach into no process; raises OSError."""
    machine, socket, connect, reaching = MACHINES[os.uname().machine]
    words = [
        _word(LOAD, MACHINE),
        _word(JUMP_IF_EQUAL, machine, 1, 0),
        _refuse(errno.ENOSYS),
        _word(LOAD, NUMBER),
        _word(JUMP_IF_GREATER, LAST_NUMBER, 0, 1),
        _refuse(errno.ENOSYS),
    ]
    for number in (connect, *reaching, *OTHERS):
        words += [_word(JUMP_IF_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    words += [
        _word(JUMP_IF_EQUAL, socket, 0, 3),
        _word(LOAD, FIRST_ARGUMENT),
        _word(JUMP_IF_EQUAL, AF_UNIX, 1, 0),
        _refuse(errno.EAFNOSUPPORT),
        _word(RETURN, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(words))
    program = struct.pack("HxxxxxxP", len(words), ctypes.addressof(code))
    _checked(libc.prctl(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0))


def _word(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_so, if_not, value)


def _refuse(reason: int) -> bytes:
    return _word(RETURN, REFUSE | reason)


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def main(asked: str, writable: str, readable: str, *command: str) -> None:
    """Give up what is asked for in words, and become the command; exits with 125 when that fails."""
    try:
        if FILES in asked.split():
            give_up_files(writable.split("\n"), readable.split("\n"))
        if NETWORK in asked.split():
            give_up_network()
    except OSError as error:
        sys.stderr.write(f"the sandbox could not be closed: {error.strerror}\n")
        raise SystemExit(NOT_RESTRAINED) from None
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"failed to execute {command[0]}: {error.strerror}\n")
        raise SystemExit(127 if error.errno == errno.ENOENT else 126) from None


if __name__ == "__main__":
    if sys.argv[1:] == ["--offered"]:
        sys.stdout.write(offered())
    else:
        main(*sys.argv[1:])

"""Give up the files of the machine and calls to its kernel, the network's too, then become a program.

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
PR_GET_SECCOMP, PR_SET_SECCOMP, FILTER_MODE = 21, 22, 2
BYTES_OF_WORD = 8
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
ASK_VERSION, PATH_BENEATH = 1, 1
# Rights of Landlock, by bit; the later ones came with later versions.
EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
ALL_OF_FIRST, MOVE, TRUNCATE, DEVICES = (1 << 13) - 1, 1 << 13, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE | READ | TRUNCATE
SIGNALS_AND_ABSTRACT_SOCKETS = 3

libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return which Landlock the kernel has, 0 for none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE, None, 0, ASK_VERSION)))


def offered() -> str:
    """Return in words what can be given up here: files, network."""
    words = [FILES] if landlock_version() else []
    filters = libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0
    return " ".join([*words, NETWORK] if filters else words)


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


def give_up_calls(words: bytes) -> None:
    """Make no more calls to the kernel but those that a filter lets pass; raises OSError."""
    code = ctypes.create_string_buffer(words, len(words))
    program = struct.pack("HxxxxxxP", len(words) // BYTES_OF_WORD, ctypes.addressof(code))
    _checked(libc.prctl(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0))


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def main(calls: str, writable: str, readable: str, *command: str) -> None:
    """Give up what is asked for, and become the command; exits with 125 when that fails.

    `calls` is a filter in hexadecimal digits, "" for none; no `writable` path means all files stay.
    """
    try:
        if writable:
            give_up_files(writable.split("\n"), readable.split("\n"))
        if calls:
            give_up_calls(bytes.fromhex(calls))
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

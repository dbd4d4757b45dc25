"""Give up access to files, to the network and to other system calls, then become a program.

This runs as a program of its own where namespaces are not allowed, as any process may restrict itself.
With the argument --offered it prints what it can give up here.
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
# Rights of Landlock, by bit; later versions added the later ones.
EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
ALL_OF_FIRST, MOVE, TRUNCATE, DEVICES = (1 << 13) - 1, 1 << 13, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE | READ | TRUNCATE
SIGNALS_AND_ABSTRACT_SOCKETS = 3

libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return the kernel's version of Landlock, 0 for none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE, None, 0, ASK_VERSION)))


def supported_restraints() -> str:
    """Return what can be given up here: files, network."""
    words = [FILES] if landlock_version() else []
    filters = libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0
    return " ".join([*words, NETWORK] if filters else words)


def restrict_files(writable: list[str], readable: list[str]) -> None:
    """Keep access to these files and folders only; raises OSError."""
    version = landlock_version()
    rights = ALL_OF_FIRST | (MOVE if version > 1 else 0) | (TRUNCATE if version > 2 else 0)
    scope = SIGNALS_AND_ABSTRACT_SOCKETS if version > 5 else 0
    size = 24 if version > 5 else 16 if version > 3 else 8
    ruleset = struct.pack("QQQ", rights, 0, scope)
    handle = _checked(libc.syscall(LANDLOCK_CREATE, ruleset, size, 0))
    for paths, allowed in ((writable, rights), (readable, EXECUTE | READ | LIST)):
        for path in paths:
            _allow(handle, path, allowed & rights)
    _checked(libc.syscall(LANDLOCK_RESTRICT, handle, 0))
    os.close(handle)


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


def restrict_calls(words: bytes) -> None:
    """Make only the system calls that a filter allows; raises OSError."""
    code = ctypes.create_string_buffer(words, len(words))
    program = struct.pack("HxxxxxxP", len(words) // BYTES_OF_WORD, ctypes.addressof(code))
    _checked(libc.prctl(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0))


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def main(calls: str, writable: str, readable: str, *command: str) -> None:
    """Give up access and become the command; exits with 125 if that fails.

    `calls` is a filter in hexadecimal digits, "" for none; without `writable` paths all files stay.
    """
    try:
        if writable:
            restrict_files(writable.split("\n"), readable.split("\n"))
        if calls:
            restrict_calls(bytes.fromhex(calls))
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
        sys.stdout.write(supported_restraints())
    else:
        main(*sys.argv[1:])

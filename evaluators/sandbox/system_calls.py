"""The filter that refuses system calls which no program needs and which lead out of a sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

PR_GET_SECCOMP, PR_SET_DUMPABLE = 21, 4
LOAD, IF_EQUAL, IF_GREATER, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
AND = 0x54
NUMBER, MACHINE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
# Above it are the system calls of x32 programs, which the filter does not know.
LAST_NUMBER = 0x3FFFFFFF
# All new namespaces that a new process can ask for; a user namespace opens the others.
NEW_NAMESPACES = 0x7E020000
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
# The types of sockets that send nothing before they are connected, and the bits that hold a type.
SOCK_STREAM, SOCK_SEQPACKET, SOCKET_TYPE = 1, 5, 0xF


class Machine(NamedTuple):
    """The kernel's name of an architecture, and the numbers of its system calls that differ."""

    name: int
    socket: int
    socketpair: int
    connect: int
    clone: int
    prctl: int
    memfd_create: int
    # Access to other processes: ptrace, process_vm_readv, process_vm_writev.
    reaching: tuple[int, ...]
    # unshare, setns, mount, umount2, pivot_root, chroot.
    views: tuple[int, ...]
    # Memory that outlives its process: shmget, shmat, msgget, semget, mq_open.
    left_behind: tuple[int, ...]
    # Parts of the kernel with a history of holes: keyctl, add_key, request_key, bpf,
    # perf_event_open, userfaultfd.
    kernel: tuple[int, ...]


MACHINES = {
    "x86_64": Machine(
        *(0xC000003E, 41, 53, 42, 56, 157, 319),
        reaching=(101, 310, 311),
        views=(272, 308, 165, 166, 155, 161),
        left_behind=(29, 30, 68, 64, 240),
        kernel=(250, 248, 249, 321, 298, 323),
    ),
    "aarch64": Machine(
        *(0xC00000B7, 198, 199, 203, 220, 167, 279),
        reaching=(117, 270, 271),
        views=(97, 268, 40, 39, 41, 51),
        left_behind=(194, 196, 186, 190, 180),
        kernel=(219, 217, 218, 280, 241, 282),
    ),
}
# The same everywhere: pidfd_getfd; open_tree, move_mount, fsopen, fsconfig, fsmount, fspick,
# mount_setattr.
REFUSED_EVERYWHERE = (438, 428, 429, 430, 431, 432, 433, 442)
# Reported as missing, so that C libraries fall back as on an older kernel: clone3, whose flags no filter
# sees; io_uring, which makes other calls past any filter; memfd_secret.
MISSING_EVERYWHERE = (435, 425, 426, 427, 447)


def can_filter() -> bool:
    """Tell whether the system calls of this machine are known and its kernel filters them."""
    libc = ctypes.CDLL(None, use_errno=True)
    return os.uname().machine in MACHINES and libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


@cache
def call_filter(*, cuts_network: bool) -> bytes:
    """Return the filter for programs on this machine, b"" if there is none.

    With `cuts_network` programs may only open sockets between their own processes, and connect none. Datagram
    sockets are refused: they reach any socket of the machine, such as /dev/log, without a connection.
    """
    return (
        filter_for(MACHINES[os.uname().machine], cuts_network=cuts_network) if can_filter() else b""
    )


@contextlib.contextmanager
def open_filter(*, is_wanted: bool) -> Iterator[int | None]:
    """Open a pipe with the filter that allows the network; None if no filter is wanted or possible."""
    words = call_filter(cuts_network=False) if is_wanted else b""
    if not words:
        yield None
        return
    handle, end = os.pipe2(os.O_CLOEXEC)
    try:
        # The filter is far shorter than the buffer of a pipe.
        os.write(end, words)
        os.close(end)
        yield handle
    finally:
        os.close(handle)


def filter_for(machine: Machine, *, cuts_network: bool) -> bytes:
    """Return the filter for programs on this architecture."""
    words = [
        *(_word(LOAD, MACHINE), _word(IF_EQUAL, machine.name, 1, 0), _refuse(errno.ENOSYS)),
        *(_word(LOAD, NUMBER), _word(IF_GREATER, LAST_NUMBER, 0, 1), _refuse(errno.ENOSYS)),
    ]
    refused = machine.reaching + machine.views + machine.left_behind + machine.kernel
    for number in (*refused, *REFUSED_EVERYWHERE, *((machine.connect,) if cuts_network else ())):
        words += [_word(IF_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    # Memory that no process reports, and other ways past this filter.
    for number in (machine.memfd_create, *MISSING_EVERYWHERE):
        words += [_word(IF_EQUAL, number, 0, 1), _refuse(errno.ENOSYS)]
    # A process that cannot be inspected could hide what it holds.
    words += _check_argument(
        machine.prctl, [_word(IF_EQUAL, PR_SET_DUMPABLE, 0, 1), _refuse(errno.EPERM)]
    )
    words += _check_argument(
        machine.clone, [_word(IF_ANY_BIT, NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM)]
    )
    families = (AF_UNIX,) if cuts_network else (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
    allowed = [
        _word(IF_EQUAL, family, len(families) - index, 0) for index, family in enumerate(families)
    ]
    connected = [
        *(_word(LOAD, SECOND_ARGUMENT), _word(AND, SOCKET_TYPE)),
        *(_word(IF_EQUAL, SOCK_STREAM, 2, 0), _word(IF_EQUAL, SOCK_SEQPACKET, 1, 0)),
        _refuse(errno.EPERM),
    ]
    types = connected if cuts_network else []
    words += _check_argument(machine.socket, [*allowed, _refuse(errno.EAFNOSUPPORT), *types])
    words += _check_argument(machine.socketpair, types)
    return b"".join([*words, _word(RETURN, ALLOW)])


def _check_argument(number: int, checks: list[bytes]) -> list[bytes]:
    """Return the instructions that check a call, its first argument loaded, and else allow it."""
    within = [_word(LOAD, FIRST_ARGUMENT), *checks, _word(RETURN, ALLOW)]
    return [_word(IF_EQUAL, number, 0, len(within)), *within]


def _word(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_so, if_not, value)


def _refuse(reason: int) -> bytes:
    return _word(RETURN, REFUSE | reason)

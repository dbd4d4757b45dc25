"""What a hostile program asks of the kernel, and what it is refused in the sandbox in force.

Bare limits are what is left where the kernel's calls cannot be filtered: nothing is refused there.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

from evaluators.sandbox.system_calls import MACHINES, filter_for
from tests.evaluators.sandbox.offers import python, run, shell

# Numbers of calls are the machine's: a program asks for those of all kinds it knows.
ASK = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def ask(*arguments):
    answer = libc.syscall(*arguments)
    return "done" if answer >= 0 else errno.errorcode[ctypes.get_errno()]
IS_X86 = os.uname().machine == "x86_64"
"""


def asking(sandbox, text):
    """Run a program that can ask the kernel by number."""
    return python(sandbox, ASK + dedent(text))


@pytest.fixture
def filters_calls(offer):
    """Tell whether calls to the kernel are filtered."""
    return offer.kind == "bubblewrap" or "network" in offer.closed


def test_a_program_makes_no_namespaces_and_mounts_nothing(sandbox, filters_calls):
    result = shell(
        sandbox,
        "for new in U Ur Urm Un Up Ui Uu UC; do unshare -$new echo made; done; "
        "mkdir here; unshare -Urm mount -t tmpfs none here; mount -t tmpfs none here; umount /proc",
    )
    if filters_calls:
        assert result.stdout == ""
        assert "Operation not permitted" in result.stderr
    assert result.exit_code != 0


def test_a_process_with_namespaces_of_its_own_cannot_be_born(sandbox, filters_calls):
    result = asking(
        sandbox,
        """
        NEW_USER, SIGCHLD = 0x10000000, 17
        answer = libc.syscall(56 if IS_X86 else 220, NEW_USER | SIGCHLD, 0, 0, 0, 0)
        if answer == 0:
            os._exit(0)
        print(errno.errorcode[ctypes.get_errno()] if answer < 0 else "born")
        print(ask(435, 0, 0))
        """,
    )
    if filters_calls:
        assert result.stdout.split() == ["EPERM", "ENOSYS"]


def test_calls_that_holes_are_found_in_are_refused(sandbox, filters_calls):
    if not filters_calls:
        return
    result = asking(
        sandbox,
        """
        x86 = (101, 310, 311, 308, 165, 166, 155, 248, 249, 250, 321, 298, 323, 30, 68, 64)
        other = (117, 270, 271, 268, 40, 39, 41, 217, 218, 219, 280, 241, 282, 196, 186, 190)
        for number in (x86 if IS_X86 else other) + (428, 429, 430, 432, 438, 442):
            print(ask(number, 0, 0, 0, 0, 0))
        for number in (425, 447, 319 if IS_X86 else 279):
            print(ask(number, 1, 0))
        """,
    )
    assert result.stdout.split() == ["EPERM"] * 22 + ["ENOSYS"] * 3, result.stderr


def test_memory_that_belongs_to_no_process_is_not_given(sandbox, filters_calls):
    result = asking(
        sandbox,
        """
        try:
            os.memfd_create("hidden")
            print("made")
        except OSError as error:
            print(errno.errorcode[error.errno])
        segment = libc.shmget(0, 4096, 0o1600)
        print("made" if segment >= 0 else errno.errorcode[ctypes.get_errno()])
        segment >= 0 and libc.shmctl(segment, 0, 0)
        """,
    )
    if filters_calls:
        assert result.stdout.split() == ["ENOSYS", "EPERM"]


def test_sockets_that_lead_past_the_network_are_not_opened(sandbox, filters_calls):
    result = python(
        sandbox,
        """
        import socket
        for family in (40, 17, 38, 30, 31, 29, 44):  # vsock, packet, alg, tipc, bluetooth, can, xdp
            for kind in (1, 2, 3, 5):
                try:
                    socket.socket(family, kind)
                    print(family, kind)
                except OSError:
                    pass
        """,
    )
    if filters_calls:
        assert result.stdout == ""


def test_a_program_cannot_close_itself_to_being_looked_into(sandbox, filters_calls):
    result = asking(sandbox, "print(libc.prctl(4, 0, 0, 0, 0), libc.prctl(3, 0, 0, 0, 0))")
    if filters_calls:
        assert result.stdout == "-1 1\n"


def test_programs_of_all_sorts_work_all_the_same(sandbox):
    result = python(
        sandbox,
        """
        import ctypes, sqlite3, ssl, subprocess, threading
        thread = threading.Thread(target=print, args=("a",))
        thread.start()
        thread.join()
        print(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)())
        text = "echo b | cat; (echo c | while read line; do echo $line; done)"
        print(subprocess.check_output(["bash", "-c", text], text=True))
        """,
    )
    assert result.stdout.split() == ["a", "7", "b", "c"], result.stderr


def test_node_works_where_it_is_installed(sandbox):
    program = b"new (require('worker_threads').Worker)('console.log(1 + 1)', {eval: true})"
    result = run(sandbox, "sh", "-c", "command -v node >/dev/null || exec echo 2; exec node a.js",
                 files={"a.js": program})  # fmt: skip
    assert (result.stdout, result.ended_by) == ("2\n", ""), result.stderr


@pytest.mark.parametrize("name", MACHINES)
def test_the_filter_of_every_machine_is_one_the_kernel_takes(name):
    for cuts_network in (False, True):
        words = filter_for(MACHINES[name], cuts_network=cuts_network)
        assert len(words) % 8 == 0
        assert len(words) // 8 < 4096

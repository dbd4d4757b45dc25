"""Children of a process and the memory they hold."""

from __future__ import annotations

import os
import subprocess

from evaluators.sandbox import processes
from evaluators.sandbox.processes import child_processes, memory_held, memory_share, process_facts


def test_children_are_found_also_where_the_kernel_does_not_list_them(monkeypatch):
    with subprocess.Popen(["sleep", "1000"]) as child:
        listed = child_processes(os.getpid())
        monkeypatch.setattr(processes, "_kernel_lists_children", lambda: False)
        searched = child_processes(os.getpid())
        child.kill()
    assert child.pid in listed
    assert set(searched) == set(listed)


def test_of_a_process_that_is_gone_nothing_is_known():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert process_facts(gone.pid) is None
    assert child_processes(gone.pid) == []
    assert (memory_held(gone.pid), memory_share(gone.pid)) == (0, 0)


def test_the_share_of_memory_is_no_more_than_what_is_held():
    assert 0 < memory_share(os.getpid()) <= memory_held(os.getpid()) + 1024

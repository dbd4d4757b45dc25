from __future__ import annotations

import os
import subprocess

from evaluators.sandbox import processes
from evaluators.sandbox.processes import children_of, facts_of, memory_held, memory_share


def test_children_are_found_also_where_the_kernel_does_not_list_them(monkeypatch):
    with subprocess.Popen(["sleep", "1000"]) as child:
        listed = children_of(os.getpid())
        monkeypatch.setattr(processes, "_kernel_lists_children", lambda: False)
        searched = children_of(os.getpid())
        child.kill()
    assert child.pid in listed
    assert set(searched) == set(listed)


def test_of_a_process_that_is_gone_nothing_is_known():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert facts_of(gone.pid) is None
    assert children_of(gone.pid) == []
    assert (memory_held(gone.pid), memory_share(gone.pid)) == (0, 0)


def test_the_share_of_memory_is_no_more_than_what_is_held():
    assert 0 < memory_share(os.getpid()) <= memory_held(os.getpid()) + 1024

"""What a machine offers to keep programs of users apart."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from evaluators.sandbox import box, probe
from evaluators.sandbox.box import slot_user
from evaluators.sandbox.probe import SandboxOffer, find_sandbox


@pytest.fixture(autouse=True)
def forgotten():
    find_sandbox.cache_clear()
    yield
    find_sandbox.cache_clear()


@pytest.fixture
def bubblewrap(tmp_path, monkeypatch):
    """Install a bubblewrap that does what the given shell lines say."""

    def install(*lines):
        program = tmp_path / "bwrap"
        program.write_text("\n".join(("#!/bin/sh", *lines, "")))
        program.chmod(0o755)
        monkeypatch.setattr(probe, "bubblewrap_path", lambda: str(program))
        return program

    return install


def test_this_machine_offers_something_that_fits_into_the_workers_row():
    offer = find_sandbox()
    assert offer.kind in ("bubblewrap", "limits", "none")
    assert 0 < len(offer.in_words) <= 100


def test_a_bubblewrap_that_works_is_named_with_its_version(bubblewrap):
    bubblewrap('[ "$1" = --version ] && echo bubblewrap 0.12.3', "exit 0")
    assert find_sandbox().in_words == "bubblewrap 0.12.3"


def test_namespaces_are_really_tried_and_none_of_our_variables_inherited(
    bubblewrap, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVALSITE_SECRET_KEY", "hush")
    bubblewrap(f'echo "$@" >> {tmp_path}/asked', f"/usr/bin/env >> {tmp_path}/known")
    find_sandbox()
    asked = (tmp_path / "asked").read_text()
    for taken in ("user" if os.getuid() else "ipc", "pid", "net", "ipc", "uts"):
        assert f"--unshare-{taken}" in asked
    assert "--proc /proc" in asked
    assert "hush" not in (tmp_path / "known").read_text()


def test_a_machine_that_forbids_namespaces_has_limits_only_and_says_why(bubblewrap):
    bubblewrap("echo 'bwrap: setting up uid map: Permission denied' >&2", "exit 1")
    offer = find_sandbox()
    assert offer.kind == "limits"
    assert replace(offer, closed=()).in_words == (
        "limits only: bubblewrap is not allowed here (setting up uid map: Permission denied)"
    )
    assert set(offer.closed) <= {"files", "network"}


def test_limits_say_what_they_close_all_the_same():
    both = SandboxOffer("limits", reason="no bubblewrap", closed=("files", "network"))
    assert both.in_words == "limits, files and network closed: no bubblewrap"


def test_a_machine_whose_python_cannot_ask_closes_nothing(bubblewrap, monkeypatch):
    bubblewrap("exit 1")
    monkeypatch.setattr(probe, "restraint_command", lambda python: ["/bin/false"])
    assert find_sandbox().closed == ()


def test_where_root_is_the_only_user_programs_need_bubblewrap(bubblewrap, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(box, "_end_of_users", lambda: 1)
    bubblewrap("exit 0")
    assert find_sandbox().kind == "bubblewrap"
    find_sandbox.cache_clear()
    bubblewrap("echo 'bwrap: no' >&2", "exit 1")
    assert find_sandbox().in_words == (
        "none: bubblewrap is not allowed here (no), and root is the only user of this machine"
    )


def test_workers_in_a_container_of_few_users_do_not_share_them(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(box, "_end_of_users", lambda: 2**16)
    users = []
    for pid in range(1, 101):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        users += [slot_user(slot) for slot in range(32)]
    assert len(set(users)) == 3_200
    assert min(users) > 30_000
    assert max(users) < 65_534, "many services run as nobody"


def test_a_machine_with_nothing_says_so(monkeypatch):
    monkeypatch.setattr(probe, "bubblewrap_path", lambda: "")
    monkeypatch.setattr(probe, "trial_command", lambda user, is_boxed: ["/bin/false"])
    assert find_sandbox().in_words == (
        "none: bubblewrap is not installed, and prlimit does not work either"
    )


def test_without_the_programs_that_set_limits_there_is_none(monkeypatch):
    monkeypatch.setattr(probe, "missing_program", lambda: "prlimit")
    assert find_sandbox().in_words == "none: prlimit of util-linux is not installed"


def test_a_kernel_without_handles_for_processes_has_none(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    assert find_sandbox().in_words == "none: the kernel is older than Linux 5.3"


@pytest.mark.parametrize("lines", [("exec sleep 60",), ("kill -9 $$",)])
def test_a_bubblewrap_that_hangs_or_dies_holds_nothing_up(bubblewrap, monkeypatch, lines):
    bubblewrap(*lines)
    monkeypatch.setattr(probe, "TRY_S", 0.2)
    offer = find_sandbox()
    assert offer.kind != "bubblewrap"
    assert "not allowed here (" in offer.reason


def test_a_file_that_is_no_program_is_no_sandbox(tmp_path, monkeypatch):
    (tmp_path / "bwrap").write_text("")
    monkeypatch.setattr(probe, "bubblewrap_path", lambda: str(tmp_path / "bwrap"))
    assert "Permission denied" in find_sandbox().in_words


def test_long_reasons_are_cut_to_what_the_row_holds():
    words = SandboxOffer("limits", reason="no " * 60).in_words
    assert len(words) == 100
    assert words.endswith("…")


def test_it_is_tried_once_in_a_process(bubblewrap, tmp_path):
    bubblewrap(f"echo x >> {tmp_path}/runs")
    find_sandbox()
    tried = (tmp_path / "runs").read_text()
    find_sandbox()
    assert (tmp_path / "runs").read_text() == tried

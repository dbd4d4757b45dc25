"""What is left of programs whose worker was killed, and who clears it away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluators.kinds._base import ScriptCall
from evaluators.sandbox.box import SHARED_MEMORY, remove_dead_boxes
from evaluators.sandbox.processes import own_process_key, start_time
from tests.evaluators.sandbox.offers import name_of, processes_named

ROOT = Path(__file__).resolve().parents[3]
WORKER = """
import os
from tests.evaluators.sandbox.offers import make_sandbox, name_of, offers, shell
name, text = os.environ["NAME"], os.environ["TEXT"]
shell(next(make_sandbox(offer) for offer in offers() if name_of(offer) == name), text)
"""


def boxes_of(pid):
    place, _, _ = own_process_key()
    return list(Path(tempfile.gettempdir()).glob(f"evalsite-script-{place}-{pid}-*"))


def sleeping(mark):
    return [line for line in processes_named(mark) if line.startswith("sleep ")]


async def until(is_so):
    """Look again until it is so."""
    while not is_so():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


def killed_worker(offer, text, is_ready):
    """Kill a worker in the middle of a program, as a machine short of memory does; return its id and its boxes.

    Once it is dead, any other worker of this machine may clear them away.
    """
    told = {"PYTHONPATH": str(ROOT), "NAME": name_of(offer), "TEXT": text}
    process = subprocess.Popen([sys.executable, "-c", WORKER], cwd=ROOT, env={**os.environ, **told})
    asyncio.run(until(is_ready))
    boxes = boxes_of(process.pid)
    process.kill()
    process.wait()
    return process.pid, boxes


@pytest.mark.parametrize("leave", ["setsid sleep {mark} &", "env -i setsid sleep {mark} &"])
def test_after_a_killed_worker_its_programs_are_ended_and_its_boxes_removed(offer, leave):
    mark = f"8{os.getpid()}00{len(leave)}"
    left = Path(SHARED_MEMORY, mark)
    text = f"echo secret > note; true > {left}; {leave.format(mark=mark)} sleep {mark}"
    # A worker's own user alone tells its programs apart, when they hide what they carry.
    if "env -i" in leave and os.geteuid() != 0 and offer.kind == "limits":
        return
    pid, boxes = killed_worker(offer, text, lambda: len(sleeping(mark)) == 2)
    assert boxes
    remove_dead_boxes()
    asyncio.run(until(lambda: boxes_of(pid) == []))
    asyncio.run(until(lambda: processes_named(mark) == []))
    if os.geteuid() == 0:
        assert not left.exists()
    left.unlink(missing_ok=True)


def test_boxes_of_the_living_stay_with_all_that_runs_in_them(sandbox):
    mark = f"3{os.getpid()}"

    async def clear_meanwhile():
        task = asyncio.create_task(sandbox.run(ScriptCall(("sleep", mark))))
        await until(lambda: sleeping(mark))
        remove_dead_boxes()
        seen = sleeping(mark), boxes_of(os.getpid())
        task.cancel()
        await asyncio.wait([task])
        return seen

    running, boxes = asyncio.run(clear_meanwhile())
    assert running
    assert boxes


def test_a_box_of_another_machine_or_container_goes_when_no_program_can_be_in_it_any_more():
    top = Path(tempfile.gettempdir())
    old = top / "evalsite-script-0123456789ab-1-1-old"
    fresh = top / "evalsite-script-0123456789ab-1-1-fresh"
    for folder in (old, fresh):
        folder.mkdir()
    os.utime(old, (1, 1))
    remove_dead_boxes()
    assert (old.exists(), fresh.exists()) == (False, True)
    fresh.rmdir()


def test_a_link_of_that_name_leads_nowhere(tmp_path):
    (tmp_path / "kept").touch()
    place, _, _ = own_process_key()
    link = Path(tempfile.gettempdir(), f"evalsite-script-{place}-{os.getpid()}-1-link")
    link.symlink_to(tmp_path)
    try:
        assert start_time(os.getpid()) != "1"
        remove_dead_boxes()
        assert (tmp_path / "kept").exists()
    finally:
        link.unlink()

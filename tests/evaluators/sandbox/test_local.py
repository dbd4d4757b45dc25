"""What a program finds in the sandbox, what comes back, and what is left of it: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import venv
from pathlib import Path
from textwrap import dedent

import pytest

from evaluators.kinds._base import SandboxRefusal, ScriptCall
from evaluators.sandbox import confinement, programs
from evaluators.sandbox.confinement import ProgramLimits
from evaluators.sandbox.probe import SandboxOffer
from evaluators.sandbox.processes import child_processes, own_process_key
from tests.evaluators.sandbox.offers import (
    make_sandbox,
    name_of,
    offers,
    processes_named,
    python,
    run,
    shell,
)

ROOT = Path(__file__).resolve().parents[3]
PLENTY = ProgramLimits(
    seconds=60, memory_mb=512, processes=64, output_kb=8192, disk_mb=64, files=1000
)


def open_to_all(folder):
    """Let the user that a program runs as reach a folder of a test."""
    for place in (folder, *list(folder.parents)[:2]):
        place.chmod(0o755)


def boxes():
    """Return those of this process: others may be at work on the machine."""
    place, pid, _ = own_process_key()
    return set(Path(tempfile.gettempdir()).glob(f"evalsite-script-{place}-{pid}-*"))


def handles():
    return set(Path("/proc/self/fd").iterdir())


def test_files_are_where_it_starts_and_the_workspace_is_another_folder(sandbox):
    result = shell(
        sandbox,
        "cat judges/rules.txt; cat $EVAL_WORKSPACE/report/out.txt; ls; judges/own.sh",
        files={"judges/rules.txt": b"rules\n", "judges/own.sh": b"#!/bin/sh\necho started\n"},
        workspace={"report/out.txt": b"left\n"},
    )
    assert result.stdout == "rules\nleft\njudges\nstarted\n", result.stderr


def test_under_bubblewrap_the_workspace_is_at_workspace(sandbox, is_boxed):
    result = shell(sandbox, "echo $EVAL_WORKSPACE; pwd", workspace={"a": b""})
    if is_boxed:
        assert result.stdout == "/workspace\n/script\n"


def test_it_sees_its_variables_and_four_of_ours(sandbox, is_boxed, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    given = {"EVAL_OUTPUT": "two\nlines, 'quoted' and \u00fcml\u00e4ut $HOME", "EMPTY": ""}
    result = python(
        sandbox,
        "import os, json; print(json.dumps(dict(os.environ)))",
        environment=given,
    )
    seen = json.loads(result.stdout)
    assert {name: seen.pop(name) for name in given} == given
    assert seen.pop("LANG") == "C.UTF-8"
    seen.pop("PWD", None)
    assert set(seen) == {"PATH", "HOME", "EVAL_WORKSPACE"} | (set() if is_boxed else {"TMPDIR"})


def test_python_and_python3_are_there_without_the_packages_of_the_site(sandbox):
    result = shell(sandbox, "python -c 'import django' ; python3 -c 'print(1 + 1)'")
    assert result.stdout == "2\n"
    assert "No module named 'django'" in result.stderr


def test_a_python_the_administrator_names_brings_its_packages(offer, is_boxed, tmp_path):
    venv.create(tmp_path / "judges", symlinks=True)
    [packages] = (tmp_path / "judges").glob("lib/python*/site-packages")
    (packages / "rules_of_ours.py").write_text("RULE = 7")
    open_to_all(tmp_path)
    named = make_sandbox(offer, python=str(tmp_path / "judges/bin/python"), limits=PLENTY)
    # Limits alone: root's programs are another user's, to whom the Python of these tests may be closed.
    if is_boxed or os.geteuid() != 0:
        result = python(named, "import rules_of_ours; print(rules_of_ours.RULE)")
        assert result.stdout == "7\n", result.stderr


def test_its_own_tmp_is_empty_and_its_home(sandbox):
    result = shell(sandbox, 'ls -A "$HOME"; echo x > ~/note; mktemp >/dev/null && echo made')
    assert (result.stdout, result.exit_code) == ("made\n", 0)


def test_five_megabytes_go_in_and_come_out(offer):
    sent = os.urandom(2_500_000).hex().encode()
    result = run(make_sandbox(offer, limits=PLENTY), "cat", stdin=sent)
    assert result.stdout.encode() == sent
    assert (result.exit_code, result.ended_by) == (0, "")


def test_output_that_is_no_text_comes_with_replacement_characters(sandbox):
    result = shell(sandbox, r"printf '\377\000ok'")
    assert result.stdout == "\ufffd\0ok"


def test_output_and_errors_can_be_opened_by_their_names(sandbox):
    result = shell(
        sandbox, "echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/stdin", stdin=b"in"
    )
    assert (result.stdout, result.stderr) == ("out\nin", "err\n")


def test_usual_ways_of_using_several_processes_work(sandbox, has_shared_memory):
    result = python(
        sandbox,
        """
        import asyncio, concurrent.futures, multiprocessing, subprocess, sys, tempfile

        async def ended():
            process = await asyncio.create_subprocess_exec("true")
            return await process.wait()

        if __name__ == "__main__":
            pools = [multiprocessing.Pool, concurrent.futures.ThreadPoolExecutor]
            with pools["threads" in sys.argv](2) as pool, tempfile.NamedTemporaryFile():
                print(sum(pool.map(abs, range(-9, 1))), asyncio.run(ended()))
            print(subprocess.run("date +%Z", shell=True, capture_output=True, text=True).stdout)
        """,
        mark="" if has_shared_memory else "threads",
    )
    assert result.stdout.split() == ["45", "0", "UTC"], result.stderr


def test_exit_codes_are_counted_as_shells_count_them(sandbox):
    assert shell(sandbox, "exit 7").exit_code == 7
    assert shell(sandbox, "kill -TERM $$").exit_code == 128 + 15
    missing = run(sandbox, "no-such-program")
    assert missing.exit_code == 127
    assert "no-such-program" in missing.stderr


def test_the_result_says_which_sandbox_it_was(sandbox):
    assert run(sandbox, "true").sandbox == sandbox.offer.in_words


def test_what_it_left_comes_back(sandbox):
    result = shell(
        sandbox,
        "cd $EVAL_WORKSPACE; rm gone; echo new > kept; mkdir -p a/b; echo deep > a/b/c; : > empty",
        workspace={"gone": b"x", "kept": b"old", "untouched": b"\0\xff"},
        keeps_workspace=True,
    )
    assert result.files == {
        "a/b/c": b"deep\n",
        "empty": b"",
        "kept": b"new\n",
        "untouched": b"\0\xff",
    }


def test_links_and_devices_are_not_followed_out_of_the_workspace(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hush")
    result = shell(
        sandbox,
        f"""cd $EVAL_WORKSPACE
        ln -s {secret} secret; ln -s {tmp_path} folder; ln -s / root; mkfifo pipe
        ln -s /proc/self/environ environ; echo fine > fine; ln fine twin; chmod 000 twin
        cd ..; mv workspace moved 2>/dev/null && ln -s {tmp_path} workspace; true""",
        workspace={"was": b"here"},
        keeps_workspace=True,
    )
    assert "hush" not in str(result.files)
    if os.geteuid() == 0:
        assert result.files == {"fine": b"fine\n", "twin": b"fine\n", "was": b"here"}


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("i=0; while [ $i -lt 501 ]; do : > $i; i=$((i+1)); done", "more than 500 files"),
        ("for i in 1 2 3; do head -c 8M /dev/zero > $i; done", "more than 20 MB"),
        ("mkdir -p $(seq -s/ 40) && cd $(seq -s/ 40) && : > x", "more than 30 deep"),
        ("printf x > \"$(printf 'a\\377')\"", "not UTF-8 text"),
        (": > $(head -c 200 /dev/zero | tr '\\0' a) && mkdir -p $(head -c 200 /dev/zero | tr '\\0' b) &&"
         " cd b* && : > $(head -c 200 /dev/zero | tr '\\0' c)", "longer than 300"),
    ],
)  # fmt: skip
def test_too_much_left_is_an_error_that_says_what(offer, left, said):
    sandbox = make_sandbox(offer, limits=PLENTY)
    result = shell(sandbox, f"cd $EVAL_WORKSPACE; {left}", keeps_workspace=True)
    assert said in result.ended_by, result.stderr
    assert result.files == {}


def test_nothing_is_kept_of_a_program_that_was_killed(sandbox):
    result = shell(
        sandbox, "echo x > $EVAL_WORKSPACE/x; yes", keeps_workspace=True, workspace={"y": b""}
    )
    assert result.ended_by
    assert result.files == {}


def test_many_runs_leave_no_process_no_handle_and_no_folder(sandbox):
    asyncio.run(sandbox.run(ScriptCall(("true",))))
    before = set(child_processes(os.getpid())), handles(), boxes()

    async def many():
        call = ScriptCall(("sh", "-c", "sleep 1000 & echo $0"), stdin=b"x", workspace={"a": b"b"})
        async with asyncio.TaskGroup() as group:
            return [group.create_task(sandbox.run(call)) for _ in range(40)]

    results = [task.result() for task in asyncio.run(many())]
    assert {(done.stdout, done.stderr, done.exit_code, done.ended_by) for done in results} == {
        ("sh\n", "", 0, "")
    }
    assert (set(child_processes(os.getpid())), handles(), boxes()) == before


def test_a_slow_start_is_no_reason_to_end_a_program(offer, monkeypatch, tmp_path):
    slow = tmp_path / "setpriv"
    slow.write_text(
        "#!/bin/sh\ni=0; while [ $i -lt 300000 ]; do i=$((i+1)); done\n"
        f'exec {shutil.which("setpriv")} "$@"\n'
    )
    slow.chmod(0o755)
    open_to_all(tmp_path)
    monkeypatch.setattr(confinement, "SYSTEM_PATH", (str(tmp_path), *confinement.SYSTEM_PATH))
    monkeypatch.setattr(programs, "GUARD_EVERY_S", 0.001)
    result = shell(make_sandbox(offer, folders=(str(tmp_path),)), "echo done")
    assert (result.ended_by, result.stderr, result.stdout) == ("", "", "done\n")


@pytest.mark.parametrize(
    "text",
    [
        """
        pid = os.posix_spawn("/bin/true", ["true"], {})
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        sum(i * i for i in range(4_000_000))
        """,
        """
        def work():
            sum(i * i for i in range(4_000_000))
            print("done", flush=True)
            os._exit(0)
        threading.Thread(target=work).start()
        ctypes.CDLL(None).pthread_exit(None)
        """,
        """
        for _ in range(200):
            threading.Thread(target=int).start()
        """,
        "kept = bytearray(b'x') * 200_000_000",
    ],
    ids=["not-waited-for", "first-thread-ended", "threads", "ending"],
)
def test_an_honest_program_may_be_looked_at_in_any_moment(sandbox, monkeypatch, text):
    monkeypatch.setattr(programs, "GUARD_EVERY_S", 0.001)
    monkeypatch.setattr(programs, "GUARD_SHARE", 0)
    imports = "import ctypes, os, threading\n"
    result = python(sandbox, f"{imports}{dedent(text)}\nprint('done')")
    assert (result.ended_by, result.stderr, result.stdout) == ("", "", "done\n")


def test_what_a_program_made_hard_to_remove_is_removed(sandbox):
    before = boxes()
    shell(sandbox, "mkdir -p a/b; : > a/b/c; chmod 000 a/b; chmod 500 a; chmod 000 .")
    assert boxes() == before


async def until_it_runs(mark):
    """Look again until a process of that mark is there."""
    while not processes_named(mark):  # noqa: ASYNC110 - nobody tells when it has started
        await asyncio.sleep(0)


def test_cancelling_kills_at_once_and_clears_up(sandbox):
    before, mark = boxes(), f"7{os.getpid()}"

    async def cancel():
        task = asyncio.create_task(sandbox.run(ScriptCall(("sleep", mark))))
        await until_it_runs(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_named(mark) == []

    asyncio.run(cancel())
    assert boxes() == before


def test_a_loop_that_ends_takes_its_programs_with_it(sandbox):
    mark = f"6{os.getpid()}"

    async def leave():
        task = asyncio.create_task(sandbox.run(ScriptCall(("sleep", mark))))
        await until_it_runs(mark)
        return task

    asyncio.run(leave())
    assert processes_named(mark) == []


@pytest.mark.parametrize("name", [name_of(offer) for offer in offers()])
def test_a_worker_that_is_killed_takes_its_programs_with_it(name):
    mark = f"5{os.getpid()}"
    worker = f"""
import asyncio
from evaluators.kinds._base import ScriptCall
from tests.evaluators.sandbox.offers import make_sandbox, name_of, offers
sandbox = next(make_sandbox(offer) for offer in offers() if name_of(offer) == {name!r})
asyncio.run(sandbox.run(ScriptCall(("sleep", "{mark}"))))
"""
    process = subprocess.Popen([sys.executable, "-c", worker], cwd=ROOT)
    asyncio.run(until_it_runs(mark))
    process.kill()
    process.wait()
    while processes_named(mark):
        pass


def test_no_more_run_at_once_than_the_administrator_says(offer, monkeypatch):
    counted, most, now, lock = [], 0, 0, threading.Lock()
    real = programs.run_program

    def counting(*arguments):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return real(*arguments)
        finally:
            with lock:
                now -= 1
                counted.append(1)

    monkeypatch.setattr("evaluators.sandbox.local.run_program", counting)
    sandbox = make_sandbox(offer, concurrency=2)

    async def several():
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(sandbox.run(ScriptCall(("true",))))

    asyncio.run(several())
    assert (len(counted), most) == (8, 2)


def test_whoever_waits_in_line_may_leave_it(offer):
    sandbox = make_sandbox(offer, concurrency=1)

    async def leave():
        mark = f"4{os.getpid()}"
        first = asyncio.create_task(sandbox.run(ScriptCall(("sleep", mark))))
        await until_it_runs(mark)
        second = asyncio.create_task(sandbox.run(ScriptCall(("echo", "second"))))
        third = asyncio.create_task(sandbox.run(ScriptCall(("echo", "third"))))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        return (await third).stdout

    assert asyncio.run(leave()) == "third\n"


def test_a_folder_of_an_agent_is_where_it_starts_and_only_read(offer, is_boxed, tmp_path):
    open_to_all(tmp_path)
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "agent.py").write_text("print(open('orders.txt').read())")
    (tmp_path / "desk" / "orders.txt").write_text("seven")
    sandbox = make_sandbox(offer, agents_dir=str(tmp_path))
    assert run(sandbox, "python", "agent.py", folder="desk").stdout == "seven\n"
    written = shell(sandbox, "echo x > new", folder="desk")
    if is_boxed or os.geteuid() == 0:
        assert written.exit_code != 0


@pytest.mark.parametrize("folder", ["../other", "none", "/etc", "link", "file"])
def test_a_folder_outside_the_agents_is_refused(offer, tmp_path, folder):
    agents = tmp_path / "agents"
    agents.mkdir()
    (tmp_path / "other").mkdir()
    (agents / "link").symlink_to("/etc")
    (agents / "file").touch()
    with pytest.raises(SandboxRefusal, match="there is no folder"):
        run(make_sandbox(offer, agents_dir=str(agents)), "true", folder=folder)


def test_a_folder_without_a_place_for_agents_names_the_variable(sandbox):
    with pytest.raises(SandboxRefusal, match="EVALSITE_AGENTS_DIR"):
        run(sandbox, "true", folder="desk")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"files": {"../x": b""}}, "leads outside"),
        ({"files": {"/etc/x": b""}}, "leads outside"),
        ({"workspace": {"a/../../x": b""}}, "leads outside"),
        ({"files": {"": b""}}, "leads outside"),
        ({"files": {"a\0": b""}}, "leads outside"),
        ({"files": {"a": b"", "a/b": b""}}, "could not be written"),
        ({"environment": {"A B": "x"}}, "variable"),
        ({"environment": {"A": "x\0"}}, "variable"),
        ({"command": ("true", "a\0b")}, "could not be started"),
        ({"command": ()}, "no command"),
    ],
)
def test_what_cannot_be_started_is_refused_with_the_reason(sandbox, call, said):
    before = boxes()
    with pytest.raises(SandboxRefusal, match=said):
        asyncio.run(sandbox.run(ScriptCall(**{"command": ("true",), **call})))
    assert boxes() == before


def test_where_no_sandbox_works_nothing_is_started():
    sandbox = make_sandbox(SandboxOffer("none", reason="the kernel is too old"))
    with pytest.raises(SandboxRefusal, match="the kernel is too old"):
        run(sandbox, "true")


def test_a_folder_the_administrator_names_can_be_read(offer, tmp_path):
    open_to_all(tmp_path)
    (tmp_path / "words").write_text("known")
    sandbox = make_sandbox(offer, folders=(str(tmp_path),))
    assert shell(sandbox, f"cat {tmp_path}/words").stdout == "known"


def test_what_is_hidden_stays_so_in_a_folder_that_can_be_read(offer, hides_files, tmp_path):
    open_to_all(tmp_path)
    site = tmp_path / "src" / "site"
    for name in ("site/data/secret_key", "site/.env", "site/judges/lib/rules", "beside"):
        path = site.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o644)
    terms = {
        "folders": (str(site / "judges"), str(tmp_path)),
        "hidden": (str(site / "data"), str(site), "/nowhere"),
    }
    shown = f"cd {site}; cat {site}/.env {site}/data/secret_key; cat judges/lib/rules ../beside"
    result = shell(make_sandbox(offer, **terms), shown)
    if hides_files:
        assert result.stdout == "site/judges/lib/rulesbeside", result.stderr
    written = shell(make_sandbox(offer, **terms), f"echo x > {site}/new")
    if hides_files:
        assert written.exit_code != 0
        assert not (site / "new").exists()


def test_the_code_and_settings_of_a_site_below_usr_are_hidden(offer, hides_files, tmp_path):
    # As if the site lay there: what is hidden is a folder that every machine has.
    result = shell(
        make_sandbox(offer, hidden=("/usr/share/doc",)),
        "ls /usr/share/doc; cat /usr/share/doc/*/copyright; ls /usr/share/zoneinfo >/dev/null && echo fine",
    )
    if hides_files:
        assert result.stdout == "fine\n"

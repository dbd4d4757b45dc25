"""What a hostile program tries, and what stops it in the sandbox in force.

Where bare limits are in force they cannot hide the machine, and each test says what then is not
stopped. What they keep from a program depends on whether the worker is root: only then does a program
run as a user of its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from pathlib import Path
from textwrap import dedent, indent

import pytest

from evaluators.kinds._base import SandboxRefusal
from evaluators.sandbox.box import remove, slot_user
from evaluators.sandbox.processes import child_processes
from tests.evaluators.sandbox.offers import make_sandbox, processes_named, python, run, shell

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def mark():
    """Give an argument by which processes of this test are known, wherever they run."""
    return f"2{secrets.randbelow(10**12):012}"


def test_a_fork_bomb_runs_into_its_limit_and_nothing_of_it_is_left(sandbox, mark):
    result = python(
        sandbox,
        f"""
        # {mark}
        import os, sys, time
        def bomb():
            while True:
                try:
                    if os.fork() == 0:
                        os.setsid()
                except OSError:
                    # Else the first of them hardly gets a turn in which it notices the limit.
                    time.sleep(0.01)
        try:
            while True:
                if os.fork() == 0:
                    bomb()
        except OSError as error:
            sys.exit(str(error))
        """,
        mark=mark,
    )
    assert result.ended_by == "the limit of 24 processes and threads"
    assert processes_named(mark) == []


def test_three_gigabytes_are_not_given(sandbox):
    result = python(sandbox, "len(bytearray(3 * 1024**3))")
    assert result.ended_by == "the memory limit of 256 MB"
    assert "MemoryError" in result.stderr


@pytest.mark.parametrize(
    "held",
    [
        "here = bytearray(300 * 1024**2)",
        "import mmap; here = mmap.mmap(-1, 3 * 1024**3)\nfor at in range(0, len(here), 4096): here[at] = 1",
        "import os\nfor _ in range(5):\n    if os.fork(): continue\n    here = bytearray(60 * 1024**2); break",
    ],
    ids=["by one", "shared", "by several"],
)
def test_memory_counts_for_all_processes_together(sandbox, held):
    result = python(sandbox, f"{held}\nimport signal; signal.pause()")
    assert result.ended_by == "the memory limit of 256 MB"
    assert result.exit_code is None


def test_memory_that_processes_share_is_counted_once(sandbox):
    result = python(
        sandbox,
        """
        import os
        kept = bytearray(100 * 1024**2)
        children = []
        for _ in range(6):
            there, here = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(here)
                os.read(there, 1)
                os._exit(0)
            children.append((pid, here))
        # Long enough for the guard to look: it does so by the clock of the processor's work.
        sum(i * i for i in range(4_000_000))
        for pid, here in children:
            os.close(here)
        print("done")
        """,
    )
    assert (result.ended_by, result.stdout) == ("", "done\n")


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["output", "errors"])
def test_endless_output_ends_the_program_and_takes_no_more_than_its_limit(sandbox, stream):
    result = shell(sandbox, f"yes {stream}")
    assert result.ended_by == "the output limit of 256 KB"
    assert len(result.stderr if stream else result.stdout) == 256 * 1024


@pytest.mark.parametrize(
    "leave",
    [
        "setsid sleep {mark} &",
        "(setsid sleep {mark} &)",
        "env -i setsid sleep {mark} >/dev/null 2>&1 &",
        "(env -i setsid sh -c '(setsid sleep {mark} &) ; sleep {mark}' >/dev/null 2>&1 &)",
        "nohup sleep {mark} >/dev/null 2>&1 &",
    ],
)
def test_a_child_that_leaves_its_session_ends_with_the_program(sandbox, mark, leave):
    result = shell(sandbox, f"{leave.format(mark=mark)}\necho done")
    assert (result.stdout, result.exit_code) == ("done\n", 0)
    assert processes_named(mark) == []


def test_orphans_that_are_dead_already_are_buried(sandbox):
    before = set(child_processes(os.getpid()))
    for _ in range(3):
        shell(sandbox, "for i in 1 2 3 4 5; do (setsid true &); done; (true &)")
    assert set(child_processes(os.getpid())) <= before


def test_secrets_of_the_worker_are_out_of_reach(sandbox, hides_files, tmp_path, monkeypatch):
    monkeypatch.setenv("EVALSITE_SECRET_KEY", "hush-hush")
    secret = tmp_path / "secret_key"
    secret.write_text("hush-hush")
    secret.chmod(0o600)
    result = python(
        sandbox,
        f"""
        import os
        print(os.environ.get("EVALSITE_SECRET_KEY"))
        for path in ({str(secret)!r}, "/proc/{os.getpid()}/environ", "/etc/shadow"):
            try:
                print(path, "hush" in open(path, errors="replace").read())
            except OSError as error:
                print(path, error.strerror)
        """,
    )
    of_environment, of_file, of_process, of_users = result.stdout.splitlines()
    assert of_environment == "None"
    refused = ("No such file or directory", "Permission denied")
    assert of_users.endswith(refused)
    assert of_process.endswith(refused)
    # Bare limits: a program of the worker's own user reads what the worker may read.
    assert of_file.endswith(refused if hides_files or IS_ROOT else "True")


def test_the_site_cannot_be_reached_without_the_network(sandbox, cuts_network):
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = python(sandbox, CONNECT, stdin=str(server.getsockname()[1]).encode())
    # Bare limits cannot take the network away.
    assert result.stdout == ("refused\n" if cuts_network else "connected\n")


def test_programs_send_nothing_to_sockets_of_the_machine(sandbox, cuts_network):
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service,
    ):
        Path(folder).chmod(0o755)
        path = str(Path(folder) / "log")
        service.bind(path)
        Path(path).chmod(0o777)
        service.setblocking(False)
        result = python(sandbox, SEND, stdin=path.encode())
        received = []
        with contextlib.suppress(BlockingIOError):
            while True:
                received.append(service.recv(100))
    # Bare limits cannot take the sockets away.
    assert received == ([] if cuts_network else [b"socket", b"raw", b"pair"]), result.stdout
    # Processes of one program still talk to each other.
    assert result.stdout.splitlines()[-1] == "hello"


SEND = """
import socket, sys
path = sys.stdin.read()
makers = {
    b"socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    b"raw": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW),
    b"pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0],
}
for name, make in makers.items():
    try:
        make().sendto(name, path)
        print("sent")
    except OSError as error:
        print(error.strerror)
one, other = socket.socketpair()
one.send(b"hello")
print(other.recv(5).decode())
"""


def test_the_network_is_there_only_for_who_asks_where_it_is_allowed(offer, cuts_network):
    allowing = make_sandbox(offer, allows_network=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1]).encode()
        assert python(allowing, CONNECT, stdin=port, needs_network=True).stdout == "connected\n"
        result = python(allowing, CONNECT, stdin=port)
        assert result.stdout == ("refused\n" if cuts_network else "connected\n")
        with pytest.raises(SandboxRefusal, match="EVALSITE_SCRIPTS_NETWORK"):
            python(make_sandbox(offer), CONNECT, stdin=port, needs_network=True)


CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.stdin.read())), timeout=20)
    print("connected")
except OSError:
    print("refused")
"""


def test_nothing_is_written_outside(sandbox, hides_files, tmp_path):
    ours, everybodys = tmp_path / "ours", tmp_path / "everybodys"
    ours.mkdir(mode=0o700)
    everybodys.mkdir()
    for folder in (everybodys, *list(everybodys.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    everybodys.chmod(0o777)
    result = python(
        sandbox,
        f"""
        for folder in ({str(ours)!r}, "/usr", "/etc", "/", "/dev", {str(everybodys)!r}):
            try:
                open(folder + "/left", "w").write("x")
                print(folder)
            except OSError:
                pass
        """,
    )
    assert result.exit_code == 0
    reached = []
    if not hides_files:
        # Bare limits: what every user of the machine may write to, a program may too.
        reached = [str(everybodys)] if IS_ROOT else [str(ours), str(everybodys)]
    assert result.stdout.split() == reached


def test_the_parent_and_all_others_survive_being_killed(sandbox, is_boxed):
    may_kill = python(sandbox, "import os; os.kill(os.getppid(), 0)").exit_code == 0
    if may_kill and not is_boxed:
        # Limits of a worker that is not root, on an older kernel: asking is enough, it would work.
        assert not IS_ROOT
        return
    result = python(
        sandbox,
        f"""
        import os, signal
        for pid in (os.getppid(), {os.getpid()}, 1, -1):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError as error:
                print(error.strerror)
        print("still here")
        """,
    )
    assert result.stdout.endswith("still here\n")
    assert shell(sandbox, "echo next").stdout == "next\n"


def test_the_worker_cannot_be_traced(sandbox):
    result = python(
        sandbox,
        f"""
        import ctypes
        print(ctypes.CDLL(None, use_errno=True).ptrace(16, {os.getpid()}, 0, 0), ctypes.get_errno())
        """,
    )
    assert result.stdout.split()[0] == "-1"


def test_one_large_file_and_many_small_ones_run_into_the_same_limit(sandbox):
    words = "the limit of 16 MB and 200 files written"
    assert shell(sandbox, "head -c 20M /dev/zero > large").ended_by == words
    assert shell(sandbox, "for i in $(seq 300); do : > file$i; done").ended_by == words
    several = "for i in 1 2 3; do head -c 8M /dev/zero > $EVAL_WORKSPACE/$i; done; exec sleep 1000"
    assert shell(sandbox, several).ended_by == words
    endless = "import os, itertools\nfor i in itertools.count(): os.mkdir(str(i)); os.chdir(str(i))"
    assert python(sandbox, endless).ended_by == words


DISK = "the limit of 16 MB and 200 files written"


@pytest.mark.parametrize(
    "keep",
    ["kept.append(file)", "kept.append(mmap.mmap(file.fileno(), 2**20)); file.close()"],
    ids=["open", "mapped"],
)
def test_deleted_files_count_as_long_as_they_take_room(sandbox, keep):
    result = python(
        sandbox,
        f"""
        import mmap, os, signal
        kept = []
        for _ in range(40):
            file = open("file", "wb+")
            os.unlink("file")
            file.write(bytes(2**20))
            file.flush()
            {keep}
        signal.pause()
        """,
    )
    assert result.ended_by == DISK


FILL = """kept = []
for _ in range(40):
    kept.append(open("file", "wb+", buffering=0))
    os.unlink("file")
    kept[-1].write(bytes(2**20))
"""


@pytest.mark.parametrize(
    ("hold", "leave", "ended_by"),
    [
        ("kept = b'x' * (300 * 2**20)", "libc.pthread_exit(None)", "the memory limit of 256 MB"),
        (FILL, "libc.pthread_exit(None)", DISK),
        (f"libc.unshare(0x400)\n{FILL}", "threading.Event().wait()", DISK),
    ],
    ids=["memory-of-an-ended-first", "files-of-an-ended-first", "files-of-its-own"],
)
def test_what_a_thread_holds_counts_whatever_the_first_does(sandbox, hold, leave, ended_by):
    parts = ("import ctypes, os, threading", "libc = ctypes.CDLL(None)", "def work():")
    work = indent(f"{hold}\nthreading.Event().wait()", "    ")
    started = "threading.Thread(target=work).start()"
    result = python(sandbox, "\n".join((*parts, work, started, leave)))
    assert result.ended_by == ended_by


@pytest.mark.parametrize(
    "close", ["libc.prctl(4, 0)", "os.execl('./python', 'python', '-c', fill)"]
)
def test_who_closes_itself_hides_no_files(sandbox, close):
    # Neither a process that allows no dump of itself nor a program that its user may not read shows its files.
    result = python(
        sandbox,
        f"""
import ctypes, os, shutil, signal, sys
libc = ctypes.CDLL(None)
fill = {f"import os, signal{chr(10)}{FILL}signal.pause()"!r}
shutil.copy(sys.executable, "python")
os.chmod("python", 0o111)
os.environ["PYTHONHOME"] = sys.prefix
{close}
exec(fill)
""",
    )
    assert result.ended_by.startswith(DISK)


def test_memory_with_a_handle_alone_counts_where_it_is_given_at_all(sandbox):
    result = python(
        sandbox,
        """
        import os, signal
        for _ in range(40):
            os.write(os.memfd_create("hidden"), bytes(2**20))
        signal.pause()
        """,
    )
    assert result.ended_by == DISK or "Function not implemented" in result.stderr


def test_a_few_deleted_files_are_nothing(sandbox):
    result = python(
        sandbox,
        """
        import mmap, tempfile
        with tempfile.TemporaryFile() as file, mmap.mmap(-1, 64 * 2**20) as shared:
            file.write(bytes(2**20))
            sum(i * i for i in range(4_000_000))
            print("done")
        """,
    )
    assert (result.ended_by, result.stdout) == ("", "done\n")


@pytest.mark.parametrize("rights", ["0", "0o400", "0o100"])
def test_a_closed_folder_hides_nothing_of_what_is_in_it(sandbox, rights):
    filled = """
        import os, signal
        os.mkdir("closed")
        for i in range(20):
            open(f"closed/{i}", "wb").write(bytes(2**20))
    """
    running = python(sandbox, f"{dedent(filled)}os.chmod('closed', {rights})\nsignal.pause()")
    assert running.ended_by.startswith(DISK)
    ended = python(sandbox, f"{dedent(filled)}os.chmod('closed', {rights})")
    assert ended.ended_by.startswith(DISK)


def test_shared_memory_is_no_way_around_the_limits(sandbox, is_boxed, hides_files, mark):
    fill = f"for i in $(seq 9); do head -c 8M /dev/zero > /dev/shm/{mark}$i || exit; done"
    result = shell(sandbox, f"{fill}; sleep 1000", seconds=20)
    if is_boxed:
        assert "No space left" in result.stderr
    elif IS_ROOT:
        assert result.ended_by == DISK
    elif hides_files:
        assert "Permission denied" in result.stderr
    # Bare limits of a worker that is not root: what is there is the worker's own user's.
    left = list(Path("/dev/shm").glob(f"{mark}*"))
    assert left == [] or not (is_boxed or IS_ROOT or hides_files)
    for path in left:
        path.unlink()


def test_what_a_program_leaves_in_public_folders_is_removed(sandbox, is_boxed, hides_files, mark):
    public = ("/tmp", "/var/tmp", "/dev/shm")
    for folder in public:
        shell(
            sandbox, f"mkdir -p {folder}/{mark}/a; : > {folder}/{mark}/a/b; : > {folder}/{mark}-c"
        )
    if is_boxed or IS_ROOT:
        shell(sandbox, "ipcmk -M 4096; ipcmk -Q; ipcmk -S 1")
    kept = "".join(Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "msg", "sem"))
    assert str(slot_user(0)) not in kept
    left = [path for folder in public for path in Path(folder).glob(f"{mark}*")]
    if is_boxed or IS_ROOT or hides_files:
        assert left == []
    for path in left:
        remove(path)


def test_time_goes_on_when_a_program_shuts_its_output(sandbox, mark):
    result = shell(sandbox, f"exec 1>&- 2>&-; sleep {mark}", seconds=0.3)
    assert (result.ended_by, result.timed_out) == ("the time limit of 0.3 s", True)
    assert result.exit_code is None
    assert processes_named(mark) == []


def test_time_goes_on_when_a_program_never_reads(sandbox):
    result = shell(sandbox, "sleep 1000", seconds=0.3, stdin=b"x" * 5_000_000)
    assert result.timed_out


def test_a_program_may_end_before_it_read_its_input(sandbox):
    result = shell(sandbox, "head -c 3; exit 0", stdin=b"x" * 5_000_000)
    assert (result.stdout, result.exit_code, result.ended_by) == ("xxx", 0, "")


def test_what_shuts_a_program_in_is_not_led_by_its_variables_or_files(sandbox):
    fake = b"#!/bin/sh\necho faked; exit 0\n"
    result = run(
        sandbox,
        *("/bin/sh", "-c", "/bin/grep NoNewPrivs /proc/self/status; ulimit -n"),
        files={"setpriv": fake, "prlimit": fake, "sh": fake, "none.so": b"none"},
        environment={"PATH": "/script:.", "LD_PRELOAD": "/script/none.so", "BASH_ENV": "sh"},
    )
    assert result.stdout.split() == ["NoNewPrivs:", "1", "1024"]


def test_a_program_has_no_rights_and_gains_none(sandbox, is_boxed):
    result = shell(sandbox, "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status; id -u")
    lines = dict(line.split(":\t") for line in result.stdout.splitlines()[:-1])
    assert int(lines["CapEff"], 16) == int(lines["CapPrm"], 16) == 0
    assert lines["NoNewPrivs"] == "1"
    assert result.stdout.splitlines()[-1] != "0"


def test_other_processes_are_not_seen(sandbox, is_boxed):
    seen = shell(sandbox, "ls /proc | grep -c '^[0-9]'").stdout
    if is_boxed:
        assert int(seen) <= 6


def test_no_open_file_of_the_worker_is_inherited(sandbox, tmp_path):
    secret = tmp_path / "open"
    secret.write_text("hush")
    handle = os.open(secret, os.O_RDONLY)
    try:
        os.set_inheritable(handle, True)
        result = python(sandbox, "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    finally:
        os.close(handle)
    assert result.stdout.strip() == "[0, 1, 2, 3]"

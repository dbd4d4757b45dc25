"""The sandbox of one process: makes a box, runs the program confined in it, and returns the result."""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from evaluators.kinds._base import SandboxRefusal, ScriptCall, ScriptResult
from evaluators.sandbox.box import (
    Box,
    KeptFilesError,
    clear_after,
    collect,
    open_box,
    public_folders,
    slot_user,
    write_environment,
    write_names,
)
from evaluators.sandbox.confinement import (
    INNER_USER,
    ProgramLimits,
    StartingPlace,
    Terms,
    boxed_command,
    interpreter,
    is_open_to_all,
    limited_command,
    own_environment,
)
from evaluators.sandbox.probe import SandboxOffer, bubblewrap_path, find_sandbox
from evaluators.sandbox.programs import (
    Ending,
    ProgramGuard,
    Start,
    Stop,
    disk_limit_passed,
    run_program,
)
from evaluators.sandbox.system_calls import open_filter

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[int]"]


class Slots:
    """Numbers from 0 that are taken and given back; without a free one, `take` waits in line."""

    def __init__(self, count: int) -> None:
        """Start with all numbers free."""
        self._lock = threading.Lock()
        self._free = list(range(count))
        self._line: deque[Waiter] = deque()

    async def take(self) -> int:
        """Return a free number, once there is one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                return heapq.heappop(self._free)
            turn: asyncio.Future[int] = loop.create_future()
            self._line.append((loop, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            self._leave((loop, turn))
            raise

    def give_back(self, number: int) -> None:
        """Pass the number to the next in line; callable from any thread."""
        with self._lock:
            while self._line:
                loop, turn = self._line.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_over, turn, number)
                except RuntimeError:
                    # The loop is closed, so nobody waits there any more.
                    continue
                return
            heapq.heappush(self._free, number)

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
        turn = waiter[1]
        if turn.done() and not turn.cancelled():
            self.give_back(turn.result())

    def _hand_over(self, turn: asyncio.Future[int], number: int) -> None:
        """Give the number to the one in line, or back if that one was cancelled meanwhile."""
        if turn.done():
            self.give_back(number)
        else:
            turn.set_result(number)


class LocalSandbox:
    """Runs programs on this machine under the administrator's terms, a few at once.

    Every program has a thread that outlives the event loop, so that its processes are always killed and
    its files removed.
    """

    def __init__(self, terms: Terms, offer: SandboxOffer | None = None) -> None:
        """Start nothing yet; without an offer, use the best sandbox of this machine."""
        self.terms = terms
        self._offer = offer
        self._slots = Slots(terms.at_once)
        self._threads = ThreadPoolExecutor(terms.at_once, thread_name_prefix="script")

    @property
    def offer(self) -> SandboxOffer:
        """Return the sandbox in use."""
        return self._offer or find_sandbox()

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Run a program and return its result; raises SandboxRefusal if it could not be started.

        If the caller is cancelled, the program and all its processes are killed first.
        """
        if self.offer.kind == "none":
            raise SandboxRefusal(f"no sandbox works on this machine ({self.offer.reason})")
        if not call.command:
            raise SandboxRefusal("there is no command to run")
        if call.needs_network and not self.terms.allows_network:
            raise SandboxRefusal(
                "it asks for the network, which programs do not get on this site; the administrator can "
                "allow it with EVALSITE_SCRIPTS_NETWORK=1"
            )
        slot = await self._slots.take()
        stop = Stop()
        running = self._threads.submit(self._run_in_box, call, slot, stop)
        running.add_done_callback(lambda _: self._slots.give_back(slot))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            stop.set()
            await _wait_for(running)
            raise
        finally:
            running.add_done_callback(lambda _: stop.close())

    def _run_in_box(self, call: ScriptCall, slot: int, stop: Stop) -> ScriptResult:
        is_boxed = self.offer.kind == "bubblewrap"
        seconds = min(call.seconds, self.terms.limits.seconds)
        limits = replace(self.terms.limits, seconds=seconds)
        user = slot_user(slot)
        with open_box(files=call.files, workspace=call.workspace, user=user) as box:
            place = self._place(call, box, limits, user, is_boxed=is_boxed)
            public = () if is_boxed or user is None else public_folders(closed=place.closed)
            workspace = os.open(box.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with open_filter(is_wanted=is_boxed) as calls:
                    start = _start(call, place, calls, is_boxed=is_boxed)
                    ending = _run(start, place, stop, public)
                result = _result(call, ending, place, workspace)
                return replace(result, sandbox=self.offer.in_words)
            finally:
                os.close(workspace)
                if user is not None and not is_boxed:
                    clear_after(user, public)

    def _place(
        self, call: ScriptCall, box: Box, limits: ProgramLimits, user: int | None, *, is_boxed: bool
    ) -> StartingPlace:
        has_own_user = user is not None and not is_boxed
        python = interpreter(self.terms.python, for_everybody=has_own_user)
        if call.environment:
            write_environment(box, call.environment, user)
        if is_boxed:
            write_names(box, INNER_USER if user is None else user)
        else:
            _link_names(box, python.program, python.missing_names)
        return StartingPlace(
            box=box,
            python=python,
            limits=limits,
            user=user,
            folders=self.terms.folders,
            hidden=self.terms.hidden,
            folder=self._agent(call.folder, for_everybody=has_own_user) if call.folder else "",
            has_network=call.needs_network and self.terms.allows_network,
            closed=self.offer.closed,
        )

    def _agent(self, name: str, *, for_everybody: bool) -> str:
        """Return the path of an agent's folder; raises SandboxRefusal if there is none."""
        top = self.terms.agents_dir
        if not top:
            raise SandboxRefusal(
                f"the folder {name!r} cannot be used: the administrator has to name the folder of agents "
                "in EVALSITE_AGENTS_DIR"
            )
        path = Path(top, name).resolve()
        if not path.is_relative_to(Path(top).resolve()) or not path.is_dir():
            raise SandboxRefusal(f"there is no folder {name!r} in EVALSITE_AGENTS_DIR ({top})")
        if for_everybody and not is_open_to_all(str(path)):
            raise SandboxRefusal(f"the folder {path} is closed to other users of the machine")
        return str(path)


def _link_names(box: Box, program: str, names: tuple[str, ...]) -> None:
    box.names.mkdir(mode=0o755)
    for name in names:
        (box.names / name).symlink_to(program)


def _start(call: ScriptCall, place: StartingPlace, calls: int | None, *, is_boxed: bool) -> Start:
    variables = own_environment(place, is_boxed=is_boxed)
    if is_boxed:
        command = boxed_command(bubblewrap_path(), call.command, place, calls)
    else:
        command = limited_command(call.command, place)
    unboxed_folder = place.folder or str(place.box.start)
    return Start(
        command=command,
        environment=variables,
        folder="/" if is_boxed else unboxed_folder,
        mark=f"EVAL_WORKSPACE={variables['EVAL_WORKSPACE']}\0".encode(),
        user=place.user,
        is_boxed=is_boxed,
        stdin=call.stdin,
        handles=() if calls is None else (calls,),
    )


def _run(start: Start, place: StartingPlace, stop: Stop, public: tuple[str, ...]) -> Ending:
    try:
        guard = ProgramGuard(place.box, place.limits, public)
        return run_program(start, place.limits, stop, guard.limit_passed)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SandboxRefusal(f"the program could not be started: {reason}") from error


def _result(call: ScriptCall, ending: Ending, place: StartingPlace, workspace: int) -> ScriptResult:
    stderr = ending.stderr.decode("utf-8", "replace")
    ended_by = ending.ended_by or place.limits.hit_by(ending.exit_code or 0, stderr)
    files: Mapping[str, bytes] = {}
    ended_by = ended_by or disk_limit_passed(place.box, place.limits)
    if call.keeps_workspace and not ended_by:
        try:
            files = collect(workspace)
        except KeptFilesError as error:
            ended_by = str(error)
    return ScriptResult(
        stdout=ending.stdout.decode("utf-8", "replace"),
        stderr=stderr,
        exit_code=ending.exit_code,
        ended_by=ended_by,
        timed_out=ending.timed_out,
        duration_ms=ending.duration_ms,
        files=files,
    )


async def _wait_for(running: Future[ScriptResult]) -> None:
    await asyncio.wait([asyncio.wrap_future(running)])

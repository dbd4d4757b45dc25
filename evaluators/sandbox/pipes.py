"""What goes into a program and comes out of it, in bounded memory and without ever waiting."""

from __future__ import annotations

import os
import select
import subprocess
from typing import IO, Self

CHUNK = 64 * 1024


class Pipes:
    """The three pipes of a program; `is_over` once it printed more than it may.

    What it never reads, and that it closes its ends early, is its own business.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, *, most: int) -> None:
        """Take over the pipes; `most` bytes are read of output and of errors, each."""
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("the program was started with its three pipes")
        self.is_over = False
        self.poll = select.poll()
        self._most = most
        self._unsent = memoryview(stdin)
        self._input = process.stdin
        self._outputs = {pipe.fileno(): pipe for pipe in (process.stdout, process.stderr)}
        self._texts = {handle: bytearray() for handle in self._outputs}
        for pipe, event in (
            (process.stdin, select.POLLOUT),
            (process.stdout, select.POLLIN),
            (process.stderr, select.POLLIN),
        ):
            os.set_blocking(pipe.fileno(), False)
            self.poll.register(pipe, event)

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """Return output and errors so far."""
        output, errors = self._texts.values()
        return bytes(output), bytes(errors)

    def serve(self, handle: int) -> None:
        """Do what a pipe is ready for; other handles are none of ours."""
        if handle in self._outputs:
            self._read(handle)
        elif not self._input.closed and handle == self._input.fileno():
            self._send()

    def drain(self) -> None:
        """Take what the dead have left."""
        for handle in list(self._outputs):
            while self._read(handle):
                pass

    def __enter__(self) -> Self:
        """Be ready."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Let go of all pipes."""
        for pipe in (self._input, *self._outputs.values()):
            self._shut(pipe)

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._input.fileno(), self._unsent[:CHUNK])
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:
            # It closed its end, or is gone.
            pass
        self._shut(self._input)

    def _read(self, handle: int) -> bool:
        """Take what is there; False when there is nothing more for now."""
        pipe = self._outputs[handle]
        if pipe.closed:
            return False
        try:
            chunk = os.read(handle, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._shut(pipe)
            return False
        text = self._texts[handle]
        room = self._most - len(text)
        text += chunk[:room]
        self.is_over = self.is_over or len(chunk) > room
        return not self.is_over

    def _shut(self, pipe: IO[bytes]) -> None:
        if not pipe.closed:
            self.poll.unregister(pipe)
            pipe.close()

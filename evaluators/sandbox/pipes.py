"""What goes into a program and comes out of it, in bounded memory and without ever waiting."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from typing import Self

CHUNK = 64 * 1024


class Ends:
    """Both ends of the three pipes of a program: input, output, errors."""

    def __init__(self, user: int | None) -> None:
        """Make the pipes; they are the user's, so that /dev/stdout can be opened by its name."""
        pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        if user is not None:
            for end, _ in pairs:
                os.fchown(end, user, -1)
        (its_input, our_input), (our_output, its_output), (our_errors, its_errors) = pairs
        self.ours = (our_input, our_output, our_errors)
        self.its = (its_input, its_output, its_errors)


def close_all(ends: Iterable[int]) -> None:
    """Let go of the ends."""
    for end in ends:
        os.close(end)


class Pipes:
    """Our ends of the three pipes of a program; `is_over` once it printed more than it may.

    What it never reads, and that it closes its ends early, is its own business.
    """

    def __init__(self, ends: tuple[int, int, int], stdin: bytes, *, most: int) -> None:
        """Take over the ends; `most` bytes are read of output and of errors, each."""
        self.is_over = False
        self.poll = select.poll()
        self._most = most
        self._unsent = memoryview(stdin)
        self._input, *outputs = ends
        self._open = set(ends)
        self._texts = {handle: bytearray() for handle in outputs}
        for handle in ends:
            os.set_blocking(handle, False)
            self.poll.register(handle, select.POLLIN if handle in outputs else select.POLLOUT)

    def __enter__(self) -> Self:
        """Be ready."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Let go of all ends."""
        for handle in list(self._open):
            self._shut(handle)

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """Return output and errors so far."""
        output, errors = self._texts.values()
        return bytes(output), bytes(errors)

    def serve(self, handle: int) -> None:
        """Do what a pipe is ready for; other handles are none of ours."""
        if handle in self._texts:
            self._read(handle)
        elif handle == self._input:
            self._send()

    def drain(self) -> None:
        """Take what the dead have left."""
        for handle in self._texts:
            while self._read(handle):
                pass

    def _send(self) -> None:
        if self._input not in self._open:
            return
        try:
            while self._unsent:
                sent = os.write(self._input, self._unsent[:CHUNK])
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:
            # It closed its end, or is gone.
            pass
        self._shut(self._input)

    def _read(self, handle: int) -> bool:
        """Take what is there; False when there is nothing more for now."""
        if handle not in self._open:
            return False
        try:
            chunk = os.read(handle, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._shut(handle)
            return False
        text = self._texts[handle]
        room = self._most - len(text)
        text += chunk[:room]
        self.is_over = self.is_over or len(chunk) > room
        return not self.is_over

    def _shut(self, handle: int) -> None:
        if handle in self._open:
            self._open.discard(handle)
            self.poll.unregister(handle)
            os.close(handle)

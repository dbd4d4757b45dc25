"""Make a process that carries out runs ready for it: what it has loaded is there to stay."""

from __future__ import annotations

import gc
import threading

# At the start of a worker, and as its first runs begin: pages, prices and kinds are loaded by then.
MOST_TIMES = 3

_lock = threading.Lock()
_times = 0


def settle() -> None:
    """Spare the garbage collector what is loaded so far; does nothing after the first few times.

    Some 200,000 objects of libraries live as long as the process. Going through them over and
    over takes a sixth of the time of a long run, and a tenth of a second each time in which no
    thread of the process, those that serve pages included, does anything.
    """
    global _times
    with _lock:
        if _times == MOST_TIMES:
            return
        _times += 1
        # Without this, garbage of now would be spared too, for ever.
        gc.collect()
        gc.freeze()

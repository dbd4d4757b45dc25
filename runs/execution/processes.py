"""Name this process so that another on the same machine can tell for certain that it is dead."""

from __future__ import annotations

import platform

from evaluators.sandbox.lives import is_over, own_life


def process_name() -> str:
    """Return host, place, pid and start of this process, "/" between them; fresh after a fork."""
    place, pid, start = own_life()
    return "/".join((platform.node() or "host", place, str(pid), start))


def is_dead(name: str) -> bool:
    """Tell whether the process of that name is gone; False whenever that cannot be known from here.

    Only processes of the same boot of the same kernel and the same pid namespace can be judged: a
    host's name says little, containers share it.
    """
    parts = name.rsplit("/", 3)
    return len(parts) == 4 and is_over(parts[1], int(parts[2]), parts[3])

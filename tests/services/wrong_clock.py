"""`python -m tests.services.wrong_clock SECONDS ARGUMENT...` runs celery where the clock is wrong.

Every way in which Python code asks for the time of day answers so many seconds off. Clocks that
only measure how long something takes stay right, as on a real machine.
"""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any

RIGHT = datetime.datetime


class _AnyDatetime(type):
    """Lets datetimes that C code makes pass for those of the class below."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, RIGHT)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, RIGHT)


def shift(off_by_s: int) -> None:
    """Set this process's clock wrong; to be called before anything else is imported."""
    right_time, right_time_ns = time.time, time.time_ns

    class WrongDatetime(RIGHT, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return RIGHT.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return RIGHT.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return RIGHT.fromtimestamp(time.time())

    time.time = lambda: right_time() + off_by_s
    time.time_ns = lambda: right_time_ns() + off_by_s * 1_000_000_000
    datetime.datetime = WrongDatetime


def main() -> None:
    """Set the clock wrong, then be the celery of the other arguments."""
    shift(int(sys.argv.pop(1)))
    from celery.__main__ import main as celery

    celery()


if __name__ == "__main__":
    main()

"""Whether anybody waits for a page of this process, for runs that are carried out in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Requests:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        """Count from none."""
        self._lock = threading.Lock()
        self._count = 0

    def are_under_way(self) -> bool:
        """Tell whether anybody waits."""
        return self._count > 0

    def counted(self, application: Application) -> Application:
        """Return the application, each of whose requests is counted until it is answered."""

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            self._move(1)
            try:
                return application(environ, start_response)
            finally:
                self._move(-1)

        return answer

    def _move(self, by: int) -> None:
        with self._lock:
            self._count += by


REQUESTS = Requests()

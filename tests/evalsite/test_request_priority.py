"""Requests count as active until they are answered, with or without an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from evalsite.embedded import RequestCounter

StartResponse = Callable[..., Any]


def test_a_request_counts_until_it_is_answered() -> None:
    requests = RequestCounter()
    seen: list[bool] = []

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        seen.append(requests.is_busy())
        return [b"a page"]

    assert requests.wrap(application)({}, print) == [b"a page"]
    assert (seen, requests.is_busy()) == ([True], False)


def test_a_failed_request_no_longer_counts() -> None:
    requests = RequestCounter()

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        requests.wrap(application)({}, print)
    assert not requests.is_busy()

"""Requests count as under way until they are answered, well or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from evalsite.embedded import Requests

StartResponse = Callable[..., Any]


def test_a_request_is_under_way_until_it_is_answered() -> None:
    requests = Requests()
    seen: list[bool] = []

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        seen.append(requests.are_under_way())
        return [b"a page"]

    assert requests.counted(application)({}, print) == [b"a page"]
    assert (seen, requests.are_under_way()) == ([True], False)


def test_a_request_that_fails_is_over_too() -> None:
    requests = Requests()

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        requests.counted(application)({}, print)
    assert not requests.are_under_way()

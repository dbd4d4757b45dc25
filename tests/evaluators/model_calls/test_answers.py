"""What servers answer, in all the forms they do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from evaluators.model_calls.calls import (
    CallOutcome,
    UnreadableAnswerError,
    parse_body,
    read_answer,
    read_failure,
    retry_after_s,
)
from runs.models.results import CallStatus as StoredStatus

NOW = datetime(2026, 5, 12, 9, 0, 0, tzinfo=UTC)


def completion(message: Any, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": message}], **fields}


def test_the_ledger_stores_every_status_there_is() -> None:
    assert {str(status) for status in CallOutcome} == set(StoredStatus.values)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Tue, 12 May 2026 09:00:30 GMT"}, 30.0),
        ({"retry-after": "Tue, 12 May 2026 08:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Tue, 12 May 99999999999999999999 09:00:30 GMT"}, None),
        ({"retry-after": "Tue, 12 May 2026 09:00:30 +99999999999999"}, None),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
    ],
    ids=range(12),
)
def test_the_wait_a_server_asks_for(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, now=NOW) == expected


@pytest.mark.parametrize(
    ("http_status", "body", "status", "words"),
    [
        (429, '{"error": {"message": "slow down"}}', CallOutcome.RATE_LIMITED, "slow down"),
        (429, '{"error": {"code": "insufficient_quota"}}', CallOutcome.REFUSED, "quota"),
        (401, '{"error": "wrong key"}', CallOutcome.REFUSED, "wrong key"),
        (404, '{"detail": "no model"}', CallOutcome.REFUSED, "no model"),
        (400, '{"message": "too long"}', CallOutcome.REFUSED, "too long"),
        (422, '{"detail": [{"loc": ["body"]}]}', CallOutcome.REFUSED, "body"),
        (302, "", CallOutcome.REFUSED, "not followed"),
        (500, "<html>oops</html>", CallOutcome.SERVER_ERROR, "oops"),
        (503, "", CallOutcome.SERVER_ERROR, "503"),
        (408, "{}", CallOutcome.SERVER_ERROR, "408"),
    ],
    ids=range(10),
)
def test_a_refusal_is_told_in_the_servers_own_words(
    http_status: int, body: str, status: CallOutcome, words: str
) -> None:
    failure = read_failure(http_status, {}, body)

    assert failure.status is status
    assert words in failure.reason
    assert failure.is_final is (status is CallOutcome.REFUSED)


@pytest.mark.parametrize(
    "body", [None, [], {}, {"choices": []}, {"choices": [1]}, {"choices": [{}]}, completion("x")]
)
def test_what_is_no_completion_is_unreadable(body: Any) -> None:
    with pytest.raises(UnreadableAnswerError):
        read_answer(body)


@pytest.mark.parametrize(
    ("content", "expected"),
    [("text", "text"), (None, ""), ([{"type": "text", "text": "a"}, {"text": "b"}], "ab"), (7, "")],
)
def test_the_text_of_a_message(content: Any, expected: str) -> None:
    assert read_answer(completion({"content": content})).text == expected


@pytest.mark.parametrize("count", [None, -1, True, "12", 1.5, 2**31])
def test_tokens_that_are_no_count_are_unknown(count: Any) -> None:
    answer = read_answer(completion({"content": ""}, usage={"prompt_tokens": count}))

    assert (answer.input_tokens, answer.output_tokens) == (None, None)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000])
def test_a_body_that_is_no_json_is_kept_as_text(text: str) -> None:
    assert parse_body(text) == {"text": text[:20_000]}

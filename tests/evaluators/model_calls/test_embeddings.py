"""Embeddings go the way of every call: limits, tries, ledger and cost; and what is no embedding."""

from __future__ import annotations

import asyncio
import json
import struct
from base64 import b64encode
from decimal import Decimal
from typing import Any

from evaluators.kinds._base import JudgeFailure, JudgeQuestion
from evaluators.model_calls.calls import CallOutcome, CallRecord, Ledger
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.judge import ModelJudge
from tests.evaluators.model_calls.calling import FAST, make_spec
from tests.support.model_server import ModelServer, body, rate_limited

TEXTS = ("It comes today.", "It comes \ud800 on Monday.")
QUESTION = JudgeQuestion("embedding_similarity", "", (), {}, embedded=TEXTS)


def packed(*values: float) -> str:
    return b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def embeddings(*vectors: Any, **more: Any) -> dict[str, Any]:
    rows = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return {"data": rows[::-1], "model": "embed-3", "usage": {"prompt_tokens": 9}, **more}


def ask(server: ModelServer, earlier: list[CallRecord]) -> tuple[Any, list[CallRecord]]:
    """Ask once, with the records of an earlier try at hand; a failure is returned."""
    records: list[CallRecord] = []
    known = {(one.key, one.request_hash): one for one in earlier if one.status is CallOutcome.OK}

    async def session() -> Any:
        client = ModelClient(None, FAST)
        ledger = Ledger(lambda key, digest: known.get((key, digest)), records.append)
        spec = make_spec(server, parameters={"dimensions": 2, "input": "mine"})
        judge = ModelJudge(client, {"mock": spec}, "mock", ledger, path="near")
        try:
            return await judge.ask(QUESTION)
        except JudgeFailure as failure:
            return failure
        finally:
            await client.aclose()

    return asyncio.run(session()), records


def test_two_texts_become_two_vectors_in_one_call_that_is_paid_and_recalled(
    model_server: ModelServer,
) -> None:
    model_server.behave(rate_limited(), body(json.dumps(embeddings(packed(0.5, -2), [1, 0.25]))))

    reply, records = ask(model_server, [])

    assert [list(vector) for vector in reply.content["vectors"]] == [[0.5, -2], [1, 0.25]]
    # 9 tokens at $2 for a million.
    assert (reply.model, reply.usage.cost_usd) == ("embed-3", Decimal("0.000018000"))
    assert [record.status for record in records] == [CallOutcome.RATE_LIMITED, CallOutcome.OK]
    assert records[1].key.evaluator_path == "near"
    sent = model_server.requests[-1]
    assert sent.path == "/v1/embeddings"
    assert sent.body == {
        "model": "mock",
        "input": [TEXTS[0], "It comes \ufffd on Monday."],
        "encoding_format": "base64",
        "dimensions": 2,
    }
    again, none = ask(model_server, records)
    assert (again.content, none, len(model_server.requests)) == (reply.content, [], 2)


SPOILT: list[dict[str, Any]] = [
    {"choices": [{"message": {"content": "0.9"}}]},
    {"data": []},
    {"data": ["x", "y"]},
    embeddings([1, 0]),
    embeddings([1, 0], [1, 0], [1, 0]),
    embeddings([1, 0], [1]),
    embeddings([1, "0"], [1, 0]),
    embeddings([], []),
    embeddings({"0": 1}, None),
    embeddings("no base64", packed(1, 0)),
    embeddings("AAA=", packed(1, 0)),
    embeddings(packed(float("nan"), 0), packed(1, 0)),
    {"data": [{"index": [1], "embedding": [1]}, {"index": 1, "embedding": [1]}]},
]


def test_what_is_no_pair_of_embeddings_is_a_failure_that_is_written_down(
    model_server: ModelServer,
) -> None:
    for spoilt in SPOILT:
        model_server.behave(then=body(json.dumps(spoilt)))

        failure, records = ask(model_server, [])

        assert isinstance(failure, JudgeFailure), spoilt
        assert (failure.stage, records[0].status) == ("judge", CallOutcome.UNREADABLE)
        assert "embedding" in failure.reason

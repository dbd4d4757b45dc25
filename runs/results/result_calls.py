"""Every call of a model made for one result, with its request and its reply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet

from runs.models.results import CallStatus, ModelCall
from runs.models.runs import Run
from runs.results.result_page import name_of_try

MAX_CALLS = 200
MAX_CALL_TEXT = 20_000


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call as the page shows it; request and reply are cut, the download is whole."""

    pk: int
    purpose: str
    evaluator: str
    model: str
    status: str
    is_ok: bool
    http_status: int | None
    error: str
    occasion: str
    is_cached: bool
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    latency_ms: int | None
    created_at: datetime
    request: str
    reply: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ResultCalls:
    """The calls of one result, oldest first, and how many there are in all."""

    rows: tuple[CallRow, ...]
    total: int


def result_calls(run: Run, key: str, repetition: int) -> ResultCalls:
    """Return the calls made for one execution, the target's and the judges'."""
    calls = _calls_of(run, key, repetition)
    return ResultCalls(tuple(_row(call) for call in calls[:MAX_CALLS]), calls.count())


def one_call(run: Run, key: str, repetition: int, pk: int) -> dict[str, Any]:
    """Return one call of an execution whole, for download; raises ModelCall.DoesNotExist."""
    call = _calls_of(run, key, repetition).get(pk=pk)
    return {
        "request": call.request,
        "reply": call.reply,
        "status": call.status,
        "http_status": call.http_status,
        "error": call.error,
        "model": call.model_name,
    }


def _calls_of(run: Run, key: str, repetition: int) -> QuerySet[ModelCall]:
    return ModelCall.objects.filter(run=run, result__case__key=key, result__repetition=repetition)


def _row(call: ModelCall) -> CallRow:
    request, reply = _spelled(call.request), _spelled(call.reply)
    return CallRow(
        pk=call.pk,
        purpose=call.purpose,
        evaluator=call.evaluator_path,
        model=call.model_name,
        status=CallStatus(call.status).label,
        is_ok=call.status == CallStatus.OK,
        http_status=call.http_status,
        error=call.error,
        occasion=_occasion(call),
        is_cached=call.is_cached,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cost_usd=call.cost_usd,
        latency_ms=call.latency_ms,
        created_at=call.created_at,
        request=request[:MAX_CALL_TEXT],
        reply=reply[:MAX_CALL_TEXT],
        is_cut=max(len(request), len(reply)) > MAX_CALL_TEXT,
    )


def _occasion(call: ModelCall) -> str:
    """Say which of several calls of the same evaluator it was, and in which try."""
    named = (("sample", call.sample), ("round", call.round), ("repair", call.repair))
    parts = [
        f"{name} {number}" if name == "repair" else f"{name} {number + 1}"
        for name, number in named
        if number
    ]
    if call.generation > 1 or call.attempt > 1:
        parts.append(name_of_try(call.generation, call.attempt))
    return ", ".join(parts)


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)

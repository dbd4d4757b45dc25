"""What a try of an evaluator found, as plain JSON: scores as a result stores them, and every call with its reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.judging.calls import CallRecord
from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from evaluators.scoring.types import Outcome
from runs.models.ledger import ANSWERED
from runs.models.stored import SCORE_COLUMNS, score_rows

MOST_CALLS = 200
MOST_SHOWN = 100_000
COLUMNS = SCORE_COLUMNS[1:]


@dataclass(frozen=True, slots=True)
class Tried:
    """One output scored by a tree: what every evaluator of it said, and what the rules make of that."""

    root: Node
    policy: Policy
    outcomes: Mapping[str, Outcome]
    decision: Decision


def found_of(tried: Tried, records: Sequence[CallRecord]) -> dict[str, Any]:
    """Return what a try found; money as text."""
    return {
        "decision": tried.decision.as_json(),
        "scores": [_plain(row) for row in scores_of(tried)],
        "calls": _calls(records),
        "call_count": len(records),
    }


def scores_of(tried: Tried) -> list[dict[str, Any]]:
    """Return the columns of a stored score for every evaluator of the tree, in tree order."""
    rows = score_rows(0, tried.root, tried.outcomes, tried.decision)
    return [dict(zip(COLUMNS, row[1:], strict=True)) for row in rows]


def failed(reason: str, records: Sequence[CallRecord]) -> dict[str, Any]:
    """Return why a try came to nothing, with the calls it made all the same."""
    return {"problem": reason, "calls": _calls(records), "call_count": len(records)}


def spent_usd(records: Sequence[CallRecord]) -> Decimal | None:
    """Return what the answered calls cost; None when there were some and no price is known of any."""
    answered = [record for record in records if record.status.value in ANSWERED]
    known = [record.cost_usd for record in answered if record.cost_usd is not None]
    return sum(known, Decimal(0)) if known or not answered else None


def spelled(value: Any) -> str:
    """Return a request or a reply as it is read: text as it stands, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _calls(records: Sequence[CallRecord]) -> list[dict[str, Any]]:
    ordered = sorted(records, key=lambda record: record.created_at)
    return [_call(record) for record in ordered[:MOST_CALLS]]


def _call(record: CallRecord) -> dict[str, Any]:
    key, cost = record.key, record.cost_usd
    return {
        "path": key.evaluator_path,
        "sample": key.sample,
        "round": key.round,
        "repair": key.repair,
        "model": record.model,
        "status": record.status.value,
        "http_status": record.http_status,
        "error": record.error,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cost_usd": None if cost is None else str(cost),
        "latency_ms": record.latency_ms,
        "request": spelled(record.request)[:MOST_SHOWN],
        "reply": spelled(record.reply)[:MOST_SHOWN],
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    cost = row["cost_usd"]
    return {**row, "cost_usd": None if cost is None else str(cost)}

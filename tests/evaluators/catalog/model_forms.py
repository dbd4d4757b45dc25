"""What is sent by the form of a language model, and what a test of one may have found."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

SECRET = "sk-very-secret-0123456789"


def posted(**changes: Any) -> dict[str, Any]:
    """Return the fields of a valid form."""
    fields = {
        "name": "House judge",
        "slug": "house-judge",
        "base_url": "http://127.0.0.1:9000/v1",
        "model_id": "juno-2",
        "api_key": SECRET,
        "key_variable": "",
        "reply_mode": "json_schema",
        "temperature": "0",
        "parameters": "",
        "concurrency": "8",
        "requests_per_minute": "",
        "timeout_s": "60",
        "input_price_usd_per_mtok": "",
        "output_price_usd_per_mtok": "",
        "cached_price_usd_per_mtok": "",
    }
    return fields | changes


def done(**found: Any) -> dict[str, Any]:
    return {"state": "done", "asked_at": timezone.now().isoformat(), "asked_by": "mira", "modes": [],
            "error": "", "reason": "", "http_status": None, "cost_usd": None, "models": [],
            "input_tokens": None, "output_tokens": None, "price_version": "", "calls": 0,
            "answered_by": "", "model_count": 0} | found  # fmt: skip
